"""Samples of the Airy function and its derivative; the references are their power series, in 64-bit mantissas."""

from __future__ import annotations

import numpy as np

from samples.base import sample, uniform

SETTINGS = {"dtypes": ("float32",)}


def airy(derivative):
    """DLMF 9.4.1 and 9.4.2."""

    def reference(x, **_):
        x = np.asarray(x, np.longdouble)
        a, b = [np.longdouble("0.355028053887817239260"), np.longdouble("-0.258819403792806798405")]
        terms, total = [a * np.ones_like(x), b * x], np.zeros_like(x)
        for k in range(120):
            term = terms[k]
            total = total + (term * k / x if derivative else term)
            terms.insert(k + 2, np.zeros_like(x) if k == 0 else terms[k - 1] * x**3 / ((k + 2) * (k + 1)))
            if k == 0:
                terms = terms[:3]
        return total.astype(np.float64)

    return reference


SAMPLES = {
    "airy_ai": [sample(x, reference=airy(False), **SETTINGS) for x in (uniform(-5, 3, 3, 5), np.array(0.5), np.zeros((0, 3)))],
    "airy_ai_prime": [sample(x, reference=airy(True), **SETTINGS) for x in (uniform(-5, 3, 3, 5), np.array(0.5))],
}
