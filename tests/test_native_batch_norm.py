"""Machine code for batch norm: in row-major order and with the channels last, behind a convolution, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from native_tasks import Memory, part

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.backends.native.lowering import LOWER
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.passes import fused_rows, optimize
from gradlab.spec import Spec

F = nn.functional
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def tensor(*shape, seed=0):
    return gl.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def run(function, inputs, last, threads=(1, 2, 3)):
    """The results of a function as machine code, and the kernels' names; last: whether all images between its inputs and results have
    their channels last."""
    graph = optimize(trace(function, *inputs).graph, {"channels_last": False})
    ends = {v.id for v in graph.outputs}
    images = frozenset(v.id for c in graph.calls for v in c.outputs if last and len(v.spec.shape) == 4 and v.id not in ends)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], last=images))
    assert not any(step.kind == "numpy" for step in executable.report), executable.steps
    results = []
    for count in threads:
        executable._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run([t._array for t in inputs], outs)
        results.append(outs)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)
    return results[0], {name for step in executable.report for name in step.kernels}


def same(found, wanted, tolerance=1e-4):
    for got, want in zip(found, wanted, strict=True):
        expected = want.detach().numpy()
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-30)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


def with_gradients(function, wanted=None):
    """The result, and the gradients of the first inputs."""

    def compute(*tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        y = function(*leaves) * 2
        g = gl.from_numpy(np.random.default_rng(9).normal(size=y.shape).astype(np.float32))
        return [y.detach(), *gl.autograd.grad(y, leaves[:wanted], g)]

    return compute


def normalised(x, w, b, **options):
    return F.batch_norm(x, None, None, w, b, training=True, **options)


SHAPES = [
    (4, 3, 5, 5), (2, 70, 3, 3), (65, 16, 8, 8), (3, 40, 1, 5), (7, 2, 31, 29), (2, 512, 7, 7), (40, 33, 2, 2), (3, 5, 1, 2), (2, 1, 9, 9),
    (2, 3, 200, 120), (64, 17, 1, 1), (5, 64, 40, 1), (1, 24, 6, 6),
]  # fmt: skip
FORMS = {
    "alone": lambda x, w, b, o: normalised(x * 1.5 + 3, w, b),
    "relu": lambda x, w, b, o: F.relu(normalised(x * 1.5 + 3, w, b)),
    "added": lambda x, w, b, o: F.relu(normalised(x * 1.5 + 3, w, b) + o * 2),
    "plain": lambda x, w, b, o: F.batch_norm(x * 1.5 + 3, None, None, training=True) * w.reshape(1, -1, 1, 1) + b.sum(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_orders(shape, form):
    inputs = tensor(*shape), tensor(shape[1], seed=1), tensor(shape[1], seed=2), tensor(*shape, seed=3)
    function = with_gradients(FORMS[form], wanted=4 if form == "added" else 3)
    want = function(*inputs)
    for last in (False, True):
        found, kernels = run(function, inputs, last)
        same(found, want, 1e-4 if np.prod(shape) / shape[1] > 6 else 2e-3)  # of few elements gradients cancel
        assert ("gradlab_norm_sums" in kernels) == (last and shape[1] > 1 and shape[2:] != (1, 1))


@pytest.mark.parametrize("last", [False, True])
def test_far_from_zero_the_variance_is_kept(last):
    rng = np.random.default_rng(0)
    x = gl.from_numpy((rng.normal(size=(16, 24, 12, 12)) + 1e4).astype(np.float32))
    x._array[:, 1] = 3.7  # and none stays none
    x._array[:, 2] = -1e-30

    def both(x):
        x = x + 0.5
        y, mean, _, var = gl.ops.norm.batch_norm(x, None, None, eps=1e-5)
        return y * 2, mean, var

    (y, mean, var), _ = run(both, [x], last)
    exact = x.numpy().astype(np.float64) + 0.5
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3)), rtol=2e-7)
    np.testing.assert_allclose(var, exact.var((0, 2, 3)), rtol=1e-4, atol=1e-12)
    assert np.isfinite(y).all() and np.abs(y[:, 1]).max() < 0.1


@pytest.mark.parametrize("last", [False, True])
def test_what_is_not_finite_stays_in_its_channel(last):
    x = tensor(3, 20, 6, 5)
    x._array[1, 3, 2, 2], x._array[2, 7, 0, 1] = np.nan, np.inf

    def both(x, w, b):
        return F.relu(normalised(x * 1.5, w, b)) * 2

    with np.errstate(invalid="ignore"):
        want = both(x, tensor(20, seed=1), tensor(20, seed=2)).numpy()
    (found,), _ = run(lambda *t: [both(*t)], [x, tensor(20, seed=1), tensor(20, seed=2)], last)
    assert np.isnan(found).any((0, 2, 3)).tolist() == [c in (3, 7) for c in range(20)]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


CONVOLUTIONS = [  # images, channels, sizes, outputs, kernel, stride, padding, dilation, groups
    (5, 16, (12, 12), 24, (3, 3), 1, 1, 1, 1),
    (66, 8, (8, 8), 16, (3, 3), 1, 1, 1, 1),
    (1, 9, (40, 37), 17, (3, 3), 1, 1, 1, 1),
    (2, 8, (6, 5), 8, (3, 3), 1, 0, 1, 1),
    (3, 16, (9, 8), 33, (3, 3), 2, 1, 1, 1),
    (4, 3, (11, 9), 16, (3, 3), 1, 1, 1, 1),
    (3, 20, (7, 7), 24, (1, 1), 1, 0, 1, 1),
    (3, 12, (9, 9), 12, (3, 3), 1, 1, 1, 12),
    (2, 6, (9, 9), 12, (3, 3), 1, 2, 2, 3),
    (17, 16, (5, 5), 32, (5, 5), 1, 0, 1, 1),
    (2, 4, (8, 8), 1, (3, 3), 1, 1, 1, 1),
    (3, 4, (17,), 6, (5,), 2, 1, 1, 1),
]


@pytest.mark.parametrize("form", ["alone", "relu", "added", "plain"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_behind_a_convolution(case, form):
    images, channels, sizes, outputs, kernel, stride, padding, dilation, groups = case
    convolve = F.conv2d if len(sizes) == 2 else F.conv1d

    def both(x, k, b, w, s, o):
        y = convolve(x, k, None if form == "plain" else b, stride, padding, dilation, groups)
        y = F.batch_norm(y, None, None, training=True) if form == "plain" else normalised(y, w, s)
        y = y + (o * 2) if form == "added" else y
        return F.relu(y) if form in ("relu", "added") else y

    example = tensor(images, channels, *sizes), tensor(outputs, channels // groups, *kernel, seed=1) * 0.3, tensor(outputs, seed=2)
    shape = convolve(*example, stride, padding, dilation, groups).shape
    inputs = *example, tensor(outputs, seed=3), tensor(outputs, seed=4), tensor(*shape, seed=5)
    function = with_gradients(both, wanted=2)
    want = function(*inputs)
    for last in (False, True):
        found, kernels = run(function, inputs, last and len(sizes) == 2)
        # A ReLU lets through, or not, what is 0 but for rounding; the gradient says so.
        for got, expected in zip(found, want, strict=True):
            scale = np.abs(expected.numpy()).max()
            off = np.abs(got - expected.numpy()) > 2e-4 * scale
            assert off.mean() < (1e-3 if form in ("relu", "added") else 1e-9)
        assert "gradlab_normalise" in kernels or "gradlab_batch_norm" in kernels


GEOMETRIES = {"winograd": {"padding": 1}, "direct": {"stride": 2}, "depthwise": {"groups": 32}, "few": {"groups": 8, "padding": 1}}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_statistics_of_a_convolution_far_from_zero_and_of_a_constant(name, last):
    """The records of units are put together without a difference of large numbers."""
    geometry = GEOMETRIES[name]
    x, k = tensor(33, 32, 10, 9), tensor(32, 32 // geometry.get("groups", 1), 3, 3, seed=1) * 0.1
    shift = np.full(32, 1e4, np.float32)
    k._array[5], shift[5], shift[6:] = 0, 2.5, np.linspace(-300, 300, 26)

    def statistics(x, k, b):
        y = F.conv2d(x, k, b, **geometry)
        z, mean, _, var = gl.ops.norm.batch_norm(y, None, None, eps=1e-5)
        return z * 2, mean, var, y * 2

    (z, mean, var, y), kernels = run(statistics, [x, k, gl.from_numpy(shift)], last)
    assert "gradlab_channel_statistics" in kernels and "gradlab_channel_records" not in kernels
    exact = y.astype(np.float64) / 2
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3)), rtol=3e-7, atol=1e-6)
    np.testing.assert_allclose(var, exact.var((0, 2, 3)), rtol=2e-4, atol=1e-10)
    assert var[5] == 0 and np.abs(z[:, 5]).max() < 1e-3  # none of equal results deviates


PIECES = [(24, 16, 3, 3), (5, 24, 40, 33), (16, 3, 2, 2), (4, 300, 8, 8), (6, 16, 1, 1)]


def in_pieces(tasks):
    """The same tasks, those that go along the batch for some images after the other."""
    found = []
    for task in tasks:
        if task.along is None:
            found.append(task)
            continue
        images, first = task.along.images, 0
        for many in (task.along.together, 2 * task.along.together, images):
            many = min(many, images - first)
            found += [part(task, first, many)] * (many > 0)
            first += many
    return found


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", PIECES, ids=str)
def test_some_images_after_the_other(shape, last):
    r = np.random.default_rng(0)
    channels = shape[1]
    images = [r.normal(size=shape).astype(np.float32) for _ in range(3)]
    parameters = [r.normal(size=channels).astype(np.float32) for _ in range(4)]
    outputs = {fused_rows.batch_norm_relu: 3, fused_rows.batch_norm_relu_again: 0, fused_rows.batch_norm_relu_backward: 2}
    for op, statistics in outputs.items():
        x, dy, other = 0, 1, 2
        w, b, mean, rstd = range(3, 7)
        order = {0: (x, w, b, mean, rstd, other), 2: (dy, x, w, b, mean, rstd), 3: (x, w, b, other)}[statistics]
        results = []
        for split in (False, True):
            memory = Memory()
            given = [memory.put(a, last) for a in (*images, *parameters)]
            made = [memory.put(np.zeros(shape, np.float32), last), *(memory.put(np.zeros(channels, np.float32)) for _ in range(statistics))]
            memory.ctx.places = dict(enumerate((*given, *made)))
            values = [Value(n, Spec(p.shape, p.dtype)) for n, p in memory.ctx.places.items()]
            call = Call(op, tuple(values[i] for i in order), {"eps": 1e-5} if statistics == 3 else {}, tuple(values[7:]))
            tasks = LOWER[op.name](call, memory.ctx)
            assert not last or shape[2:] == (1, 1) or any(t.along is not None for t in tasks)
            memory.run(in_pieces(tasks) if split else tasks, threads=2)
            results.append([memory.get(p).copy() for p in made])
        for a, b_ in zip(*results, strict=True):
            assert np.isfinite(a).all() and a.any()
            np.testing.assert_array_equal(a, b_)


@pytest.mark.parametrize(("middle", "bound"), [(0, 2e-8), (3, 3e-7), (-1000, 1e-4)])
@pytest.mark.parametrize(("name", "shape", "axes", "last"), [
    ("layer_norm", (9, 700), (1,), False), ("layer_norm", (3, 9000), (1,), False), ("batch_norm", (700, 33), (0,), False),
    ("batch_norm", (3, 5, 31, 33), (0, 2, 3), False), ("batch_norm", (3, 5, 31, 33), (0, 2, 3), True),
])  # fmt: skip
def test_results_near_zero_are_exact(name, shape, axes, last, middle, bound):
    """They are as exact as the mean, which is not to lose bits to a number far from it: neither to zero nor to one of the elements."""
    x = np.random.default_rng(4).normal(size=shape).astype(np.float32) + np.float32(middle)
    norm = (lambda x: F.layer_norm(x, x.shape[1:])) if name == "layer_norm" else (lambda x: F.batch_norm(x, None, None, training=True))
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(axes, keepdims=True)) / np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
    error = (run(norm, [gl.from_numpy(x)], last)[0][0] - exact)[np.abs(exact) < 0.05]
    assert np.sqrt(np.mean(error**2)) < bound
