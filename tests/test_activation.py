"""Activations beyond their rows: values, gradients, the points where they bend, errors, in-place forms."""

import math

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from slopes import check_slopes

X = np.array([[-4.0, -2.2, -0.7, -0.2], [0.3, 0.8, 2.6, 7.0]])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


CASES = {
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "relu6": (F.relu6, lambda x: np.clip(x, 0, 6)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": (lambda x: F.elu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "selu": (F.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "celu": (lambda x: F.celu(x, 2.0), lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2))),
    "gelu": (F.gelu, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (F.silu, lambda x: x * sigmoid(x)),
    "mish": (F.mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "softplus": (lambda x: F.softplus(x, 2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "logsigmoid": (F.logsigmoid, lambda x: np.log(sigmoid(x))),
    "softsign": (F.softsign, lambda x: x / (1 + np.abs(x))),
    "tanhshrink": (F.tanhshrink, lambda x: x - np.tanh(x)),
    "softshrink": (F.softshrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hardshrink": (F.hardshrink, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "hardtanh": (F.hardtanh, lambda x: np.clip(x, -1, 1)),
    "hardsigmoid": (F.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardswish": (F.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), lambda x: np.where(x > 0.1, x, 20)),
    "rrelu": (F.rrelu, lambda x: np.where(x > 0, x, x * (1 / 8 + 1 / 3) / 2)),
    "glu": (F.glu, lambda x: x[:, :2] * sigmoid(x[:, 2:])),
    "softmin": (lambda x: F.softmin(x, dim=0), lambda x: np.exp(-x) / np.exp(-x).sum(0)),
    "erfc": (gl.erfc, lambda x: np.vectorize(math.erfc)(x)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name):
    function, reference = CASES[name]
    np.testing.assert_allclose(function(gl.tensor(X)).numpy(), reference(X), rtol=1e-12, atol=1e-14)
    found = function(gl.tensor(X, dtype=gl.float32))
    assert found.dtype is gl.float32
    np.testing.assert_allclose(found.numpy(), reference(X), rtol=3e-6, atol=1e-6)
    check_slopes(function, X)


def test_prelu_has_one_weight_or_one_for_each_channel():
    images, weight = X.reshape(2, 2, 2), np.array([0.1, 0.3])
    found = F.prelu(gl.tensor(images), gl.tensor(weight))
    np.testing.assert_allclose(found.numpy(), np.where(images > 0, images, images * weight[:, None]))
    check_slopes(F.prelu, images, weight)
    check_slopes(F.prelu, X, np.array([0.25]))
    with pytest.raises(RuntimeError, match="each channel"):
        F.prelu(gl.tensor(images), gl.tensor([0.1, 0.2, 0.3], dtype=gl.float64))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("relu", ()), ("relu6", ()), ("elu", (1.5,)), ("selu", ()), ("celu", (2.0,)), ("silu", ()), ("mish", ()), ("hardtanh", (-0.5, 0.5)),
     ("hardsigmoid", ()), ("hardswish", ()), ("leaky_relu", (0.2,)), ("rrelu", ()), ("threshold", (0.1, 2.0))],
)  # fmt: skip
def test_in_place(name, arguments):
    function = getattr(F, name)
    leaf = gl.tensor(X, requires_grad=True)
    x = leaf * 1
    found = function(x, *arguments, inplace=True)
    assert found is x
    np.testing.assert_array_equal(x.detach().numpy(), function(gl.tensor(X), *arguments).numpy())
    x.sum().backward()
    other = gl.tensor(X, requires_grad=True)
    function(other, *arguments).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), other.grad.numpy())


def test_softmax_of_large_numbers_and_of_infinities():
    x = gl.tensor([[1000.0, 0.0, -1000.0], [-math.inf, 0.0, 0.0]], requires_grad=True)
    y = gl.softmax(x, 1)
    np.testing.assert_allclose(y.detach().numpy(), [[1, 0, 0], [0, 0.5, 0.5]])
    y[:, 1].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0, 0], [0, 0.25, -0.25]])
    logs = x.log_softmax(1).detach().numpy()
    np.testing.assert_allclose(logs, [[0, -1000, -2000], [-math.inf, -math.log(2), -math.log(2)]])


def test_softmax_dtype_and_dims():
    whole = gl.tensor([[1, 2], [3, 4]])
    assert whole.softmax(0, dtype=gl.float64).dtype is gl.float64
    with pytest.raises(RuntimeError, match="floating point"):
        whole.softmax(0)
    with pytest.raises(IndexError, match="softmax: dimension out of range"):
        gl.softmax(gl.ones(2, 2), 2)
    with pytest.warns(UserWarning, match="give dim="):
        F.softmax(gl.ones(2, 2))
    assert gl.softmax(gl.ones(0, 3), 0).shape == (0, 3)
    assert gl.tensor(2.0).softmax(0).item() == 1


def test_extremes_stay_finite():
    x = gl.tensor([1e4, -1e4, 88.0, -88.0, 0.0], requires_grad=True)
    for function in (F.gelu, F.silu, F.mish, F.softplus, F.logsigmoid, F.elu, F.selu, F.softsign, F.tanhshrink):
        x.grad = None
        y = function(x)
        y.sum().backward()
        assert np.isfinite(y.detach().numpy()).all(), function
        assert np.isfinite(x.grad.numpy()).all(), function


def test_gradients_where_the_pieces_meet():
    """As in PyTorch."""
    def slope(function, at):
        x = gl.tensor(at, requires_grad=True)
        function(x).backward()
        return x.grad.item()

    assert [slope(F.relu6, v) for v in (0.0, 6.0)] == [0, 0]
    assert [slope(F.hardtanh, v) for v in (-1.0, 1.0)] == [0, 0]
    assert [slope(F.hardswish, v) for v in (-3.0, 3.0)] == [0, 1]
    assert [slope(F.softshrink, v) for v in (-0.5, 0.5)] == [0, 0]
    assert slope(F.leaky_relu, 0.0) == pytest.approx(0.01)


def test_random_ones():
    gl.manual_seed(3)
    x = gl.tensor(np.full((1000,), -1.0))
    slopes = -F.rrelu(x, 0.1, 0.5, training=True).numpy()
    assert 0.1 <= slopes.min() < 0.12
    assert 0.48 < slopes.max() < 0.5
    logits = gl.tensor(np.log([[0.7, 0.2, 0.1]] * 2000), requires_grad=True)
    chosen = F.gumbel_softmax(logits, tau=0.5, hard=True)
    assert set(np.unique(chosen.detach().numpy())) == {0.0, 1.0}
    np.testing.assert_allclose(chosen.detach().numpy().mean(0), [0.7, 0.2, 0.1], atol=0.05)
    chosen[:, 0].sum().backward()
    assert np.abs(logits.grad.numpy()).max() > 0


@pytest.mark.parametrize(
    ("call", "error"),
    [(lambda x: F.gelu(x, approximate="none "), RuntimeError), (lambda x: F.glu(x[:, :3]), RuntimeError),
     (lambda x: F.hardtanh(x, 1, 0), ValueError), (lambda x: F.softplus(x, beta=0), RuntimeError),
     (lambda x: F.celu(x, 0), RuntimeError), (lambda x: F.softshrink(x, -1), RuntimeError),
     (lambda x: F.rrelu(x, 0.5, 0.1), RuntimeError), (lambda x: F.hardswish(x.long()), RuntimeError),
     (lambda x: F.glu(x[0, 0]), RuntimeError)],
)  # fmt: skip
def test_errors(call, error):
    with pytest.raises(error):
        call(gl.ones(2, 4))


def test_erf_functions():
    x = np.concatenate([np.linspace(-6, 6, 241), [0.46875, 4.0, 26.0]])
    np.testing.assert_allclose(gl.erf(gl.tensor(x)).numpy(), erf(x), rtol=1e-14)
    np.testing.assert_allclose(gl.erfc(gl.tensor(x)).numpy(), np.vectorize(math.erfc)(x), rtol=3e-15)
    np.testing.assert_allclose(gl.erf(gl.tensor(x, dtype=gl.float32)).numpy(), erf(x), rtol=6e-7)
    p = np.array([-0.999999, -0.9, -0.3, 0.0, 1e-9, 0.5, 0.86, 1 - 1e-12])
    np.testing.assert_allclose(erf(gl.erfinv(gl.tensor(p)).numpy()), p, rtol=1e-14)
    edges = gl.erfinv(gl.tensor([-1.0, 1.0, 1.5])).numpy()
    assert edges[0] == -math.inf
    assert edges[1] == math.inf
    assert np.isnan(edges[2])
    assert gl.erf(gl.tensor([math.inf, -math.inf])).tolist() == [1, -1]
    assert gl.erf(gl.tensor([1])).dtype is gl.float32


COEFFICIENTS = {
    "celu": lambda x, c: F.celu(x, c), "elu": lambda x, c: F.elu(x, c), "leaky_relu": lambda x, c: F.leaky_relu(x, c),
    "rrelu": lambda x, c: F.rrelu(x, c, c), "softplus": lambda x, c: F.softplus(x, c), "celu in place": lambda x, c: F.celu_(x, c),
}  # fmt: skip


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_coefficients_that_the_type_does_not_hold_are_refused(name):
    f, x = COEFFICIENTS[name], gl.tensor([-1.0, 0.0, 2.0])
    for dtype in (gl.float32, gl.float16, gl.bfloat16):
        for c in (1e39, 1e300) if name == "softplus" else (1e39, -1e300):
            with pytest.raises(RuntimeError, match="beyond float32"):
                f(x.to(dtype), c)
    assert not f(x.double(), 1e39).isnan().any()
    if "celu" in name:
        for dtype in (gl.float32, gl.float16, gl.float64):  # 1/alpha is infinite
            assert f(x.to(dtype), 1e-320).tolist()[1:] == [0.0, 2.0]


def test_an_infinite_slope_is_one_below_zero_alone():
    assert F.leaky_relu(gl.tensor([-1.0, 2.0, math.inf]), math.inf).tolist() == [-math.inf, 2.0, math.inf]
