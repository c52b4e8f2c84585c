"""Gradients of convolutions from their parts, as in torch.nn.grad: by the input, of which the shape is enough, and by the weight.

Both are differentiable themselves. Shapes, strides, paddings, dilations and groups are those of `nn.functional.conv1d` to `conv3d`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradlab.func import vjp
from gradlab.nn.functional.conv import conv1d, conv2d, conv3d
from gradlab.spec import ShapeError

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _pulled(name: str, of: Callable[[Tensor], Tensor], at: Tensor, grad_output: Tensor) -> Tensor:
    result, pull = vjp(of, at)
    if result.shape != grad_output.shape:
        raise ShapeError(f"{name}: the convolution gives shape {tuple(result.shape)}, and grad_output has {tuple(grad_output.shape)}")
    (gradient,) = pull(grad_output)
    return gradient


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv1d` by an input of shape `input_size`. ShapeError where grad_output is not of the result's shape."""
    at = weight.new_zeros(input_size)
    return _pulled("conv1d_input", lambda x: conv1d(x, weight, None, stride, padding, dilation, groups), at, grad_output)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv1d` by a weight of shape `weight_size`. ShapeError where grad_output is not of the result's shape."""
    at = input.new_zeros(weight_size)
    return _pulled("conv1d_weight", lambda w: conv1d(input, w, None, stride, padding, dilation, groups), at, grad_output)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv2d` by an input of shape `input_size`. ShapeError where grad_output is not of the result's shape.

    >>> import gradlab as gl
    >>> from gradlab.nn.grad import conv2d_input
    >>> conv2d_input((1, 1, 2, 2), gl.ones(1, 1, 2, 2), gl.tensor([[[[3.0]]]]))
    tensor([[[[3., 3.],
              [3., 3.]]]])
    """
    at = weight.new_zeros(input_size)
    return _pulled("conv2d_input", lambda x: conv2d(x, weight, None, stride, padding, dilation, groups), at, grad_output)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv2d` by a weight of shape `weight_size`. ShapeError where grad_output is not of the result's shape."""
    at = input.new_zeros(weight_size)
    return _pulled("conv2d_weight", lambda w: conv2d(input, w, None, stride, padding, dilation, groups), at, grad_output)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv3d` by an input of shape `input_size`. ShapeError where grad_output is not of the result's shape."""
    at = weight.new_zeros(input_size)
    return _pulled("conv3d_input", lambda x: conv3d(x, weight, None, stride, padding, dilation, groups), at, grad_output)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv3d` by a weight of shape `weight_size`. ShapeError where grad_output is not of the result's shape."""
    at = input.new_zeros(weight_size)
    return _pulled("conv3d_weight", lambda w: conv3d(input, w, None, stride, padding, dilation, groups), at, grad_output)
