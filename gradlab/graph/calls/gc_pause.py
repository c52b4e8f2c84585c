"""The garbage collector waits while a function is traced and compiled.

A trace makes many objects that stay. Each thousands of them the collector looks at all there are, which takes a third of the time to trace
a network of a thousand layers, and more than in proportion to its depth.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No automatic collection inside; also a decorator."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
