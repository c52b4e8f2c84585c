"""Flags of batch and instance norms, switched between calls: what is counted, moved and used, eager and compiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl

SHAPES = {"BatchNorm1d": (4, 3), "BatchNorm2d": (4, 3, 2, 2), "BatchNorm3d": (4, 3, 2, 1, 2), "InstanceNorm1d": (4, 3, 5),
          "InstanceNorm2d": (4, 3, 2, 2), "InstanceNorm3d": (4, 3, 2, 1, 2)}  # fmt: skip
LAZY = {f"Lazy{name}": shape for name, shape in SHAPES.items()}
both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
# What is set before each call: (training, track_running_stats, momentum), None for no change.
FLAGS = {"training": (True, False), "track_running_stats": (True, False), "momentum": (0.1, None, 0.5)}
SCRIPTS = {
    "off later": [(True, True, 0.1), (True, False, 0.1), (True, False, 0.1), (False, False, 0.1), (True, True, 0.1)],
    "off later, plain average": [(True, True, None), (True, False, None), (True, True, None), (True, False, None), (True, True, None)],
    "on later": [(True, False, 0.1), (True, True, 0.1), (False, True, 0.1), (True, True, 0.1)],
    "evaluated between": [(True, True, None), (False, True, None), (True, True, None), (False, False, None), (True, True, None)],
    "another momentum": [(True, True, 0.1), (True, True, None), (True, True, 0.5), (True, True, None)],
    "all": list(itertools.product(*FLAGS.values())),
}
ALL_BUT_ONE = [script for script in SCRIPTS if script != "all"]  # a compiled function has eight programs, and says so


def inputs(shape, number):
    return np.random.default_rng(number).normal(size=shape).astype("float32") * 2 + 1


def run(m, name, script, compiled=False, tracked=True, without=()):
    """After each call: the output, the statistics and the count."""
    shape = SHAPES.get(name) or LAZY[name]
    first = () if name.startswith("Lazy") else (3,)
    norm = getattr(m.nn, name)(*first, track_running_stats=tracked)
    if name.startswith("Lazy"):
        norm.eval()(m.tensor(inputs(shape, 99)))
    for buffer in without:
        setattr(norm, buffer, None)
    call = gl.compile(lambda x: norm(x)) if compiled else norm
    found = []
    for number, (training, track, momentum) in enumerate(script):
        norm.train(training)
        norm.track_running_stats, norm.momentum = track, momentum
        try:
            y = call(m.tensor(inputs(shape, number)))
        except RuntimeError:  # an instance norm that shall use the statistics that it has not
            found.append(("refused",))
            continue
        state = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        found.append([y.detach().numpy().copy(), *(None if t is None else np.array(t.detach().numpy()) for t in state)])
    return found


def assert_alike(got, want):
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert len(a) == len(b), number
        for what, x, y in zip(("output", "mean", "variance", "count"), a, b):
            assert (x is None) == (y is None), (number, what)
            if x is not None and len(a) > 1:
                np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5, err_msg=f"call {number}: {what}")


def expected(name, script):
    """Batch norm by its definition, in float64."""
    mean, var, count, found = np.zeros(3), np.ones(3), 0, []
    for number, (training, track, momentum) in enumerate(script):
        x = inputs(SHAPES[name], number).astype("float64")
        axes = (0, *range(2, x.ndim))
        own_mean, own_var, n = x.mean(axes), x.var(axes), x.size // 3
        used_mean, used_var = (own_mean, own_var) if training else (mean, var)
        at = (1, 3, *(1,) * (x.ndim - 2))
        y = (x - used_mean.reshape(at)) / np.sqrt(used_var.reshape(at) + 1e-5)
        if training and track:
            count += 1
            share = 1 / count if momentum is None else momentum
            mean, var = mean + share * (own_mean - mean), var + share * (own_var * n / (n - 1) - var)
        found.append([y, mean, var, count])
    return found


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", [n for n in SHAPES if n.startswith("Batch")])
def test_batch_norm_by_its_definition(name, script):
    assert_alike(run(gl, name, SCRIPTS[script]), expected(name, SCRIPTS[script]))


@pytest.mark.parametrize("script", ALL_BUT_ONE)
@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm1d", "LazyBatchNorm3d"])
def test_compiled_as_eager(name, script):
    assert_alike(run(gl, name, SCRIPTS[script], True), run(gl, name, SCRIPTS[script]))


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", [*SHAPES, *LAZY])
def test_as_in_torch(name, script, tracked):
    torch = pytest.importorskip("torch")
    assert_alike(run(gl, name, SCRIPTS[script], tracked=tracked), run(torch, name, SCRIPTS[script], tracked=tracked))


@pytest.mark.parametrize("without", [("running_mean", "running_var"), ("num_batches_tracked",)])
@pytest.mark.parametrize("name", [n for n in SHAPES if n.startswith("Batch")])
@both
def test_without_buffers_as_in_torch(name, without, compiled):
    torch = pytest.importorskip("torch")
    script = [flags for flags in SCRIPTS["all"] if flags[0] and flags[2] is not None]
    assert_alike(run(gl, name, script, compiled, without=without), run(torch, name, script, without=without))


@both
def test_the_case_of_the_issue(compiled):
    """Tracking switched off later: nothing is counted, and the plain average goes on with the batches it has seen."""
    norm = gl.nn.BatchNorm1d(1, momentum=None)
    call = gl.compile(lambda x: norm(x)) if compiled else norm
    call(gl.tensor([[0.0], [2.0]]))
    norm.track_running_stats = False
    for _ in range(3):
        call(gl.tensor([[7.0], [9.0]]))
    assert (norm.num_batches_tracked.item(), norm.running_mean.item()) == (1, 1.0)
    norm.track_running_stats = True
    call(gl.tensor([[2.0], [4.0]]))
    assert (norm.num_batches_tracked.item(), norm.running_mean.item()) == (2, 2.0)
