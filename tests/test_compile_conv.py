"""Compiled convolutions and what is fused with them: Winograd's algorithm, norms, ReLUs, pooling. Passes: a graph in, a graph out."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.passes import PASSES

from compiled_steps import rows, run

F = nn.functional
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")


# ---------------------------------------------------------------- passes


def passed(names, function, *example):
    """The graphs before and after passes; their results are equal to the last bit."""
    before = after = trace(function, *example).graph
    for name in names:
        after = PASSES[name](after)
    arrays = [t.numpy() for t in example]
    for a, b in zip(run(before, arrays), run(after, arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    return before, after


def gradients(function):
    """The function's result and its gradients, as a function that can be traced."""

    def both(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        y = function(*leaves)
        return (y, *gl.autograd.grad((y * y).sum(), leaves))

    return both


def norm_block(x, w, b, other):
    y = F.relu(F.batch_norm(x, None, None, w, b, training=True))
    return F.relu(F.batch_norm(y * 1.5, None, None, w, b, training=True) + other)


def norm_example():
    gl.manual_seed(3)
    return gl.randn(4, 5, 6, 7), gl.randn(5), gl.randn(5), gl.randn(4, 5, 6, 7)


def test_norm_and_relu_become_one_row():
    before, after = passed(["fuse_batch_norm"], norm_block, *norm_example())
    assert "relu" in rows(before)
    assert rows(after) == ["batch_norm_relu", "mul", "batch_norm_relu"]


def test_the_gradient_through_norm_and_relu_becomes_one_row():
    before, after = passed(["fuse_batch_norm"], gradients(norm_block), *norm_example())
    assert rows(before).count("relu_backward") == 2
    # The second one's gradient also reaches what was added: its mask stays a row of its own.
    assert rows(after).count("relu_backward") == 1
    assert rows(after).count("batch_norm_relu_backward") == 1


def test_a_norm_that_is_needed_itself_is_left_alone():
    def both(x, w, b, other):
        y = F.batch_norm(x, None, None, w, b, training=True)
        return y, F.relu(y)

    assert rows(passed(["fuse_batch_norm"], both, *norm_example())[1]) == ["batch_norm", "relu"]


def test_what_is_added_may_be_made_behind_the_norm():
    def late(x, w, b, other):
        y = F.batch_norm(x, None, None, w, b, training=True)
        return F.relu(y + F.batch_norm(other.exp(), None, None, w, b, training=True))

    assert rows(passed(["fuse_batch_norm"], late, *norm_example())[1]).count("batch_norm_relu") == 1


def test_norms_are_computed_again_where_memory_is_scarce():
    def deep(x, w, b):
        for _ in range(6):
            x = F.relu(F.batch_norm(x * 1.5, None, None, w, b, training=True))
        return x

    gl.manual_seed(3)
    example = gl.randn(8, 4, 32, 32), gl.rand(4) + 0.5, gl.randn(4)
    _, after = passed(["fuse_batch_norm", "recompute_norms"], gradients(lambda *a: F.conv2d(deep(*a), gl.ones(4, 4, 3, 3))), *example)
    assert "batch_norm_relu" in rows(after)

    def chain(x, w, b, *weights):
        for k in weights:
            x = F.relu(F.batch_norm(F.conv2d(x, k, padding=1), None, None, w, b, training=True))
        return x

    weights = [gl.randn(4, 4, 3, 3) for _ in range(8)]
    _, after = passed(["fuse_batch_norm", "recompute_norms"], gradients(chain), *example, *weights)
    assert rows(after).count("batch_norm_relu_again") >= 4


def test_relu_under_a_pooling_masks_what_was_pooled():
    def pooled(x):
        return F.max_pool2d(F.relu(x), 2)

    def overlapping(x):
        return F.max_pool2d(F.relu(x), 3, 2, 1)

    gl.manual_seed(4)
    x = gl.randn(3, 4, 9, 8)
    for function in (pooled, overlapping):
        _, after = passed(["mask_pooled"], gradients(function), x)
        found = rows(after)
        assert found.index("relu_backward") < found.index("max_pool_backward")
        assert after.calls[found.index("relu_backward")].outputs[0].spec.shape[2:] != (9, 8)


def test_convolution_and_relu_become_one_row():
    gl.manual_seed(5)
    example = gl.randn(2, 3, 6, 6), gl.randn(4, 3, 3, 3), gl.randn(4)
    assert rows(passed(["fuse_convolution"], lambda x, w, b: F.relu(F.conv2d(x, w, b)), *example)[1]) == ["convolution_relu"]
    both = passed(["fuse_convolution"], lambda x, w, b: (F.conv2d(x, w, b), F.relu(F.conv2d(x, w, b))), *example)[1]
    assert rows(both).count("convolution_relu") == 1


def pooled_convolution(x, w, b):
    return F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2)


