"""Random rows: pure functions of a state (seed, offset), the same numbers on every device.

The source is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with NumPy's own bits: word i of a row is
word number `state[1] + offset + i` of the stream of `numpy.random.Philox(key=[seed, 0])`, which is

    word(n) = philox4x64_10(counter = [1 + n // 4, 0, 0, 0], key = [seed, 0])[n % 4]

`state` is int64[2], its two numbers read as unsigned: the seed and the words used so far. Draws start at multiples of 4 words.
From words to numbers, for element i of the output in row-major order (`h(i)` is half word i: the low, then the high 32 bits of
word(i // 2); every float is computed in float64, without contraction to fma, and rounded once to the output's dtype):

    uniform      float64: u = (word(i) >> 11) · 2^-53. float32, float16, bfloat16: u = (h(i) >> 8, 21, 24) · 2^-24, -11, -8: below 1 in the
                 output's own dtype. Result: low + (high - low) · u, at most the largest number of the dtype below `high`.
    normal       Box and Muller, for the pair j = i // 2: with U(n) = (word(n) >> 11) · 2^-53
                 r = sqrt(-2 log(1 - U(2j))), a = 2π · U(2j + 1): r cos a (i even), r sin a (i odd); mean + std · that.
    integers     low + floor(word(i) · (high - low) / 2^64), the high word of a 64 by 64 bit product: no value is likelier than another
                 by more than 2^-64. A range of 2^64 takes the word itself.
    exponential  -log1p(-U(i)) / rate.
    bernoulli    h(i) < p · 2^32, compared in float64; dropout keeps element i where h(i) >= the threshold floor(p · 2^32 + 0.5).
    permutation  the stable ascending order of word(0), …, word(n - 1).
    poisson      inversion of U(i), see `poisson_cpu`.
    multinomial  see `multinomial_cpu`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, INT64, bfloat16, float16
from gradlab.kernel import Kernel, dropped_below
from gradlab.op import Op
from gradlab.ops.random_cpu import box_muller, halves, raw, source_of
from gradlab.ops.sort_cpu import first_of, order_of
from gradlab.spec import ShapeError, Spec, broadcast_shapes

WORD = (1 << 64) - 1
FEW = 1 << 9  # words that NumPy sorts by their places as fast as `order_of` does
CHUNK = 1 << 15  # elements at a time, so that words and temporaries stay in the cache; a multiple of 8
_LOW, _HALF = np.array((1 << 32) - 1, np.uint64), np.array(32, np.uint64)
_BITS = {FLOAT32: 24, float16.dtype: 11, bfloat16.dtype: 8}


def in_chunks(y: Any, fill: Callable[[Any, int], None]) -> None:
    """Call `fill(part, start)` for consecutive parts of the flattened `y`."""
    target = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
    if target is y and y.size <= CHUNK:
        fill(y.reshape(-1), 0)
        return
    flat = target.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        fill(flat[start : start + CHUNK], start)
    if target is not y:
        y[...] = target


# ---------------------------------------------------------------- from the state alone


def check_state(state: Spec) -> None:
    """A random state is two numbers."""
    if state.shape != (2,) or state.dtype.kind not in "iu":
        raise TypeError(f"a random state is an int64 tensor (seed, offset), not {state.dtype} of shape {state.shape}")


def made(state: Spec, *, shape: tuple[int, ...], dtype: np.dtype[Any], **_: Any) -> Spec:
    """Rule: the shape and dtype asked for."""
    check_state(state)
    return Spec(shape, dtype)


def made_float(state: Spec, *, shape: tuple[int, ...], dtype: np.dtype[Any], **_: Any) -> Spec:
    """Rule: as `made`, of floating point."""
    if dtype not in FLOATING:
        raise TypeError(f"makes floating point numbers, not {dtype}")
    return made(state, shape=shape, dtype=dtype)


def uniform_cpu(state: Any, y: Any, *, shape: Any, dtype: Any, offset: int, low: float, high: float) -> None:
    bits = _BITS.get(y.dtype, 53)
    unit = low == 0 and high == 1
    generator = source_of(state, offset, y.size if bits == 53 else (y.size + 1) // 2)

    def fill(part: Any, _: int) -> None:
        if unit and bits in (24, 53):
            generator.random(out=part, dtype=part.dtype)  # NumPy's own mapping is this one
            return
        if bits == 53:
            u = generator.random(part.size)
        else:
            u = (halves(generator, part.size) >> np.uint32(32 - bits)) * 2.0**-bits
        if unit:
            part[...] = u
            return
        u *= high - low
        u += low
        below = np.nextafter(y.dtype.type(high), y.dtype.type(low)) if high > low else y.dtype.type(low)
        np.minimum(u.astype(part.dtype), below, out=part)

    in_chunks(y, fill)


def normal_cpu(state: Any, y: Any, *, shape: Any, dtype: Any, offset: int, mean: float, std: float) -> None:
    generator = source_of(state, offset, (y.size + 1) // 2 * 2)

    def fill(part: Any, _: int) -> None:
        z = box_muller(generator, part.size)[: part.size]
        if std != 1:
            z = z * std
        if mean != 0:
            z = z + mean
        part[...] = z

    in_chunks(y, fill)


def high_product(words: Any, factor: int) -> Any:
    """The high 64 bits of words · factor, from products of 32 bit halves."""
    low, high = words & _LOW, words >> _HALF
    f_low, f_high = np.uint64(factor & 0xFFFFFFFF), np.uint64(factor >> 32)
    if not f_high:
        low *= f_low
        low >>= _HALF
        high *= f_low
        high += low
        high >>= _HALF
        return high
    middle = high * f_low + (low * f_low >> np.uint64(32))
    carry = (middle & np.uint64(0xFFFFFFFF)) + low * f_high
    return high * f_high + (middle >> np.uint64(32)) + (carry >> np.uint64(32))


def integers_cpu(state: Any, y: Any, *, shape: Any, dtype: Any, offset: int, low: int, high: int) -> None:
    generator, size = source_of(state, offset, y.size), high - low

    def fill(part: Any, _: int) -> None:
        found = raw(generator, part.size)
        if size <= WORD:
            found = high_product(found, size)
        if low:
            found = found + np.uint64(low & WORD)
        np.copyto(part, found.view(np.int64), casting="unsafe")

    in_chunks(y, fill)


def exponential_cpu(state: Any, y: Any, *, shape: Any, dtype: Any, offset: int, rate: float) -> None:
    generator = source_of(state, offset, y.size)

    def fill(part: Any, _: int) -> None:
        u = generator.random(part.size)
        np.log1p(np.negative(u, u), u)
        u /= -rate
        part[...] = u

    in_chunks(y, fill)


def permutation_cpu(state: Any, y: Any, *, shape: tuple[int], dtype: Any, offset: int) -> None:
    words = raw(source_of(state, offset, shape[0]), shape[0])
    np.copyto(y, words.argsort(kind="stable") if len(words) < FEW else order_of(words, 0, False), casting="unsafe")


def kernel(name: str) -> Kernel:
    """A kernel of this family."""
    return Kernel("random.cu", name, "random")


PLACE = ("offset",)  # in the stream: another one in each draw


def _row(name: str, rule: Any, cpu: Any, *params: str) -> Op:
    return Op(f"random_{name}", rule, params=("shape", "dtype", *PLACE, *params), exact=True, cpu=cpu, cuda=kernel(name), varying=PLACE)


random_uniform = _row("uniform", made_float, uniform_cpu, "low", "high")
random_normal = _row("normal", made_float, normal_cpu, "mean", "std")
random_integers = _row("integers", made, integers_cpu, "low", "high")
random_exponential = _row("exponential", made_float, exponential_cpu, "rate")
random_permutation = _row("permutation", made, permutation_cpu)

# ---------------------------------------------------------------- from an input and the state


def like_first(x: Spec, state: Spec, **_: Any) -> Spec:
    """Rule: the output is like the input."""
    check_state(state)
    return x


def dropout_cpu(x: Any, state: Any, y: Any, *, p: float, offset: int) -> None:
    limit = dropped_below(p)
    if limit == 2**32:
        y.fill(0)
        return
    generator, scale = source_of(state, offset, (y.size + 1) // 2), y.dtype.type(1 / (1 - p))
    source = np.ascontiguousarray(x).reshape(-1)
    integer = f"i{y.dtype.itemsize}"

    def fill(part: Any, start: int) -> None:
        np.multiply(source[start : start + part.size], scale, part)
        bits = (halves(generator, part.size) < np.uint32(limit)).astype(integer)
        bits -= 1  # all bits of what is kept: an "and" takes half the time of a masked copy, whose branches nothing can predict
        part.view(integer)[...] &= bits

    in_chunks(y, fill)


def again(g: Any, state: Any, p: float, offset: int) -> Any:
    """The gradient is the same row with the same state: the mask is made again, not kept."""
    return dropout(g, state, p=p, offset=offset)


dropout = Op("dropout", like_first, params=("p", "offset"), cpu=dropout_cpu, cuda=kernel("dropout"), grad={"x": again}, varying=PLACE)


def probabilities(p: Spec, state: Spec, *, dtype: np.dtype[Any], offset: int) -> Spec:
    """Rule: one trial for each probability."""
    check_state(state)
    return Spec(p.shape, dtype)


def bernoulli_cpu(p: Any, state: Any, y: Any, *, dtype: Any, offset: int) -> None:
    if not ((p >= 0) & (p <= 1)).all():  # NaN, too
        raise RuntimeError("bernoulli: probabilities lie between 0 and 1")
    generator, source = source_of(state, offset, (y.size + 1) // 2), np.ascontiguousarray(p).reshape(-1)

    def fill(part: Any, start: int) -> None:
        part[...] = halves(generator, part.size) < source[start : start + part.size].astype(FLOAT64) * 2.0**32

    in_chunks(y, fill)


bernoulli = Op("bernoulli", probabilities, params=("dtype", "offset"), cpu=bernoulli_cpu, cuda=kernel("bernoulli"), varying=PLACE,
               grad={"p": lambda g: g.zeros_like()})  # fmt: skip


def poisson_cpu(rate: Any, state: Any, y: Any, *, offset: int) -> None:
    """Inversion of one uniform number for each element, in float64.

    Probabilities are taken off u in the order m, m + 1, m - 1, m + 2, … from m = floor(rate) where rate >= 32, else 0, 1, 2, …; the
    count at which u falls below 0 is the result. p(m) comes from Stirling's series for log m!, its neighbours from p(k + 1) =
    p(k) · rate / (k + 1). The loop ends when no probability above 2^-60 is left.
    """
    lam = np.ascontiguousarray(rate).reshape(-1).astype(FLOAT64)
    if not (lam >= 0).all():
        raise RuntimeError("poisson: rates are not negative")
    u = source_of(state, offset, lam.size).random(lam.size)
    wide = lam >= 32
    up = np.where(wide, np.floor(lam), 0.0)
    m = np.where(wide, up, 1.0)
    series = 1 / (12 * m) - 1 / (360 * m**3) + 1 / (1260 * m**5)
    start = np.where(wide, m * np.log(np.where(wide, lam, 1) / m) + (m - lam) - 0.5 * np.log(2 * math.pi * m) - series, -lam)
    p_up = np.exp(start)
    down, p_down = up.copy(), p_up.copy()
    result, open_ = up.copy(), np.arange(lam.size)
    u -= p_up
    open_ = open_[u >= 0]
    while open_.size:
        up[open_] += 1
        p_up[open_] *= lam[open_] / up[open_]
        result[open_] = up[open_]
        u[open_] -= p_up[open_]
        open_ = open_[u[open_] >= 0]
        lower = open_[down[open_] > 0]
        p_down[lower] *= down[lower] / lam[lower]
        down[lower] -= 1
        result[lower] = down[lower]
        u[lower] -= p_down[lower]
        open_ = open_[(u[open_] >= 0) & ((p_up[open_] > 2.0**-60) | ((down[open_] > 0) & (p_down[open_] > 2.0**-60)))]
    np.copyto(y, result.reshape(y.shape), casting="unsafe")


poisson = Op("poisson", like_first, params=("offset",), cpu=poisson_cpu, cuda=kernel("poisson"), varying=PLACE,
             grad={"x": lambda g: g.zeros_like()})  # fmt: skip


def multinomial_rule(weights: Spec, state: Spec, *, samples: int, replacement: bool, offset: int) -> Spec:
    """Rule: `samples` category numbers for each row of weights."""
    check_state(state)
    if weights.dtype not in FLOATING:
        raise TypeError(f"weights are floating point, not {weights.dtype}")
    if len(weights.shape) not in (1, 2) or weights.shape[-1] == 0:
        raise ShapeError(f"weights are a vector or a matrix with at least one category, not of shape {weights.shape}")
    if samples < 1 or (not replacement and samples > weights.shape[-1]):
        raise ShapeError(f"cannot draw {samples} of {weights.shape[-1]} categories without replacement")
    return Spec((*weights.shape[:-1], samples), INT64)


def multinomial_cpu(weights: Any, state: Any, y: Any, *, samples: int, replacement: bool, offset: int) -> None:
    """With replacement: the first category whose running sum of weights (float64, from left to right) exceeds U(i) · their sum.
    Without: the stable ascending order of -log1p(-U(j)) / weight(j), of which the first `samples` are taken; zero weights come last."""
    rows = np.atleast_2d(weights).astype(FLOAT64)
    total = rows.sum(-1)
    if not (np.isfinite(rows) & (rows >= 0)).all() or not (total > 0).all():
        raise RuntimeError("multinomial: weights are finite and not negative, and each row has one above zero")
    if not replacement and ((rows > 0).sum(-1) < samples).any():
        raise RuntimeError(f"multinomial: fewer than {samples} weights of a row are above zero; draw with replacement=True")
    wanted = (len(rows), samples) if replacement else rows.shape
    uniform = source_of(state, offset, math.prod(wanted)).random(math.prod(wanted)).reshape(wanted)
    if replacement:
        sums = np.cumsum(rows, -1)
        u = uniform * sums[:, -1:]
        found = np.stack([np.searchsorted(s, r, side="right") for s, r in zip(sums, u, strict=True)]) if len(rows) else u
        last = rows.shape[-1] - 1 - np.argmax(rows[:, ::-1] > 0, -1)  # rounding must not lead past the last possible category
        found = np.minimum(found, last[:, None])
    else:
        waiting = np.full(rows.shape, np.inf)
        np.divide(-np.log1p(-uniform), rows, out=waiting, where=rows > 0)
        found = first_of(waiting, -1, samples, False)
    y[...] = found.reshape(y.shape)


multinomial = Op("multinomial", multinomial_rule, params=("samples", "replacement", "offset"), cpu=multinomial_cpu,
                 cuda=kernel("multinomial"), varying=PLACE)  # fmt: skip


def normal_of_rule(mean: Spec, std: Spec, state: Spec, *, dtype: np.dtype[Any], offset: int) -> Spec:
    """Rule: means and standard deviations, broadcast."""
    check_state(state)
    return Spec(broadcast_shapes(mean.shape, std.shape), dtype)


def normal_of_cpu(mean: Any, std: Any, state: Any, y: Any, *, dtype: Any, offset: int) -> None:
    if not (std >= 0).all():
        raise RuntimeError("normal: standard deviations are not negative")
    z = box_muller(source_of(state, offset, (y.size + 1) // 2 * 2), y.size)[: y.size].reshape(y.shape)
    y[...] = z * std + mean


normal_of = Op("normal_of", normal_of_rule, params=("dtype", "offset"), cpu=normal_of_cpu, cuda=kernel("normal_of"), varying=PLACE,
               grad={"mean": lambda g: g.zeros_like(), "std": lambda g: g.zeros_like()})  # fmt: skip
