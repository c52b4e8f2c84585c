"""What counts as an image, and how functions of tensors (…, channels, height, width) become functions of images of every kind.

An image is a tensor (…, channels, height, width) or (height, width), on any device; a NumPy array (height, width), (height, width,
channels) or (n, height, width, channels); or an image of Pillow's. A result is of the kind of its image.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np

from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy
from gradlab.utils.pillow import is_pillow, pillow, pixels

CHANNELS = (1, 2, 3, 4)
P = ParamSpec("P")


class InterpolationMode(Enum):
    """How pixels between pixels are found. BOX, HAMMING and LANCZOS are for images of Pillow's alone."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


OF_PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}  # Image.Resampling


def interpolation_of(name: str, mode: Any, allowed: tuple[str, ...] = tuple(OF_PILLOW)) -> str:
    """The mode's name: of an InterpolationMode, a name, or Pillow's number."""
    if isinstance(mode, InterpolationMode):
        found = mode.value
    elif isinstance(mode, int):
        found = {number: word for word, number in OF_PILLOW.items() if word != "nearest-exact"}.get(int(mode), str(mode))
    else:
        found = str(mode).lower()
    if found not in allowed:
        raise ValueError(f"{name}: interpolation is one of {', '.join(allowed)}, not {mode!r}")
    return found


def is_image(x: Any) -> bool:
    """Whether `x` can be an image: a Pillow image, or a tensor or array of at least two dimensions and of numbers."""
    return is_pillow(x) or (isinstance(x, (Tensor, np.ndarray)) and x.ndim >= 2 and (isinstance(x, Tensor) or x.dtype.kind in "uif"))


def taken(name: str, image: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """An image as a tensor (…, channels, height, width), and what makes an image of its kind of a result."""
    if isinstance(image, Tensor):
        if image.ndim >= 3:
            return image, lambda x: x
        if image.ndim == 2:
            return image[None], lambda x: x[0] if x.shape[0] == 1 else x
        raise ValueError(f"{name}: an image is a tensor (…, channels, height, width), not one of shape {tuple(image.shape)}")
    if isinstance(image, np.ndarray):
        return _of_array(name, image), _array_of_rank(image.ndim)
    if is_pillow(image):
        return _of_array(name, pixels(image)), _as_pillow(image)
    raise TypeError(f"{name}: an image is a tensor, a NumPy array or an image of Pillow's, not {type(image).__name__}")


def _of_array(name: str, array: Any) -> Tensor:
    if array.dtype.kind not in "uif" or array.ndim not in (2, 3, 4) or (array.ndim > 2 and array.shape[-1] not in CHANNELS):
        raise ValueError(
            f"{name}: an array is an image (height, width), (height, width, channels) or (n, height, width, channels) with 1 to 4 channels "
            f"of numbers, not {array.dtype} of shape {array.shape}; make a tensor of (channels, height, width)"
        )
    if array.dtype == np.uint16:
        array = array.astype(np.int32)
    elif not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return from_numpy(array[None] if array.ndim == 2 else np.moveaxis(array, -1, -3))


def _array_of_rank(rank: int) -> Callable[[Tensor], Any]:
    def back(x: Tensor) -> Any:
        found = np.moveaxis(x.detach().cpu().numpy(), -3, -1)
        return np.ascontiguousarray(found[..., 0] if rank == 2 and found.shape[-1] == 1 else found)

    return back


def _as_pillow(image: Any) -> Callable[[Tensor], Any]:
    def back(x: Tensor) -> Any:
        found = np.moveaxis(x.detach().cpu().numpy(), -3, -1)
        array = np.ascontiguousarray(found[..., 0] if found.shape[-1] == 1 else found)
        if array.ndim == 2 and image.mode == "1":
            return pillow().fromarray(array).convert("1")
        if array.ndim == 2 and image.mode.startswith("I;16"):
            return pillow().fromarray(array.astype(np.uint16))
        made = pillow().fromarray(array)
        if image.mode == "P":
            made.putpalette(image.getpalette())
        elif made.mode != image.mode and len(made.getbands()) == len(image.getbands()):  # CMYK beside RGBA, HSV beside RGB
            made = pillow().frombytes(image.mode, made.size, made.tobytes())
        return made

    return back


def of_images(function: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Any, P], Any]:
    """A function of a tensor (…, channels, height, width) as one of images of every kind."""

    @wraps(function)
    def call(inpt: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        tensor, back = taken(function.__name__, inpt)
        return back(function(tensor, *args, **options))

    return call


COLOURS = {"P": "RGB", "PA": "RGBA", "1": "L"}  # modes whose numbers are no brightnesses, and what they are the pictures of


def of_colours(function: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Any, P], Any]:
    """As `of_images`, of functions that compute with brightnesses: images with a palette become coloured, those of one bit grey."""
    call = of_images(function)

    @wraps(function)
    def of_brightness(inpt: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return call(inpt.convert(COLOURS[inpt.mode]) if is_pillow(inpt) and inpt.mode in COLOURS else inpt, *args, **options)

    return of_brightness


def get_size(inpt: Any) -> list[int]:
    """[height, width] of an image."""
    if is_pillow(inpt):
        return [inpt.height, inpt.width]
    return [int(n) for n in taken("get_size", inpt)[0].shape[-2:]]


def get_dimensions(inpt: Any) -> list[int]:
    """[channels, height, width] of an image."""
    if is_pillow(inpt):
        return [len(inpt.getbands()), inpt.height, inpt.width]
    return [int(n) for n in taken("get_dimensions", inpt)[0].shape[-3:]]


def get_num_channels(inpt: Any) -> int:
    """How many channels an image has."""
    return get_dimensions(inpt)[0]


def bound(x: Tensor) -> float:
    """What white is: 1 for floating point and truth values, else the greatest number of the dtype."""
    return 1.0 if x.dtype.is_floating_point or x._array.dtype.kind == "b" else float(np.iinfo(x._array.dtype).max)
