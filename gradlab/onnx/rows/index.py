"""Rows that read and write by index tensors: advanced indexing, embedding, gather, scatter, masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, HALF, INT64
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.movement import filled, flattened
from gradlab.spec import count


@exports("index", wide=False)
def index(e: Emitter, x: Wire, at: Wire, *, dims: tuple[int, ...], wrap: bool) -> Wire:
    """Gather along one dimension; GatherND for several, which come first for it and go where the result has them."""
    if len(dims) == 1:
        return e("Gather", x, e.squeeze(e.cut(at, 0, 1, 0), 0), axis=dims[0])
    rank, depth = x.rank, at.rank - 1
    rest = [d for d in range(rank) if d not in dims]
    places = e.transpose(at, [*range(1, at.rank), 0])
    found = e("GatherND", e.transpose(x, [*dims, *rest]), places)
    start = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
    return e.transpose(found, [*range(depth, depth + start), *range(depth), *range(depth + start, depth + len(rest))])


def put(e: Emitter, x: Wire, at: Wire, value: Wire, dims: tuple[int, ...], reduction: str) -> Wire:
    """ScatterND into x with the indexed dimensions in front."""
    rank, depth = x.rank, at.rank - 1
    rest = [d for d in range(rank) if d not in dims]
    order = [*dims, *rest]
    start = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
    around = [*range(start, start + depth), *range(start), *range(start + depth, depth + len(rest))]
    wide = np.dtype(np.int32) if x.dtype == BOOL and reduction != "none" else x.dtype
    found = e("ScatterND", e.cast(e.transpose(x, order), wide), e.transpose(at, [*range(1, at.rank), 0]),
              e.cast(e.transpose(value, around), wide), reduction=reduction)  # fmt: skip
    return e.transpose(found, [order.index(d) for d in range(rank)])


@exports("index_put", wide=False)
def index_put(e: Emitter, x: Wire, at: Wire, value: Wire, *, dims: tuple[int, ...], accumulate: bool, wrap: bool) -> Wire:
    """Values written at, or added to, the indexed places."""
    if accumulate and x.dtype in HALF:  # they add up in float32
        x, value = e.cast(x, FLOAT32), e.cast(value, FLOAT32)
    return put(e, x, at, value, dims, "add" if accumulate else "none")


@exports("index_backward")
def index_backward(e: Emitter, dy: Wire, at: Wire, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Wire:
    """Added to zeros."""
    return put(e, filled(e, 0, shape, dy.dtype), at, dy, dims, "add")

# ---------------------------------------------------------------- embedding


@exports("embedding", wide=False)
def embedding(e: Emitter, weight: Wire, at: Wire, *, padding_idx: int | None) -> Any:
    """Gather of rows."""
    return e("Gather", weight, at, axis=0)


@exports("embedding_backward")
def embedding_backward(e: Emitter, dy: Wire, at: Wire, *, rows: int, padding_idx: int | None) -> Wire:
    """Rows added up; that of the padding is 0."""
    shape = (rows, dy.shape[-1] if dy.shape else 0)
    found: Wire = e("ScatterND", filled(e, 0, shape, dy.dtype), e("Unsqueeze", at, e.constant([-1], INT64)), dy, reduction="add")
    if padding_idx is None:
        return found
    kept = np.arange(rows).reshape(-1, 1) != padding_idx % rows
    return e.where(e.constant(kept), found, 0.0)


# ---------------------------------------------------------------- along one dimension


@exports("gather", wide=False)
def gather(e: Emitter, x: Wire, index: Wire, *, dim: int) -> Any:
    """GatherElements; ONNX Runtime wants the sizes of the other dimensions to agree, so they are cut first."""
    return e("GatherElements", fitted(e, x, index, dim), index, axis=dim)


def fitted(e: Emitter, x: Wire, index: Wire, dim: int) -> Wire:
    """x, as large as the index in all dimensions but one."""
    assert x.shape is not None and index.shape is not None
    for d, (size, wanted) in enumerate(zip(x.shape, index.shape)):
        if d != dim and size != wanted:
            x = e.cut(x, 0, wanted, d)
    return x


def scattered(e: Emitter, x: Wire, index: Wire, src: Wire, dim: int, reduction: str) -> Wire:
    """ScatterElements; one value for all is expanded."""
    if src.shape == () and index.shape != ():
        src = e.expand(src, index.shape or ())
    found: Wire = e("ScatterElements", x, index, src, axis=dim, reduction=reduction)
    found.shape = x.shape
    return found


@exports("scatter", wide=False)
def scatter(e: Emitter, x: Wire, index: Wire, src: Wire, *, dim: int) -> Wire:
    """Values written."""
    return scattered(e, x, index, src, dim, "none")


@exports("scatter_add", truths=True)
def scatter_add(e: Emitter, x: Wire, index: Wire, src: Wire, *, dim: int) -> Wire:
    """Values added."""
    return scattered(e, x, index, src, dim, "add")


@exports("gather_backward")
def gather_backward(e: Emitter, dy: Wire, index: Wire, *, shape: tuple[int, ...], dim: int) -> Wire:
    """Added to zeros."""
    return scattered(e, filled(e, 0, shape, dy.dtype), index, dy, dim, "add")


@exports("scatter_reduce", truths=True)
def scatter_reduce(e: Emitter, x: Wire, index: Wire, src: Wire, *, dim: int, reduce: str, include_self: bool) -> Wire:
    """Products and extremes; without the tensor's own values, these become what changes nothing where something is written."""
    if not include_self:
        x = scattered(e, x, index, e.number(neutral(reduce, x.dtype), x.dtype), dim, "none")
    return scattered(e, x, index, src, dim, {"prod": "mul", "amax": "max", "amin": "min"}[reduce])


