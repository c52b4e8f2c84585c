"""The gradient of a convolution's weight as machine code: as eager computes it, for many geometries and orders in memory."""

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

CASES = [  # images, channels, sizes, outputs, kernel, stride, padding, dilation, groups
    (5, 1, (28, 28), 32, (3, 3), 1, 1, 1, 1),
    (3, 3, (32, 31), 16, (3, 3), 1, 1, 1, 1),
    (2, 3, (45, 40), 64, (7, 7), 2, 3, 1, 1),
    (6, 16, (15, 16), 32, (3, 3), 2, 1, 1, 1),
    (3, 32, (8, 8), 64, (1, 1), 1, 0, 1, 1),
    (3, 20, (9, 7), 24, (1, 1), 2, 0, 1, 1),
    (2, 6, (9, 9), 5, (1, 1), 3, 2, 1, 1),
    (3, 33, (14, 14), 40, (5, 5), 1, 2, 1, 1),
    (3, 64, (9, 9), 64, (3, 3), 1, 1, 1, 64),  # depthwise
    (3, 20, (9, 12), 20, (5, 3), 2, (2, 1), 1, 20),
    (2, 6, (20, 18), 12, (3, 3), 1, 1, 1, 6),  # two outputs of each channel
    (2, 24, (8, 8), 12, (3, 3), 1, 1, 1, 12),
    (3, 64, (8, 8), 64, (3, 3), 1, 1, 1, 8),
    (2, 24, (7, 9), 40, (3, 3), 1, 1, 1, 2),
    (2, 96, (4, 4), 160, (3, 3), 1, 1, 1, 1),
    (2, 272, (3, 3), 144, (3, 3), 1, 1, 1, 1),
    (4, 16, (12, 12), 1, (3, 3), 1, 1, 1, 1),
    (2, 1, (40, 37), 1, (3, 3), 1, 1, 1, 1),
    (2, 3, (24, 24), 3, (3, 3), 1, 1, 1, 1),
    (3, 1, (28, 28), 6, (5, 5), 1, 0, 1, 1),
    (2, 5, (20, 20), 7, (3, 3), 1, 2, 2, 1),
    (2, 3, (17, 14), 4, (3, 5), 2, 3, (3, 2), 1),
    (9, 10, (1, 1), 18, (1, 1), 1, 0, 1, 1),
    (3, 2, (1, 1), 3, (3, 3), 1, 1, 1, 1),
    (1, 2, (3, 3), 3, (5, 5), 1, 2, 1, 1),
    (2, 2, (30, 30), 20, (19, 19), 1, 9, 1, 1),
    (2, 3, (11, 6), 4, (2, 2), 3, 0, 1, 1),
    (1, 2, (3, 900), 17, (2, 3), 1, (0, 1), 1, 1),
    (3, 12, (70,), 17, (5,), 1, 2, 1, 1),
    (2, 1, (2500,), 16, (9,), 2, 4, 1, 1),
]


def arrays(case):
    images, channels, sizes, outputs, kernel, stride, padding, dilation, groups = case
    rng = np.random.default_rng(0)
    x = gl.from_numpy(rng.normal(size=(images, channels, *sizes)).astype(np.float32))
    w = gl.from_numpy(rng.normal(size=(outputs, channels // groups, *kernel)).astype(np.float32))
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    apply = F.conv2d if len(sizes) == 2 else F.conv1d
    g = gl.from_numpy(rng.normal(size=apply(x, w, **geometry).shape).astype(np.float32))

    def function(x, w, g):
        x, g, w = x * 2, g * 2, w.detach().requires_grad_()
        return gl.autograd.grad(apply(x, w, **geometry), w, g)

    return function, x, w, g


def run(function, inputs, which, threads=(1, 2, 3)):
    """The results on several numbers of threads; which: of the images and the gradient, those that lie channels last."""
    graph = trace(function, *inputs).graph
    call = next(c for c in graph.calls if c.op.name == "convolution_dw")
    last = frozenset(v.id for v, wanted in zip(call.inputs, which) if wanted)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], last=last))
    assert "kernel: convolution_dw" in executable.steps
    found = []
    for count in threads:
        executable._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run([t._array for t in inputs], outs)
        found.append(outs[0])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    return found[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_order_in_memory(case, monkeypatch):
    monkeypatch.setenv("GRADLAB_WINOGRAD", "0")
    function, *inputs = arrays(case)
    wanted = function(*inputs)[0].numpy()
    for which in [(0, 0), (1, 1), (0, 1), (1, 0)] if len(case[2]) == 2 else [(0, 0)]:
        got = run(function, inputs, which)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("which", [(0, 0), (1, 1), (0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("channels, outputs", [(1, 1), (1, 6), (3, 3), (5, 20), (16, 1), (20, 33)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_belongs(value, channels, outputs, which, monkeypatch):
    monkeypatch.setenv("GRADLAB_WINOGRAD", "0")
    function, x, w, g = arrays((2, channels, (21, 19), outputs, (3, 3), 1, 0, 1, 1))
    x._array[1, 0, 20, 18] = value  # met by the last place of the kernel alone
    got = run(function, [x, w, g], which, (1,))
    finite = np.ones(got.shape, bool)
    finite[:, 0, 2, 2] = False
    np.testing.assert_array_equal(np.isfinite(got), finite)
