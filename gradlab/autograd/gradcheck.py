"""Checking gradients against finite differences: `gradcheck` and `gradgradcheck`, with PyTorch's arguments.

Slow mode compares whole Jacobians, an entry each. Fast mode compares one number for each input and output: along a random direction u of
the input, weighted by a random v, the central difference of v·f with v·J·u. A failure of fast mode is explained by slow mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab import dispatch
from gradlab.autograd import engine
from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.inplace import written
from gradlab.autograd.mode import current, enter, leave
from gradlab.dtype import COMPLEX, COMPLEX128, FLOAT64, INEXACT
from gradlab.named_errors import named_functions
from gradlab.spec import count
from gradlab.strides import is_writable

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """A gradient is not what finite differences say."""


class _Settings(NamedTuple):
    eps: float
    atol: float
    rtol: float
    nondet_tol: float


def _values(tensor: Any) -> Array:
    """A tensor's elements as float64; of complex numbers real and imaginary parts as two elements, in one more dimension.

    So all that is compared is real: the gradient by z is that by its two parts.
    """
    x = tensor.detach().cpu()
    if x._array.dtype in COMPLEX:
        return np.array(np.asarray(x._array, COMPLEX128)[..., None].view(FLOAT64))
    return np.array(x.double().numpy())


def _shape(tensor: Any) -> tuple[int, ...]:
    """The shape of `_values`."""
    shape: tuple[int, ...] = tensor._array.shape
    return (*shape, 2) if tensor._array.dtype in COMPLEX else shape


def _like(tensor: Any, values: Array) -> Any:
    """A tensor of that tensor's dtype whose `_values` these are."""
    dtype = tensor._array.dtype
    found = np.array(values, FLOAT64, order="C")
    return tensor.detach().new_tensor(found.view(COMPLEX128)[..., 0] if dtype in COMPLEX else found, dtype=dtype)


class _Case:
    """A function at its inputs: evaluates it at changed inputs and differentiates it."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.function, self.inputs = function, list(inputs)
        self.places = [i for i, x in enumerate(inputs) if isinstance(x, Differentiable) and x._edge is not None]
        self.wanted = [self.inputs[i] for i in self.places]

    def outputs(self) -> list[Any]:
        """The function's floating point outputs."""
        found = self.function(*self.inputs)
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        return [x for x in listed if isinstance(x, Differentiable) and x._array.dtype in INEXACT]

    def at(self, number: int, changed: Array) -> list[Array]:
        """The outputs' values with other values in one of the inputs: in its memory, since the function may know it by another name
        (a module's parameter). Afterwards all is as it was, also for graphs that keep the input's values."""
        x = self.wanted[number]
        if not is_writable(x._array):
            other = _like(x, changed).requires_grad_()
            kept = self.inputs
            self.inputs = [other if i == self.places[number] else y for i, y in enumerate(kept)]
            try:
                return [_values(y) for y in self.outputs()]
            finally:
                self.inputs = kept
        version, backend = version_of(x), dispatch.backend_of(x._array)
        before, values = (version.written, version.count), backend.copy(x._array)
        backend.assign(x._array, _like(x, changed)._array)
        written(version)
        try:
            return [_values(y) for y in self.outputs()]
        finally:
            backend.assign(x._array, values)
            version.written, version.count = before

    def slope(self, number: int, direction: Array, eps: float) -> list[Array]:
        """Central differences of all outputs along a direction of one input."""
        x = _values(self.wanted[number])
        after, before = self.at(number, x + eps * direction), self.at(number, x - eps * direction)
        return [(a - b) / (2 * eps) for a, b in zip(after, before, strict=True)]

    def vjp(self, output: Any, weights: Array) -> list[Any]:
        """The inputs' gradients of (output * weights).sum()."""
        if output._edge is None:
            return [None] * len(self.wanted)
        return engine.grad([output], self.wanted, [_like(output, weights.reshape(_shape(output)))], True, False)

    def numerical(self, eps: float) -> list[list[Array]]:
        """Jacobians [input][output] of shape (input's elements, output's elements)."""
        found = []
        for i, x in enumerate(self.wanted):
            columns: list[list[Array]] = []
            size = count(_shape(x))
            for k in range(size):
                one = np.zeros(size)
                one[k] = 1.0
                columns.append([d.reshape(-1) for d in self.slope(i, one.reshape(_shape(x)), eps)])
            sizes = [count(_shape(y)) for y in self.outputs()] if not columns else [d.size for d in columns[0]]
            found.append([np.array([c[j] for c in columns]).reshape(size, sizes[j]) for j in range(len(sizes))])
        return found

    def analytical(self, outputs: list[Any]) -> list[list[Array]]:
        """The same by backward."""
        found = [[np.zeros((count(_shape(x)), count(_shape(y)))) for y in outputs] for x in self.wanted]
        for j, y in enumerate(outputs):
            for k in range(count(_shape(y))):
                one = np.zeros(count(_shape(y)))
                one[k] = 1.0
                for i, g in enumerate(self.vjp(y, one)):
                    if g is not None:
                        found[i][j][:, k] = _values(g).reshape(-1)
        return found


