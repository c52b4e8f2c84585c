"""Colours of images: brightness, contrast, saturation, hue, greys, and what counts levels.

A tensor's numbers are from 0 to 1 if they are floating point, else from 0 to the dtype's greatest. There are one channel
(grey) or three.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.nn import functional as F
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.tensor.shape import cat, stack
from gradlab.tensor.where import where
from gradlab.transforms.functional.geometry import floating
from gradlab.transforms.functional.kinds import bound, of_colours

LUMA = (0.2989, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)


def _expect_colours(name: str, x: Tensor, grey: bool = True) -> None:
    if x.shape[-3] not in ((1, 3) if grey else (3,)):
        raise ValueError(f"{name}: an image has {'1 or ' if grey else ''}3 channels here, not {x.shape[-3]} (shape {tuple(x.shape)})")


def _cut(x: Tensor, like: Tensor) -> Tensor:
    """Numbers within what `like` can hold; whole ones are cut off, not rounded, as Pillow does."""
    found = x.clamp(0, bound(like))
    return found if like.dtype.is_floating_point else found.to(like.dtype)


def _blended(x: Tensor, other: Tensor | float, share: float) -> Tensor:
    """share · x + (1 - share) · other."""
    return _cut(floating(x) * share + (1.0 - share) * other, x)


def _not_negative(name: str, factor: float) -> float:
    if factor < 0:
        raise ValueError(f"{name}: the factor is not negative, got {factor}")
    return float(factor)


def _grey(x: Tensor) -> Tensor:
    """The brightness of each pixel, one channel, floating point; whole where `x` is."""
    if x.shape[-3] == 1:
        return floating(x)
    red, green, blue = (floating(x[..., i : i + 1, :, :]) for i in range(3))
    found = red * LUMA[0] + green * LUMA[1] + blue * LUMA[2]
    return found if x.dtype.is_floating_point else found.floor()


@of_colours
def rgb_to_grayscale(inpt: Tensor, num_output_channels: int = 1) -> Tensor:
    """An image without its colours: 0.2989 red + 0.587 green + 0.114 blue, in one channel or thrice.

    >>> gl.transforms.functional.rgb_to_grayscale(gl.ones(3, 1, 1)).shape
    (1, 1, 1)
    """
    _expect_colours("rgb_to_grayscale", inpt)
    if num_output_channels not in (1, 3):
        raise ValueError(f"rgb_to_grayscale: num_output_channels is 1 or 3, not {num_output_channels}")
    found = _grey(inpt).to(inpt.dtype)
    return cat([found] * 3, -3) if num_output_channels == 3 else found


to_grayscale = rgb_to_grayscale


@of_colours
def grayscale_to_rgb(inpt: Tensor) -> Tensor:
    """An image of three channels: a grey one's thrice."""
    _expect_colours("grayscale_to_rgb", inpt)
    return inpt if inpt.shape[-3] == 3 else cat([inpt] * 3, -3)


@of_colours
def adjust_brightness(inpt: Tensor, brightness_factor: float) -> Tensor:
    """An image whose numbers are multiplied: 0 gives black, 1 the image, 2 double brightness.

    >>> gl.transforms.functional.adjust_brightness(gl.tensor([[[0.25, 0.75]]]), 2)
    tensor([[[0.5000, 1.0000]]])
    """
    return _cut(floating(inpt) * _not_negative("adjust_brightness", brightness_factor), inpt)


@of_colours
def adjust_contrast(inpt: Tensor, contrast_factor: float) -> Tensor:
    """An image drawn away from its mean brightness: 0 gives grey, 1 the image."""
    _expect_colours("adjust_contrast", inpt)
    factor = _not_negative("adjust_contrast", contrast_factor)
    return _blended(inpt, _grey(inpt).mean((-3, -2, -1), keepdim=True), factor)


@of_colours
def adjust_saturation(inpt: Tensor, saturation_factor: float) -> Tensor:
    """An image drawn away from its greys: 0 gives a grey image, 1 the image. Grey images are as they were."""
    _expect_colours("adjust_saturation", inpt)
    factor = _not_negative("adjust_saturation", saturation_factor)
    return inpt if inpt.shape[-3] == 1 else _blended(inpt, _grey(inpt), factor)


@of_colours
def adjust_hue(inpt: Tensor, hue_factor: float) -> Tensor:
    """An image with its hues turned by that part of the circle, -0.5 to 0.5. Grey images are as they were."""
    _expect_colours("adjust_hue", inpt)
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"adjust_hue: hue_factor is from -0.5 to 0.5, not {hue_factor}")
    if inpt.shape[-3] == 1 or not inpt.numel():
        return inpt
    x = inpt if inpt.dtype.is_floating_point else inpt.float() / bound(inpt)
    hue, saturation, value = _hsv(x)
    found = _rgb((hue + hue_factor) % 1.0, saturation, value)
    return found.to(inpt.dtype) if inpt.dtype.is_floating_point else to_whole(found, inpt)


def to_whole(x: Tensor, like: Tensor) -> Tensor:
    """Numbers from 0 to 1 as levels of a whole dtype: each level the same share of them."""
    return (x * (bound(like) + 1.0 - 1e-3)).to(like.dtype)


