"""Classes that are no tensors and answer for PyTorch's functions: from the first one that a program defines, functions ask."""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Any

_build = builtins.__build_class__


def _noticing(function: Any, name: str, /, *bases: Any, **options: Any) -> Any:
    made = _build(function, name, *bases, **options)
    if isinstance(made, type) and "__torch_function__" in vars(made) and not made.__module__.startswith("gradlab."):
        import_module("gradlab.overrides").note(made)
    return made


def notice() -> None:
    """Look at each class that is defined from now on; that costs some 100 ns each, and operations nothing."""
    builtins.__build_class__ = _noticing