def _same(a: Array, b: Array, tolerance: float) -> bool:
    return bool(np.allclose(a, b, rtol=0.0, atol=tolerance, equal_nan=True))


def _report(case: _Case, outputs: list[Any], i: int, j: int, analytical: Array, numerical: Array, s: _Settings) -> str:
    """The worst entry of a Jacobian, and how many others are wrong."""
    tolerance = s.atol + s.rtol * np.abs(numerical)
    with np.errstate(invalid="ignore"):
        ratio = np.abs(analytical - numerical) / tolerance
    ratio[np.isnan(ratio)] = np.inf
    ratio[np.isnan(analytical) & np.isnan(numerical)] = 0.0
    a, b = np.unravel_index(int(ratio.argmax()), ratio.shape)
    x, y = case.wanted[i], outputs[j]
    at = tuple(int(k) for k in np.unravel_index(int(a), _shape(x))) if _shape(x) else ()
    out = tuple(int(k) for k in np.unravel_index(int(b), _shape(y))) if _shape(y) else ()
    text = (
        f"Jacobian mismatch for output {j} with respect to input {case.places[i]},\n"
        f"  worst entry: d output{list(out)} / d input{list(at)}\n"
        f"    analytical {analytical[a, b]:.8g}, numerical {numerical[a, b]:.8g}, "
        f"difference {abs(analytical[a, b] - numerical[a, b]):.3g}, {ratio[a, b]:.3g} times the tolerance {tolerance[a, b]:.3g}\n"
        f"  {int((ratio > 1).sum())} of {ratio.size} entries are off by more than atol={s.atol:g} + rtol={s.rtol:g}*|numerical|"
    )
    if ratio.size <= 64:
        with np.printoptions(precision=5, suppress=True):
            text += f"\n  numerical:\n{numerical}\n  analytical:\n{analytical}"
    return text


def _compare_slow(case: _Case, outputs: list[Any], s: _Settings) -> str:
    """Nothing, or what is wrong."""
    analytical, numerical = case.analytical(outputs), case.numerical(s.eps)
    for i in range(len(case.wanted)):
        for j, y in enumerate(outputs):
            a, n = analytical[i][j], numerical[i][j]
            if not np.allclose(a, n, rtol=s.rtol, atol=s.atol, equal_nan=True):
                text = _report(case, outputs, i, j, a, n, s)
                if y._edge is None:
                    text += "\n  Numerical gradient for function expected to be zero: this output does not require grad"
                return text
    again = case.analytical(outputs)
    for i in range(len(case.wanted)):
        for j in range(len(outputs)):
            if not _same(analytical[i][j], again[i][j], s.nondet_tol):
                return _not_reentrant(case, i, j, analytical[i][j], again[i][j], s)
    return ""


