"""A line of calls as machine code: tasks for the runtime, and NumPy steps for what has no kernel."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.backends.native import compiler
from gradlab.backends.native.calling import DONE, NO_MEMORY
from gradlab.backends.native.lowering import LOWER, Lowering, TaskSpec, Unsupported
from gradlab.backends.native.lowerings import families as families
from gradlab.backends.native.lowerings.loops import Loop, lower_loop, why_not_elementwise
from gradlab.backends.native.lowerings.movements import copy
from gradlab.backends.native.lowerings.products import operand_of
from gradlab.backends.native.place import ARENA, OWN, RESERVED, Place, own_base, place_of
from gradlab.backends.native.tables import pointer_word
from gradlab.backends.threads import threads
from gradlab.dtype import HALF, immediate
from gradlab.graph.calls.listing import Each, Step
from gradlab.graph.executables.native import chaining
from gradlab.graph.executables.native.chaining import Item
from gradlab.graph.executables.native.decompositions import expanded
from gradlab.graph.executables.native.half_casts import widened
from gradlab.graph.executables.native.index_checks import check, refusing
from gradlab.graph.executables.native.joining import lower_joined
from gradlab.graph.executables.native.planning import FIRST, Arranged, arrange
from gradlab.graph.executables.native.replanning import Chain, chained
from gradlab.graph.executables.native.task_table import Table, kernels
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import arena
from gradlab.named_errors import AllocationError


class NativeExecutable:
    """Runs a line. `run(arrays, outs)` as NumpyExecutable's. `report` says what runs where, for people."""

    kept = 1  # references to each result's array that stay behind after a run

    def __init__(self, line: Line) -> None:
        self.line = line = expanded(widened(line, kept=compiler.compiles()))
        arranged = self.arranged = arrange(line, joined=True, halves=True, assembling=True, lending=True, own=True, last=line.last)
        self.plan = arranged.plan
        self._ctx = Lowering()
        self._ctx.places = arranged.places
        self._ctx.operands = _shared_operands(arranged)
        checks, items = list[Item](), list[Item]()
        self.report: list[Step] = []
        self._reported: dict[int, int] = {}  # of each unit, its step in the report
        for call in arranged.early:
            task = check(call, self._ctx)
            checks.append(Item(-1, call, task))
            self.report.append(Step("check", [call], [task.kernel]))
        for i, unit in enumerate(arranged.units):
            call, kind = unit.calls[0], "kernel"
            found: Sequence[TaskSpec] | None = None
            if unit.loop:
                stored = [v for c in unit.calls for v in c.outputs if v.id in arranged.places]
                if not stored:
                    continue
                found, kind = [lower_loop(Loop(unit.calls, stored), self._ctx)], "loop"
            elif unit.joined:
                found, kind = lower_joined(unit, self._ctx), "kernel" if unit.ending else "loop"
            elif call.op.name in LOWER:
                with contextlib.suppress(Unsupported):
                    found = LOWER[call.op.name](call, self._ctx)
            self._reported[i] = len(self.report)
            if found is None:
                items.append(Item(i, call, None))
                self.report.append(Step("numpy", [call], (), _why_numpy(call)))
            else:
                items += [Item(i, refusing(unit) if unit.loop or unit.joined else call, task) for task in found]
                self.report.append(Step(kind, unit.calls, [task.kernel for task in found]))
        steps: list[Item | Chain | Callable[[], None]] = [*checks, *self._ordered(items)]
        for number, target in arranged.copies:
            step = self._copy_step(number, target)
            steps.append(step)
            self.report.append(Step("copy", [], [step.task.kernel] if isinstance(step, Item) and step.task is not None else []))
        self._finish(steps)
        self.tasks = len(self._calls)
        # Of thousands of calls these take megabytes, and only the making needs them.
        arranged.units, arranged.relative, arranged.planning = [], {}, None
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
        places = [p._replace(base=base, offset=offset) for p in places for base, offset in [self._locate(p)]]
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
        is_value = [isinstance(x, Value) for x in call.inputs]
        half = not op.exact and any(v.spec.dtype in HALF for v in (*values, *call.outputs))
        apart = any(not self.arranged.places[v.id].contiguous for v in call.outputs)  # rows' functions write in row-major order
        general = op.view or half or apart or op.name == "to_device"
        slots = [x if isinstance(x, Value) or x is None or general else immediate(x, op.number_dtype(like)) for x in call.inputs]
        backend = dispatch._by_type[np.ndarray]
        count = len(values)
        if not call.inputs:
            params = {k: v for k, v in params.items() if k != "device"}

        def step() -> None:
            found = arrays()
            given = iter(found[:count])
            inputs = [next(given) if own else number for own, number in zip(is_value, slots)]
            outputs = found[count:]
            if general:
                result = backend.run(op, inputs, call.params)
                for target, array in zip(outputs, (result,) if op.result is None else result):
                    np.copyto(target, array)
            else:
                op.quietly(*inputs, *outputs, **params)

        return step

    def _copy_step(self, number: int, target: Place) -> Item | Callable[[], None]:
        source, behind = self.arranged.places[number], len(self.arranged.units)
        if source.contiguous and target.contiguous and source.dtype == target.dtype:
            size = source.size * source.dtype.itemsize
            return Item(behind, None, TaskSpec("gradlab_copy", (size,), (target, source), max(1, size >> 18)))
        if source.dtype == target.dtype and source.size:
            with contextlib.suppress(Unsupported):
                return Item(behind, None, copy(target, source, self._ctx)[0])
        arrays = self._arrays([target, source])
        return lambda: np.copyto(*arrays())

    # ------------------------------------------------------------ the table

    def _ordered(self, items: list[Item]) -> Sequence[Item | Chain]:
        """The steps, with those that run depth first as chains, where that needs no more memory."""
        arranged, count = self.arranged, threads()
        self._scratch = self._ctx.scratch_size
        if chaining.enabled() and arranged.planning is not None:
            start = FIRST + len(self.line.inputs)
            search = chaining.Search(items, arranged.units, arranged.places, range(start, start + len(self.line.outputs)), count)
            found = search.blocks({own_base(n) for n in arranged.planning.ends})
            order = chained(items, found, arranged.planning, self.plan.size + self._scratch)
            if order is not None:
                order.plan.unshared = self.plan.unshared
                self.plan, self._scratch = order.plan, order.scratch
                return order.steps
        return items

    def _chain(self, chain: Chain) -> Step:
        """What runs depth first, for people."""
        units = [self.arranged.units[link.unit] for link in chain.links]
        how = f"{chain.chunk} of {chain.images} images at a time"
        return Step("depth-first", [c for u in units for c in u.calls], [link.task.kernel for link in chain.links], how)

    def _locate(self, p: Place) -> tuple[int, int]:
        """Where a place lies now that all is planned: its base and its offset."""
        if p.base >= ARENA:
            return p.base, p.offset
        if p.base > OWN:
            return ARENA, self.plan.size + p.offset + (self._scratch if p.base == RESERVED else 0)
        number = OWN - p.base
        if number in self.plan.places:
            return ARENA, self.plan.places[number] + p.offset
        room, offset = self.plan.guests[number]
        return FIRST + len(self.line.inputs) + room, offset + p.offset

    def _finish(self, steps: Sequence[Item | Chain | Callable[[], None]]) -> None:
        line = self.line
        ctx = self._ctx
        self.sources = ctx.texts
        rows: list[TaskSpec | Chain] = []
        self._calls: list[Call | None] = []  # of each row the call that explains a refused index
        self.segments: list[Any] = []  # (first, last) of the table, or a NumPy step
        self._steps: list[int | None] = []  # of each row, and in between of each NumPy step, the step of the report; None: see `chains`
        for step in steps:
            item = step if isinstance(step, Item) else None
            row = item.task if item is not None else step
            self._steps.append(None if item is None else self._reported.get(item.unit))
            if isinstance(row, (TaskSpec, Chain)):
                begun = bool(self.segments) and isinstance(self.segments[-1], tuple)
                first = self.segments.pop()[0] if begun else len(rows)
                rows.append(row)
                self._calls.append(item.call if item is not None else None)
                self.segments.append((first, len(rows)))
            else:
                self.segments.append(self._numpy_step(item.call) if item is not None and item.call is not None else step)
        self.chains = {i: self._chain(row) for i, row in enumerate(rows) if isinstance(row, Chain)}
        function = compiler.libraries([*(own := kernels(rows)), "gradlab_run"], "\n".join(ctx.texts.values()), own)
        runtime = compiler.runtime()
        self._status = np.zeros(8, np.int64)
        size = self.plan.size + self._scratch + sum(ctx.reserved)
        # Where Python runs in between, it might call another program of those that share.
        shared = line.shared if len(self.segments) == 1 and isinstance(self.segments[0], tuple) else None
        self._memory = arena(size) if shared is None else shared.of(size)
        dynamic = len(line.inputs) + len(line.outputs)
        self._base_arrays: list[Any] = [self._memory, self._status, *[None] * dynamic, *self.arranged.fixed]
        self._bases = (ctypes.c_void_p * len(self._base_arrays))()
        for i, array in enumerate(self._base_arrays):
            if array is not None:
                self._bases[i] = array.__array_interface__["data"][0]
        self._bases_at = ctypes.addressof(self._bases)
        self._rows = Table(rows, function, self._locate, self._bases_at)
        self._table = self._rows.at
        self._objects: list[Any] = [None] * dynamic  # what the last run was given
        self._ids = (ctypes.c_uint64 * max(dynamic, 1))()  # where those objects are, for the runtime
        self._dynamic, self._word, self._threads = dynamic, pointer_word(), threads()
        self._run, self._fill = runtime.gradlab_run, runtime.gradlab_bases
        self._lock = threading.Lock() if shared is None else shared.lock
        self._rested = False  # whether `again` would miss outputs of the last run
        self._updated = [line.inputs.index(old) for old, _ in line.updates if old in line.inputs]
        self._step = runtime.gradlab_step
        self._whole: Any = None  # the arguments of a program that is one segment, as `Whole` of thread_pool.cpp
        if len(self.segments) == 1 and isinstance(self.segments[0], tuple):
            where = ctypes.addressof(self._ids), dynamic, self._word, FIRST
            self._whole = (ctypes.c_int64 * 9)(self._table, *self.segments[0], self._bases_at, self._threads, *where)
            self._whole_at = ctypes.addressof(self._whole)
        self._python = any(not isinstance(s, tuple) for s in self.segments)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any], each: Each | None = None) -> None:
        """Compute. Raises what a row raises. each: what runs the steps, one by one."""
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
            if self._whole is not None and each is None:
                stopped = self._step(self._whole_at)
                if stopped != DONE:
                    self._fault(stopped)
                if self.line.updates:
                    self._update_arguments(arrays)
                return
            self._fill(self._bases_at + 8 * FIRST, ids, self._dynamic, self._word)
            if self._python:
                self._base_arrays[FIRST : FIRST + self._dynamic] = objects
            if each is not None:
                self._one_by_one(each)
            else:
                for segment in self.segments:
                    if type(segment) is tuple:
                        self._rows_of(*segment)
                    else:
                        segment()
            if self.line.updates:
                self._update_arguments(arrays)

    def _rows_of(self, first: int, last: int) -> None:
        """Run a part of the table."""
        stopped = self._run(self._table, first, last, self._bases_at, self._threads)
        if stopped != DONE:
            self._fault(stopped)

    def _one_by_one(self, each: Each) -> None:
        """Run what there is, the rows of one step together."""
        steps = iter(self._steps)
        for segment in self.segments:
            if type(segment) is not tuple:
                each(self._step_at(next(steps), -1), segment)
                continue
            first, last = segment
            rows = [(row, next(steps)) for row in range(first, last)]
            while rows:
                many = 1 if rows[0][1] is None else next((n for n, (_, step) in enumerate(rows) if step != rows[0][1]), len(rows))
                start = rows[0][0]
                each(self._step_at(rows[0][1], start), functools.partial(self._rows_of, start, start + many))
                rows = rows[many:]

    def _step_at(self, number: int | None, row: int) -> Step | None:
        return self.chains.get(row) if number is None else self.report[number]

    @property
    def short(self) -> bool:
        """Whether `again` is possible."""
        return self._whole is not None and not self._updated

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
            if stopped != DONE:
                self._fault(stopped)
            return True

    def _fault(self, task: int) -> None:
        """A kernel met an index that lies outside: let the row's own function say which. Or it found no memory to work in."""
        self._status[:] = 0
        if task == NO_MEMORY:
            raise AllocationError("compiled step: there is no memory for what a kernel needs besides its results")
        call = self._calls[task]
        assert call is not None
        for v in call.outputs:  # that of a part of a kernel has no place
            if v.id not in self.arranged.places:
                self.arranged.places[v.id] = place_of(len(self._base_arrays), v.spec)
                self._base_arrays.append(np.empty(v.spec.shape, v.spec.dtype))
        self._base_arrays[FIRST : FIRST + self._dynamic] = self._objects
        self._numpy_step(call)()
        raise RuntimeError(f"{call.op.name}: a value was refused by the compiled program, but not by the row itself")

    def _update_arguments(self, arrays: Sequence[Any]) -> None:
        """An argument that was passed as a copy gets what was written to the copy."""
        for at in self._updated:
            if arrays[at] is not self._objects[at]:
                np.copyto(arrays[at], self._objects[at])


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


__all__ = ["ARENA", "Arranged", "NativeExecutable", "threads"]
