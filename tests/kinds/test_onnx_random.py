"""Exported programs draw other random numbers than gradlab does, of the same distribution: every row that draws, its moments and bounds."""

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.rows.random import RANDOM

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

N = 20_000
DRAWS = {  # row: what draws, from an input that has nothing to do with it; a permutation and no replacement are looked at as they come
    "random_uniform": [lambda x: gl.rand(N) + x, lambda x: gl.empty(N).uniform_(-3.0, 5.0) + x],
    "random_normal": [lambda x: gl.randn(N) + x, lambda x: gl.empty(N).normal_(4.0, 0.5) + x],
    "random_integers": [lambda x: gl.randint(3, 10, (N,)) + x, lambda x: gl.randint(0, 2, (N,)) + x],
    "random_exponential": [lambda x: gl.empty(N).exponential_(2.5) + x],
    "random_permutation": [lambda x: gl.randperm(50) + x],
    "dropout": [lambda x: F.dropout(x + gl.ones(N), 0.3), lambda x: F.dropout(x + gl.ones(N), 1.0)],
    "bernoulli": [lambda x: gl.bernoulli(x + gl.full((N,), 0.2))],
    "multinomial": [
        lambda x: gl.multinomial(x + gl.tensor([1.0, 5.0, 0.0, 4.0]), N, replacement=True),
        lambda x: gl.multinomial(x + gl.tensor([1.0, 5.0, 4.0]).repeat(2000, 1), 2, replacement=False),
    ],
    "normal_of": [lambda x: gl.normal(x + gl.full((N,), -2.0), gl.full((N,), 3.0))],
    "poisson": [],  # ONNX has none: refused
}
SINGLE = [lambda x: gl.rand(()) + x, lambda x: gl.randn(()) + x, lambda x: gl.randint(2, 9, ()) + x, lambda x: gl.bernoulli(x + 0.5)]


def drawn(program, path, times=1):
    """What ONNX Runtime draws, and what gradlab does."""
    gl.manual_seed(0)
    x = gl.tensor(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gl.onnx.ExportWarning)
        gl.onnx.export(program, x, path)
    runtime.set_seed(3)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {i.name: np.zeros((), np.float32) for i in session.get_inputs()}
    found = [session.run(None, inputs)[0] for _ in range(times)]
    return np.array(found), np.array([program(x).numpy() for _ in range(times)])


def test_every_row_that_draws_is_here():
    assert DRAWS.keys() == RANDOM


@pytest.mark.parametrize(("name", "program"), [pytest.param(n, p, id=f"{n}-{i}") for n, ps in DRAWS.items() for i, p in enumerate(ps)])
def test_the_distribution(tmp_path, name, program):
    ours, theirs = (a[0].astype(np.float64) for a in drawn(program, tmp_path / "m.onnx"))
    assert ours.shape == theirs.shape
    if name == "random_permutation":
        assert sorted(ours) == sorted(theirs) == list(range(50)) and (ours != np.arange(50)).any()
        return
    if ours.ndim == 2:
        assert (ours[:, 0] != ours[:, 1]).all()
    error = 6 / np.sqrt(len(ours)) * max(theirs.std(), 1e-9)
    for a, b in zip(ours.reshape(len(ours), -1).T, theirs.reshape(len(ours), -1).T, strict=True):
        assert abs(a.mean() - b.mean()) <= error and abs(a.std() - b.std()) <= 2 * error
        if len(np.unique(b)) < 20:
            assert np.unique(a).tolist() == pytest.approx(np.unique(b).tolist())
        elif name == "random_uniform":
            assert abs(a.min() - b.min()) < error and abs(a.max() - b.max()) < error
        assert not b.std() or abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 6 / np.sqrt(len(a))


@pytest.mark.parametrize("program", SINGLE, ids=["rand", "randn", "randint", "bernoulli"])
def test_a_single_number(tmp_path, program):
    ours, theirs = drawn(program, tmp_path / "m.onnx", 40)
    assert ours.shape == theirs.shape and len(np.unique(ours)) > 1
    assert abs(ours.mean() - theirs.mean()) < 2 * theirs.std() and theirs.std() / 3 < ours.std() < 3 * theirs.std()
