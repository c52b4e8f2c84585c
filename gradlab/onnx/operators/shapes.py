"""Constants, shapes and movement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.dtype import DType
from gradlab.nn import functional as F
from gradlab.onnx import hosts
from gradlab.onnx.importing import Node, excess, given, imports, ints, is_dynamic, number, read
from gradlab.onnx.operators.elementwise import dtype_of


@imports("Constant", always_host=True)
def constant(node: Node) -> Any:
    """A plain number, or an array."""
    for name, value in node.attributes.items():
        if name == "value":
            return value
        if name in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.array(value, np.int64)
    raise node.refuse("constants of strings and sparse tensors are not supported")


@imports("ConstantOfShape", host=(0,))
def constant_of_shape(node: Node, shape: Any) -> Any:
    value = node.get("value", np.zeros(1, np.float32)).reshape(-1)
    return gl.full(tuple(ints(shape) or ()), value[0].item(), dtype=value.dtype, device=node.device)


@imports("Shape")
def shape(node: Node, x: Any) -> Any:
    return hosts.shape(node, x)


@imports("Size")
def size(node: Node, x: Any) -> Any:
    return hosts.size(node, x)


@imports("Reshape", host=(1,))
def reshape(node: Node, x: Any, wanted: Any = None) -> Any:
    """0 stands for the size that is there, unless `allowzero` says otherwise."""
    sizes = ints(node.get("shape") if wanted is None else wanted) or []
    if not node.get("allowzero", 0):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


@imports("Flatten")
def flatten(node: Node, x: Any) -> Any:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@imports("Transpose")
def transpose(node: Node, x: Any) -> Any:
    return x.permute(*node.get("perm", list(range(x.dim()))[::-1])) if x.dim() else x


def axes_of(node: Node, axes: Any, default: Any = None) -> list[int] | None:
    """Axes, which old files have as an attribute."""
    return ints(node.get("axes", default) if axes is None else axes)


@imports("Squeeze", host=(1,))
def squeeze(node: Node, x: Any, axes: Any = None) -> Any:
    found = axes_of(node, axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


@imports("Unsqueeze", host=(1,))
def unsqueeze(node: Node, x: Any, axes: Any = None) -> Any:
    found = axes_of(node, axes) or []
    rank = x.dim() + len(found)
    for axis in sorted(a % rank for a in found):
        x = x.unsqueeze(axis)
    return x


@imports("Concat")
def concat(node: Node, *xs: Any) -> Any:
    return gl.cat(list(xs), node.get("axis", 1))


@imports("Split", host=(1,))
def split(node: Node, x: Any, sizes: Any = None) -> Any:
    """Into given sizes, or evenly, the last part being the rest."""
    axis = node.get("axis", 0)
    parts = ints(node.get("split") if sizes is None else sizes)
    if parts is None:
        pieces = node.get("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // pieces)
        parts = [min(each, max(x.shape[axis] - i * each, 0)) for i in range(pieces)]
    return tuple(gl.split(x, parts, axis))


@imports("Slice", host=(1, 2, 3, 4))
def slice_(node: Node, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    """As NumPy's, bounds beyond the size and negative steps among them."""
    begin = ints(node.get("starts") if starts is None else read(node, starts, "a bound")) or []
    end = ints(node.get("ends") if ends is None else read(node, ends, "a bound")) or []
    which = axes_of(node, axes) or list(range(len(begin)))
    step = ints(steps) or [1] * len(begin)
    for axis, first, last, by in zip(which, begin, end, step, strict=True):
        n = x.shape[axis]
        if by < 0:  # the same places, counted from the other end
            x = x.flip(axis)
            first, last = (n - 1 - v if v >= 0 else -1 - v for v in (first, last))
            first, last, by = max(first, 0), max(last, 0), -by
        if not (first == 0 and by == 1 and last >= n):
            x = x[(slice(None),) * (axis % x.dim()) + (slice(first, last, by),)]
    return x


