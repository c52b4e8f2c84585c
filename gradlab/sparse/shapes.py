"""Sparse tensors rearranged: other layouts, transposed, parts of them."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import BOOL
from gradlab.layout import Layout, sparse_coo, sparse_csc, sparse_csr, strided
from gradlab.sparse import entries
from gradlab.sparse.array import Pattern, is_sparse, refusal, sparse
from gradlab.spec import ShapeError, normalize_dim
from gradlab.tensor.creation import arange
from gradlab.tensor.repetition import repeat_interleave
from gradlab.tensor.selection import index_select as dense_select
from gradlab.tensor.shape import cat

COMPRESSED = {sparse_csr: 0, sparse_csc: 1}  # the dimension whose indices are compressed


def in_layout(x: Any, layout: Layout, blocksize: Any = None) -> Any:
    """A sparse tensor in another layout."""
    array = x._array
    if layout is strided:
        return x.to_dense()
    if layout is array.layout:
        return x
    if layout not in (sparse_coo, sparse_csr, sparse_csc) or blocksize is not None:
        raise NotImplementedError(f"to_sparse: layouts are sparse_coo, sparse_csr and sparse_csc, not {layout}; blocks are not offered")
    if layout is sparse_coo:
        ordered = array.layout is sparse_csr and _sorted(array.pattern)
        pattern = array.pattern
        return sparse(Pattern(pattern.indices, pattern.sizes, ordered), array.values)
    if len(array.pattern.sizes) != 2:
        raise ShapeError(f"to_{layout.name}: a matrix, not shape {array.shape}")
    pattern, values = entries.coalesced(array.pattern, array.values)
    starts, order = pattern.compressed(COMPRESSED[layout])
    if order is None:
        return sparse(Pattern(pattern.indices, pattern.sizes, pattern.coalesced).with_starts(0, starts), values, layout)
    moved = Pattern(pattern.indices[:, order], pattern.sizes).with_starts(COMPRESSED[layout], starts)
    return sparse(moved, dense_select(values, 0, order), layout)


def _sorted(pattern: Pattern) -> bool:
    """Whether the indices are distinct and in order."""
    if pattern.coalesced or pattern.number < 2:
        return True
    keys = pattern.keys()
    return bool((keys[1:] > keys[:-1]).all())


def from_dense(x: Any, sparse_dim: int | None) -> Any:
    """The elements of a dense tensor that are not 0; with sparse_dim the parts along the first dimensions that are not all 0."""
    ndim = len(x._array.shape)
    dims = ndim if sparse_dim is None else sparse_dim
    if not 0 < dims <= ndim and ndim:
        raise RuntimeError(f"to_sparse: sparse_dim is 1 to {ndim}, not {sparse_dim}")
    mask = x.detach() != 0
    if dims < ndim:
        mask = mask.flatten(dims).any(-1)
    indices = mask.nonzero().t().contiguous()
    pattern = Pattern(indices, tuple(x._array.shape[:dims]), True)
    return sparse(pattern, entries.values_at(x, pattern))


def transpose(x: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged."""
    array = x._array
    ndim, dims = len(array.shape), len(array.pattern.sizes)
    first, second = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    if first >= dims and second >= dims:
        return sparse(array.pattern, array.values.transpose(first - dims + 1, second - dims + 1), array.layout)
    if first >= dims or second >= dims:
        raise refusal("transpose of a sparse and a dense dimension")
    layout = array.layout
    if layout is not sparse_coo and first != second:
        layout = sparse_csc if layout is sparse_csr else sparse_csr
    return sparse(array.pattern.turned(first, second), array.values, layout)


def _sparse_dim(name: str, x: Any, dim: int) -> int:
    array = x._array
    found = normalize_dim(dim, len(array.shape))
    if found >= len(array.pattern.sizes):
        raise refusal(f"{name} along a dense dimension")
    if array.layout is not sparse_coo:
        raise refusal(f"{name} of a compressed layout; x.to_sparse_coo(), or")
    return found


def _with_index(pattern: Pattern, dim: int, chosen: Any, index: Any, size: int, coalesced: bool) -> Pattern:
    """The chosen entries, with another index along `dim`."""
    rows = [index if d == dim else pattern.indices[d][chosen] for d in range(len(pattern.sizes))]
    sizes = (*pattern.sizes[:dim], size, *pattern.sizes[dim + 1 :])
    return Pattern(cat([r.unsqueeze(0) for r in rows]), sizes, coalesced)


