"""The garbage collector waits while a function is traced and compiled.

A trace makes many objects that stay. Each thousands of them the collector looks at all there are, which takes a third of the time to trace
a network of a thousand layers, and more than in proportion to its depth. A program that was replaced is a cycle of objects, so a process
that has switched the collector off and traces again and again would grow without end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 64  # traces after which it is collected where the collector is off, as what refers to itself would stay forever
_depth, _traces = 0, 0


@contextmanager
def without_collection() -> Iterator[None]:
    """No automatic collection inside; also a decorator. Where the collector is off anyway, one collection after so many."""
    global _depth, _traces
    was = gc.isenabled()
    gc.disable()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if was:
            gc.enable()
        elif not _depth:  # the user's own wish, and not that of a call around this one
            _traces += 1
            if _traces % EVERY == 0:
                gc.collect()
