"""The switch for the threads of NumPy's products."""

from __future__ import annotations

import numpy as np

from gradlab.backends.threads import set_blas_threads


def test_products_are_the_same_on_one_thread():
    x = np.random.default_rng(0).normal(size=(64, 64))
    before = x @ x
    assert set_blas_threads(1) in (True, False)  # False where NumPy has another BLAS
    np.testing.assert_allclose(x @ x, before, rtol=1e-12)
