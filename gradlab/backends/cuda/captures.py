"""Captures of the real GPU's streams into CUDA graphs, by CuPy."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn


def _no_memory(size: int) -> Any:
    raise RuntimeError(
        f"inside a CUDA graph's capture: {size} bytes are allocated, and the capture has no arena; use gl.cuda.graph, or allocate "
        "before"
    )


def _ended(stream: Any) -> NoReturn:
    raise RuntimeError("a CUDA graph cannot be replayed any more: the program ends")


class RealArena:
    """Memory of captured graphs: a pool of its own, so that nothing else is given what a graph works with."""

    __slots__ = ("__weakref__", "pool")

    def __init__(self, pool: Any) -> None:
        self.pool = pool


class RealGraph:
    """A captured graph, and what has to last as long."""

    __slots__ = ("__weakref__", "_keep", "launch")

    def __init__(self, graph: Any, keep: Any) -> None:
        self.launch: Callable[[Any], None] = graph.launch
        self._keep = keep

    def close(self) -> None:
        """Drop the graph; its memory stays until this object goes."""
        self.launch = _ended


class RealCapture:
    """A capture that goes on: its stream, its arena, and the allocator of this thread that is to be put back."""

    def __init__(self, stream: Any, arena: RealArena | None, allocator: AbstractContextManager[None]) -> None:
        self.stream, self.arena, self.allocator = stream, arena, allocator


class Captures:
    """The driver's part for captures: one at a time in each thread."""

    _cuda: Any
    _stream_of_thread: Callable[[], Any]
    _error: type[Exception]

    def __init__(self) -> None:
        self._captures: dict[int, RealCapture] = {}  # by thread
        self._arenas: weakref.WeakSet[RealArena] = weakref.WeakSet()
        self._graphs: weakref.WeakSet[RealGraph] = weakref.WeakSet()
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Graphs that live still go now: when the interpreter drops them, the runtime that has to destroy them may be gone."""
        for graph in list(self._graphs):
            graph.close()

    def new_arena(self) -> RealArena:
        made = RealArena(self._cuda.MemoryPool())
        self._arenas.add(made)
        return made

    def begin_capture(self, stream: Any, arena: RealArena | None) -> None:
        thread = threading.get_ident()
        if thread in self._captures:
            raise RuntimeError("a capture is going on already; end it first")
        if stream.ptr in (0, 1, 2):
            raise RuntimeError("a capture cannot begin in a default stream; use gl.cuda.Stream(), as gl.cuda.graph does")
        allocator = self._cuda.using_allocator(_no_memory if arena is None else arena.pool.malloc)  # of this thread
        # CuPy's default, the relaxed mode: the arena may take memory from the device while the capture goes on.
        stream.begin_capture()
        allocator.__enter__()
        self._captures[thread] = RealCapture(stream, arena, allocator)

    def end_capture(self, stream: Any) -> RealGraph:
        thread = threading.get_ident()
        capture = self._captures.get(thread)
        if capture is None or capture.stream != stream:
            raise RuntimeError("end_capture: no capture began in this stream, in this thread")
        del self._captures[thread]
        capture.allocator.__exit__(None, None, None)
        try:
            made = RealGraph(stream.end_capture(), capture.arena)  # instantiated by CuPy
        except self._error as error:
            raise RuntimeError(
                f"the capture has failed: {error}. In a capture there is no waiting for the device and no copy to or from the host, and "
                "every stream that joins has to be waited for at the end"
            ) from None
        self._graphs.add(made)
        return made

    def instantiate(self, captured: RealGraph) -> RealGraph:
        return captured

    def launch_graph(self, graph: RealGraph, stream: Any) -> None:
        graph.launch(stream)

    def capture(self) -> RealCapture | None:
        found = self._captures.get(threading.get_ident()) if self._captures else None
        return found if found is not None and self.capturing() else None

    def capturing(self) -> bool:
        if not self._captures:
            return False
        try:
            return bool(self._stream_of_thread().is_capturing())
        except self._error:
            raise
        except RuntimeError:  # CuPy's own: an error has spoiled the capture, which goes on until it is ended, and `end_capture` says so
            return True

    def _not_in_capture(self, what: str) -> None:
        if self._captures and threading.get_ident() in self._captures:
            raise RuntimeError(
                f"inside a CUDA graph's capture: {what} is not possible: nothing runs before the graph is replayed. Do it before the "
                "capture, or after replaying"
            )
