"""Norms of a sum, and rows of a table plus those of positions: the operators of their parts."""

from __future__ import annotations

from typing import Any

from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.products import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward


@exports("layer_norm_residual")
def layer_norm_residual(
    e: Emitter, x: Wire, residual: Wire, weight: Wire | None, bias: Wire | None, *, k: int, eps: float
) -> Any:  # fmt: skip
    """Add, then the norm."""
    s = x + residual
    s.shape = x.shape
    y, *statistics = layer_norm(e, s, weight, bias, k=k, eps=eps)
    return y, s, *statistics


@exports("rms_norm_residual")
def rms_norm_residual(e: Emitter, x: Wire, residual: Wire, weight: Wire | None, *, k: int, eps: float) -> Any:
    """Add, then the norm."""
    s = x + residual
    s.shape = x.shape
    y, rstd = rms_norm(e, s, weight, k=k, eps=eps)
    return y, s, rstd


@exports("layer_norm_residual_backward")
def layer_norm_residual_backward(
    e: Emitter, dy: Wire, ds: Wire, s: Wire, weight: Wire | None, mean: Wire, rstd: Wire, *, k: int
) -> Any:  # fmt: skip
    """The norm's gradients, then Add."""
    dx, *parameters = layer_norm_backward(e, dy, s, weight, mean, rstd, k=k)
    return dx + ds, *parameters


@exports("rms_norm_residual_backward")
def rms_norm_residual_backward(e: Emitter, dy: Wire, ds: Wire, s: Wire, weight: Wire | None, rstd: Wire, *, k: int) -> Any:
    """The norm's gradients, then Add."""
    dx, *parameters = rms_norm_backward(e, dy, s, weight, rstd, k=k)
    return dx + ds, *parameters


@exports("embedding_add")
def embedding_add(e: Emitter, weight: Wire, positions: Wire, at: Wire, *, padding_idx: int | None) -> Any:
    """Gather of rows, and Add of the first positions."""
    assert at.shape is not None
    return e("Gather", weight, at, axis=0) + e.cut(positions, 0, at.shape[-1], 0)
