"""`profile`: a context that times what runs in it; `emit_nvtx`: one that names it for NVIDIA's profilers."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlab.autograd.mode import current, enter, leave
from gradlab.backends.cuda.backend import CudaBackend
from gradlab.cuda import nvtx
from gradlab.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from gradlab.op import Op
from gradlab.profiler.schedule import ProfilerAction, ProfilerActivity
from gradlab.profiler.table import Averages, averages
from gradlab.profiler.timing import Watcher, watched


@dataclass
class Event:
    """Something that took time: an operation, a module's forward, a range. Times in microseconds since the profile began."""

    name: str
    kind: str
    start: float
    end: float
    shapes: tuple[Any, ...]
    thread: int
    device: float = 0.0
    moments: Any = None  # driver, first and last device event


class profile(Watcher):
    """Times the operations in its block: `with gl.profiler.profile() as prof: …`, then `print(prof.key_averages().table())`.

    Host time is that of the row alone, without recording and Python around it; device time, on CUDA devices, is between events before and
    after it (not in captures). Operations of backward are listed as those they are. Functions of `gl.compile` run eagerly in the block,
    so that their operations can be seen.

    record_shapes: keep the inputs' shapes, for `key_averages(group_by_input_shape=True)`. with_modules: also each module's forward.
    schedule: what to record by the number of the step (`gl.profiler.schedule`), which `step()`, called after each step, counts.
    on_trace_ready: called with the profile when a recording ends; by its schedule, or with the block.
    activities, profile_memory, with_stack, with_flops, acc_events: taken as PyTorch's scripts give them. Host and device are timed
    anyway; memory, stacks and FLOPs are not recorded.

    `start()` and `stop()` are the block's begin and end.

    >>> import gradlab as gl
    >>> with gl.profiler.profile() as prof:
    ...     y = (gl.ones(3) * 2).sum()
    >>> [e.key for e in prof.key_averages() if e.key in ("mul", "sum")]
    ['mul', 'sum']
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, acc_events: bool = False,
    ) -> None:  # fmt: skip
        wrong = [a for a in activities or () if not isinstance(a, ProfilerActivity)]
        if wrong:
            raise TypeError(f"profile: activities are of gl.profiler.ProfilerActivity, not {wrong[0]!r}")
        self.record_shapes, self.with_modules = record_shapes, with_modules
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self._action = ProfilerAction.RECORD
        self._events: list[Event] = []
        self._stack = ExitStack()
        self._begun = 0.0
        self._open: list[tuple[str, float]] = []

    def _now(self) -> float:
        return time.perf_counter() * 1e6 - self._begun

    def __enter__(self) -> profile:
        if isinstance(current().observer, Watcher):
            raise RuntimeError("profile: another profile, or emit_nvtx, is on already; leave it first")
        self._begun = time.perf_counter() * 1e6
        self._action = self._planned()
        self._stack.enter_context(_observing(self))
        if self.with_modules:
            self._stack.enter_context(_modules(self.push, self.pop))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._settle()
        if self.on_trace_ready is not None and self._keeps():
            self.on_trace_ready(self)

    def start(self) -> None:
        """Begin, as `with` does."""
        self.__enter__()

    def stop(self) -> None:
        """End, as the block of `with` does."""
        self.__exit__()

    def step(self) -> None:
        """Say that a step is over. By the schedule, what was recorded is handed to `on_trace_ready`, and the next recording begins anew."""
        before, self.step_num = self._action, self.step_num + 1
        self._action = self._planned()
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._settle()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        fresh = before in (ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD_AND_SAVE)
        if fresh and self._keeps():
            self._events.clear()

    def _planned(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _keeps(self) -> bool:
        return self._action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def _settle(self) -> None:
        """Device times, once the device is done."""
        for event in self._events:
            if event.moments is not None:
                driver, first, last = event.moments
                driver.synchronize_event(last)
                event.device = driver.elapsed(first, last) * 1e3
                event.moments = None

    def begin(self, op: Op, backend: Any, arrays: list[Any]) -> Any:
        moment = None
        if isinstance(backend, CudaBackend) and not backend.driver.capturing():
            moment = backend.driver.new_event(True)
            backend.driver.record_event(moment, backend.driver.current_stream())
        shapes = tuple(tuple(getattr(a, "shape", ())) for a in arrays) if self.record_shapes else ()
        return op.name, backend, moment, shapes, self._now()

    def end(self, begun: Any, failed: bool) -> None:
        name, backend, first, shapes, start = begun
        end = self._now()
        moments = None
        if first is not None and not failed:
            driver = backend.driver
            last = driver.new_event(True)
            driver.record_event(last, driver.current_stream())
            moments = (driver, first, last)
        if self._keeps():
            self._events.append(Event(name, "backward" if self.node is not None else "forward", start, end, shapes, threading.get_ident(),
                                      moments=moments))  # fmt: skip

    def push(self, name: str) -> None:
        """Begin a range."""
        self._open.append((name, self._now()))

    def pop(self) -> None:
        """End the innermost range."""
        name, start = self._open.pop()
        if self._keeps():
            self._events.append(Event(name, "range", start, self._now(), (), threading.get_ident()))

    def events(self) -> list[Event]:
        """What took time, in the order in which it ended."""
        return list(self._events)

    def key_averages(self, group_by_input_shape: bool = False) -> Averages:
        """Sums by operation, or by operation and shapes (`record_shapes=True`)."""
        return averages(self._events, group_by_input_shape)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the events as JSON for chrome://tracing or https://ui.perfetto.dev; compressed where the name ends in .gz."""
        found = [
            {
                "name": e.name, "cat": e.kind, "ph": "X", "pid": 0, "tid": e.thread,
                "ts": round(e.start, 3), "dur": round(e.end - e.start, 3),
                "args": {"device_us": round(e.device, 3), "shapes": [list(s) for s in e.shapes]},
            }
            for e in self._events
        ]  # fmt: skip
        text = json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}).encode()
        Path(path).write_bytes(gzip.compress(text) if str(path).endswith(".gz") else text)


