"""Functions that PyTorch has kept from its first versions, and whose place is taken by others: `range`, `svd`, `qr` and their kin; methods
of functions that are loaded when first used."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradlab.advice import warn
from gradlab.autograd.base import Differentiable
from gradlab.dtype import as_numpy, get_default_dtype
from gradlab.named_errors import named_functions
from gradlab.strides import contiguous_format
from gradlab.tensor import factorization, solve
from gradlab.tensor.common_arguments import functions_take_axis, into, made, only_tensors, plain
from gradlab.tensor.creation import tensor
from gradlab.tensor.norms import norm
from gradlab.tensor.splitting import chunk, narrow, split

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "narrow_copy", "norm_except_dim", "qr", "range", "svd", "triangular_solve", "unsafe_chunk",
    "unsafe_split", "unsafe_split_with_sizes",
]  # fmt: skip


def range(
    start: float, end: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """start, start + step, … up to and including `end`, in the default floating point dtype unless another is given. A UserWarning says
    that `arange`, which stops before its end, has taken its place.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     gl.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    if options:
        plain("range", options)
    if out is not None:
        return made("range", out, dtype, device, lambda dtype, device: range(start, end, step, dtype=dtype, device=device))
    warn(UserWarning, "range is deprecated, since it includes its end; use arange(start, end, step), which does not")
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError(f"range: step {step} does not lead from {start} to {end}")
    chosen = as_numpy(get_default_dtype() if dtype is None else dtype)
    size = math.floor((end - start) / step) + 1
    return tensor(start + step * np.arange(size), dtype=chosen, device=device, requires_grad=requires_grad)