@imports("Expand", host=(1,))
def expand(node: Node, x: Any, wanted: Any) -> Any:
    sizes = ints(read(node, wanted, "a size")) or []
    have = list(x.shape)
    rank = max(len(sizes), len(have))
    have, sizes = [1] * (rank - len(have)) + have, [1] * (rank - len(sizes)) + sizes
    return x.expand(tuple(a if is_dynamic(a) or n == 1 else n for a, n in zip(have, sizes, strict=True))).clone()


@imports("Tile", host=(1, 2))
def tile(node: Node, x: Any, repeats: Any, axis: Any = None) -> Any:
    """Before opset 6 along one axis."""
    if node.opset < 6:
        at = int(number(axis)) % x.dim()
        repeats = [int(number(repeats)) if d == at else 1 for d in range(x.dim())]
    return x.repeat(*(ints(repeats) or [])) if x.dim() else x.clone()


@imports("Pad", host=(1, 2, 3))
def pad(node: Node, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Negative pads cut."""
    amounts = ints(node.get("pads", node.get("paddings")) if pads is None else pads) or []
    which = [a % x.dim() for a in ints(axes) or range(x.dim())]
    before, after = amounts[: len(which)], amounts[len(which) :]
    fill = number(value) if given(value) else node.get("value", 0.0)
    mode = {"edge": "replicate", "wrap": "circular"}.get(node.get("mode", "constant"), node.get("mode", "constant"))
    for axis, low, high in zip(which, before, after, strict=True):
        x = padded(x, axis, low, high, mode, fill)
    return x


def padded(x: Any, axis: int, low: int, high: int, mode: str, fill: Any) -> Any:
    """x with more (or, for negative numbers, fewer) elements before and behind along an axis."""
    unsure = is_dynamic(low) or is_dynamic(high)
    if unsure or low < 0 or high < 0:
        before, behind = excess(-low), excess(-high)
        x = x.narrow(axis, before, x.shape[axis] - before - behind)
        low, high = excess(low), excess(high)
    if not unsure and not low and not high:
        return x
    n = x.shape[axis]
    if mode == "constant":
        shapes = [(*x.shape[:axis], k, *x.shape[axis + 1 :]) for k in (low, high)]
        parts = [gl.full(s, fill, dtype=x.dtype, device=x.device) for s in shapes]
        return gl.cat([parts[0], x, parts[1]], axis)
    at = gl.arange(-low, n + high, device=x.device)
    if mode == "reflect":
        last = gl.full((), n - 1, dtype=gl.int64, device=x.device)
        at = ((at + last) % (2 * last).clamp(min=1) - last).abs()
    elif mode == "circular":
        at = at % n
    else:
        at = at.clamp(0, n - 1)
    return x.index_select(axis, at)


@imports("CenterCropPad", host=(1,))
def center_crop_pad(node: Node, x: Any, wanted: Any) -> Any:
    for axis, n in zip(node.get("axes", range(x.dim())), ints(wanted) or [], strict=True):
        axis, have = axis % x.dim(), x.shape[axis]
        cut, more = excess(have - n), excess(n - have)
        x = padded(x.narrow(axis, cut // 2, have - cut), axis, more // 2, more - more // 2, "constant", 0)
    return x


@imports("DepthToSpace")
def depth_to_space(node: Node, x: Any) -> Any:
    b, c, h, w = x.shape
    k = node.get("blocksize")
    if node.get("mode", "DCR") == "DCR":
        return x.reshape(b, k, k, c // k**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // k**2, h * k, w * k)
    return x.reshape(b, c // k**2, k, k, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // k**2, h * k, w * k)


@imports("SpaceToDepth")
def space_to_depth(node: Node, x: Any) -> Any:
    b, c, h, w = x.shape
    k = node.get("blocksize")
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(b, c, h // k, k, w // k, k).permute(*order).reshape(b, c * k * k, h // k, w // k)


@imports("Range", host=(0, 1, 2))
def range_(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """What is known beforehand is made on the host (`hosts.py`)."""
    kind = start.dtype if isinstance(start, gl.Tensor) else np.asarray(start).dtype
    first, last, step = (number(read(node, v, "a range")) for v in (start, limit, delta))
    count = (last - first) if step == 1 else math.ceil((last - first) / step)
    steps = gl.arange(count if is_dynamic(count) else max(math.ceil(count), 0), device=node.device)
    found = steps if step == 1 else steps * step
    found = found + first if is_dynamic(first) or first != 0 else found
    return found.to(kind if isinstance(kind, DType) else gl.tensor(np.zeros((), kind)).dtype) if str(kind) != "object" else found


@imports("EyeLike")
def eye_like(node: Node, x: Any) -> Any:
    rows, columns = x.shape
    at = gl.arange(columns, device=x.device)[None] - gl.arange(rows, device=x.device)[:, None]
    return (at == node.get("k", 0)).to(dtype_of(node, "dtype", x.dtype))


@imports("Trilu", host=(1,))
def trilu(node: Node, x: Any, k: Any = None) -> Any:
    return (gl.triu if node.get("upper", 1) else gl.tril)(x, 0 if k is None else int(number(k)))


@imports("OneHot", host=(1,))
def one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    """values: what stands off and on the place. Indices count from the end where they are negative."""
    n, axis = int(number(depth)), node.get("axis", -1)
    at = indices.to(gl.int64)
    at = gl.where(at < 0, at + n, at)
    hit = at.unsqueeze(-1) == gl.arange(n, device=at.device)
    return gl.where(hit.movedim(-1, axis), values[1], values[0])


@imports("Col2Im", host=(1, 2))
def col2im(node: Node, x: Any, image: Any, block: Any) -> Any:
    """Blocks (N, C·block, places) are added up where they lie in an image (N, C, …) of any rank."""
    sizes, kernel = ints(read(node, image, "a size")) or [], ints(read(node, block, "a size")) or []
    rank = len(kernel)
    pads, dilations, strides = node.get("pads", [0] * 2 * rank), node.get("dilations", [1] * rank), node.get("strides", [1] * rank)
    if rank == 2 and pads[:2] == pads[2:]:
        return F.fold(x, tuple(sizes), tuple(kernel), dilation=tuple(dilations), padding=tuple(pads[:2]), stride=tuple(strides))
    wide = [n + a + b for n, a, b in zip(sizes, pads[:rank], pads[rank:], strict=True)]
    at: Any = np.zeros([1] * 2 * rank, np.int64)  # of each element of each block its place in the padded image
    for d, (n, k, s, e) in enumerate(zip(wide, kernel, strides, dilations, strict=True)):
        steps = (np.arange(k) * e)[:, None] + np.arange((n - e * (k - 1) - 1) // s + 1) * s
        at = at * n + steps.reshape([k if i == d else steps.shape[1] if i == rank + d else 1 for i in range(2 * rank)])
    lead = x.shape[0] * (x.shape[1] // math.prod(kernel))
    places = gl.tensor(at.reshape(1, -1), device=x.device).expand(lead, at.size)
    flat = gl.zeros((lead, math.prod(wide)), dtype=x.dtype, device=x.device).scatter_add(1, places, x.reshape(lead, -1))
    y = flat.reshape(x.shape[0], -1, *wide)
    for d, (a, b) in enumerate(zip(pads[:rank], pads[rank:], strict=True)):
        y = padded(y, 2 + d, -a, -b, "constant", 0)
    return y


@imports("ReverseSequence", host=(1,))
def reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    """Each batch entry's first steps, as many as its length, in reverse order."""
    time = x if node.get("time_axis", 0) == 0 else x.transpose(0, 1)
    steps = np.arange(time.shape[0])[:, None]
    length = np.asarray(read(node, lengths, "a length"))[None]
    at = np.where(steps < length, length - 1 - steps, steps).astype(np.int64)
    found = time[gl.tensor(at, device=x.device), gl.arange(time.shape[1], device=x.device)]
    return found if node.get("time_axis", 0) == 0 else found.transpose(0, 1)