def index_select(x: Any, dim: int, index: Any) -> Any:
    """The parts at a vector of places; the entries of each in their order."""
    dim = _sparse_dim("index_select", x, dim)
    pattern = x._array.pattern
    if not isinstance(index, Differentiable) or len(index._array.shape) != 1:
        raise IndexError("index_select: the index is a tensor of one dimension")
    wanted: Any = index.long()  # type: ignore[attr-defined]
    size = pattern.sizes[dim]
    if wanted.numel() and not bool(((wanted >= 0) & (wanted < size)).all()):
        raise IndexError(f"index_select: an index lies outside of [0, {size}) of dimension {dim}, shape {x.shape}")
    starts, order = pattern.compressed(dim)
    first = starts[wanted]
    often = starts[wanted + 1] - first
    which = repeat_interleave(arange(wanted.shape[0], device=wanted.device), often)
    within = arange(which.shape[0], device=wanted.device) - (often.cumsum(0) - often)[which]
    chosen = first[which] + within
    chosen = chosen if order is None else order[chosen]
    made = _with_index(pattern, dim, chosen, which, wanted.shape[0], pattern.coalesced and dim == 0)
    return sparse(*entries.coalesced(made, dense_select(x._array.values, 0, chosen)))


def narrow(x: Any, dim: int, start: int, length: int) -> Any:
    """The part start … start + length of a dimension."""
    dim = _sparse_dim("narrow", x, dim)
    pattern = x._array.pattern
    size = pattern.sizes[dim]
    start = start + size if start < 0 else start
    if start < 0 or length < 0 or start + length > size:
        raise IndexError(f"narrow: {start} to {start + length} lies outside of dimension {dim} of shape {x.shape}")
    index = pattern.indices[dim]
    chosen = ((index >= start) & (index < start + length)).nonzero().flatten()
    made = _with_index(pattern, dim, chosen, index[chosen] - start, length, pattern.coalesced)
    return sparse(made, dense_select(x._array.values, 0, chosen))


def select(x: Any, dim: int, index: int) -> Any:
    """The part at one index; dense where no sparse dimension is left."""
    dim = _sparse_dim("select", x, dim)
    size = x._array.pattern.sizes[dim]
    if not -size <= index < size:
        raise IndexError(f"select: index {index} lies outside of dimension {dim} of shape {x.shape}")
    part = narrow(x, dim, index % size, 1)._array
    left = [d for d in range(len(part.pattern.sizes)) if d != dim]
    if not left:
        return part.values.sum(0)
    indices = cat([part.pattern.indices[d].unsqueeze(0) for d in left])
    return sparse(Pattern(indices, tuple(part.pattern.sizes[d] for d in left), part.pattern.coalesced), part.values)


def unsqueeze(x: Any, dim: int) -> Any:
    """With a dimension of size 1 more."""
    array = x._array
    pattern, ndim = array.pattern, len(array.shape)
    dim = normalize_dim(dim, ndim + 1)
    if array.layout is not sparse_coo or ndim >= 8:
        raise refusal("unsqueeze of a compressed layout; x.to_sparse_coo(), or")
    if dim > len(pattern.sizes):
        return sparse(pattern, array.values.unsqueeze(dim - len(pattern.sizes) + 1))
    zeros = pattern.indices.new_zeros((1, pattern.number))
    indices = cat([pattern.indices[:dim], zeros, pattern.indices[dim:]])
    return sparse(Pattern(indices, (*pattern.sizes[:dim], 1, *pattern.sizes[dim:]), pattern.coalesced), array.values)


def item(x: Any, key: Any) -> Any:
    """x[key] for numbers, slices of step 1, `:`, `…`, None and one vector of places for each dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if sum(k is Ellipsis for k in keys) == 1:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(x._array.shape) - sum(k is not None for k in keys) + 1)
    dim, found = 0, x
    for k in keys:
        if k is None:
            found, dim = unsqueeze(found, dim), dim + 1
        elif isinstance(k, slice) and k.step in (None, 1) and dim < len(found._array.shape):
            start, stop, _ = k.indices(found._array.shape[dim])
            found = found if k == slice(None) else narrow(found, dim, start, max(stop - start, 0))
            dim += 1
        elif isinstance(k, (list, Differentiable)) and len(keys) == 1 and getattr(k, "ndim", 1) == 1:
            index: Any = x._array.pattern.indices.new_tensor(k) if isinstance(k, list) else k
            found = index_select(found, dim, index.nonzero().flatten() if index._array.dtype == BOOL else index)
        elif hasattr(k, "__index__") and not getattr(k, "shape", ()) and dim < len(found._array.shape) and is_sparse(found):
            found = select(found, dim, k.__index__())
        else:
            raise refusal(f"x[{key!r}]")
    return found


def sparse_mask(x: Any, mask: Any) -> Any:
    """The values of a tensor at the places of a sparse one."""
    if not is_sparse(mask):
        raise TypeError(f"sparse_mask: the mask is a sparse tensor, not {type(mask).__name__}")
    if mask._array.shape != x._array.shape:
        raise ShapeError(f"sparse_mask: the mask of shape {mask._array.shape} has not the shape {x._array.shape}")
    array = mask._array
    return sparse(array.pattern, entries.values_at(x, array.pattern), array.layout)
