"""Intel's oneDNN, which gradlab does not compute with: scripts that ask whether it is there, or switch it, get their answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["deterministic", "enabled", "flags", "is_available"]

enabled, deterministic = False, True


def is_available() -> bool:
    """False.

    >>> gl.backends.mkldnn.is_available()
    False
    """
    return False


@contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: Any = "none") -> Iterator[None]:
    """A `with` block in which nothing changes.

    >>> with gl.backends.mkldnn.flags(enabled=False):
    ...     gl.backends.mkldnn.enabled
    False
    """
    yield
