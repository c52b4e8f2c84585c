"""Joining and splitting by rows and columns, grids, products of sets, block matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import wrap
from gradlab.named_errors import named_functions
from gradlab.spec import count, is_number, normalize_dim, whole
from gradlab.tensor.common_arguments import either, few_enough, into, only_tensors
from gradlab.tensor.convert import moved
from gradlab.tensor.creation import zeros
from gradlab.tensor.layout import common_dtype
from gradlab.tensor.shape import cat, expand, reshape, stack
from gradlab.tensor.splitting import narrow, split

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "column_stack", "combinations", "concat", "concatenate",
    "dsplit", "dstack", "hsplit", "hstack", "kron", "meshgrid", "row_stack", "split_with_sizes", "tensor_split", "vander",
    "vsplit", "vstack",
]  # fmt: skip

concat = concatenate = cat


# ---------------------------------------------------------------- joining


def _each(tensors: tuple[Any, ...], change: Any) -> Any:
    """`change` of one tensor, or of each of several."""
    if len(tensors) == 1 and isinstance(tensors[0], Differentiable):
        return change(tensors[0])
    found = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for x in found:
        if not isinstance(x, Differentiable):
            raise TypeError(f"expected tensors, got {type(x).__name__}")
    return tuple(change(x) for x in found)


def atleast_1d(*tensors: Any) -> Any:
    """A 0-d tensor as a vector, others as they are. Several tensors give a tuple.

    >>> gl.atleast_1d(gl.tensor(1.0))
    tensor([1.])
    """
    return _each(tensors, lambda x: x if x._array.shape else reshape(x, 1))


def atleast_2d(*tensors: Any) -> Any:
    """Tensors of fewer than two dimensions as one row, (1, n), others as they are.

    >>> gl.atleast_2d(gl.tensor(1.0))
    tensor([[1.]])
    """
    return _each(tensors, lambda x: x if len(x._array.shape) > 1 else reshape(x, 1, -1))


def atleast_3d(*tensors: Any) -> Any:
    """A vector as (1, n, 1), a matrix as (m, n, 1), others of three dimensions or more as they are.

    >>> gl.atleast_3d(gl.tensor(1.0)).shape
    (1, 1, 1)
    """

    def change(x: Any) -> Any:
        rank = len(x._array.shape)
        return x if rank > 2 else x.unsqueeze(-1) if rank == 2 else reshape(x, 1, -1, 1)

    return _each(tensors, change)


def _several(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    if isinstance(tensors, Differentiable):
        raise TypeError(f"{name}: a tuple or list of tensors, not one tensor; tensor.unbind() gives its rows")
    found = list(tensors)
    if not found:
        raise RuntimeError(f"{name}: expected at least one tensor, got none")
    return found


def hstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """Joined side by side: vectors along their only dimension, others along the second.

    >>> gl.hstack([gl.ones(2), gl.zeros(1)])
    tensor([1., 1., 0.])
    """
    found = [atleast_1d(x) for x in _several("hstack", tensors)]
    result = cat(found, 0 if len(found[0]._array.shape) == 1 else 1)
    return result if out is None else into("hstack", out, result)


def vstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """Joined one below the other; vectors become rows.

    >>> gl.vstack([gl.ones(2), gl.zeros(2)])
    tensor([[1., 1.],
            [0., 0.]])
    """
    result = cat([atleast_2d(x) for x in _several("vstack", tensors)], 0)
    return result if out is None else into("vstack", out, result)


def dstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """Joined along the third dimension.

    >>> gl.dstack([gl.ones(2), gl.zeros(2)]).shape
    (1, 2, 2)
    """
    result = cat([atleast_3d(x) for x in _several("dstack", tensors)], 2)
    return result if out is None else into("dstack", out, result)


def column_stack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """Joined side by side; vectors become columns.

    >>> gl.column_stack([gl.ones(2), gl.zeros(2)])
    tensor([[1., 0.],
            [1., 0.]])
    """
    result = hstack([x if len(x._array.shape) > 1 else reshape(x, -1, 1) for x in _several("column_stack", tensors)])
    return result if out is None else into("column_stack", out, result)


row_stack = vstack


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices (vectors count as rows, numbers as 1 by 1) along its diagonal, 0 elsewhere.

    >>> gl.block_diag(gl.ones(1, 1), gl.ones(1, 2))
    tensor([[1., 0., 0.],
            [0., 1., 1.]])
    """
    if not tensors:
        return zeros((1, 0))
    dtype = common_dtype(_several("block_diag", tensors))
    blocks: list[Any] = []
    for x in tensors:
        if len(x._array.shape) > 2:
            raise RuntimeError(f"block_diag: matrices, vectors and numbers, not shape {x._array.shape}")
        blocks.append(atleast_2d(x.to(dtype)))
    width = sum(b._array.shape[1] for b in blocks)
    rows, left = [], 0
    for b in blocks:
        height, own = b._array.shape
        rows.append(cat([b.new_zeros(height, left), b, b.new_zeros(height, width - left - own)], 1))
        left += own
    return cat(rows, 0)


