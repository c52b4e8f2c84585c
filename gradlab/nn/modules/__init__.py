"""The layers, one file for each kind. Their classes are those of `gradlab.nn`, and may be imported from here, too."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'gradlab.nn.modules' has no attribute {name!r}")
    if find_spec(f"{__name__}.{name}") is not None:  # gradlab.nn has a `module`, too
        return import_module(f"{__name__}.{name}")
    return getattr(import_module("gradlab.nn"), name)
