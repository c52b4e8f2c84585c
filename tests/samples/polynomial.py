"""Samples of orthogonal polynomials, against NumPy's series of them."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

from samples.base import integers, sample, uniform

SETTINGS = {"dtypes": ("float32",)}


def second(n):
    """U of degree n as a series of T (DLMF 18.18.32 and 18.18.33)."""
    found = np.zeros(max(n, 0) + 1)
    found[n % 2 :: 2] = 2 if n >= 0 else 0
    found[0] = n % 2 == 0 and n >= 0
    return found


def series(kind, n):
    if kind in (0, 4) or kind > 7:
        module = {8: hermite, 9: hermite_e, 10: laguerre, 11: legendre}.get(kind, chebyshev)
        return module, np.eye(n + 1)[n]
    u = second(n)
    shift = {1: 0, 2: -1, 3: 1}[kind % 4]
    return chebyshev, chebyshev.chebadd(u, shift * second(n - 1)) if n else u


def by_series(x, n, kind, derivative):
    x, n = np.broadcast_arrays(np.asarray(x, np.float64), n)
    found = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        if n[at] < derivative:
            continue
        module, c = series(kind, int(n[at]))
        name = module.__name__.rpartition(".")[2]
        short = {"chebyshev": "cheb", "hermite": "herm", "hermite_e": "herme", "laguerre": "lag", "legendre": "leg"}[name]
        c = getattr(module, f"{short}der")(c, derivative) if derivative else c
        y = 2 * x[at] - 1 if 4 <= kind < 8 else x[at]
        found[at] = getattr(module, f"{short}val")(y, c) * (2.0**derivative if 4 <= kind < 8 else 1)
    return found


DEGREES = integers(0, 8, 3, 5)
SAMPLES = {
    "orthogonal_polynomial": [
        sample(uniform(-1.2, 1.2, 3, 5), DEGREES, kind=kind, derivative=d, reference=by_series, **SETTINGS)
        for kind in range(12) for d in (0, 2)
    ]
    + [sample(uniform(-0.9, 0.9, 4), np.array([[9], [12]]), kind=kind, derivative=0, reference=by_series, **SETTINGS)
       for kind in range(8)]
    + [sample(np.zeros((0, 3)), np.array(2), kind=0, derivative=0, reference=by_series, **SETTINGS)],
}  # fmt: skip
