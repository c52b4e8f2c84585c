"""Apple's GPUs, which gradlab does not run on: scripts that ask whether they are there get their answer."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False.

    >>> gl.backends.mps.is_available()
    False
    """
    return False


def is_built() -> bool:
    """False."""
    return False
