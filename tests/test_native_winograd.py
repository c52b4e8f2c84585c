"""Winograd's algorithm: any sizes and any order of images in memory, records, parts of a batch, and as accurate as the sum itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native_tasks import Memory, part

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import winograd
from gradlab.backends.native.lowerings.conv_behind_pool import Pooled
from gradlab.backends.native.lowerings.conv_statistics import length
from gradlab.spec import Spec

F = gl.nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")

SIZES = [  # images, channels, outputs, height, width, padding
    (5, 9, 10, 7, 5, 1), (17, 16, 16, 32, 32, 1), (33, 64, 40, 8, 8, 1), (1, 8, 8, 2, 2, 1), (3, 24, 17, 9, 33, 0), (2, 32, 64, 26, 26, 0),
    (2, 130, 70, 5, 6, 2), (4, 16, 16, 6, 6, 4), (20, 16, 48, 3, 2, 1), (1, 32, 32, 61, 90, 1), (2, 8, 8, 1, 40, 2),
]  # fmt: skip
ORDERS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.fixture(params=["highest", "high"])
def precision(request):
    gl.set_float32_matmul_precision(request.param)
    yield request.param
    gl.set_float32_matmul_precision("highest")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def operands(n, c, o, h, w, p):
    return normal(n, c, h, w), normal(o, c, 3, 3, seed=1), normal(o, seed=2), normal(n, o, h + 2 * p - 2, w + 2 * p - 2, seed=3)


def exact(x, k, b, g, p):
    """Result and gradients in double precision."""
    x, k, b, g = (gl.from_numpy(a.astype(np.float64)) for a in (x, k, b, g))
    x, k = x.requires_grad_(), k.requires_grad_()
    y = F.conv2d(x, k, b, padding=p)
    return [y.detach().numpy(), *(t.numpy() for t in gl.autograd.grad(y, [x, k], g))]


def computed(x, k, b, g, p, orders=(False, False), threads=1, **how):
    """The same by Winograd's algorithm; whether the channels of x and of the result, and of their gradients, come last. how: bfloat16."""
    own, other = orders
    m = Memory()
    source, weights, bias, slope = m.put(x, own), m.put(k), m.put(b), m.put(g, other)
    y, dx, dw = m.put(np.full_like(g, 7), other), m.put(np.full_like(x, 7), own), m.put(np.full_like(k, 7))
    m.run(winograd.correlate(y, source, weights, bias, (-p, -p), m.ctx, **how).tasks, threads)
    m.run(winograd.correlate(dx, slope, weights, None, (p - 2, p - 2), m.ctx, back=True, **how).tasks, threads)
    m.run(winograd.slope(dw, source, slope, (-p, -p), m.ctx, **how), threads)
    return [m.get(place).copy() for place in (y, dx, dw)]


@pytest.mark.parametrize("case", SIZES, ids=str)
def test_any_order_and_any_number_of_threads(case, precision):
    x, k, b, g = operands(*case)
    wanted = exact(x, k, b, g, case[-1])
    first, *others = [computed(x, k, b, g, case[-1], orders, threads) for orders in ORDERS for threads in (1, 3)]
    for got, want in zip(first, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())
    for other in others:
        for got, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(got, want)


