"""Kernels of pairs of bfloat16 numbers (pairs.h): against float64, by the processor's instructions and without them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import test_native_winograd as plain
from native_tasks import Memory

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import products
from gradlab.graph.executables.native import bfloat16

from repository import ROOT

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
F = gl.nn.functional
EPSILON = 2.0**-23


def exact(a, b):
    """The product of rounded operands in float64, and the sum of the terms' sizes."""
    a, b = (bfloat16.rounded(x).astype(np.float64) for x in (a, b))
    return a @ b, np.abs(a) @ np.abs(b)


@pytest.mark.parametrize("m, n", [(1, 1), (12, 32), (31, 33), (100, 257), (257, 100), (4, 900)])
@pytest.mark.parametrize("k", [1, 2, 7, 33, 100, 1025, 2100])
def test_products(m, n, k):
    """Any order of the operands, with a bias and without; the same bits for one thread and three. A sum of k terms in float32 is as far as
    k roundings of their sizes from the exact one; blocks and pairs make that less."""
    r = np.random.default_rng(m + n + k)
    a, b, bias = (r.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n), (n,)))
    want, size = exact(a, b)
    for left, right, added in itertools.product(("rows", "columns", "apart"), ("rows", "columns", "apart"), (False, True)):
        memory, places = Memory(), []
        for array, way in ((a, left), (b, right)):
            if way == "apart":
                place = memory.put(np.repeat(array, 2, 1))
                places.append(place._replace(shape=array.shape, strides=(place.strides[0], 2)))
            elif way == "columns":
                place = memory.put(np.ascontiguousarray(array.T))
                places.append(place._replace(shape=place.shape[::-1], strides=place.strides[::-1]))
            else:
                places.append(memory.put(array))
        c = memory.put(np.full((m, n), 7, np.float32))
        tasks = products.products(c, *places, memory.put(bias) if added else None, memory.ctx, bfloat16=True)
        assert [task.kernel for task in tasks] == [products.BFLOAT16]
        found = [memory.run(tasks, threads).get(c).copy() for threads in (1, 3)]
        bound = (0.5 * k + 2) * EPSILON * (size + np.abs(bias) * added)
        assert (np.abs(found[0] - want - bias * added) <= bound).all(), (left, right, added)
        np.testing.assert_array_equal(*found)


def test_what_is_not_finite_stays():
    a, b = np.ones((40, 70), np.float32), np.ones((70, 50), np.float32)
    a[3, 69], a[5, 0], b[8, 49], b[1, 2] = np.inf, np.nan, -np.inf, 3.4e38  # which rounds to infinity
    memory = Memory()
    c = memory.put(np.zeros((40, 50), np.float32))
    tasks = products.products(c, memory.put(a), memory.put(b), None, memory.ctx, bfloat16=True)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(memory.run(tasks).get(c), bfloat16.rounded(a) @ bfloat16.rounded(b))


@pytest.mark.parametrize("case", plain.SIZES, ids=str)
def test_convolutions(case):
    """By Winograd's algorithm, whose transformed operands are rounded: beside float64 less than twice as far as the exact convolution of
    rounded operands, rounded (1.3 to 1.7 times; of a sum of so many terms that no chance is left). The same bits in any order of memory."""
    x, k, b, g = plain.operands(*case)
    b = np.zeros_like(b)
    wanted = plain.exact(x, k, b, g, case[-1])
    direct = plain.exact(*map(bfloat16.rounded, (x, k, b, g)), case[-1])
    first, *others = [plain.computed(x, k, b, g, case[-1], orders, n, bfloat16=True) for orders in plain.ORDERS for n in (1, 3)]
    for got, other, want in zip(first, direct, wanted, strict=True):
        assert plain.errors(got, want)[0] < 2 * plain.errors(bfloat16.rounded(other).astype(np.float64), want)[0]
    for other in others:
        for got, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_infinite_pixel_stays_where_it_is():
    x, k, b, g = plain.operands(2, 16, 32, 9, 9, 1)
    x[1, 3, 4, 4] = np.inf
    y, _, dw = plain.computed(x, k, b, g, 1, bfloat16=True)
    far = ~np.isfinite(y)
    assert far[1, :, 3:6, 3:6].all()
    assert far.sum() == 9 * 32
    assert not np.isfinite(dw[:, 3]).any()
    assert np.isfinite(np.delete(dw, 3, 1)).all()


