"""The training steps that bench/ measures: compiled they give eager's losses, and nothing of them falls to NumPy."""

import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler

from repository import ROOT


@pytest.fixture(scope="module")
def workloads():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import workloads
    finally:
        sys.path.remove(str(ROOT / "bench"))
    return workloads


NAMES = ("mobilenet", "unet", "vit", "gru", "wavenet", "graph", "dcgan", "ppo", "pinn", "per-sample")
QUICK = ("graph", "ppo", "per-sample")


def test_the_names_are_all(workloads):
    assert set(workloads.FURTHER) == set(NAMES)


@pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_compiled_steps_agree_and_need_no_numpy(workloads, name):
    with gl.random.fork_rng():
        eager, _ = workloads.prepared(name, gl)
        compiled, whole = workloads.prepared(name, gl, gl.compile)
        expected, found = ([float(step()) for _ in range(4)] for step in (eager, compiled))
    np.testing.assert_allclose(found, expected, rtol=3e-5)
    left = str(whole.stats()).split("NumPy")[1].split("\n")[0]
    assert left.split()[0] == "0", f"{name}: {left}"


def test_the_least_that_a_step_needs(workloads):
    """`python -m bench --limit` counts each workload's arithmetic: two matrix products come to three each with their gradients."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import limit
    finally:
        sys.path.remove(str(ROOT / "bench"))
    flops, traffic = limit.needs("mlp")
    sizes = 784 * 256 + 256 * 256 + 256 * 10
    assert flops == 2 * 128 * (3 * sizes - 784 * 256)  # no gradient of the data
    assert 1e6 < traffic < 1e7
    assert all(limit.needs(name)[0] > 0 for name in ("tiny", "graph", "ppo", "per-sample"))
