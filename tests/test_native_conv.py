"""Machine code for convolution, pooling and batch norm: the same results as eager, for many shapes and any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.passes import optimize

F = nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def tensor(*shape, seed=0):
    return gl.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def check(function, *inputs, threads=(1, 2, 3), kernels=(), tolerance=2e-5):
    """The function of the inputs as machine code: as eager computes it, the same on any number of threads; `kernels` must be there."""
    graph = optimize(trace(function, *inputs).graph)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    for name in kernels:
        assert f"kernel: {name}" in executable.steps, executable.steps
    wanted = function(*inputs)
    results = []
    for count in threads:
        executable._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run([t._array for t in inputs], outs)
        results.append(outs)
    for got, want in zip(results[0], wanted, strict=True):
        expected = want.detach().numpy()
        assert got.dtype == expected.dtype
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(got, expected)
            continue
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


def with_gradients(function, *inputs):
    """A function that gives the result and the gradients of all floating inputs, for a fixed gradient of the result."""

    def compute(*tensors):
        given = [t.detach().requires_grad_() for t in tensors]
        y = function(*given)
        g = gl.from_numpy(np.random.default_rng(9).normal(size=y.shape).astype(np.float32))
        return [y, *gl.autograd.grad(y, given, g)]

    return compute


CONVOLUTIONS = [  # images, channels, sizes, outputs, kernel, stride, padding, dilation, groups
    (2, 3, (9, 11), 5, (3, 3), 1, 1, 1, 1),
    (1, 1, (7, 7), 1, (3, 3), 1, 0, 1, 1),
    (3, 4, (8, 8), 17, (1, 1), 1, 0, 1, 1),
    (3, 4, (9, 7), 6, (1, 1), 2, 0, 1, 1),
    (2, 5, (13, 10), 7, (3, 2), (2, 3), (1, 2), 1, 1),
    (2, 3, (12, 15), 4, (3, 3), 1, 2, 2, 1),
    (2, 3, (14, 14), 4, (3, 5), 2, 3, (3, 2), 1),
    (1, 2, (3, 3), 3, (5, 5), 1, 2, 1, 1),
    (2, 2, (4, 4), 3, (7, 7), 2, 3, 1, 1),
    (2, 2, (2, 2), 3, (3, 3), 1, 1, 1, 1),
    (2, 2, (1, 1), 3, (3, 3), 1, 1, 1, 1),
    (2, 3, (11, 6), 4, (2, 2), 3, 0, 1, 1),
    (2, 3, (10, 10), 4, (1, 1), 1, 2, 1, 1),
    (2, 3, (10, 10), 4, (2, 2), 1, 3, 1, 1),
    (2, 8, (9, 9), 8, (3, 3), 1, 1, 1, 8),
    (2, 6, (9, 9), 12, (3, 3), 2, 1, 1, 3),
    (9, 16, (8, 8), 32, (3, 3), 1, 1, 1, 1),
    (2, 64, (6, 6), 40, (3, 3), 1, 1, 1, 1),
    (1, 3, (70, 65), 8, (7, 7), 2, 3, 1, 1),
    (17, 16, (16, 16), 16, (3, 3), 1, 1, 1, 1),
    (2, 20, (90, 90), 6, (3, 3), 1, 1, 1, 1),
    (2, 3, (17,), 5, (4,), 2, 1, 1, 1),
    (3, 2, (30,), 4, (3,), 1, 2, 2, 1),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution_and_its_gradients(case, bias):
    images, channels, sizes, outputs, kernel, stride, padding, dilation, groups = case
    apply = F.conv2d if len(sizes) == 2 else F.conv1d
    x, w, b = tensor(images, channels, *sizes), tensor(outputs, channels // groups, *kernel, seed=1), tensor(outputs, seed=2)
    inputs = (x, w, b) if bias else (x, w)
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    rows = ["convolution", "convolution_dx", "convolution_dw"]
    check(with_gradients(lambda x, w, b=None: apply(x, w, b, **geometry)), *inputs, kernels=rows)


def test_convolution_of_views():
    check(with_gradients(lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w, padding=1)), tensor(2, 9, 8, 3), tensor(4, 3, 3, 3, seed=1),
          kernels=["convolution", "convolution_dw"])  # fmt: skip
    check(lambda x, w: [F.conv2d(x[:, 1:3, ::2, 1:], w)], tensor(2, 4, 9, 8), tensor(4, 2, 3, 3, seed=1), kernels=["convolution"])


def test_transposed_convolution():
    check(with_gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)), tensor(2, 5, 6, 7),
          tensor(5, 3, 3, 3, seed=1), kernels=["convolution_dx"])  # fmt: skip


def test_convolution_keeps_what_is_not_finite_where_it_belongs():
    x = tensor(1, 2, 8, 8)
    x._array[0, 1, 3, 3] = np.inf
    x._array[0, 0, 6, 6] = np.nan
    check(lambda x, w: [F.conv2d(x, w, padding=1)], x, tensor(3, 2, 3, 3, seed=1))


POOLS = [  # sizes, kernel, stride, padding, dilation, ceil_mode
    ((8, 8), (2, 2), 2, 0, 1, False),
    ((17, 26), (2, 2), 2, 0, 1, False),
    ((21, 43), (3, 3), 2, 0, 1, False),
    ((9, 7), (3, 2), (2, 1), 1, 1, False),
    ((9, 7), (3, 3), 2, 1, 1, True),
    ((12, 11), (2, 3), 3, 0, 2, False),
    ((5, 5), (5, 5), 1, 0, 1, False),
    ((5, 37), (3, 37), 1, 0, 1, False),
    ((31,), (4,), 3, 1, 1, True),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool(case):
    sizes, kernel, stride, padding, dilation, ceil_mode = case
    pool = F.max_pool2d if len(sizes) == 2 else F.max_pool1d
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    check(with_gradients(lambda x: pool(x, kernel, **geometry)), tensor(3, 5, *sizes), kernels=["max_pool", "max_pool_backward"])
    check(lambda x: list(pool(x, kernel, return_indices=True, **geometry)), tensor(1, 2, *sizes))


def test_max_pool_of_nan_and_infinity():
    nan, low = tensor(1, 2, 20, 21), tensor(1, 2, 20, 21)
    nan._array[0, 0, 2:5, 3:6] = np.nan
    low._array[0, 1] = -np.inf
    for x in (nan, low):
        check(lambda x: list(F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)), x, kernels=["max_pool"])
        for kernel in (2, 3):
            check(lambda x: list(F.max_pool2d(x, kernel, stride=2, return_indices=True)), x, kernels=["max_pool"])  # noqa: B023


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("case", [c for c in POOLS if c[4] == 1], ids=str)
def test_avg_pool(case, include):
    sizes, kernel, stride, padding, _, ceil_mode = case
    pool = F.avg_pool2d if len(sizes) == 2 else F.avg_pool1d
    geometry = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode, "count_include_pad": include}
    check(with_gradients(lambda x: pool(x, kernel, **geometry)), tensor(3, 5, *sizes), kernels=["avg_pool", "avg_pool_backward"])


@pytest.mark.parametrize("pads", [(1, 2), (0, 0, 1, 1), (2, 0, 0, 3, 1, 1), (-1, 2), (-1, -2, -3, 0), (0, 0, 0, 0, 4, 4)], ids=str)
def test_pad(pads):
    check(with_gradients(lambda x: F.pad(x, pads, value=3.0)), tensor(2, 3, 6, 7), kernels=["pad"])


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (7, 70), (300, 5), (2, 1, 100, 99), (3, 4, 1), (65, 16, 8, 8), (2, 3, 2, 3, 4)], ids=str)
def test_batch_norm(shape, affine):
    x, w, b = tensor(*shape), tensor(shape[1], seed=1), tensor(shape[1], seed=2)
    if affine:
        check(with_gradients(lambda x, w, b: F.batch_norm(x + 3, None, None, w, b, training=True)), x, w, b, tolerance=1e-4,
              kernels=["batch_norm", "batch_norm_backward"])  # fmt: skip
    else:
        check(with_gradients(lambda x: F.batch_norm(x + 3, None, None, training=True)), x, tolerance=1e-4, kernels=["batch_norm"])


def test_batch_norm_far_from_zero_keeps_its_variance():
    x = gl.from_numpy((np.random.default_rng(0).normal(size=(16, 4, 12, 12)) + 1000).astype(np.float32))
    check(lambda x: [F.batch_norm(x, None, None, training=True)], x, tolerance=1e-3, kernels=["batch_norm"])
