"""The pass `channels_last`: which images lie with their channels last in memory, and that programs compute the same with them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.device import Device
from gradlab.graph import trace
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable
from gradlab.graph.passes import PASSES

F = nn.functional
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")
BEFORE = ("drop_clones", "rewrite", "common_subexpressions", "mask_pooled", "fuse_convolution", "fuse_pooling", "fuse_batch_norm")


@pytest.fixture(autouse=True)
def few_channels(monkeypatch):
    """As on a machine with short vectors, where few channels are enough."""
    monkeypatch.setattr(import_module("gradlab.graph.passes.channels_last"), "FEWEST", 2)


def images(*shape, seed=0):
    return gl.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# ---------------------------------------------------------------- what is marked


def passed(function, *example):
    """The graph after the passes. NumPy, which has everything in row-major order, computes the same from it."""
    graph = before = trace(function, *example).graph
    for name in BEFORE:
        graph = PASSES[name](graph)
    after = PASSES["channels_last"](graph)

    results = []
    for g in (before, after):
        outs = [np.empty(v.spec.shape, v.spec.dtype) for v in g.outputs]
        NumpyExecutable(Line(g.calls, g.inputs, dict(g.state), g.outputs, [], last=g.last)).run([t.numpy() for t in example], outs)
        results.append(outs)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return after


def rows(graph):
    return [c.op.name for c in graph.calls]


def marked(function, *example):
    """Which rows' first results lie channels last, of those that make images."""
    graph = passed(function, *example)
    return [(c.op.name, c.outputs[0].id in graph.last) for c in graph.calls if len(c.outputs[0].spec.shape) == 4 and not c.op.view]


KERNELS = images(8, 3, 3, 3, seed=1), images(8, 8, 3, 3, seed=2)


def test_what_lies_between_convolutions():
    def function(x, a, b):
        y = F.relu(F.batch_norm(F.conv2d(x, a, padding=1), None, None, training=True))
        return F.conv2d(y * 2 + 1, b).mean((2, 3))

    found = marked(function, images(2, 3, 16, 16), *KERNELS)
    assert found == [(name, True) for name in ["convolution", "batch_norm", "relu", "mul", "add", "convolution"]]


def test_gradients_too():
    def function(x, a, b):
        leaves = [t.detach().requires_grad_() for t in (x, a, b)]
        y = F.conv2d(F.relu(F.conv2d(leaves[0], leaves[1])), leaves[2])
        return gl.autograd.grad(y.square().sum(), leaves)

    graph = passed(function, images(2, 3, 9, 9), *KERNELS)
    makers = {c.op.name: c for c in graph.calls}
    assert makers["relu_backward"].outputs[0].id in graph.last
    assert not {v.id for v in graph.outputs} & graph.last  # the gradients of the images and of the weights leave


@pytest.mark.parametrize(("name", "pool"), {"avg_pool": lambda y: F.avg_pool2d(y, 2), "max_pool": lambda y: F.max_pool2d(y, 2)}.items())
def test_so_do_pools_and_their_gradients(name, pool):
    def function(x, a, b):
        leaves = [t.detach().requires_grad_() for t in (x, a, b)]
        return gl.autograd.grad(F.conv2d(pool(F.conv2d(leaves[0], leaves[1])), leaves[2]).square().sum(), leaves)

    found = dict(marked(function, images(2, 3, 16, 16), *KERNELS))
    assert found[name] and found[f"{name}_backward"]


def test_what_enters_or_leaves_stays_and_what_is_added_to_it():
    def function(x, a, b):
        y = F.conv2d(x, a, padding=1)
        return y * 2 + 1

    assert not any(last for _, last in marked(function, images(2, 3, 8, 8), *KERNELS))
    two = marked(lambda x, a, b: F.conv2d(F.conv2d(x, a), b), images(2, 3, 8, 8), *KERNELS)
    assert two == [("convolution", True), ("convolution", False)]