def test_convolution_relu_and_pooling_become_one_row():
    gl.manual_seed(6)
    example = gl.randn(2, 8, 7, 6), gl.randn(9, 8, 3, 3) * 0.1
    names = ["mask_pooled", "fuse_convolution", "fuse_pooling"]

    def without_bias(x, w):
        return pooled_convolution(x, w, None)

    assert rows(passed(names, without_bias, *example)[1]) == ["convolution_relu_pool"]
    _, after = passed(names, gradients(without_bias), *example)
    assert {"convolution_relu_pool", "convolution_dx_pooled", "convolution_dw_pooled"} < set(rows(after))
    assert not {"max_pool", "max_pool_backward", "convolution_dx", "convolution_dw"} & set(rows(after))
    both = passed(names, lambda x, w: (F.relu(F.conv2d(x, w)), F.max_pool2d(F.relu(F.conv2d(x, w)), 2)), *example)[1]
    assert "convolution_relu_pool" in rows(both) or "max_pool" in rows(both)


def test_other_poolings_stay():
    gl.manual_seed(6)
    x, w = gl.randn(2, 8, 7, 6), gl.randn(9, 8, 3, 3) * 0.1
    for size, pool in ((3, {}), (2, {"stride": 1}), (2, {"padding": 1}), (2, {"ceil_mode": True})):
        names = ["fuse_convolution", "fuse_pooling"]
        after = passed(names, lambda x, w, size=size, pool=pool: F.max_pool2d(F.relu(F.conv2d(x, w)), size, **pool), x, w)[1]
        assert rows(after) == ["convolution_relu", "max_pool"]


# ---------------------------------------------------------------- machine code


def convolved(x, w, b, g, compiled, **geometry):
    """Result and gradients."""
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))

    def step(x, w, b, g):
        y = F.conv2d(x, w, b, **geometry)
        return (y.detach(), *gl.autograd.grad((y * g).sum(), [x, w, b]))

    if compiled:
        step = gl.compile(step)
        step(x, w, b, g)
    return [t.detach().numpy() for t in step(x, w, b, g)]


SHAPES = [  # images, channels, outputs, height, width, padding
    (4, 16, 16, 12, 12, 1), (2, 64, 64, 8, 8, 1), (3, 9, 10, 7, 7, 1), (2, 13, 33, 5, 9, 2), (1, 8, 8, 4, 3, 1), (9, 17, 8, 11, 2, 1),
    (2, 40, 24, 26, 26, 0), (1, 8, 70, 50, 47, 1), (33, 8, 8, 3, 3, 1), (2, 8, 8, 6, 6, 4),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions_are_as_accurate_as_eagerly(shape):
    n, c, o, h, w, p = shape
    r = np.random.default_rng(1)
    x, k, b = r.normal(size=(n, c, h, w)), r.normal(size=(o, c, 3, 3)) / np.sqrt(9 * c), r.normal(size=o)
    g = r.normal(size=(n, o, h + 2 * p - 2, w + 2 * p - 2))
    singles = [gl.from_numpy(a.astype(np.float32)) for a in (x, k, b, g)]
    exact = convolved(*[t.double() for t in singles], False, padding=p)
    eager, found = (convolved(*singles, compiled, padding=p) for compiled in (False, True))

    def error(got, want):
        return np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))

    for a, b, want in zip(eager, found, exact, strict=True):
        assert error(b, want) < max(1.5 * error(a, want), 3e-7)


