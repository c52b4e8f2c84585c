"""Linear and bilinear maps, embeddings, and distances between vectors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.mode import current, no_grad
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import fully_connected
from gradlab.dtype import FLOATING, INEXACT, DType, as_dtype, needs_floating
from gradlab.named_errors import explain, named_functions
from gradlab.spec import ShapeError, count, whole
from gradlab.tensor.common_arguments import either, only_tensors
from gradlab.tensor.norms import dims_of, vector_norm
from gradlab.tensor.product_sums import addmm
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.selection import embedding_lookup, one_hot as one_hot

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["bilinear", "cosine_similarity", "embedding", "grouped_mm", "linear", "normalize", "one_hot", "pairwise_distance"]



def fits(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether what has a shape expands to another."""
    return len(shape) <= len(wide) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(wide)))


_linear = fully_connected(ops.linear.linear)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, in) with weight (out, in) and bias (out) gives (*, out); a weight (in) gives (*).

    A bias of more dimensions is one that expands to the result's shape.

    >>> F.linear(gl.ones(1, 2), gl.tensor([[1.0, 10.0]]), gl.tensor([0.5]))
    tensor([[11.5000]])
    """
    try:
        try:
            if len(weight._array.shape) == 2:
                return _linear(input, weight, bias)
        except ShapeError:
            shape = (*input._array.shape[:-1], weight._array.shape[0])
            wide = shape if len(shape) > 1 else (1, *shape)
            if bias is None or len(bias._array.shape) < 2 or not fits(bias._array.shape, wide):
                raise
            rows = bias.expand(wide).reshape(-1, wide[-1])
            return addmm(rows, input.reshape(-1, input._array.shape[-1]), weight.t()).reshape(shape)
        except AttributeError:
            raise TypeError(f"linear: weight is a tensor, not {type(weight).__name__}") from None
        if len(weight._array.shape) != 1:
            raise ShapeError(f"linear: weight has two dimensions (out, in) or one (in), not shape {weight._array.shape}")
        if bias is not None and bias._array.shape:
            raise ShapeError(f"linear: with a weight of one dimension the bias is a 0-d tensor, not of shape {bias._array.shape}")
        return _linear(input, weight.unsqueeze(0), bias).squeeze(-1)
    except Exception as error:
        explain(error, "linear", linear, (input, weight, bias))


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None
) -> Tensor:
    """Products of parts of matrices, as a mixture of experts makes them: each group of tokens with the weight of its expert.

    offs (groups,), int32, says where each group ends; it begins where the one before does. Nothing is read on the host, so that groups may
    have other sizes in each call of a compiled function. They divide

    - the rows of mat_a (m, k), with mat_b (groups, k, n): the result is (m, n);
    - the columns of mat_b (k, n), with mat_a (groups, m, k): the result is (m, n);
    - what is summed over, of mat_a (m, k) and mat_b (k, n): the result is (groups, m, n).

    What lies beyond the last group is zero. Two batches of as many matrices are multiplied like `matmul`, without offs. Both have one
    floating dtype, which the result gets (out_dtype can only repeat it).

    >>> F.grouped_mm(gl.ones(3, 2), gl.tensor([[[1.0], [1.0]], [[5.0], [5.0]]]), offs=gl.tensor([1, 3], dtype=gl.int32))
    tensor([[ 2.],
            [10.],
            [10.]])
    """
    if bias is not None:
        raise NotImplementedError("grouped_mm: bias is not there, as in PyTorch; add it to the result")
    if out_dtype is not None and as_dtype(out_dtype) != mat_a.dtype:
        raise TypeError(f"grouped_mm: out_dtype is the matrices' own, {mat_a.dtype}, not {out_dtype}; convert the result")
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise ValueError(
            f"grouped_mm: offs says how a matrix of two dimensions is divided; {'none is given' if offs is None else 'there is none'} "
            f"(shapes {tuple(mat_a.shape)} and {tuple(mat_b.shape)})"
        )
    return mat_a.matmul(mat_b) if offs is None else ops.linalg.grouped_mm(mat_a, mat_b, offs)


@rounds_once
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1ᵀ A x2 + b for each output: (*, n), (*, m), weight (out, n, m), bias (out) give (*, out).

    >>> F.bilinear(gl.ones(1, 2), gl.ones(1, 3), gl.ones(4, 2, 3))
    tensor([[6., 6., 6., 6.]])
    """
    a, b, w = input1._array.shape, input2._array.shape, weight._array.shape
    if len(w) != 3 or len(a) != len(b) or a[:-1] != b[:-1] or (a[-1:], b[-1:]) != (w[1:2], w[2:]):
        raise ShapeError(f"bilinear: inputs {a} and {b} do not fit a weight of shape {w}: expected (*, n), (*, m) and (out, n, m)")
    only_tensors("bilinear", *() if bias is None else (bias,))
    n = count(a[:-1])
    left, right = input1.reshape(n, w[1]), input2.reshape(n, w[2])
    half = left.matmul(weight.permute(1, 0, 2).reshape(w[1], w[0] * w[2])).reshape(n, w[0], w[2])
    found = half.matmul(right.unsqueeze(2)).reshape((*a[:-1], w[0]))
    return found if bias is None else found + bias


