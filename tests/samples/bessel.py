"""Samples of the modified Bessel functions; the references are their integrals over an angle, DLMF 10.32.3, by the trapezoid rule."""

from __future__ import annotations

import numpy as np

from samples.base import sample, uniform

ANGLES = (np.arange(4000) + 0.5) * (np.pi / 4000)
POINTS = (uniform(-8, 8, 3, 5), uniform(20, 60, 2, 3), np.array(2.5), np.zeros((0, 3)))


def integral(order, scaled):
    def reference(x, **_):
        a = np.asarray(x, np.float64)[..., None]
        return (np.exp(a * np.cos(ANGLES) - np.abs(a) * scaled) * np.cos(order * ANGLES)).mean(-1)

    return reference


SAMPLES = {
    name: [sample(x, reference=integral(order, scaled), dtypes=("float32",)) for x in POINTS]
    + [sample(np.array([0.0, -0.5]), reference=integral(order, scaled), dtypes=("float32",), gradients=0 if scaled else 2)]
    for name, order, scaled in (("i0", 0, 0), ("i0e", 0, 1), ("i1", 1, 0), ("i1e", 1, 1))
}
