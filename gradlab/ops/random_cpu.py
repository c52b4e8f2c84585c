"""The words of a stream in NumPy, read ahead for small draws; and normal numbers of uniform ones, by Box and Muller's pairs."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64

PAIRS = 1 << 12  # of numbers at a time
ARCS = 1 << 12  # into which the circle is cut
WORD = (1 << 64) - 1
SMALL, SPAN = 1 << 10, 1 << 12  # words of a draw that is worth reading ahead for; of those that are read at once
_local = threading.local()


def stream(state: Any, offset: int) -> np.random.Generator:
    """This thread's NumPy generator, at word `state[1] + offset` of seed `state[0]`. (`np.random` is imported at the first use.)"""
    generator: np.random.Generator | None = getattr(_local, "generator", None)
    if generator is None:
        generator = _local.generator = np.random.Generator(np.random.Philox(key=0))
    seed, used = state if type(state) is tuple else state.tolist()
    position = (used + offset) & WORD
    source = generator.bit_generator
    source.state = {
        "bit_generator": "Philox", "state": {"counter": (position >> 2, 0, 0, 0), "key": (seed & WORD, 0)}, "buffer": (0, 0, 0, 0),
        "buffer_pos": 4, "has_uint32": 0, "uinteger": 0,
    }  # fmt: skip
    if position & 3:
        source.random_raw(position & 3, output=False)
    return generator


def raw(generator: Any, size: int) -> Any:
    """The next words."""
    if type(generator) is Ahead:
        return generator.taken(size)
    return generator.bit_generator.random_raw(size)


def halves(generator: Any, size: int) -> Any:
    """The next half words: of each word the low, then the high 32 bits."""
    return raw(generator, (size + 1) // 2).astype("<u8", copy=False).view("<u4")[:size]


class Ahead:
    """Words of a stream that were read at once, for draws that follow each other and take few: what a draw costs otherwise is calls of
    NumPy's, most for normal numbers. Its methods are those of a NumPy generator that draws ask for."""

    __slots__ = ("at", "normals", "seed", "single", "start", "words")

    def __init__(self, seed: int, start: int, words: Any) -> None:
        self.seed, self.start, self.words = seed, start, words
        words.flags.writeable = False
        self.single: Any = None  # uniform numbers of half words, float32
        self.normals: Any = None
        self.at = 0  # the next word

    def taken(self, size: int) -> Any:
        """The next words, not to be written to."""
        self.at += size
        return self.words[self.at - size : self.at]

    def random(self, size: int | None = None, dtype: Any = FLOAT64, out: Any = None) -> Any:
        """As NumPy's: uniform numbers, float32 of half words and float64 of words."""
        count = out.size if size is None else size
        if dtype == FLOAT64:
            found = (self.taken(count) >> np.uint64(11)) * 2.0**-53
        else:
            if self.single is None:
                self.single = (self.words.astype("<u8", copy=False).view("<u4") >> np.uint32(8)).astype(FLOAT32) * FLOAT32.type(2.0**-24)
            found = self.single[2 * self.at : 2 * self.at + count]
        if out is None:
            return found
        out[...] = found if out.ndim == 1 else found.reshape(out.shape)
        return out

    def normal(self, size: int) -> Any:
        """Standard normal numbers of the next words, as `box_muller` makes them."""
        if self.at & 1:  # other pairs
            return _box_muller(self, size)
        if self.normals is None:
            before, self.at = self.at, 0
            self.normals = _box_muller(self, SPAN)
            self.at = before
        return self.normals[self.at : self.at + size]


def source_of(state: Any, offset: int, size: int) -> Any:
    """What a draw of so many words at `state[1] + offset` of seed `state[0]`, as many as it is counted for, takes its numbers from."""
    return _read_ahead(state, offset, size) or stream(state, offset)


def _read_ahead(state: Any, offset: int, size: int) -> Ahead | None:
    """What a draw of so many words at `state[1] + offset` of seed `state[0]` takes them from; None where it is large, or neither lies in
    nor follows what this thread drew last."""
    if size > SMALL:
        return None
    seed, used = state if type(state) is tuple else state.tolist()
    seed, position = seed & WORD, (used + offset) & WORD
    ahead: Ahead | None
    ahead, expected = getattr(_local, "ahead", (None, None))
    if ahead is not None and ahead.seed == seed:
        at = position - ahead.start
        if 0 <= at <= SPAN - size:
            ahead.at = at
            return ahead
        expected = (seed, position) if 0 <= at <= SPAN else expected
    if expected == (seed, position) and position <= WORD - SPAN:
        ahead = Ahead(seed, position, raw(stream((seed, position), 0), SPAN))
        _local.ahead = (ahead, None)
        return ahead
    _local.ahead = (ahead, (seed, position + -(-size // 4) * 4))
    return None


@functools.cache
def circle() -> tuple[Any, Any]:
    """Cosines and sines of the middles of ARCS arcs."""
    angle = (np.arange(ARCS) + np.longdouble(0.5)) * (np.longdouble("6.28318530717958647692528676655900577") / ARCS)
    return np.cos(angle).astype(FLOAT64), np.sin(angle).astype(FLOAT64)


def turned(u: Any, cosine: Any, sine: Any, scratch: Any) -> None:
    """cos 2πu and sin 2πu of 0 <= u < 1, to 1.1e-16: those of an arc's middle, turned by the rest, for which three terms do.

    NumPy's own take three times as long. scratch: (4, size).
    """
    rest, square, far, part = scratch
    np.multiply(u, ARCS, rest)
    arc = rest.astype(np.intp)
    rest -= arc
    rest -= 0.5
    rest *= 2 * math.pi / ARCS
    np.multiply(rest, rest, square)
    np.multiply(square, 1 / 120, far)  # sin: rest · (1 - square/6 + square²/120)
    far -= 1 / 6
    far *= square
    far += 1
    far *= rest
    np.multiply(square, 1 / 24, rest)  # cos - 1: square · (-1/2 + square/24)
    rest -= 0.5
    rest *= square
    for table, out in zip(circle(), (cosine, sine)):
        np.take(table, arc, out=out, mode="clip")
    np.multiply(cosine, rest, square)
    np.multiply(sine, far, part)
    square -= part
    np.multiply(cosine, far, part)
    cosine += square
    np.multiply(sine, rest, square)
    square += part
    sine += square


def box_muller(generator: Any, size: int) -> Any:
    """`size` (or one more) standard normal float64 numbers."""
    return generator.normal(size) if type(generator) is Ahead else _box_muller(generator, size)


def _box_muller(generator: Any, size: int) -> Any:
    made = np.empty(((size + 1) // 2, 2))
    scratch = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = np.empty((7, PAIRS))
    for start in range(0, len(made), PAIRS):
        pairs = made[start : start + PAIRS]
        n = len(pairs)
        generator.random(out=pairs)
        radius, cosine, sine = scratch[:3, :n]
        np.subtract(1.0, pairs[:, 0], radius)
        np.log(radius, radius)
        radius *= -2.0
        np.sqrt(radius, radius)
        turned(pairs[:, 1], cosine, sine, scratch[3:, :n])
        np.multiply(cosine, radius, pairs[:, 0])
        np.multiply(sine, radius, pairs[:, 1])
    return made.reshape(-1)
