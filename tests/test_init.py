"""nn.init: ranges, moments and structure of initial values."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn


@pytest.fixture(autouse=True)
def seed():
    gl.manual_seed(0)


def array(t):
    return t.detach().numpy()


def test_gains():
    assert nn.init.calculate_gain("linear") == nn.init.calculate_gain("conv2d") == nn.init.calculate_gain("sigmoid") == 1
    assert nn.init.calculate_gain("tanh") == 5 / 3 and nn.init.calculate_gain("selu") == 0.75
    assert nn.init.calculate_gain("relu") == math.sqrt(2)
    assert nn.init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    assert nn.init.calculate_gain("leaky_relu") == math.sqrt(2 / (1 + 0.01**2))
    for wrong in (("other",), ("leaky_relu", True), ("leaky_relu", "x")):
        with pytest.raises(ValueError):
            nn.init.calculate_gain(*wrong)


@pytest.mark.parametrize(
    ("name", "kwargs", "std"),
    [
        ("uniform_", {"a": -3, "b": 3}, math.sqrt(3)),
        ("normal_", {"mean": 0.0, "std": 2.0}, 2.0),
        ("xavier_uniform_", {"gain": 2.0}, 2 * math.sqrt(2 / (100 * 9 + 60 * 9))),
        ("xavier_normal_", {}, math.sqrt(2 / (100 * 9 + 60 * 9))),
        ("kaiming_uniform_", {"a": math.sqrt(5)}, math.sqrt(2 / 6 / (60 * 9))),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / (100 * 9))),
    ],
)
def test_moments(name, kwargs, std):
    t = gl.empty(100, 60, 3, 3, requires_grad=True)
    assert getattr(nn.init, name)(t, **kwargs) is t and t.is_leaf and t.grad_fn is None
    assert abs(array(t).mean()) < 0.02 * std
    assert abs(array(t).std() / std - 1) < 0.02
    if "uniform" in name:
        assert np.abs(array(t)).max() <= std * math.sqrt(3) * (1 + 1e-6)


def test_same_generator_same_numbers():
    one, two = (nn.init.normal_(gl.empty(5), generator=gl.Generator().manual_seed(3)) for _ in range(2))
    assert one.tolist() == two.tolist()


def test_trunc_normal():
    t = nn.init.trunc_normal_(gl.empty(50000), mean=1.0, std=2.0, a=-1.0, b=2.0)
    values = array(t)
    assert values.min() >= -1 and values.max() <= 2
    # the mean of the truncated normal: mu + sigma (phi(alpha) - phi(beta)) / (Phi(beta) - Phi(alpha))
    alpha, beta = -1.0, 0.5
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (alpha, beta)]
    below = [(1 + math.erf(x / math.sqrt(2))) / 2 for x in (alpha, beta)]
    assert abs(values.mean() - (1 + 2 * (density[0] - density[1]) / (below[1] - below[0]))) < 0.02
    with pytest.warns(UserWarning, match="more than 2 std"):
        nn.init.trunc_normal_(gl.empty(5, dtype=gl.float64), mean=4.5)


def test_fixed_values():
    assert nn.init.constant_(gl.empty(2), 3.0).tolist() == [3.0, 3.0]
    assert nn.init.ones_(gl.empty(2)).tolist() == [1.0, 1.0] and nn.init.zeros_(gl.ones(2)).tolist() == [0.0, 0.0]
    assert nn.init.eye_(gl.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_dirac():
    x = gl.randn(1, 4, 5, 5)
    conv = nn.Conv2d(4, 4, 3, padding=1, bias=False, groups=2)
    nn.init.dirac_(conv.weight, groups=2)
    np.testing.assert_allclose(array(conv(x)), array(x), atol=1e-6)
    assert nn.init.dirac_(gl.empty(2, 3, 3)).sum().item() == 2


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 2, 3)])
def test_orthogonal(shape):
    w = array(nn.init.orthogonal_(gl.empty(*shape), gain=2)).reshape(shape[0], -1)
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_sparse():
    w = array(nn.init.sparse_(gl.empty(10, 7), 0.35))
    assert ((w == 0).sum(0) == 4).all()


def test_errors():
    for call in (
        lambda: nn.init.xavier_uniform_(gl.empty(3)),
        lambda: nn.init.kaiming_normal_(gl.empty(3, 3), mode="fan"),
        lambda: nn.init.eye_(gl.empty(3)),
        lambda: nn.init.dirac_(gl.empty(3, 3)),
        lambda: nn.init.dirac_(gl.empty(3, 3, 3), groups=2),
        lambda: nn.init.orthogonal_(gl.empty(3)),
        lambda: nn.init.sparse_(gl.empty(3), 0.1),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.warns(UserWarning, match="without elements"):
        nn.init.kaiming_uniform_(gl.empty(0, 3))


def test_layers_start_as_documented():
    layer = nn.Linear(400, 300)
    for p in layer.parameters():
        assert np.abs(array(p)).max() <= 1 / 20 and abs(array(p).std() * 20 * math.sqrt(3) - 1) < 0.1
    conv = nn.Conv2d(8, 64, 5, groups=2)
    for p in conv.parameters():
        assert np.abs(array(p)).max() <= 1 / 10
    table = nn.Embedding(1000, 10, padding_idx=-1)
    assert table.padding_idx == 999 and abs(array(table.weight)[:-1].std() - 1) < 0.05 and not array(table.weight)[-1].any()
    norm = nn.BatchNorm1d(3)
    assert norm.weight.tolist() == norm.running_var.tolist() == [1.0] * 3
    assert norm.bias.tolist() == norm.running_mean.tolist() == [0.0] * 3
    for p in nn.LSTM(3, 25).parameters():
        assert np.abs(array(p)).max() <= 0.2
