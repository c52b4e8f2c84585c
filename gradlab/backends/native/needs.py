"""What of a kernel's file a program needs, so that its first step waits for no more: numbers of parts that the file knows (`needs.h`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings.conv_weight_gradient import APART, BY_CHANNELS, BY_OUTPUTS, BY_PIXELS, share
from gradlab.backends.native.lowerings.products import HALVES

ALL = -1  # all parts of a file
TRIED = (8, 16)  # numbers of a vector
Numbers = Sequence[int]
IMAGES, PHASE = 8, 11  # parameters of images, and of a phase (images.h, direct.h)
_NEEDS: dict[str, Callable[[Numbers], Iterable[int]]] = {}


def of(kernel: str, parameters: Numbers) -> int:
    """The bits of the parts of its file that a task needs: whatever its number of images is. ALL where that is not known, and where the
    rules below, which say again what the kernels do, have never run: with vectors of other widths than AVX2's and AVX-512's."""
    rule = _NEEDS.get(kernel)
    if rule is None or not compiler.processor() or compiler.lanes() not in TRIED:
        return ALL
    return sum(1 << part for part in set(rule(parameters)))


def _needs(*kernels: str) -> Callable[[Callable[[Numbers], Iterable[int]]], Callable[[Numbers], Iterable[int]]]:
    def register(rule: Callable[[Numbers], Iterable[int]]) -> Callable[[Numbers], Iterable[int]]:
        _NEEDS.update(dict.fromkeys(kernels, rule))
        return rule

    return register


def vectors(count: int) -> set[int]:
    """How many vectors go together where outputs are taken two vectors at a time: 0 stands for two, 1 for one."""
    many = -(-count // compiler.lanes())
    return {n for n, there in ((0, many > 1), (1, many % 2 == 1)) if there}


@_needs("gradlab_pack_float", "gradlab_add_rest", "gradlab_winograd_weights", "gradlab_winograd_weights_tall", "gradlab_winograd_dw_sum",
        "gradlab_winograd_dw_sum_tall", "gradlab_winograd_weights_bfloat16", "gradlab_winograd_dw_sum_bfloat16",
        "gradlab_direct_weights", "gradlab_planes_weights", "gradlab_depthwise_weights", "gradlab_direct_dw_sum")  # fmt: skip
def _nothing(v: Numbers) -> Iterable[int]:
    return ()


@_needs("gradlab_product_float", "gradlab_product_bfloat16")
def _product(v: Numbers) -> Iterable[int]:
    yield 8 if v[4] == 1 else 9
    if v[9]:
        yield 10 if v[9] == HALVES else v[9] % 16


@_needs("gradlab_few_rows")
def _few_rows(v: Numbers) -> Iterable[int]:
    if v[8]:
        yield v[8] % 16
    yield 8 + v[0] if v[4] == 1 else 8


def _readable(v: Numbers) -> bool:
    """Whether images can be read where they lie (winograd.h)."""
    return v[5] == 1 and v[1] % compiler.lanes() == 0 and v[7] > 0


@_needs("gradlab_winograd", "gradlab_winograd_tall", "gradlab_winograd_bfloat16")
def _winograd(v: Numbers) -> Iterable[int]:
    x, y, rest = v[:IMAGES], v[IMAGES : 2 * IMAGES], v[2 * IMAGES :]
    yield from vectors(y[1])
    yield from (part for part, there in ((2, not _readable(x)), (4, rest[8]), (5, rest[9]), (3, not rest[9] and not _readable(y))) if there)


@_needs("gradlab_winograd_dw", "gradlab_winograd_dw_tall", "gradlab_winograd_dw_bfloat16")
def _winograd_dw(v: Numbers) -> Iterable[int]:
    channels, most = v[1], v[2 * IMAGES + 8]  # of which so many at a time
    for first in range(0, channels, most):
        yield from vectors(min(most, channels - first))
    if not _readable(v[:IMAGES]) or not _readable(v[IMAGES : 2 * IMAGES]):
        yield 2


def _convolution(v: Numbers) -> tuple[Numbers, int, int, int, list[Numbers], Numbers]:
    """Of a call of direct.h: the images that are written, groups, outputs of one, how images are laid, the phases, what follows."""
    y, w = v[IMAGES : 2 * IMAGES], v[2 * IMAGES :]
    phases = [w[15 + PHASE * i : 15 + PHASE * (i + 1)] for i in range(w[14])]
    return y, w[0], y[1] // w[0], w[13], phases, w[15 + PHASE * w[14] :]


@_needs("gradlab_direct")
def _direct(v: Numbers) -> Iterable[int]:
    y, _, own, laying, _, rest = _convolution(v)
    yield from vectors(own)
    yield from (part for part, there in ((2, laying == 1), (3, laying == 2), (5, rest[2])) if there)
    if y[5] != 1 or own % compiler.lanes():
        yield 4


@_needs("gradlab_depthwise")
def _depthwise(v: Numbers) -> Iterable[int]:
    y, _, _, laying, phases, rest = _convolution(v)
    yield from (part for part, there in ((2, laying == 1), (3, laying == 2), (5, rest[2]), (4, y[5] != 1)) if there)
    for phase in phases:
        yield {3: 6, 5: 7}.get(phase[7], 8) if phase[9] == v[2 * IMAGES + 2] else 8


@_needs("gradlab_planes")
def _planes(v: Numbers) -> Iterable[int]:
    _, _, own, _, _, rest = _convolution(v)
    if rest[2]:
        yield 5
    most = 8 if compiler.lanes() == 16 else 6
    many = -(-own // most)
    yield from (8 + own * (b + 1) // many - own * b // many for b in range(many))


def _blocks(rows: int, wide: int, most: int) -> Iterable[int]:
    """The parts that `rows` of direct_weight_gradient.cpp takes for blocks so many vectors wide, numbers times vectors."""
    strips = -(-rows // most)
    yield from (11 + n + 12 * (wide - 1) for n in {rows // strips, -(-rows // strips)} if n)


@_needs("gradlab_direct_dw")
def _direct_dw(v: Numbers) -> Iterable[int]:
    x, y, w = v[:IMAGES], v[IMAGES : 2 * IMAGES], v[2 * IMAGES :]
    kernel, groups, way, lanes = w[:2], w[8], w[13], compiler.lanes()
    rows = {1: 12, 2: 12 if lanes == 16 else 6}  # the most of a block
    yield way
    if way in (BY_PIXELS, APART):
        yield from (4,) if way == APART else range(4, 8)
        return
    channels, outputs = set(share(x[1] // groups, w[11], 16)), set(share(y[1] // groups, w[12], 16))
    if way == BY_OUTPUTS:
        widths = {1 if min(2 * lanes, n - o) <= lanes else 2 for n in outputs for o in range(0, n, 2 * lanes)}
        depths = {math.prod(kernel) * n for n in channels}
    elif way == BY_CHANNELS:
        widths, depths = {1, 2}, outputs
    for wide in widths:
        for depth in depths:
            yield from _blocks(depth, wide, rows[wide])
