"""Rows that move elements: shapes, slices, flips, concatenation, triangles, diagonals, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import exports
from gradlab.ops.memory import places
from gradlab.spec import count

LARGE = 1 << 31  # beyond every size: "to the end" for Slice


@exports("view", wide=False)
def view(e: Emitter, x: Wire, *, shape: tuple[int, ...]) -> Wire:
    """Reshape."""
    return e.reshape(x, shape)


@exports("permute", wide=False)
def permute(e: Emitter, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    """Transpose."""
    return e.transpose(x, dims)


@exports("transpose", wide=False)
def transpose(e: Emitter, x: Wire, *, dim0: int, dim1: int) -> Wire:
    """Two dimensions change places."""
    order = list(range(x.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return e.transpose(x, order)


@exports("t", wide=False)
def t(e: Emitter, x: Wire) -> Wire:
    """All dimensions in reverse."""
    return e.transpose(x, list(range(x.rank))[::-1])


@exports("expand", wide=False)
def expand(e: Emitter, x: Wire, *, shape: tuple[int, ...]) -> Wire:
    """Sizes of 1 are repeated."""
    return e.expand(x, shape)


@exports("squeeze", wide=False)
def squeeze(e: Emitter, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    """Without dimensions of size 1."""
    return e.squeeze(x, *dims)


@exports("unsqueeze", wide=False)
def unsqueeze(e: Emitter, x: Wire, *, dim: int) -> Wire:
    """With a dimension of size 1."""
    return e.unsqueeze(x, dim)


# ---------------------------------------------------------------- slices


class Cuts:
    """A canonical index as arguments of Slice: starts, stops, axes and steps, the dimensions that go and those that come."""

    def __init__(self, shape: tuple[int, ...], index: tuple[Any, ...]) -> None:
        self.starts: list[Any] = []
        self.stops: list[Any] = []
        self.axes: list[int] = []
        self.steps: list[int] = []
        self.gone: list[int] = []
        self.new: list[int] = []  # places in the result
        self.sizes: list[Any] = list(shape)  # after Slice, with the dimensions that go
        dim = out = 0
        for part in index:
            if part is None:
                self.new.append(out)
                out += 1
                continue
            size = shape[dim]
            if isinstance(part, tuple):
                start, stop, step = part
                step = 1 if step is None else step
                whole = (start is None or (not is_dynamic(start) and start == 0)) and stop is None and step == 1
                if not whole:
                    self.add(dim, *bounds(start, stop, step, size), step)
                    if not is_dynamic(size):
                        self.sizes[dim] = len(range(*slice(*part).indices(size)))
                out += 1
            else:
                self.add(dim, part, LARGE if not is_dynamic(part) and part == -1 else part + 1, 1)
                self.gone.append(dim)
                self.sizes[dim] = 1
            dim += 1

    def add(self, dim: int, start: Any, stop: Any, step: int) -> None:
        """One dimension's part."""
        self.starts.append(start)
        self.stops.append(stop)
        self.axes.append(dim)
        self.steps.append(step)


def bounds(start: Any, stop: Any, step: int, size: Any) -> tuple[Any, Any]:
    """A slice's limits as ONNX's Slice reads them: beyond the end where none is given."""
    low = (0 if step > 0 else LARGE) if start is None else start
    high = (LARGE if step > 0 else -LARGE) if stop is None else stop
    return low, high


@exports("slice", wide=False)
def slice_(e: Emitter, x: Wire, *, index: tuple[Any, ...]) -> Wire:
    """Slice, Squeeze for integers, Unsqueeze for None."""
    cuts = Cuts(tuple(x.shape or ()), index)
    if cuts.axes:
        x = e("Slice", x, e.ints(cuts.starts), e.ints(cuts.stops), e.constant(cuts.axes, INT64), e.constant(cuts.steps, INT64))
    if cuts.gone:
        x = e.squeeze(x, *cuts.gone)
    return e.unsqueeze(x, *cuts.new) if cuts.new else x


