"""Pillow, which reads and writes image files: an extra, imported when it is first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


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
