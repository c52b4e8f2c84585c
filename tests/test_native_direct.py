"""Direct convolution: any geometry and any order of images in memory, records, parts of a batch, and as accurate as the sum itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native_tasks import Memory, part

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import direct
from gradlab.backends.native.lowerings.conv_statistics import length
from gradlab.backends.native.lowerings.geometry import Geometry

F = gl.nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")

CASES = [  # images, channels, sizes, outputs, kernel, stride, padding, dilation, groups
    # vectors of outputs
    (3, 5, (9, 11), 32, (3, 3), 1, 1, 1, 1),
    (2, 1, (28, 29), 33, (3, 3), 1, 0, 1, 1),
    (9, 16, (8, 8), 48, (3, 3), 2, 1, 1, 1),
    (17, 24, (4, 4), 40, (2, 2), 1, 0, 1, 1),
    (33, 40, (1, 1), 70, (1, 1), 1, 0, 1, 1),
    (2, 64, (14, 13), 96, (1, 1), 1, 0, 1, 1),
    (2, 19, (15, 13), 32, (1, 1), (2, 3), (0, 2), 1, 1),
    (1, 16, (5, 40), 13, (5, 3), (3, 1), (2, 1), (1, 3), 1),
    (2, 6, (3, 4), 16, (7, 7), 1, 5, 1, 1),
    (2, 8, (2, 3), 20, (3, 3), 2, 4, 3, 1),
    (1, 300, (6, 6), 36, (3, 3), 1, 1, 1, 1),
    (4, 20, (11, 6), 32, (2, 2), 3, 0, 1, 1),
    (3, 18, (7, 9), 60, (3, 3), 2, 1, 1, 2),
    (2, 96, (7, 7), 96, (3, 3), 1, 1, 1, 3),
    (2, 16, (1, 60), 24, (1, 5), (1, 2), (0, 2), (1, 2), 1),
    # so many weights that the outputs are cut into parts
    (3, 96, (9, 8), 200, (3, 3), 2, 1, 1, 1),
    (1, 130, (3, 3), 130, (3, 3), 1, 1, 1, 1),
    # vectors of pixels
    (2, 3, (32, 32), 16, (3, 3), 1, 1, 1, 1),
    (2, 4, (33, 61), 10, (3, 3), 1, 0, 1, 1),
    (3, 32, (17, 19), 3, (3, 3), 1, 1, 1, 1),
    (9, 12, (6, 5), 1, (3, 3), 1, 1, 1, 1),
    (2, 5, (13, 10), 7, (3, 2), (2, 3), (1, 2), 1, 1),
    (2, 64, (11, 12), 4, (3, 3), 1, 1, 2, 1),
    (2, 70, (5, 40), 12, (3, 3), 1, 1, 1, 1),
    (2, 16, (9, 9), 18, (5, 5), 1, 2, 1, 1),
    (2, 32, (14, 14), 32, (3, 3), 1, 1, 1, 8),
    (2, 12, (9, 20), 6, (3, 3), 2, 1, 1, 3),
    (70, 9, (1, 1), 2, (1, 1), 1, 0, 1, 1),
    (2, 2, (2, 2), 3, (3, 3), 3, 3, 1, 1),
    (2, 3, (1, 200), 5, (1, 9), (1, 3), (0, 4), 1, 1),
    # vectors of channels
    (2, 16, (9, 9), 16, (3, 3), 1, 1, 1, 16),
    (3, 40, (7, 19), 40, (3, 3), 2, 1, 1, 40),
    (2, 19, (14, 14), 19, (5, 5), 1, 4, 2, 19),
    (1, 64, (6, 5), 64, (2, 3), (3, 2), 0, 1, 64),
    (2, 33, (1, 50), 33, (1, 4), 1, (0, 2), 1, 33),
    (2, 32, (4, 4), 32, (1, 1), 3, 0, 1, 32),
    (2, 8, (9, 9), 24, (3, 3), 1, 1, 1, 8),  # three outputs a channel
    (2, 5, (9, 9), 5, (3, 3), 1, 1, 1, 5),
]
ORDERS = [(False, False), (False, True), (True, False), (True, True)]


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def geometry(case):
    return Geometry(pair(case[5]), pair(case[6]), pair(case[7]), case[8])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def operands(case):
    """Images, weights, bias, and gradients of the results."""
    n, c, (h, w), o, kernel, *_ = case
    g = geometry(case)
    sizes = ((s + 2 * p - d * (k - 1) - 1) // step + 1 for s, p, d, k, step in zip((h, w), g.padding, g.dilation, kernel, g.stride))
    return normal(n, c, h, w), normal(o, c // g.groups, *kernel, seed=1), normal(o, seed=2), normal(n, o, *sizes, seed=3)


def exact(case, x, k, b, slope):
    """The result and the input's gradient in double precision."""
    x, k, b, slope = (gl.from_numpy(a.astype(np.float64)) for a in (x, k, b, slope))
    x = x.requires_grad_()
    y = F.conv2d(x, k, b, **geometry(case)._asdict())
    return y.detach().numpy(), gl.autograd.grad(y, x, slope)[0].numpy()


