"""Lowering of batch norm: alone, with a ReLU behind it, behind a convolution.

In row-major order one kernel does all of a channel, which stays in the cache. Images with their channels last are read twice: for records
of parts of the batch, which give the statistics, and for the results. A convolution makes the records while it has its results at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.backends.native.lowering import Along, Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.backends.native.lowerings.conv import forward
from gradlab.backends.native.lowerings.conv_statistics import length
from gradlab.backends.native.place import Place
from gradlab.call import Call

PIECE = 1 << 14  # floats of a unit of work, which stay in the cache between the two times that they are read
FEWEST = 32  # pixels beside which a record is short
TOGETHER = 8  # the most images of a unit
SOME = 16  # channels whose statistics are found together


class Sizes(NamedTuple):
    """What the kernels know of a batch."""

    images: int
    channels: int
    places: int


class Units(NamedTuple):
    """How a batch is cut, the same for any number of threads: images together, or pixels of a band; how many there are."""

    group: int
    band: int
    many: int


class Norm(NamedTuple):
    """The operands of a batch norm."""

    y: Place
    mean: Place
    rstd: Place
    var: Place
    x: Place
    weight: Place | None
    bias: Place | None
    other: Place | None
    eps: float
    relu: bool


def _sizes(x: Place) -> Sizes:
    if len(x.shape) < 2 or x.size == 0:
        raise Unsupported
    return Sizes(x.shape[0], x.shape[1], math.prod(x.shape[2:]))


def _norm(
    ctx: Lowering, x: Any, parameters: Sequence[Any], y: Any, statistics: Sequence[Any], eps: float = 0.0, relu: bool = True
) -> Norm:  # fmt: skip
    """From values. parameters: weight, bias and what is added, or None. statistics: mean, rstd, variance."""
    weight, bias, other = parameters
    mean, rstd, var = map(ctx.dense, statistics)
    own, shift = (None if v is None else ctx.dense(v) for v in (weight, bias))
    return Norm(ctx.images(y), mean, rstd, var, ctx.images(x), own, shift, None if other is None else ctx.images(other), eps, relu)


def _last(places: Sequence[Place | None]) -> bool:
    """Whether images lie with their channels last, all of them, and not in row-major order; Unsupported for a mixture."""
    given = [p for p in places if p is not None]
    if all(p.contiguous for p in given):
        return False
    if not all(p.channels_last for p in given):
        raise Unsupported
    return True


def _units(s: Sizes) -> Units:
    most = max(PIECE // s.channels, FEWEST)
    bands = -(-s.places // most)
    band, group = -(-s.places // bands), 1
    while bands == 1 and group < TOGETHER and group * s.places < 2 * FEWEST and 2 * group <= s.images:
        group *= 2
    return Units(group, band, -(-s.images // group) * -(-s.places // band))


def _along(s: Sizes, batch: Sequence[bool], group: int = 1, records: int = 0) -> Along:
    """batch: which places hold images. records: bytes of each image's in the first place."""
    steps = [4 * s.channels * s.places * own for own in batch]
    return Along(s.images, group, (0,), (records or steps[0], *steps[1:]))


def _normal(n: Norm, last: bool) -> TaskSpec:
    """From the statistics to the result."""
    s = _sizes(n.x)
    places = (n.y, n.x, n.mean, n.rstd, *(n.x if v is None else v for v in (n.weight, n.bias, n.other)))
    flags = last or s.places == 1, n.weight is not None, n.bias is not None, n.relu, n.other is not None
    along = _along(s, (True, True, False, False, False, False, True))
    return TaskSpec("gradlab_normalise", (*s, *map(int, flags)), places, widest(n.x.size), along)


