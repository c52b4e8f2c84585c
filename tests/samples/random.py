"""Samples of the random rows: the references compute Philox4x64-10 word by word with Python's integers."""

from __future__ import annotations

import math

import numpy as np

from samples.base import normal, sample, uniform

MASK = (1 << 64) - 1
STATE = np.array([1234567, 8], np.int64)
LATE = np.array([-5, 2**40], np.int64)


def philox(counter, key):
    """Ten rounds of Philox4x64 on a counter of four words and a key of two (Salmon et al., 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(second >> 64) ^ c[1] ^ k[0], second & MASK, (first >> 64) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return c


def words(state, offset, count):
    """`count` words from number state[1] + offset of the stream."""
    seed, start = int(state[0]) & MASK, (int(state[1]) & MASK) + offset
    return [philox([(1 + n // 4) & MASK, 0, 0, 0], [seed, 0])[n % 4] for n in range(start, start + count)]


def halves(state, offset, count):
    return [w >> shift & 0xFFFFFFFF for w in words(state, offset, (count + 1) // 2) for shift in (0, 32)][:count]


def units(state, offset, count):
    return np.array([(w >> 11) * 2.0**-53 for w in words(state, offset, count)])


def size_of(shape):
    return int(np.prod(shape, dtype=int))


def uniforms(state, shape, dtype, offset, low, high):
    bits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    if bits == 53:
        u = units(state, offset, size_of(shape))
    else:
        u = np.array([(h >> (32 - bits)) * 2.0**-bits for h in halves(state, offset, size_of(shape))])
    return (low + (high - low) * u).astype(dtype).reshape(shape)


def normals(state, shape, dtype, offset, mean, std):
    count = size_of(shape)
    u = units(state, offset, count + count % 2)
    pairs = [(math.sqrt(-2 * math.log(1 - a)), 2 * math.pi * b) for a, b in zip(u[::2], u[1::2])]
    z = np.array([f(a) * r for r, a in pairs for f in (math.cos, math.sin)][:count])
    return (mean + std * z).astype(dtype).reshape(shape)


def whole(state, shape, dtype, offset, low, high):
    return np.array([low + (w * (high - low) >> 64) for w in words(state, offset, size_of(shape))]).astype(dtype).reshape(shape)


def exponentials(state, shape, dtype, offset, rate):
    return (-np.log1p(-units(state, offset, size_of(shape))) / rate).astype(dtype).reshape(shape)


def permutations(state, shape, dtype, offset):
    return np.argsort(np.array(words(state, offset, shape[0]), np.uint64), kind="stable").astype(dtype)


def dropped(x, state, p, offset):
    kept = np.array([h >= int(p * 2**32 + 0.5) for h in halves(state, offset, x.size)], bool).reshape(x.shape)
    return np.where(kept, x / (1 - p), 0) if p < 1 else np.zeros_like(x)


def trials(p, state, dtype, offset):
    return (np.array(halves(state, offset, p.size)).reshape(p.shape) < p * 2.0**32).astype(dtype)


def counts(rate, state, offset):
    """Each count by adding up probabilities from the mode outwards, in the order that the row documents."""

    def one(u, lam):
        m = math.floor(lam) if lam >= 32 else 0
        p = [math.exp(k * math.log(lam) - lam - math.lgamma(k + 1)) if lam else float(k == 0) for k in range(m + 400)]
        order = [m] + [k for d in range(1, 400) for k in (m + d, m - d) if 0 <= k]
        for k in order:
            u -= p[k]
            if u < 0:
                return k
        raise AssertionError("the probabilities do not add up to 1")

    return np.array([one(u, lam) for u, lam in zip(units(state, offset, rate.size), rate.ravel())], rate.dtype).reshape(rate.shape)


def categories(weights, state, samples, replacement, offset):
    rows = np.atleast_2d(weights)
    if replacement:
        u = units(state, offset, len(rows) * samples).reshape(-1, samples)
        found = [[int(np.argmax(np.cumsum(r) > v * r.sum())) for v in line] for r, line in zip(rows, u)]
    else:
        u = units(state, offset, rows.size).reshape(rows.shape)
        found = np.argsort(np.where(rows > 0, -np.log1p(-u) / np.where(rows > 0, rows, 1), np.inf), -1)[:, :samples]
    return np.array(found).reshape(*weights.shape[:-1], samples)


F64, F32, F16 = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16)


def made(reference, shapes=((5,), (3, 7), (), (0, 2)), dtypes=(F64, F32, F16), **params):
    found = [sample(STATE, shape=s, dtype=d, offset=4, reference=reference, **params) for s in shapes for d in dtypes]
    return [*found, sample(LATE, shape=(6,), dtype=dtypes[0], offset=0, reference=reference, **params)]


I64, U8 = np.dtype(np.int64), np.dtype(np.uint8)
P = uniform(0, 1, 3, 5)
CERTAIN = np.array([0.0, 1.0, 0.0, 1.0])
NUMBERS = (normal(3, 5), normal(7), np.array(2.0), np.zeros((0, 3)))
RATES = ([0.0, 0.5, 3.0], [[20.0, 31.5], [32.0, 100.0]], 7.0)
WEIGHTS = (np.array([0.1, 0.0, 0.7, 0.2]), uniform(0.1, 3, 3, 5))
MOMENTS = ((normal(3, 4), P[:3, :4]), (np.array(2.0), P), (normal(2, 1), np.array([0.5, 1.0])))


def scaled_normals(mean, std, state, dtype, offset):
    return mean + std * normals(state, np.broadcast_shapes(mean.shape, std.shape), dtype, offset, 0, 1)


SAMPLES = {
    "random_uniform": [*made(uniforms, low=0.0, high=1.0), *made(uniforms, low=-2.0, high=0.5)],
    "random_normal": [*made(normals, mean=0.0, std=1.0), *made(normals, mean=3.0, std=0.5)],
    "random_integers": [
        *made(whole, low=0, high=200, dtypes=(I64, U8)),
        *made(whole, low=-(2**63), high=2**63, dtypes=(I64,)),
        *made(whole, low=-7, high=2**40, dtypes=(I64,)),
        *made(whole, low=2, high=3, dtypes=(F32,)),
    ],
    "random_exponential": made(exponentials, rate=2.0),
    "random_permutation": made(permutations, shapes=((9,), (1,), (0,)), dtypes=(I64,)),
    "dropout": [sample(x, STATE, p=p, offset=o, reference=dropped) for x in NUMBERS for p, o in ((0.25, 0), (0.5, 8), (1.0, 0))],
    "bernoulli": [sample(x, STATE, dtype=F64, offset=4, reference=trials, dtypes=(), gradients=0) for x in (P, CERTAIN, np.array(0.5))],
    "poisson": [sample(np.array(rates), STATE, offset=0, reference=counts, gradients=0) for rates in RATES],
    "multinomial": [
        sample(w, STATE, samples=2, replacement=r, offset=4, reference=categories, dtypes=("float32",))
        for w in WEIGHTS
        for r in (True, False)
    ],
    "normal_of": [sample(m, s, STATE, dtype=F64, offset=0, dtypes=(), reference=scaled_normals, gradients=0) for m, s in MOMENTS],
}
