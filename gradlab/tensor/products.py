"""Products of vectors and matrices beyond `matmul`: outer and inner products, chains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, widest
from gradlab.dtype import BOOL, HALF
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, count, is_number, normalize_dim
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.linalg import matmul, mm
from gradlab.tensor.rounding import once, rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "chain_matmul", "dot", "ger", "inner", "matrix_power", "mv", "outer", "tensordot", "vdot",
]  # fmt: skip


def expect_ranks(name: str, *ranks: tuple[Any, int]) -> None:
    """Tensors of the given numbers of dimensions and one dtype."""
    first = ranks[0][0]
    for x, rank in ranks:
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: takes tensors, not {type(x).__name__}")
        if len(x._array.shape) != rank:
            raise ShapeError(f"{name}: expected {rank} dimension{'s' if rank > 1 else ''}, got shape {x._array.shape}")
        if x._array.dtype != first._array.dtype and current().autocast is None:
            raise RuntimeError(f"{name}: tensors of one dtype, got {first._array.dtype} and {x._array.dtype}; convert one with .to()")


# ---------------------------------------------------------------- vectors


def outer(input: Tensor, vec2: Tensor, *, out: Any = None) -> Tensor:
    """Products of each element of one vector with each of another, (n, m).

    >>> gl.outer(gl.tensor([1, 2]), gl.tensor([1, 10]))
    tensor([[ 1, 10],
            [ 2, 20]])
    """
    for x in (input, vec2):
        if len(x._array.shape) != 1:
            raise ShapeError(f"outer: expected 1 dimension, got shape {x._array.shape}")
    return input.unsqueeze(1) * vec2 if out is None else into("outer", out, input.unsqueeze(1) * vec2)


ger = outer


def dot(input: Tensor, tensor: Tensor, *, out: Any = None) -> Tensor:
    """Sum of the products of two vectors' elements, a number.

    >>> gl.dot(gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0]))
    tensor(11.)
    """
    expect_ranks("dot", (input, 1), (tensor, 1))
    if out is None and (found := widest(matmul, input, tensor)) is not None:
        return found
    return matmul(input, tensor) if out is None else into("dot", out, matmul(input, tensor))


def vdot(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """As `dot`, of complex numbers with the conjugates of `input`.

    >>> gl.vdot(gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0]))
    tensor(11.)
    """
    expect_ranks("vdot", (input, 1), (other, 1))
    if out is None and (found := widest(matmul, input, other)) is not None:
        return found
    result = matmul(input.conj(), other)
    return result if out is None else into("vdot", out, result)


def mv(input: Tensor, vec: Tensor, *, out: Any = None) -> Tensor:
    """Product of a matrix (n, m) and a vector (m).

    >>> gl.mv(gl.ones(2, 2), gl.tensor([1.0, 10.0]))
    tensor([11., 11.])
    """
    expect_ranks("mv", (input, 2), (vec, 1))
    return matmul(input, vec) if out is None else into("mv", out, matmul(input, vec))


def inner(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Sum of products over the last dimensions, all others kept: those of `input`, then those of `other`.

    >>> gl.inner(gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0]))
    tensor(11.)
    """
    only_tensors("inner", other)
    if out is not None:
        return into("inner", out, inner(input, other))
    a, b = input._array.shape, other._array.shape
    if not a or not b:
        return input * other
    if a[-1] != b[-1]:
        raise ShapeError(f"inner: the last dimensions differ: shapes {a} and {b}")
    return tensordot(input, other, ([len(a) - 1], [len(b) - 1]))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None, *, axes: Any = None) -> Tensor:
    """Sum of products over dimensions of `a` and `b`: the last and first `dims`, or two lists of dimensions, paired in order.

    axes: the same by NumPy's name, as opt_einsum calls it.

    >>> gl.tensordot(gl.ones(2, 3, 4), gl.ones(3, 4, 5), dims=2).shape
    (2, 5)
    """
    dims = dims if axes is None else axes
    if out is not None:
        return into("tensordot", out, tensordot(a, b, dims))
    if (found := widest(tensordot, a, b, dims=dims)) is not None:
        return found
    sa, sb = a._array.shape, b._array.shape
    if isinstance(dims, Differentiable):
        dims = dims.item() if dims.numel() == 1 else dims.tolist()  # type: ignore[attr-defined]
    if is_number(dims):
        if not 0 <= dims <= min(len(sa), len(sb)):
            raise RuntimeError(f"tensordot: {dims} dimensions of tensors of shapes {sa} and {sb}")
        dims = (range(len(sa) - dims, len(sa)), range(dims))
    first, second = ([normalize_dim(int(d), len(s)) for d in part] for part, s in zip(dims, (sa, sb), strict=True))
    if len(first) != len(second):
        raise RuntimeError(f"tensordot: as many dimensions of both, got {first} and {second}")
    if len(set(first)) < len(first) or len(set(second)) < len(second):
        raise RuntimeError(f"tensordot: a dimension is named twice in {first} or {second}")
    left: Any = a
    right: Any = b
    for i, j in zip(first, second, strict=True):
        if sa[i] != sb[j]:
            if 1 not in (sa[i], sb[j]):
                raise RuntimeError(f"tensordot: dimension {i} of shape {sa} and dimension {j} of shape {sb} differ")
            if sa[i] == 1:
                right = right.sum(j, keepdim=True, dtype=b.dtype)
            else:
                left = left.sum(i, keepdim=True, dtype=a.dtype)
    rows = [d for d in range(len(sa)) if d not in first]
    columns = [d for d in range(len(sb)) if d not in second]
    inner_size = count([left.shape[d] for d in first])
    left = left.permute([*rows, *first]).reshape((count([sa[d] for d in rows]), inner_size))
    right = right.permute([*second, *columns]).reshape((inner_size, count([sb[d] for d in columns])))
    return mm(left, right).reshape((*(sa[d] for d in rows), *(sb[d] for d in columns)))


