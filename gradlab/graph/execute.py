"""Running a straight line of calls on NumPy arrays: memory planned once, views taken once, results written where they belong."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.backends.cpu import immediate
from gradlab.dtype import HALF
from gradlab.graph.blocks import Arrays, Chain, Run, Work, params_of
from gradlab.graph.ir import Call, Value
from gradlab.graph.line import Line as Line
from gradlab.graph.memory import arena
from gradlab.graph.native.layout import FIRST, arrange
from gradlab.graph.native.place import ARENA, Place
from gradlab.graph.shares import Alone, asks_for_threads, may_be_shared, run_shared, shared


class NumpyExecutable:
    """Runs a line with the rows' own NumPy functions. `run(arrays, outs)` fills the arrays `outs`, one for each output."""

    def __init__(self, line: Line) -> None:
        self.line = line
        arranged = arrange(line, careful=True)
        self.plan = arranged.plan
        self._places = arranged.places
        dynamic = len(line.inputs) + len(line.outputs)
        bases = [arena(self.plan.size), None, *[None] * dynamic, *arranged.fixed]
        self._arrays: Arrays = []  # by slot; None where an array comes with each run
        self._dynamic: list[tuple[int, int, Place | None]] = []  # slot, position among the arrays of a run, and what part of it
        self._slots: dict[int, int] = {}
        known: dict[Place, int] = {}
        for number, place in self._places.items():
            if place not in known:
                known[place] = len(self._arrays)
                if FIRST <= place.base < FIRST + dynamic:
                    at = place.base - FIRST
                    spec = line.inputs[at].spec if at < len(line.inputs) else line.outputs[at - len(line.inputs)].spec
                    whole = place.contiguous and (place.shape, place.dtype) == (tuple(spec.shape), spec.dtype)
                    self._dynamic.append((known[place], at, None if whole else place))
                    self._arrays.append(None)
                else:
                    self._arrays.append(place.array(bases[place.base]))
            self._slots[number] = known[place]
        self._moving = {slot for slot, _, _ in self._dynamic}
        self._lock = threading.Lock()
        self._threads = any(map(asks_for_threads, line.calls))
        self._steps: list[Run] = []
        work = Work(self._threads)
        for unit in arranged.units:
            if unit.loop and any(c.outputs[0].id in self._slots for c in unit.calls):
                self._steps.append(Chain(unit.calls, self._slots, self._places).run(self._arrays, self._moving, work))
            elif not unit.loop:
                self._steps.append(self._step(unit.calls[0]))
        self._copies = [(self._slots[n], self._places[n].base == ARENA, target) for n, target in arranged.copies]
        self._targets = [(None if target.base < FIRST + dynamic else target.array(bases[target.base])) for _, _, target in self._copies]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute. Raises what a row raises; state is then as it was."""
        given = [a if a.flags.c_contiguous else np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        given += outs
        with self._lock:
            self._run(arrays, given)

    def _run(self, arrays: Sequence[Any], given: list[Any]) -> None:
        now = self._arrays.copy()
        for slot, at, part in self._dynamic:
            now[slot] = given[at] if part is None else part.array(given[at])
        if self._threads:
            with Alone():
                for step in self._steps:
                    step(now)
        else:
            for step in self._steps:
                step(now)
        if self._copies:
            # What does not lie in the arena may be state itself, which another update is about to write.
            sources = [now[slot] if safe else np.array(now[slot]) for slot, safe, _ in self._copies]
            for source, (_, _, place), target in zip(sources, self._copies, self._targets):
                np.copyto(given[place.base - FIRST] if target is None else target, source)
            for array, used in zip(arrays, given):
                if array is not used:  # it was passed as a copy
                    np.copyto(array, used)

    def _step(self, call: Call) -> Run:
        """One call as a function of the arrays."""
        op, params, arrays = call.op, call.params, self._arrays
        values = [x for x in call.inputs if isinstance(x, Value)]
        like = values[0].spec.dtype if values else np.dtype(np.float32)
        numbers = [immediate(x, like) if isinstance(x, (int, float)) else None for x in call.inputs]
        inputs = [(self._slots[x.id] if isinstance(x, Value) else -1, n) for x, n in zip(call.inputs, numbers, strict=True)]
        outputs = [self._slots[v.id] for v in call.outputs]
        if op.view:  # of something that does not lie in the right order: NumPy has to copy
            source, target = inputs[0][0], outputs[0]

            def view(now: Arrays) -> None:
                np.copyto(now[target], op.cpu(now[source], **params))

            return view
        half = not op.exact and any(v.spec.dtype in HALF for v in (*call.outputs, *values))
        if half or op.name == "to_device":
            backend = dispatch.backend_for(params["device"]) if "device" in params else dispatch._by_type[np.ndarray]

            def general(now: Arrays) -> None:
                result = backend.run(op, [now[slot] if slot >= 0 else x for slot, x in inputs], params)
                for slot, array in zip(outputs, result if op.result is not None else (result,)):
                    np.copyto(now[slot], array)

            return general
        cpu, params = op.cpu, params_of(call)

        def found(now: Arrays) -> list[Any]:
            return [*(now[slot] if slot >= 0 else x for slot, x in inputs), *(now[slot] for slot in outputs)]

        large = self._threads and may_be_shared(call)
        if self._moving.isdisjoint([*outputs, *(slot for slot, _ in inputs)]):
            ready = found(arrays)
            jobs = shared(call, ready) if large else None
            return (lambda now: cpu(*ready, **params)) if jobs is None else (lambda now: run_shared(call, jobs))

        def moving(now: Arrays) -> None:
            jobs = shared(call, found(now))
            if jobs is None:
                cpu(*found(now), **params)
            else:
                run_shared(call, jobs)

        return moving if large else (lambda now: cpu(*found(now), **params))
