"""One image file as a uint8 array, whatever mode it has."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradlab.data.errors import DataError
from gradlab.utils.pillow import pillow

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
GREY = frozenset({"1", "L", "LA", "La", "I", "F"})  # and all that begin with "I;16"
TRANSPARENT = frozenset({"LA", "La", "RGBA", "RGBa", "PA"})
BROKEN = (OSError, ValueError, SyntaxError, IndexError, KeyError, TypeError, EOFError, struct.error, OverflowError, ArithmeticError)


class ImageError(DataError):
    """A folder or a file of which no images can be had; the message names it and the way out."""


def read_image(path: str | os.PathLike[str], channels: int | None = None) -> NDArray[np.uint8]:
    """An image file as uint8 (height, width, channels), turned as its EXIF data say.

    channels: 1 (grey), 3 (red, green, blue), or None: 1 where the file is grey, else 3. What is transparent lies on white; greys of 16
    bits are rounded to 8; of an animation the first picture. ImageError for a file that is no image or is broken off;
    FileNotFoundError and the like as Python raises them.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"read_image: channels is 1, 3 or None, not {channels!r}")
    with opened(path) as image:
        return image_array(image, channels)


def check_image(path: str | os.PathLike[str]) -> str:
    """The mode of an image file that can be read to its end, found without decoding more than needed; ImageError as of `read_image`."""
    with opened(path) as image:
        mode = str(image.mode)
        image.draft("L", (1, 1))  # a JPEG file is then read whole, but an eighth of it decoded
        image.load()
        return mode


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """An image that a `with` block reads: faults of the file in it become an ImageError, and Pillow's warnings are not shown."""
    try:
        library = pillow()
    except ModuleNotFoundError as error:
        raise ImageError(str(error)) from None
    with open(path, "rb") as file, warnings.catch_warnings():  # opened here, so that a missing file is Python's own error
        warnings.simplefilter("ignore")
        try:
            yield library.open(file)
        except (*BROKEN, MemoryError, library.DecompressionBombError) as error:
            if isinstance(error, MemoryError):
                what = "it says that it is larger than there is memory for"
            elif not os.fstat(file.fileno()).st_size:
                what = "the file is empty"
            elif isinstance(error, library.UnidentifiedImageError):
                what = "it is no image that Pillow knows"
            else:
                what = f"it is broken ({error or type(error).__name__})"
            raise ImageError(f"{os.fspath(path)} cannot be read: {what}; replace or remove it") from None


def image_array(image: Any, channels: int | None = None) -> NDArray[np.uint8]:
    """An image of Pillow's as `read_image` gives it."""
    image = pillow("ImageOps").exif_transpose(image)
    mode = image.mode
    if mode.startswith("I;16") or mode in ("I", "F"):
        found = _eight_bits(np.asarray(image), mode)
        return np.repeat(found[..., None], 3 if channels == 3 else 1, axis=2)
    if mode in TRANSPARENT or "transparency" in image.info:
        over = image.convert("RGBA")
        image = pillow().new("RGBA", over.size, "white")
        image.alpha_composite(over)
    wanted = {1: "L", 3: "RGB", None: "L" if mode in GREY else "RGB"}[channels]
    found = np.array(image if image.mode == wanted else image.convert(wanted if image.mode != "LAB" else "RGB"), np.uint8)
    return found if found.ndim == 3 else found[..., None]


def _eight_bits(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Greys of 16 bits, of 32 bits (which hold 8 or 16 bits in practice) and floating point (from 0 to 1, or to 255) as 8 bits."""
    if mode == "F":
        finite = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
        return np.clip(np.rint(finite * 255 if finite.max(initial=0) <= 1 else finite), 0, 255).astype(np.uint8)
    whole = np.clip(values.astype(np.int64), 0, None)
    if mode == "I":
        top = int(whole.max(initial=0))
        if top < 256:
            return whole.astype(np.uint8)
        whole >>= max(top.bit_length() - 16, 0)
    return ((np.minimum(whole, 65535) + 128) // 257).astype(np.uint8)