# ---------------------------------------------------------------- chains


def multi_dot(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """Product of a chain of matrices in the order that multiplies least; the first and the last may be vectors.

    The order is found by the dynamic program of Cormen et al., "Introduction to Algorithms", chapter 15.

    >>> gl.linalg.multi_dot([gl.ones(2, 3), gl.ones(3, 4), gl.ones(4, 1)]).shape
    (2, 1)
    """
    if out is not None:
        return into("linalg.multi_dot", out, multi_dot(tensors))
    chain: list[Any] = list(tensors)
    if current().autocast is None and any(isinstance(x, Differentiable) and x._array.dtype in HALF for x in chain):
        return once(multi_dot, (chain,))
    if len(chain) < 2:
        raise RuntimeError(f"multi_dot: at least two tensors, got {len(chain)}")
    ends = len(chain[0]._array.shape) == 1, len(chain[-1]._array.shape) == 1
    if ends[0]:
        chain[0] = chain[0].unsqueeze(0)
    if ends[1]:
        chain[-1] = chain[-1].unsqueeze(1)
    expect_ranks("multi_dot", *((x, 2) for x in chain))
    for x, y in pairwise(chain):
        if x.shape[1] != y.shape[0]:
            raise ShapeError(f"multi_dot: shapes {x.shape} and {y.shape} do not multiply")
    sizes = [chain[0].shape[0], *(x.shape[1] for x in chain)]
    n = len(chain)
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            prices = [cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i][j] = min(prices)
            cut[i][j] = i + prices.index(cost[i][j])

    def product(i: int, j: int) -> Any:
        return chain[i] if i == j else mm(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    found = product(0, n - 1)
    return found.reshape(tuple(s for s, gone in zip(found.shape, ends, strict=True) if not gone))


def chain_matmul(*matrices: Tensor, out: Any = None) -> Tensor:
    """Product of a chain of matrices in the order that multiplies least.

    >>> gl.chain_matmul(gl.ones(2, 3), gl.ones(3, 4), gl.ones(4, 1)).shape
    (2, 1)
    """
    if out is not None:
        return into("chain_matmul", out, chain_matmul(*matrices))
    if len(matrices) == 1:
        expect_ranks("chain_matmul", (matrices[0], 2))
        return matrices[0].clone()
    return multi_dot(matrices)


def matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """A square matrix (or a batch of them) multiplied n times with itself; a negative n takes the inverse.

    >>> gl.matrix_power(gl.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    if out is not None:
        return into("matrix_power" if n not in (0, 1) else "matrix_power.into", out, matrix_power(input, n))
    shape = input._array.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"matrix_power: square matrices, not shape {shape}")
    if n < 0:
        return matrix_power(input.inverse(), -n)
    if n == 0:
        return input.masked_fill(input.new_ones((), dtype=BOOL), 0) + input.new_ones(shape[-1]).diag()  # in the graph, as any other power
    return _power(input, n)


@rounds_once
def _power(input: Tensor, n: int) -> Tensor:
    """matrix_power of a positive n, by squaring."""
    found, square = None, input
    while True:
        if n & 1:
            found = square if found is None else matmul(found, square)
        n >>= 1
        if not n:
            return found if found is not input else input.clone()  # type: ignore[return-value]
        square = matmul(square, square)


named_functions(__name__, also="multi_dot")


class ProductMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    outer, ger, dot, vdot, mv, inner, tensordot, matrix_power = outer, outer, dot, vdot, mv, inner, tensordot, matrix_power
