"""Gradients of convolutions behind a pooling: as those of the plane that the pooling's gradient would be spread over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native_tasks import Memory, part

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import conv_behind_pool

F = gl.nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")

SIZES = [  # images, channels, outputs, height, width, padding
    (5, 9, 10, 7, 5, 1), (2, 32, 64, 26, 26, 0), (33, 64, 40, 8, 8, 1), (1, 8, 8, 2, 2, 1), (3, 24, 17, 9, 33, 0), (2, 130, 70, 5, 6, 2),
    (4, 16, 16, 6, 6, 4), (20, 16, 48, 3, 3, 1), (1, 40, 8, 50, 70, 1), (2, 17, 5, 4, 5, 3), (1, 1, 1, 3, 4, 1), (1, 8, 8, 3, 260, 1),
    (1, 8, 1, 300, 5, 1),
]  # fmt: skip


def operands(n, c, o, h, w, p):
    """Images, weights, what a pooling chose of each window, and where that lies."""
    r = np.random.default_rng(0)
    x, k = r.normal(size=(n, c, h, w)).astype(np.float32), r.normal(size=(o, c, 3, 3)).astype(np.float32)
    plane = gl.from_numpy(r.normal(size=(n, o, h + 2 * p - 2, w + 2 * p - 2)))
    indices = F.max_pool2d(plane, 2, return_indices=True)[1].numpy()
    return x, k, r.normal(size=indices.shape).astype(np.float32), indices


def spread(values, indices, shape):
    """The plane that is zero but for these values."""
    plane = np.zeros((*shape[:2], shape[2] * shape[3]))
    np.put_along_axis(plane, indices.reshape(*shape[:2], -1), values.reshape(*shape[:2], -1).astype(np.float64), 2)
    return plane.reshape(shape)


def exact(x, k, values, indices, p):
    x, k = (gl.from_numpy(a.astype(np.float64)).requires_grad_() for a in (x, k))
    y = F.conv2d(x, k, padding=p)
    return [t.numpy() for t in gl.autograd.grad(y, [x, k], gl.from_numpy(spread(values, indices, y.shape)))]


def computed(x, k, values, indices, p, orders=(False, False, False), threads=1):
    """Gradients of x and k. orders: whether the channels of x and its gradient, of the values, and of their indices come last."""
    m = Memory()
    given = conv_behind_pool.Pooled(m.put(values, orders[1]), m.put(indices, orders[2]))
    dx, dw = m.put(np.full_like(x, 7), orders[0]), m.put(np.full_like(k, 7))
    width = x.shape[3] + 2 * p - 2
    m.run(conv_behind_pool.gradient(dx, given, width, m.put(k), (p, p), m.ctx), threads)
    m.run(conv_behind_pool.slope(dw, m.put(x, orders[0]), given, width, (p, p), m.ctx), threads)
    return m.get(dx).copy(), m.get(dw).copy()


@pytest.mark.parametrize("case", SIZES, ids=str)
def test_any_order_and_any_number_of_threads(case):
    given = operands(*case)
    wanted = exact(*given, case[-1])
    first, *others = [
        computed(*given, case[-1], orders, threads) for orders in itertools.product((False, True), repeat=3) for threads in (1, 3)
    ]
    for got, want in zip(first, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
    for other in others:
        for got, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(got, want)


def test_images_that_are_views():
    x, k, values, indices = operands(3, 16, 9, 8, 7, 1)
    wanted = computed(x, k, values, indices, 1)[1]
    m = Memory()
    flipped = m.put(x[:, :, :, ::-1], last=True)
    turned = flipped._replace(offset=flipped.offset + 4 * 6 * 16, strides=(*flipped.strides[:3], -16))
    dw = m.put(np.zeros_like(k))
    m.run(conv_behind_pool.slope(dw, turned, conv_behind_pool.Pooled(m.put(values), m.put(indices)), 7, (1, 1), m.ctx))
    np.testing.assert_array_equal(m.get(dw), wanted)


def test_parts_of_a_batch_are_the_same_to_the_bit():
    x, k, values, indices = operands(11, 24, 17, 8, 9, 1)
    for orders in itertools.product((False, True), repeat=3):
        m = Memory()
        given = conv_behind_pool.Pooled(m.put(values, orders[1]), m.put(indices, orders[2]))
        dx = m.put(np.zeros_like(x), orders[0])
        turn, main = conv_behind_pool.gradient(dx, given, 9, m.put(k), (1, 1), m.ctx)
        m.run([turn, *(part(main, first, min(4, 11 - first)) for first in (0, 4, 8))])
        np.testing.assert_array_equal(m.get(dx), computed(x, k, values, indices, 1)[0])


def test_what_is_not_finite_meets_only_its_own():
    x, k, values, indices = operands(1, 8, 9, 10, 10, 1)
    dx, dw = computed(x, k, values, indices, 1)
    values[0, 4, 2, 3] = np.nan
    row, column = divmod(int(indices[0, 4, 2, 3]), 10)
    near = np.zeros(dx.shape, bool)
    near[:, :, row - 1 : row + 2, column - 1 : column + 2] = True
    found_x, found_w = computed(x, k, values, indices, 1)
    assert np.isnan(found_x[near]).all()
    assert np.isnan(found_w[4]).all()
    np.testing.assert_array_equal(found_x[~near], dx[~near])
    np.testing.assert_array_equal(np.delete(found_w, 4, 0), np.delete(dw, 4, 0))


def test_a_convolution_of_few_channels_keeps_its_plane():
    x, k = gl.randn(2, 3, 12, 12), gl.randn(8, 3, 3, 3)

    def step(x, k):
        x, k = x.detach().requires_grad_(), k.detach().requires_grad_()
        return gl.autograd.grad(F.max_pool2d(F.relu(F.conv2d(x, k)), 2).sum(), [x, k])

    run = gl.compile(step)
    for _ in range(2):
        found = run(x, k)
    assert "max_pool_backward" in str(run.graph)
    for got, want in zip(found, step(x, k), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [gl.float32, gl.bfloat16, gl.float16])
def test_a_compiled_network_in_each_type(dtype):
    """Eager gradients to the bit: of whole numbers, whose sums are the same in any order."""
    r = np.random.default_rng(1)
    x, w, b, v = (gl.tensor(r.integers(-2, 3, shape)).to(dtype) for shape in ((3, 8, 10, 8), (8, 8, 3, 3), (8,), (8, 8, 3, 3)))

    def step(x):
        given = [t.detach().clone().requires_grad_() for t in (w, b, v)]
        h = F.max_pool2d(F.conv2d(F.conv2d(x, given[2], padding=1), *given[:2]).relu(), 2)
        return gl.autograd.grad((h * (h % 3 - 1)).sum(), given)

    compiled = gl.compile(step)
    for _ in range(2):
        for got, want in zip(compiled(x), step(x), strict=True):
            assert got.dtype == dtype
            np.testing.assert_array_equal(got.float().numpy(), want.float().numpy())
    ran = {c.op.name for s in compiled.programs[0].runner.executable.report for c in s.calls}
    assert {"convolution_dx_pooled", "convolution_dw_pooled"} <= ran
