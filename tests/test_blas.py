"""The switch for the threads of NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import dispatch
from gradlab.backends import openblas
from gradlab.backends.threads import set_blas_threads


def test_products_are_the_same_on_one_thread():
    x = np.random.default_rng(0).normal(size=(64, 64))
    before = x @ x
    assert set_blas_threads(1) in (True, False)  # False where NumPy has another BLAS
    np.testing.assert_allclose(x @ x, before, rtol=1e-12)


def test_short_products_beside_kernels_keep_to_one_thread(monkeypatch):
    """OpenBLAS's other threads spin after each product, where those of kernels have to work."""
    counts = []
    monkeypatch.setattr(openblas, "thread_count", lambda: (lambda: 2, counts.append))
    monkeypatch.setattr(dispatch, "beside_kernels", [True])
    x, w = gl.randn(200, 65), gl.randn(128, 65)
    bias = gl.zeros(128)
    for call in (lambda: x @ w.t(), lambda: gl.nn.functional.linear(x, w), lambda: gl.nn.functional.linear(x, w, bias)):
        np.testing.assert_allclose(call().numpy(), x.numpy() @ w.numpy().T, rtol=1e-4, atol=1e-4)
        assert counts == [1, 2]
        counts.clear()
    gl.ones(8, 8) @ gl.ones(8, 8)
    with monkeypatch.context() as now:
        now.setattr(dispatch, "LONG", 200 * 65 * 128)  # worth all threads
        x @ w.t()
    monkeypatch.setattr(dispatch, "beside_kernels", [False])
    x @ w.t()
    assert counts == []


def test_the_count_comes_back_after_an_error(monkeypatch):
    counts = []
    monkeypatch.setattr(openblas, "thread_count", lambda: (lambda: 2, counts.append))
    with pytest.raises(ValueError, match="shapes"):
        openblas.product_by_one_thread(np.ones((3, 4)), np.ones((5, 6)))
    assert counts == [1, 2]


@pytest.mark.parametrize("setter", [gl.set_num_threads, gl.set_num_interop_threads])
@pytest.mark.parametrize("count", [1 << 31, 1 << 63, 1 << 65])
def test_no_more_threads_than_an_int_holds(setter, count):
    """They were cut to 64 bits, which left a count of 0 or less behind."""
    before = gl.get_num_threads()
    with pytest.raises(ValueError, match=rf"{setter.__name__}: at most 2147483647.*not {count}"):
        setter(count)
    assert gl.get_num_threads() == before
