"""Samples of padding, resampling and im2col."""

import numpy as np

from samples.base import integers, normal, sample


def pad(x, *, pads, value):
    if not pads:
        return x
    wide = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pads], constant_values=value)
    return wide[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pads, wide.shape, strict=True))]


def border(kind, inputs, outputs, low):
    """One row for each element of a padded dimension, built with numpy.pad on the indices."""
    high = outputs - inputs - low
    kept = np.arange(inputs)[max(-low, 0) : inputs - max(-high, 0)]
    return np.pad(kept, (max(low, 0), max(high, 0)), mode={"replicate": "edge", "circular": "wrap"}.get(kind, kind))


def linear_weight(distance):
    return max(0.0, 1 - abs(distance))


def cubic_weight(distance, a):
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(table):
    """The (outputs, inputs) matrix of a table, element by element from the definitions."""
    kind, inputs, outputs, *rest = table
    found = np.zeros((outputs, inputs))
    for i in range(outputs):
        if kind in ("reflect", "replicate", "circular"):
            found[i, border(kind, inputs, outputs, *rest)[i]] = 1
        elif kind in ("nearest", "nearest-exact"):
            found[i, min(int((i + (0.5 if kind == "nearest-exact" else 0)) * rest[0]), inputs - 1)] = 1
        elif kind == "area":
            start, stop = i * inputs // outputs, -(-(i + 1) * inputs // outputs)
            found[i, start:stop] = 1 / (stop - start)
        else:
            scale, aligned = rest
            at = i * scale if aligned else (i + 0.5) * scale - 0.5
            if kind == "linear":
                at = min(max(at, 0), inputs - 1)
                found[i] = [linear_weight(at - j) for j in range(inputs)]
            elif kind == "cubic":
                for j in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
                    found[i, min(max(j, 0), inputs - 1)] += cubic_weight(at - j, -0.75)
            else:
                stretch = max(scale, 1)
                weigh = linear_weight if kind == "linear-antialias" else lambda d: cubic_weight(d, -0.5)
                shares = np.array([weigh((j + 0.5 - (i + 0.5) * scale) / stretch) for j in range(inputs)])
                found[i] = shares / shares.sum()
    return found


def resample(x, *, dim, table):
    return np.moveaxis(np.tensordot(matrix(table), x, (1, dim)), 0, dim)


def resample_backward(dy, *, dim, table):
    return np.moveaxis(np.tensordot(matrix(table).T, dy, (1, dim)), 0, dim)


TABLES = [
    ("nearest", 4, 7, 4 / 7),
    ("nearest", 3, 6, 0.5),
    ("nearest-exact", 7, 4, 7 / 4),
    ("linear", 4, 9, 4 / 9, False),
    ("linear", 5, 3, 2.0, True),
    ("linear", 4, 1, 0.0, True),
    ("cubic", 5, 8, 5 / 8, False),
    ("cubic", 3, 5, 0.5, True),
    ("area", 7, 3),
    ("area", 3, 5),
    ("linear-antialias", 9, 4, 9 / 4, False),
    ("cubic-antialias", 7, 3, 7 / 3, False),
    ("reflect", 4, 9, 3),
    ("replicate", 3, 8, 4),
    ("circular", 4, 8, 3),
    ("circular", 5, 5, -1),
]
WINDOWS = [
    ((2, 3, 4, 5), {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (1, 1), "outputs": (3, 3)}),
    ((2, 3, 6, 8), {"kernel": (2, 3), "stride": (3, 1), "padding": (2, 0), "dilation": (3, 2), "outputs": (3, 4)}),
    ((1, 2, 7, 6), {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 0), "dilation": (2, 1), "outputs": (3, 3)}),
    ((2, 2, 8), {"kernel": (3,), "stride": (3,), "padding": (1,), "dilation": (2,), "outputs": (2,)}),
    ((0, 2, 4, 4), {"kernel": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "outputs": (3, 3)}),
]


def window_places(sizes, *, kernel, stride, padding, dilation, outputs):
    """(row within the kernel, window, place) of every element that lies within the input."""
    for row, inner in enumerate(np.ndindex(*kernel)):
        for column, at in enumerate(np.ndindex(*outputs)):
            place = [o * s - p + i * d for o, s, p, i, d in zip(at, stride, padding, inner, dilation, strict=True)]
            if all(0 <= i < n for i, n in zip(place, sizes, strict=True)):
                yield row, column, tuple(place)


def unfold(x, **numbers):
    rows, columns = int(np.prod(numbers["kernel"])), int(np.prod(numbers["outputs"]))
    y = np.zeros((*x.shape[:2], rows, columns))
    for row, column, place in window_places(x.shape[2:], **numbers):
        y[:, :, row, column] = x[(..., *place)]
    return y.reshape(x.shape[0], x.shape[1] * rows, columns)


def fold(x, *, size, **numbers):
    rows = int(np.prod(numbers["kernel"]))
    parts = x.reshape(x.shape[0], x.shape[1] // rows, rows, x.shape[2])
    y = np.zeros((*parts.shape[:2], *size))
    for row, column, place in window_places(size, **numbers):
        y[(..., *place)] += parts[:, :, row, column]
    return y


SAMPLES = {
    "pad": [
        sample(normal(2, 3), reference=pad, pads=((1, 0), (0, 2)), value=0.5),
        sample(normal(3, 4, 5), reference=pad, pads=((0, 0), (-1, 2), (1, -2)), value=0),
        sample(normal(4), reference=pad, pads=((-3, -1),), value=1),
        sample(normal(), reference=pad, pads=(), value=1),
        sample(integers(0, 9, 2, 0), reference=pad, pads=((1, 1), (2, 0)), value=7),
    ],
    "resample": [sample(normal(2, t[1], 3), reference=resample, dim=1, table=t) for t in TABLES]
    + [
        *(sample(normal(*shape), reference=resample, dim=dim, table=TABLES[3]) for shape, dim in (((4, 2, 3), 0), ((3, 2, 4), 2))),
        sample(normal(0, 4), reference=resample, dim=1, table=("area", 4, 2)),
        sample(integers(0, 9, 4), reference=resample, dim=0, table=TABLES[12]),
    ],
    "resample_backward": [sample(normal(2, t[2], 3), reference=resample_backward, dim=1, table=t) for t in TABLES]
    + [sample(normal(*shape), reference=resample_backward, dim=dim, table=TABLES[3]) for shape, dim in (((9, 2, 3), 0), ((3, 2, 9), 2))]
    + [sample(normal(0, 2), reference=resample_backward, dim=1, table=("area", 4, 2))],
    "im2col": [sample(normal(*shape), reference=unfold, **numbers) for shape, numbers in WINDOWS],
    "col2im": [
        sample(
            normal(shape[0], shape[1] * int(np.prod(numbers["kernel"])), int(np.prod(numbers["outputs"]))),
            reference=fold, size=shape[2:], **numbers,
        )
        for shape, numbers in WINDOWS
    ],
}
