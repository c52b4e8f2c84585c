"""Named ranges in NVIDIA's profilers (Nsight Systems): names and meanings follow `torch.cuda.nvtx`.

They need a GPU and CuPy's NVTX; elsewhere, on the emulated GPU too, the functions only count how deep the ranges nest.
Ranges of modules and operations: `gl.profiler.emit_nvtx()`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradlab.backends.cuda.loading import available, load

__all__ = ["mark", "range", "range_pop", "range_push"]
_depth = threading.local()


def _library() -> Any:
    """CuPy's NVTX, or None."""
    if not available():
        return None
    return getattr(getattr(load().driver.library, "cuda", None), "nvtx", None)


def range_push(msg: str) -> int:
    """Begin a range inside those that this thread has begun; how many there are around it."""
    library = _library()
    if library is not None:
        library.RangePush(msg)
    depth: int = getattr(_depth, "value", 0)
    _depth.value = depth + 1
    return depth


def range_pop() -> int:
    """End this thread's innermost range; how many are around it. RuntimeError where none was begun."""
    depth: int = getattr(_depth, "value", 0) - 1
    if depth < 0:
        raise RuntimeError("nvtx.range_pop: no range was begun in this thread")
    library = _library()
    if library is not None:
        library.RangePop()
    _depth.value = depth
    return depth


def mark(msg: str) -> None:
    """A moment with a name."""
    library = _library()
    if library is not None:
        library.Mark(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for the block: `with gl.cuda.nvtx.range("step {}", 3):`; the message is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
