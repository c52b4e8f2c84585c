"""What is done with a sparse tensor's entries: adding up those that share a place, spreading them out, finding them again, sums."""

from __future__ import annotations

from typing import Any

from gradlab.layout import Layout, sparse_coo
from gradlab.sparse.array import WAY_OUT, Pattern, SparseArray, is_sparse, refusal, sparse
from gradlab.spec import ShapeError, count, normalize_dim
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange
from gradlab.tensor.selection import index_select
from gradlab.tensor.shape import stack
from gradlab.tensor.sort import searchsorted


def _unflattened(keys: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Indices of places in the flattened space."""
    found = []
    rest: Any = keys
    for size in reversed(sizes):
        found.append(rest % max(size, 1))
        rest = rest.div(max(size, 1), rounding_mode="floor")
    return stack(found[::-1]) if found else keys.new_zeros((0, keys.shape[0]))


def merged(pattern: Pattern) -> tuple[Pattern, Tensor]:
    """The distinct places in order, and for each entry the number of its place."""
    keys, inverse = pattern.keys().unique(return_inverse=True)
    return Pattern(_unflattened(keys, pattern.sizes), pattern.sizes, True), inverse


def coalesced(pattern: Pattern, values: Tensor) -> tuple[Pattern, Tensor]:
    """The same tensor with distinct places in order; entries that share a place are added up, in their order."""
    if pattern.coalesced:
        return pattern, values
    found, inverse = merged(pattern)
    if found.number == pattern.number:
        return found, index_select(values, 0, inverse.argsort())
    return found, values.new_zeros((found.number, *values.shape[1:])).index_add(0, inverse, values)


def distinct(array: SparseArray) -> tuple[Pattern, Tensor]:
    """A sparse array's pattern and values, of which no two share a place."""
    return coalesced(array.pattern, array.values) if array.layout is sparse_coo else (array.pattern, array.values)


def dense(pattern: Pattern, values: Tensor) -> Tensor:
    """All elements."""
    sizes, rest = pattern.sizes, tuple(values.shape[1:])
    flat = values.new_zeros((count(sizes), *rest)).index_add(0, pattern.keys(), values)
    return flat.reshape((*sizes, *rest))


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """The same elements, in order, in another shape; of tensors without dense dimensions."""
    array = x._array
    if array.layout is not sparse_coo or len(array.values._array.shape) > 1 or not shape:
        raise refusal("view of a compressed layout, or with dense dimensions,")
    return sparse(Pattern(_unflattened(array.pattern.keys(), shape), shape, array.pattern.coalesced), array.values)


def add_to(target: Tensor, pattern: Pattern, values: Tensor) -> Tensor:
    """A dense tensor with the entries added, in a new one."""
    flat = target.reshape((count(pattern.sizes), *values.shape[1:]))
    return flat.index_add(0, pattern.keys(), values).reshape(target.shape)


def places_in(pattern: Pattern, wanted: Pattern) -> tuple[Tensor, Tensor]:
    """For each place of `wanted` the number of an entry of a coalesced pattern, and whether it has that place."""
    keys, asked = pattern.keys(), wanted.keys()
    if not pattern.number:
        return asked.new_zeros(asked.shape), asked < 0
    at = searchsorted(keys, asked).clamp(max=pattern.number - 1)
    return at, keys[at] == asked


def values_at(g: Any, pattern: Pattern) -> Tensor:
    """What a tensor, dense or sparse, has at the places of a pattern."""
    if is_sparse(g):
        array = g._array
        if array.pattern.same(pattern):
            return array.values
        own, values = coalesced(array.pattern, array.values)
        if not own.number:
            return values.new_zeros((pattern.number, *values.shape[1:]))
        at, there = places_in(own, pattern)
        found = index_select(values, 0, at)
        return found.masked_fill(~there.reshape((-1,) + (1,) * (found.ndim - 1)), 0)
    flat = g.reshape((count(pattern.sizes), *g.shape[len(pattern.sizes) :]))
    return index_select(flat, 0, pattern.keys())


def as_gradient(pattern: Pattern, values: Tensor, layout: Layout) -> Any:
    """The gradient of a sparse tensor, of that of its values: entries that share a place have the gradient of the place, each of them."""
    if pattern.coalesced or layout is not sparse_coo:
        return sparse(pattern, values, layout)
    found, inverse = merged(pattern)
    if found.number == pattern.number:
        return sparse(pattern, values)
    order = inverse.argsort(stable=True)
    first = searchsorted(inverse[order].contiguous(), arange(found.number, device=inverse.device))
    return sparse(found, index_select(values, 0, order[first]))


def empty_like(x: Any) -> Any:
    """A sparse tensor of the same shape without entries."""
    array = x._array
    indices = array.pattern.indices.new_zeros((len(array.pattern.sizes), 0))
    values = array.values.detach().new_zeros((0, *array.values.shape[1:]))
    return sparse(Pattern(indices, array.pattern.sizes, True), values, array.layout)


def total(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The sum along dimensions, of all of them for None: dense where no sparse dimension is left."""
    array = x._array
    pattern, values = array.pattern, array.values
    if dim is None:
        return values.sum(dtype=dtype)
    ndim, sparse_dims = len(array.shape), len(pattern.sizes)
    dims = sorted({normalize_dim(int(d), ndim) for d in ((dim,) if isinstance(dim, int) else dim)})
    inner = tuple(d - sparse_dims + 1 for d in dims if d >= sparse_dims)
    values = values.sum(inner, keepdim=keepdim, dtype=dtype) if inner else values if dtype is None else values.to(dtype=dtype)
    left = [d for d in range(sparse_dims) if d not in dims]
    if len(left) == sparse_dims:
        return sparse(pattern, values, array.layout)
    if array.layout is not sparse_coo:
        raise refusal("sum along a dimension of a compressed layout; x.to_sparse_coo().sum(dim), or")
    if not left:
        found = values.sum(0)
        return found.reshape((1,) * sparse_dims + tuple(found.shape)) if keepdim else found
    sizes = tuple(pattern.sizes[d] for d in left)
    made = Pattern(stack([pattern.indices[d] for d in left]), sizes)
    made, values = coalesced(made, values)
    if keepdim:
        zeros = made.indices.new_zeros((made.number,))
        rows = iter(range(len(left)))
        indices = stack([made.indices[next(rows)] if d in left else zeros for d in range(sparse_dims)])
        made = Pattern(indices, tuple(pattern.sizes[d] if d in left else 1 for d in range(sparse_dims)), True)
    return sparse(made, values)


def softmax(name: str, x: Any, dim: int, dtype: Any) -> Any:
    """Softmax or log_softmax along a dimension, of the entries alone: what is not kept counts as minus infinity."""
    array = x._array
    if array.layout is not sparse_coo:
        raise refusal(f"{name} of a compressed layout; x.to_sparse_coo(), or")
    pattern, values = coalesced(array.pattern, array.values if dtype is None else array.values.to(dtype=dtype))
    dim = normalize_dim(dim, len(array.shape))
    if dim >= len(pattern.sizes):
        return sparse(pattern, getattr(values, name)(dim - len(pattern.sizes) + 1))
    others = [d for d in range(len(pattern.sizes)) if d != dim]
    if len(others) == 1:
        group, number = pattern.indices[others[0]], pattern.sizes[others[0]]
    elif not others:
        group, number = pattern.indices.new_zeros((pattern.number,)), 1
    else:
        rest = Pattern(stack([pattern.indices[d] for d in others]), tuple(pattern.sizes[d] for d in others))
        found, group = merged(rest)
        number = found.number
    return sparse(pattern, _softmax(values, group, number, name == "log_softmax"))


def _softmax(values: Any, group: Tensor, number: int, logarithm: bool) -> Tensor:
    """Softmax of the entries of each group."""
    room = values.new_zeros((number, *values.shape[1:]))
    places = group.reshape((-1,) + (1,) * (values.ndim - 1)).expand(values.shape)
    largest = room.scatter_reduce(0, places, values.detach(), "amax", include_self=False)
    moved = values - index_select(largest, 0, group)
    powers = moved.exp()
    sums = index_select(room.index_add(0, group, powers), 0, group)
    return moved - sums.log() if logarithm else powers / sums


def fitting(name: str, x: Any, shape: tuple[int, ...]) -> None:
    """Raise unless a sparse tensor has that shape."""
    if x._array.shape != shape:
        raise ShapeError(f"{name}: sparse tensors of one shape, not {x._array.shape} and {shape}: they do not broadcast; {WAY_OUT}")
