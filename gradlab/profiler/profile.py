"""`profile`: a context that times what runs in it."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gradlab.autograd.mode import current, enter, leave
from gradlab.backends.cuda.backend import CudaBackend
from gradlab.call_site import caller
from gradlab.op import Op
from gradlab.profiler.counting import moved, shape_of
from gradlab.profiler.events import Event
from gradlab.profiler.memory import Memory
from gradlab.profiler.programs import execute
from gradlab.profiler.ranges import modules_as_ranges
from gradlab.profiler.schedule import ProfilerAction, ProfilerActivity
from gradlab.profiler.table import Averages, averages, by_module
from gradlab.profiler.timing import Watcher, observing
from gradlab.utils.atomic import write_bytes, write_text


class profile(Watcher):
    """Times what runs in its block: `with gl.profiler.profile() as prof: …`, then `print(prof.key_averages().table())`.

    The table has a line for each operation: how often, host time, its share, device time, bytes read and written, floating-point
    operations. Host time is that of the row alone, without recording and Python around it; device time, on CUDA devices, is between events
    before and after it (not in captures). Operations of backward are listed as those they are, the steps of a compiled function as
    "compiled …", with the rows that run in them; a GPU's program is launched step by step for it, not as one graph.

    `module_averages()` says which modules took the time, forward and backward; `export_chrome_trace` writes a trace.

    profile_memory: note when memory is allocated and released, for `export_memory_timeline`. record_shapes: for
    `key_averages(group_by_input_shape=True)`. with_stack: the user's lines, for `key_averages(group_by_stack_n=1)`.
    with_modules: also an event for each module's forward. schedule: what to record by the number of the step (`gl.profiler.schedule`),
    which `step()`, called after each step, counts. on_trace_ready: called with the profile when a recording ends; by its schedule, or with
    the block. enabled=False: nothing is done. activities, with_flops, acc_events and the other arguments are taken as PyTorch's scripts
    give them, those of `torch.autograd.profiler.profile` too: host, device, bytes and FLOPs are measured anyway.

    `start()` and `stop()` are the block's begin and end. docs/profiler.md shows it all, with what it costs.

    >>> import gradlab as gl
    >>> with gl.profiler.profile() as prof:
    ...     y = (gl.ones(3) * 2).sum()
    >>> [(e.key, e.count, e.flops) for e in prof.key_averages() if e.key in ("mul", "sum")]
    [('mul', 1, 3), ('sum', 1, 3)]
    """

    def __init__(
        self, enabled: bool = True, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None, on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, acc_events: bool = False, use_cpu: bool = True, use_cuda: bool | None = None,
        use_device: str | None = None, use_kineto: bool = False, use_mtia: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, custom_trace_id_callback: Any = None, post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        wrong = [a for a in activities or () if not isinstance(a, ProfilerActivity)]
        if wrong:
            raise TypeError(f"profile: activities are of gl.profiler.ProfilerActivity, not {wrong[0]!r}")
        self.enabled = enabled
        self.record_shapes, self.with_modules = record_shapes, with_modules
        self.with_stack, self.profile_memory = with_stack, profile_memory
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self._action = ProfilerAction.RECORD
        self._events: list[Event] = []
        self._memory = Memory()
        self._metadata: dict[str, Any] = {}
        self._stack = ExitStack()
        self._begun = 0.0
        self._open: list[tuple[str, str, float]] = []
        self._origins: dict[tuple[int, int], Any] = {}  # of each device, its first event

    def _now(self) -> float:
        return time.perf_counter() * 1e6 - self._begun

    # ------------------------------------------------------------ the block

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if isinstance(current().observer, Watcher):
            raise RuntimeError("profile: another profile, or emit_nvtx, is on already; leave it first")
        self._begun = time.perf_counter() * 1e6
        self._action = self._planned()
        self._stack.enter_context(observing(self))
        if self.with_modules:
            self._stack.enter_context(modules_as_ranges(self.push, self.pop))
        return self

    def __exit__(self, *_: object) -> None:
        if not self.enabled:
            return
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
            self._memory = Memory()

    def _planned(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _keeps(self) -> bool:
        return self._action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def _settle(self) -> None:
        """Device times, once the device is done."""
        for event in self._events:
            if event.moments is not None:
                driver, origin, first, last = event.moments
                driver.synchronize_event(last)
                event.device = driver.elapsed(first, last) * 1e3
                event.device_start = driver.elapsed(origin, first) * 1e3
                event.moments = None

    # ------------------------------------------------------------ what it is told

    def begin(self, op: Op, backend: Any, arrays: list[Any]) -> Any:
        keeps = self._keeps()
        if keeps and self.profile_memory:
            self._memory.met(arrays)
        given = (tuple(map(shape_of, arrays)), moved(arrays)) if keeps else ((), 0)  # before the row can change the list
        return op, backend, self.moment(backend), given, self._now()

    def end(self, begun: Any, result: Any) -> None:
        op, backend, first, (shapes, size), start = begun
        end = self._now()
        if not self._keeps():
            return
        moments = None if first is None or result is None else (backend.driver, first, self.moment(backend))
        made = () if result is None else result if isinstance(result, tuple) else (result,)
        node, mode = self.node, current()
        event = Event(op.name, "backward" if node is not None else "forward", start, end, threading.get_ident(), moments=moments)
        event.shapes = tuple(() if s is None else s for s in shapes) if self.record_shapes else ()
        event.work = ((op, shapes, tuple(map(shape_of, made))),)
        event.bytes = 0 if op.view else size + moved(made)
        event.scope = mode.scope if node is None else node.scope
        if self.with_stack:
            event.place = caller() if node is None else (node.code, node.lasti)
        if moments is not None:
            self._placed(event)
        if self.profile_memory:
            event.memory = 0 if op.view else self._memory.made(made)
        self._events.append(event)

    def moment(self, backend: Any) -> Any:
        """An event on the device's stream at this moment; None where there is no device, or in a capture."""
        if not isinstance(backend, CudaBackend) or backend.driver.capturing():
            return None
        moment = backend.driver.new_event(True)
        backend.driver.record_event(moment, backend.driver.current_stream())
        return moment

    def _placed(self, event: Event) -> None:
        """Note where an event with moments runs: in which stream, and of which device's first event its time is counted."""
        driver, first, last = event.moments
        event.stream = int(driver.current_stream().ptr)
        event.moments = driver, self._origins.setdefault((id(driver), driver.current_device()), first), first, last

    def execute(self, executable: Any, arrays: Any, outs: Any) -> None:
        """Run a compiled program, each of its steps an event."""
        if not self._keeps():
            executable.run(arrays, outs)
            return
        if self.profile_memory:
            self._memory.met(arrays)
        token = enter(current().replace(observer=None))  # what a step lets NumPy do is in it
        try:
            events = execute(executable, arrays, outs, self._now, self.moment)
            for event in events:
                if event.moments is not None:
                    self._placed(event)
            self._events += events
        finally:
            leave(token)
        if self.profile_memory:
            self._memory.made([*outs, *([executable._memory] if hasattr(executable, "_memory") else [])])

    def push(self, name: str, kind: str = "range") -> None:
        """Begin a range."""
        self._open.append((name, kind, self._now()))

    def pop(self) -> None:
        """End the innermost range."""
        name, kind, start = self._open.pop()
        if self._keeps():
            self._events.append(Event(name, kind, start, self._now(), threading.get_ident(), scope=current().scope))

    # ------------------------------------------------------------ what it found

    def events(self) -> list[Event]:
        """What took time, in the order in which it ended."""
        return list(self._events)

    @property
    def function_events(self) -> list[Event]:
        """As `events()`."""
        return self.events()

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Averages:
        """Sums by operation; or also by the inputs' shapes (`record_shapes=True`), or by the user's line (`with_stack=True`)."""
        return averages(self._events, group_by_input_shape, group_by_stack_n > 0)

    def module_averages(self) -> Averages:
        """Sums by module: what ran in its forward and in the backward of it, its submodules included; the outermost first.

        >>> import gradlab as gl
        >>> model = gl.nn.Sequential(gl.nn.Linear(2, 3), gl.nn.Tanh())
        >>> with gl.profiler.profile() as prof:
        ...     model(gl.ones(4, 2)).sum().backward()
        >>> [e.key for e in prof.module_averages()]
        ['Sequential', 'Sequential.0', 'Sequential.1', '(outside of modules)']
        """
        return by_module(self._events)

    def total_average(self) -> Any:
        """One line with the sums over all operations."""
        return self.key_averages().total()

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all operations, in microseconds."""
        return float(self.total_average().cpu_time_total)

    def table(self, sort_by: str | None = "cpu_time_total", row_limit: int = 100, **options: Any) -> str:
        """As `key_averages().table()`."""
        return self.key_averages().table(sort_by, row_limit, **options)

    def _repr_html_(self) -> str:
        return self.key_averages()._repr_html_()

    @property
    def peak_memory(self) -> int:
        """The most bytes that were held at a moment by what operations met and made. RuntimeError without `profile_memory=True`."""
        return max((total for _, total in self._timeline()), default=0)

    def _timeline(self) -> list[tuple[float, int]]:
        if not self.profile_memory:
            raise RuntimeError("profile: memory was not recorded; use profile(profile_memory=True)")
        return self._memory.timeline()

    def export_memory_timeline(self, path: str | Path, device: str | None = None) -> None:
        """Write how many bytes were held at each moment: a picture where the name ends in .svg, [[microseconds, bytes], …] in .json.

        Counted are arrays that operations made in the block, until they are released, and those from before that operations read. device:
        is not needed, there is one timeline. RuntimeError without `profile_memory=True`, ValueError for another ending.
        """
        found, kind = self._timeline(), Path(path).suffix
        if kind not in (".svg", ".json"):
            raise ValueError(f"export_memory_timeline: the file's name ends in .svg or .json, not {kind!r}")
        ends = [(e.end, e.name, e.memory) for e in self._events if e.memory]
        write_text(Path(path), json.dumps(found) if kind == ".json" else self._memory.picture(found, ends))

    def add_metadata(self, key: str, value: str) -> None:
        """A note that `export_chrome_trace` writes beside the events."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A note that is JSON already."""
        self._metadata[key] = json.loads(value)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the events as JSON for chrome://tracing or https://ui.perfetto.dev; compressed where the name ends in .gz."""
        found: list[dict[str, Any]] = [
            {
                "name": e.name, "cat": e.kind, "ph": "X", "pid": 0, "tid": e.thread,
                "ts": round(e.start, 3), "dur": round(e.end - e.start, 3),
                "args": {
                    "device_us": round(e.device, 3), "shapes": [list(s) for s in e.shapes], "bytes": e.bytes, "flops": e.flops,
                    "module": e.module,
                },
            }
            for e in self._events
        ]  # fmt: skip
        found += [  # a lane for each stream of the device
            {
                "name": e.name, "cat": e.kind, "ph": "X", "pid": 1, "tid": e.stream,
                "ts": round(e.device_start, 3), "dur": round(e.device, 3), "args": {"host_us": round(e.start, 3)},
            }
            for e in self._events if e.stream is not None
        ]  # fmt: skip
        if self.profile_memory:
            found += [
                {"name": "memory", "ph": "C", "pid": 0, "ts": round(max(when, 0.0), 3), "args": {"bytes": total}}
                for when, total in self._timeline()
            ]
        text = json.dumps({"traceEvents": found, "displayTimeUnit": "ms", **self._metadata}).encode()
        write_bytes(Path(path), gzip.compress(text) if str(path).endswith(".gz") else text)
