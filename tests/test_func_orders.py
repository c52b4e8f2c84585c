"""Third derivatives of rows in float64, against differences of second ones."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import func, ops

from samples import SAMPLES

ROWS = (
    "mul", "div", "pow", "exp", "log", "sqrt", "tanh", "sigmoid", "sin", "gelu", "gelu_tanh", "silu", "mish", "softplus", "erf", "lgamma",
    "matmul", "linear", "convolution", "convolution_dx", "layer_norm", "rms_norm", "batch_norm", "softmax", "log_softmax", "cross_entropy",
    "mse", "sum", "mean", "prod", "cumsum", "cumprod", "logcumsumexp", "index", "gather", "scatter_add", "embedding", "cat", "pad", "where",
    "view", "permute", "slice", "expand", "max_pool", "avg_pool", "sort", "max", "inverse", "solve", "det", "logaddexp", "atan2",
    "hypot", "lerp", "lstm_cell", "gru_cell", "tril", "diagonal", "unfold", "resample", "im2col", "layer_norm_residual",
    "rms_norm_residual", "embedding_add",
)  # fmt: skip


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


@pytest.mark.parametrize("name", ROWS)
def test_third_order(name):
    row = ops.ROWS[name]
    sample = next(s for s in SAMPLES[name] if s.gradients == 2 and all(x.size for x in s.inputs if isinstance(x, np.ndarray)))
    targets = [i for i, x in enumerate(sample.inputs) if is_float(x)]
    rng = np.random.default_rng(11)
    directions = [[gl.tensor(rng.normal(size=sample.inputs[i].shape)) for i in targets] for _ in range(3)]

    def along(s, t, r):
        """The row, weighted, at a point moved along three directions."""
        inputs = [gl.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
        for n, i in enumerate(targets):
            inputs[i] = inputs[i] + s * directions[0][n] + t * directions[1][n] + r * directions[2][n]
        result = row(*inputs, **sample.params)
        weights = np.random.default_rng(12)
        total = None
        for y in result if isinstance(result, tuple) else (result,):
            if y.is_floating_point():
                part = (y * gl.tensor(weights.normal(size=y.shape))).sum()
                total = part if total is None else total + part
        return total

    zero = gl.tensor(0.0, dtype=gl.float64)
    second = lambda r: func.grad(lambda t: func.grad(lambda s: along(s, t, r))(zero))(zero)
    third = func.grad(second)(zero).item()
    step = 1e-5
    change = (second(zero + step) - second(zero - step)).item() / (2 * step)
    assert third == pytest.approx(change, rel=2e-4, abs=1e-5 * (1 + abs(second(zero).item())))