def _hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, all from 0 to 1 (A. R. Smith, Color gamut transform pairs, 1978)."""
    red, green, blue = (x[..., i, :, :] for i in range(3))
    most, least = x.amax(-3), x.amin(-3)
    spread = most - least
    grey = spread == 0
    one = spread * 0 + 1
    saturation = spread / where(grey, one, most)
    across = where(grey, one, spread)
    of_red, of_green, of_blue = ((most - c) / across for c in (red, green, blue))
    hue = where(
        most == red, of_blue - of_green, where(most == green, 2.0 + of_red - of_blue, 4.0 + of_green - of_red)
    )
    return (hue / 6.0 + 1.0) % 1.0, saturation, most


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Red, green and blue, the inverse of `_hsv`: each falls off from `value` by how far the hue is from its own."""
    def channel(turn: float) -> Tensor:
        at = (turn + hue * 6.0) % 6.0
        return value - value * saturation * at.minimum(4.0 - at).clamp(0, 1)

    return stack([channel(5.0), channel(3.0), channel(1.0)], -3).clamp(0, 1)


@of_colours
def adjust_gamma(inpt: Tensor, gamma: float, gain: float = 1) -> Tensor:
    """gain · x^gamma of numbers from 0 to 1."""
    if gamma < 0:
        raise ValueError(f"adjust_gamma: gamma is not negative, got {gamma}")
    x = inpt if inpt.dtype.is_floating_point else inpt.float() / bound(inpt)
    found = (x.pow(gamma) * gain).clamp(0, 1)
    return found if inpt.dtype.is_floating_point else to_whole(found, inpt)


@of_colours
def adjust_sharpness(inpt: Tensor, sharpness_factor: float) -> Tensor:
    """An image drawn away from its smoothed self: 0 gives that, 1 the image, 2 a sharper one. Pixels of the border stay."""
    _expect_colours("adjust_sharpness", inpt)
    factor = _not_negative("adjust_sharpness", sharpness_factor)
    channels, high, wide = inpt.shape[-3:]
    if high <= 2 or wide <= 2:
        return inpt
    x = floating(inpt).reshape(-1, channels, high, wide)
    weight = np.ones((channels, 1, 3, 3), np.float32) / 13
    weight[:, :, 1, 1] = 5 / 13
    smooth = F.conv2d(x, tensor(weight, device=x.device).to(x.dtype), groups=channels)
    blurred = x.clone()
    blurred[:, :, 1:-1, 1:-1] = smooth if inpt.dtype.is_floating_point else smooth.round()
    return _blended(inpt, blurred.reshape(inpt.shape), factor)


@of_colours
def invert(inpt: Tensor) -> Tensor:
    """The negative of an image."""
    return 1.0 - inpt if inpt.dtype.is_floating_point else (int(bound(inpt)) - inpt.long()).to(inpt.dtype)


@of_colours
def posterize(inpt: Tensor, bits: int) -> Tensor:
    """An image of which that many of each number's highest bits are kept (0 to 8); of floating point the same as levels from 0 to 1."""
    if not 0 <= bits <= 8:
        raise ValueError(f"posterize: bits are from 0 to 8, not {bits}")
    if inpt.dtype.is_floating_point:
        levels = 1 << bits
        return (inpt * levels).floor().clamp(0, levels - 1) / levels
    whole = round(math.log2(bound(inpt) + 1))
    return inpt if bits >= whole else inpt & (((1 << bits) - 1) << (whole - bits))


@of_colours
def solarize(inpt: Tensor, threshold: float) -> Tensor:
    """An image whose levels from `threshold` up are inverted."""
    if threshold > bound(inpt):
        raise ValueError(f"solarize: threshold is at most {bound(inpt):g} for {inpt.dtype}, not {threshold}")
    return where(inpt >= threshold, invert(inpt), inpt)


@of_colours
def autocontrast(inpt: Tensor) -> Tensor:
    """An image each of whose channels is stretched from black to white."""
    _expect_colours("autocontrast", inpt)
    x = floating(inpt)
    low, top = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True)
    flat = low == top
    scale = bound(inpt) / where(flat, top * 0 + bound(inpt), top - low)
    return _cut((x - where(flat, low * 0, low)) * scale, inpt)


@of_colours
def equalize(inpt: Tensor) -> Tensor:
    """An image each of whose channels has its levels spread so that all are about as frequent, as Pillow counts."""
    _expect_colours("equalize", inpt)
    levels = inpt if not inpt.dtype.is_floating_point else to_whole(inpt, inpt.byte())
    array = levels.detach().cpu().numpy().astype(np.int64)
    flat = array.reshape(-1, *array.shape[-2:])
    found = np.stack([_equalized(channel) for channel in flat]).reshape(array.shape) if flat.size else array
    spread = tensor(found, device=inpt.device)
    return spread.to(inpt.dtype) / 255.0 if inpt.dtype.is_floating_point else spread.to(inpt.dtype)


def _equalized(channel: Any) -> Any:
    counts = np.bincount(channel.ravel(), minlength=256)
    step = (channel.size - counts[channel.max()]) // 255
    if not step:
        return channel
    table = np.clip((np.concatenate([[0], counts.cumsum()[:-1]]) + step // 2) // step, 0, 255)
    return table[channel]


@of_colours
def permute_channels(inpt: Tensor, permutation: list[int]) -> Tensor:
    """An image with its channels in another order."""
    if sorted(permutation) != list(range(inpt.shape[-3])):
        raise ValueError(f"permute_channels: {permutation} is no order of {inpt.shape[-3]} channels")
    return inpt[..., permutation, :, :]


__all__ = [
    "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "adjust_sharpness", "autocontrast",
    "equalize", "grayscale_to_rgb", "invert", "permute_channels", "posterize", "rgb_to_grayscale", "solarize", "to_grayscale",
]  # fmt: skip