def test_parts_of_images(precision):
    x, k, b, g = operands(3, 16, 16, 9, 11, 1)
    wanted = computed(x, k, b, g, 1)
    m = Memory()
    large = m.put(normal(6, 32, 13, 22, seed=9), last=True)  # x is every second image, half its channels, some rows and columns
    n, c, h, w = large.strides
    source = large._replace(offset=large.offset + 4 * (16 * c + 2 * h + w), shape=x.shape, strides=(2 * n, c, h, 2 * w))
    m.get(source)[...] = x
    flipped = m.put(x[:, :, :, ::-1])
    turned = flipped._replace(offset=flipped.offset + 4 * 10, strides=(*flipped.strides[:3], -1))
    for view in (source, turned):
        y, dw = m.put(0 * g, last=True), m.put(0 * k)
        m.run(winograd.correlate(y, view, m.put(k), m.put(b), (-1, -1), m.ctx).tasks)
        m.run(winograd.slope(dw, view, m.put(g), (-1, -1), m.ctx))
        np.testing.assert_array_equal(m.get(y), wanted[0])
        np.testing.assert_array_equal(m.get(dw), wanted[2])


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("case", SIZES, ids=str)
def test_pooling_takes_the_largest_of_what_would_be_stored(case, bfloat16, precision):
    x, k, b, g = operands(*case)
    p = case[-1]
    x, b = np.round(x), np.round(b)  # so that elements of a window are equal now and then
    if min(g.shape[2:]) < 2:
        return
    m = Memory()
    y, source, weights, bias = m.put(0 * g), m.put(x), m.put(np.round(k)), m.put(b)
    m.run(winograd.correlate(y, source, weights, bias, (-p, -p), m.ctx, relu=True, bfloat16=bfloat16).tasks)
    wanted = F.max_pool2d(gl.from_numpy(m.get(y).copy()), 2, return_indices=True)
    for own, elements, indices in itertools.product((False, True), repeat=3):
        kept = Pooled(m.put(0 * wanted[0].numpy(), elements), m.put(0 * wanted[1].numpy(), indices))
        m.run(winograd.correlate(y, m.put(x, own), weights, bias, (-p, -p), m.ctx, relu=True, pooled=kept, bfloat16=bfloat16).tasks, 2)
        for place, want in zip(kept, wanted, strict=True):
            np.testing.assert_array_equal(m.get(place), want.numpy())


