"""Of `torch.fx`: the mark on functions that its tracer is not to look into. gradlab's tracers look into all of them."""

from __future__ import annotations

from typing import TypeVar

F = TypeVar("F")


def wrap(fn_or_name: F) -> F:
    """The function, or its name, as it is."""
    return fn_or_name
