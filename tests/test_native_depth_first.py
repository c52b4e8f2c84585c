"""Depth first over images: real programs compute the same to the bit, on any number of threads, and in less memory."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.backends.native.cache_sizes import Caches
from gradlab.graph import trace
from gradlab.graph.executables.native import cache_cost, chaining, executable
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.native.replanning import chained
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.memory_plan import CLOSE
from gradlab.graph.passes import optimize

F = nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def small_caches(monkeypatch, second, third):
    """Caches so small that chains of little programs gain."""
    monkeypatch.setattr(chaining, "caches", lambda: Caches(second, third))
    monkeypatch.setattr(chaining, "WORTH", 1)
    monkeypatch.setattr(cache_cost, "CALL", 0)


def tensor(*shape, seed=0):
    return gl.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def compiled(function, inputs, threads):
    graph = optimize(trace(function, *inputs).graph)
    made = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates, last=graph.last))
    results = []
    for count in threads:
        made._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        made.run([t._array for t in inputs], outs)
        results.append(outs)
    return made, results


def same(function, *inputs, monkeypatch, chains=1, threads=(1, 2, 3), forced=True):
    """A function's results depth first, on any number of threads: to the bit as task by task. The executable. forced: as many tasks as
    possible run so, few images at a time, whatever that costs."""
    monkeypatch.setattr(executable, "threads", lambda: 3)
    monkeypatch.setenv("GRADLAB_DEPTH_FIRST", "0")
    plain, (wanted,) = compiled(function, inputs, [2])
    assert not plain.chains
    monkeypatch.setenv("GRADLAB_DEPTH_FIRST", "1")
    if forced:
        monkeypatch.setattr(chaining, "WORTH", 0)
        monkeypatch.setattr(chaining, "EVEN", 0)
        monkeypatch.setattr(chaining, "caches", lambda: Caches(1, 1))
        monkeypatch.setattr(cache_cost.Traffic, "cost", lambda self, chunk, threads, local=(): chunk * len(self._tasks))
        monkeypatch.setattr(executable, "chained", lambda items, blocks, planning, limit: chained(items, blocks, planning, 1 << 40))
    made, results = compiled(function, inputs, threads)
    assert len(made.chains) >= chains, made.steps
    assert forced or made._memory.size <= plain._memory.size * CLOSE
    for outs in results:
        for got, want in zip(outs, wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    return made


def rows(made):
    return [" ".join(c.op.name for c in step.calls) for step in made.chains.values()]


@pytest.mark.parametrize("shape", [(5, 8, 9, 11), (7, 8, 4, 4), (64, 9, 2, 3), (4, 16, 8, 8), (11, 8, 2, 7)])
def test_convolutions_and_loops(shape, monkeypatch):
    weights = [tensor(c, b, 3, 3, seed=i) for i, (b, c) in enumerate([(shape[1], 8), (8, 17), (17, 8)])]
    scales = [tensor(1, w.shape[0], 1, 1, seed=9) for w in weights]

    def network(x):
        for w, s in zip(weights, scales):
            x = F.relu(F.conv2d(x * 2 + 1, w, padding=1) * s) - 0.5
        return x

    x = tensor(*shape)
    x.numpy()[0, 0, 0, 0] = np.nan
    x.numpy()[-1, 1, 0, 1] = np.inf
    same(network, x, monkeypatch=monkeypatch)


def test_a_training_step(monkeypatch):
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))

    def step(x):
        y = model(x + 0.5) * 2
        return [y, *gl.autograd.grad(y.square().mean(), list(model.parameters()))]

    same(step, tensor(6, 8, 10, 10), monkeypatch=monkeypatch)


def test_state_that_is_written_in_place(monkeypatch):
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
    start = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    x = tensor(6, 8, 8, 8)
    found = []
    for switch in "01":
        monkeypatch.setenv("GRADLAB_DEPTH_FIRST", switch)
        small_caches(monkeypatch, 1 << 12, 1 << 16)
        model.load_state_dict({k: gl.from_numpy(v.copy()) for k, v in start.items()})
        step = gl.compile(lambda x: F.relu(model(x * 2) + 1) * 3)
        found.append([*(step(x).detach().numpy().copy() for _ in range(4)), *(v.numpy().copy() for v in model.state_dict().values())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_in_numpy_or_one_that_may_fail_is_not_passed(monkeypatch):
    at = gl.from_numpy(np.arange(4, dtype=np.int64))
    w = tensor(8, 8, 3, 3, seed=1)

    def network(x, at):
        x = F.relu(F.conv2d(x * 2, w, padding=1))
        y = x.index_select(0, at)
        return F.conv2d(y + 1, w, padding=1), F.conv2d(x + y, w, padding=1)

    made = same(network, tensor(4, 8, 8, 8), at, monkeypatch=monkeypatch, chains=0)
    assert not any("index_select" in names for names in rows(made))
    bad = gl.from_numpy(np.array([0, 1, 2, 9]))
    with pytest.raises(IndexError):
        made.run([tensor(4, 8, 8, 8)._array, bad._array], [np.empty((4, 8, 8, 8), np.float32) for _ in range(2)])


def test_what_all_images_share_is_finished_before(monkeypatch):
    """A mean over the batch stands between: what needs it is another chain."""
    w = tensor(8, 8, 3, 3, seed=1)

    def network(x):
        y = F.relu(F.conv2d(x * 2, w, padding=1))
        z = F.relu(F.conv2d(y - y.mean(0), w, padding=1)) * 2
        return z * w.sum()

    made = same(network, tensor(6, 8, 8, 8), monkeypatch=monkeypatch)
    assert not any("mean" in names for names in rows(made))


def test_what_is_read_behind_a_chain_is_not_written_over(monkeypatch):
    """The second convolution's result could lie where `x` does, if the mean were not computed when the chain is through."""
    w = tensor(8, 8, 3, 3, seed=1)

    def network(x):
        x = x.cumsum(0)
        y = F.relu(F.conv2d(x, w, padding=1))
        mean = (x * y).mean(0)
        return F.conv2d(y, w, padding=1).cumsum(0), mean

    made = same(network, tensor(6, 8, 8, 8), monkeypatch=monkeypatch)
    assert [names.split() for names in rows(made)] == [["convolution_relu", "convolution"]]


