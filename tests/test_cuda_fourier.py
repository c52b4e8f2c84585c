"""Fourier transforms on the (emulated) GPU: sizes with all kinds of factors, every dimension, both precisions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab import ops
from gradlab.backends.cuda import fallback
from gradlab.backends.cuda.cufft import rows

RNG = np.random.default_rng(0)
SHAPES = [(3, 8), (2, 5, 6), (2, 7), (30, 2), (4, 1), (1, 12, 4), (2, 3, 2, 4, 3), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "cuFFT"])
def test_every_row(monkeypatch, cuda, shape, dtype, own):
    x = RNG.normal(size=shape).astype(dtype)
    z = (x + 1j * RNG.normal(size=shape)).astype("complex64" if dtype == "float32" else "complex128")
    every, last = tuple(range(len(shape))), (len(shape) - 1,)
    if 0 in shape:
        every = last
    calls = [
        ("fft", z, {"dims": every, "inverse": False, "scale": 0.5}), ("fft", z, {"dims": last, "inverse": True, "scale": 1.0}),
        ("fft", x, {"dims": every[:1], "inverse": False, "scale": 1.0}), ("rfft", x, {"dims": every, "scale": 0.25}),
    ]  # fmt: skip
    calls += [("rfft", x.T, {"dims": last, "scale": 1.0})] if x.size else []
    n = 2 * (shape[-1] - 1)
    calls += [("irfft", z, {"dims": every, "n": m, "scale": 0.5}) for m in (n, n + 1) if m > 0]
    if not own:
        monkeypatch.setattr(rows, "SMALL", 0)
    fallback.counts.clear()
    for name, given, params in calls:
        want = ops.ROWS[name](np.ascontiguousarray(given), **params)
        found = cuda.driver.download(ops.ROWS[name](cuda.driver.upload(np.ascontiguousarray(given)), **params))
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, atol=(2e-6 if dtype == "float32" else 1e-14) * max(1, np.abs(want).max(initial=0)))
    assert not fallback.counts
