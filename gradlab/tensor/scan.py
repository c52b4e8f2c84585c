"""Running sums, products and extremes along a dimension, differences, integrals; products over dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, INEXACT, INT64, needs_floating
from gradlab.named_errors import explain, named_functions
from gradlab.spec import DimensionError, normalize_dim, normalize_dims
from gradlab.tensor.common_arguments import either, into, required
from gradlab.tensor.math_in_place import twin
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import cat

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "logcumsumexp", "prod", "trapezoid", "trapz",
]  # fmt: skip

_rows = ops.scan
_cumsum, _cumprod, _logcumsumexp, _cummax, _cummin, _prod = map(
    bind, (_rows.cumsum, _rows.cumprod, _rows.logcumsumexp, _rows.cummax, _rows.cummin, _rows.prod)
)


def _dim(name: str, input: Tensor, dim: int) -> int:
    try:
        return normalize_dim(dim, len(input._array.shape))
    except DimensionError as error:
        raise DimensionError(f"{name}: {error}") from None


def _summable(input: Tensor, dtype: Any) -> Tensor:
    """In the dtype asked for; integers and truth values as int64."""
    if dtype is not None:
        return input.to(dtype=dtype)
    return input if input._array.dtype in INEXACT else input.to(INT64)


def prod(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any
    = None,
) -> Tensor:  # fmt: skip
    """Product over `dim` (default all); of integers int64. The product of nothing is 1. Zeros are no trouble for the gradient.

    >>> gl.prod(gl.tensor([2, 3, 4]))
    tensor(24)
    """
    dim = dim if axis is None else either("prod", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    try:
        dims = normalize_dims(dim, len(input._array.shape))
    except (IndexError, ValueError) as error:
        raise type(error)(f"prod: {error}") from None
    result = _prod(_summable(input, dtype), dim=dims, keepdim=bool(keepdim))
    result = result if dtype is None else result.to(dtype=dtype)
    return result if out is None else into("prod", out, result)


@one_row
def cumsum(input: Tensor, dim: int | None = None, *, dtype: Any = None, axis: Any = None, out: Any = None) -> Tensor:
    """Running sum along `dim`; integers add up as int64.

    >>> gl.cumsum(gl.tensor([1, 2, 3]), dim=0)
    tensor([1, 3, 6])
    """
    try:
        dim = dim if dim is not None and axis is None else required("cumsum", dim, axis)
        result = _cumsum(_summable(input, dtype), dim=_dim("cumsum", input, dim))
        result = result if dtype is None else result.to(dtype=dtype)
        return result if out is None else into("cumsum", out, result)
    except Exception as error:
        explain(error, "cumsum", cumsum, (input, dim), {"dtype": dtype, "axis": axis, "out": out})


@one_row
def cumprod(input: Tensor, dim: int | None = None, *, dtype: Any = None, axis: Any = None, out: Any = None) -> Tensor:
    """Running product along `dim`; integers multiply as int64. Zeros are no trouble for the gradient.

    >>> gl.cumprod(gl.tensor([1, 2, 3]), dim=0)
    tensor([1, 2, 6])
    """
    dim = dim if dim is not None and axis is None else required("cumprod", dim, axis)
    result = _cumprod(_summable(input, dtype), dim=_dim("cumprod", input, dim))
    result = result if dtype is None else result.to(dtype=dtype)
    return result if out is None else into("cumprod", out, result)


def logcumsumexp(input: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """log of the running sum of exp(x) along `dim`, without overflow.

    >>> gl.logcumsumexp(gl.tensor([0.0, 0.0]), dim=0)
    tensor([0.0000, 0.6931])
    """
    dim = dim if dim is not None and axis is None else required("logcumsumexp", dim, axis)
    if input._array.dtype not in INEXACT:
        raise RuntimeError(needs_floating("logcumsumexp", input.dtype))
    result = _logcumsumexp(input, dim=_dim("logcumsumexp", input, dim))
    return result if out is None else into("logcumsumexp", out, result)


def cummax(input: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Any:
    """Running maximum along `dim`: (values, indices of the latest largest element). NaN is larger than all.

    >>> gl.cummax(gl.tensor([1, 3, 2]), dim=0).values
    tensor([1, 3, 3])
    """
    dim = dim if dim is not None and axis is None else required("cummax", dim, axis)
    result = _cummax(input, dim=_dim("cummax", input, dim))
    return result if out is None else into("cummax", out, result)


def cummin(input: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Any:
    """Running minimum along `dim`: (values, indices of the latest smallest element). NaN is smaller than all.

    >>> gl.cummin(gl.tensor([3, 1, 2]), dim=0).values
    tensor([3, 1, 1])
    """
    dim = dim if dim is not None and axis is None else required("cummin", dim, axis)
    result = _cummin(input, dim=_dim("cummin", input, dim))
    return result if out is None else into("cummin", out, result)


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, axis: Any = None, out: Any =
    None,
) -> Tensor:  # fmt: skip
    """n-th difference of neighbours along `dim` (exclusive or of truth values); `prepend` and `append` are joined on first.

    >>> gl.diff(gl.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    dim = dim if axis is None else either("diff", dim, -1, axis)
    if out is not None:
        return into("diff", out, diff(input, n, dim, prepend, append))
    if not input._array.shape:
        raise RuntimeError("diff: needs at least one dimension")
    dim = _dim("diff", input, dim)
    if n < 0:
        raise RuntimeError(f"diff: the order is not negative, got {n}")
    parts = [x for x in (prepend, input, append) if x is not None]
    for x in parts:
        if len(x._array.shape) != len(input._array.shape):
            raise RuntimeError(f"diff: prepend and append have as many dimensions as the input, {x._array.shape} and {input._array.shape}")
    if n == 0:
        return input.clone()
    found = cat(parts, dim) if len(parts) > 1 else input
    size = found._array.shape[dim]
    for _ in range(n if n <= size else size):
        size = found._array.shape[dim]
        if size == 0:
            return found
        low, high = found.narrow(dim, 0, size - 1), found.narrow(dim, 1, size - 1)
        found = high != low if found._array.dtype == BOOL else high - low
    return found


def _areas(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    """The areas of the trapezoids between neighbours along `dim`."""
    dim = _dim(name, y, dim)
    if not y._array.shape:
        raise RuntimeError(f"{name}: needs at least one dimension")
    size = y._array.shape[dim]
    pairs: Any = y.narrow(dim, min(size, 1), max(size - 1, 0)) + y.narrow(dim, 0, max(size - 1, 0))
    if x is None:
        if isinstance(dx, bool):
            raise RuntimeError(f"{name}: dx is a number, not {dx}")
        return pairs * (dx / 2)
    if type(dx) is not int or dx != 1:
        raise TypeError(f"{name}: takes the points x or their distance dx, not both: dx={dx}")
    rank = len(y._array.shape)
    if len(x._array.shape) == 1:
        if x._array.shape[0] != size:
            raise RuntimeError(f"{name}: {size} values along dim {dim}, but {x._array.shape[0]} points in x")
        x = x.reshape((size,) + (1,) * (rank - 1 - dim))
    along = dim - rank
    points = x._array.shape[along]
    steps = x.narrow(along, min(points, 1), max(points - 1, 0)) - x.narrow(along, 0, max(points - 1, 0))
    return pairs * steps / 2.0


@rounds_once(autocast="float32")
def _integral(y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1, axis: Any = None) -> Tensor:
    """Integral along `dim` by the trapezoidal rule, at points `x` or at the distance `dx`. That of nothing is a 0 that needs no gradient.

    >>> gl.trapezoid(gl.tensor([0.0, 1.0, 2.0]))
    tensor(2.)
    """
    dim = dim if axis is None else either("trapezoid", dim, -1, axis)
    shape = y._array.shape
    if 0 in shape and not shape[d := _dim("trapezoid", y, dim)]:
        return y.new_zeros(shape[:d] + shape[d + 1 :])
    return _integral(y, x, dx, dim)


@rounds_once(autocast="float32")
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1, axis: Any = None) -> Tensor:
    """The running integral along `dim` by the trapezoidal rule: one element fewer than `y`.

    >>> gl.cumulative_trapezoid(gl.tensor([0.0, 1.0, 2.0]))
    tensor([0.5000, 2.0000])
    """
    dim = dim if axis is None else either("cumulative_trapezoid", dim, -1, axis)
    return cumsum(_areas("cumulative_trapezoid", y, x, dx, dim), dim)


trapz = trapezoid


named_functions(__name__)


class ScanMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    cumsum, cumprod, logcumsumexp, cummax, cummin, prod, diff = cumsum, cumprod, logcumsumexp, cummax, cummin, prod, diff
    cumsum_, cumprod_ = twin(cumsum), twin(cumprod)
