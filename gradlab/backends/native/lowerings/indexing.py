"""Lowering of rows that read and write by indices: advanced indexing, gather and scatter, losses by class."""

from __future__ import annotations

import math
from typing import Any

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.lines import kernel
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import WORDS, Space, copy, fill
from gradlab.backends.native.place import STATUS, Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, HALF, INT64

HEADER = '#include "indexing.h"\n'
MANY = 32  # as in ops/indexing.py
FAULT = Place(STATUS, 0, (), (), INT64)  # where a kernel says that an index lies outside
PLACES = "Places{(const int64_t*)p[2], v + 5, v[3], v[4], %s}"  # of its third pointer, and parameters from the fourth on


def word(place: Place) -> str:
    """The unsigned type as wide as an element."""
    return WORDS[place.dtype.itemsize]


def _made(ctx: Lowering, value: Any) -> Place:
    """The place of a result, which has to be contiguous."""
    place = ctx.place(value)
    if not place.contiguous:
        raise Unsupported
    return place


class _Picked:
    """An advanced index of neighbouring dimensions: (outer, size, width) and the places of n elements."""

    def __init__(self, shape: tuple[int, ...], at: Place, dims: tuple[int, ...]) -> None:
        if dims[-1] - dims[0] + 1 != len(dims) or not at.contiguous or math.prod(shape) == 0 or at.size == 0:
            raise Unsupported
        first, last = dims[0], dims[-1] + 1
        self.outer, self.sizes, self.width = math.prod(shape[:first]), shape[first:last], math.prod(shape[last:])
        self.k, self.n = len(dims), at.size // len(dims)
        self.parameters = (self.outer, math.prod(self.sizes), self.width, self.k, self.n, *self.sizes)
        self.work = self.outer * self.n * (self.width + 4)

    @property
    def parts(self) -> int:
        """The most threads that do not write the same elements."""
        return max(self.outer, self.width // 16, 1)


@lowers("index")
def index(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Elements, rows or matrices, one for each index."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    x, at = map(space.dense, call.inputs)
    picked = _Picked(x.shape, at, call.params["dims"])
    places = PLACES % ("true" if call.params["wrap"] else "false")
    w = word(x)
    text = f"pick(({w}*)p[0], (const {w}*)p[1], {places}, (int64_t*)p[3], v[0], v[1], v[2], part, parts);"
    return [*space.tasks, TaskSpec(kernel(ctx, HEADER, text), picked.parameters, (y, x, at, FAULT), widest(picked.work))]


def _sum(space: Space, y: Place, value: Place, at: Place, picked: _Picked, wrap: bool, start: Place | None) -> list[TaskSpec]:
    """y = start (zeros where it is None), and the values added at their places; half types add up in float."""
    ctx, half, tasks = space.ctx, y.dtype in HALF, space.tasks
    if ctx.general and picked.n >= MANY * math.prod(picked.sizes):
        raise Unsupported  # eager code adds up so many numbers for each place in a double
    total = space.like(y, FLOAT32) if half else y
    a, s = storage(total.dtype), storage(value.dtype)
    if start is None:
        tasks += fill(total, 0, ctx)
    elif half:
        tasks.append(_converted(ctx, total, start))
    elif start != y:
        tasks += copy(y, start, ctx)
    places = PLACES % ("true" if wrap else "false")
    text = f"put_sum(({a}*)p[0], (const {s}*)p[1], {places}, (int64_t*)p[3], v[0], v[1], v[2], part, parts);"
    tasks.append(TaskSpec(kernel(ctx, HEADER, text), picked.parameters, (total, value, at, FAULT), min(picked.parts, widest(picked.work))))
    return [*tasks, _converted(ctx, y, total)] if half else tasks


def _converted(ctx: Lowering, y: Place, x: Place) -> TaskSpec:
    text = f"converted(({storage(y.dtype)}*)p[0], (const {storage(x.dtype)}*)p[1], v[0], part, parts);"
    return TaskSpec(kernel(ctx, HEADER, text), (y.size,), (y, x), widest(y.size))


@lowers("index_backward")
def index_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Zeros, and the gradients added up where they came from."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    value, at = map(space.dense, call.inputs)
    if y.dtype.kind == "b":
        raise Unsupported
    return _sum(space, y, value, at, _Picked(y.shape, at, call.params["dims"]), True, None)


@lowers("index_put")
def index_put(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """A copy with other values at some places, or with values added there."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    start, at, value = map(space.dense, call.inputs)
    picked, wrap = _Picked(y.shape, at, call.params["dims"]), call.params["wrap"]
    if call.params["accumulate"]:
        if y.dtype.kind == "b":
            raise Unsupported
        return _sum(space, y, value, at, picked, wrap, start)
    w, places = word(y), PLACES % ("true" if wrap else "false")
    text = f"put(({w}*)p[0], (const {w}*)p[1], {places}, (int64_t*)p[3], v[0], v[1], v[2], part, parts);"
    task = TaskSpec(kernel(ctx, HEADER, text), picked.parameters, (y, value, at, FAULT), min(picked.parts, widest(picked.work)))
    return [*space.tasks, *(copy(y, start, ctx) if start != y else []), task]


# ---------------------------------------------------------------- along one dimension


def _along(big: tuple[int, ...], index: Place, dim: int) -> tuple[int, int, int, int]:
    """Sizes before the dimension, of the index in it, behind it, and of the tensor in it; the other dimensions have to agree."""
    if not big or 0 in big or index.size == 0 or any(a != b for d, (a, b) in enumerate(zip(big, index.shape, strict=True)) if d != dim):
        raise Unsupported
    return math.prod(big[:dim]), index.shape[dim], math.prod(big[dim + 1 :]), big[dim]


@lowers("gather")
def gather(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Elements along one dimension."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    x, at = map(space.dense, call.inputs)
    sizes, w = _along(x.shape, at, call.params["dim"]), word(x)
    text = f"gather(({w}*)p[0], (const {w}*)p[1], (const int64_t*)p[2], (int64_t*)p[3], v[0], v[1], v[2], v[3], part, parts);"
    return [*space.tasks, TaskSpec(kernel(ctx, HEADER, text), sizes, (y, x, at, FAULT), min(sizes[0] * sizes[1], widest(at.size * 4)))]


REDUCTIONS = {"sum": "ADD", "prod": "MULTIPLY", "amax": "LARGEST", "amin": "SMALLEST"}


def _scattered(ctx: Lowering, y: Place, source: Place, at: Place, dim: int, how: str) -> TaskSpec:
    """Values that are written, or added and the like to what is there."""
    outer, m, inner, n = _along(y.shape, at, dim)
    a, s = (word(y), word(source)) if how == "WRITE" else (storage(y.dtype), storage(source.dtype))
    text = (
        f"scatter<{a}, {s}, {how}>(({a}*)p[0], (const {s}*)p[1], (const int64_t*)p[2], (int64_t*)p[3], "
        "v[0], v[1], v[2], v[3], v[4], part, parts);"
    )
    one = source.size == 1 and at.size != 1
    most = min(max(outer, inner // 16, 1), widest(at.size * 4))
    return TaskSpec(kernel(ctx, HEADER, text), (outer, m, inner, n, one), (y, source, at, FAULT), most)


@lowers("scatter")
def scatter(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """A copy with other values at some places."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    x, at, source = map(space.dense, call.inputs)
    task = _scattered(ctx, y, source, at, call.params["dim"], "WRITE")
    return [*space.tasks, *(copy(y, x, ctx) if x != y else []), task]


@lowers("scatter_add", "scatter_reduce", "gather_backward")
def scatter_add(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Values added at some places, or multiplied, or the largest or smallest taken, to a copy or to zeros; half types in float."""
    backward = call.op.name == "gather_backward"
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    at, source = space.dense(call.inputs[1]), space.dense(call.inputs[0 if backward else 2])
    if y.dtype.kind == "b" or not call.params.get("include_self", True):
        raise Unsupported
    half, before = y.dtype in HALF, space.tasks
    total = space.like(y, FLOAT32) if half else y
    task = _scattered(ctx, total, source, at, call.params["dim"], REDUCTIONS[call.params.get("reduce", "sum")])
    if backward:
        before += fill(total, 0, ctx)
    else:
        x = space.dense(call.inputs[0])
        before += [_converted(ctx, total, x)] if half else copy(y, x, ctx) if x != y else []
    return [*before, task, *([_converted(ctx, y, total)] if half else [])]


# ---------------------------------------------------------------- losses by class


def _classes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if math.prod(shape) == 0:
        raise Unsupported
    return shape[0], shape[1], math.prod(shape[2:])


@lowers("nll")
def nll(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Of each target the loss."""
    y, space = _made(ctx, call.outputs[0]), Space(ctx)
    x, target = map(space.dense, call.inputs)
    if target.dtype != INT64:
        raise Unsupported
    s, sizes = storage(x.dtype), _classes(x.shape)
    text = (
        f"class_losses(({s}*)p[0], (const {s}*)p[1], (const int64_t*)p[2], (int64_t*)p[3], v[0], v[1], v[2], v[3], part, parts);"
    )
    parameters = (*sizes, call.params["ignore_index"])
    return [*space.tasks, TaskSpec(kernel(ctx, HEADER, text), parameters, (y, x, target, FAULT), widest(target.size * 4))]


@lowers("nll_backward")
def nll_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Zeros, and a gradient for each target."""
    dx, space = _made(ctx, call.outputs[0]), Space(ctx)
    dy, target = map(space.dense, call.inputs)
    if target.dtype != INT64 or dy.size != target.size:
        raise Unsupported
    s, sizes = storage(dx.dtype), _classes(dx.shape)
    text = f"class_gradient(({s}*)p[0], (const {s}*)p[1], (const int64_t*)p[2], v[0], v[1], v[2], v[3], part, parts);"
    most = min(sizes[0], widest(dx.size / 2))
    return [*space.tasks, TaskSpec(kernel(ctx, HEADER, text), (*sizes, call.params["ignore_index"]), (dx, dy, target), most)]
