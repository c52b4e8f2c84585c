"""Lowering of copies: into parts of a result, from strided views, with what is left filled up."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gradlab.backends.cuda.layout import merged
from gradlab.backends.native.general import copies
from gradlab.backends.native.lowering import HEADER, Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.iteration_order import dense, in_order, walk
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import immediate

MOST_DIMS = 12  # of kernels that get sizes as parameters


class _Words(dict[int, str]):
    """Unsupported for elements that are wider: of complex128."""

    def __missing__(self, size: int) -> str:
        raise Unsupported


WORDS = _Words({1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"})


def part_of(place: Place, index: tuple[Any, ...]) -> Place:
    """The place of `array[index]` (slices, integers, None)."""
    step = place.dtype.itemsize
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, place.dtype), place.shape, tuple(s * step for s in place.strides))
    found = stand_in[index if Ellipsis in index else (*index, Ellipsis)]  # without it one element would be a copy elsewhere
    shift = found.__array_interface__["data"][0] - stand_in.__array_interface__["data"][0]
    return Place(place.base, place.offset + shift, found.shape, tuple(s // step for s in found.strides), place.dtype)


def copy(target: Place, source: Place, ctx: Lowering) -> list[TaskSpec]:
    """target = source, of equal dtypes; the source is broadcast."""
    if target.size == 0:
        return []
    lead = len(target.shape) - len(source.shape)
    spread = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(source.shape, source.strides))
    order = walk(target)
    sizes, (to, from_) = merged(in_order(target.shape, order), [in_order(target.strides, order), in_order(spread, order)])
    sizes, to, from_ = sizes or [1], to or [1], from_ or [1]
    word = WORDS[target.dtype.itemsize]
    if ctx.general or not ctx.generates:
        return [copies.strided(target, source, sizes, to, from_)]
    outer = list(range(len(sizes) - 1, 0, -1))
    # Rows of the source, which become columns.
    across = next((d for d in outer if to[0] == from_[d] == 1 != from_[0] and min(sizes[0], sizes[d]) >= 4), 0)
    most = min(sizes[-1] if len(sizes) > 1 else sizes[0], widest(target.size))
    header = '#include "transpose.h"\n' if across else HEADER
    text = [header, "GRADLAB_KERNEL @K(char** p, const int64_t*, int part, int parts) {"]
    text += [f"  {word}* const y = ({word}*)p[0];", f"  const {word}* const x = (const {word}*)p[1];"]
    if len(sizes) > 1 and sizes[-1] > 1:
        text.append(f"  const Share mine = share({sizes[-1]}LL, part, parts);")
    else:
        text.append(f"  const Share mine = share({sizes[0]}LL, part, parts, 64);")
    ends = {d: ("0", f"{sizes[d]}LL") for d in range(len(sizes))} | {len(sizes) - 1: ("mine.first", "mine.last")}
    loops = [d for d in (*outer, 0) if not across or d not in (across, 0)]
    for depth, d in enumerate(loops):
        if d == 0:
            text.append("#pragma GCC ivdep")
        text.append(f"{'  ' * (1 + depth)}for (int64_t i{d} = {ends[d][0]}; i{d} < {ends[d][1]}; ++i{d})")
    y, x = (" + ".join(f"i{d} * {step[d]}LL" for d in loops) or "0" for step in (to, from_))
    indent = "  " * (1 + len(loops))
    if across:
        first, last = ends[across]
        places = f"y + {y} + {first} * {to[across]}LL, {to[across]}LL, x + {x} + {first}, {from_[0]}LL"
        text += [f"{indent}gradlab::turn({places}, {last} - {first}, {sizes[0]}LL);", "}"]
    else:
        text += [f"{indent}y[{y}] = x[{x}];", "}"]
    return [TaskSpec(ctx.generate("\n".join(text)), (), (target, source), most)]


def packed(place: Place, ctx: Lowering) -> tuple[Place, list[TaskSpec]]:
    """The place itself if it is contiguous, else work space that it is copied to first. For one operand of a call."""
    if place.contiguous:
        return place, []
    space = ctx.scratch(place.size * place.dtype.itemsize)
    strides = tuple(itertools.accumulate(reversed(place.shape[1:]), lambda a, b: a * b, initial=1))[::-1]
    dense = Place(space.base, space.offset, place.shape, strides, place.dtype)
    return dense, copy(dense, place, ctx)


class Space:
    """Work space of one call of several parts: operands that are copied to be contiguous, and what kernels need beside."""

    def __init__(self, ctx: Lowering) -> None:
        self.ctx, self.used, self.tasks = ctx, 0, list[TaskSpec]()

    def like(self, place: Place, dtype: Any) -> Place:
        """A contiguous place of the same shape."""
        start, self.used = self.used, self.used + -(-place.size * dtype.itemsize // 64) * 64
        found = self.ctx.scratch(self.used)
        strides = tuple(itertools.accumulate(reversed(place.shape[1:]), lambda a, b: a * b, initial=1))[::-1] if place.shape else ()
        return Place(found.base, found.offset + start, place.shape, strides, dtype)

    def floats(self, count: int) -> Place:
        """Room for so many."""
        return self.like(Place(0, 0, (count,), (1,), np.dtype(np.float32)), np.dtype(np.float32))

    def dense(self, value: Any, dtype: Any = None) -> Place:
        """The place of a value, or of a copy that is contiguous; Unsupported where it is of another dtype than the one given."""
        place = self.ctx.place(value)
        if dtype is not None and place.dtype != dtype:
            raise Unsupported
        if place.contiguous:
            return place
        target = self.like(place, place.dtype)
        self.tasks += copy(target, place, self.ctx)
        return target


def fill(target: Place, value: Any, ctx: Lowering) -> list[TaskSpec]:
    """target = value, for a target without gaps."""
    if target.size == 0:
        return []
    if not dense(target):
        raise Unsupported
    _ = WORDS[target.dtype.itemsize]
    bytes_ = np.array(immediate(value, target.dtype), target.dtype).tobytes()
    return [copies.constant(target, int.from_bytes(bytes_, "little"))]


@lowers("view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "diagonal", "unfold")
def view_that_copies(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """A reshape of something that is not contiguous: the elements in their order, written one after the other; and views of nothing."""
    source, target = ctx.place(call.inputs[0]), ctx.place(call.outputs[0])
    if target.size == 0:
        return []
    if call.op.name != "view" or source.dtype != target.dtype:
        raise Unsupported
    strides = tuple(itertools.accumulate(reversed(source.shape[1:]), lambda a, b: a * b, initial=1))[::-1] if source.shape else ()
    return copy(Place(target.base, target.offset, source.shape, strides, target.dtype), source, ctx)


@lowers("slice_backward")
def slice_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Zeros with a part that is the gradient."""
    dy, y = ctx.place(call.inputs[0]), ctx.place(call.outputs[0])
    index = tuple(slice(*part) if isinstance(part, tuple) else part for part in call.params["index"])
    target = part_of(y, index)
    return [*(fill(y, 0, ctx) if target.size != y.size else []), *copy(target, dy, ctx)]


