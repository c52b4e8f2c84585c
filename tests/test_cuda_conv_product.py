"""Convolutions on the (emulated) GPU against NumPy in every combination: dimensions, stride, padding, dilation, groups, memory, dtype,
bias, activation; forward, transposed (which is the input's gradient) and the weight's gradient. A part always, all in the whole suite."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from test_cuda_rows import TOLERANCE

import gradlab as gl
from gradlab.backends.cuda import launch
from gradlab.dtype import as_numpy

from samples import conv as references

F = gl.nn.functional
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64")
ERF = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "gelu": lambda z: z / 2 * (1 + ERF(z / 2**0.5)),
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
}
SIZES = {1: (13,), 2: (7, 5), 3: (5, 4, 6)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 3, 2)}
STRIDES = {1: (2,), 2: (2, 3), 3: (1, 2, 3)}
PADDINGS = {1: (2,), 2: (1, 2), 3: (1, 0, 2)}
DILATIONS = {1: (3,), 2: (1, 2), 3: (2, 1, 3)}
# channels, outputs, groups: one group of more and of fewer rows than a tile has, groups of both kinds, depthwise
CHANNELS = {"wide": (24, 40, 1), "narrow": (5, 7, 1), "groups": (48, 40, 2), "few": (6, 9, 3), "depthwise": (5, 10, 5)}


class Case(NamedTuple):
    """A convolution: its shapes and numbers."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def numbers(self):
        return {n: getattr(self, n) for n in ("stride", "padding", "dilation", "groups")}

    @property
    def y(self):
        sizes = references.outputs_of(self.x[2:], self.w[2:], self.stride, self.padding, self.dilation)
        return (self.x[0], self.w[0], *sizes)


def case(rank, channels, strided=True, padded=True, dilated=True, images=2):
    inputs, outputs, groups = CHANNELS[channels]
    ones = (1,) * rank
    kernel = KERNELS[rank]
    return Case(
        (images, inputs, *SIZES[rank]), (outputs, inputs // groups, *kernel), STRIDES[rank] if strided else ones,
        PADDINGS[rank] if padded else (0,) * rank, DILATIONS[rank] if dilated else ones, groups,
    )  # fmt: skip


class Convolved:
    """A case's arrays on the device, in one dtype and order of memory; `forward`, `transposed` and `weight` compare with NumPy."""

    def __init__(self, cuda, of, dtype, last=False, bias=True):
        self.cuda, self.of, self.dtype = cuda, of, dtype
        self.storage = as_numpy("float32" if dtype == "tf32" else dtype)
        rng = np.random.default_rng(7)
        shapes = {"x": of.x, "w": of.w, "dy": of.y, "b": of.w[:1], "c": of.x[1:2]}
        self.host = {n: rng.normal(size=s).astype(self.storage) for n, s in shapes.items()}
        self.exact = {n: a.astype(np.float64) for n, a in self.host.items()}
        self.arrays = {n: self.upload(a, last and n in ("x", "dy")) for n, a in self.host.items()}
        self.bias = bias
        gl.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")

    def upload(self, array, last):
        driver = self.cuda.driver
        if not last:
            return driver.upload(array)
        rank = array.ndim
        return driver.upload(np.ascontiguousarray(np.moveaxis(array, 1, -1))).transpose(0, rank - 1, *range(1, rank - 1))

    def run(self, rule, inputs, shapes, params, orders=("forward", "warps")):
        """The outputs: the same bits twice, in any order of threads; and the launches of one run."""
        driver, found = self.cuda.driver, []
        for order in orders:
            if driver.name == "emulated":
                driver.order = order
            outputs = [self.upload(np.full(s, np.nan, self.storage), False) for s in shapes]
            before = getattr(driver, "launches", 0)
            rule(self.cuda.work, [None if n is None else self.arrays[n] for n in inputs], outputs, params)
            launches = getattr(driver, "launches", 0) - before
            found.append([driver.download(y) for y in outputs])
        if driver.name == "emulated":
            driver.order = "forward"
        for a, b in zip(*found[:2], strict=True):
            np.testing.assert_array_equal(a, b, err_msg="the order of threads shows in the result")
        return found[0], launches

    def near(self, got, want):
        tolerance = {**TOLERANCE, "tf32": 2e-3}[self.dtype] * np.abs(want).max(initial=1)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=tolerance)

    def ends(self, rule, inputs, z, activation, keep, params):
        """The rule with its bias and activation: the result, and what the activation was taken of."""
        found, launches = self.run(rule, inputs, [z.shape] * (1 + keep), {**params, "activation": activation})
        self.near(found[0], ACTIVATIONS[activation](z))
        if keep:
            self.near(found[1], z)
        return launches

    def forward(self, activation=None, keep=False):
        b = "b" if self.bias else None
        z = references.convolution(self.exact["x"], self.exact["w"], self.exact["b"] if self.bias else None, **self.of.numbers)
        return self.ends(launch.conv.convolution, ("x", "w", b), z, activation, keep, self.of.numbers)

    def transposed(self, activation=None, keep=False):
        c = self.exact["c"] if self.bias else None
        z = references.convolution_transpose(self.exact["dy"], self.exact["w"], c, shape=self.of.x, **self.of.numbers)
        inputs = ("dy", "w", "c" if self.bias else None)
        return self.ends(launch.conv.convolution_dx, inputs, z, activation, keep, self.of.numbers)

    def weight(self):
        found, launches = self.run(launch.conv.convolution_dw, ("x", "dy"), [self.of.w], self.of.numbers)
        self.near(found[0], references.convolution_dw(self.exact["x"], self.exact["dy"], shape=self.of.w, **self.of.numbers))
        return launches


