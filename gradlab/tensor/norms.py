"""Norms of the elements over dimensions, and what is measured with them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, FLOATING, HALF, INEXACT, finfo, needs_floating
from gradlab.named_errors import explain, flag, named_functions
from gradlab.spec import ShapeError, as_number, normalize_dim, normalize_dims
from gradlab.tensor import reduction
from gradlab.tensor.common_arguments import either, into, only_tensors, required
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["dist", "norm", "renorm"]

_root, _euclidean = bind(ops.math.root), bind(ops.reduction.euclidean)
Dims = Any  # None, int or tuple of int


def dims_of(name: str, input: Tensor, dim: Dims) -> tuple[int, ...]:
    try:
        return normalize_dims(dim, len(input._array.shape))
    except (IndexError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def floating(name: str, input: Tensor, complex: bool = False) -> Tensor:
    """The tensor. RuntimeError for integers, and for complex numbers unless they are allowed."""
    if input._array.dtype not in (INEXACT if complex else FLOATING):
        raise RuntimeError(needs_floating(name, input.dtype))
    return input


def vector_norm(input: Tensor, ord: float, dims: tuple[int, ...], keepdim: bool, *, out: Any = None) -> Tensor:
    """(Σ |x|^ord)^(1/ord) over normalised `dims`; the largest or smallest |x| for ±inf, the number of nonzeros for 0.

    The gradient is 0 where the norm is 0. Half types are computed in float32. Where powers would leave the range of the dtype they are
    taken of numbers relative to the largest, or (of float32 in a trace and on a GPU, where nobody looks at values) in float64.
    """
    try:
        x: Any = input if input._array.dtype not in COMPLEX else input.abs()
        dtype = x._array.dtype
        if dtype in HALF:
            x = input.float()
            if current().autocast is not None:
                dtype = FLOAT32
        powers = bool(dims) and ord > 0 and ord != 1 and not math.isinf(ord)
        if powers and ord == 2 and not current().special:
            found = _euclidean(x, dim=dims, keepdim=keepdim)
        elif powers and (type(x._array) is not np.ndarray or current().tracer is not None):
            if x._array.dtype != FLOAT32:
                found = _norm_of(x, ord, dims, keepdim)
            elif ord <= WIDE:
                found = _norm_of(x.to(FLOAT64), ord, dims, keepdim)
            else:
                found = _relative(x, ord, dims, keepdim)
        else:
            found = _norm_of(x, ord, dims, keepdim)
            array = found._array
            if powers and array.size and x._array.size:
                low, high = (array.item(),) * 2 if array.size == 1 else (array.min(), array.max())
                if not (least(array.dtype, ord) < low and high < math.inf):
                    found = _relative(x, ord, dims, keepdim)
        return found.to(dtype=dtype) if out is None else into("vector_norm", out, found.to(dtype))
    except Exception as error:
        explain(error, "vector_norm", vector_norm, (input, ord, dims, keepdim), {"out": out})


WIDE = 6  # up to this power a float32 has a float64


def _relative(x: Any, ord: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The norm by powers of numbers relative to the largest."""
    top = reduction.amax(x.detach().abs(), dims, True)
    top = top.masked_fill((top == 0) | ~top.isfinite(), 1)
    return _norm_of(x / top, ord, dims, keepdim) * (top if keepdim else top.squeeze(dims))


@lru_cache(maxsize=256)
def least(dtype: Any, ord: float) -> float:
    """A norm above this lost no digits to numbers whose powers are too small for the dtype."""
    info = finfo(dtype)
    return float((info.tiny / info.eps) ** (1 / ord))


