"""Sizes, crops, flips and borders of images."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.nn import functional as F
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.transforms.functional.kinds import (
    OF_PILLOW,
    InterpolationMode,
    get_size,
    interpolation_of,
    of_images,
)
from gradlab.utils.pillow import is_pillow

BILINEAR = InterpolationMode.BILINEAR
PADDING = ("constant", "edge", "reflect", "symmetric")


def rounded(x: Tensor, like: Tensor) -> Tensor:
    """Floating point numbers as the dtype of `like`: whole ones where that has none between."""
    if like.dtype.is_floating_point:
        return x.to(like.dtype)
    if like._array.dtype.kind == "b":  # a mask: what is more than half covered
        return x.round().clamp(0, 1).to(like.dtype)
    limits = np.iinfo(like._array.dtype)
    return x.round().clamp(int(limits.min), int(limits.max)).to(like.dtype)


def floating(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.float()


def wanted_size(name: str, size: Any, high: int, wide: int, max_size: int | None = None) -> tuple[int, int]:
    """Height and width: `size` as a pair, or the length of the shorter side, the longer one being at most `max_size`; None: it is that."""
    if size is None and max_size is None:
        raise ValueError(f"{name}: give a size, or the longer side's as max_size")
    if isinstance(size, Sequence) and len(size) == 2:
        if max_size is not None:
            raise ValueError(f"{name}: max_size goes with a size of one number, not with {size}")
        found = int(size[0]), int(size[1])
    else:
        short, long = (high, wide) if high <= wide else (wide, high)
        one = size[0] if isinstance(size, Sequence) and len(size) == 1 else size
        if one is None:
            assert max_size is not None
            sides = int(max_size * short / long), max_size
        elif isinstance(one, numbers.Integral):
            one = int(one)
            sides = one, int(one * long / short)
            if max_size is not None and max_size <= one:
                raise ValueError(f"{name}: max_size ({max_size}) has to be greater than the size of the shorter side ({one})")
            if max_size is not None and sides[1] > max_size:
                sides = int(max_size * sides[0] / sides[1]), max_size
        else:
            raise ValueError(f"{name}: size is one number, for the shorter side, or (height, width), not {size!r}")
        found = sides if high <= wide else (sides[1], sides[0])
    if min(found) < 1:
        raise ValueError(f"{name}: sizes are positive, not {found} (for an image of {high} x {wide})")
    return found


def resize(
    inpt: Any, size: int | Sequence[int] | None, interpolation: Any = BILINEAR, max_size: int | None = None, antialias: bool | None = True
) -> Any:
    """An image at another size: `size` is (height, width), or a number for the shorter side, which keeps the proportions.

    max_size: of the longer side; with size=None its length. antialias: where an image becomes smaller, all its pixels count (bilinear,
    bicubic); for images of Pillow's it is so always. Pillow resizes its images itself; tensors' numbers differ from its by a level.

    >>> gl.transforms.functional.resize(gl.zeros(3, 40, 20), 10).shape
    (3, 20, 10)
    """
    high, wide = get_size(inpt)
    wanted = wanted_size("resize", size, high, wide, max_size)
    mode = interpolation_of("resize", interpolation)
    if wanted == (high, wide):
        return inpt
    if is_pillow(inpt):
        return inpt.resize((wanted[1], wanted[0]), OF_PILLOW[mode])
    if mode in ("box", "hamming", "lanczos"):
        raise ValueError(f"resize: interpolation {mode!r} is for images of Pillow's; take bilinear or bicubic")
    return _resize(inpt, wanted, mode, bool(antialias))


@of_images
def _resize(x: Tensor, size: tuple[int, int], mode: str, antialias: bool) -> Tensor:
    batch = x.reshape(-1, *x.shape[-3:]).contiguous()
    if mode.startswith("nearest"):
        found = F.interpolate(batch, size, mode=mode)
    else:  # one side after the other: whole numbers are whole in between, as Pillow has them
        found = batch.float() if x._array.dtype.kind == "b" else batch  # truth values have none between
        for side in ((batch.shape[-2], size[1]), size):
            if tuple(found.shape[-2:]) != side:
                found = rounded(F.interpolate(floating(found), side, mode=mode, align_corners=False, antialias=antialias), found)
        found = rounded(found, x) if found.dtype != x.dtype else found
    return found.reshape(*x.shape[:-2], *size)


@of_images
def crop(inpt: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """The part of an image that begins at (top, left); what lies outside is 0.

    >>> gl.transforms.functional.crop(gl.ones(1, 2, 2), 1, -1, 1, 3)
    tensor([[[0., 1., 1.]]])
    """
    high, wide = inpt.shape[-2:]
    inner = inpt[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    sides = [max(-left, 0), max(left + width - wide, 0), max(-top, 0), max(top + height - high, 0)]
    if not any(sides):
        return inner
    sides[1], sides[3] = width - inner.shape[-1] - min(sides[0], width), height - inner.shape[-2] - min(sides[2], height)
    return F.pad(inner, (min(sides[0], width), sides[1], min(sides[2], height), sides[3]))


def center_crop(inpt: Any, output_size: int | Sequence[int]) -> Any:
    """The middle of an image, (height, width) or a square; 0 where the image is smaller.

    >>> gl.transforms.functional.center_crop(gl.arange(5.0).reshape(1, 1, 5), (1, 3))
    tensor([[[1., 2., 3.]]])
    """
    height, width = pair("center_crop", output_size)
    high, wide = get_size(inpt)
    if width > wide or height > high:
        sides = (max(width - wide, 0), max(height - high, 0))
        inpt = pad(inpt, [sides[0] // 2, sides[1] // 2, (sides[0] + 1) // 2, (sides[1] + 1) // 2])
        high, wide = get_size(inpt)
    return crop(inpt, round((high - height) / 2), round((wide - width) / 2), height, width)


def resized_crop(
    inpt: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = BILINEAR, antialias: bool | None = True
) -> Any:
    """`crop`, and its `resize` to `size`."""
    return resize(crop(inpt, top, left, height, width), size, interpolation, antialias=antialias)


@of_images
def horizontal_flip(inpt: Tensor) -> Tensor:
    """An image with left and right exchanged."""
    return inpt.flip(-1)


@of_images
def vertical_flip(inpt: Tensor) -> Tensor:
    """An image with top and bottom exchanged."""
    return inpt.flip(-2)


def pad(
    inpt: Any, padding: int | Sequence[int], fill: float | Sequence[float] | None = None, padding_mode: str = "constant"
) -> Any:
    """An image with borders: of one width, (left and right, top and bottom), or (left, top, right, bottom).

    fill: what constant borders hold (default 0), a number or one for each channel. padding_mode: "constant", "edge" (the last pixel),
    "reflect" (mirrored about the last pixel), "symmetric" (about the edge).

    >>> gl.transforms.functional.pad(gl.tensor([[[1.0, 2.0]]]), [1, 0], padding_mode="reflect")
    tensor([[[2., 1., 2., 1.]]])
    """
    sides = [padding] if isinstance(padding, numbers.Integral) else list(padding) if isinstance(padding, (list, tuple)) else []
    if len(sides) not in (1, 2, 4) or not all(isinstance(side, numbers.Integral) for side in sides):
        raise ValueError(f"pad: padding is one, two or four whole numbers, not {padding!r}")
    left, top, right, bottom = (int(side) for side in sides * (4 // len(sides)))
    if padding_mode not in PADDING:
        raise ValueError(f"pad: padding_mode is one of {', '.join(PADDING)}, not {padding_mode!r}")
    return _pad(inpt, (left, right, top, bottom), fill, padding_mode)


@of_images
def _pad(x: Tensor, sides: tuple[int, int, int, int], fill: Any, mode: str) -> Tensor:
    left, right, top, bottom = sides
    if mode == "constant":
        if fill is None or isinstance(fill, (int, float)):
            return F.pad(x, sides, value=fill or 0)
        return filled(F.pad(x, sides), F.pad(x[..., :1, :, :] * 0 + 1, sides) == 0, fill, "pad")
    if min(sides) < 0:
        raise ValueError(f"pad: mode {mode!r} takes no negative padding, got {sides}")
    for dim, low, high in ((-1, left, right), (-2, top, bottom)):
        if low or high:
            size = x.shape[dim]
            if mode == "reflect" and max(low, high) >= size:
                raise ValueError(f"pad: reflect takes less padding than there are pixels, got {max(low, high)} for {size}")
            at = np.pad(np.arange(size), (low, high), mode=mode)  # type: ignore[call-overload]
            x = x.index_select(dim, tensor(at, device=x.device))
    return x


def filled(x: Tensor, outside: Tensor, fill: Any, name: str) -> Tensor:
    """`x` with `fill`, a number or one for each channel, where `outside` is true."""
    values = [float(v) for v in fill] if isinstance(fill, Sequence) else [float(fill)]
    if len(values) not in (1, x.shape[-3]):
        raise ValueError(f"{name}: fill is one number or one for each of {x.shape[-3]} channels, not {fill!r}")
    return tensor(values, dtype=x.dtype, device=x.device).reshape(-1, 1, 1).where(outside, x)


def five_crop(inpt: Any, size: int | Sequence[int]) -> tuple[Any, ...]:
    """The four corners (top left, top right, bottom left, bottom right) and the middle of an image."""
    height, width = pair("five_crop", size)
    high, wide = get_size(inpt)
    if width > wide or height > high:
        raise ValueError(f"five_crop: {height} x {width} is larger than the image, {high} x {wide}")
    places = [(0, 0), (0, wide - width), (high - height, 0), (high - height, wide - width)]
    return (*(crop(inpt, top, left, height, width) for top, left in places), center_crop(inpt, (height, width)))


def ten_crop(inpt: Any, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of an image and of its mirror image."""
    mirrored = _vertically(inpt) if vertical_flip else horizontal_flip(inpt)
    return five_crop(inpt, size) + five_crop(mirrored, size)


_vertically = vertical_flip
hflip, vflip = horizontal_flip, vertical_flip


def pair(name: str, size: Any) -> tuple[int, int]:
    """(height, width) of a pair or of one number, for a square."""
    if isinstance(size, numbers.Integral):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) in (1, 2) and all(isinstance(n, numbers.Integral) for n in size):
        return int(size[0]), int(size[-1])
    raise ValueError(f"{name}: size is one number, for a square, or (height, width), not {size!r}")


@of_images
def erase(inpt: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """An image with `v`, which broadcasts to (channels, h, w), in the part that begins at (i, j)."""
    found = inpt if inplace else inpt.clone()
    found[..., i : i + h, j : j + w] = v if isinstance(v, Tensor) else tensor(v, dtype=inpt.dtype, device=inpt.device)
    return found


__all__ = [
    "center_crop", "crop", "erase", "five_crop", "hflip", "horizontal_flip", "pad", "resize", "resized_crop", "ten_crop", "vertical_flip",
    "vflip",
]  # fmt: skip
