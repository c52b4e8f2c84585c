"""Lowering of convolutions, and of their gradients for the input, to sums over what each pixel meets (direct.h)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gradlab.backends.native.lowering import Along, Lowering, TaskSpec, widest
from gradlab.backends.native.lowerings.conv_statistics import Made, length
from gradlab.backends.native.lowerings.geometry import Geometry, Pair, sampled
from gradlab.backends.native.place import Place

LANES = 16  # of the widest vectors: sizes of memory are made for them
BAND = 1 << 16  # floats that a unit of work reads and writes: a part of the second-level cache
UNITS = 8  # pieces of work worth making of a batch
DEEP = 1 << 17  # floats of weights that are read anew for each unit of work, ...
PIXELS = 96  # ... which therefore should have so many pixels
ALONE = 128  # pixels of a plane that needs no other image beside it
FAR = 1 << 31  # floats that a distance may count
PAGE = 1024  # floats: elements so far apart compete for the same lines of the first-level cache, ...
WAYS = 12  # ... which holds so many of them

FEW, SHALLOW = 8, 150  # outputs of a group, and products of a sum, for which vectors of pixels are better than vectors of outputs
IN_PLACE, PLANES, LAST = 0, 1, 2  # how images are laid


class Phase(NamedTuple):
    """Pixels of the result that meet the same taps: where the first is and their numbers; the first tap, how many there are and how far
    apart; the taps' places in the kernel."""

    start: Pair
    sizes: Pair
    tap: Pair
    many: Pair
    apart: Pair
    places: list[int]


class Cut(NamedTuple):
    """How the work is cut: rows of a band (of the phases' pixels), bands of an image, images together, parts of the outputs."""

    band: int
    bands: int
    together: int
    parts: int


class Reading(NamedTuple):
    """The first tap of all, how far the last one is behind it, and how images are laid."""

    first: Pair
    reach: Pair
    laying: int


def forward_phase(sizes: Sequence[int], kernel: Sequence[int], g: Geometry) -> Phase:
    """All pixels of a forward's result meet all taps."""
    a, b = kernel
    return Phase((0, 0), (sizes[0], sizes[1]), (-g.padding[0], -g.padding[1]), (a, b), g.dilation, list(range(a * b)))


