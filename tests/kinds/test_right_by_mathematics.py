"""Results that are right where textbook formulas cancel, overflow or divide 0 by 0, and PyTorch with them: eager, compiled, on the GPU.

References are computed in float64, with Python's erfc, or as limits.
"""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.native import build

F, nn = gl.nn.functional, gl.nn
INF = math.inf
WAYS = ["eager", "numpy", "native", "cuda"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    monkeypatch.setattr(build, "available", lambda known=build.available: request.param != "numpy" and known())
    return request.param


def run(function, *arrays, way="eager", dtype=np.float32):
    """function's result, and the gradients of its sum, as float64 arrays."""

    def both(*xs):
        y = function(*xs)
        return y, gl.autograd.grad(y.sum(), xs)

    compiled = both if way in ("eager", "cuda") else gl.compile(both)
    for _ in range(1 if way in ("eager", "cuda") else 3):
        xs = [gl.tensor(np.asarray(a, dtype), device="cuda" if way == "cuda" else "cpu").requires_grad_() for a in arrays]
        y, gradients = compiled(*xs)
    return tuple(t.detach().cpu().double().numpy() for t in (y, *gradients))


# ---------------------------------------------------------------- activations: tails, and limits at infinity

FINITE = np.array([-30, -13, -10, -8, -6, -5.5, -5, -4, -2, -1, -0.1, 0, 0.1, 1, 3, 5, 8, 20, 1e4, 1e30])
PHI = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
DENSITY = np.vectorize(lambda x: math.exp(-min(x * x, 1480) / 2) / math.sqrt(2 * math.pi))
SIGMOID = np.vectorize(lambda x: math.exp(min(x, 0)) / (1 + math.exp(-abs(x))) if x > -700 else 0.0)


def tanh_gate(x):
    v = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    s = SIGMOID(v)
    dv = np.where(abs(x) < 100, 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2), 0)
    return x * s, s + np.clip(x, -100, 100) * s * SIGMOID(-v) * dv


def mish(x):
    e = np.exp(np.minimum(x, 40))
    w = e * (e + 2)
    return x * w / (w + 2), w / (w + 2) + np.minimum(x, 40) * 4 * e * (1 + e) / (w + 2) ** 2


GATES = {
    "gelu": (F.gelu, lambda x: (x * PHI(x), PHI(x) + np.clip(x, -50, 50) * DENSITY(x))),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), tanh_gate),
    "silu": (F.silu, lambda x: (x * SIGMOID(x), SIGMOID(x) * (1 + np.clip(x, -50, 50) * SIGMOID(-x)))),
    "mish": (F.mish, mish),
    "softsign": (F.softsign, lambda x: (x / (1 + abs(x)), None)),
    "softplus": (F.softplus, lambda x: (np.logaddexp(0, x), SIGMOID(x))),
    "logsigmoid": (F.logsigmoid, lambda x: (-np.logaddexp(0, -x), SIGMOID(-x))),
    "ndtr": (gl.special.ndtr, lambda x: (PHI(x), DENSITY(x))),
    "normal cdf": (lambda x: gl.distributions.Normal(x.new_zeros(()), x.new_ones(())).cdf(x), lambda x: (PHI(x), DENSITY(x))),
}
# (value, gradient) at -∞ and at ∞
LIMITS = {
    **dict.fromkeys(("gelu", "gelu by tanh", "silu", "mish"), ((0, 0), (INF, 1))), "softsign": ((-1, 0), (1, 0)),
    "hardswish": ((0, 0), (INF, 1)), "softplus": ((0, 0), (INF, 1)), "logsigmoid": ((-INF, 1), (0, 0)), "elu": ((-1, 0), (INF, 1)),
    "sigmoid": ((0, 0), (1, 0)), "tanh": ((-1, 0), (1, 0)), "hardsigmoid": ((0, 0), (1, 0)), "tanhshrink": ((-INF, 1), (INF, 1)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GATES)
def test_tails_keep_their_digits(name, way, dtype):
    if dtype == np.float64 and way in ("numpy", "cuda"):
        return  # the same expressions
    function, reference = GATES[name]
    x = FINITE.astype(dtype)
    y, slope = run(function, x, way=way, dtype=dtype)
    wanted, wanted_slope = reference(x.astype(np.float64))
    tolerance = 3e-5 if dtype == np.float32 else 1e-11
    least = 1e-36 if dtype == np.float32 else 1e-306  # a GPU has no subnormal floats, nor a product with one
    np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=least)
    if wanted_slope is not None:
        np.testing.assert_allclose(slope, wanted_slope, rtol=5 * tolerance, atol=1e-7 if name == "mish" else least)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_at_infinity(name, way):
    function = GATES[name][0] if name in GATES else getattr(F, name)
    y, slope = run(function, [-INF, INF], way=way)
    low, high = LIMITS[name]
    np.testing.assert_array_equal(y, [low[0], high[0]])
    np.testing.assert_array_equal(slope, [low[1], high[1]])
