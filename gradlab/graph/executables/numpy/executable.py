"""Running a straight line of calls on NumPy arrays: memory planned once, views taken once, results written where they belong."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.backends.native.place import ARENA, Place
from gradlab.dtype import HALF, immediate
from gradlab.graph.calls.listing import Each
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.executables.native.half_casts import widened
from gradlab.graph.executables.native.planning import FIRST, arrange
from gradlab.graph.executables.numpy.cache_blocks import Arrays, Chain, Work, params_of
from gradlab.graph.executables.numpy.optimizer_updates import Updates, grouped, is_update, update_of
from gradlab.graph.executables.numpy.row_threads import Alone, asks_for_threads, may_be_shared, run_shared, runs_in_blocks, shared
from gradlab.graph.executables.numpy.shared_exponentials import keeping
from gradlab.graph.executables.numpy.source_text import Writing
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line as Line
from gradlab.graph.ir.memory_plan import arena
from gradlab.quiet import quieted


class NumpyExecutable:
    """Runs a line with the rows' own NumPy functions. `run(arrays, outs)` fills the arrays `outs`, one for each output."""

    def __init__(self, line: Line) -> None:
        self.line = line = keeping(widened(line, loops=True))
        arranged = arrange(line, careful=True, halves=True)
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
        self._updated = [line.inputs.index(old) for old, _ in line.updates if old in line.inputs]
        self._lock = threading.Lock()
        self._threads = any(map(asks_for_threads, line.calls))
        self._writing = Writing("line")
        run = self._written([u for u in arranged.units if not u.loop or any(c.outputs[0].id in self._slots for c in u.calls)])
        self._run = quieted(run, any(c.op.foreign for c in line.calls))
        self._copies = [(self._slots[n], self._places[n].base == ARENA, target) for n, target in arranged.copies]
        self._targets = [(None if target.base < FIRST + dynamic else target.array(bases[target.base])) for _, _, target in self._copies]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any], each: Each | None = None) -> None:
        """Compute. Raises what a row raises; state is then as it was. each: what runs it, which is one step."""
        if each is not None:
            each(None, lambda: self.run(arrays, outs))
            return
        given = [a if a.flags.c_contiguous else np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        given += outs
        with self._lock:
            if self._threads:
                with Alone():
                    self._run(given)
            else:
                self._run(given)
            if self._copies:
                self._copy(arrays, given)

    def _copy(self, arrays: Sequence[Any], given: list[Any]) -> None:
        """What could not be written where it belongs."""
        now = self._arrays
        if any(now[slot] is None for slot, _, _ in self._copies):
            now = now.copy()
            for slot, at, part in self._dynamic:
                now[slot] = given[at] if part is None else part.array(given[at])
        # What does not lie in the arena may be state itself, which another update is about to write.
        sources = [now[slot] if safe else np.array(now[slot]) for slot, safe, _ in self._copies]
        for source, (_, _, place), target in zip(sources, self._copies, self._targets):
            np.copyto(given[place.base - FIRST] if target is None else target, source)
        for at in self._updated:
            if arrays[at] is not given[at]:  # it was passed as a copy
                np.copyto(arrays[at], given[at])

    # ------------------------------------------------------------ the text

    def _written(self, units: Sequence[Unit]) -> Callable[[list[Any]], None]:
        """One function of the arrays of a run."""
        writing = self._writing
        self._texts = [f"d{slot}" if array is None else "" for slot, array in enumerate(self._arrays)]
        for slot, array in enumerate(self._arrays):
            if array is not None:
                self._texts[slot] = writing.name(array)
        work, body = Work(self._threads), []
        for group in grouped(units):
            if len(group) > 1:
                lines = self._updates([u.calls[0] for u in group])
            elif group[0].loop:
                lines = Chain(group[0].calls, self._slots, self._places).write(writing, self._texts, self._arrays, work)
            else:
                lines = self._step(group[0].calls[0])
            body += lines
        used = set(re.findall(r"\bd\d+\b", "\n".join(body)))
        head = []
        for slot, at, part in self._dynamic:
            if f"d{slot}" in used:
                whole = f"given[{at}]"
                head.append(f"d{slot} = {whole if part is None else writing.call(part.array, [whole])}")
        return writing.function(["given"], [*head, *body])

    def _operands(self, call: Call) -> list[str]:
        """The texts of a call's inputs and outputs."""
        values = [x for x in call.inputs if isinstance(x, Value)]
        like = values[0].spec.dtype if values else np.dtype(np.float32)
        found = []
        for x in call.inputs:
            number = immediate(x, call.op.number_dtype(like)) if isinstance(x, (int, float, complex)) else None
            found.append(self._texts[self._slots[x.id]] if isinstance(x, Value) else self._writing.name(number))
        return [*found, *(self._texts[self._slots[v.id]] for v in call.outputs)]

    def _updates(self, calls: Sequence[Call]) -> list[str]:
        """Small updates of one kind, done at once."""
        return [self._writing.call(Updates(calls), [f"[{', '.join(self._operands(c))}]" for c in calls])]

    def _step(self, call: Call) -> list[str]:
        """One call."""
        op, writing, operands = call.op, self._writing, self._operands(call)
        if op.view:  # of something that does not lie in the right order: NumPy has to copy
            source, target = operands
            if op.name == "view":
                shape = writing.name(tuple(call.inputs[0].spec.shape))
                return [writing.call(np.copyto, [f"{target}.reshape({shape})", source])]
            return [writing.call(np.copyto, [target, writing.call(op.cpu, [source], call.params)])]
        values = [*(x for x in call.inputs if isinstance(x, Value)), *call.outputs]
        half = not op.exact and any(v.spec.dtype in HALF for v in values)
        if half or op.name == "to_device":
            return [writing.call(_general(call), operands)]
        threaded = self._threads and may_be_shared(call)
        if threaded or runs_in_blocks(call):
            return self._shared(call, operands, threaded)
        params = params_of(call)
        if is_update(call):
            return [writing.call(update_of(call), operands, params)]
        return [writing.call(op.cpu, operands, params)]

    def _shared(self, call: Call, operands: list[str], threaded: bool) -> list[str]:
        """One call piece by piece, on all threads or one after the other."""
        slots = [self._slots[x.id] if isinstance(x, Value) else -1 for x in (*call.inputs, *call.outputs)]
        numbers = any(isinstance(x, (int, float, complex)) for x in call.inputs)
        if not numbers and all(slot < 0 or self._arrays[slot] is not None for slot in slots):
            jobs = shared(call, [self._arrays[slot] if slot >= 0 else None for slot in slots])
            if jobs is None:
                return [self._writing.call(call.op.cpu, operands, params_of(call))]
            return [self._writing.call(run_shared, [self._writing.name(call), self._writing.name(jobs), str(threaded)])]
        params = params_of(call)

        def moving(*found: Any) -> None:
            jobs = shared(call, found)
            if jobs is None:
                call.op.cpu(*found, **params)
            else:
                run_shared(call, jobs, threaded)

        return [self._writing.call(moving, operands)]


def _general(call: Call) -> Callable[..., None]:
    """A row that the backend has to run: on another device, or in half types."""
    op, params, count = call.op, call.params, len(call.inputs)
    backend = dispatch.backend_for(params["device"]) if "device" in params else dispatch._by_type[np.ndarray]

    def general(*found: Any) -> None:
        result = backend.run(op, list(found[:count]), params)
        for array, made in zip(found[count:], result if op.result is not None else (result,)):
            np.copyto(array, made)

    return general
