"""Epilogues of products and convolutions: `gl.compile` on the (emulated) GPU finds them, and eager code has functions for them."""

from __future__ import annotations

import numpy as np
import pytest
from test_compile_cuda import executable

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.cuda.gemm import library
from gradlab.backends.cuda.gemm.binding import Epilogue, Status
from gradlab.backends.cuda.launch.activation import EXPRESSIONS

F = nn.functional


@pytest.fixture
def large(monkeypatch):
    """Small products are not joined to one kernel, which would leave nothing for an epilogue."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def layers(kind):
    act = {"relu": nn.ReLU, "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "gelu": nn.GELU}[kind]
    return nn.Sequential(nn.Linear(12, 24), act(), nn.Linear(24, 16), act(), nn.Linear(16, 8))


def convolutions(kind):
    act = {"relu": nn.ReLU, "silu": nn.SiLU}[kind]
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), act(), nn.Conv2d(5, 24, 2, stride=2), act(), nn.Conv2d(24, 24, 2, groups=12), act(), nn.Flatten(),
        nn.Linear(96, 8),
    )  # fmt: skip


def training(make, kind, shape, wrap, device="cuda", steps=4):
    """Losses, parameters and the step of a few steps of training."""
    gl.manual_seed(3)
    model = make(kind).to(device)
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1)
    rng = np.random.default_rng(4)
    data = [(rng.normal(size=shape).astype(np.float32), rng.normal(size=8).astype(np.float32)) for _ in range(steps)]

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    losses = [float(run(gl.tensor(x, device=device), gl.tensor(y, device=device))) for x, y in data]
    return losses, [p.numpy(force=True) for p in model.parameters()], run


def same(got, want):
    np.testing.assert_allclose(got[0], want[0], rtol=3e-5)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=3e-6)


def kernels(run):
    return [name for s in executable(run).report for name in s.kernels]


@pytest.mark.parametrize(("kind", "forward", "backward"), [
    ("relu", "linear_relu_with_bits", "matmul_relu_backward"), ("gelu_tanh", "linear_gelu_tanh", "matmul_gelu_tanh_backward"),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(6, 12), (2, 3, 12)])
def test_layers_with_their_activation(cuda, large, kind, forward, backward, shape):
    want = training(layers, kind, shape, lambda f: f, "cpu")
    got = training(layers, kind, shape, gl.compile)
    same(got, want)
    names = kernels(got[2])
    assert (names.count(forward), names.count(backward)) == (2, 2)
    assert not {"relu", "relu_backward", "gelu_tanh", "gelu_tanh_backward"} & set(names)


def test_a_step_of_a_perceptron_is_eleven_launches(cuda, large, monkeypatch):
    assert executable(training(layers, "relu", (6, 12), gl.compile)[2]).launches == 11
    monkeypatch.setenv("GRADLAB_EPILOGUES", "0")
    assert executable(training(layers, "relu", (6, 12), gl.compile)[2]).launches == 11 + 4 + 3


def test_gelu_by_erf_has_no_epilogue(cuda, large):
    got = training(layers, "gelu", (6, 12), gl.compile)
    same(got, training(layers, "gelu", (6, 12), lambda f: f, "cpu"))
    assert kernels(got[2]).count("linear") == 3


@pytest.mark.parametrize("refused", [
    {Epilogue.RELU_AUX_BIAS}, {Epilogue.DRELU}, {Epilogue.RELU_AUX_BIAS, Epilogue.RELU_BIAS, Epilogue.DRELU, Epilogue.BGRADB},
    {Epilogue.GELU_AUX_BIAS}, {Epilogue.DGELU},
])  # fmt: skip
def test_what_the_library_refuses_are_two_launches(cuda, large, monkeypatch, refused):
    blas = library.blas_of(cuda.driver)
    if cuda.driver.name != "emulated":
        pytest.skip("the stand-in refuses what it is told to")
    monkeypatch.setattr(blas.library, "refused", lambda task: task.epilogue in refused)
    monkeypatch.setattr(blas, "_prepared", {})
    kind = "gelu_tanh" if refused & {Epilogue.GELU_AUX_BIAS, Epilogue.DGELU} else "relu"
    same(training(layers, kind, (5, 12), gl.compile), training(layers, kind, (5, 12), lambda f: f, "cpu"))


@pytest.mark.parametrize("when", ["run", "capture"])
@pytest.mark.parametrize("kind", ["relu", "gelu_tanh"])
def test_what_the_library_refuses_as_late_as_possible(cuda, large, monkeypatch, kind, when):
    """It had an algorithm, and says no when the product is to run, or is captured; that is remembered."""
    blas = library.blas_of(cuda.driver)
    if cuda.driver.name != "emulated":
        pytest.skip("the stand-in refuses what it is told to")
    asked = []

    def refused(task):
        if task.epilogue is Epilogue.DEFAULT or not task.at_d or (when == "capture" and not cuda.driver.capturing()):
            return False
        asked.append(task.epilogue)
        return Status.INVALID_VALUE

    monkeypatch.setattr(blas.library, "refused", refused)
    monkeypatch.setattr(blas, "_prepared", {})
    got = training(layers, kind, (5, 12), gl.compile, steps=12)
    same(got, training(layers, kind, (5, 12), lambda f: f, "cpu", steps=12))
    assert len(set(asked)) > 2 and len(asked) < 24
    asked.clear()
    got[2](gl.randn(5, 12, device="cuda"), gl.randn(8, device="cuda"))
    assert asked == []
    assert executable(got[2]).why == "" and executable(got[2])._graph is not None


def test_a_layer_whose_sums_are_used_elsewhere(cuda, large):
    w, b = gl.randn(8, 6, device="cuda"), gl.randn(8, device="cuda")

    @gl.compile
    def both(x):
        z = F.linear(x, w, b)
        return z, z.relu()

    x = gl.randn(4, 6, device="cuda")
    for _ in range(2):
        z, y = both(x)
    np.testing.assert_allclose(z.numpy(force=True), F.linear(x, w, b).numpy(force=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(y.numpy(force=True), np.maximum(z.numpy(force=True), 0))


def test_a_convolution_and_its_activation_are_one_kernel(cuda, large):
    got = training(convolutions, "relu", (2, 3, 9, 9), gl.compile)
    same(got, training(convolutions, "relu", (2, 3, 9, 9), lambda f: f, "cpu"))
    names = kernels(got[2])
    assert names.count("convolution_act") == 3
    assert "convolution" not in names


def test_other_activations_of_convolutions_where_nothing_is_recorded(cuda, large):
    model = convolutions("silu").to("cuda")
    x = gl.randn(2, 3, 9, 9, device="cuda")
    run = gl.compile(lambda x: model(x))
    with gl.no_grad():
        want = model(x).numpy(force=True)
        for _ in range(2):
            np.testing.assert_allclose(run(x).numpy(force=True), want, rtol=2e-5, atol=1e-6)
    names = kernels(run)
    assert (names.count("convolution_act"), names.count("convolution")) == (3, 0)


# ---------------------------------------------------------------- the functions

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_activation(cuda, device, activation):
    gl.manual_seed(5)
    x, w, b = (gl.randn(*s, device=device, requires_grad=True) for s in ((2, 3, 4), (8, 4), (8,)))
    want, got = ACTIVATIONS[activation](F.linear(x, w, b)), F.linear_activation(x, w, b, activation)
    np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=1e-5, atol=1e-6)
    for a, e in zip(gl.autograd.grad(got.square().sum(), (x, w, b)), gl.autograd.grad(want.square().sum(), (x, w, b)), strict=True):
        np.testing.assert_allclose(a.numpy(force=True), e.numpy(force=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("record", [False, True])
def test_conv_activation(cuda, device, activation, record):
    gl.manual_seed(6)
    x, w, b = (gl.randn(*s, device=device, requires_grad=record) for s in ((2, 4, 7), (6, 2, 3), (6,)))
    numbers = {"stride": 2, "padding": 1, "groups": 2}
    want, got = ACTIVATIONS[activation](F.conv1d(x, w, b, **numbers)), F.conv_activation(x, w, b, activation=activation, **numbers)
    np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=1e-5, atol=1e-6)
    if record:
        for a, e in zip(gl.autograd.grad(got.square().sum(), (x, w, b)), gl.autograd.grad(want.square().sum(), (x, w, b)), strict=True):
            np.testing.assert_allclose(a.numpy(force=True), e.numpy(force=True), rtol=1e-4, atol=1e-5)


def test_one_launch_in_eager_mode(cuda):
    if cuda.driver.name != "emulated":
        pytest.skip("the emulated GPU counts launches")
    x, w, b, wide = (gl.randn(*s, device="cuda") for s in ((4, 8), (16, 8), (16,), (2, 4, 9)))
    kernel, bias = gl.randn(32, 4, 3, device="cuda"), gl.randn(32, device="cuda")
    learned = wide.clone().requires_grad_()
    runs = [
        lambda: F.linear_activation(x, w, b), lambda: F.linear_activation(x, w, b, "gelu_tanh"), lambda: F.linear_activation(x, w),
        *(lambda a=a, x=x: F.conv_activation(x, kernel, bias, activation=a) for a in ACTIVATIONS for x in (wide, learned)),
    ]  # fmt: skip
    for run in runs:
        run()
        before = cuda.driver.launches
        run()
        assert cuda.driver.launches - before == 1


def test_nothing_is_fused_where_that_would_cost_a_gradient():
    x, w = gl.randn(2, 3), gl.randn(4, 3, requires_grad=True)
    assert F.linear_activation(x, w).grad_fn.name() == "ReluBackward0"
    assert F.linear_activation(x.requires_grad_(), w).grad_fn.name() == "LinearReluBackward0"


def test_wrong_arguments():
    x, w = gl.randn(2, 3), gl.randn(4, 3)
    with pytest.raises(ValueError, match="linear_activation: activation is one of 'relu'"):
        F.linear_activation(x, w, activation="tanh")
    with pytest.raises(ValueError, match="conv_activation: activation"):
        F.conv_activation(x, w, activation="elu")
    with pytest.raises(RuntimeError, match="conv_activation: the weight has 3, 4 or 5"):
        F.conv_activation(x, w)
    with pytest.raises(gl.ShapeError if hasattr(gl, "ShapeError") else RuntimeError, match="conv1d: "):
        F.conv_activation(gl.randn(1, 3, 4), gl.randn(4, 2, 3))


def test_the_backends_activations_are_the_rows():
    assert EXPRESSIONS == {name: row.cuda.expression for name, row in ops.fused.ACTIVATIONS.items()}
    assert set(EXPRESSIONS) == {row.name for row in ops.fused.ACTIVATIONS.values()}
