"""Rows that read and write by index tensors: advanced indexing, embedding, masks.

An advanced index is one int64 tensor `at` of shape (k, *s): `at[i]` holds the places in dimension `dims[i]`. The result has `s` in place
of the k dimensions: where they were if they are neighbours, else in front (NumPy's and PyTorch's rule). `wrap` says whether negative
places count from the end. The CPU functions accept an output that is the first input itself: that is how in-place writes avoid a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, FLOAT64, HALF, INT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.sort_cpu import order_of
from gradlab.spec import DimensionError, ShapeError, Spec, count, expect_shape

GROUP = 1 << 13  # elements for each place from which on a group's own sum is quicker than addition one by one
MANY = 32  # numbers for each place from which on they add up in a double
FEW = 1 << 12  # elements of a result that NumPy may make in a buffer of its own
CHUNK = 1 << 18  # elements whose addresses are computed at a time when rows are added up


# ---------------------------------------------------------------- what the CPU functions share


def neighbours(dims: tuple[int, ...]) -> bool:
    """Whether the indexed dimensions follow one another."""
    return dims[-1] - dims[0] + 1 == len(dims)


def place(dims: tuple[int, ...]) -> int:
    """The dimension of the result at which the shape of the index tensors comes."""
    return dims[0] if neighbours(dims) else 0


def picked_shape(shape: tuple[int, ...], at: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `x[at]` for x of `shape` and an `at` of shape `at`."""
    rest = [size for i, size in enumerate(shape) if i not in dims]
    start = place(dims)
    return (*rest[:start], *at[1:], *rest[start:])


def in_range(name: str, places: Any, size: int, dim: int, shape: tuple[int, ...], wrap: bool) -> None:
    """Raise DimensionError (an IndexError) unless all places lie in a dimension of that size."""
    if not places.size:
        return
    if not wrap and places.dtype == INT64 and int(np.maximum.reduce(places.view(np.uint64), axis=None)) < size:
        return  # read as unsigned, negative ones are larger than any size
    low, high = int(np.minimum.reduce(places, axis=None)), int(np.maximum.reduce(places, axis=None))
    if high >= size or low < (-size if wrap else 0):
        wrong = high if high >= size else low
        raise DimensionError(f"{name}: index {wrong} is out of range for dimension {dim} of size {size} (shape {shape})")


def numpy_key(at: Any, dims: tuple[int, ...]) -> tuple[Any, ...]:
    """The index as NumPy takes it."""
    key: list[Any] = [slice(None)] * (dims[-1] + 1)
    for places, dim in zip(at, dims, strict=True):
        key[dim] = places
    return tuple(key)


def linear(at: Any, sizes: tuple[int, ...]) -> Any:
    """One place in the flattened indexed dimensions for each set of places; negative ones are counted from the end."""
    total: Any = 0
    for places, size in zip(at, sizes, strict=True):
        total = total * size + places + (places < 0) * size
    return total


