"""The pass `overlap_cats`: tensors put together from the same parts are slices of one."""

from __future__ import annotations

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.graph import trace
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable
from gradlab.graph.passes import PASSES, optimize


def passed(function, *example):
    """The rows before and after the pass; results are equal to the last bit."""
    graphs = [trace(function, *example).graph]
    graphs.append(PASSES["overlap_cats"](graphs[0]))
    results = []
    for graph in graphs:
        executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))
        results.append([np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs])
        executable.run([t.numpy() for t in example], results[-1])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    return [[c.op.name for c in graph.calls] for graph in graphs]


def parts(*rows):
    rng = np.random.default_rng(0)
    return [gl.from_numpy(rng.normal(size=(n, 3)).astype(np.float32)) for n in rows]


def test_shifted_by_one():
    before, after = passed(lambda a, b, c, d: gl.cat([b * 2, c, d]).sum() - gl.cat([a, b, c]).prod(), *parts(2, 1, 3, 2))
    assert before.count("cat") == 2 and after.count("cat") == 2  # b * 2 is not b
    before, after = passed(lambda a, b, c, d: gl.cat([b, c, d]).sum() - gl.cat([a, b, c]).prod(), *parts(2, 1, 3, 2))
    assert before.count("cat") == 2 and after.count("cat") == 1 and after.count("slice") == 2


def test_one_within_the_other_and_equal_ones():
    for inner in (slice(0, 2), slice(1, 4), slice(2, 5), slice(0, 5)):
        _, after = passed(lambda *t, inner=inner: gl.cat(t).exp().sum() + gl.cat(t[inner]).sum(), *parts(1, 2, 3, 1, 2))
        assert after.count("cat") == 1


def test_too_little_in_common():
    _, after = passed(lambda a, b, c: gl.cat([a, b]).exp().sum() + gl.cat([b, c]).sum(), *parts(2, 1, 3))
    assert after.count("cat") == 2
    _, after = passed(lambda a, b, c: gl.cat([a, b, c]).exp().sum() + gl.cat([a, c, b]).sum(), *parts(2, 1, 3))
    assert after.count("cat") == 2


def test_other_dimensions_and_results_stay():
    _, after = passed(lambda a, b, c: gl.cat([a, b, c], 1).exp().sum() + gl.cat([b, c], 1).sum(), *parts(2, 2, 2))
    assert after.count("cat") == 2
    _, after = passed(lambda a, b, c: (gl.cat([a, b, c]), gl.cat([b, c]).sum()), *parts(2, 1, 3))
    assert after.count("cat") == 2


def test_what_is_not_there_yet():
    def function(a, b, c):
        first = gl.cat([b, c])
        return first.exp().sum() + gl.cat([b, c, first.sum(0, keepdim=True)]).sum()

    _, after = passed(function, *parts(2, 1, 3))
    assert after.count("cat") == 2


def test_the_states_of_an_lstm():
    lstm = nn.LSTM(3, 8)

    def gradients(x):
        loss = lstm(x)[0].square().sum()
        return gl.autograd.grad(loss, [*lstm.parameters()])

    x = gl.from_numpy(np.random.default_rng(1).normal(size=(6, 4, 3)).astype(np.float32))
    graph = trace(gradients, x).graph
    with_, without = (optimize(graph, {"overlap_cats": on}) for on in (True, False))
    cats = [[c for c in g.calls if c.op.name == "cat" and len(c.inputs) > 3] for g in (with_, without)]
    assert [len(found) for found in cats] == [2, 3]