# ---------------------------------------------------------------- splitting


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
    """Parts of the given sizes along `dim`. Views.

    >>> gl.split_with_sizes(gl.arange(4), [1, 3])
    (tensor([0]), tensor([1, 2, 3]))
    """
    dim = dim if axis is None else either("split_with_sizes", dim, 0, axis)
    return split(input, list(split_sizes), dim)


def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None, axis: Any = None
) -> tuple[Tensor, ...]:  # fmt: skip
    """Parts along `dim`: a number of parts as equal as possible, the larger ones first, or parts between the given places. Views.

    >>> gl.tensor_split(gl.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    dim = dim if axis is None else either("tensor_split", dim, 0, axis)
    indices_or_sections = _one_of("tensor_split", indices_or_sections, sections, indices)
    shape = input._array.shape
    if not shape:
        raise RuntimeError("tensor_split: at least one dimension")
    dim = normalize_dim(dim, len(shape))
    size = shape[dim]
    if isinstance(indices_or_sections, Differentiable):
        if indices_or_sections._array.dtype != np.int64 or len(indices_or_sections._array.shape) > 1:
            raise RuntimeError(f"tensor_split: an int64 number or vector, not {indices_or_sections._array.dtype} of other shape")
        indices_or_sections = indices_or_sections.tolist()  # type: ignore[attr-defined]
    if is_number(indices_or_sections):
        parts = whole(indices_or_sections)
        if parts < 1:
            raise RuntimeError(f"tensor_split: at least one part, got {parts}")
        few_enough("tensor_split", "parts", parts, size)
        small, larger = divmod(size, parts)
        places = [i * small + min(i, larger) for i in range(1, parts)]
        ends, starts = [0, *places, size], [0, *places]
    else:
        places = [whole(i) for i in indices_or_sections]
        ends = [0, *(slice(i).indices(size)[1] for i in places), size]
        starts = [0, *(slice(i, None).indices(size)[0] for i in places)]
    return tuple(narrow(input, dim, a, max(b - a, 0)) for a, b in zip(starts, ends[1:], strict=True))


def _one_of(name: str, given: Any, sections: Any, indices: Any) -> Any:
    """Where to split: PyTorch documents `indices_or_sections`, and takes `sections` and `indices` as names."""
    found = [x for x in (given, sections, indices) if x is not None]
    if len(found) != 1:
        raise TypeError(f"{name}: takes a number of sections or the indices between them, got {len(found)} of them")
    return found[0]


def _equal_split(name: str, input: Tensor, given: tuple[Any, ...], words: tuple[Any, Any], rank: int, dim: int) -> tuple[Tensor, ...]:
    indices_or_sections = _one_of(name, (given[0] if len(given) == 1 else given) if given else None, *words)
    shape = input._array.shape
    if len(shape) < rank:
        raise RuntimeError(f"{name}: at least {rank} dimensions, not shape {shape}")
    if is_number(indices_or_sections) and (indices_or_sections < 1 or shape[dim] % indices_or_sections):
        raise RuntimeError(f"{name}: size {shape[dim]} of dimension {dim} does not divide into {indices_or_sections} equal parts")
    return tensor_split(input, indices_or_sections, dim)


def hsplit(input: Tensor, *indices_or_sections: Any, sections: Any = None, indices: Any = None) -> tuple[Tensor, ...]:
    """Parts side by side: along the second dimension, of a vector along its only one. A number of parts must divide the size.

    >>> gl.hsplit(gl.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _equal_split("hsplit", input, indices_or_sections, (sections, indices), 1, 0 if len(input._array.shape) == 1 else 1)


def vsplit(input: Tensor, *indices_or_sections: Any, sections: Any = None, indices: Any = None) -> tuple[Tensor, ...]:
    """Parts one below the other: along the first of at least two dimensions.

    >>> gl.vsplit(gl.ones(4, 2), 2)[0].shape
    (2, 2)
    """
    return _equal_split("vsplit", input, indices_or_sections, (sections, indices), 2, 0)


def dsplit(input: Tensor, *indices_or_sections: Any, sections: Any = None, indices: Any = None) -> tuple[Tensor, ...]:
    """Parts along the third dimension.

    >>> gl.dsplit(gl.ones(1, 2, 4), 2)[0].shape
    (1, 2, 2)
    """
    return _equal_split("dsplit", input, indices_or_sections, (sections, indices), 3, 2)


# ---------------------------------------------------------------- grids and combinations


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of vectors: output k varies along dimension k as the k-th vector. Views, as `expand` makes them.

    indexing: "ij" (rows first), or "xy", in which the first two dimensions change places.

    >>> gl.meshgrid(gl.tensor([1, 2]), gl.tensor([3, 4]), indexing="ij")[0]
    tensor([[1, 1],
            [2, 2]])
    """
    found: list[Any] = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors)
    if not found:
        raise RuntimeError("meshgrid: expected at least one tensor, got none")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing is "ij" or "xy", not {indexing!r}')
    for x in found:
        if len(x._array.shape) > 1:
            raise RuntimeError(f"meshgrid: vectors and numbers, not shape {x._array.shape}")
        if x._array.dtype != found[0]._array.dtype:
            raise RuntimeError(f"meshgrid: all of one dtype, got {x.dtype} and {found[0].dtype}")
    places = list(range(len(found)))
    if indexing == "xy" and len(found) > 1:
        places[:2] = [1, 0]
    shape = [0] * len(found)
    for x, place in zip(found, places, strict=True):
        shape[place] = count(x._array.shape)
    lines = [reshape(x, [-1 if d == place else 1 for d in range(len(found))]) for x, place in zip(found, places, strict=True)]
    return tuple(expand(x, shape) for x in lines)


def cartesian_prod(*tensors: Any) -> Tensor:
    """All tuples with one element of each vector, as rows; of one vector that vector.

    >>> gl.cartesian_prod(gl.tensor([1, 2]), gl.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    found: list[Any] = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors)
    for x in found:
        if len(x._array.shape) != 1:
            raise RuntimeError(f"cartesian_prod: vectors, not shape {x._array.shape}")
    if len(found) == 1:
        return found[0]
    return reshape(stack(meshgrid(*found), -1), -1, len(found))


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, as rows, in the order of `itertools.combinations`.

    >>> gl.combinations(gl.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if len(input._array.shape) != 1:
        raise RuntimeError(f"combinations: a vector, not shape {input._array.shape}")
    if r < 0:
        raise RuntimeError(f"combinations: r is not negative, got {r}")
    if r == 0:
        return input.new_zeros(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(choose(range(input._array.shape[0]), r)), np.int64).reshape(-1, r)
    found = input.index_select(0, moved(wrap(places.reshape(-1)), input.device))
    return reshape(found, *places.shape)


def kron(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Kronecker product: each element of `input` times the whole of `other`; sizes multiply.

    >>> gl.kron(gl.tensor([1, 10]), gl.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    only_tensors("kron", other)
    rank = max(len(input._array.shape), len(other._array.shape))
    a, b = ((1,) * (rank - len(x._array.shape)) + tuple(x._array.shape) for x in (input, other))
    product = reshape(input, [s for size in a for s in (size, 1)]) * reshape(other, [s for size in b for s in (1, size)])
    result = reshape(product, [x * y for x, y in zip(a, b, strict=True)])
    return result if out is None else into("kron", out, result)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde matrix of a vector: its powers N - 1, …, 1, 0 as columns (in increasing order if asked).

    >>> gl.vander(gl.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if len(x._array.shape) != 1:
        raise RuntimeError(f"vander: a vector, not shape {x._array.shape}")
    n = x._array.shape[0] if N is None else int(N)
    if n < 0:
        raise RuntimeError(f"vander: N is not negative, got {n}")
    powers = np.arange(n) if increasing else np.arange(n)[::-1].copy()
    return x.unsqueeze(-1) ** moved(wrap(powers), x.device)


named_functions(__name__)


class AssemblyMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    split_with_sizes, tensor_split, hsplit, vsplit, dsplit, kron = split_with_sizes, tensor_split, hsplit, vsplit, dsplit, kron