POOLED = [  # images, channels, outputs, height, width, padding
    (2, 16, 24, 26, 26, 0), (3, 9, 10, 7, 9, 1), (2, 8, 17, 23, 20, 2), (1, 8, 8, 4, 4, 0), (9, 8, 8, 5, 40, 1), (2, 8, 8, 6, 6, 4),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("shape", POOLED, ids=str)
def test_pooling_in_the_convolution(shape):
    n, c, o, h, w, p = shape
    gl.manual_seed(3)
    x, k, b = gl.randn(n, c, h, w), gl.randn(o, c, 3, 3) * 0.1, gl.randn(o)
    g = gl.randn(n, o, (h + 2 * p - 2) // 2, (w + 2 * p - 2) // 2)

    def step(x, k, b, g):
        x, k, b = (t.detach().requires_grad_() for t in (x, k, b))
        y, at = F.max_pool2d(F.relu(F.conv2d(x, k, b, padding=p)), 2, return_indices=True)
        return (y.detach(), at, *gl.autograd.grad((y * g).sum(), [x, k, b]))

    compiled = gl.compile(step)
    compiled(x, k, b, g)
    results = compiled(x, k, b, g)
    assert "convolution_relu_pool" in str(compiled.graph) and "convolution_dx_pooled" in str(compiled.graph)
    want = step(x, k, b, g)
    # Where zeros alone are met, all of a window is equal but for rounding.
    for found, expected in zip(results[: 1 if p > 2 else None], want):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@needs_compiler
def test_a_pooled_nan_is_found():
    x, w = gl.zeros(1, 8, 8, 24), gl.ones(8, 8, 3, 3)
    x[0, 3, 5, 6] = float("nan")
    compiled = gl.compile(lambda x: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2))
    compiled(x)
    found, want = np.isnan(compiled(x).numpy()), np.isnan(F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).numpy())
    assert found[want].all() and not found[0, :, :, 6:].any()


GEOMETRIES = [{"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2, "padding": 1}, {"stride": (1, 2)}]


@needs_compiler
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_other_geometries_keep_their_way(geometry):
    gl.manual_seed(0)
    x, w = gl.randn(3, 16, 11, 10), gl.randn(16, 16 // geometry.get("groups", 1), 3, 3) * 0.1
    y = F.conv2d(x, w, **geometry)
    example = x, w, gl.randn(16), gl.randn(*y.shape)
    for a, b in zip(convolved(*example, False, **geometry), convolved(*example, True, **geometry), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@needs_compiler
def test_images_in_other_layouts():
    gl.manual_seed(0)
    w = gl.randn(8, 16, 3, 3)

    def last(x):
        return F.conv2d(x.permute(0, 3, 1, 2), w, padding=1)

    def turned(x):
        return F.conv2d(x.permute(0, 3, 2, 1), w, padding=1)

    x = gl.randn(2, 9, 10, 16)
    for function in (last, turned):
        compiled = gl.compile(function)
        compiled(x)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    def __init__(self, channels, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = None
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


def network():
    gl.manual_seed(0)
    blocks = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), blocks, nn.Flatten(), nn.Linear(256, 10))


def losses(compiled, threads=0):
    model = network()
    optimizer = gl.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if compiled:
        step = gl.compile(step)
    r = np.random.default_rng(0)
    x, y = gl.from_numpy(r.normal(size=(16, 3, 16, 16)).astype(np.float32)), gl.from_numpy(r.integers(0, 10, 16))
    found = []
    for _ in range(20):
        found.append(step(x, y).item())
        if threads and step.programs:
            step.programs[0].runner.executable._threads = threads
    return found, {k: v.numpy() for k, v in model.state_dict().items()}


@needs_compiler
def test_a_residual_network_learns_as_in_eager_mode():
    eager, state = losses(False)
    found, compiled_state = losses(True)
    np.testing.assert_allclose(found, eager, rtol=2e-3)
    assert found[-1] < found[0] / 2
    for key, value in state.items():
        np.testing.assert_allclose(compiled_state[key], value, rtol=0.05, atol=5e-3, err_msg=key)


@needs_compiler
def test_results_do_not_depend_on_the_number_of_threads():
    one, two, five = (losses(True, threads)[0] for threads in (1, 2, 5))
    assert one == two == five


@needs_compiler
def test_batch_norm_of_one_place_and_of_vectors_keeps_its_kernels():
    gl.manual_seed(0)
    norm = nn.BatchNorm1d(6)

    def step(x):
        y = F.relu(norm(x))
        return (y, *gl.autograd.grad((y * y).sum(), [x]))

    compiled = gl.compile(step)
    for x in (gl.randn(8, 6), gl.randn(8, 6, 5), gl.randn(8, 6, 1)):
        x = x.requires_grad_()
        norm.reset_running_stats()
        compiled(x)
        found = compiled(x)
        for a, b in zip(found, step(x), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_winograd_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("GRADLAB_WINOGRAD", "0")
    x, w = gl.randn(4, 16, 16, 16), gl.randn(16, 16, 3, 3)
    run = gl.compile(lambda x, w: gl.nn.functional.conv2d(x, w, padding=1))
    for _ in range(2):
        y = run(x, w)
    assert "winograd" not in str(run.programs[0].runner.executable.report)
    np.testing.assert_allclose(y.numpy(), gl.nn.functional.conv2d(x, w, padding=1).numpy(), rtol=1e-5, atol=1e-5)
