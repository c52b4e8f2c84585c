"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import ndarray

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, operator, refresh, wrap
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.named_errors import explain, named_functions
from gradlab.quiet import quietly
from gradlab.spec import ShapeError
from gradlab.tensor.common_arguments import into, only_tensors

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["bmm", "matmul", "mm"]

_matmul = bind(ops.linalg.matmul)


def matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Matrix product: of the last two dimensions, broadcasting those before; a vector counts as a row (left) or a column (right).

    >>> gl.matmul(gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    try:
        if out is not None:
            return into("matmul", out, matmul(input, other))
        try:
            a, b = len(input._array.shape), len(other._array.shape)
        except AttributeError:
            if hasattr(type(input), "__torch_function__") and hasattr(type(other), "__torch_function__"):
                return _matmul(input, other)  # one of them is no tensor, and answers for it
            raise TypeError(f"matmul: two tensors, not {type(input).__name__} and {type(other).__name__}") from None
        if a >= 2 and b >= 2:
            return _matmul(input, other)
        if a == 0 or b == 0:
            raise ShapeError(
                f"matmul: both need at least one dimension, got shapes {input._array.shape} and {other._array.shape}; use * for numbers"
            )
        if a <= 2 and b <= 2 and (found := _at_once(input, other, a, b)) is not None:
            return found
        if a == 1 and b == 1:
            if input._array.shape != other._array.shape:
                raise ShapeError(f"matmul: vectors of different lengths: {input._array.shape} @ {other._array.shape}")
            return _matmul(input.unsqueeze(0), other.unsqueeze(1)).reshape(())
        if a == 1:
            return _matmul(input.unsqueeze(0), other).squeeze(-2)
        return _matmul(input, other.unsqueeze(1)).squeeze(-1)
    except Exception as error:
        explain(error, "matmul", matmul, (input, other), {"out": out})


def _at_once(input: Any, other: Any, a: int, b: int) -> Any:
    """The product of a vector and a vector or matrix outside graphs, by the same call of BLAS; None where it is not so plain."""
    x, y, mode = input._array, other._array, current()
    if type(x) is not ndarray or type(y) is not ndarray or mode.special or (x.dtype is not FLOAT32 and x.dtype is not FLOAT64):
        return None
    if y.dtype is not x.dtype or (mode.recording and (input._edge is not None or other._edge is not None)):
        return None
    if x.shape[-1] != y.shape[0] or (a < b and x.size >= ops.linalg.matmul.pays):  # of a row a kernel may be asked
        return None
    if input._meta is not None:
        refresh(input)
    if other._meta is not None:
        refresh(other)
    found = quietly(ndarray.dot, input._array[None] if a == 1 else input._array, other._array[:, None] if b == 1 else other._array)
    return wrap(found.reshape(() if a == b else -1))


def mm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Product of two matrices, (n, k) and (k, m).

    >>> gl.mm(gl.ones(2, 3), gl.ones(3, 1))
    tensor([[3.],
            [3.]])
    """
    try:
        only_tensors("mm", mat2)
        _expect("mm", 2, input, mat2)
        return _matmul(input, mat2) if out is None else into("mm", out, _matmul(input, mat2))
    except Exception as error:
        explain(error, "mm", mm, (input, mat2), {"out": out})


def bmm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Products of two batches of matrices, (b, n, k) and (b, k, m).

    >>> gl.bmm(gl.ones(4, 2, 3), gl.ones(4, 3, 5)).shape
    (4, 2, 5)
    """
    try:
        _expect("bmm", 3, input, mat2)
        if input._array.shape[0] != mat2._array.shape[0]:
            raise ShapeError(f"bmm: batch sizes differ: {input._array.shape} and {mat2._array.shape}")
        return _matmul(input, mat2) if out is None else into("bmm", out, _matmul(input, mat2))
    except Exception as error:
        explain(error, "bmm", bmm, (input, mat2), {"out": out})


def _expect(name: str, rank: int, *tensors: Tensor) -> None:
    for x in tensors:
        if len(x._array.shape) != rank:
            raise ShapeError(f"{name}: expected {rank} dimensions, got shape {x._array.shape}; use matmul for other ranks")


named_functions(__name__)


class LinalgMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    matmul, mm, bmm = matmul, mm, bmm
    if TYPE_CHECKING:

        def __matmul__(self, other: Any) -> Tensor: ...

    else:
        __matmul__ = operator(ops.linalg.matmul, "__rmatmul__", matmul)

    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul(other, self)  # type: ignore[arg-type]
