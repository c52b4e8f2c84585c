"""Gather, scatter, and what looks at values: non-zero places, unique values."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.importing import Node, imports, read


def _counted(at: Any, size: int) -> Any:
    """Places counted from the start."""
    at = at.to(gl.int64)
    return gl.where(at < 0, at + size, at)


@imports("Gather")
def gather(node: Node, x: Any, at: Any) -> Any:
    """Slices of one axis, in the shape of the indices."""
    axis = node.get("axis", 0) % x.dim()
    found = x.index_select(axis, _counted(at, x.shape[axis]).reshape(-1))
    return found.reshape(*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])


@imports("GatherElements")
def gather_elements(node: Node, x: Any, at: Any) -> Any:
    axis = node.get("axis", 0)
    return x.gather(axis, _counted(at, x.shape[axis]))


@imports("GatherND")
def gather_nd(node: Node, x: Any, at: Any) -> Any:
    """The last axis of the indices has places in the axes behind the batch's."""
    batch = node.get("batch_dims", 0)
    parts = [_counted(at[..., i], x.shape[batch + i]) for i in range(at.shape[-1])]
    lead = []
    for d in range(batch):
        shape = [1] * (at.dim() - 1)
        shape[d] = x.shape[d]
        lead.append(gl.arange(x.shape[d], device=x.device).reshape(shape))
    return x[(*lead, *parts)]


def _combined(node: Node, x: Any, where: tuple[Any, ...], updates: Any) -> Any:
    """x with updates at places: written, or added, multiplied, compared with what is there."""
    how = node.get("reduction", "none")
    if how == "none":
        return x.index_put(where, updates)
    if how == "add":
        return x.index_put(where, updates, accumulate=True)
    shape = x.shape
    flat = gl.arange(x.numel(), device=x.device).reshape(shape)[where].reshape(-1)
    name = {"mul": "prod", "max": "amax", "min": "amin"}[how]
    values = updates.reshape(-1) if updates.dim() else updates.expand(*flat.shape)
    return x.reshape(-1).scatter_reduce(0, flat, values, name).reshape(shape)


@imports("ScatterND")
def scatter_nd(node: Node, x: Any, at: Any, updates: Any) -> Any:
    return _combined(node, x, tuple(_counted(at[..., i], x.shape[i]) for i in range(at.shape[-1])), updates)


@imports("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Any, at: Any, updates: Any) -> Any:
    axis = node.get("axis", 0) % x.dim()
    at = _counted(at, x.shape[axis])
    where = []
    for d in range(x.dim()):
        shape = [1] * x.dim()
        shape[d] = at.shape[d]
        where.append(at if d == axis else gl.arange(at.shape[d], device=x.device).reshape(shape).expand(at.shape))
    return _combined(node, x, tuple(where), updates)


@imports("TensorScatter")
def tensor_scatter(node: Node, past: Any, update: Any, start: Any = None) -> Any:
    """Writes a sequence into a cache, for each batch entry from its own place on."""
    axis = node.get("axis", -2) % past.dim()
    length, batch = update.shape[axis], past.shape[0]
    steps = gl.arange(length, device=past.device)[None]
    at = steps + (0 if start is None else start.reshape(-1, 1).to(gl.int64))
    if node.get("mode", "linear") == "circular":
        at = at % past.shape[axis]
    rows = gl.arange(batch, device=past.device)[:, None]
    found = past.movedim(axis, 1).index_put((rows.expand(batch, length), at.expand(batch, length)), update.movedim(axis, 1))
    return found.movedim(1, axis)


@imports("NonZero")
def nonzero(node: Node, x: Any) -> Any:
    at = np.stack(np.nonzero(np.atleast_1d(read(node, x, "the number of places")))).astype(np.int64)
    return gl.tensor(at, device=x.device)


@imports("Compress")
def compress(node: Node, x: Any, condition: Any) -> Any:
    kept = np.flatnonzero(read(node, condition, "the number of elements"))
    axis = node.get("axis")
    x = x.reshape(-1) if axis is None else x
    return x.index_select(0 if axis is None else axis, gl.tensor(kept.astype(np.int64), device=x.device))


@imports("Unique")
def unique(node: Node, x: Any) -> Any:
    """Values, first places, inverse, counts: sorted, or in the order of their first places."""
    values = read(node, x, "the number of values")
    axis = node.get("axis")
    found, first, inverse, counts = np.unique(values, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.get("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        found, first, counts, inverse = np.take(found, order, axis=0 if axis is None else axis), first[order], counts[order], rank[inverse]
    places = [np.asarray(v, np.int64) for v in (first, inverse, counts)]
    return tuple(gl.tensor(v, device=x.device) for v in (found, *places))
