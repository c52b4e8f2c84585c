"""A line of calls as machine code: tasks for the runtime, and NumPy steps for what has no kernel."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.backends.cpu import immediate
from gradlab.dtype import HALF
from gradlab.graph.execute import Line, NumpyExecutable
from gradlab.graph.ir import Call, Value
from gradlab.graph.memory import arena
from gradlab.graph.native import build, lowerings as lowerings
from gradlab.graph.native.checks import check
from gradlab.graph.native.expanding import expanded
from gradlab.graph.native.joining import lower_joined
from gradlab.graph.native.layout import FIRST, Arranged, arrange
from gradlab.graph.native.loops import Loop, lower_loop, why_not_elementwise
from gradlab.graph.native.lower import LOWER, Lowering, TaskSpec, Unsupported
from gradlab.graph.native.movements import copy
from gradlab.graph.native.place import ARENA, RESERVED, Place
from gradlab.graph.native.products import operand_of
from gradlab.graph.native.widening import widened
from gradlab.graph.shares import threads
from gradlab.graph.steps import Step


class _Task(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p), ("parameters", ctypes.c_void_p), ("places", ctypes.c_void_p),
        ("count", ctypes.c_int64), ("widest", ctypes.c_int64),
    )  # fmt: skip


@functools.cache
def _pointer_word() -> int:
    """Where a NumPy array object keeps its data pointer, in words."""
    array = np.empty(3)
    return list((ctypes.c_size_t * 8).from_address(id(array))).index(array.__array_interface__["data"][0])


class NativeExecutable:
    """Runs a line. `run(arrays, outs)` as NumpyExecutable's. `report` says what runs where, for people."""

    kept = 1  # references to each result's array that stay behind after a run

    def __init__(self, line: Line) -> None:
        self.line = line = expanded(widened(line))
        arranged = self.arranged = arrange(line, joined=True, halves=True, assembling=True, lending=True)
        self.plan = arranged.plan
        self._ctx = Lowering()
        self._ctx.places, self._ctx.scratch_start = arranged.places, arranged.plan.size
        self._ctx.operands = _shared_operands(arranged)
        self._calls: list[Any] = []  # of each task, the call it belongs to
        steps: list[TaskSpec | Callable[[], None]] = []
        self.report: list[Step] = []
        for call in arranged.early:
            task = check(call, self._ctx)
            steps.append(task)
            self._calls.append(call)
            self.report.append(Step("check", [call], [task.kernel]))
        for unit in arranged.units:
            if unit.loop:
                stored = [v for c in unit.calls for v in c.outputs if v.id in arranged.places]
                if stored:
                    task = lower_loop(Loop(unit.calls, stored), self._ctx)
                    steps.append(task)
                    self._calls.append(None)
                    self.report.append(Step("loop", unit.calls, (task.kernel,)))
                continue
            if unit.joined:
                joined = lower_joined(unit, self._ctx)
                steps += joined
                self._calls += [None] * len(joined)
                self.report.append(Step("kernel" if unit.ending else "loop", unit.calls, [t.kernel for t in joined]))
                continue
            call = unit.calls[0]
            try:
                found = LOWER[call.op.name](call, self._ctx) if call.op.name in LOWER else None
            except Unsupported:
                found = None
            if found is None:
                steps.append(self._numpy_step(call))
                self.report.append(Step("numpy", [call], (), _why_numpy(call)))
            else:
                steps += found
                self._calls += [call] * len(found)
                self.report.append(Step("kernel", [call], [t.kernel for t in found]))
        for number, target in arranged.copies:
            steps.append(self._copy_step(number, target))
            self._calls += [None] * isinstance(steps[-1], TaskSpec)
            self.report.append(Step("copy", [], [steps[-1].kernel] if isinstance(steps[-1], TaskSpec) else []))
        self._finish(steps)
        self.tasks = len(self._calls)
        arranged.units, arranged.relative = [], {}  # of thousands of calls they take megabytes, and only the making needs them
        del self._ctx

    @property
    def steps(self) -> list[str]:
        """The report in words."""
        return list(map(str, self.report))

    # ------------------------------------------------------------ what has no kernel

    def _arrays(self, places: Sequence[Place]) -> Callable[[], list[Any]]:
        """A function that gives the arrays of places; what lies in the arena or in state is looked up once."""
        start = FIRST + len(self.line.inputs) + len(self.line.outputs)
        found: list[Any] = [None] * len(places)
        if not any(FIRST <= p.base < start for p in places):

            def once() -> list[Any]:
                if found and found[0] is None:
                    found[:] = [p.array(self._base_arrays[p.base]) for p in places]
                return found

            return once
        return lambda: [p.array(self._base_arrays[p.base]) for p in places]

    def _numpy_step(self, call: Call) -> Callable[[], None]:
        op, params = call.op, call.params
        values = [x for x in call.inputs if isinstance(x, Value)]
        arrays = self._arrays([self.arranged.places[v.id] for v in (*values, *call.outputs)])
        like = values[0].spec.dtype if values else np.dtype(np.float32)
        slots = [None if isinstance(x, Value) or x is None else immediate(x, like) for x in call.inputs]
        is_value = [isinstance(x, Value) for x in call.inputs]
        half = not op.exact and any(v.spec.dtype in HALF for v in (*values, *call.outputs))
        backend = dispatch._by_type[np.ndarray]
        count = len(values)
        if not call.inputs:
            params = {k: v for k, v in params.items() if k != "device"}

        def step() -> None:
            found = arrays()
            given = iter(found[:count])
            inputs = [next(given) if own else number for own, number in zip(is_value, slots)]
            outputs = found[count:]
            if op.view or half or op.name == "to_device":
                result = backend.run(op, inputs, call.params)
                for target, array in zip(outputs, (result,) if op.result is None else result):
                    np.copyto(target, array)
            else:
                op.cpu(*inputs, *outputs, **params)

        return step

    def _copy_step(self, number: int, target: Place) -> TaskSpec | Callable[[], None]:
        source = self.arranged.places[number]
        if source.contiguous and target.contiguous and source.dtype == target.dtype:
            size = source.size * source.dtype.itemsize
            return TaskSpec("gradlab_copy", (size,), (target, source), max(1, size >> 18))
        if source.dtype == target.dtype and source.size:
            return copy(target, source, self._ctx)[0]
        arrays = self._arrays([target, source])
        return lambda: np.copyto(*arrays())

    # ------------------------------------------------------------ the table

    def _finish(self, steps: list[Any]) -> None:
        line = self.line
        ctx = self._ctx
        self.sources = ctx.texts
        tasks = [s for s in steps if isinstance(s, TaskSpec)]
        own = dict.fromkeys(t.kernel for t in tasks)
        function = build.libraries([*own, "gradlab_run"], "\n".join(ctx.texts.values()))
        runtime = build.runtime()
        behind = self.plan.size + ctx.scratch_size

        def locate(p: Place) -> tuple[int, int]:
            return (ARENA, behind + p.offset) if p.base == RESERVED else (p.base, p.offset)

        places = np.array([locate(p) for t in tasks for p in t.places] or [(0, 0)], np.int64)
        parameters = np.array([n for t in tasks for n in t.parameters] or [0], np.int64)
        table = (_Task * max(len(tasks), 1))()
        at = at_parameter = 0
        for row, task in zip(table, tasks):
            row.kernel = ctypes.cast(function(task.kernel), ctypes.c_void_p).value
            row.parameters = parameters.ctypes.data + 8 * at_parameter
            row.places = places.ctypes.data + 16 * at
            row.count, row.widest = len(task.places), task.widest
            at += len(task.places)
            at_parameter += len(task.parameters)
        self._kept = table, places, parameters
        self._table = ctypes.addressof(table)
        self.segments: list[Any] = []  # (first, last) of the table, or a NumPy step
        done = 0
        for step in steps:
            if not isinstance(step, TaskSpec):
                self.segments.append(step)
            elif self.segments and isinstance(self.segments[-1], tuple):
                self.segments[-1] = (self.segments[-1][0], done + 1)
                done += 1
            else:
                self.segments.append((done, done + 1))
                done += 1
        self._status = np.zeros(8, np.int64)
        size = self.plan.size + ctx.scratch_size + sum(ctx.reserved)
        # Where Python runs in between, it might call another program of those that share.
        shared = line.shared if len(self.segments) == 1 and isinstance(self.segments[0], tuple) else None
        self._memory = arena(size) if shared is None else shared.of(size)
        dynamic = len(line.inputs) + len(line.outputs)
        self._base_arrays: list[Any] = [self._memory, self._status, *[None] * dynamic, *self.arranged.fixed]
        self._bases = (ctypes.c_void_p * len(self._base_arrays))()
        for i, array in enumerate(self._base_arrays):
            if array is not None:
                self._bases[i] = array.__array_interface__["data"][0]
        self._objects: list[Any] = [None] * dynamic  # what the last run was given
        self._ids = (ctypes.c_uint64 * max(dynamic, 1))()  # where those objects are, for the runtime
        self._dynamic, self._word, self._threads = dynamic, _pointer_word(), threads()
        self._bases_at = ctypes.addressof(self._bases)
        self._run, self._fill = runtime.gradlab_run, runtime.gradlab_bases
        self._lock = threading.Lock() if shared is None else shared.lock
        self._rested = False  # whether `again` would miss outputs of the last run
        self._writes_inputs = any(old in line.inputs for old, _ in line.updates)
        self._step = runtime.gradlab_step
        self._whole: Any = None  # the arguments of a program that is one segment, as `Whole` of pool.cpp
        if len(self.segments) == 1 and isinstance(self.segments[0], tuple):
            where = ctypes.addressof(self._ids), dynamic, self._word, FIRST
            self._whole = (ctypes.c_int64 * 9)(self._table, *self.segments[0], self._bases_at, self._threads, *where)
            self._whole_at = ctypes.addressof(self._whole)
        self._python = any(not isinstance(s, tuple) for s in self.segments)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute. Raises what a row raises."""
        with self._lock:
            self._rested = False
            objects, ids = self._objects, self._ids
            i = 0
            for given in (arrays, outs):
                for x in given:
                    if x is not objects[i]:  # most are those of the last run
                        objects[i] = used = x if x.flags.c_contiguous else np.ascontiguousarray(x).reshape(x.shape)
                        ids[i] = id(used)
                    i += 1
            if self._whole is not None:
                stopped = self._step(self._whole_at)
                if stopped >= 0:
                    self._fault(stopped)
                if self.line.updates:
                    self._update_arguments(arrays)
                return
            self._fill(self._bases_at + 8 * FIRST, ids, self._dynamic, self._word)
            if self._python:
                self._base_arrays[FIRST : FIRST + self._dynamic] = objects
            for segment in self.segments:
                if type(segment) is tuple:
                    stopped = self._run(self._table, segment[0], segment[1], self._bases_at, self._threads)
                    if stopped >= 0:
                        self._fault(stopped)
                else:
                    segment()
            if self.line.updates:
                self._update_arguments(arrays)

    @property
    def short(self) -> bool:
        """Whether `again` is possible."""
        return self._whole is not None and not self._writes_inputs

    def forget(self) -> bool:
        """Let go of what the last run was given, if none is going on."""
        if not self._lock.acquire(blocking=False):
            return False
        self._rested = True
        self._objects = [None] * self._dynamic
        self._base_arrays[FIRST : FIRST + self._dynamic] = self._objects
        self._lock.release()
        return True

    def again(self, arrays: Sequence[Any], outs: Sequence[Any]) -> bool:
        """`run` with these inputs and first outputs, the latter contiguous; the other outputs are those of the last run.

        False, and nothing is done, if they have been forgotten.
        """
        with self._lock:
            if self._rested:
                return False
            objects, ids = self._objects, self._ids
            i = 0
            for x in arrays:
                if x is not objects[i]:
                    objects[i] = used = x if x.flags.c_contiguous else np.ascontiguousarray(x).reshape(x.shape)
                    ids[i] = id(used)
                i += 1
            for x in outs:
                objects[i] = x
                ids[i] = id(x)
                i += 1
            stopped = self._step(self._whole_at)
            if stopped >= 0:
                self._fault(stopped)
            return True

    def _fault(self, task: int) -> None:
        """A kernel met an index that lies outside: let the row's own function say which."""
        self._status[:] = 0
        call = self._calls[task]
        self._base_arrays[FIRST : FIRST + self._dynamic] = self._objects
        self._numpy_step(call)()
        raise RuntimeError(f"{call.op.name}: a value was refused by the compiled program, but not by the row itself")

    def _update_arguments(self, arrays: Sequence[Any]) -> None:
        """An argument that was passed as a copy gets what was written to the copy."""
        if self._writes_inputs:
            for array, used in zip(arrays, self._objects):
                if array is not used:
                    np.copyto(array, used)