class SingularValues(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    V: Any


def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """U, S, V with input = U diag(S) Vᵀ, of matrices (…, m, n). some: only as many columns as there are singular values. Without compute_uv
    U and V are zeros. `linalg.svd` has taken its place, which gives Vᵀ and by default all columns.

    >>> gl.svd(gl.tensor([[2.0, 0.0], [0.0, 1.0]])).S
    tensor([2., 1.])
    """
    if out is not None:
        return into("svd", out, svd(input, some, compute_uv))
    only_tensors("svd", input)
    if not compute_uv:
        *batch, m, n = input._array.shape
        return SingularValues(input.new_zeros((*batch, m, m)), factorization.svdvals(input), input.new_zeros((*batch, n, n)))
    U, S, Vh = factorization.svd(input, full_matrices=not some)
    return SingularValues(U, S, Vh.mT)


def qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """Q and R with input = Q R. some: only as many columns of Q as needed. A UserWarning says that `linalg.qr` has taken its place.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     gl.qr(gl.tensor([[2.0]])).R
    tensor([[2.]])
    """
    warn(UserWarning, f'qr is deprecated; use linalg.qr(input, "{"reduced" if some else "complete"}")')
    return factorization.qr(input, "reduced" if some else "complete", out=out)


class TriangularSolution(NamedTuple):
    """What `triangular_solve` returns."""

    solution: Any
    cloned_coefficient: Any


def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = None
) -> Any:
    """The X of A X = input with a triangular A, transposed first if asked for, and a copy of A. A UserWarning says that
    `linalg.solve_triangular(A, input, upper=...)` has taken its place.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     gl.triangular_solve(gl.tensor([[4.0]]), gl.tensor([[2.0]])).solution
    tensor([[2.]])
    """
    warn(UserWarning, "triangular_solve is deprecated; use linalg.solve_triangular(A, input, upper=...)")
    only_tensors("triangular_solve", input, A)
    given, above = (A.mT, not upper) if transpose else (A, upper)
    found = TriangularSolution(solve.solve_triangular(given, input, upper=above, unitriangular=unitriangular), A.clone())
    return found if out is None else into("triangular_solve", out, found)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of order `pow` over all dimensions but `dim`, which keep size 1; with dim=-1 over all, a number.

    >>> gl.norm_except_dim(gl.tensor([[3.0, 4.0], [6.0, 8.0]]))
    tensor([[ 5.],
            [10.]])
    """
    if dim == -1:
        return norm(v, pow)
    rank = len(v._array.shape)
    return norm(v, pow, tuple(d for d in np.arange(rank).tolist() if d != dim % rank), True)


def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Any = None) -> Tensor:
    """`narrow`, in memory of its own.

    >>> gl.narrow_copy(gl.arange(4), 0, 1, 2)
    tensor([1, 2])
    """
    found = narrow(input, dim, start, length).clone(memory_format=contiguous_format)
    return found if out is None else into("narrow_copy", out, found)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`; its views are as safe as all others here.

    >>> gl.unsafe_chunk(gl.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return chunk(input, chunks, dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` in parts of one size; its views are as safe as all others here.

    >>> gl.unsafe_split(gl.arange(3), 2)
    (tensor([0, 1]), tensor([2]))
    """
    return split(input, split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` in parts of the given sizes; its views are as safe as all others here.

    >>> gl.unsafe_split_with_sizes(gl.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return split(input, list(split_sizes), dim)


functions_take_axis(__name__)
named_functions(__name__)


class DeprecatedMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    svd, qr, triangular_solve, narrow_copy, unsafe_chunk = svd, qr, triangular_solve, narrow_copy, unsafe_chunk

    def frexp(self: Any) -> Any:
        """Mantissas and exponents; see `gl.frexp`.

        >>> gl.tensor([8.0]).frexp().exponent
        tensor([4], dtype=gradlab.int32)
        """
        return import_module("gradlab.tensor.numerics").frexp(self)

    def histogram(self: Any, bins: Any = 100, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
        """How many elements lie in each bin, and the bins' edges; see `gl.histogram`.

        >>> gl.tensor([1.0, 2.0, 1.0]).histogram(2).hist
        tensor([2., 1.])
        """
        return import_module("gradlab.tensor.numerics").histogram(self, bins, range=range, weight=weight, density=density)

    def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
        """The first `size` places of what is not 0; see `gl.nonzero_static`.

        >>> gl.tensor([0, 3]).nonzero_static(size=2).tolist()
        [[1], [-1]]
        """
        return import_module("gradlab.tensor.numerics").nonzero_static(self, size=size, fill_value=fill_value)

    def stft(self: Any, *args: Any, **options: Any) -> Tensor:
        """The spectra of overlapping pieces; see `gl.stft`.

        >>> gl.ones(8).stft(4, return_complex=True).shape
        (3, 9)
        """
        return import_module("gradlab.tensor.spectrogram").stft(self, *args, **options)

    def istft(self: Any, *args: Any, **options: Any) -> Tensor:
        """The signal that spectra belong to; see `gl.istft`.

        >>> gl.ones(8).stft(4, return_complex=True).istft(4).shape
        (8,)
        """
        return import_module("gradlab.tensor.spectrogram").istft(self, *args, **options)

    def lu(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:
        """`linalg.lu_factor` by its old name; see `gl.lu`.

        >>> gl.tensor([[0.0, 1.0], [2.0, 4.0]]).lu()[1]
        tensor([2, 2], dtype=gradlab.int32)
        """
        return import_module("gradlab.tensor.packed_factors").lu(self, pivot, get_infos)

    def lu_solve(self: Any, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """X of A X = self, given `linalg.lu_factor(A)`.

        >>> gl.ones(2, 1).lu_solve(*gl.linalg.lu_factor(gl.tensor([[0.0, 2.0], [4.0, 0.0]])))
        tensor([[0.2500],
                [0.5000]])
        """
        return import_module("gradlab.tensor.packed_factors").lu_solve(self, LU_data, LU_pivots)

    def geqrf(self: Any) -> Any:
        """QR as LAPACK packs it; see `gl.geqrf`.

        >>> gl.tensor([[3.0], [4.0]]).geqrf().tau
        tensor([1.6000])
        """
        return import_module("gradlab.tensor.packed_factors").geqrf(self)

    def orgqr(self: Any, input2: Tensor) -> Tensor:
        """As `linalg.householder_product`.

        >>> gl.tensor([[-5.0], [0.5]]).orgqr(gl.tensor([1.6]))
        tensor([[-0.6000],
                [-0.8000]])
        """
        return import_module("gradlab.tensor.packed_factors").orgqr(self, input2)

    def ormqr(self: Any, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
        """Reflections applied to a matrix; see `gl.ormqr`.

        >>> gl.tensor([[-5.0], [0.5]]).ormqr(gl.tensor([1.6]), gl.tensor([[3.0], [4.0]]), transpose=True)
        tensor([[-5.],
                [ 0.]])
        """
        return import_module("gradlab.tensor.packed_factors").ormqr(self, input2, input3, left, transpose)
    unsafe_split, unsafe_split_with_sizes = unsafe_split, unsafe_split_with_sizes

    @property
    def volatile(self) -> bool:
        """False, with a UserWarning: `with gl.no_grad():` has taken its place.

        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     gl.ones(1).volatile
        False
        """
        warn(UserWarning, "volatile was removed, and is always False; use with no_grad()")
        return False

    def _by_hand(self: Any, name: str, function: Callable[..., Any], *others: Any) -> Any:
        if self.device.type != "cpu":
            raise TypeError(f"{name}: calls a Python function with numbers, which only a CPU tensor has at hand; use .cpu()")
        if any(x.requires_grad for x in (self, *others)):
            raise RuntimeError(f"{name}: what a Python function computes is not recorded; use operations on tensors, or .detach()")
        columns = [x.expand(self.shape).reshape(-1).tolist() for x in (self, *others)]
        return self.copy_(tensor([function(*row) for row in zip(*columns, strict=True)], dtype=self.dtype).reshape(self.shape))

    def apply_(self: Any, callable: Callable[[Any], Any]) -> Any:
        """Every element as a Python function makes it of that number, in place: slow, and of a CPU tensor that requires no grad.

        >>> gl.tensor([1.0, 2.0]).apply_(lambda x: 10 * x)
        tensor([10., 20.])
        """
        return self._by_hand("apply_", callable)

    def map_(self: Any, other: Tensor, callable: Callable[[Any, Any], Any]) -> Any:
        """As `apply_`, of this tensor's number and another's.

        >>> gl.tensor([1.0, 2.0]).map_(gl.tensor([3.0, 4.0]), lambda x, y: x * y)
        tensor([3., 8.])
        """
        return self._by_hand("map_", callable, other)

    def map2_(self: Any, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Any:
        """As `apply_`, of this tensor's number and two others'.

        >>> gl.tensor([1.0]).map2_(gl.tensor([3.0]), gl.tensor([4.0]), lambda x, y, z: x + y + z)
        tensor([8.])
        """
        return self._by_hand("map2_", callable, x, y)

    def pin_memory(self: Any, device: Any = None) -> Any:
        """This tensor itself: a copy to a GPU passes through pinned memory anyway.

        >>> x = gl.ones(2)
        >>> x.pin_memory() is x
        True
        """
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False: no memory that a tensor has is pinned.

        >>> gl.ones(2).is_pinned()
        False
        """
        return False
