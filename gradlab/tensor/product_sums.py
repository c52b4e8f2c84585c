"""Sums with a product: beta · input + alpha · a product. All of it is computed before anything is rounded: of half types in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, lowered
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, COMPLEX, FLOAT32, FLOAT64, HALF, INEXACT, wide
from gradlab.named_errors import NUMBER, explain, named_functions, number
from gradlab.spec import ShapeError, broadcast_shapes
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.deprecated_arguments import with_factors
from gradlab.tensor.layout import common_dtype
from gradlab.tensor.math_in_place import twin
from gradlab.tensor.products import expect_ranks, outer

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["addbmm", "addmm", "addmv", "addr", "baddbmm"]

_matmul, _wide_matmul = bind(ops.linalg.matmul), bind(ops.linalg.wide_matmul)


def unrounded(a: Tensor, b: Tensor) -> Any:
    """a @ b of matrices or batches of them; of half types in float32."""
    return _wide_matmul(a, b) if a._array.dtype in HALF else _matmul(a, b)


def _combined(name: str, input: Any, product: Any, dtype: Any, beta: float, alpha: float) -> Tensor:
    """beta · input + alpha · product as `dtype`; a beta of 0 passes over `input`, also where it is NaN. For integers both are cut to
    integers."""
    plain = alpha == 1 == beta and (dtype is FLOAT32 or dtype is FLOAT64) and input._array.shape == product._array.shape
    if plain and input._array.dtype is product._array.dtype is dtype:
        return product + input
    known = type(beta) in NUMBER.types and type(alpha) in NUMBER.types
    if not known and dtype not in COMPLEX and any(isinstance(number(name, *x), complex) for x in (("beta", beta), ("alpha", alpha))):
        raise RuntimeError(f"{name}: beta and alpha are real numbers for {dtype}, not {beta} and {alpha}")
    if input._array.dtype != dtype:
        if current().autocast is None:
            raise RuntimeError(f"{name}: tensors of one dtype, got {input._array.dtype} and {dtype}; convert one with .to()")
        input = input.to(dtype)
    if dtype not in INEXACT:
        beta, alpha = int(beta), int(alpha)
    shape = product._array.shape
    if broadcast_shapes(input._array.shape, shape) != shape:
        raise ShapeError(f"{name}: input of shape {input._array.shape} does not broadcast to the product's shape {shape}")
    scaled = product if alpha == 1 else product * alpha
    if beta:
        own = input.to(product._array.dtype)
        scaled = scaled + (own if beta == 1 else own * beta)
    return scaled.to(dtype)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *old: Any, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """beta · input + alpha · (mat1 @ mat2); `input` broadcasts.

    >>> gl.addmm(gl.ones(1, 1), gl.ones(1, 2), gl.ones(2, 1), beta=10)
    tensor([[12.]])
    """
    try:
        if old:
            (input, mat1, mat2), beta, alpha = with_factors("addmm", input, mat1, mat2, *old)
        expect_ranks("addmm", (mat1, 2), (mat2, 2))
        input, mat1, mat2 = lowered(input, mat1, mat2)
        result = _combined("addmm", input, unrounded(mat1, mat2), mat1._array.dtype, beta, alpha)
        return result if out is None else into("addmm", out, result)
    except Exception as error:
        explain(error, "addmm", addmm, (input, mat1, mat2, *old), {"beta": beta, "alpha": alpha, "out": out})


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *old: Any, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """beta · input + alpha · (mat @ vec); `input` broadcasts.

    >>> gl.addmv(gl.ones(2), gl.ones(2, 3), gl.ones(3))
    tensor([4., 4.])
    """
    if old:
        (input, mat, vec), beta, alpha = with_factors("addmv", input, mat, vec, *old)
    expect_ranks("addmv", (mat, 2), (vec, 1))
    input, mat, vec = lowered(input, mat, vec)
    result = _combined("addmv", input, unrounded(mat, vec.unsqueeze(1)).squeeze(-1), mat._array.dtype, beta, alpha)
    return result if out is None else into("addmv", out, result)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *old: Any, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """beta · input + alpha · outer(vec1, vec2); `input` broadcasts.

    >>> gl.addr(gl.zeros(2, 2), gl.tensor([1.0, 2.0]), gl.tensor([1.0, 10.0]))
    tensor([[ 1., 10.],
            [ 2., 20.]])
    """
    if old:
        (input, vec1, vec2), beta, alpha = with_factors("addr", input, vec1, vec2, *old)
    only_tensors("addr", vec1, vec2)
    for what, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, bool) and input._array.dtype != BOOL:
            raise RuntimeError(f"addr: {what} is a number, not {factor}, where the tensors are no truth values")
        if isinstance(factor, float) and not any(x._array.dtype in INEXACT for x in (input, vec1, vec2)):
            raise RuntimeError(f"addr: {what} is an integer where the tensors are, not {factor}")
    input, vec1, vec2 = lowered(input, vec1, vec2)
    dtype = common_dtype([input, vec1, vec2])
    product = outer(vec1.to(wide(dtype)), vec2.to(wide(dtype)))
    result = _combined("addr", input.to(dtype), product, dtype, beta, alpha)
    return result if out is None else into("addr", out, result)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *old: Any, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """beta · input + alpha · (batch1 @ batch2), of batches of matrices; `input` broadcasts.

    >>> gl.baddbmm(gl.ones(1, 1, 1), gl.ones(1, 1, 2), gl.ones(1, 2, 1))
    tensor([[[3.]]])
    """
    if old:
        (input, batch1, batch2), beta, alpha = with_factors("baddbmm", input, batch1, batch2, *old)
    expect_ranks("baddbmm", (batch1, 3), (batch2, 3))
    if batch1._array.shape[0] != batch2._array.shape[0]:
        raise ShapeError(f"baddbmm: batch sizes differ: {batch1._array.shape} and {batch2._array.shape}")
    input, batch1, batch2 = lowered(input, batch1, batch2)
    result = _combined("baddbmm", input, unrounded(batch1, batch2), batch1._array.dtype, beta, alpha)
    return result if out is None else into("baddbmm", out, result)


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *old: Any, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """beta · input + alpha · the sum of the products of two batches of matrices; `input` broadcasts.

    >>> gl.addbmm(gl.zeros(1, 1), gl.ones(3, 1, 2), gl.ones(3, 2, 1))
    tensor([[6.]])
    """
    if old:
        (input, batch1, batch2), beta, alpha = with_factors("addbmm", input, batch1, batch2, *old)
    expect_ranks("addbmm", (batch1, 3), (batch2, 3))
    (b, n, k), (other, inner_size, m) = batch1._array.shape, batch2._array.shape
    if b != other or k != inner_size:
        raise ShapeError(f"addbmm: batches of shapes {batch1._array.shape} and {batch2._array.shape} do not multiply")
    input, batch1, batch2 = lowered(input, batch1, batch2)
    product = unrounded(batch1.permute(1, 0, 2).reshape((n, b * k)), batch2.reshape((b * k, m)))
    result = _combined("addbmm", input, product, batch1._array.dtype, beta, alpha)
    return result if out is None else into("addbmm", out, result)


named_functions(__name__)


class ProductSumMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    addmm, addmv, addr, baddbmm, addbmm = addmm, addmv, addr, baddbmm, addbmm
    addmm_, addmv_, addr_, baddbmm_, addbmm_ = twin(addmm), twin(addmv), twin(addr), twin(baddbmm), twin(addbmm)