def _shared_operands(arranged: Arranged) -> Counter[Place]:
    """How often each place is the second operand of a product. Places that hold one value after the other are left out."""
    found: Counter[Place] = Counter()
    values: dict[Place, set[int]] = {}
    for unit in arranged.units:
        for call in unit.calls:
            place = operand_of(call, arranged.places)
            if place is not None:
                found[place] += 1
                values.setdefault(place, set()).add(arranged.relative[call.inputs[1].id].base)
    return Counter({place: n for place, n in found.items() if len(values[place]) == 1})


def _why_numpy(call: Call) -> str:
    """Why a call has no machine code."""
    if call.op.name in LOWER:
        operands = ", ".join(f"{v.spec.dtype.name}{list(v.spec.shape)}" for v in call.inputs if isinstance(v, Value))
        return f"its kernel does not take this form: {operands or 'no inputs'}"
    why = why_not_elementwise(call, True)
    return "its row has no CPU kernel" if why == "not elementwise" else why


def executable(line: Line) -> Any:
    """The fastest executable that this machine can make of a line."""
    if line.device.type == "cuda":
        return import_module("gradlab.graph.device.executable").CudaExecutable(line)  # imported where there is a GPU
    return NativeExecutable(line) if build.available() else NumpyExecutable(line)


__all__ = ["ARENA", "Arranged", "NativeExecutable", "executable", "threads"]