def recorded(m, made, outputs):
    """Records as arrays in double precision: means, deviations, numbers of pixels."""
    start = made.records.offset
    found = m.bases[0][start : start + 4 * made.units * length(outputs)].view(np.float32).reshape(made.units, -1).astype(np.float64)
    return found[:, :outputs], found[:, outputs : 2 * outputs], found[:, 2 * outputs :]


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("case", SIZES, ids=str)
def test_records(case, orders, precision):
    n, _, o, _, _, p = case
    x, k, b, g = operands(*case)
    m = Memory()
    b += 50
    y = m.put(0 * g, orders[1])
    made = winograd.correlate(y, m.put(x, orders[0]), m.put(k), m.put(b), (-p, -p), m.ctx, recording=True)
    m.run(made.tasks, 2)
    np.testing.assert_array_equal(m.get(y), computed(x, k, b, g, p)[0])
    means, deviations, pixels = recorded(m, made, o)
    assert not pixels[:, 1:].any()
    count = pixels[:, :1]
    assert count.sum() == n * g.shape[2] * g.shape[3]
    mean = (means * count).sum(0) / count.sum()
    variance = (deviations + count * (means - mean) ** 2).sum(0) / count.sum()
    whole = m.get(y).astype(np.float64)
    np.testing.assert_allclose(mean, whole.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(variance, whole.var((0, 2, 3)), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("case", [(16, 16, 16, 12, 14, 1), (33, 64, 40, 8, 8, 1), (19, 9, 10, 3, 4, 1), (2, 8, 24, 40, 30, 0)], ids=str)
def test_parts_of_a_batch_are_the_same_to_the_bit(case, orders, precision):
    n, _, o, _, _, p = case
    x, k, b, g = operands(*case)
    results = []
    for cut in (1, 2):
        m = Memory()
        y, dx = m.put(0 * g, orders[1]), m.put(0 * x, orders[0])
        source, weights = m.put(x, orders[0]), m.put(k)
        made = winograd.correlate(y, source, weights, m.put(b), (-p, -p), m.ctx, recording=True)
        turn, main = made.tasks
        step = max(1, n // (2 * main.along.together)) * main.along.together if cut == 2 else n
        m.run([turn, *(part(main, i, min(step, n - i)) for i in range(0, n, step))], 2)
        records = recorded(m, made, o)
        turn, main = winograd.correlate(dx, m.put(g, orders[1]), weights, None, (p - 2, p - 2), m.ctx, back=True).tasks
        step = max(1, n // (2 * main.along.together)) * main.along.together if cut == 2 else n
        m.run([turn, *(part(main, i, min(step, n - i)) for i in range(0, n, step))])
        results.append([m.get(y), m.get(dx), *records])
    for whole, parts in zip(*results, strict=True):
        np.testing.assert_array_equal(whole, parts)


def summed(x, k, p):
    """The sum that defines a convolution, one product after the other."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    y = np.zeros((n, k.shape[0], h + 2 * p - 2, w + 2 * p - 2), x.dtype)
    for i, row, column in itertools.product(range(c), range(3), range(3)):
        y += k[:, i, row, column][None, :, None, None] * padded[:, i, None, row : row + y.shape[2], column : column + y.shape[3]]
    return y


def slopes_summed(x, g, p):
    """The same of the weight's gradient."""
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    dw = np.zeros((g.shape[1], x.shape[1], 3, 3), x.dtype)
    for i, row, column in itertools.product(range(x.shape[0]), range(g.shape[2]), range(g.shape[3])):
        dw += g[i, :, row, column][:, None, None, None] * padded[i, None, :, row : row + 3, column : column + 3]
    return dw


def errors(got, want):
    """Root mean square and largest, relative to the same of what is wanted."""
    return np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)), np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("channels", "size"), [(8, 20), (16, 20), (32, 16), (64, 16), (128, 12), (256, 10)])
def test_as_accurate_as_the_sum_itself(channels, size, relu):
    x, k, _, g = operands(2, channels, channels, size, size, 1)
    x = np.maximum(x, 0) if relu else x
    turned = np.ascontiguousarray(k[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    zero = np.zeros(channels, np.float32)

    def direct(kind):
        a, b, c, d = (t.astype(kind) for t in (x, k, turned, g))
        return summed(a, b, 1), summed(d, c, 1), slopes_summed(a, d, 1)

    for found, plain, want in zip(computed(x, k, zero, g, 1), direct(np.float32), direct(np.float64), strict=True):
        for own, other in zip(errors(found, want), errors(plain, want), strict=True):
            assert own < 1.2 * other


@pytest.mark.parametrize("channels", [8, 64, 256])
def test_less_precision_is_enough_where_it_is_asked_for(channels):
    x, k, b, g = operands(2, channels, channels, 12, 12, 1)
    wanted = exact(x, k, b, g, 1)
    exactly = [errors(a, want)[0] for a, want in zip(computed(x, k, b, g, 1), wanted)]
    gl.set_float32_matmul_precision("medium")
    try:
        found = [errors(a, want)[0] for a, want in zip(computed(x, k, b, g, 1), wanted)]
    finally:
        gl.set_float32_matmul_precision("highest")
    assert all(1.1 * a < b < 3 * a for a, b in zip(exactly, found))


def test_it_is_used_where_it_gains():
    def used(images, channels, outputs, size):
        x, y = (Spec((images, c, size, size), np.dtype(np.float32)) for c in (channels, outputs))
        return winograd.gains(x, y, (3, 3), (1, 1), (1, 1), 1)

    assert used(64, 16, 16, 32)
    assert used(1, 64, 64, 56)
    assert not used(64, 3, 64, 32)
    assert not used(1, 512, 512, 7)
    assert not used(64, 64, 64, 3)


def test_a_compiled_function_follows_the_precision():
    x, w = gl.from_numpy(normal(4, 16, 16, 16)), gl.from_numpy(normal(16, 16, 3, 3, seed=1))
    run = gl.compile(lambda x, w: F.conv2d(x, w, padding=1))

    def kernels():
        return str(run.programs[0].runner.executable.report)

    for _ in range(2):
        exactly = run(x, w)
    assert "winograd" in kernels()
    assert "tall" not in kernels()
    gl.set_float32_matmul_precision("high")
    try:
        other = run(x, w)
        assert "winograd_tall" in kernels()
    finally:
        gl.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal(run(x, w).numpy(), exactly.numpy())
    assert len(run.programs) == 2
    assert not np.array_equal(other.numpy(), exactly.numpy())
    np.testing.assert_allclose(other.numpy(), exactly.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_near(value):
    x, k, b, g = operands(2, 9, 10, 14, 15, 1)
    finite = computed(x, k, b, g, 1)[0]
    x[1, 3, 6, 7] = value
    found = computed(x, k, b, g, 1)[0]
    np.testing.assert_array_equal(found[1, :, 5:8, 6:9], exact(x, k, b, g, 1)[0][1, :, 5:8, 6:9].astype(np.float32))
    found[1, :, 5:8, 6:9] = finite[1, :, 5:8, 6:9]
    np.testing.assert_allclose(found, finite, rtol=1e-4, atol=1e-4)  # those beside them are summed up plainly