class Layers(gl.nn.Module):
    """Products of every form: layers, a batch, one transposed, one of few rows, one that is narrow."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = gl.nn.Linear(40, 96), gl.nn.Linear(96, 64, bias=False), gl.nn.Linear(64, 5)

    def forward(self, x):
        h = self.second(F.gelu(self.first(x), approximate="tanh")).relu()
        h = h + (h @ h.mT) @ h * 1e-3
        return self.last(h), self.first(x[0, :2])


def grown(function, *tensors):
    """What a function returns and the gradients of its sum, in float64."""
    for t in tensors:
        t.grad = None
    found = function()
    sum((y * y).sum() for y in found).backward()
    return [y.detach().float().numpy().astype(np.float64) for y in (*found, *(t.grad for t in tensors))]


def test_a_step_is_as_near_as_eagerly():
    """Compiled and eager results under autocast differ by roundings alone: both are as far from float32."""
    gl.manual_seed(0)
    model, x = Layers(), gl.randn(6, 50, 40, requires_grad=True)
    tensors = [x, *model.parameters()]

    def lowered():
        with gl.autocast("cpu", gl.bfloat16):
            return model(x)

    compiled = gl.compile(lowered)
    grown(compiled, *tensors)
    got = grown(compiled, *tensors)
    for mine, eager, want in zip(got, grown(lowered, *tensors), grown(lambda: model(x), *tensors), strict=True):
        size = np.sqrt(np.mean(want**2))
        far = [np.sqrt(np.mean((y - want) ** 2)) / size for y in (mine, eager)]
        assert far[0] < 1.3 * far[1] + 1e-3 and np.sqrt(np.mean((mine - eager) ** 2)) < 1.5 * far[1] * size + 1e-3 * size, far
    assert (kernels(compiled) >= {products.BFLOAT16}) == compiler.bfloat16()


def kernels(compiled):
    return {k for p in compiled.programs for s in p.runner.executable.report for k in s.kernels}


def test_a_network_of_convolutions():
    """With a ReLU and a pooling behind them, which are part of the kernel, as eagerly: what is stored was rounded before."""
    gl.manual_seed(1)
    net = gl.nn.Sequential(gl.nn.Conv2d(16, 32, 3, padding=1), gl.nn.ReLU(), gl.nn.MaxPool2d(2), gl.nn.Conv2d(32, 16, 3), gl.nn.ReLU())
    x = gl.randn(8, 16, 24, 24, requires_grad=True)
    tensors = [x, *net.parameters()]

    def lowered():
        with gl.autocast("cpu", gl.bfloat16):
            return [net(x)]

    compiled = gl.compile(lowered)
    grown(compiled, *tensors)
    got = grown(compiled, *tensors)
    assert got[0].tolist() == bfloat16.rounded(got[0].astype(np.float32)).tolist()
    for mine, eager, want in zip(got, grown(lowered, *tensors), grown(lambda: [net(x)], *tensors), strict=True):
        size = np.sqrt(np.mean(want**2))
        far = [np.sqrt(np.mean((y - want) ** 2)) / size for y in (mine, eager)]
        assert far[0] < 2 * far[1], far
    assert ("gradlab_winograd_bfloat16" in kernels(compiled)) == compiler.bfloat16()
    steps = compiled.programs[0].runner.executable.steps
    assert any("convolution_relu_pool_bfloat16" in s for s in steps) == compiler.bfloat16(), steps


def test_weights_are_rounded_as_they_are_packed():
    """No loop rounds what products alone read."""
    gl.manual_seed(0)
    w, x = gl.randn(64, 64), gl.randn(50, 64)

    @gl.compile
    def lowered(x):
        with gl.autocast("cpu", gl.bfloat16):
            return F.layer_norm(x, (64,)) @ w

    found = [lowered(x) for _ in range(3)][-1]
    steps = lowered.programs[0].runner.executable.steps
    if compiler.bfloat16():
        assert steps[:2] == ["kernel: layer_norm", "kernel: matmul_bfloat16"], steps
    want = bfloat16.rounded(F.layer_norm(x, (64,)).numpy()) @ bfloat16.rounded(w.numpy())
    np.testing.assert_allclose(found.float().numpy(), want, rtol=2**-7, atol=1e-3)


CHILD = """
import numpy as np, gradlab as gl
from gradlab.backends.native import compiler
w, x = gl.linspace(-1, 1, 64 * 64).reshape(64, 64), gl.linspace(-2, 2, 50 * 64).reshape(50, 64)
@gl.compile
def lowered(x):
    with gl.autocast("cpu", gl.bfloat16):
        return (x @ w).float(), gl.nn.functional.conv2d(images, taps, padding=1).float()
images, taps = (gl.from_numpy(np.random.default_rng(0).normal(size=s).astype(np.float32)) for s in ((4, 32, 20, 20), (32, 32, 3, 3)))
y, z = [lowered(x) for _ in range(3)][-1]
report = lowered.programs[0].runner.executable.report
print(compiler.bfloat16(), any("gradlab_product_bfloat16" in s.kernels for s in report), float(y.sum()), float(z.square().sum()))
"""


@pytest.mark.skipif(not compiler.compiles(), reason="no C++ compiler")
@pytest.mark.parametrize("flag", ["-mno-avx512bf16", "-mno-avx512f", ""])
def test_without_the_instructions(flag, tmp_path):
    """A compiler that may not use them makes the same products of others; with GRADLAB_BFLOAT16=0 float32 kernels serve. (Of 32 channels,
    for which vectors of both widths need the same parts of a file: `needs.py` goes by the processor, not by what the compiler was told.)"""
    if flag and (not compiler.bfloat16() or compiler.compiler().is_zig):
        pytest.skip("the processor has none, or the compiler is another one")
    said = {}
    for name, more in (("own", {}), ("other", {"CXX": f"{compiler.compiler().command[0]} {flag}"} if flag else {"GRADLAB_BFLOAT16": "0"})):
        environment = {**os.environ, **more, "PYTHONPATH": str(ROOT), "GRADLAB_CACHE": str(tmp_path / name), "GRADLAB_NATIVE": "0"}
        done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout.split()
    assert said["other"][:2] == (["True", "True"] if flag else ["False", "False"])
    for own, other in zip(said["own"][2:], said["other"][2:], strict=True):  # roundings that lean to one side would show in the squares
        assert float(own) == pytest.approx(float(other), rel=3e-4)
