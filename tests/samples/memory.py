"""Samples of the rows of `ops/memory.py`."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample

LINE, M, INTS, EMPTY = normal(9), normal(3, 4), integers(-9, 9, 3, 4), np.zeros((0, 3))


def strided(x, shape, steps, first):
    """Element by element."""
    flat, y = x.reshape(-1), np.zeros(shape, x.dtype)
    for place in np.ndindex(*shape):
        y[place] = flat[first + sum(i * s for i, s in zip(place, steps))]
    return y


STEPS = (
    (LINE, (4,), (2,), 1), (LINE, (3, 3), (2, 1), 0), (M, (3, 3), (4, 1), 1), (M, (2, 2, 2), (3, 0, 2), 2), (M, (4, 3), (1, 4), 0),
    (INTS, (5,), (1,), 7), (M, (), (), 11), (M, (2, 0), (1, 1), 0), (EMPTY, (0,), (1,), 0),
)  # fmt: skip
SAMPLES = {
    "as_strided": [sample(x, shape=n, steps=s, first=f, reference=strided) for x, n, s, f in STEPS],
    "bits": [
        sample(x, dtype=np.dtype(name), reference=lambda x, dtype: x.view(dtype), gradients=0, dtypes=(), strided=False)
        for x, name in ((normal(4, 2), "int64"), (M, "float32"), (M, "uint8"), (INTS, "float64"), (INTS.astype(np.int32), "int64"))
    ],
}