@one_row
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of the table `weight` (n, m) at the integers `input` of shape s: (*s, m).

    Row padding_idx gets no gradient. max_norm shortens the rows that are used, in the table, to that norm first. scale_grad_by_freq
    divides a row's gradient by how often it is used here. sparse: the gradient is a sparse tensor of the rows that are used (in a compiled
    function and under vmap it is dense). IndexError outside of [0, n).

    >>> F.embedding(gl.tensor([1, 0]), gl.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    if len(weight._array.shape) != 2:
        raise RuntimeError(f"embedding: the table has two dimensions, not shape {weight._array.shape}")
    if padding_idx is not None:
        padding_idx = whole(padding_idx)
    if max_norm is not None:
        _shorten(weight, input, float(max_norm), float(norm_type))
    if sparse and weight._edge is not None and (mode := current()).tracer is None and mode.vmap is None:
        found: Tensor = import_module("gradlab.sparse.lookup").looked_up(weight, input, padding_idx)
    else:
        found = embedding_lookup(weight, input, padding_idx)
    if not scale_grad_by_freq or found._array.dtype not in INEXACT:
        return found
    flat = input.reshape(-1)
    often = flat.new_zeros((weight._array.shape[0],)).index_add(0, flat, flat.new_ones(flat._array.shape))
    return _shared(found, embedding_lookup(often.unsqueeze(1), input))


@rounds_once
def _shared(found: Tensor, often: Tensor) -> Tensor:
    """`found` itself, with a gradient divided by `often`."""
    share = 1 / often.to(found._array.dtype)
    return (found - found.detach()) * share + found.detach()


def _shorten(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Rows of the table that `input` names and whose norm is above max_norm, scaled down in place."""
    with no_grad():
        used = weight.new_zeros((weight._array.shape[0],)).index_fill(0, input.reshape(-1), 1.0)
        weight.copy_(_shortened(weight, used, max_norm, norm_type))


@rounds_once
def _shortened(weight: Tensor, used: Tensor, max_norm: float, norm_type: float) -> Tensor:
    norms = vector_norm(weight, norm_type, (1,), False)
    factor = norms.new_ones(norms._array.shape).where((used == 0) | (norms <= max_norm), max_norm / (norms + 1e-7))
    return weight * factor.unsqueeze(1)


def _norm(x: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    return vector_norm(x, p, dims_of("norm", x, dim), keepdim)


@rounds_once(autocast="float32")
def normalize(input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """input over its p-norm along `dim`, which counts as eps where it is smaller.

    >>> F.normalize(gl.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    if out is not None:
        raise NotImplementedError("normalize: gradlab has no out=; assign the result")
    return input / _norm(input, float(p), dim, True).clamp(min=eps).expand(input._array.shape)


@rounds_once(autocast="float32")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8, *, axis: Any = None) -> Tensor:
    """x1·x2 / (max(|x1|, eps)·max(|x2|, eps)) along `dim`; the two broadcast, and one of them may be of integers.

    >>> F.cosine_similarity(gl.tensor([[1.0, 0.0]]), gl.tensor([[0.0, 1.0]]))
    tensor([0.])
    """
    dim = dim if axis is None else either("cosine_similarity", dim, 1, axis)
    if x1._array.dtype not in FLOATING or x2._array.dtype not in FLOATING:  # one of them may be of integers
        if x1._array.dtype not in FLOATING and x2._array.dtype not in FLOATING:
            raise RuntimeError(needs_floating("cosine_similarity", x1.dtype))
        x1, x2 = (x1.to(x2.dtype), x2) if x2._array.dtype in FLOATING else (x1, x2.to(x1.dtype))
    wide = (x1 + x2)._array.shape if x1._array.shape != x2._array.shape else x1._array.shape
    x1, x2 = x1.expand(wide), x2.expand(wide)
    a, b = (_norm(x, 2.0, dim, True).clamp(min=eps) for x in (x1, x2))
    return ((x1 / a) * (x2 / b)).sum(dim)


@rounds_once(autocast="float32")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False, *, keepdims: bool | None = None
) -> Tensor:  # fmt: skip
    """The p-norm of x1 - x2 + eps along the last dimension.

    >>> F.pairwise_distance(gl.tensor([[0.0, 0.0]]), gl.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """
    only_tensors("pairwise_distance", x1, x2)
    return _norm(x1 - x2 + eps, float(p), -1, keepdim if keepdims is None else keepdims)


named_functions(__name__)