def gradient_phases(sizes: Sequence[int], kernel: Sequence[int], g: Geometry) -> list[Phase]:
    """The input's pixels by their place within a stride. A pixel at f + stride·j meets, through the kernel's place k, the output at
    j + (f + padding - k·dilation) / stride, where that is a whole number."""

    def met(d: int, f: int) -> tuple[list[int], list[int]]:
        """Along one dimension the outputs that are met, and through which places."""
        shifts = {k: f + g.padding[d] - k * g.dilation[d] for k in reversed(range(kernel[d]))}
        places = [k for k, shift in shifts.items() if shift % g.stride[d] == 0]
        return [shifts[k] // g.stride[d] for k in places], places

    phases = []
    for fy in range(min(g.stride[0], sizes[0])):
        for fx in range(min(g.stride[1], sizes[1])):
            (down, rows), (along, columns) = met(0, fy), met(1, fx)
            if not down or not along:
                down, along, rows, columns = [], [], [], []
            first, apart = zip(*((t[0] if t else 0, t[1] - t[0] if len(t) > 1 else 1) for t in (down, along)))
            many = -(-(sizes[0] - fy) // g.stride[0]), -(-(sizes[1] - fx) // g.stride[1])
            places = [a * kernel[1] + b for a in rows for b in columns]
            phases.append(Phase((fy, fx), many, first, (len(down), len(along)), apart, places))
    return phases


def correlate(
    y: Place, x: Place, weights: Place, bias: Place | None, g: Geometry, ctx: Lowering, back: bool = False, relu: bool = False,
    recording: bool = False,
) -> Made:  # fmt: skip
    """The tasks that convolve images `x` with `weights`; back: that compute the input's gradient `y` from the result's, `x`. recording:
    whether records of the results are wanted (conv_statistics.py)."""
    kernel = weights.shape[2:]
    if not back:
        x, g = sampled(x, kernel, g)
    phases = gradient_phases(y.shape[2:], kernel, g) if back else [forward_phase(y.shape[2:], kernel, g)]
    stride, step = ((1, 1), g.stride) if back else (g.stride, (1, 1))
    images, outputs = y.shape[:2]
    own, given = outputs // g.groups, x.shape[1] // g.groups
    kind = _kind(y, x, own, given, phases)
    reading = _reading(x, phases, stride, kind)
    rows, columns = (max(p.sizes[d] for p in phases) for d in (0, 1))
    batch = _batch(y, x, own, given, g.groups) if kind == "planes" else g.groups
    floats = _floats(y, phases, stride, step, reading, (batch * own, batch * given), kind)
    taps = sum(len(p.places) for p in phases)
    pixels = rows * columns * len(phases)
    deep = kind == "direct" and g.groups == 1 and outputs * given * taps > DEEP
    cut = _cut(images, rows, pixels, floats, -(-ALONE // pixels) if kind == "planes" else images, outputs // (4 * LANES) if deep else 0)
    numbers, starts, size = _weights(own, given, kernel, g.groups, phases, back, -(-own // LANES) * LANES if kind == "direct" else own)
    units = -(-images // cut.together) * cut.bands
    space = ctx.scratch(4 * (size + recording * units * length(outputs)))
    records = space._replace(offset=space.offset + 4 * size, shape=(4 * units * length(outputs),)) if recording else None
    turn = TaskSpec(f"gradlab_{kind}_weights", numbers, (space, weights), widest(size))
    parameters = [*x.shape, *x.strides, *y.shape, *y.strides, g.groups, *stride, *step, *reading.first, *reading.reach, columns]
    parameters += [*cut[:3], reading.laying, len(phases)]
    for p, start in zip(phases, starts, strict=True):
        tap = (p.tap[0] - reading.first[0], p.tap[1] - reading.first[1]) if p.places else (0, 0)
        parameters += [*p.start, *p.sizes, *tap, *p.many, *p.apart, start]
    parameters += [bias is not None, relu, recording, batch if kind == "planes" else cut.parts]
    places = (y, x, space, y if bias is None else bias, records or y)
    work = images * outputs * given * sum(math.prod(p.sizes) * max(len(p.places), 1) for p in phases)
    threads = min(units * cut.parts, widest(work / 16))
    main = TaskSpec(f"gradlab_{kind}", tuple(map(int, parameters)), places, threads, _along(places, bias, records, units, cut))
    return Made([turn, main], records, units)


def _kind(y: Place, x: Place, own: int, given: int, phases: Sequence[Phase]) -> str:
    """Which kernel: vectors of outputs (direct.cpp), of pixels of a plane (planes.cpp), or of channels (depthwise.cpp)."""
    if own == given == 1 and y.shape[1] >= LANES:
        return "depthwise"
    depth = given * max(len(p.places) for p in phases)
    badly = own <= FEW + 4 or (own < 3 * LANES and 0 < own % LANES <= 4)  # would vectors of outputs be filled
    if own <= FEW or (badly and depth >= SHALLOW):
        return "planes"
    p = phases[0]
    width = p.sizes[1] + (p.many[1] - 1) * p.apart[1]
    whole = 7 * (-(-p.sizes[1] // LANES) * LANES) <= 8 * width and p.sizes[1] >= LANES  # vectors of a row are not many more than its pixels
    rows = x.strides[3] == y.strides[3] == 1 and min(x.strides[1], y.strides[1]) > 1  # nothing would have to be transposed
    return "planes" if len(phases) == 1 and whole and rows and depth <= SHALLOW else "direct"


def _reading(x: Place, phases: Sequence[Phase], stride: Pair, kind: str) -> Reading:
    """Where taps lie, and whether images are read where they are."""
    met = [p for p in phases if p.places] or [phases[0]._replace(tap=(0, 0), many=(1, 1))]
    first = min(p.tap[0] for p in met), min(p.tap[1] for p in met)
    last = [max(p.tap[d] + (p.many[d] - 1) * p.apart[d] for p in met) for d in (0, 1)]
    inside = min(first) >= 0 and all((max(p.sizes[d] for p in phases) - 1) * stride[d] + last[d] < x.shape[2 + d] for d in (0, 1))
    near = sum((n - 1) * abs(s) for n, s in zip(x.shape, x.strides)) < FAR
    beside = x.strides[1] == 1 and x.shape[1] > 1
    if kind == "depthwise":  # which needs no border
        return Reading(first, (last[0] - first[0], last[1] - first[1]), IN_PLACE if beside and near and len(phases) == 1 else LAST)
    apart = x.shape[1] <= WAYS * (PAGE // math.gcd(x.strides[1], PAGE))
    laying = IN_PLACE if inside and near and (beside or apart) else LAST if beside else PLANES
    return Reading(first, (last[0] - first[0], last[1] - first[1]), laying)


def _batch(y: Place, x: Place, own: int, given: int, groups: int) -> int:
    """Groups that planes.cpp does together: where channels lie beside each other, as many as fill a vector."""
    return min(groups, max(-(-LANES // n) if p.strides[1] == 1 else 1 for p, n in ((x, given), (y, own))))


def _floats(y: Place, phases: Sequence[Phase], stride: Pair, step: Pair, reading: Reading, channels: Pair, kind: str) -> int:
    """Floats that are read and written for a row of the phases' pixels, of so many channels: written and read."""
    columns = max(p.sizes[1] for p in phases)
    if kind == "planes":
        planes = math.prod(min(stride[d], reading.reach[d] + 1) for d in (0, 1))
        return channels[1] * planes * (columns + reading.reach[1] // stride[1]) + channels[0] * columns
    return channels[1] * ((columns - 1) * stride[1] + reading.reach[1] + 1) * stride[0] + channels[0] * y.shape[3] * step[0]


def _cut(images: int, rows: int, pixels: int, floats: int, most: int, parts: int) -> Cut:
    """Bands that stay in the cache, as even as possible; several images together where they are small, at most so many. pixels: of an
    image; floats: of a row, read and written; parts: how many the outputs may be cut into as weights are too many to be read often."""
    room = 4 * BAND if parts else BAND  # only a part of it is needed at a time
    wanted = min(rows, -(-UNITS // images), max(1, pixels // PIXELS) if parts else rows)
    band = -(-rows // max(wanted, -(-rows // max(1, room // floats))))
    bands = -(-rows // band)
    together = 1
    if bands == 1:
        enough = max(images // UNITS, min(images, -(-PIXELS // pixels)) if parts else 0)
        together = max(1, min(room // (floats * rows), enough, most))
        together = 1 << (together.bit_length() - 1)
    units = -(-images // together) * bands
    return Cut(band, bands, together, max(1, min(parts, -(-UNITS // units))))


def _weights(
    own: int, given: int, kernel: Sequence[int], groups: int, phases: Sequence[Phase], back: bool, wide: int
) -> tuple[tuple[int, ...], list[int], int]:
    """The parameters of the task that packs the weights, where those of each phase begin, the floats of all. wide: places of a group's
    outputs."""
    places = math.prod(kernel)
    steps = (places, own * places) if back else (given * places, places)  # of an output, of a channel
    numbers = [groups, own, given, own * given * places, *steps, places, len(phases)]
    starts, size = [], 0
    for p in phases:
        starts.append(size)
        numbers += [size, len(p.places), *p.places]
        size += groups * wide * given * len(p.places)
    return tuple(map(int, numbers)), starts, size


def _along(places: Sequence[Place], bias: Place | None, records: Place | None, units: int, cut: Cut) -> Along | None:
    """The images of a unit of work stay together, so that a record is of the same images."""
    y, x = places[:2]
    step = 4 * y.strides[0]
    noted = step if records is None else records.size // units * cut.bands // cut.together  # bytes of a record: a multiple of eight
    if records is not None and noted * cut.together * units != records.size * cut.bands:
        return None
    return Along(y.shape[0], cut.together, (0, 8), (step, 4 * x.strides[0], 0, step if bias is None else 0, noted))