def test_copies_where_they_cost_less_than_they_gain():
    def function(x, a, b):
        y = F.conv2d(x, a, padding=1)
        for _ in range(4):
            y = y + F.conv2d(F.relu(y), b, padding=1)
        return y, y.flatten(1).sum(1), F.conv2d(F.softmax(y, 1), b)

    graph = passed(function, images(2, 3, 8, 8), *KERNELS)
    assert rows(graph)[:10] == ["convolution", *["relu", "convolution", "add"] * 3]
    assert all(c.outputs[0].id in graph.last for c in graph.calls[:13])
    (clone,) = [c for c in graph.calls if c.op.name == "clone"]
    assert clone.inputs[0].id in graph.last
    assert clone.outputs[0].id not in graph.last
    assert graph.outputs[0] is clone.outputs[0]
    assert {c.op.name for c in graph.calls if clone.outputs[0] in c.inputs} == {"view", "softmax"}  # which know no other order


def test_a_view_that_needs_the_order():
    def function(x, a, b):
        y = F.conv2d(x, a)
        return F.conv2d(y, b).flatten(1), F.conv2d(F.conv2d(y, -b), b).permute(0, 2, 3, 1).reshape(-1, 8) @ gl.ones(8, 2)

    found = marked(function, images(2, 3, 9, 9), *KERNELS)
    # Of the last, pixels are rows of a matrix as they lie.
    assert [last for name, last in found if name == "convolution"] == [True, False, True, True]


def test_pixels_of_channels_are_a_view():
    def block(x, a, b):
        y = F.conv2d(x, a)
        z = F.layer_norm(y.permute(0, 2, 3, 1), (8,)) @ gl.ones(8, 8)
        return F.conv2d(y + z.permute(0, 3, 1, 2), b).mean((2, 3))

    graph = passed(block, images(2, 3, 9, 9), *KERNELS)
    assert {c.op.name for c in graph.calls for v in c.outputs if v.id in graph.last} == {"convolution", "add"}


def test_parts_of_images():
    def function(x, a, b):
        y = F.relu(F.conv2d(x, a, padding=1))
        y = F.pad(y[:, 2:6, ::2, ::2], (0, 0, 0, 0, 2, 2)) + 1
        y = gl.cat([y, x[:, :, ::2, ::2] * 2, F.conv2d(y, b, padding=1)], dim=1)
        return F.conv2d(y, gl.ones(3, 19, 1, 1)).mean((2, 3))

    found = marked(function, images(2, 3, 8, 8), *KERNELS)
    assert {name for name, last in found if not last} == {"full"}
    assert ("clone", True) in found  # of the argument's part
    assert ("cat", True) in found


def test_few_channels_do_not_fill_vectors(monkeypatch):
    def function(x, a, b):
        return F.conv2d(F.conv2d(x, a), b).mean((2, 3))

    example = images(2, 3, 9, 9), *KERNELS
    assert marked(function, *example) == [("convolution", True)] * 2
    monkeypatch.setattr(import_module("gradlab.graph.passes.channels_last"), "FEWEST", 16)
    assert marked(function, *example) == [("convolution", False)] * 2


def test_what_does_not_matter():
    one = images(1, 3, 3, 3)
    assert not any(last for _, last in marked(lambda x, a: F.conv2d(F.conv2d(x, a), gl.ones(1, 1, 3, 3)).sum(), images(2, 3, 9, 9), one))
    assert not any(last for _, last in marked(lambda x: F.relu(x * 2).mean((2, 3)), images(2, 3, 9, 9)))
    wide = images(4, 3, 9, 9)  # as large as the images
    assert marked(lambda x, a: F.conv2d(x, a).mean((2, 3)), images(2, 3, 9, 9), wide) == [("convolution", False)]