@exports("slice_scatter", wide=False)
def slice_scatter(e: Emitter, base: Wire, value: Wire, *, index: tuple[Any, ...]) -> Wire:
    """The places are numbered, the same slice of the numbers says where the values go."""
    shape = tuple(base.shape or ())
    total = count(shape)
    places = slice_(e, numbered(e, shape), index=index)
    flat = e("ScatterElements", e.reshape(base, (total,)), flattened(e, places), flattened(e, value), axis=0)
    return e.reshape(flat, shape)


def flattened(e: Emitter, x: Wire) -> Wire:
    """As a vector."""
    found: Wire = e("Reshape", x, e.constant([-1], INT64))
    return found


def numbered(e: Emitter, shape: tuple[int, ...]) -> Wire:
    """0, 1, 2, … in a shape."""
    if not any(map(is_dynamic, shape)) and count(shape) <= 1 << 16:
        return e.constant(np.arange(count(shape)).reshape(shape), INT64)
    line = e("Range", e.number(0, INT64), e.number(count(shape), INT64), e.number(1, INT64))
    wire = Wire(line.name, INT64, e, (count(shape),))
    return e.reshape(wire, shape)


@exports("slice_backward", wide=False)
def slice_backward(e: Emitter, dy: Wire, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Wire:
    """Zeros with a part."""
    return slice_scatter(e, filled(e, 0, shape, dy.dtype), dy, index=index)


def filled(e: Emitter, value: Any, shape: Sequence[Any], dtype: Any) -> Wire:
    """One value in a shape."""
    found: Wire = e.expand(e.number(value, dtype), shape) if len(shape) else e.number(value, dtype)
    found.shape = tuple(shape)
    return found


@exports("cat", wide=False)
def cat(e: Emitter, *xs: Wire, dim: int) -> Any:
    """Concat."""
    return xs[0] if len(xs) == 1 else e("Concat", *xs, axis=dim)


@exports("flip", wide=False)
def flip(e: Emitter, x: Wire, *, dims: tuple[int, ...]) -> Any:
    """A slice with steps of -1."""
    if not dims or not x.rank:
        return x
    many = len(dims)
    return e("Slice", x, e.constant([-1] * many, INT64), e.constant([-LARGE] * many, INT64), e.constant(list(dims), INT64),
             e.constant([-1] * many, INT64))  # fmt: skip


# ---------------------------------------------------------------- made of nothing


@exports("full", wide=False)
def full(e: Emitter, *, shape: tuple[int, ...], value: Any, dtype: Any, device: Any = None) -> Wire:
    """One number everywhere: a constant without dimensions, expanded."""
    return filled(e, value, shape, np.dtype(dtype))


@exports("arange", wide=False)
def arange(e: Emitter, *, start: Any, step: Any, size: Any, dtype: Any, device: Any = None) -> Wire:
    """Evenly spaced numbers: a constant, or Range where the size is dynamic."""
    wide = np.dtype(np.int64) if isinstance(start, int) and isinstance(step, int) else np.dtype(np.float64)
    if not any(map(is_dynamic, (start, step, size))):
        e.tracked(size)
        return e.constant((np.arange(size, dtype=wide) * step + start).astype(dtype))
    line = e("Range", e.number(0, INT64), e.number(size, INT64), e.number(1, INT64))
    return e.cast(e.cast(line, wide) * e.number(step, wide) + e.number(start, wide), np.dtype(dtype))


# ---------------------------------------------------------------- triangles and diagonals


def triangle(upper: int) -> Any:
    """A converter to Trilu; ONNX Runtime has it for 64-bit integers, float, double and bool."""

    def converter(e: Emitter, x: Wire, *, diagonal: int) -> Wire:
        small = x.dtype.kind in "iu" and x.dtype.itemsize < 8
        wide = INT64 if small else np.dtype(np.float32) if x.dtype.kind not in "iub" and x.dtype.itemsize < 4 else x.dtype
        return e("Trilu", e.cast(x, wide), e.number(diagonal, INT64), upper=upper)

    return converter


exports("tril", wide=False)(triangle(0))
exports("triu", wide=False)(triangle(1))


def on_diagonal(shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Any:
    """The places of a diagonal's elements in the flattened tensor."""
    if any(map(is_dynamic, shape)):
        raise Unsupported("a diagonal of a tensor whose sizes are dynamic")
    return np.arange(count(shape)).reshape(shape).diagonal(offset, dim1, dim2)


@exports("diagonal", wide=False)
def diagonal(e: Emitter, x: Wire, *, offset: int, dim1: int, dim2: int) -> Wire:
    """Both dimensions as one, of which the diagonal's places are gathered."""
    shape = tuple(x.shape or ())
    rest = [d for d in range(len(shape)) if d not in (dim1, dim2)]
    rows, columns = shape[dim1], shape[dim2]
    places = on_diagonal((rows, columns), offset, 0, 1)
    flat = e.reshape(e.transpose(x, [*rest, dim1, dim2]), (*(shape[d] for d in rest), rows * columns))
    return e("Gather", flat, e.constant(places, INT64), axis=len(rest))


@exports("diagonal_scatter", wide=False)
def diagonal_scatter(e: Emitter, base: Wire, value: Wire, *, offset: int, dim1: int, dim2: int) -> Wire:
    """The values go to the diagonal's places in the flattened tensor."""
    shape = tuple(base.shape or ())
    places = on_diagonal(shape, offset, dim1, dim2)
    flat = e("ScatterElements", e.reshape(base, (count(shape),)), e.constant(places.reshape(-1), INT64), flattened(e, value), axis=0)
    return e.reshape(flat, shape)


@exports("diagonal_embed", wide=False)
def diagonal_embed(e: Emitter, values: Wire, *, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Wire:
    """Zeros with a diagonal."""
    return diagonal_scatter(e, filled(e, 0, shape, values.dtype), values, offset=offset, dim1=dim1, dim2=dim2)


# ---------------------------------------------------------------- windows


@exports("unfold", wide=False)
def unfold(e: Emitter, x: Wire, *, dim: int, size: int, step: int) -> Wire:
    """Gather of each window's places, which then come last."""
    if not x.rank:
        return e.reshape(x, (size,)) if size else filled(e, 0, (0,), x.dtype)
    windows = e.outputs[0].shape[dim]
    if is_dynamic(windows):
        line = e("Range", e.number(0, INT64), e.number(windows, INT64), e.number(1, INT64))
        places = e.unsqueeze(line * step, 1) + e.constant(np.arange(size), INT64)
    else:
        places = e.constant(np.arange(windows)[:, None] * step + np.arange(size), INT64)
    found = e("Gather", x, places, axis=dim)
    rank = x.rank + 1
    return e.transpose(found, [*range(dim + 1), *range(dim + 2, rank), dim + 1])


@exports("unfold_backward")
def unfold_backward(e: Emitter, windows: Wire, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> Wire:
    """Each place's sum over the windows that hold it: added to zeros at the windows' places."""
    if not shape:
        return e.reshape(windows, ()) if size else e.number(0, windows.dtype)
    number = windows.shape[dim] if windows.shape else 0
    if any(map(is_dynamic, (*shape, number))):
        raise Unsupported("the gradient of windows over dynamic sizes")
    rank = len(shape) + 1
    moved = e.transpose(windows, [*range(dim + 1), rank - 1, *range(dim + 1, rank - 1)])
    wide = (*shape[:dim], number * size, *shape[dim + 1 :])
    places = (np.arange(number)[:, None] * step + np.arange(size)).reshape(-1, *(1,) * (len(shape) - 1 - dim))
    index = e.constant(np.broadcast_to(places, wide), INT64)
    zeros = filled(e, 0, shape, windows.dtype)
    return e("ScatterElements", zeros, index, e.reshape(moved, wide), axis=dim, reduction="add")


@exports("as_strided", wide=False)
def as_strided(e: Emitter, x: Wire, *, shape: tuple[int, ...], steps: tuple[int, ...], first: int) -> Wire:
    """Gather of each element's place in the flattened tensor."""
    if any(map(is_dynamic, (*shape, *steps, first))):
        raise Unsupported("strides of a tensor whose sizes are dynamic")
    return e("Gather", flattened(e, x), e.constant(places(shape, steps, first).reshape(shape), INT64), axis=0)


@exports("bits", wide=False)
def bits(e: Emitter, x: Wire, *, dtype: np.dtype[Any]) -> Wire:
    """No operator looks at bits."""
    raise Unsupported(f"the bits of {x.dtype.name} as {dtype.name}")