@pytest.fixture(autouse=True)
def _precision():
    """Sets float32's precision back."""
    yield
    gl.set_float32_matmul_precision("highest")


def marked(found, kept):
    """All of them as parameters; the whole suite's those that are not kept."""
    return [pytest.param(*one, marks=() if kept(one) else pytest.mark.whole) for one in found]


def few(one):
    return (
        one[:3] in ((2, "wide", "float32"), (2, "depthwise", "float32"))
        or one in ((1, "groups", "float16", True), (2, "wide", "tf32", True), (3, "few", "float32", False), (1, "narrow", "float32", False))
    )


@pytest.mark.parametrize(
    ("rank", "channels", "dtype", "last"), marked(itertools.product((1, 2, 3), CHANNELS, DTYPES, (False, True)), few)
)
def test_every_geometry(cuda, request, rank, channels, dtype, last):
    """The activation and the bias change from one geometry to the next, so that each meets each."""
    kinds = [*ACTIVATIONS, *ACTIVATIONS]
    geometries = list(itertools.product((False, True), repeat=3))
    if not request.config.getoption("--full"):
        geometries = geometries[::7]
    for number, (strided, padded, dilated) in enumerate(geometries):
        made = Convolved(cuda, case(rank, channels, strided, padded, dilated), dtype, last, bias=number % 2 == 0)
        made.forward(kinds[number])
        made.transposed(kinds[number + 2])
        made.weight()


def usual(one):
    rank, channels, dtype, activation, bias = one
    if dtype == "float32":
        return bias and (activation == "gelu" or (channels == "wide" and rank == 2))
    few = (("wide", "float16"), ("wide", "tf32"), ("narrow", "tf32"))
    return (rank, activation, bias) == (2, "silu", True) and (channels, dtype) in few


@pytest.mark.parametrize(
    ("rank", "channels", "dtype", "activation", "bias"),
    marked(itertools.product((1, 2, 3), CHANNELS, DTYPES, ACTIVATIONS, (True, False)), usual),
)
def test_bias_and_activation_are_part_of_every_kernel(cuda, rank, channels, dtype, activation, bias):
    made = Convolved(cuda, case(rank, channels), dtype, bias=bias)
    plain = made.run(launch.conv.convolution_dx, ("dy", "w"), [made.of.x], made.of.numbers, ("forward", "forward"))[1]
    for keep in (False, True):
        launches = made.forward(activation, keep), made.transposed(activation, keep)
        if cuda.driver.name == "emulated":
            assert launches == (1, plain)
            # Tiles of one or two dimensions take a transposed convolution's weight turned, as dx's; those of a ring may have few rows.
            tiled = channels in ("wide", "groups") or (channels, dtype) == ("narrow", "tf32")
            assert plain == (2 if rank < 3 and tiled else 1)


@pytest.mark.parametrize("dtype", [pytest.param(d, marks=() if d == "float16" else pytest.mark.whole) for d in DTYPES])
@pytest.mark.parametrize("channels", ["wide", "groups"])
def test_a_weights_gradient_reads_channels_last_memory_16_bytes_at_a_time(cuda, monkeypatch, channels, dtype):
    kernels, find = [], type(cuda.work).kernel

    def kernel(self, file, name, *types):
        kernels.append((name, *types))
        return find(self, file, name, *types)

    monkeypatch.setattr(type(cuda.work), "kernel", kernel)
    Convolved(cuda, case(2, channels), dtype, last=True).weight()
    assert [k[-1] for k in kernels if k[0] in ("convolve_planes", "convolve_ahead")] == [True] * 2
    Convolved(cuda, Case((3, 24, 40, 9), (20, 24, 3, 3), (1, 1), (1, 1), (1, 1), 1), dtype, last=True).weight()  # in shares
    assert "add_shares" in [k[0] for k in kernels]


@pytest.mark.parametrize("channels", CHANNELS)
def test_an_empty_batch(cuda, channels):
    made = Convolved(cuda, case(2, channels, images=0), "float32")
    made.forward("gelu", keep=True)
    made.transposed("silu")
    made.weight()


@pytest.mark.parametrize(("rank", "channels", "last"), [(2, "wide", True), (1, "depthwise", False), (3, "narrow", False)])
def test_the_public_functions_and_their_gradients(cuda, rank, channels, last):
    """Of the input, the weight and the bias; transposed with output_padding."""
    of = case(rank, channels)
    rng = np.random.default_rng(8)
    arrays = [rng.normal(size=s).astype(np.float32) for s in (of.x, of.w, of.w[:1], of.y, of.x[1:2])]

    def results(device):
        x, w, b, dy, c = (gl.tensor(a, device=device) for a in arrays)
        if last:
            order, back = (0, *range(2, rank + 2), 1), (0, rank + 1, *range(1, rank + 1))
            x, dy = (t.permute(order).contiguous().permute(back) for t in (x, dy))
        tensors = [t.requires_grad_() for t in (x, w, b, dy, c)]
        y = getattr(F, f"conv{rank}d")(x, w, b, **of.numbers)
        reach = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in zip(of.y[2:], of.stride, of.padding, of.dilation, of.w[2:])]
        extra = tuple(n - r for n, r in zip(of.x[2:], reach, strict=True))
        z = getattr(F, f"conv_transpose{rank}d")(dy, w, c, output_padding=extra, **of.numbers)
        assert z.shape == of.x
        return [t.numpy(force=True) for t in (y, z, *gl.autograd.grad((y * y).sum() + (z * z).sum(), tensors))]

    for got, want in zip(results("cuda"), results("cpu"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
