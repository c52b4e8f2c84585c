"""Convolutions and what follows them in one launch: `gl.compile` on the (emulated) GPU finds biases and activations, and says so."""

from __future__ import annotations

import numpy as np
import pytest
from test_compile_cuda import executable
from test_compile_epilogues import kernels, same, training

import gradlab as gl
from gradlab import nn
from gradlab.graph.executables.cuda import conv_epilogues

F = nn.functional
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "silu": nn.SiLU}


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    """Small steps are not joined to one kernel."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def network(kind):
    """Wide, narrow, grouped, depthwise, transposed; each before an activation, and then something that is none."""
    act = ACTIVATIONS[kind]
    return nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1), act(), nn.Conv2d(20, 6, 2), act(), nn.Conv2d(6, 6, 3, groups=6, padding=1, bias=False), act(),
        nn.Conv2d(6, 4, 1, groups=2), act(), nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), act(),
        nn.ConvTranspose2d(6, 18, 2, bias=False), act(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(108, 8),
    )  # fmt: skip


def near(got, want):
    np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=3e-5, atol=1e-6)


def line(run):
    return [n for n in kernels(run) if "conv" in n or n in ACTIVATIONS]


@pytest.mark.parametrize("kind", ["silu", *(pytest.param(k, marks=pytest.mark.whole) for k in ("relu", "gelu", "gelu_tanh"))])
def test_every_kind_of_convolution_has_its_activation_in_its_kernel(cuda, kind):
    model = network(kind).to("cuda").requires_grad_(False)
    run, x = gl.compile(lambda x: model(x)), gl.randn(2, 3, 6, 5, device="cuda")
    for _ in range(3):
        near(run(x), model(x))
    assert line(run) == ["convolution_act"] * 4 + ["convolution_transpose_act"] * 2
    said = run.stats().epilogues
    assert said == {f"convolution + {kind}: one kernel": 4, "convolution_dx + bias: one kernel": 1,
                    f"convolution_transpose + {kind}: one kernel": 1, f"convolution_dx + {kind}: one kernel": 1}  # fmt: skip
    assert "\nepilogues\n" in str(run.stats())


def test_a_step_of_training_keeps_what_the_activation_was_taken_of(cuda):
    want = training(network, "gelu", (2, 3, 6, 5), lambda f: f, "cpu", 3)
    got = training(network, "gelu", (2, 3, 6, 5), gl.compile, "cuda", 3)
    same(got, want)
    names = line(got[2])
    assert names.count("convolution_act_sums") == 4
    assert names.count("convolution_transpose_act_sums") == 2
    assert not {"convolution_act", "gelu", "convolution_transpose_act"} & set(names)
    assert got[2].stats().epilogues["convolution + gelu + its sums: one kernel"] == 4


def test_what_is_not_joined_and_why(cuda):
    w, v = gl.randn(20, 3, 3, device="cuda"), gl.randn(3, 20, 3, device="cuda")
    b, computed = gl.randn(20, device="cuda"), gl.randn(20, 1, device="cuda")

    @gl.compile
    def both(x, y):
        z = F.conv1d(x, w)
        t = F.conv_transpose1d(y, v)
        return z, F.silu(z) * 2 + z, t + (computed * t.mean()).exp(), F.conv_transpose1d(y, v, b, stride=2)

    def plain(x, y):
        z = F.conv1d(x, w)
        t = F.conv_transpose1d(y, v)
        return z, F.silu(z) * 2 + z, t + (computed * t.mean()).exp(), F.conv_transpose1d(y, v, b, stride=2)

    x, y = gl.randn(2, 3, 9, device="cuda"), gl.randn(2, 3, 5, device="cuda")
    for _ in range(2):
        for got, want in zip(both(x, y), plain(x, y), strict=True):
            near(got, want)
    said = both.stats().epilogues
    assert said["convolution, silu: apart, since its sums are used elsewhere, and the activation is part of a loop"] == 1
    assert said["convolution_dx + bias: one kernel"] == 1


def test_without_epilogues(cuda, monkeypatch):
    monkeypatch.setenv("GRADLAB_EPILOGUES", "0")
    w = gl.randn(20, 3, 3, device="cuda")
    run = gl.compile(lambda x: F.conv1d(x, w).relu())
    for _ in range(2):
        run(gl.randn(2, 3, 9, device="cuda"))
    assert executable(run).epilogues == ["none: GRADLAB_EPILOGUES=0"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_rows_of_transposed_convolutions_with_an_activation(cuda, activation):
    """Which only a device's line holds."""
    rng = np.random.default_rng(5)
    host = [rng.normal(size=s).astype(np.float32) for s in ((2, 20, 7), (20, 3, 3), (3,))]
    inputs = [cuda.driver.upload(a) for a in host]
    params = {"shape": (2, 3, 9), "stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1, "activation": activation}
    want = conv_epilogues.transpose_act_sums(*host, **params)
    np.testing.assert_array_equal(want[0], conv_epilogues.transpose_act(*host, **params))
    outputs = [cuda.driver.empty(y.shape, y.dtype) for y in want]
    conv_epilogues.launch(cuda.work, inputs, outputs, params)()
    for got, y in zip(outputs, want, strict=True):
        np.testing.assert_allclose(cuda.driver.download(got), y, rtol=2e-5, atol=1e-5)
