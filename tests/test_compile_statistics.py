"""Batch norm's statistics from the convolution before it: the pass `fuse_statistics`, and compiled steps with it."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.passes import PASSES, operations

from compiled_steps import rows, run

F = nn.functional
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")
NAMES = ("fuse_batch_norm", "fuse_statistics")


def passed(function, *example, names=NAMES):
    """The rows after the passes; the results are equal to the last bit."""
    before = after = trace(function, *example).graph
    for name in names:
        after = PASSES[name](after)
    made = {v.id for v in (*after.inputs, *after.state)}
    for call in after.calls:
        assert all(x.id in made for x in call.inputs if hasattr(x, "spec")), "a value is read before it is made"
        made.update(v.id for v in call.outputs)
    arrays = [t.numpy() for t in example]
    for a, b in zip(run(before, arrays), run(after, arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    return rows(after)


def example(channels=4):
    gl.manual_seed(3)
    return gl.randn(3, channels, 6, 7), gl.randn(channels, channels, 3, 3), gl.randn(channels), gl.randn(channels)


def normalised(y, w=None, b=None):
    return F.batch_norm(y, None, None, w, b, training=True)


def gradients(function):
    def both(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        y = function(*leaves)
        return (y, *gl.autograd.grad((y * y).sum(), leaves))

    return both


def convolved(x, k):
    return F.conv2d(x, k, padding=1)


# ---------------------------------------------------------------- the pass


def test_norm_and_convolution_become_one_row():
    assert passed(lambda x, k, w, b: normalised(convolved(x, k), w, b), *example()) == ["convolution_batch_norm"]
    assert passed(lambda x, k, w, b: F.relu(normalised(convolved(x, k), w, b)), *example()) == ["convolution_batch_norm_relu"]
    assert passed(lambda x, k, w, b: normalised(F.conv2d(x, k, b)), *example()) == ["convolution_batch_norm"]
    line = gl.randn(3, 4, 9), gl.randn(5, 4, 3)
    assert passed(lambda x, k: normalised(F.conv1d(x, k)), *line) == ["convolution_batch_norm"]


def test_what_is_added_comes_along():
    def added(x, k, w, b):
        return normalised(convolved(x, k), w, b) + x

    def rectified(x, k, w, b):
        return F.relu(added(x, k, w, b))

    def shortcut(x, k, w, b):
        return F.relu(normalised(convolved(x, k), w, b) + normalised(F.conv2d(x, k[:, :, :1, :1]), b, w))

    def early(x, k, w, b):
        other = convolved(x, k) * 2
        return normalised(F.conv2d(x, k, b, padding=1), w, b) + other

    assert passed(added, *example()) == ["convolution_batch_norm"]
    assert passed(rectified, *example()) == ["convolution_batch_norm_relu"]
    assert passed(shortcut, *example())[-2:] == ["convolution_batch_norm", "convolution_batch_norm_relu"]
    assert passed(early, *example()) == ["convolution", "mul", "convolution_batch_norm"]


def test_what_is_added_late_stays():
    def late(x, k, w, b):
        y = normalised(convolved(x, k), w, b)
        return y + y.sum()

    def of_the_convolution(x, k, w, b):
        y = convolved(x, k)
        return F.relu(normalised(y, w, b) + y)

    def of_each_other(x, k, w, b):
        y, z = convolved(x, k), F.conv2d(x, k, b, padding=1)
        return F.relu(normalised(y, w, b) + z), F.relu(normalised(z, w, b) + y)

    assert "add" in passed(late, *example())

    def plainly(x, k, w, b):
        y = convolved(x, k)
        return normalised(y, w, b) + y

    assert passed(of_the_convolution, *example()) == ["convolution", "batch_norm_relu"]
    assert passed(plainly, *example()) == ["convolution_batch_norm", "add"]
    assert passed(of_each_other, *example()).count("convolution_batch_norm_relu") <= 1


def test_whatever_else_reads_the_convolution():
    def twice(x, k, w, b):
        y = convolved(x, k)
        return normalised(y, w, b), normalised(y, b, w), y

    assert passed(twice, *example()) == ["convolution_batch_norm", "batch_norm"]

    def between(x, k, w, b):
        y = convolved(x, k)
        z = y.exp()
        return normalised(y, w, b) * z

    assert "convolution_batch_norm" in passed(between, *example())

    def made_of_it(x, k, w, b):
        y = convolved(x, k)
        return normalised(y, w, y.mean((0, 2, 3)))

    assert "convolution_batch_norm" not in passed(made_of_it, *example())


def test_gradients_read_the_row():
    found = passed(gradients(lambda x, k, w, b: F.relu(normalised(convolved(x, k), w, b))), *example())
    assert {"convolution_batch_norm_relu", "batch_norm_relu_backward", "convolution_dx", "convolution_dw"} <= set(found)
    assert "convolution" not in found


def test_others_are_left_alone():
    doubles = [t.double() for t in example()]
    assert "convolution" in passed(lambda x, k, w, b: normalised(convolved(x, k), w, b), *doubles)
    deep = gl.randn(2, 3, 4, 4, 4), gl.randn(4, 3, 1, 1, 1)
    assert passed(lambda x, k: normalised(F.conv3d(x, k)), *deep) == ["convolution", "batch_norm"]
    assert passed(lambda x, k, w, b: normalised(convolved(x, k) * 2, w, b), *example()) == ["convolution", "mul", "batch_norm"]
    mean = gl.zeros(4), gl.ones(4)
    assert "convolution_batch_norm" not in passed(lambda x, k, w, b: F.batch_norm(convolved(x, k), *mean, w, b), *example())


def test_norms_are_computed_again_where_memory_is_scarce():
    def chain(x, w, b, *weights):
        for k in weights:
            x = F.relu(normalised(convolved(x, k), w, b))
        return x

    gl.manual_seed(3)
    weights = [gl.randn(4, 4, 3, 3) for _ in range(8)]
    found = passed(gradients(chain), gl.randn(8, 4, 32, 32), gl.rand(4) + 0.5, gl.randn(4), *weights, names=(*NAMES, "recompute_norms"))
    assert found.count("convolution_batch_norm_relu") == 8 and found.count("batch_norm_relu_again") >= 4


# ---------------------------------------------------------------- compiled steps


class Block(nn.Module):
    def __init__(self, channels=8, outputs=16, **options):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs, **options)
        self.second, self.last = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs, **options)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        return F.relu(self.last(self.second(y)) + y)


def trained(make, prepare=lambda model: None, forward=lambda model, x: model(x), compiled=True, **options):
    """Losses and state after some steps, and the rows of the last program."""
    gl.manual_seed(0)
    model = make()
    prepare(model)
    optimizer = gl.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)

    def step(x):
        loss = ((forward(model, x) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = gl.compile(step, **options) if compiled else step
    rng = np.random.default_rng(0)
    found = [run(gl.from_numpy(rng.normal(size=(6, 8, 9, 10)).astype(np.float32))).item() for _ in range(8)]
    names = [c.op.name for c in operations(run.graph.calls)] if compiled else []
    return found, {k: v.numpy() for k, v in model.state_dict().items()}, names


def frozen(model):
    model.norm.requires_grad_(False)


def fixed(model):
    model.norm.eval()


def chosen(model, x):
    x = gl.cond(x.sum() > 1e6, lambda x: model.norm(model.conv(x)) * 2, lambda x: F.relu(model.norm(model.conv(x))), (x,))
    return F.relu(model.last(model.second(x)))


VARIANTS = {
    "plain": {}, "frozen": {"prepare": frozen}, "eval": {"prepare": fixed},
    "cumulative": {"make": lambda: Block(momentum=None)}, "without affine": {"make": lambda: Block(affine=False)},
    "without statistics": {"make": lambda: Block(track_running_stats=False)}, "far": {"prepare": lambda m: m.conv.bias.data.add_(300.0)},
    "cond": {"make": lambda: Block(outputs=8, track_running_stats=False), "forward": chosen},
}  # fmt: skip


SWITCHES = [{"fuse_statistics": False}, {"channels_last": False}, {"channels_last": True}]


@needs_compiler
@pytest.mark.parametrize(("name", "switches"), [*((name, {}) for name in VARIANTS), *(("plain", s) for s in SWITCHES)], ids=str)
def test_steps_learn_as_in_eager_mode(name, switches):
    given = {"make": Block, **VARIANTS[name]}
    want, state, _ = trained(**given, compiled=False)
    found, compiled_state, names = trained(**given, passes=switches)
    np.testing.assert_allclose(found, want, rtol=1e-3)
    for key, value in state.items():
        np.testing.assert_allclose(compiled_state[key], value, rtol=5e-3, atol=5e-3, err_msg=key)
    assert any(n.startswith("convolution_batch_norm") for n in names) == (switches != {"fuse_statistics": False})


@needs_compiler
def test_running_statistics_are_those_of_the_batch():
    gl.manual_seed(0)
    conv, norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16, momentum=1.0)
    step = gl.compile(lambda x: norm(conv(x)))
    for seed in range(3):
        x = gl.from_numpy(np.random.default_rng(seed).normal(size=(5, 8, 7, 6)).astype(np.float32) * 3)
        step(x)
    y = conv(x).detach().numpy().astype(np.float64)
    np.testing.assert_allclose(norm.running_mean.numpy(), y.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), y.var((0, 2, 3), ddof=1), rtol=1e-5)
    assert "convolution_batch_norm" in str(step.graph)


@needs_compiler
@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_half_types(dtype):
    gl.manual_seed(0)
    model = Block().to(dtype)
    run = gl.compile(model)
    x = gl.randn(4, 8, 6, 6).to(dtype)
    with gl.no_grad():
        for _ in range(3):
            found = run(x)
        np.testing.assert_allclose(found.float().numpy(), model(x).float().numpy(), rtol=0.1, atol=0.1)
    with gl.no_grad(), gl.autocast("cpu", dtype=dtype):
        model = Block()
        run = gl.compile(lambda x: model(x))
        for _ in range(3):
            found = run(x.float())
        np.testing.assert_allclose(found.float().numpy(), model(x.float()).float().numpy(), rtol=0.1, atol=0.1)


@needs_compiler
def test_one_image_and_one_pixel():
    gl.manual_seed(0)
    conv, norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
    for shape, padding in (((1, 8, 5, 5), 1), ((2, 8, 3, 3), 0), ((9, 8, 3, 3), 0), ((1, 8, 3, 4), 0)):
        x = gl.randn(*shape)

        def both(x, padding=padding):
            y = F.relu(norm(F.conv2d(x, conv.weight, conv.bias, padding=padding)))
            return y, gl.autograd.grad((y * y).sum(), conv.weight)[0]

        run = gl.compile(both)
        for _ in range(3):
            found = run(x)
        for a, b in zip(found, both(x), strict=True):
            scale = np.abs(b.detach().numpy()).max()
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-3 * max(scale, 1))