class _Emitter(Watcher):
    def begin(self, op: Op, backend: Any, arrays: list[Any]) -> Any:
        nvtx.range_push(f"{self.node.name()}: {op.name}" if self.node is not None else op.name)

    def end(self, begun: Any, failed: bool) -> None:
        nvtx.range_pop()

    def push(self, name: str) -> None:
        nvtx.range_push(name)

    def pop(self) -> None:
        nvtx.range_pop()


@contextmanager
def _observing(watcher: Watcher) -> Iterator[None]:
    with watched():
        token = enter(current().replace(observer=watcher))
        try:
            yield
        finally:
            leave(token)


@contextmanager
def _modules(push: Any, pop: Any) -> Iterator[None]:
    """Ranges of the forward of all modules, through their global hooks."""

    def enter_module(module: Any, args: Any) -> None:  # what a hook returns would take the arguments' place
        push(f"module {module._name or type(module).__name__}")

    def leave_module(module: Any, args: Any, output: Any) -> None:
        pop()

    before = register_module_forward_pre_hook(enter_module)
    after = register_module_forward_hook(leave_module, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextmanager
def emit_nvtx(*, with_modules: bool = True) -> Iterator[None]:
    """Within the block each operation is an NVTX range, and with_modules each module's forward, for Nsight Systems (`gl.cuda.nvtx`)."""
    if isinstance(current().observer, Watcher):
        raise RuntimeError("emit_nvtx: a profile, or another emit_nvtx, is on already; leave it first")
    with ExitStack() as stack:
        stack.enter_context(_observing(_Emitter()))
        if with_modules:
            stack.enter_context(_modules(nvtx.range_push, nvtx.range_pop))
        yield


@contextmanager
def record_function(name: str) -> Iterator[None]:
    """A range of one's own in the profile or `emit_nvtx` that is on: `with gl.profiler.record_function("loss"):`. Nothing else."""
    watcher = current().observer
    if not isinstance(watcher, (profile, _Emitter)):
        yield
        return
    watcher.push(f"range {name}")
    try:
        yield
    finally:
        watcher.pop()