@lowers("slice_scatter")
def slice_scatter(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """A copy with a part replaced."""
    base, value, y = ctx.place(call.inputs[0]), ctx.place(call.inputs[1]), ctx.place(call.outputs[0])
    index = tuple(slice(*part) if isinstance(part, tuple) else part for part in call.params["index"])
    return [*copy(y, base, ctx), *copy(part_of(y, index), value, ctx)]


@lowers("cat")
def cat(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Parts one behind the other."""
    y, dim = ctx.place(call.outputs[0]), call.params["dim"]
    tasks, start = [], 0
    for x in call.inputs:
        source = ctx.place(x)
        size = source.shape[dim]
        part = part_of(y, (*(slice(None),) * dim, slice(start, start + size)))
        if source != part:  # `assembling.py`
            tasks += copy(part, source, ctx)
        start += size
    return tasks


@lowers("clone")
def clone(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The same elements in another order; others are part of a loop."""
    return copy(ctx.place(call.outputs[0]), ctx.place(call.inputs[0]), ctx)


@lowers("flip")
def flip(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Backwards along some dimensions."""
    x = ctx.place(call.inputs[0])
    index = tuple(slice(None, None, -1 if d in call.params["dims"] else 1) for d in range(len(x.shape)))
    return copy(ctx.place(call.outputs[0]), part_of(x, index) if x.size else x, ctx)


@lowers("full")
def full(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One value everywhere."""
    return fill(ctx.place(call.outputs[0]), call.params["value"], ctx)