def _not_reentrant(case: _Case, i: int, j: int, first: Array, second: Array, s: _Settings) -> str:
    return (
        f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, "
        f"although analytical gradient matches numerical gradient: output {j}, input {case.places[i]}, values differ by up to "
        f"{np.abs(first - second).max():.3g}. The tolerance for nondeterminism was {s.nondet_tol:g}"
    )


def _compare_fast(case: _Case, outputs: list[Any], s: _Settings) -> str:
    rng = np.random.default_rng(0)

    def direction(tensor: Any) -> Array:
        v = rng.normal(size=_shape(tensor))
        return np.asarray(v / max(float(np.linalg.norm(v)), 1e-30))

    us, vs = [direction(x) for x in case.wanted], [direction(y) for y in outputs]
    slopes = [case.slope(i, u, s.eps) for i, u in enumerate(us)]
    for j, y in enumerate(outputs):
        first, second = case.vjp(y, vs[j]), case.vjp(y, vs[j])
        for i, u in enumerate(us):
            numerical = float((slopes[i][j] * vs[j]).sum())
            analytical = 0.0 if first[i] is None else float((_values(first[i]) * u).sum())
            # An entry may be off by atol; the sum over entries, weighted with u and v, by that much more.
            atol = s.atol * float(np.abs(u).sum()) * float(np.abs(vs[j]).sum())
            if not np.isclose(analytical, numerical, rtol=s.rtol, atol=atol, equal_nan=True):
                found = _compare_slow(case, outputs, s)
                return found or (
                    f"Jacobian mismatch for output {j} with respect to input {case.places[i]} along a random direction (fast mode): "
                    f"analytical {analytical:.8g}, numerical {numerical:.8g}; each entry alone is within its tolerance: run with "
                    f"fast_mode=False, or allow more"
                )
            if first[i] is not None and not _same(_values(first[i]), _values(second[i]), s.nondet_tol):
                return _not_reentrant(case, i, j, _values(first[i]), _values(second[i]), s)
    return ""


def _undefined(case: _Case, outputs: list[Any]) -> str:
    """Each output alone with a gradient of zero, the others with none: the inputs' gradients have to be zero too."""
    for j, y in enumerate(outputs):
        if y._edge is None:
            continue
        for i, g in enumerate(case.vjp(y, np.zeros(_shape(y)))):
            if g is not None and np.any(_values(g) != 0):
                return (
                    f"Expected backward function to handle undefined output grads: with a zero gradient for output {j} only, input "
                    f"{case.places[i]} got a gradient that is not zero (up to {np.abs(_values(g)).max():.3g})"
                )
    return ""


def _dtypes(case: _Case, outputs: list[Any]) -> str:
    for y in outputs:
        for i, g in enumerate(case.vjp(y, np.ones(_shape(y)))):
            if g is not None and g._array.dtype != case.wanted[i]._array.dtype:
                return f"the gradient of input {case.places[i]} has dtype {g.dtype}, the input {case.wanted[i].dtype}"
    return ""


def _forward_twice(case: _Case, outputs: list[Any], s: _Settings) -> str:
    for j, (a, b) in enumerate(zip(outputs, case.outputs(), strict=True)):
        if not _same(_values(a), _values(b), s.nondet_tol):
            return (
                f"the function is not deterministic: output {j} differs by up to {np.abs(_values(a) - _values(b)).max():.3g} when it is "
                f"called twice with the same inputs (nondet_tol={s.nondet_tol:g}). Seed what is random inside it"
            )
    return ""


