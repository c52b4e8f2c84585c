"""Norms of a sum, as residual connections have them: s = x + residual and the layer norm or rms norm of s, in one pass over both.

The sum is a result too, since a residual connection goes on from it. On the way back the gradient that it gets elsewhere is added to the
norm's gradient where that is made, which is the gradient of x and of residual alike. Sources: He et al., "Deep residual learning for image
recognition" (2016); Vaswani et al., "Attention is all you need" (2017); otherwise those of `norm.py`, whose formulas these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.norm import (
    last_dims,
    layer_backward_cpu,
    layer_backward_rule,
    layer_cpu,
    layer_norm_backward,
    layer_rule,
    rms_backward_cpu,
    rms_backward_rule,
    rms_cpu,
    rms_norm_backward,
    rms_rule,
    second,
    through_statistics,
)
from gradlab.spec import Spec, expect_shape


def layer_norm_residual_rule(
    x: Spec, residual: Spec, weight: Spec | None, bias: Spec | None, *, k: int, eps: float
) -> tuple[Spec, Spec, Spec, Spec]:
    """Rule: the output, the sum, and the mean and 1/√(var + eps) of each row of the sum."""
    expect_shape("residual", residual, x.shape)
    y, mean, rstd = layer_rule(x, weight, bias, k=k, eps=eps)
    return y, x, mean, rstd


def layer_norm_residual_backward_rule(
    dy: Spec, ds: Spec, s: Spec, weight: Spec | None, mean: Spec, rstd: Spec, *, k: int
) -> tuple[Spec, Spec, Spec]:
    """Rule: gradients of the sum, weight and bias."""
    expect_shape("the sum's gradient", ds, s.shape)
    return layer_backward_rule(dy, s, weight, mean, rstd, k=k)


def rms_norm_residual_rule(x: Spec, residual: Spec, weight: Spec | None, *, k: int, eps: float) -> tuple[Spec, Spec, Spec]:
    """Rule: the output, the sum, and 1/√(mean square + eps) of each row of the sum."""
    expect_shape("residual", residual, x.shape)
    y, rstd = rms_rule(x, weight, k=k, eps=eps)
    return y, x, rstd


def rms_norm_residual_backward_rule(dy: Spec, ds: Spec, s: Spec, weight: Spec | None, rstd: Spec, *, k: int) -> tuple[Spec, Spec]:
    """Rule: gradients of the sum and of weight."""
    expect_shape("the sum's gradient", ds, s.shape)
    return rms_backward_rule(dy, s, weight, rstd, k=k)


# ---------------------------------------------------------------- NumPy


def layer_norm_residual_cpu(
    x: Any, residual: Any, weight: Any, bias: Any, y: Any, s: Any, mean: Any, rstd: Any, *, k: int, eps: float
) -> None:
    np.add(x, residual, s)
    layer_cpu(s, weight, bias, y, mean, rstd, k=k, eps=eps)


def layer_norm_residual_backward_cpu(
    dy: Any, ds: Any, s: Any, weight: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any, *, k: int
) -> None:
    layer_backward_cpu(dy, s, weight, mean, rstd, dx, dweight, dbias, k=k)
    np.add(dx, ds, dx)


def rms_norm_residual_cpu(x: Any, residual: Any, weight: Any, y: Any, s: Any, rstd: Any, *, k: int, eps: float) -> None:
    np.add(x, residual, s)
    rms_cpu(s, weight, y, rstd, k=k, eps=eps)


def rms_norm_residual_backward_cpu(dy: Any, ds: Any, s: Any, weight: Any, rstd: Any, dx: Any, dweight: Any, *, k: int) -> None:
    rms_backward_cpu(dy, s, weight, rstd, dx, dweight, k=k)
    np.add(dx, ds, dx)


# ---------------------------------------------------------------- gradients


def _layer_gradient(
    g_y: Any, s: Any, weight: Any, mean: Any, rstd: Any, k: int, g_s: Any = None, g_mean: Any = None, g_rstd: Any = None
) -> Any:  # fmt: skip
    if g_s is None:
        dx, dweight, dbias = layer_norm_backward(g_y, s, weight, mean, rstd, k=k)
    else:
        dx, dweight, dbias = layer_norm_residual_backward(g_y, g_s, s, weight, mean, rstd, k=k)
    dx = through_statistics(dx, g_mean, g_rstd, None, s, mean, rstd, last_dims(s.shape, k))
    return dx, dx, dweight, dbias


def _rms_gradient(g_y: Any, s: Any, weight: Any, rstd: Any, k: int, g_s: Any = None, g_rstd: Any = None) -> Any:
    if g_s is None:
        dx, dweight = rms_norm_backward(g_y, s, weight, rstd, k=k)
    else:
        dx, dweight = rms_norm_residual_backward(g_y, g_s, s, weight, rstd, k=k)
    dx = through_statistics(dx, None, g_rstd, None, s, None, rstd, last_dims(s.shape, k))
    return dx, dx, dweight


def _layer_second(g_dx: Any, dy: Any, s: Any, weight: Any, mean: Any, rstd: Any, k: int, g_dweight: Any = None, g_dbias: Any = None) -> Any:
    g_dy, *others = second(g_dx, g_dweight, g_dbias, dy, s, weight, mean, rstd, last_dims(s.shape, k))
    return g_dy, g_dx, *others


def _rms_second(g_dx: Any, dy: Any, s: Any, weight: Any, rstd: Any, k: int, g_dweight: Any = None) -> Any:
    g_dy, g_s, g_weight, _, g_rstd = second(g_dx, g_dweight, None, dy, s, weight, None, rstd, last_dims(s.shape, k))
    return g_dy, g_dx, g_s, g_weight, g_rstd


# ---------------------------------------------------------------- the rows

FILE = "residual.cu"

layer_norm_residual = Op(
    "layer_norm_residual", layer_norm_residual_rule, params=("k", "eps"), outputs=("y", "s", "mean", "rstd"), promote="same",
    cpu=layer_norm_residual_cpu, cuda=Kernel(FILE, "layer_norm_residual", "row"), autocast="float32", roundings=1,
    grad={("x", "residual", "weight", "bias"): _layer_gradient},
)  # fmt: skip
layer_norm_residual_backward: Op = Op(
    "layer_norm_residual_backward", layer_norm_residual_backward_rule, params=("k",), outputs=("dx", "dweight", "dbias"),
    cpu=layer_norm_residual_backward_cpu, cuda=Kernel(FILE, "layer_norm_residual_backward", "row"),
    grad={("dy", "ds", "s", "weight", "mean", "rstd"): _layer_second},
)  # fmt: skip
rms_norm_residual = Op(
    "rms_norm_residual", rms_norm_residual_rule, params=("k", "eps"), outputs=("y", "s", "rstd"), promote="same",
    cpu=rms_norm_residual_cpu, cuda=Kernel(FILE, "rms_norm_residual", "row"), autocast="float32", roundings=1,
    grad={("x", "residual", "weight"): _rms_gradient},
)  # fmt: skip
rms_norm_residual_backward: Op = Op(
    "rms_norm_residual_backward", rms_norm_residual_backward_rule, params=("k",), outputs=("dx", "dweight"),
    cpu=rms_norm_residual_backward_cpu, cuda=Kernel(FILE, "rms_norm_residual_backward", "row"),
    grad={("dy", "ds", "s", "weight", "rstd"): _rms_second},
)  # fmt: skip
