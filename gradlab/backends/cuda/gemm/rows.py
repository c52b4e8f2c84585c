"""The rows `matmul` and `linear` by cuBLASLt: what a launch rule prepares for operands of given shapes and strides, and what a call does.

Where the library is missing, or has no algorithm for a problem, the caller's own kernel computes it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.gemm.binding import ComputeType, Epilogue
from gradlab.backends.cuda.gemm.library import blas_of
from gradlab.backends.cuda.gemm.operands import Arrangement, Copy, arrange
from gradlab.backends.cuda.gemm.plan import Blas, Prepared, Refused, alignment_of
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import element_strides
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.spec import Spec, count

AUX_ELEMENTS = 8  # what the leading dimension of GELU's kept input is a multiple of
BIAS_ALIGNMENT = 16  # bytes; the library's kernels read several of a bias's elements at once

Inputs = list[Any]
Fill = Callable[[Work, Inputs, list[Any], dict[str, Any]], None]


def compute_type(dtype: np.dtype[Any]) -> ComputeType:
    """How products of a dtype are computed under the present settings: half types in float32."""
    if dtype == FLOAT64:
        return ComputeType.F64
    return ComputeType.F32 if dtype != FLOAT32 or SETTINGS.precision == "highest" else ComputeType.F32_FAST_TF32


class Bias:
    """How a row's bias is added: by the product's epilogue, or, where that cannot be, by a product that adds to what lies in the output."""

    def __init__(self, work: Work, bias: Any, columns: int) -> None:
        self.work, self.columns = work, columns
        self.packed = bias.size == columns and (columns == 1 or element_strides(bias)[-1] == 1)

    def vector(self, bias: Any) -> Any:
        """One element for each column, behind one another."""
        if self.packed:
            return bias
        made = self.work.empty((self.columns,), bias.dtype)
        self.work.copy(made, self.work.broadcast(bias, (self.columns,)))
        return made

    def fill(self, bias: Any, y: Any) -> None:
        """Write it into each row of y."""
        self.work.copy(y, self.work.broadcast(bias, y.shape))


_PLAIN, _EPILOGUE, _ADDING = range(3)
_WITH_RELU = {Epilogue.DEFAULT: Epilogue.RELU, Epilogue.BIAS: Epilogue.RELU_BIAS}


class Product:
    """One arrangement with its prepared problems by alignment, settings and how the bias is added.

    quick: what a call comes to, by the addresses joined by | (the last eight bits) and the settings, where it is one call of the library.
    """

    def __init__(self, work: Work, blas: Blas, arrangement: Arrangement, bias: Bias | None, relu: bool = False) -> None:
        self.work, self.blas, self.bias, self.relu = work, blas, bias, relu
        self.problem, self.offsets = arrangement.problem, arrangement.offsets
        self.spread = functools.reduce(operator.or_, (at for place in self.offsets for at in place))
        self.found: dict[tuple[int, int], Prepared | None] = {}
        self.quick: dict[int, Callable[..., None]] = {}

    def prepared(self, addresses: int, mode: int) -> Prepared | None:
        """The problem made ready for these addresses, joined by |. None where the library has no algorithm."""
        addresses = (addresses | self.spread) & 255
        key = (addresses | SETTINGS.number, mode)
        if key in self.found:
            return self.found[key]
        problem = self.problem._replace(compute=compute_type(self.problem.dtype))
        if mode == _EPILOGUE:
            problem = problem._replace(epilogue=Epilogue.BIAS)
        elif mode == _ADDING:
            problem = problem._replace(beta=1)
        if self.relu:
            problem = problem._replace(epilogue=_WITH_RELU[problem.epilogue])
        found = self.found[key] = self.blas.prepare(problem, alignment_of(addresses))
        return found

    def run(self, a: Any, b: Any, c: Any, bias: Any) -> bool:
        """Compute c; False where the library cannot."""
        pointer = self.work.pointer
        first, second, result, extra = pointer(b), pointer(a), pointer(c), 0
        found: Prepared | None = None
        if bias is None:
            found = self.prepared(first | second | result, _PLAIN)
        else:
            assert self.bias is not None
            vector = self.bias.vector(bias)
            extra = pointer(vector)
            if extra % BIAS_ALIGNMENT == 0:
                found = self.prepared(first | second | result | extra, _EPILOGUE)
            if found is None:
                found, extra = self.prepared(first | second | result, _ADDING), 0
                if found is not None:
                    self.bias.fill(bias, c)
        if found is None:
            return False
        try:
            self._run(found, first, second, result, extra)
        except Refused:
            self.found.clear()
            self.quick.clear()
            return self.run(a, b, c, bias)
        return True

    def _run(self, found: Prepared, first: int, second: int, result: int, extra: int) -> None:
        if SETTINGS.candidates > 1 and not found.timed and not found.problem.beta:
            joined = first | second | result | extra | self.spread
            found.choose_by_time(first, second, result, extra, SETTINGS.candidates, alignment_of(joined))
        if len(self.offsets) == 1 and not found.problem.beta:
            self.quick[(first | second | result | extra) & 255 | SETTINGS.number] = found.run
        for x, y, z in self.offsets:
            found.run(first + y, second + x, result + z, extra)


def _copied(work: Work, array: Any, copy: Copy, shape: tuple[int, ...]) -> Any:
    if copy is Copy.OWN:
        return work.contiguous(array)
    made = work.empty(shape, array.dtype)
    work.copy(made, work.broadcast(array, shape))
    return made


def _nothing(work: Work, out: Spec, bias: bool) -> Callable[..., Any]:
    """The plan for a sum of no products: zeros, or the bias."""

    def empty_sum(arrays: Inputs, outs: Sequence[Any] | None = None) -> Any:
        y = work.empty(out.shape, out.dtype) if outs is None else outs[0]
        if y.size:
            work.driver.fill_zero(y)
        if bias and y.size:
            work.copy(y, work.broadcast(arrays[-1], out.shape))
        return y

    return empty_sum


def _plan(
    work: Work, out: Spec, arrangement: Arrangement, shapes: tuple[Any, Any], bias: Bias | None, view: Any, fallback: Fill,
    relu: bool = False,
) -> Callable[..., Any] | None:  # fmt: skip
    blas = blas_of(work.driver)
    if blas is None:
        return None
    product = Product(work, blas, arrangement, bias, relu)
    run, quick, pointer, empty, (shape, dtype) = product.run, product.quick.get, work.pointer, work.empty, out
    copy_a, copy_b = arrangement.copy_a, arrangement.copy_b

    def plan(arrays: Inputs, outs: Sequence[Any] | None = None) -> Any:
        a, b, *rest = arrays
        c = empty(shape, dtype) if outs is None else outs[0]
        if view is not None:
            b = view(b)
        if copy_a:
            a = _copied(work, a, copy_a, shapes[0])
        if copy_b:
            b = _copied(work, b, copy_b, shapes[1])
        if not run(a, b, c, rest[0] if rest else None):
            fallback(work, arrays, [c], {})
        return c

    def plan_of_two(arrays: Inputs, outs: Sequence[Any] | None = None) -> Any:
        """Nothing to copy: what most calls come to."""
        a, b = arrays[0], arrays[1]
        c = empty(shape, dtype) if outs is None else outs[0]
        first, second, result = pointer(b), pointer(a), pointer(c)
        call = quick((first | second | result) & 255 | SETTINGS.number)
        if call is not None:
            try:
                call(first, second, result)
                return c
            except Refused:
                pass  # and remembered
        if not run(a, b, c, None):
            fallback(work, arrays, [c], {})
        return c

    def plan_with_bias(arrays: Inputs, outs: Sequence[Any] | None = None) -> Any:
        """The same with a bias."""
        a, b, extra = arrays
        c = empty(shape, dtype) if outs is None else outs[0]
        first, second, result, vector = pointer(b), pointer(a), pointer(c), pointer(extra)
        call = quick((first | second | result | vector) & 255 | SETTINGS.number)
        if call is not None:
            try:
                call(first, second, result, vector)
                return c
            except Refused:
                pass  # and remembered
        if not run(a, b, c, extra):
            fallback(work, arrays, [c], {})
        return c

    if copy_a or copy_b or (bias is not None and not bias.packed):
        return plan
    return plan_of_two if bias is None else plan_with_bias


def plan_matmul(work: Work, arrays: Inputs, out: Spec, fallback: Fill) -> Callable[..., Any] | None:
    """The plan of `matmul` for operands like these; None where the fallback does it all."""
    a, b = arrays
    (m, k), n, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    if not (k and count(out.shape)):
        return _nothing(work, out, False)
    arrangement = arrange(a.shape, element_strides(a), b.shape, element_strides(b), batch, a.dtype, out.dtype, compute_type(a.dtype))
    if arrangement is None:
        return None
    return _plan(work, out, arrangement, ((*batch, m, k), (*batch, k, n)), None, None, fallback)


def _turned(w: Any) -> Any:
    return w.swapaxes(0, 1)


def _layer(x: Any, w: Any, out: Spec) -> Arrangement | None:
    """The product of a fully connected layer; no size may be 0."""
    n, k = w.shape
    shape, strides = x.shape, element_strides(x)
    if len(shape) == 1:
        shape, strides = (1, k), (k, *strides)
    return arrange(shape, strides, (k, n), element_strides(w)[::-1], shape[:-2], out.dtype, out.dtype, compute_type(out.dtype))


def plan_linear(work: Work, arrays: Inputs, out: Spec, fallback: Fill, relu: bool = False) -> Callable[..., Any] | None:
    """The plan of `linear`, or `linear_relu`, for operands like these; None where the fallback does it all."""
    x, w, b = arrays
    if not (x.shape[-1] and count(out.shape)):
        return None if relu else _nothing(work, out, b is not None)
    n, k = w.shape
    arrangement = _layer(x, w, out)
    if arrangement is None:
        return None
    shape = x.shape if len(x.shape) > 1 else (1, k)
    # A copy of the weight is made of its transposed view, as it is described.
    view = _turned if arrangement.copy_b else None
    bias = None if b is None else Bias(work, b, n)
    return _plan(work, out, arrangement, (shape, (*shape[:-2], k, n)), bias, view, fallback, relu)


def plan_linear_gelu(work: Work, arrays: Inputs, out: Spec, fallback: Fill) -> Callable[..., Any] | None:
    """The plan of `linear_gelu_tanh` where the library's epilogue writes both results; None where the fallback does it all."""
    x, w, b = arrays
    n = w.shape[0]
    blas = blas_of(work.driver)
    if blas is None or b is None or n % AUX_ELEMENTS or not (x.shape[-1] and count(out.shape)) or not Bias(work, b, n).packed:
        return None
    arrangement = _layer(x, w, out)
    if arrangement is None or arrangement.copy_a or arrangement.copy_b or len(arrangement.offsets) > 1 or arrangement.problem.batch > 1:
        return None
    problem, pointer, (shape, dtype) = arrangement.problem._replace(epilogue=Epilogue.GELU_AUX_BIAS, ld_aux=n), work.pointer, out
    found: dict[int, Prepared | None] = {}

    def plan(arrays: Inputs, outs: Sequence[Any] | None = None) -> Any:
        x, w, b = arrays
        y, z = (work.empty(shape, dtype), work.empty(shape, dtype)) if outs is None else outs
        places = pointer(w), pointer(x), pointer(y), pointer(b), pointer(z)
        joined = functools.reduce(operator.or_, places)
        key = joined & 255 | SETTINGS.number
        if key not in found:
            aligned = places[3] % BIAS_ALIGNMENT == 0 and places[4] % BIAS_ALIGNMENT == 0
            found[key] = blas.prepare(problem._replace(compute=compute_type(dtype)), alignment_of(joined)) if aligned else None
        prepared = found[key]
        if prepared is not None:
            try:
                prepared.run(*places)
                return y, z
            except Refused:
                found[key] = None
        fallback(work, arrays, [y, z], {})
        return y, z

    return plan