def test_parts_of_one_array(monkeypatch):
    w, v = tensor(8, 8, 3, 3, seed=1), tensor(8, 16, 3, 3, seed=2)

    def network(x):
        a = F.conv2d(x + 1, w, padding=1)
        b = F.relu(F.conv2d(a * 2, w, padding=1))
        return F.conv2d(gl.cat([a, b], 1), v, padding=1) + x[:, :, :, ::1]

    same(network, tensor(5, 8, 6, 6), monkeypatch=monkeypatch)


def test_memory_is_for_the_images_under_way(monkeypatch):
    weights = [tensor(8, 8, 3, 3, seed=i) for i in range(6)]

    def network(x):
        for w in weights:
            x = F.relu(F.conv2d(x, w, padding=1) + 1) * 2
        return x

    small_caches(monkeypatch, 1 << 16, 1 << 20)
    made = same(network, tensor(48, 8, 16, 16), monkeypatch=monkeypatch, forced=False)
    assert len(made.chains) == 1
    monkeypatch.setenv("GRADLAB_DEPTH_FIRST", "0")
    plain, _ = compiled(network, [tensor(48, 8, 16, 16)], [1])
    assert made._memory.size < 0.6 * plain._memory.size


def test_the_report_says_what_runs_depth_first(monkeypatch):
    monkeypatch.setenv("GRADLAB_DEPTH_FIRST", "1")
    small_caches(monkeypatch, 1 << 15, 1 << 18)
    w = tensor(8, 8, 3, 3)
    step = gl.compile(lambda x: F.relu(F.conv2d(F.relu(F.conv2d(x * 2, w)) + 1, w)) * 2)
    for _ in range(3):
        step(tensor(48, 8, 16, 16))
    stats = step.stats()
    assert len(stats.chains) == 1
    assert "of 48 images at a time: mul convolution_relu" in stats.chains[0]
    assert "depth first 1" in str(stats)
    monkeypatch.setenv("GRADLAB_DEPTH_FIRST", "0")
    again = gl.compile(lambda x: F.relu(F.conv2d(F.relu(F.conv2d(x * 2, w)) + 1, w)) * 2)
    for _ in range(3):
        again(tensor(48, 8, 16, 16))
    assert again.stats().chains == []
    assert again.stats().tasks > stats.tasks


def test_little_programs_are_left_alone():
    w = tensor(8, 8, 3, 3)
    step = gl.compile(lambda x: F.relu(F.conv2d(F.relu(F.conv2d(x * 2, w)) + 1, w)) * 2)
    for _ in range(3):
        step(tensor(48, 8, 16, 16))
    assert step.stats().chains == []
