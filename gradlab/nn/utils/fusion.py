"""Batch normalisation by running statistics folded into the layer before it: one layer with the same results in evaluation mode."""

from __future__ import annotations

import copy
from typing import TypeVar

from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros_like

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """The weight and bias of a convolution with the batch norm of those statistics behind it. transpose: of a transposed convolution.

    >>> import gradlab as gl
    >>> from gradlab.nn.utils import fuse_conv_bn_weights
    >>> w, b = fuse_conv_bn_weights(gl.ones(1, 1, 1), None, gl.tensor([2.0]), gl.tensor([4.0]), 0.0, None, None)
    >>> w.item(), b.item()
    (0.5, -1.0)
    """
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else scale * bn_w
    channel = 1 if transpose else 0
    weight = conv_w * scale.reshape(*(-1 if i == channel else 1 for i in range(conv_w.ndim)))
    bias = ((zeros_like(bn_rm) if conv_b is None else conv_b) - bn_rm) * scale
    bias = bias if bn_b is None else bias + bn_b
    trained = conv_w.requires_grad
    bias_trained = trained if conv_b is None else conv_b.requires_grad
    return Parameter(weight.detach().to(conv_w.dtype), trained), Parameter(bias.detach().to(conv_w.dtype), bias_trained)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear layer with the batch norm of those statistics behind it.

    >>> import gradlab as gl
    >>> from gradlab.nn.utils import fuse_linear_bn_weights
    >>> w, b = fuse_linear_bn_weights(gl.ones(1, 1), None, gl.tensor([2.0]), gl.tensor([4.0]), 0.0, None, None)
    >>> w.item(), b.item()
    (0.5, -1.0)
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(name: str, layer: M, bn: Module, transpose: bool) -> M:
    if layer.training or bn.training:
        raise RuntimeError(f"{name}: both modules are in evaluation mode; call eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise RuntimeError(f"{name}: the batch norm keeps no running statistics")
    twin = copy.deepcopy(layer)
    twin.weight, twin.bias = fuse_conv_bn_weights(
        twin.weight, twin.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return twin


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A new convolution that computes `bn(conv(x))`. RuntimeError unless both are in evaluation mode and bn has running statistics.

    >>> from gradlab import nn
    >>> fused = nn.utils.fuse_conv_bn_eval(nn.Conv2d(3, 4, 3, bias=False).eval(), nn.BatchNorm2d(4).eval())
    >>> fused.bias.shape
    (4,)
    """
    return _fused("fuse_conv_bn_eval", conv, bn, transpose)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A new linear layer that computes `bn(linear(x))`. RuntimeError as of `fuse_conv_bn_eval`.

    >>> from gradlab import nn
    >>> fused = nn.utils.fuse_linear_bn_eval(nn.Linear(3, 4, bias=False).eval(), nn.BatchNorm1d(4).eval())
    >>> fused.bias.shape
    (4,)
    """
    return _fused("fuse_linear_bn_eval", linear, bn, False)


named_functions(__name__)