def neutral(reduce: str, dtype: Any) -> Any:
    """The value that changes nothing."""
    if reduce == "prod":
        return 1
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max)
    return -np.inf if reduce == "amax" else np.inf


# ---------------------------------------------------------------- masks


@exports("masked_scatter", wide=False)
def masked_scatter(e: Emitter, x: Wire, mask: Wire, source: Wire) -> Wire:
    """Element i of the source goes to the i-th true place: found by a running count."""
    total = count(x.shape or ())
    flat = e.cast(flattened(e, mask), INT64)
    order = e("Max", e("CumSum", flat, e.number(0, INT64)) - 1, 0)
    found = e("Gather", flattened(e, source), order, axis=0)
    wide = x.dtype if x.dtype.itemsize >= 4 or x.dtype == BOOL else np.dtype(np.int32) if x.dtype.kind in "iu" else FLOAT32
    kept = e.where(flattened(e, mask), e.cast(found, wide), e.cast(flattened(e, x), wide))
    kept.shape = (total,)
    return e.reshape(kept, x.shape or ())


@exports("masked_gather", wide=False)
def masked_gather(e: Emitter, x: Wire, mask: Wire, *, shape: tuple[int, ...]) -> Wire:
    """The chosen elements in front, zeros behind: each goes to the place that a running count says, the others to one beyond the end."""
    total = count(shape)
    flat = flattened(e, mask)
    order = e("CumSum", e.cast(flat, INT64), e.number(0, INT64)) - 1
    target = e.where(flat, e("Min", order, e.number(total, INT64)), total)
    zeros = filled(e, 0, (total + 1,), x.dtype)
    kept = e.cut(e("ScatterElements", zeros, target, flattened(e, x), axis=0), 0, total, 0)
    kept.shape = (total,)
    return e.reshape(kept, shape)


# ---------------------------------------------------------------- sparse matrices


@exports("spmm")
def spmm(e: Emitter, values: Wire, dense: Wire, row: Wire, col: Wire, starts: Wire, *_: Wire) -> Any:
    """Rows of the dense matrix times the entries, added up by row."""
    assert starts.shape is not None and dense.shape is not None
    parts = e("Mul", e("Unsqueeze", values, e.constant([1], INT64)), e("Gather", dense, col, axis=0))
    zeros = filled(e, 0, (starts.shape[0] - 1, dense.shape[1]), dense.dtype)
    return e("ScatterND", zeros, e("Unsqueeze", row, e.constant([-1], INT64)), parts, reduction="add")


@exports("sddmm")
def sddmm(e: Emitter, a: Wire, b: Wire, row: Wire, col: Wire, *_: Wire) -> Any:
    """Inner products of the rows that the entries name."""
    parts = e("Mul", e("Gather", a, row, axis=0), e("Gather", b, col, axis=0))
    return e("ReduceSum", parts, e.constant([1], INT64), keepdims=0)
