"""Samples of the pooling rows. The references walk over every window."""

import itertools

import numpy as np

from samples.base import distinct, integers, normal, sample


def outputs_of(sizes, kernel, stride, padding, dilation, ceil_mode):
    found = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        size = (-(-span // s) if ceil_mode else span // s) + 1
        found.append(size - 1 if ceil_mode and (size - 1) * s >= n + p else size)
    return tuple(found)


def window(sizes, at, kernel, stride, padding, dilation):
    """The places of one window that lie within the input."""
    ranges = [[o * s - p + i * d for i in range(k)] for o, k, s, p, d in zip(at, kernel, stride, padding, dilation, strict=True)]
    for place in itertools.product(*ranges):
        if all(0 <= i < n for i, n in zip(place, sizes, strict=True)):
            yield place


def max_pool(x, *, kernel, stride, padding, dilation, ceil_mode):
    sizes = x.shape[2:]
    outputs = outputs_of(sizes, kernel, stride, padding, dilation, ceil_mode)
    values, indices = np.zeros((*x.shape[:2], *outputs), x.dtype), np.zeros((*x.shape[:2], *outputs), np.int64)
    for n, c, *at in np.ndindex(*values.shape):
        places = list(window(sizes, at, kernel, stride, padding, dilation))
        numbers = [x[(n, c, *p)] for p in places]
        best = int(np.argmax(numbers))
        values[(n, c, *at)] = numbers[best]
        indices[(n, c, *at)] = np.ravel_multi_index(places[best], sizes)
    return values, indices


def adaptive_cells(sizes, size):
    for at in np.ndindex(*size):
        yield at, [range(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(at, sizes, size, strict=True)]


def adaptive_max_pool(x, *, size):
    values, indices = np.zeros((*x.shape[:2], *size)), np.zeros((*x.shape[:2], *size), np.int64)
    for n, c in np.ndindex(*x.shape[:2]):
        for at, ranges in adaptive_cells(x.shape[2:], size):
            places = list(itertools.product(*ranges))
            numbers = [x[(n, c, *p)] for p in places]
            best = int(np.argmax(numbers))
            values[(n, c, *at)] = numbers[best]
            indices[(n, c, *at)] = np.ravel_multi_index(places[best], x.shape[2:])
    return values, indices


def divisor_of(sizes, at, kernel, stride, padding, include, divisor, inside):
    if divisor is not None:
        return divisor
    if not include:
        return max(inside, 1)
    ends = [(min(o * s - p + k, n + p), o * s - p) for o, k, s, p, n in zip(at, kernel, stride, padding, sizes, strict=True)]
    return np.prod([end - start for end, start in ends])


def averages(sizes, outputs, kernel, stride, padding, include, divisor):
    """Every (output, its places, what it is divided by)."""
    for at in np.ndindex(*outputs):
        places = list(window(sizes, at, kernel, stride, padding, (1,) * len(kernel)))
        yield at, places, divisor_of(sizes, at, kernel, stride, padding, include, divisor, len(places))


def avg_pool(x, *, kernel, stride, padding, ceil_mode, include, divisor):
    outputs = outputs_of(x.shape[2:], kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    y = np.zeros((*x.shape[:2], *outputs))
    for at, places, number in averages(x.shape[2:], outputs, kernel, stride, padding, include, divisor):
        y[(..., *at)] = sum((x[(..., *p)] for p in places), np.zeros(x.shape[:2])) / number
    return y


def avg_pool_backward(dy, *, shape, kernel, stride, padding, ceil_mode, include, divisor):
    y = np.zeros(shape)
    for at, places, number in averages(shape[2:], dy.shape[2:], kernel, stride, padding, include, divisor):
        for p in places:
            y[(..., *p)] += dy[(..., *at)] / number
    return y


def scatter(dy, indices, *, shape, overlap=None):
    y = np.zeros((*shape[:2], int(np.prod(shape[2:]))))
    for n, c, *at in np.ndindex(*dy.shape):
        y[n, c, indices[(n, c, *at)]] += dy[(n, c, *at)]
    return y.reshape(shape)


def gather(x, indices):
    flat = x.reshape(*x.shape[:2], -1)
    return np.take_along_axis(flat, indices.reshape(*indices.shape[:2], -1), -1).reshape(indices.shape)


def geometry(kernel, stride, padding=None, dilation=None, ceil_mode=False):
    padding, dilation = padding or (0,) * len(kernel), dilation or (1,) * len(kernel)
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}


def average(kernel, stride, padding=None, ceil_mode=False, include=True, divisor=None):
    padding = padding or (0,) * len(kernel)
    return {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode, "include": include, "divisor": divisor}


def unique(*shape, plane):
    """Indices of which none occurs twice in a plane."""
    rng = np.random.default_rng(4)
    planes = [rng.permutation(plane)[: int(np.prod(shape[2:]))] for _ in range(shape[0] * shape[1])]
    return np.array(planes, np.int64).reshape(shape)


WITH_NAN = distinct(1, 2, 4, 4)
WITH_NAN[0, 0, 1, 2] = WITH_NAN[0, 1, 0, 0] = WITH_NAN[0, 1, 1, 1] = np.nan
LOWEST = np.full((1, 1, 3, 3), np.iinfo(np.int64).min)
AVERAGES = [
    ((2, 2, 4, 6), average((2, 2), (2, 2))),
    ((2, 3, 5, 7), average((3, 2), (2, 3), (1, 1))),
    ((1, 2, 6, 5), average((3, 3), (2, 2), (1, 1), ceil_mode=True, include=False)),
    ((1, 2, 6, 5), average((3, 3), (2, 2), (1, 0), ceil_mode=True)),
    ((2, 2, 7, 4), average((2, 1), (3, 2), divisor=3)),
    ((2, 3, 4, 3), average((4, 3), (4, 3))),
    ((2, 3, 9, 8), average((4, 3), (2, 1), (2, 0), include=False)),
    ((2, 2, 9), average((4,), (2,), (2,), include=False)),
    ((1, 2, 4, 5, 3), average((2, 3, 1), (1, 2, 2), (1, 1, 0), ceil_mode=True)),
    ((0, 2, 4, 4), average((2, 2), (2, 2))),
]


def _dy(shape, numbers):
    outputs = outputs_of(shape[2:], numbers["kernel"], numbers["stride"], numbers["padding"], (1,) * len(shape[2:]), numbers["ceil_mode"])
    return normal(*shape[:2], *outputs, seed=5)


SAMPLES = {
    "max_pool": [
        sample(distinct(2, 3, 4, 6), reference=max_pool, **geometry((2, 2), (2, 2))),
        sample(distinct(2, 2, 7, 6), reference=max_pool, **geometry((3, 2), (2, 1), (1, 1))),
        sample(distinct(1, 2, 8, 7), reference=max_pool, **geometry((2, 3), (2, 3), (1, 1), (2, 1), ceil_mode=True)),
        sample(distinct(2, 2, 9), reference=max_pool, **geometry((3,), (2,), (1,))),
        sample(distinct(2, 3, 6, 5), reference=max_pool, **geometry((4, 2), (1, 2), (2, 0), (1, 3))),
        sample(distinct(1, 2, 4, 5, 3), reference=max_pool, **geometry((2, 2, 2), (2, 1, 1))),
        sample(distinct(0, 2, 4, 4), reference=max_pool, **geometry((2, 2), (2, 2))),
        sample(integers(-5, 5, 2, 2, 6, 5), reference=max_pool, **geometry((3, 3), (1, 2), (1, 1)), note="ties: the first wins"),
        sample(WITH_NAN, reference=max_pool, gradients=0, **geometry((2, 2), (2, 2))),
        sample(LOWEST, reference=max_pool, **geometry((2, 2), (1, 1), (1, 1)), note="padding never wins"),
    ],
    "adaptive_max_pool": [
        sample(distinct(2, 2, 7, 5), reference=adaptive_max_pool, size=(3, 2)),
        sample(distinct(2, 3, 8), reference=adaptive_max_pool, size=(5,)),
        sample(distinct(1, 2, 3, 4), reference=adaptive_max_pool, size=(1, 6)),
    ],
    "max_pool_backward": [
        sample(normal(2, 2, 2, 3), integers(0, 24, 2, 2, 2, 3), reference=scatter, shape=(2, 2, 4, 6), overlap=True),
        sample(normal(2, 2, 2, 3), unique(2, 2, 2, 3, plane=24), reference=scatter, shape=(2, 2, 4, 6), overlap=False),
        sample(normal(2, 5, 3, 4), integers(0, 54, 2, 5, 3, 4), reference=scatter, shape=(2, 5, 6, 9), overlap=True),
        sample(normal(0, 2, 3), integers(0, 6, 0, 2, 3), reference=scatter, shape=(0, 2, 6), overlap=True),
    ],
    "max_pool_gather": [
        sample(normal(2, 2, 4, 6), integers(0, 24, 2, 2, 2, 3), reference=gather),
        sample(normal(2, 3, 5), integers(0, 5, 2, 3, 7), reference=gather),
    ],
    "max_unpool": [
        sample(normal(2, 2, 2, 3), unique(2, 2, 2, 3, plane=24), reference=scatter, shape=(2, 2, 4, 6)),
        sample(normal(1, 2, 3), unique(1, 2, 3, plane=7), reference=scatter, shape=(1, 2, 7)),
        sample(normal(2, 5, 3, 4), unique(2, 5, 3, 4, plane=42), reference=scatter, shape=(2, 5, 6, 7)),
    ],
    "avg_pool": [sample(normal(*shape), reference=avg_pool, **numbers) for shape, numbers in AVERAGES],
    "avg_pool_backward": [
        sample(_dy(shape, numbers), reference=avg_pool_backward, shape=shape, **numbers) for shape, numbers in AVERAGES
    ],
}
