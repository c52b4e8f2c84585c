"""Pooling as machine code with channels last: the same values, indices and gradients as eager, for many shapes and numbers of threads."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line

F = nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")

SHAPES = [(3, 5, 9, 7), (2, 16, 8, 8), (1, 40, 17, 26), (17, 3, 6, 5), (1, 200, 5, 5), (2, 70, 11, 4), (1, 1, 12, 11)]
GEOMETRIES = [  # kernel, stride, padding, dilation, ceil_mode
    ((2, 2), 2, 0, 1, False),
    ((3, 3), 2, 1, 1, True),
    ((3, 2), (2, 1), 1, 1, False),
    ((2, 3), 1, (1, 0), 1, True),
    ((2, 2), 1, 1, 2, False),
    ((2, 2), 3, 1, 2, True),
    ((4, 4), 4, 2, 1, False),
]


def images(*shape):
    return gl.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def check(function, x, row, last):
    """As eager computes it, in row-major order or with channels last; exactly, but for the rounding of means."""
    graph = trace(function, x).graph
    ends = {v.id for v in graph.outputs}
    made = [v for c in graph.calls for v in c.outputs if not c.op.view and len(v.spec.shape) == 4 and v.id not in ends]
    marked = frozenset(v.id for v in made if last)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], last=marked))
    assert all(f"kernel: {name}" in executable.steps for name in row), executable.steps
    places = executable.arranged.places
    assert all(places[n].channels_last for n in marked if n in places)
    wanted = function(x)
    for count in (1, 2, 3):
        executable._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run([x._array], outs)
        for got, want in zip(outs, wanted, strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=2e-6, atol=2e-6)


def maxima(geometry):
    kernel, stride, padding, dilation, ceil_mode = geometry

    def function(x):
        x = (x * 1).detach().requires_grad_()
        values, indices = F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
        (dx,) = gl.autograd.grad(values, x, values.detach() + 1)
        return [values + 0, indices + 0, dx + 0]

    return function


def means(geometry, include, divisor):
    kernel, stride, padding, _, ceil_mode = geometry

    def function(x):
        x = (x * 1).detach().requires_grad_()
        y = F.avg_pool2d(x, kernel, stride, padding, ceil_mode, include, divisor)
        (dx,) = gl.autograd.grad(y, x, y.detach() + 1)
        return [y + 0, dx + 0]

    return function


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_max_pool(geometry, last):
    for shape in SHAPES:
        check(maxima(geometry), images(*shape), ["max_pool", "max_pool_backward"], last)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES if g[3] == 1], ids=str)
def test_avg_pool(geometry, last):
    for include, divisor in ((False, None), (True, None), (True, 3)):
        for shape in SHAPES:
            check(means(geometry, include, divisor), images(*shape), ["avg_pool", "avg_pool_backward"], last)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [3, 16, 37])
def test_ties_nan_and_infinity(channels, last):
    x = gl.from_numpy(np.random.default_rng(0).integers(0, 3, (2, channels, 9, 8)).astype(np.float32))
    x._array[0, 0, 2:5, 3:6] = np.nan
    x._array[1, 1] = -np.inf
    x._array[1, 2, ::2] = np.inf
    for kernel, stride, padding, dilation, ceil_mode in GEOMETRIES:

        def function(x):
            return [y + 0 for y in F.max_pool2d(x * 1, kernel, stride, padding, dilation, ceil_mode, return_indices=True)]  # noqa: B023

        check(function, x, ["max_pool"], last)
