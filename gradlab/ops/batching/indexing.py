"""Batch rules of gather, scatter, advanced indexing and embedding."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops.batching.common import Flags, Params, Values, front, fronts, moved, numbers, rank, shifted
from gradlab.ops.indexing import index, index_backward, neighbours, place
from gradlab.ops.movement import cat


def scattering(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Along one dimension; a source of one number serves the whole index."""
    x, at, source = values
    if rank(source, mapped[2]) == 0 and rank(at, mapped[1]) > 0:
        if not mapped[2]:
            x, at = fronts([x, at], mapped[:2], size)
            return op(x, at, source, **{**params, "dim": params["dim"] + 1})
        at = front(at, mapped[1], size)
        source = source.reshape((size, *(1,) * (len(at.shape) - 1))).expand(at.shape)
        mapped = [mapped[0], True, True]
    return shifted(op, size, mapped, [x, at, source], params)


def further(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The same dimensions behind the batch."""
    return tuple(d + 1 for d in dims)


def own(at: Any, size: int) -> Any:
    """Index tensors of each sample (B, k, *s) with the sample's number in front of the k places: (k + 1, B, *s)."""
    at = moved(at, 0, 1)
    number = numbers(size, at).reshape((1, size, *(1,) * (len(at.shape) - 2))).expand((1, *at.shape[1:]))
    return cat(number, at, dim=0)


def after_batch(y: Any, dims: tuple[int, ...], depth: int) -> Any:
    """The index's dimensions, which follow the batch, where a sample has them."""
    start = place(dims)
    rest = range(1 + depth, len(y.shape))
    return y.permute((0, *rest[:start], *range(1, 1 + depth), *rest[start:]))


def before_rest(dy: Any, dims: tuple[int, ...], depth: int) -> Any:
    """The inverse of `after_batch`."""
    start = 1 + place(dims)
    return dy.permute((0, *range(start, start + depth), *range(1, start), *range(start + depth, len(dy.shape))))


def reading(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """x[at]."""
    (x, at), (on_x, on_at), dims = values, mapped, params["dims"]
    if not on_at:
        found = index(x, at, dims=further(dims), wrap=params["wrap"])
        return found if neighbours(dims) else moved(found, len(at.shape) - 1, 0)
    if not on_x:
        return moved(index(x, moved(at, 0, 1), dims=dims, wrap=params["wrap"]), place(dims), 0)
    return after_batch(index(x, own(at, size), dims=(0, *further(dims)), wrap=params["wrap"]), dims, len(at.shape) - 2)


def adding(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The gradient of x[at]."""
    (dy, at), dims, shape = values, params["dims"], (size, *params["shape"])
    dy = front(dy, mapped[0], size)
    if not mapped[1]:
        dy = dy if neighbours(dims) else moved(dy, 0, len(at.shape) - 1)
        return index_backward(dy, at, shape=shape, dims=further(dims))
    return index_backward(before_rest(dy, dims, len(at.shape) - 2), own(at, size), shape=shape, dims=(0, *further(dims)))


def writing(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """x[at] = value."""
    (x, at, value), dims = values, params["dims"]
    x, value = front(x, mapped[0], size), front(value, mapped[2], size)
    if not mapped[1]:
        value = value if neighbours(dims) else moved(value, 0, len(at.shape) - 1)
        return op(x, at, value, **{**params, "dims": further(dims)})
    return op(x, own(at, size), before_rest(value, dims, len(at.shape) - 2), **{**params, "dims": (0, *further(dims))})


def embedding(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Rows of a shared table, or of each sample's own (then the padding's row is taken outside the graph: it gets no gradient)."""
    (table, at), (on_table, on_at), padding = values, mapped, params["padding_idx"]
    if not on_table:
        return op(table, at, **params)
    found = reading(index, size, mapped, [table, at.unsqueeze(1 if on_at else 0)], {"dims": (0,), "wrap": False})
    if padding is None:
        return found
    return found.detach().where((at == padding).unsqueeze(-1), found)


def embedding_backward(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Each sample's gradient of its table."""
    (dy, at), (on_dy, on_at), padding = values, mapped, params["padding_idx"]
    if padding is not None:
        hidden = (at == padding).unsqueeze(-1)
        dy, on_dy = dy.masked_fill(hidden, 0), on_dy or on_at
    shape = (params["rows"], dy.shape[-1])
    return adding(index_backward, size, [on_dy, on_at], [dy, at.unsqueeze(1 if on_at else 0)], {"dims": (0,), "shape": shape})


INDEXING = {
    "gather": shifted, "gather_backward": shifted, "scatter": scattering, "scatter_add": scattering, "scatter_reduce": scattering,
    "index": reading, "index_backward": adding, "index_put": writing, "embedding": embedding, "embedding_backward": embedding_backward,
}  # fmt: skip
