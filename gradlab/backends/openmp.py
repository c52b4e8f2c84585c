"""OpenMP, which gradlab does not compute with: scripts that ask whether it is there get their answer."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False.

    >>> gl.backends.openmp.is_available()
    False
    """
    return False
