"""Pillow, which reads and writes image files: an extra, imported when it is first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np


def pillow(module: str = "Image") -> Any:
    """The module `PIL.<module>`; ModuleNotFoundError that says how to install it."""
    try:
        return import_module(f"PIL.{module}")
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        message = "image files are read by Pillow, which is not installed: pip install 'gradlab-engine[images]', or pip install pillow"
        raise ModuleNotFoundError(message, name="PIL") from None


def is_pillow(x: Any) -> bool:
    """Whether `x` is an image of Pillow's. Where Pillow was not imported there is none."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(x, module.Image)


def pixels(image: Any) -> Any:
    """A Pillow image's numbers as an array (height, width, channels) of its own: of mode "1" 0 and 255, of 16 bits int32."""
    found = np.array(image)
    if found.dtype == np.bool_:
        found = found.astype(np.uint8) * 255
    if found.dtype.kind == "u" and found.itemsize == 2:
        found = found.astype(np.int32)
    return found if found.ndim == 3 else found[..., None]