def with_epilogue(
    work: Work, epilogue: Epilogue, a: Any, b: Any, c: Any, extra: Any = None, aux: Any = None, ld_aux: int = 0
) -> Callable[[], None] | None:
    """What computes c = a @ b with an epilogue, for these very matrices; None where the library does not. A call may raise Refused.

    extra: the bias, or where its gradient goes. aux: what the derivative needs, written or read, in `ld_aux` bits or elements for each row.
    """
    blas = blas_of(work.driver)
    if blas is None or not (a.size and b.size):
        return None
    arrangement = arrange(a.shape, element_strides(a), b.shape, element_strides(b), (), c.dtype, c.dtype, compute_type(c.dtype))
    if arrangement is None or arrangement.copy_a or arrangement.copy_b:
        return None
    first, second, result = work.pointer(b), work.pointer(a), work.pointer(c)
    more = [0 if x is None else work.pointer(x) for x in (extra, aux)]
    if any(x % BIAS_ALIGNMENT for x in more):
        return None
    alignment = alignment_of(first | second | result | more[0] | more[1])
    found = blas.prepare(arrangement.problem._replace(epilogue=epilogue, ld_aux=ld_aux), alignment)
    return None if found is None else functools.partial(found.run, first, second, result, *more)


def product_plus(work: Work, a: Any, b: Any, c: Any, y: Any) -> Callable[[], None] | None:
    """What computes y = a @ b + c in one call, for these very matrices; None where the library does not, or c does not lie as y does."""
    blas = blas_of(work.driver)
    if blas is None or not (a.size and b.size) or element_strides(c) != element_strides(y):
        return None
    arrangement = arrange(a.shape, element_strides(a), b.shape, element_strides(b), (), y.dtype, y.dtype, compute_type(y.dtype))
    if arrangement is None or arrangement.copy_a or arrangement.copy_b or len(arrangement.offsets) > 1:
        return None
    addresses = [work.pointer(x) for x in (b, a, c, y)]
    found = blas.prepare(arrangement.problem._replace(beta=1), alignment_of(functools.reduce(operator.or_, addresses)))
    return None if found is None else functools.partial(found.add_to, *addresses)


def product_with_sums(work: Work, a: Any, b: Any, c: Any, sums: Any) -> Callable[[], None] | None:
    """What computes c = a @ b and the sums of a's rows in one call, for these very matrices; None where the library does not."""
    return with_epilogue(work, Epilogue.BGRADB, a, b, c, sums)