def test_weights_stay():
    def function(x, a):
        standard = (a - a.mean((1, 2, 3), keepdim=True)) * 2
        return F.conv2d(x, standard).mean((2, 3))

    found = marked(function, images(2, 3, 9, 9), KERNELS[0])
    assert dict(found)["convolution"]
    assert not dict(found)["mul"]


def test_rows_that_cannot():
    def function(x, a, b):
        y = F.softmax(F.relu(F.conv2d(x, a)), dim=1)
        return F.conv2d(F.conv2d(y, b), b).mean((2, 3))

    found = marked(function, images(2, 3, 9, 9), *KERNELS)
    assert [last for _, last in found] == [False, False, True, True][: len(found)] or found[0] == ("convolution_relu", False)


def test_a_gpu_has_its_own_order_and_graphs_say_which():
    graph = passed(lambda x, a, b: F.conv2d(F.conv2d(x, a), b).mean((2, 3)), images(2, 3, 9, 9), *KERNELS)
    assert "float32[2, 8, 7, 7] channels last = convolution(" in str(graph)
    assert PASSES["channels_last"](replace(graph, device=Device("cuda"), last=frozenset())).last == frozenset()


# ---------------------------------------------------------------- the same results


class Block(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.a, self.b = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.m, self.n = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.stride, self.more = stride, outside - inside

    def forward(self, x):
        y = self.n(self.b(F.relu(self.m(self.a(x)))))
        if self.more:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(x + y)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 20, 3, 2, 1), nn.Conv2d(32, 4, 1)
        self.up = nn.ConvTranspose2d(20, 20, 2, 2)

    def forward(self, x):
        skip = F.silu(self.a(x))
        deep = F.relu(self.b(skip))
        up = self.up(deep) + F.interpolate(deep, scale_factor=2.0, mode="bilinear")
        return self.c(gl.cat([skip, up], 1))


class Excite(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 24, 3), nn.Conv2d(24, 24, 3, groups=24, padding=1), nn.Conv2d(24, 10, 1)
        self.squeeze = nn.Linear(24, 24)

    def forward(self, x):
        y = F.relu(self.b(F.relu(self.a(x))))
        gate = gl.sigmoid(self.squeeze(y.mean((2, 3))))
        y = y * gate[:, :, None, None]
        return self.c(F.dropout(y, 0.0) * y.amax(1, keepdim=True).sigmoid())


MODELS = {
    "norms": (
        (4, 3, 11, 9),
        lambda: [nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, bias=False), nn.BatchNorm2d(8)],
    ),
    "residual": ((5, 3, 16, 16), lambda: [nn.Conv2d(3, 8, 3), Block(8, 8), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1)]),
    "poolings": (
        (3, 3, 21, 17),
        lambda: [
            nn.Conv2d(3, 9, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(9, 8, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.GELU(),
            nn.Conv2d(8, 8, 3, padding=1), nn.AvgPool2d(3, 2, 1), nn.Conv2d(8, 8, 1),
        ],
    ),
    "flat": (
        (4, 3, 10, 10),
        lambda: [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 5)],
    ),
    "separable": (
        (2, 3, 9, 12),
        lambda: [
            nn.Conv2d(3, 10, 1), nn.Conv2d(10, 10, 3, padding=1, groups=10, bias=False), nn.BatchNorm2d(10), nn.Hardswish(),
            nn.Conv2d(10, 33, 1), nn.Conv2d(33, 33, 5, 2, 2, groups=33, bias=False), nn.BatchNorm2d(33), nn.ReLU6(), nn.Conv2d(33, 6, 1),
        ],
    ),
    "unet": ((2, 3, 12, 16), lambda: [UNet()]),
    "excite": ((2, 3, 9, 10), lambda: [Excite()]),
    "one channel": (
        (3, 1, 9, 9),
        lambda: [nn.Conv2d(1, 1, 3, bias=False), nn.BatchNorm2d(1), nn.ReLU(), nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 1)],
    ),
    "one image": (
        (1, 3, 13, 12),
        lambda: [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 70, 3, dilation=2), nn.Tanh()],
    ),
    "groups": (
        (2, 4, 9, 9),
        lambda: [
            nn.Conv2d(4, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.PixelShuffle(2), nn.Conv2d(2, 4, 3),
        ],
    ),
}  # fmt: skip


