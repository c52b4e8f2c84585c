"""CUDA graphs: a step of work is captured once and replayed at the cost of one launch."""

from __future__ import annotations

import gc
from typing import Any

from gradlab.backends.cuda.gemm.library import warm
from gradlab.backends.cuda.loading import load
from gradlab.cuda.captured_random import CapturedDraws
from gradlab.cuda.devices import synchronize
from gradlab.cuda.streams import Stream, current_stream, stream as within
from gradlab.tensor.generator import Generator

_MODES = ("global", "thread_local", "relaxed")


class CUDAGraph:
    """Captured work. Replaying runs the same kernels on the same memory: write new inputs into the tensors that the capture read
    (`copy_`), and read its outputs from the tensors that it made.

    Before capturing, run the same work a few times: kernels are loaded and products prepared on first use, which a capture cannot do.
    Keep the tensors that the work uses. What it allocates belongs to the graph. Random numbers drawn in a capture are new in each replay,
    and the default generator moves on as if the work had run.

    >>> model, x = gl.nn.Linear(8, 2).cuda(), gl.zeros(4, 8, device="cuda")  # doctest: +SKIP
    >>> y = model(x)  # doctest: +SKIP
    >>> g = gl.cuda.CUDAGraph()  # doctest: +SKIP
    >>> with gl.cuda.graph(g):  # doctest: +SKIP
    ...     y = model(x)
    >>> x.copy_(batch)  # doctest: +SKIP
    >>> g.replay()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._arena: Any = None
        self._graph: Any = None
        self._stream: Stream | None = None
        self._draws: CapturedDraws | None = None
        self._generators: list[Generator] = []

    def register_generator_state(self, generator: Generator) -> None:
        """Let the work to be captured draw from a generator besides the default one."""
        self._generators.append(generator)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Capture what this thread submits to the current stream, which is not the default one, from now on.

        pool: what another graph's `pool()` or `graph_pool_handle()` gave: graphs that are replayed one after the other, in the order of
        their captures, may share memory. capture_error_mode is there for PyTorch's sake.
        """
        if capture_error_mode not in _MODES:
            raise ValueError(f"capture_error_mode is {capture_error_mode!r}; it may be {', '.join(map(repr, _MODES))}")
        if self._graph is not None or self._stream is not None:
            raise RuntimeError("capture_begin: this graph has been captured; call reset() first, or make another")
        driver = load().driver
        chosen = current_stream()
        warm(driver)
        arena = driver.new_arena() if pool is None else pool
        draws = CapturedDraws(chosen.device, self._generators)
        driver.synchronize_stream(chosen._handle)
        driver.begin_capture(chosen._handle, arena)
        self._arena, self._stream, self._draws = arena, chosen, draws
        draws.begin()

    def capture_end(self) -> None:
        """End the capture. RuntimeError if it was spoiled by something that a capture cannot hold."""
        if self._stream is None or self._draws is None:
            raise RuntimeError("capture_end: no capture has begun")
        captured, self._stream = self._stream, None
        self._draws.end()
        driver = load().driver
        try:
            self._graph = driver.instantiate(driver.end_capture(captured._handle))
        except BaseException:
            self.reset()
            raise

    def replay(self) -> None:
        """Run the captured work in the current stream."""
        if self._graph is None or self._draws is None:
            raise RuntimeError("replay: nothing has been captured; use `with gl.cuda.graph(g):`")
        driver = load().driver
        stream = driver.current_stream()
        self._draws.renew(driver, stream)
        driver.launch_graph(self._graph, stream)
        self._draws.replayed(driver, stream)

    def reset(self) -> None:
        """Drop what was captured, and its memory."""
        self._graph = self._arena = self._stream = self._draws = None

    def pool(self) -> Any:
        """The graph's memory, for another capture to share."""
        if self._arena is None:
            raise RuntimeError("pool: nothing has been captured")
        return self._arena


class graph:
    """Within the block, work is captured into a graph and does not run: `with gl.cuda.graph(g):`.

    It captures in a stream of its own (or the given one) after the device has done all its work. pool, capture_error_mode: see
    `CUDAGraph.capture_begin`.
    """

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
    ) -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(f"graph: a gl.cuda.CUDAGraph, not {type(cuda_graph).__name__}")
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self._within = within(Stream() if stream is None else stream)

    def __enter__(self) -> None:
        synchronize()
        gc.collect()  # so that what is garbage by now is not freed in the capture
        self._within.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._within.__exit__()
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if kind is None:
                raise  # else the block's own error says more
        finally:
            self._within.__exit__()
        if kind is not None:
            self.cuda_graph.reset()


def graph_pool_handle() -> Any:
    """Memory for several captures to share, on the current device."""
    return load().driver.new_arena()


def is_current_stream_capturing() -> bool:
    """Whether what is submitted now is captured."""
    return load().driver.capturing()