def add_rows(total: Any, places: Any, rows: Any) -> None:
    """total[places[i]] += rows[i], in the order of i, for a contiguous `total` (k, m) and `rows` (n, m).

    NumPy's `add.at` is fast on flat arrays only, so element addresses are computed, a block of rows at a time.
    """
    width = total.shape[1]
    if width >= 64 and rows.size >= GROUP * len(total):
        add_groups(total, places, rows)
        return
    flat = total.reshape(-1)
    if width == 1:
        add_flat(flat, places, rows.reshape(-1))
        return
    step = max(CHUNK // max(width, 1), 1)
    column = np.arange(width)
    for i in range(0, len(places), step):
        add_flat(flat, (places[i : i + step, None] * width + column).reshape(-1), rows[i : i + step].reshape(-1))


def add_flat(total: Any, places: Any, values: Any) -> None:
    """total[places[i]] += values[i]. Where many meet in each place, a float32 total of them would lose digits: it is a double."""
    if total.dtype == FLOAT32 and len(places) >= MANY * len(total):
        np.add(total, np.bincount(places, values, len(total)), total, casting="same_kind")
    else:
        np.add.at(total, places, values)


def _wide(total: Any) -> Any:
    return FLOAT64 if total.dtype == FLOAT32 else total.dtype


def add_groups(total: Any, places: Any, rows: Any) -> None:
    """The same for few places and wide rows: the rows of each place are summed as a group."""
    order = order_of(places, 0, False)
    ends = np.cumsum(np.bincount(places, minlength=len(total))).tolist()
    start = 0
    for to, end in zip(total, ends, strict=True):
        if end > start:
            np.add(to, np.add.reduce(rows[order[start:end]], axis=0, dtype=_wide(to)), to, casting="same_kind")
        start = end


def add_picked(y: Any, at: Any, value: Any, dims: tuple[int, ...]) -> None:
    """y[at] += value, repeated places adding up, for a contiguous y. Half types add up in float32."""
    if not value.size:
        return
    sizes = tuple(y.shape[d] for d in dims)
    start, depth, k = place(dims), at.ndim - 1, len(dims)
    rest = tuple(i for i in range(y.ndim) if i not in dims)
    places = np.ascontiguousarray(linear(at, sizes)).reshape(-1)
    around = (*range(start, start + depth), *range(start), *range(start + depth, value.ndim))
    rows = np.ascontiguousarray(value.transpose(around)).reshape(places.size, -1)
    order = (*dims, *rest)
    moved = y.transpose(order)
    direct = y.dtype not in HALF and order == tuple(range(y.ndim)) and y.flags.c_contiguous
    total = y if direct else np.ascontiguousarray(moved, FLOAT32 if y.dtype in HALF else None)
    add_rows(total.reshape(count(sizes), -1), places, rows.astype(total.dtype, copy=False))
    if not direct:
        moved[...] = total.reshape([y.shape[d] for d in order[:k]] + [y.shape[d] for d in order[k:]])


# ---------------------------------------------------------------- advanced indexing


def index_rule(x: Spec, at: Spec, *, dims: tuple[int, ...], wrap: bool) -> Spec:
    """Rule: the index tensors' shape in place of the indexed dimensions."""
    if at.dtype != INT64 or not at.shape or at.shape[0] != len(dims):
        raise ShapeError(f"an index of shape {at.shape} and type {at.dtype} for dimensions {dims}; expected int64 of ({len(dims)}, ...)")
    return Spec(picked_shape(x.shape, at.shape, dims), x.dtype)


def index_cpu(x: Any, at: Any, y: Any, *, dims: tuple[int, ...], wrap: bool) -> None:
    if wrap and 0 < y.size <= FEW:  # NumPy's own check is the cheapest
        try:
            if len(dims) == 1 and x.flags.c_contiguous:
                x.take(at[0], dims[0], y, "raise")
            else:
                y[...] = x[numpy_key(at, dims)]
            return
        except IndexError:
            pass
    for places, dim in zip(at, dims, strict=True):
        in_range("index", places, x.shape[dim], dim, x.shape, wrap)
    if not y.size:
        return
    if not x.flags.c_contiguous or not neighbours(dims):  # np.take would copy all of x
        y[...] = x[numpy_key(at, dims)]
    elif len(dims) == 1:
        np.take(x, at[0], axis=dims[0], out=y, mode="wrap")
    else:
        first, last = dims[0], dims[-1] + 1
        sizes = x.shape[first:last]
        np.take(x.reshape(*x.shape[:first], -1, *x.shape[last:]), linear(at, sizes), axis=first, out=y, mode="wrap")


index = Op("index", index_rule, params=("dims", "wrap"), cpu=index_cpu, cuda=Kernel("index.cu", "index", "index"), exact=True,
           grad={"x": lambda g, at, x_spec, dims: index_backward(g, at, shape=x_spec.shape, dims=dims)})  # fmt: skip


def index_backward_rule(dy: Spec, at: Spec, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Spec:
    """Rule: the shape that was indexed."""
    expect_shape("the gradient", dy, index_rule(Spec(shape, dy.dtype), at, dims=dims, wrap=True).shape)
    return Spec(shape, dy.dtype)


def index_backward_cpu(dy: Any, at: Any, y: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    y.fill(0)
    add_picked(y, at, dy, dims)


index_backward: Op = Op("index_backward", index_backward_rule, params=("shape", "dims"), cpu=index_backward_cpu, exact=True,
                    cuda=Kernel("index.cu", "index_backward", "index_add"),
                    grad={"dy": lambda g, at, dims: index(g, at, dims=dims, wrap=True)})  # fmt: skip


def index_put_rule(x: Spec, at: Spec, value: Spec, *, dims: tuple[int, ...], accumulate: bool, wrap: bool) -> Spec:
    """Rule: like x; `value` has the shape and dtype of what is written."""
    target = index_rule(x, at, dims=dims, wrap=wrap)
    if value != target:
        raise ShapeError(f"values of shape {value.shape} and type {value.dtype} for a part of shape {target.shape} and type {x.dtype}")
    return x


def index_put_cpu(x: Any, at: Any, value: Any, y: Any, *, dims: tuple[int, ...], accumulate: bool, wrap: bool) -> None:
    for places, dim in zip(at, dims, strict=True):
        in_range("index_put", places, x.shape[dim], dim, x.shape, wrap)
    if y is not x:
        np.copyto(y, x)
    if accumulate:
        add_picked(y, at, value, dims)
    elif value.size:
        y[numpy_key(at, dims)] = value


index_put: Op = Op("index_put", index_put_rule, params=("dims", "accumulate", "wrap"), cpu=index_put_cpu, exact=True, autocast="widest",
               cuda=Kernel("index.cu", "index_put", "index_put"),
               grad={"x": lambda g, at, value_spec, dims, accumulate, wrap: g if accumulate else index_put(
                         g, at, g.new_zeros(value_spec.shape), dims=dims, accumulate=False, wrap=wrap),
                     "value": lambda g, at, dims, wrap: index(g, at, dims=dims, wrap=wrap)})  # fmt: skip

# ---------------------------------------------------------------- embedding: rows of a table


def embedding_rule(weight: Spec, at: Spec, *, padding_idx: int | None) -> Spec:
    """Rule: each index becomes a row of the table."""
    if len(weight.shape) != 2 or at.dtype != INT64:
        raise ShapeError(f"a table of two dimensions and int64 indices, not shape {weight.shape} and {at.dtype}")
    return Spec((*at.shape, weight.shape[1]), weight.dtype)


def embedding_cpu(weight: Any, at: Any, y: Any, *, padding_idx: int | None) -> None:
    in_range("embedding", at, weight.shape[0], 0, weight.shape, False)
    if y.size:
        np.take(weight, at, axis=0, out=y, mode="clip")


embedding = Op("embedding", embedding_rule, params=("padding_idx",), cpu=embedding_cpu, exact=True,
               cuda=Kernel("index.cu", "embedding", "embedding"),
               grad={"weight": lambda g, at, weight_spec, padding_idx:
                     embedding_backward(g, at, rows=weight_spec.shape[0], padding_idx=padding_idx)})  # fmt: skip


def embedding_backward_cpu(dy: Any, at: Any, y: Any, *, rows: int, padding_idx: int | None) -> None:
    y.fill(0)
    if not dy.size:
        return
    total = y if y.dtype not in HALF else np.zeros(y.shape, FLOAT32)
    add_rows(total, np.ascontiguousarray(at).reshape(-1), np.ascontiguousarray(dy, total.dtype).reshape(-1, y.shape[1]))
    if padding_idx is not None:
        total[padding_idx] = 0
    if total is not y:
        y[...] = total


def padded_rows(g: Any, at: Any, padding_idx: int | None) -> Any:
    """The rows of `g` at the indices, without those of the padding."""
    found = embedding(g, at, padding_idx=padding_idx)
    return found if padding_idx is None else found.masked_fill((at == padding_idx).unsqueeze(-1), 0)


def embedding_backward_rule(dy: Spec, at: Spec, *, rows: int, padding_idx: int | None) -> Spec:
    """Rule: a row for each of the table's; a row of the gradient for each index."""
    expect_shape("the gradient", dy, (*at.shape, *dy.shape[-1:]))
    return Spec((rows, dy.shape[-1]), dy.dtype)


embedding_backward: Op = Op("embedding_backward", embedding_backward_rule,
                        params=("rows", "padding_idx"), cpu=embedding_backward_cpu, exact=True,
                        cuda=Kernel("index.cu", "embedding_backward", "index_add"),
                        grad={"dy": padded_rows})  # fmt: skip

# ---------------------------------------------------------------- masks


def nonzero_cpu(x: Any) -> Any:
    return np.array(x.nonzero()).T if x.ndim else np.argwhere(x)


nonzero = Op("nonzero", lambda x: Spec((count(x.shape), len(x.shape)), INT64), cpu=nonzero_cpu, exact=True, dynamic=True,
             instead="where(mask, x, other), or x[mask] = value with one value, which keep all sizes")  # fmt: skip


def masked_scatter_rule(x: Spec, mask: Spec, source: Spec) -> Spec:
    """Rule: like x; the mask has its shape."""
    if mask != Spec(x.shape, BOOL) or source.dtype != x.dtype:
        raise ShapeError(f"a bool mask of shape {x.shape} and a source of type {x.dtype}, not {mask} and {source.dtype}")
    return x


def masked_scatter_cpu(x: Any, mask: Any, source: Any, y: Any) -> None:
    wanted = int(np.count_nonzero(mask))
    if wanted > source.size:
        raise RuntimeError(f"masked_scatter: the mask has {wanted} true elements, the source only {source.size} (shape {source.shape})")
    if y is not x:
        np.copyto(y, x)
    y[mask] = source.reshape(-1)[:wanted]


def masked_gather_rule(x: Spec, mask: Spec, *, shape: tuple[int, ...]) -> Spec:
    """Rule: the shape of the source that was scattered."""
    expect_shape("the mask", mask, x.shape)
    return Spec(shape, x.dtype)


def masked_gather_cpu(x: Any, mask: Any, y: Any, *, shape: tuple[int, ...]) -> None:
    found = x[mask]
    flat = y.reshape(-1)
    flat[: found.size] = found
    flat[found.size :] = 0


masked_scatter = Op("masked_scatter", masked_scatter_rule, cpu=masked_scatter_cpu, exact=True,
                    cuda=Kernel("index.cu", "masked_scatter", "masked"),
                    grad={"x": lambda g, mask: g.masked_fill(mask, 0),
                          "source": lambda g, mask, source_spec: masked_gather(g, mask, shape=source_spec.shape)})  # fmt: skip
masked_gather: Op = Op("masked_gather", masked_gather_rule, params=("shape",), exact=True,
                       cpu=masked_gather_cpu, cuda=Kernel("index.cu", "masked_gather", "masked"),
                       grad={"x": lambda g, mask: masked_scatter(g.new_zeros(mask.shape), mask, g)})  # fmt: skip