def computed(case, x, k, b, slope, orders=(False, False), threads=1, relu=False):
    """The same as machine code; whether the channels of x and of the result, and of their gradients, come last."""
    m, g = Memory(), geometry(case)
    own, other = orders
    y, dx, weights = m.put(np.full_like(slope, 7), other), m.put(np.full_like(x, 7), own), m.put(k)
    m.run(direct.correlate(y, m.put(x, own), weights, None if b is None else m.put(b), g, m.ctx, relu=relu).tasks, threads)
    m.run(direct.correlate(dx, m.put(slope, other), weights, None, g, m.ctx, back=True).tasks, threads)
    return m.get(y).copy(), m.get(dx).copy()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_order_and_any_number_of_threads(case):
    given = operands(case)
    wanted = exact(case, *given)
    for orders in ORDERS:
        first, *others = [computed(case, *given, orders, threads) for threads in (1, 2, 3)]
        for got, want in zip(first, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())
        for other in others:
            for got, want in zip(other, first, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", CASES[::4], ids=str)
def test_without_bias_and_with_relu(case):
    x, k, b, slope = operands(case)
    zero = np.zeros_like(b)
    for bias in (None, b):
        want = np.maximum(exact(case, x, k, zero if bias is None else b, slope)[0], 0)
        for orders in ORDERS:
            got = computed(case, x, k, bias, slope, orders, relu=True)[0]
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("case", [c for c in CASES if c[0] > 1], ids=str)
def test_parts_of_images(case):
    x, k, b, slope = operands(case)
    wanted = exact(case, x, k, b, slope)[0]
    m, g = Memory(), geometry(case)
    n, c, h, w = x.shape
    large = m.put(normal(2 * n, 2 * c, h + 3, 2 * w + 1, seed=9), last=True)
    s = large.strides
    views = [
        large._replace(offset=large.offset + 4 * (c * s[1] + 2 * s[2] + s[3]), shape=x.shape, strides=(2 * s[0], s[1], s[2], 2 * s[3])),
        (flipped := m.put(0 * x))._replace(offset=flipped.offset + 4 * (w - 1), strides=(*flipped.strides[:3], -1)),
        (upside := m.put(0 * x))._replace(offset=upside.offset + 4 * w * (h - 1), strides=(*upside.strides[:2], -w, 1)),
        m.put(np.ascontiguousarray(x.transpose(2, 1, 3, 0)))._replace(shape=x.shape, strides=(1, w * n, c * w * n, n)),
    ]
    for view in views:
        m.get(view)[...] = x
        y = m.put(0 * slope, last=True)
        m.run(direct.correlate(y, view, m.put(k), m.put(b), g, m.ctx).tasks)
        np.testing.assert_allclose(m.get(y), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def recorded(m, made, outputs):
    """Records as arrays in double precision: means, deviations, numbers of pixels."""
    start = made.records.offset
    found = m.bases[0][start : start + 4 * made.units * length(outputs)].view(np.float32).reshape(made.units, -1).astype(np.float64)
    return found[:, :outputs], found[:, outputs : 2 * outputs], found[:, 2 * outputs :]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_records(case):
    x, k, b, slope = operands(case)
    b += 50
    for orders in ORDERS:
        m = Memory()
        y = m.put(0 * slope, orders[1])
        made = direct.correlate(y, m.put(x, orders[0]), m.put(k), m.put(b), geometry(case), m.ctx, recording=True)
        m.run(made.tasks, 2)
        whole = m.get(y).astype(np.float64)
        np.testing.assert_array_equal(m.get(y), computed(case, x, k, b, slope, orders)[0])
        means, deviations, pixels = recorded(m, made, len(b))
        assert not pixels[:, 1:].any()
        count = pixels[:, :1]
        assert count.sum() == slope.size // len(b)
        mean = (means * count).sum(0) / count.sum()
        variance = (deviations + count * (means - mean) ** 2).sum(0) / count.sum()
        np.testing.assert_allclose(mean, whole.mean((0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(variance, whole.var((0, 2, 3)), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] > 2], ids=str)
def test_parts_of_a_batch_are_the_same_to_the_bit(case):
    x, k, b, slope = operands(case)
    n, g = len(x), geometry(case)
    for orders in ORDERS:
        results = []
        for cut in (1, 2):
            m = Memory()
            y, dx, weights = m.put(0 * slope, orders[1]), m.put(0 * x, orders[0]), m.put(k)
            made = direct.correlate(y, m.put(x, orders[0]), weights, m.put(b), g, m.ctx, recording=True)
            back = direct.correlate(dx, m.put(slope, orders[1]), weights, None, g, m.ctx, back=True)
            found = []
            for turn, main in (back.tasks, made.tasks):
                step = n if cut == 1 else max(1, n // (2 * main.along.together)) * main.along.together
                m.run([turn, *(part(main, i, min(step, n - i)) for i in range(0, n, step))], 2)
                found += recorded(m, made, len(b)) if main is made.tasks[1] else []
            results.append([m.get(y), m.get(dx), *found])
        for whole, parts in zip(*results, strict=True):
            np.testing.assert_array_equal(whole, parts)


def summed(x, k, p):
    """The sum that defines a convolution, one product after the other."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    height, width = h + 2 * p - k.shape[2] + 1, w + 2 * p - k.shape[3] + 1
    y = np.zeros((n, k.shape[0], height, width), x.dtype)
    for i, row, column in itertools.product(range(c), range(k.shape[2]), range(k.shape[3])):
        y += k[:, i, row, column][None, :, None, None] * padded[:, i, None, row : row + height, column : column + width]
    return y


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "part"),
    [(3, 16, 3, 1.1), (32, 4, 3, 1.1), (16, 32, 5, 0.8), (64, 40, 3, 0.8), (256, 32, 1, 0.8), (300, 20, 3, 0.6), (64, 4, 5, 0.7)],
)
def test_sums_of_sums_are_more_accurate(channels, outputs, kernel, part, last):
    case = (2, channels, (9, 20), outputs, (kernel, kernel), 1, kernel // 2, 1, 1)
    x, k, _, slope = operands(case)
    got, _ = computed(case, x, k, None, slope, (last, last))
    want = summed(x.astype(np.float64), k.astype(np.float64), kernel // 2)
    own, other = (np.sqrt(np.mean((y - want) ** 2)) for y in (got, summed(x, k, kernel // 2)))
    assert own < part * other


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("case", [c for c in CASES if c[2][0] > 6 and c[2][1] > 6][::2], ids=str)
def test_what_is_not_finite_stays_where_it_belongs(case, value):
    x, k, b, slope = operands(case)
    x[-1, 1 if x.shape[1] > 1 else 0, 3, 4] = value
    slope[-1, -1, slope.shape[2] // 2, -1] = value
    wanted = exact(case, x, k, b, slope)
    for orders in ORDERS:
        for got, want in zip(computed(case, x, k, b, slope, orders, 2), wanted, strict=True):
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))


def test_a_gradient_that_no_output_depends_on_is_zero():
    case = (2, 3, (7, 8), 20, (1, 1), 4, 0, 1, 1)
    _, dx = computed(case, *operands(case))
    assert dx[:, :, ::4, ::4].all()
    dx[:, :, ::4, ::4] = 0
    assert not dx.any()


def test_each_kernel_has_its_cases():
    found = {}
    for case in CASES:
        x, k, _, slope = operands(case)
        m = Memory()
        task = direct.correlate(m.put(slope, True), m.put(x, True), m.put(k), None, geometry(case), m.ctx).tasks[1]
        found.setdefault(task.kernel, []).append(task.parameters[-1])
    assert {kernel: len(cases) for kernel, cases in found.items()} == {"gradlab_direct": 18, "gradlab_planes": 14, "gradlab_depthwise": 6}
    assert max(found["gradlab_direct"]) > 1  # parts of the outputs
