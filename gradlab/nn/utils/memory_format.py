"""Convolutions whose weights lie in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

from gradlab.autograd import no_grad
from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weights of all 2d convolutions of a module in a memory format; the images that they make then lie so, too.

    >>> from gradlab import nn
    >>> nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(3, 8, 3), gl.channels_last).weight.stride()
    (27, 1, 9, 3)
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """As `convert_conv2d_weight_memory_format`, of 3d convolutions.

    >>> from gradlab import nn
    >>> nn.utils.convert_conv3d_weight_memory_format(nn.Conv3d(3, 8, 2), gl.channels_last_3d).weight.stride()
    (24, 1, 12, 6, 3)
    """
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)


def _converted(module: M, kinds: tuple[type, ...], memory_format: Any) -> M:
    with no_grad():
        for layer in module.modules():
            if isinstance(layer, kinds):
                layer.weight.data = layer.weight.data.clone(memory_format=memory_format)
    return module


named_functions(__name__)
