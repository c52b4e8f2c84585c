"""A line of calls on a GPU: launches into planned memory, captured into one graph after the first run.

Nothing that a launch is given changes from run to run: inputs are copied into buffers of the program's own, results out of them. So the
second run, and every one after it, is one launch of a graph. What a graph cannot hold (a row that runs on the host) makes the program
launch its kernels one by one instead; the log `gradlab.compile` says why.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab import dispatch
from gradlab.backends import cudnn, determinism
from gradlab.backends.cuda.gemm.plan import Refused
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.cuda.launch.collective import BY_ROW as COLLECTIVES
from gradlab.backends.native.lowerings.loops import Loop
from gradlab.backends.native.place import Place
from gradlab.graph.calls.listing import Each, Step
from gradlab.graph.executables.cuda import epilogues, loops, mega
from gradlab.graph.executables.cuda.arrays import Arrays, parts_to_copy
from gradlab.graph.executables.cuda.memory import Turns
from gradlab.graph.executables.cuda.ordering import group_of, states_last, updates_last
from gradlab.graph.executables.cuda.schedule import MAIN, SIDE, Schedule, line_up, spread
from gradlab.graph.executables.cuda.single_launch import Single, repeated, single_launch
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.executables.native.index_checks import may_fail
from gradlab.graph.executables.native.planning import FIRST, Arranged, arrange
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import Moment
from gradlab.spec import count

_log = logging.getLogger("gradlab.compile")
_BYTES = np.dtype(np.uint8)
SMALL = 1024  # elements of a constant that is kept


class Task(NamedTuple):
    """What one step launches. first, last: of the units of the schedule that it stands for; -1 for a copy. step: in the report."""

    run: Callable[[], Any]
    first: int
    last: int
    step: int


def parallel() -> bool:
    """Whether captured graphs have a second stream; GRADLAB_PARALLEL=0 switches it off."""
    return os.environ.get("GRADLAB_PARALLEL", "1") != "0"


def _ends_on_the_host(call: Call) -> bool:
    """Whether a call may end a run half-way: only rows without a kernel can, since a fault in a kernel stops no work behind it."""
    return call.op.cuda is None and may_fail(call)


class CudaExecutable:
    """Runs a line. `run(arrays, outs)` as NumpyExecutable's; arrays may also be NumPy's, for inputs that come from the host.

    why      why the program is not captured; "" where it is, or will be at the next run
    report   what runs where, for people
    """

    kept, again = 0, repeated

    def __init__(self, line: Line) -> None:
        backend: Any = dispatch.backend_for(line.device)
        self.backend, self.work = backend, backend.work
        self.driver = driver = backend.driver  # a CudaBackend; its module is loaded when a device is first used
        self.device = driver.current_device() if line.device.index is None else line.device.index
        calls = updates_last(states_last(line), backend.updates)
        self.epilogues: list[str] = [] if epilogues.enabled() else ["none: GRADLAB_EPILOGUES=0"]
        line = line._replace(calls=epilogues.joined(line, calls, self.epilogues) if epilogues.enabled() else calls)
        self.line = self._on_device(lambda: self._with_constants(line))
        self.schedule = Schedule()
        self.why = ""
        self.launches = 0  # of one run that is not captured, copies among them
        self._lock = threading.RLock()
        self._tasks: list[Task] = []
        self._bitless: set[int] = set()
        self.report: list[Step] = []
        self.sources: dict[str, str] = {}
        self._graph: Any = None
        self._single: Single | None = None  # what launches a program of one task on the caller's memory
        self._settings: Any = None
        self._on_device(self._prepare)

    def _on_device(self, run: Callable[[], Any]) -> Any:
        driver = self.driver
        before = driver.current_device()
        if before == self.device:
            return run()
        driver.set_device(self.device)
        try:
            return run()
        finally:
            driver.set_device(before)

    # ------------------------------------------------------------ memory

    def _with_constants(self, line: Line) -> Line:
        """Small tensors of one value are made once, here, not in each run."""
        fixed, calls = dict(line.fixed), []
        ends = {v.id for v in line.outputs} | {new.id for _, new in line.updates}
        for call in line.calls:
            if call.op.name == "full" and call.outputs[0].id not in ends and count(call.outputs[0].spec.shape) <= SMALL:
                fixed[call.outputs[0]] = self.backend.run(call.op, [], call.params)
            else:
                calls.append(call)
        return line._replace(fixed=fixed, calls=calls)

    def _prepare(self) -> None:
        line, empty = self.line, self.driver.empty
        gather = mega.gathered if mega.enabled() else None
        self.arranged: Arranged = arrange(line, self._spread, gather=gather, stops=_ends_on_the_host, assembling=True, apart=mega.apart)
        self.plan = self.arranged.plan
        self._turns = Turns(self.driver)
        self._arena = empty((max(self.plan.size, 1),), _BYTES)
        self._inputs = [empty(v.spec.shape, v.spec.dtype) for v in line.inputs]
        self._outputs: list[Any] = [None] * len(line.outputs)  # made, or the caller's own, at the first run
        self._bound: set[int] = set()  # results that are written into the caller's arrays, which are the same in each run
        written = {old.id for old, _ in line.updates}
        self._written = [i for i, v in enumerate(line.inputs) if v.id in written]

    def _spread(self, units: list[Unit], moments: list[Moment], root: dict[int, int], bases: dict[int, Place]) -> list[Moment]:
        """Streams for the units, and moments for the planner that hold for both."""
        updates = self.backend.updates
        together = [not u.loop and not u.parts and u.calls[0].op.name in updates for u in units]
        first = FIRST + len(self.line.inputs) + len(self.line.outputs)
        owners = [id(a if a.base is None else a.base) for a in self.line.fixed.values()]

        def key(n: int) -> Any:
            place = bases.get(root.get(n, n))
            if place is None:
                return root.get(n, n)
            return ("state", owners[place.base - first]) if place.base >= first else ("base", place.base)

        reads = [set(map(key, u.reads())) for u in units]
        writes = [{key(v.id) for c in u.calls for v in c.outputs} for u in units]
        for unit, written in zip(units, writes):  # what processes do together they do in one order
            written.update(("carrier", id(c.params["by"])) for c in unit.calls if c.op.name in COLLECTIVES)
        if parallel() and not any(together[: len(together) - sum(together)]):
            self.schedule = line_up(units, reads, writes, lambda u: u.loop or bool(u.parts) or u.calls[0].op.name not in updates)
        else:
            self.schedule = Schedule([MAIN] * len(units), [-1] * len(units))
        return spread(self.schedule, moments, together)

    # ------------------------------------------------------------ steps

    def _build(self) -> None:
        """The launches, for the arrays there are now."""
        self._graph = None
        self._settings = self._now()
        self.why = ""
        arrays = Arrays(self.backend, self.arranged, self._arena, self._inputs, self._outputs)
        line, units = self.line, self.arranged.units
        env = self._env = arrays.of(line)  # kept, since some tasks know addresses alone
        made: list[loops.LoopKernel | None] = [None] * len(units)
        for i, unit in enumerate(units):
            if unit.loop:
                stored = [v for c in unit.calls for v in c.outputs if v.id in env]
                loop = Loop(unit.calls, stored)
                if stored:
                    made[i] = loops.loop_kernel(loop, [env[v.id] for v in loop.loaded], [env[v.id] for v in stored], self.driver.pointer)
        kernels = [k for k in made if k is not None]
        functions: dict[str, Any] = {}
        self.sources = {k.name: k.text for k in kernels}
        if kernels:
            names = [f"gradlab::{name}" for name in sorted(self.sources)]
            functions = self.work.compiler.generated(("loops", *names), lambda: loops.source(kernels), names, f"{len(names)} fused loops")
        tasks: list[Task] = []
        self._bitless = set()
        self.report = []
        self.launches = i = 0
        while i < len(units):
            unit, kernel, last = units[i], made[i], i
            call = unit.calls[0]
            if unit.parts:
                run, name, self.sources[name] = mega.launch(self.work, unit, self.arranged, env, arrays.base)
                tasks.append(Task(run, i, i, len(self.report)))
                self.report.append(Step("mega", unit.calls, (name,)))
            elif unit.loop:
                if kernel is not None:
                    function = functions[f"gradlab::{kernel.name}"]
                    run = functools.partial(self.work.launch, function, kernel.blocks, loops.BLOCK, *kernel.arguments)
                    tasks.append(Task(run, i, i, len(self.report)))
                    self.report.append(Step("loop", unit.calls, (kernel.name,)))
            elif call.op.name in self.backend.updates and not self.backend.why_on_host(call.op, self._given(call, env), call.params):
                while last + 1 < len(units) and not units[last + 1].loop and self._joins(units[i : last + 1], units[last + 1]):
                    last += 1
                calls = [u.calls[0] for u in units[i : last + 1]]
                rows = [(self._given(c, env), [env[v.id] for v in c.outputs]) for c in calls]
                tasks += [Task(run, i, last, len(self.report)) for run in self.backend.update_launches(call.op, rows, call.params)]
                self.report.append(Step("kernel", calls, (call.op.name,)))
            else:
                run, why = self._launch(call, self._given(call, env), [env[v.id] for v in call.outputs])
                tasks.append(Task(run, i, i, len(self.report)))
                self.report.append(Step("host" if why else "kernel", unit.calls, (call.op.name,), why))
                if why and not self.why:
                    self.why = f"{call.op.name} runs on the host: {why}"
            i = last + 1
        for number, target in self.arranged.copies:
            tasks.append(Task(functools.partial(self.work.copy, arrays.at(target), env[number]), -1, -1, len(self.report)))
            self.report.append(Step("copy", ()))
        self._tasks = tasks
        self.launches += len(tasks)
        self._single = None
        if len(tasks) == 1 and not self._written:
            changed = [env[old.id] for old, _ in line.updates if old.id in env]
            self._single = single_launch(self.work, tasks[0].run, self._inputs, self._outputs, changed)

    def _launch(self, call: Call, inputs: list[Any], outputs: list[Any]) -> tuple[Callable[[], Any], str]:
        """What computes a call's outputs from its inputs, and why that is on the host, if it is."""
        op, params, work = call.op, call.params, self.work
        if op in epilogues.OWN:
            both, number = epilogues.launch(self.backend, op, inputs, outputs, self._bitless, params)
            self.launches += number - 1
            return both, ""
        plan = self.backend.prepared(op, inputs, params)
        if op.name == "cat":
            parts = parts_to_copy(self.driver, inputs, outputs[0], params["dim"])
            self.launches += len(parts) - 1
            return lambda: [work.copy(target, source) for target, source in parts], ""
        if op.view:  # one that has to copy
            source, *_ = inputs
            if op.name == "view":
                return functools.partial(work.copy, outputs[0].reshape(source.shape), source), ""
            return lambda: work.copy(outputs[0], plan([work.contiguous(source)])), ""
        return functools.partial(plan, inputs, outputs), self.backend.why_on_host(op, inputs, params)

    @staticmethod
    def _given(call: Call, env: dict[int, Any]) -> list[Any]:
        return [env[x.id] if isinstance(x, Value) else x for x in call.inputs]

    @staticmethod
    def _joins(units: Sequence[Unit], unit: Unit) -> bool:
        """Whether an update may run in one launch with others: alike, and it reads nothing that they make."""
        call = unit.calls[0]
        made = {v.id for u in units for v in u.calls[0].outputs}
        return group_of(call) == group_of(units[0].calls[0]) and not any(isinstance(x, Value) and x.id in made for x in call.inputs)

    @staticmethod
    def _now() -> Any:
        """The settings that plans depend on."""
        return SETTINGS.number, determinism.STATE.deterministic, cudnn.enabled

    # ------------------------------------------------------------ running

    def run(self, arrays: Sequence[Any], outs: Sequence[Any], each: Each | None = None) -> None:
        """Compute. Raises what a row raises. each: what makes the launches, step by step."""
        with self._lock:
            self._on_device(lambda: self._run(arrays, outs, each))

    def _run(self, arrays: Sequence[Any], outs: Sequence[Any], each: Each | None = None) -> None:
        driver, work = self.driver, self.work
        if self._bind(outs) or self._settings != self._now():
            self._build()
        if self._graph is not None and self._single is not None and each is None and self._single.run(arrays, outs):
            return work.faults.check()
        self._turns.take()
        for own, array in zip(self._inputs, arrays):
            if type(array) is np.ndarray:
                driver.write(own, np.ascontiguousarray(array).reshape(array.shape))
            else:
                work.copy(own, array)
        within = driver.capturing()  # somebody captures this run: the graph is to hold the launches
        if each is not None:
            self._launch_all(each)
        elif self._graph is not None and not within:
            driver.launch_graph(self._graph, driver.current_stream())
        else:
            self._launch_all()
            if not self.why and not within:
                self._capture()
        for i, out in enumerate(outs):
            if i not in self._bound:
                work.copy(out, self._outputs[i])
        for i in self._written:
            work.copy(arrays[i], self._inputs[i])
        work.faults.check()

    def _launch_all(self, each: Each | None = None) -> None:
        """Launch the tasks, one by one. Where the library refuses what it was prepared for, it is prepared anew without that."""
        done = 0
        while done < len(self._tasks):
            task = self._tasks[done]
            try:
                if each is None:
                    task.run()
                else:
                    each(self.report[task.step], task.run)
            except Refused:
                self._build()  # the same tasks
            else:
                done += 1

    def _bind(self, outs: Sequence[Any]) -> bool:
        """Choose where results are written; True where that has changed. An array that comes again in each run (a gradient) is written
        itself; should another one come in its place, the result gets a buffer of its own and is copied from then on."""
        changed = False
        for i, (own, out) in enumerate(zip(self._outputs, outs)):
            if own is None:
                changed = True
                if i in self.line.lasting:
                    self._outputs[i] = out
                    self._bound.add(i)
                    continue
            elif i not in self._bound or own is out:
                continue
            else:
                changed = True
                self._bound.discard(i)
            self._outputs[i] = self.driver.empty(out.shape, out.dtype)
        return changed or self._settings is None

    # ------------------------------------------------------------ capturing

    def _capture(self) -> None:
        """Make a graph of the launches, which have run once. Where that is not possible, say why."""
        driver = self.driver
        stream, side, current = driver.new_stream(0), driver.new_stream(0), driver.current_stream()
        refusals = self.backend.refusals()
        try:
            driver.use_stream(stream)
            self.backend.warm()
            driver.begin_capture(stream, driver.new_arena())
            try:
                self._submit(stream, side)
            except RuntimeError as error:
                self.why = str(error)
            try:
                captured = driver.end_capture(stream)
                if not self.why:
                    self._graph = driver.instantiate(captured)
            except RuntimeError as error:
                self.why = self.why or str(error)
        finally:
            driver.use_stream(current)
        if self.backend.refusals() != refusals:  # in the capture alone: the next run prepares, launches and captures without it
            self._graph, self._settings, self.why = None, None, ""
        if self.why:
            text = "compile: a program on cuda:%d is not captured, its %d launches are made one by one: %s"
            _log.info(text, self.device, self.launches, self.why)

    def _submit(self, stream: Any, side: Any) -> None:
        """Submit all launches to the two streams, with the events between them."""
        driver, schedule = self.driver, self.schedule
        streams = (stream, side)
        awaited = {w for w in schedule.waits if w >= 0}
        last_side = max((i for i, s in enumerate(schedule.streams) if s == SIDE), default=-1)
        awaited.add(last_side)
        events: dict[int, Any] = {}
        if schedule.parallel:
            begun = driver.new_event(False)
            driver.record_event(begun, stream)
            driver.wait_event(side, begun)
        joined = not schedule.parallel

        def join() -> None:
            driver.use_stream(stream)
            driver.wait_event(stream, events[last_side])

        done = -1  # units whose events are recorded
        for task in self._tasks:
            if task.first < 0:
                if not joined:
                    done = self._record(done, len(schedule.streams) - 1, awaited, streams, events)
                    join()
                    joined = True
                driver.use_stream(stream)
                task.run()
                continue
            done = self._record(done, task.first - 1, awaited, streams, events)
            own = schedule.streams[task.first]
            needed = max(schedule.waits[task.first : task.last + 1])
            driver.use_stream(streams[own])
            if needed >= 0:
                driver.wait_event(streams[own], events[needed])
            task.run()
        if not joined:
            self._record(done, len(schedule.streams) - 1, awaited, streams, events)
            join()

    def _record(self, done: int, upto: int, awaited: set[int], streams: Sequence[Any], events: dict[int, Any]) -> int:
        """Record the events of units that have been submitted."""
        for i in range(done + 1, upto + 1):
            if i in awaited:
                events[i] = self.driver.new_event(False)
                self.driver.record_event(events[i], streams[self.schedule.streams[i]])
        return max(done, upto)