def _norm_of(x: Any, ord: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    if ord == 2:
        found = _root(reduction.sum(x * x, dims, keepdim)) if dims else x.abs()
    elif ord == 1:
        found = reduction.sum(x.abs(), dims, keepdim) if dims else x.abs()
    elif ord == 0:
        ones = x.sign().abs().masked_fill(x.isnan(), 1)  # a comparison alone would have no graph; so the gradient is 0, as in PyTorch
        found = reduction.sum(ones, dims, keepdim) if dims else ones
    elif math.isinf(ord):
        found = (reduction.amax if ord > 0 else reduction.amin)(x.abs(), dims, keepdim) if dims else x.abs()
    else:
        size = x.abs()
        zero = size == 0
        powers = size.masked_fill(zero, 1).pow(ord).masked_fill(zero, 0 if ord > 0 else math.inf)
        total = reduction.sum(powers, dims, keepdim) if dims else powers
        flat = (total == 0) | total.isinf()
        edge = total.masked_fill(~flat, 0).pow(1 / ord)  # 0 or inf, without a gradient
        found = edge.detach().where(flat, total.masked_fill(flat, 1).pow(1 / ord))
    return found


def norm(
    input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, out: Any = None, dtype: Any = None, *, axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The p-norm of the elements over `dim` (default all): p is a number, inf, -inf, 0, or "fro", the same as 2.

    The gradient where the norm is 0 is 0. p="nuc" is the sum of the singular values of matrices, whose other norms are in
    `linalg.matrix_norm`.

    >>> gl.norm(gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    try:
        dim = dim if axis is None else either("norm", dim, None, axis)
        keepdim = flag("norm", "keepdim", keepdim if keepdims is None else keepdims)
        x = input if dtype is None else input.to(dtype=dtype)
        floating("norm", x, True)
        if p == "nuc":
            every = dims_of("norm", x, dim)
            if len(every) != 2:
                raise ShapeError(f"norm: the nuclear norm is of two dimensions, not of {len(every)}")
            values = bind(ops.factorization.svd)(x.movedim(every, (-2, -1)), full=False)[1].sum(-1)
            values = values.reshape(tuple(1 if d in every else s for d, s in enumerate(x._array.shape))) if keepdim else values
            return values if out is None else into("norm", out, values)
        if p is None or p == "fro":
            p = 2.0
        p = as_number(p)
        if not isinstance(p, (int, float)):
            raise ValueError(f'norm: p is a number, "fro" or "nuc", not {p!r}; linalg.matrix_norm has the norms of matrices')
        dims = dims_of("norm", x, dim)
        if math.isinf(p) and any(x._array.shape[d] == 0 for d in dims):
            raise ShapeError(f"norm: order {p} has no value for no elements: shape {x._array.shape}")
        return vector_norm(x, float(p), dims, keepdim) if out is None else into("norm", out, vector_norm(x, float(p), dims, keepdim))
    except Exception as error:
        explain(error, "norm", norm, (input, p, dim, keepdim, out, dtype), {"axis": axis, "keepdims": keepdims})


@rounds_once(autocast="float32")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other, which broadcast.

    >>> gl.dist(gl.tensor([0.0, 0.0]), gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    only_tensors("dist", input, other)
    return norm(input - other, float(p))


@rounds_once(autocast="float32")
def renorm(input: Tensor, p: float, dim: int | None = None, maxnorm: Any = None, *, out: Any = None, axis: Any = None) -> Tensor:
    """The parts along `dim` whose p-norm is above `maxnorm`, scaled down to it; the others as they are.

    >>> gl.renorm(gl.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    if axis is not None or dim is None:
        dim = required("renorm", dim, axis)
    rank = len(floating("renorm", input, True)._array.shape)
    if rank < 2:
        raise RuntimeError(f"renorm: at least two dimensions, not shape {input._array.shape}")
    if not p > 0 or not maxnorm >= 0:
        raise RuntimeError(f"renorm: p is above 0 and maxnorm not negative, got {p} and {maxnorm}")
    dim = normalize_dim(dim, rank)
    size = vector_norm(input, float(p), tuple(d for d in range(rank) if d != dim), True)
    result = (input / (size + 1e-7) * maxnorm).where(size > maxnorm, input)
    return result if out is None else into("renorm", out, result)


named_functions(__name__)


class NormMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    dist, renorm = dist, renorm

    def norm(
        self: Any, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None, *, axis: Any = None,
        keepdims: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """`gl.norm` of this tensor.

        >>> gl.tensor([3.0, 4.0]).norm()
        tensor(5.)
        """
        try:
            return norm(self, p, dim, keepdim, None, dtype, axis=axis, keepdims=keepdims)
        except Exception as error:
            explain(error, "norm", type(self).norm, (self, p, dim, keepdim, dtype), {"axis": axis, "keepdims": keepdims})