def trained(make, x, on, steps=3, autocast=None):
    gl.manual_seed(0)
    model = nn.Sequential(*make())
    optimizer = gl.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def forward(x):
        if autocast is None:
            return model(x)
        with gl.autocast("cpu", dtype=autocast):
            return model(x).float()

    @gl.compile(passes={"channels_last": on})
    def step(x):
        y = forward(x)
        loss = y.square().mean() + y.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, y

    found = [step(x) for _ in range(steps)]
    model.eval()
    predict = gl.compile(lambda x: forward(x), passes={"channels_last": on})
    with gl.no_grad():
        evaluated = [predict(x) for _ in range(2)]
    arrays = [t.detach().numpy() for pair in (*found, evaluated) for t in pair]
    return arrays + [p.detach().numpy().copy() for p in (*model.parameters(), *model.buffers())], step, predict


@pytest.mark.parametrize("name", MODELS)
@needs_compiler
def test_training_and_evaluation(name):
    shape, make = MODELS[name]
    x = images(*shape)
    (wanted, *_), (found, step, predict) = (trained(make, x, on) for on in (False, True))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * max(1, np.abs(want).max()))
    if name != "one channel":
        assert step.graph.last
        assert predict.graph.last


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
@needs_compiler
def test_half_types(dtype):
    shape, make = MODELS["residual"]
    (wanted, *_), (found, step, _) = (trained(make, images(*shape), on, 2, dtype) for on in (False, True))
    made = {v.spec.dtype.name for c in step.graph.calls for v in c.outputs if v.id in step.graph.last}
    assert made >= {"float32"} | ({"float16"} if dtype == gl.float16 else set())  # bfloat16 is computed in float32
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=5e-2, atol=5e-2 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("name", ["norms", "residual", "poolings", "unet"])
@needs_compiler
def test_gradients_from_outside(name):
    shape, make = MODELS[name]

    def gradients(on):
        gl.manual_seed(0)
        model = nn.Sequential(*make())
        compiled = gl.compile(lambda x: model(x), passes={"channels_last": on})
        for _ in range(3):
            x = images(*shape).requires_grad_()
            model.zero_grad()
            y = compiled(x)
            (y * images(*y.shape, seed=3)).sum().backward()
        return [t.grad.numpy().copy() for t in (x, *model.parameters())], compiled

    (wanted, _), (found, compiled) = gradients(False), gradients(True)
    assert compiled.graph.last
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * np.abs(want).max())


@needs_compiler
def test_bodies_of_control_flow():
    gl.manual_seed(0)
    a, b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def body(carry, x):
        new = gl.tanh(b(F.relu(a(carry + x)))) * 0.5
        return new, new.mean((1, 2, 3))

    def make(on):
        def function(start, xs):
            end, means = gl.scan(body, start, xs)
            return gl.cond(means.sum() > 1e9, lambda end: end, lambda end: b(F.relu(a(end))), (end,)), means

        return gl.compile(function, passes={"channels_last": on})

    start, xs = images(2, 3, 7, 7), images(4, 2, 3, 7, 7, seed=1)
    results = []
    for on in (False, True):
        compiled = make(on)
        for _ in range(3):
            found = compiled(start, xs)
        results.append(found)
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_program_in_numpy(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILER", "none")
    compiler.compiles.cache_clear()
    try:
        shape, make = MODELS["residual"]
        (wanted, *_), (found, step, _) = (trained(make, images(*shape), on) for on in (False, True))
        assert step.graph.last  # which nobody looks at
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    finally:
        compiler.compiles.cache_clear()