def _check_inputs(case: _Case) -> None:
    if not case.wanted:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for i, x in zip(case.places, case.wanted):
        if x._array.dtype not in (FLOAT64, COMPLEX128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point: it is {x.dtype}. This check will likely "
                f"fail if all the inputs are not of double precision floating point. ",
                stacklevel=4,
            )
        if x.numel() and any(step == 0 and size > 1 for step, size in zip(getattr(x._array, "strides", ()), x._array.shape)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to "
                f"compute the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
            )


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Whether the gradients of `func(*inputs)` are what central differences with step `eps` say.

    inputs: a tensor or a tuple; those that require grad are checked, best in float64 or complex128. Outputs that are neither floating
        point nor complex are ignored. Of complex numbers both parts are changed, and both are looked at. An entry is
        right if it is within atol + rtol * |numerical|.
    nondet_tol: how much two runs may differ. check_undefined_grad: also with gradients for one output at a time. check_grad_dtypes:
        gradients have their inputs' dtypes. check_batched_grad: the backward runs under vmap (`is_grads_batched`), and agrees.
    fast_mode: one random direction instead of every entry: a few calls of func instead of two for each element.
    Raises GradcheckError with the worst entry (or, with raise_exception=False, gives False). Forward mode is backward differentiated
    twice: `gradgradcheck` checks it.

    >>> import gradlab as gl
    >>> gl.autograd.gradcheck(gl.sin, gl.ones(3, dtype=gl.float64, requires_grad=True))
    True
    """
    if check_forward_ad:
        raise NotImplementedError("gradcheck: there is no forward mode of its own; gradgradcheck checks what gl.func.jvp is made of")
    case = _Case(func, [inputs] if isinstance(inputs, Differentiable) else list(inputs))
    settings = _Settings(eps, atol, rtol, nondet_tol)
    token = enter(current().replace(recording=True))
    try:
        _check_inputs(case)
        outputs = case.outputs()
        problem = _forward_twice(case, outputs, settings)
        if not problem and check_backward_ad:
            problem = (_compare_fast if fast_mode else _compare_slow)(case, outputs, settings)
        if not problem and check_undefined_grad:
            problem = _undefined(case, outputs)
        if not problem and check_grad_dtypes:
            problem = _dtypes(case, outputs)
        if not problem and check_batched_grad:
            problem = _batched(case, outputs)
        if problem:
            raise GradcheckError(problem)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    finally:
        leave(token)
    return True


def _batched(case: _Case, outputs: list[Any]) -> str:
    rng = np.random.default_rng(1)
    for j, y in enumerate(outputs):
        if y._edge is None:
            continue
        v = rng.normal(size=(2, *_shape(y)))
        try:
            many = engine.batched([y], case.wanted, [_like(y, v)], True, False)
        except RuntimeError as error:
            return f"While computing batched gradients (backward under vmap), got: {error}"
        for k in range(2):
            for i, (a, b) in enumerate(zip(many, case.vjp(y, v[k]), strict=True)):
                if (a is None) != (b is None) or (b is not None and not np.allclose(_values(a)[k], _values(b))):
                    return f"Gradients of a batch differ from those one by one: output {j}, input {case.places[i]}"
    return ""


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """As `gradcheck`, for the gradients of the gradients of func, also with respect to grad_outputs (random ones if they are not given).

    >>> import gradlab as gl
    >>> gl.autograd.gradgradcheck(lambda x: x**3, gl.ones(3, dtype=gl.float64, requires_grad=True))
    True
    """
    given = [inputs] if isinstance(inputs, Differentiable) else list(inputs)
    case = _Case(func, given)
    if grad_outputs is None:
        rng = np.random.default_rng(2)
        directions = [
            _like(y, rng.normal(size=_shape(y))).requires_grad_()
            for y in case.outputs()
            if y._edge is not None
        ]
    else:
        directions = [grad_outputs] if isinstance(grad_outputs, Differentiable) else list(grad_outputs)

    def gradients(*args: Any) -> tuple[Any, ...]:
        inner = _Case(func, args[: len(given)])
        outputs = [y for y in inner.outputs() if y._edge is not None]
        wanted = [x for i, x in enumerate(args[: len(given)]) if i in case.places]
        found = engine.grad(outputs, wanted, list(args[len(given) :]), None, True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients, (*given, *directions), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
    )  # fmt: skip


named_functions(__name__)