def _statistics(n: Norm, records: Place, units: int) -> TaskSpec:
    channels = n.x.shape[1]
    threads = min(-(-channels // SOME), widest(2 * units * channels))
    return TaskSpec("gradlab_channel_statistics", (channels, units, bits(n.eps)), (n.mean, n.rstd, n.var, records), threads)


def _tasks(n: Norm, ctx: Lowering) -> list[TaskSpec]:
    """All of it."""
    s = _sizes(n.x)
    if not _last((n.y, n.x, n.other)):
        places = (n.y, n.mean, n.rstd, n.var, n.x, *(n.x if v is None else v for v in (n.weight, n.bias, n.other)))
        parameters = (*s, bits(n.eps), *(int(f) for f in (n.weight is not None, n.bias is not None, n.relu, n.other is not None)))
        return [TaskSpec("gradlab_batch_norm", parameters, places, min(s.channels, widest(n.x.size * 4)))]
    u = _units(s)
    size = 4 * u.many * length(s.channels)
    records = ctx.scratch(size)
    along = _along(s, (False, True), u.group, size // u.many * -(-s.places // u.band) // u.group)
    first = TaskSpec("gradlab_channel_records", (*s, u.group, u.band), (records, n.x), min(u.many, widest(n.x.size * 2)), along)
    return [first, _statistics(n, records, u.many), _normal(n, last=True)]


@lowers("batch_norm", "batch_norm_relu")
def batch_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """With the statistics of the batch, which are results too."""
    x, *parameters = call.inputs
    y, *statistics = call.outputs
    relu = call.op.name == "batch_norm_relu"
    return _tasks(_norm(ctx, x, parameters if relu else [*parameters, None], y, statistics, call.params["eps"], relu), ctx)


@lowers("batch_norm_relu_again")
def again(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """From what was normalised and its statistics."""
    x, weight, bias, mean, rstd, other = call.inputs
    n = _norm(ctx, x, (weight, bias, other), call.outputs[0], (mean, rstd, rstd))
    return [_normal(n, _last((n.y, n.x, n.other)))]


@lowers(
    "convolution_batch_norm", "convolution_batch_norm_relu", "convolution_batch_norm_bfloat16", "convolution_batch_norm_relu_bfloat16"
)  # fmt: skip
def convolution_batch_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The statistics from records that the convolution makes of its results."""
    x, y, *statistics = call.outputs
    relu, bfloat16 = ("_" + word in call.op.name for word in ("relu", "bfloat16"))
    n = _norm(ctx, x, call.inputs[3:], y, statistics, call.params["eps"], relu)
    last = _last((n.y, n.x, n.other))
    made = forward(call.inputs[:3], x, call.params, ctx, recording=True, bfloat16=bfloat16)
    assert made.records is not None
    return [*made.tasks, _statistics(n, made.records, made.units), _normal(n, last)]


@lowers("batch_norm_backward", "batch_norm_relu_backward")
def batch_norm_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The gradients of input, weight and bias."""
    relu = call.op.name == "batch_norm_relu_backward"
    dy, x, weight, *rest = call.inputs
    bias, mean, rstd = rest if relu else (None, *rest)
    result, *slopes = call.outputs
    dx, given, inside = ctx.images(result), ctx.images(dy), ctx.images(x)
    dweight, dbias, middle, scale = map(ctx.dense, (*slopes, mean, rstd))
    own, shift = (inside if v is None else ctx.dense(v) for v in (weight, bias))
    flags = int(weight is not None), int(relu)
    s = _sizes(inside)
    if not _last((dx, given, inside)):
        places = dx, dweight, dbias, given, inside, own, middle, scale, shift
        return [TaskSpec("gradlab_batch_norm_backward", (*s, *flags), places, min(s.channels, widest(inside.size * 6)))]
    u = _units(s)
    size = 4 * u.many * length(s.channels)
    records = ctx.scratch(size)
    along = _along(s, (False, True, True, *[False] * 4), u.group, size // u.many * -(-s.places // u.band) // u.group)
    whole = _along(s, (True, True, True, *[False] * 6))
    threads = min(-(-s.channels // SOME), widest(2 * u.many * s.channels))
    return [
        TaskSpec("gradlab_norm_sums", (*s, u.group, u.band, *flags), (records, given, inside, middle, scale, own, shift),
                 min(u.many, widest(inside.size * 3)), along),
        TaskSpec("gradlab_norm_slopes", (s.channels, u.many), (dweight, dbias, scale, records), threads),
        TaskSpec("gradlab_norm_gradient", (*s, s.images * s.places, *flags), (dx, given, inside, dweight, dbias, middle, scale, own, shift),
                 widest(inside.size * 3), whole),
    ]  # fmt: skip
