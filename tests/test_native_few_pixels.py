"""Convolutions whose results have few pixels, in compiled CPU programs: their weights are read where they lie (few_pixels.cpp)."""

from __future__ import annotations

import numpy as np
import pytest
from native_tasks import Memory

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import few_pixels
from gradlab.backends.native.lowerings.geometry import Geometry, results

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def convolved(x, w, g):
    """By the definition, in double."""
    _, _, high, wide = results(x.shape, w.shape, g)
    laid = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (g.padding[0],) * 2, (g.padding[1],) * 2))
    total = 0.0
    for a in range(w.shape[2]):
        for b in range(w.shape[3]):
            rows, columns = (slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip((a, b), g.dilation, (high, wide), g.stride))
            total = total + np.einsum("nchw,oc->nohw", laid[:, :, rows, columns], w[:, :, a, b].astype(np.float64))
    return total


@pytest.mark.parametrize("channels, outputs", [(64, 7), (65, 4), (130, 33)])
@pytest.mark.parametrize("size, kernel, g", [
    ((1, 1, 1), (1, 1), Geometry((1, 1), (0, 0), (1, 1), 1)), ((1, 2, 3), (3, 3), Geometry((1, 1), (1, 1), (1, 1), 1)),
    ((3, 4, 5), (3, 2), Geometry((2, 1), (1, 2), (1, 2), 1)), ((2, 1, 9), (1, 3), Geometry((1, 2), (0, 1), (1, 1), 1)),
])  # fmt: skip
@pytest.mark.parametrize("last", [False, True])
def test_against_the_definition(channels, outputs, size, kernel, g, last):
    """Images in either order, edges, steps, depths that fill no vector; one thread and three; a NaN stays in its output."""
    r = np.random.default_rng(channels)
    x = r.normal(size=(size[0], channels, *size[1:])).astype(np.float32)
    w, bias = r.normal(size=(outputs, channels, *kernel)).astype(np.float32), r.normal(size=outputs).astype(np.float32)
    exact = convolved(x, w, g)
    for added, relu in ((False, False), (True, True)):
        memory = Memory()
        source, weights, shift = memory.put(x, last), memory.put(w), memory.put(bias) if added else None
        y = memory.put(np.full(exact.shape, 7, np.float32), last)
        tasks = few_pixels.correlate(y, source, weights, shift, g, memory.ctx, relu=relu).tasks
        found = [memory.run(tasks, threads).get(y).copy() for threads in (1, 3)]
        wanted = exact + bias.reshape(-1, 1, 1) * added
        np.testing.assert_allclose(found[0], np.maximum(wanted, 0) if relu else wanted, rtol=0, atol=2e-6 * np.sqrt(w[0].size) * 4)
        np.testing.assert_array_equal(*found)
    memory.get(weights)[1, -1, -1, -1] = np.nan
    odd = memory.run(tasks).get(y)
    assert np.isnan(odd[:, 1]).any() and not np.isnan(np.delete(odd, 1, 1)).any()


@pytest.mark.parametrize("side, kernel, few", [(2, 3, True), (5, 3, True), (6, 3, False), (2, 1, True), (3, 1, False)])
def test_where_it_is_chosen(side, kernel, few):
    """Of a compiled function; the gradients are as in eager mode."""
    gl.manual_seed(0)
    layer = gl.nn.Conv2d(128, 80, kernel, padding=kernel // 2)

    def step(x):
        y = gl.relu(layer(x))
        return y, *gl.autograd.grad(y.square().mean(), list(layer.parameters()))

    compiled, x = gl.compile(step), gl.randn(1, 128, side, side)
    for _ in range(2):
        for got, want in zip(compiled(x), step(x), strict=True):
            np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=2e-5, atol=5e-6)
    kernels = [k for p in compiled.programs for s in p.runner.executable.report for k in s.kernels]
    assert ("gradlab_few_pixels" in kernels) == few, kernels
