"""Sobol' sequences under PyTorch's names. Their numbers are SciPy's, without which they are refused."""

import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.quasirandom import SobolEngine


def test_points():
    pytest.importorskip("scipy")
    engine = SobolEngine(3)
    first = engine.draw(5)
    assert first.dtype == gl.float32 and first.tolist()[:3] == [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25]]
    fourth = engine.draw(dtype=gl.float64)
    assert fourth.shape == (1, 3) and engine.num_generated == 6
    assert engine.reset().fast_forward(5).draw(1).tolist() == fourth.tolist()
    out = gl.empty(0)
    assert SobolEngine(3).draw_base2(2, out=out) is out and out.tolist() == first[:4].tolist()


def test_scrambled_points_fill_the_cube():
    pytest.importorskip("scipy")
    one, two, other = (SobolEngine(4, scramble=True, seed=seed).draw(1024) for seed in (1, 1, 2))
    assert one.tolist() == two.tolist() != other.tolist()
    assert ((one >= 0) & (one < 1)).all() and (one.mean(0) - 0.5).abs().max() < 0.01
    counts = np.histogram(one[:, 2].numpy(), 64, (0, 1))[0]
    assert counts.min() == counts.max() == 16  # each 64th holds as many, whatever the scramble


def test_bad_numbers_are_refused(monkeypatch):
    pytest.importorskip("scipy")
    with pytest.raises(ValueError, match="from 1 to 21201, not 0"):
        SobolEngine(0)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match=r"3 points and 2\^3 more are 11, no power of two"):
        engine.draw_base2(3)
    with pytest.raises(TypeError, match="floating point dtype"):
        engine.draw(1, dtype=gl.int64)
    assert repr(SobolEngine(3, True, 1)) == "SobolEngine(dimension=3, scramble=True, seed=1)"


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    monkeypatch.setitem(sys.modules, "scipy.stats.qmc", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        SobolEngine(2)


@pytest.mark.torch
@pytest.mark.parametrize("dimension", [1, 2, 50, 21201])
def test_points_as_pytorch(dimension):
    pytest.importorskip("scipy")
    torch = pytest.importorskip("torch")
    ours, theirs = SobolEngine(dimension), torch.quasirandom.SobolEngine(dimension)
    for n in (1, 7, 3):
        assert np.array_equal(ours.draw(n, dtype=gl.float64).numpy(), theirs.draw(n, dtype=torch.float64).numpy())
        assert np.array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
