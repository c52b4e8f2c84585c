"""The norms of `gradlab.linalg`: of vectors, of matrices, and the one that chooses between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.dtype import HALF, INEXACT, as_numpy, promote
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, as_number, is_number, normalize_dim, normalize_dims, reduced_shape
from gradlab.tensor import norms
from gradlab.tensor.common_arguments import either, into, only_tensors
from gradlab.tensor.rounding import once, rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__: list[str] = []  # nothing for the top level: these are gradlab.linalg's

_svd, _cat = map(bind, (ops.factorization.svd, ops.movement.cat))


def _floating(name: str, x: Tensor, dtype: Any) -> Tensor:
    """The tensor in the asked dtype, which may not be narrower than its own."""
    own = x._array.dtype
    if own not in INEXACT:
        raise RuntimeError(f"{name}: needs floating point, got {own}; convert with .float()")
    if dtype is None:
        return x
    new = as_numpy(dtype)
    if new not in INEXACT or promote(own, new) != new:
        raise RuntimeError(f"{name}: dtype={new} is narrower than the tensor's {own}; convert the result instead")
    return x.to(new)


def vector_norm(
    input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None =
    None, out: Any = None,
) -> Tensor:  # fmt: skip
    """(Σ |x|^ord)^(1/ord) over `dim` (default all): the largest or smallest |x| for ±inf, the number of nonzeros for 0.

    The gradient is 0 where the norm is 0. RuntimeError for integers, and for no elements where ord is negative or infinite.

    >>> gl.linalg.vector_norm(gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    dim = dim if axis is None else either("linalg.vector_norm", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    input = _floating("vector_norm", input, dtype)
    ord = as_number(ord)
    if isinstance(ord, (bool, str)) or not isinstance(ord, (int, float)):
        raise TypeError(f"vector_norm: ord is a number, not {type(ord).__name__}: {ord!r}; matrix norms are matrix_norm's")
    shape = input._array.shape
    dims = normalize_dims(dim, len(shape))
    if (ord < 0 or ord == math.inf) and any(shape[d] == 0 for d in dims):
        raise ShapeError(f"vector_norm: order {ord} has no value for no elements: shape {shape}, dim {dims}")
    result = norms.vector_norm(input, float(ord), dims, keepdim)
    return result if out is None else into("linalg.vector_norm", out, result)


def matrix_norm(
    input: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims:
    bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """A norm of matrices, which lie in the two dimensions `dim`.

    ord: "fro" (all elements' 2-norm), "nuc" (sum of the singular values), 2 and -2 (the largest and smallest singular value), 1 and -1
    (largest and smallest column sum of |x|), inf and -inf (the same of rows).

    >>> gl.linalg.matrix_norm(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(4.4721)
    """
    dim = dim if axis is None else either("linalg.matrix_norm", dim, (-2, -1), axis)
    keepdim = keepdim if keepdims is None else keepdims
    if out is not None:
        return into("linalg.matrix_norm", out, matrix_norm(input, ord, dim, keepdim, dtype=dtype))
    input = _floating("matrix_norm", input, dtype)
    shape = input._array.shape
    if len(shape) < 2:
        raise ShapeError(f"matrix_norm: a matrix or a batch of them, at least two dimensions, not shape {shape}")
    if is_number(dim) or len(dim) != 2:
        raise RuntimeError(f"matrix_norm: dim names two dimensions, not {dim}")
    rows, columns = (normalize_dim(d, len(shape)) for d in dim)
    if rows == columns:
        raise RuntimeError(f"matrix_norm: dim {tuple(dim)} names a dimension twice")
    if ord == "fro":
        return norms.vector_norm(input, 2.0, tuple(sorted((rows, columns))), keepdim)
    if ord in ("nuc", 2, -2):
        if input._array.dtype in HALF:
            raise RuntimeError(f"matrix_norm: singular values need float32 or float64, got {input.dtype}; convert with .float()")
        values = _svd(input.movedim((rows, columns), (-2, -1)), full=False)[1]
        if ord == "nuc" or (ord == 2 and not values._array.shape[-1]):
            found = values.sum(-1)
        elif values._array.shape[-1] == 0:
            raise ShapeError(f"matrix_norm: order {ord} has no value for no elements: shape {shape}")
        else:
            found = values.amax(-1) if ord == 2 else values.amin(-1)
        return found.reshape(reduced_shape(shape, (rows, columns), True)) if keepdim else found
    if isinstance(ord, (str, bool)) or ord not in (1, -1, math.inf, -math.inf):
        error = ValueError if isinstance(ord, str) else RuntimeError
        raise error(f'matrix_norm: ord is "fro", "nuc", ±1, ±2 or ±inf, not {ord!r}')
    if input._array.dtype in HALF:
        return once(matrix_norm, (input, ord, dim, keepdim), autocast="float32")
    first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = input.abs().sum(first, keepdim=True)
    if shape[second] == 0:
        if ord > 0:  # the largest of none is 0, as in PyTorch
            found = sums.sum(second, keepdim=True)
            return found if keepdim else found.squeeze((rows, columns))
        raise ShapeError(f"matrix_norm: order {ord} has no value for no elements: shape {shape}")
    found = sums.amax(second, keepdim=True) if ord > 0 else sums.amin(second, keepdim=True)
    return found if keepdim else found.squeeze((rows, columns))


def norm(
    input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None =
    None, out: Any = None,
) -> Tensor:  # fmt: skip
    """A norm of vectors or matrices.

    Without `ord` the 2-norm of all elements, or of those in `dim`. With it the norm of vectors, where `dim` is one dimension or the
    tensor has one, or of matrices, where `dim` is two or the tensor has two.

    >>> gl.norm(gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    dim = dim if axis is None else either("linalg.norm", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if out is not None:
        return into("linalg.norm", out, norm(input, ord, dim, keepdim, dtype=dtype))
    rank = len(input._array.shape)
    two = dim is not None and not is_number(dim) and len(dim) == 2
    if isinstance(ord, str) and dim is not None and not two:
        raise RuntimeError(f"norm: order {ord!r} is one of matrices and needs two dimensions, not dim={dim}")
    if dim is not None and not is_number(dim) and len(dim) not in (1, 2):
        raise RuntimeError(f"norm: dim is one dimension or two, not {dim}")
    if ord is None:
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if rank not in (1, 2):
            raise RuntimeError(f"norm: with ord={ord!r} and no dim the tensor has one or two dimensions, not shape {input._array.shape}")
        if isinstance(ord, str) and rank != 2:
            raise RuntimeError(f"norm: order {ord!r} is one of matrices, not of shape {input._array.shape}")
        two, dim = rank == 2, (0, 1) if rank == 2 else 0
    return matrix_norm(input, ord, dim, keepdim, dtype=dtype) if two else vector_norm(input, ord, dim, keepdim, dtype=dtype)


@rounds_once(autocast="float32")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, axis: Any = None, out: Any = None) -> Tensor:
    """Sums of products along `dim`, of complex numbers with the conjugates of `x`; the tensors broadcast.

    >>> gl.linalg.vecdot(gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0]))
    tensor(11.)
    """
    only_tensors("linalg.vecdot", x, y)
    dim = dim if axis is None else either("linalg.vecdot", dim, -1, axis)
    return (x.conj() * y).sum(dim) if out is None else into("linalg.vecdot", out, (x.conj() * y).sum(dim))


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 (default: as many as there are elements) of each element, as a new last dimension.

    >>> gl.linalg.vander(gl.tensor([2.0, 3.0]))
    tensor([[1., 2.],
            [1., 3.]])
    """
    shape = x._array.shape
    if (not shape and N is None) or (N is not None and N < 2):
        raise RuntimeError(f"vander: two powers at least, and of a 0-d tensor N says how many, got shape {shape} and N={N}")
    x, shape = (x, shape) if shape else (x.reshape((1,)), (1,))
    powers: Any = x.unsqueeze(-1).expand((*shape, (shape[-1] if N is None else N) - 1))
    powers = powers if x._array.dtype in INEXACT else powers.long()
    return _cat(powers.new_ones((*shape, 1)), powers, dim=len(shape)).cumprod(-1)


named_functions(__name__)
