"""The steps of a layer of recurrent units as one call, forward and backward, in programs of a GPU that have them one after the other.

A traced layer is a product of the state and the weight and a cell for each step, and as much on the way back. Where the inputs' shares of
all steps are there before the first, no two steps need launches of their own: one kernel goes all the way, with the weight in shared memory
(`kernels/cuda/recurrent_steps.cuh`), and the states of all steps lie in one array, whose parts the rest of the program reads. So do
networks whose loops users write themselves. On half types a state is rounded after each step, as it was.

Left alone: steps whose input depends on the state before, sums that others read, autocast's steps, and layers that are too large
(`launch/recurrent.form_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gradlab import dispatch, ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import in_order
from gradlab.graph.passes.reading import Reading, alive
from gradlab.graph.passes.recurrent_cells import BACK, FORWARD, Back, Cell, Link, back_of, cell_of, link_of
from gradlab.graph.passes.step_rows import ROWS
from gradlab.op import Op
from gradlab.spec import Spec

LARGE = "no kernel takes so many units or sequences of this type on this GPU"
MANY = "too much of them leaves the program"
EARLY = "what they need is not all there before the first"
UNEVEN = "what they read does not lie evenly in memory"
FEW = 4  # states and gates that may leave the program: each is copied
_add, _cast, _slice = ops.elementwise.add, ops.elementwise.cast, ops.movement.slice_
_matmul, _sum = ops.linalg.matmul, ops.reduction.sum_


def join_steps(graph: Graph) -> Graph:
    """The graph, with steps of recurrent units in one where it is a GPU's."""
    if graph.device.type != "cuda" or not any(c.op in FORWARD or c.op in BACK for c in graph.calls):
        return graph
    backend: Any = dispatch.backend_for(graph.device)
    ends = [*graph.outputs, *(new for _, new in graph.updates), *(v for _, v in graph.gradients if v is not None)]
    given = [*graph.inputs, *graph.state, *(v for _, v, _ in graph.random), *ends]
    joining = Joining(graph.calls, {v.id for v in ends}, given, partial(backend.takes_steps, graph.device))
    calls = joining.joined()
    return replace(graph, calls=calls, notes=(*graph.notes, *joining.refused))


class Way(NamedTuple):
    """Steps that follow one another; the type that states are rounded to, if there is one."""

    cells: list[Cell]
    half: Any


class Joining:
    """Steps of a line while they are joined."""

    def __init__(
        self, calls: Sequence[Call], ends: set[int], others: Iterable[Value], takes: Callable[[str, Any, int, int], bool]
    ) -> None:
        self.ends, self.takes = ends, takes  # takes: whether a kernel does, of a kind of units, a dtype, a batch and so many units
        values = [v for c in calls for v in (*c.inputs, *c.outputs) if isinstance(v, Value)]
        self.free = 1 + max((v.id for v in (*values, *others)), default=0)
        self.parts: dict[int, tuple[Value, int]] = {}  # values that are one step's part of what a kernel writes: of which, and which
        self.number = 0  # of ways that were joined
        self.refused: list[str] = []  # those that were not, and why, for people
        self.line = Reading(calls, ends)

    def joined(self) -> list[Call]:
        """The calls, with steps in one."""
        for find, join in ((self._ways, self._forward), (self._ways_back, self._backward)):
            for way in find():
                found = join(way)
                if isinstance(found, str):
                    self.refused.append(f"{len(way[0])} steps of {way[0][0].unit}: one by one, since {found}")
                else:
                    at, made, gone = found
                    dead = set(map(id, gone))
                    kept = [[*made, c] if c is at else [c] for c in self.line.calls]
                    self.line = Reading([c for cs in kept for c in cs if id(c) not in dead], self.ends)
        if self.parts:
            for change in (self._in_time, self._cats, self._sums):
                self.line = Reading(change(), self.ends)
        return in_order(alive(self.line.calls, self.ends)) if self.number else self.line.calls

    def new(self, shape: tuple[int, ...], dtype: Any) -> Value:
        """A value that no call makes yet."""
        self.free += 1
        return Value(self.free, Spec(shape, dtype))

    # ------------------------------------------------------------ forward

    def _ways(self) -> list[Way]:
        line, before, behind = self.line, set[int](), dict[int, Cell]()
        cells = {id(cell.call): cell for c in line.calls if (cell := cell_of(line, c)) is not None}
        halves = {at: line.half(cell.product.inputs[1]) for at, cell in cells.items()}
        for at, cell in cells.items():
            half = halves[at]
            h = line.rounded(cell.product.inputs[0], half)
            last = None if h is None else cells.get(id(line.maker(h)))
            if h is None or last is None or id(last.call) in behind or last.unit != cell.unit or last.bias != cell.bias:
                continue
            follows = h.id == last.call.outputs[0].id and line.same(last.product.inputs[1], cell.product.inputs[1])
            if cell.unit == "lstm":
                c = line.rounded(cell.call.inputs[2], half)
                follows = follows and c is not None and c.id == last.call.outputs[1].id
            if follows:
                before.add(at)
                behind[id(last.call)] = cell
        found = []
        for at, cell in cells.items():
            if at not in before and at in behind:
                way = [cell]
                while id(way[-1].call) in behind:
                    way.append(behind[id(way[-1].call)])
                found.append(Way(way, halves[id(way[-1].call)]))
        return found

    def _forward(self, way: Way) -> Any:
        line, (cells, half), steps = self.line, way, len(way.cells)
        unit, start = cells[0].unit, cells[0].product
        x = [line.narrow(c.x, half) for c in cells]
        weight, first = line.narrow(start.inputs[1], half), start.inputs[0]
        others = [cells[0].call.inputs[2]] if unit == "lstm" else [b for b in (cells[0].bias,) if b is not None]
        apart = line.evenly(x)
        if apart is None or line.place(x[0]).strides[-1] != 1:  # type: ignore[arg-type]
            return UNEVEN
        needed = (weight, first, *others)
        if weight is None or not all(isinstance(v, Value) for v in needed) or not line.before(start, (*x, *needed)):
            return EARLY
        if not self.takes(unit, weight.spec.dtype, *first.spec.shape):
            return LARGE
        plain = unit in ("tanh", "relu")  # what others read of these steps is the state itself
        states, gone = [[c.call.outputs[0]] for c in cells], [call for c in cells for call in (c.product, *c.between, c.call)]
        if half is not None:
            readers = [line.readers.get(vs[0].id, []) for vs in states]
            roundings = [[r for r in rs if r.op is _cast and r.outputs[0].spec.dtype == half] for rs in readers]
            if not plain and (any(vs[0].id in self.ends for vs in states) or readers != roundings):
                return "unrounded states are read"
            states, gone = [[r.outputs[0] for r in rs] for rs in roundings], [*gone, *(r for rs in roundings for r in rs)]
        acts = [None if plain and half is None else c.call.outputs[{"lstm": 2, "gru": 1}.get(unit, 0)] for c in cells]
        values = [c.call.outputs[1] if unit == "lstm" else c.sums for c in cells]
        if sum(v is not None and v.id in self.ends for vs in zip(acts, values, strict=True) for v in vs) + sum(
            v.id in self.ends for vs in states for v in vs
        ) > FEW:  # fmt: skip
            return MANY
        backwards, (batch, units), dtype = apart < 0, first.spec.shape, first.spec.dtype
        if backwards:
            x.reverse()
        hidden, gates = self.new((steps + 1, batch, units), weight.spec.dtype), self.new((steps, *cells[0].x.spec.shape), dtype)
        kept = [] if plain else [self.new((steps, *values[0].spec.shape), dtype)]  # type: ignore[union-attr]
        params = {"unit": unit, "steps": steps, "backwards": backwards}
        made = [Call(ROWS[unit][0], (x[0], x[1], weight, first, *others), params, (hidden, *kept, gates), start.position)]
        if half is None:
            self.parts[first.id] = hidden, steps if backwards else 0
        for n, cell in enumerate(cells):
            t = steps - 1 - n if backwards else n
            made += [self._part(hidden, t if backwards else t + 1, v, cell.call) for v in states[n]]
            for whole, part in ((kept[0] if kept else gates, values[n]), (gates, acts[n])):
                made += [self._part(whole, t, part, cell.call)] if part is not None else []
        self.number += 1
        return start, made, gone

    def _part(self, whole: Value, slot: int, value: Value, call: Call) -> Call:
        self.parts[value.id] = whole, slot
        return Call(_slice, (whole,), {"index": (slot,)}, (value,), call.position)

    # ------------------------------------------------------------ backward

    def _ways_back(self) -> list[Any]:
        line, behind, after = self.line, dict[int, tuple[Back, Link]](), set[int]()
        backs = {id(c): back for c in line.calls if (back := back_of(c)) is not None}
        for at, back in backs.items():
            found = link_of(line, back, backs)
            if found is None or id(found[1].call) in behind:
                continue
            link, last = found
            if back.unit == "lstm":
                dc = line.rounded(back.call.inputs[1], link.half)
                between = self._between(back.call.inputs[1], dc)
                if dc is None or dc.id != last.call.outputs[1].id or between is None:
                    continue
                link = link._replace(others=[*link.others, *between])
            behind[id(last.call)] = back, link
            after.add(at)
        ways = []
        for at, back in backs.items():
            if at in behind and at not in after:
                way, links = [back], list[Link]()
                while id(way[-1].call) in behind:
                    then, link = behind[id(way[-1].call)]
                    if links and not line.same(link.product.inputs[1], links[0].product.inputs[1]):
                        break
                    way.append(then)
                    links.append(link)
                ways.append((way, links))
        return ways

    def _between(self, value: Any, source: Value | None) -> list[Call] | None:
        """The calls from one value to another, each of which only the next reads; None if others do."""
        found, line = list[Call](), self.line
        while source is not None and isinstance(value, Value):
            if not line.alone(value):
                return None
            if value.id == source.id:
                return found
            call = line.maker(value)
            if call is None:
                return None
            found.append(call)
            value = call.inputs[0]
        return None

    def _backward(self, way: Any) -> Any:
        line, (backs, links) = self.line, way
        cells, unit, steps, half = [b.call for b in backs], backs[0].unit, len(backs), links[0].half
        last, on = cells[0], cells[::-1]
        acts = [c.inputs[2 if unit == "lstm" else 1] for c in on]
        values = [c.inputs[{"lstm": 4, "gru": 2}[unit]] for c in on] if unit in ("lstm", "gru") else []
        states = [line.narrow(c.inputs[3], half) for c in on[1:]] if unit == "gru" else []
        begun = [on[0].inputs[3]] if values else []
        apart, weight = line.evenly(acts), self._turned(links[0].product.inputs[1], half)
        if weight is None or any(k.half != half for k in links):
            return "weights or roundings differ"
        dtype, (batch, units) = weight[0].spec.dtype, last.inputs[0].spec.shape
        if not self.takes(unit, dtype, batch, units):
            return LARGE
        for several in filter(None, (values, states)):
            gap = line.evenly(several)
            if apart is None or gap is None or (len(several) > 1 and (gap < 0) != (apart < 0)):
                return UNEVEN
        if apart is None or any(line.place(v[0]).strides[-1] != 1 for v in (acts, values) if v):
            return UNEVEN
        if unit == "lstm" and not all(map(self._follows, cells, cells[1:], [half] * steps)):
            return "cells are not those of the step before"
        slopes, number = [k.slope for k in links], 0.0
        if all(isinstance(v, Value) for v in slopes):
            if line.evenly(slopes) is None:
                return UNEVEN
        elif all(not isinstance(v, Value) and v == slopes[0] for v in slopes):
            number, slopes = float(slopes[0]), []
        else:
            return "what arrives at the states differs in kind"
        given = [*last.inputs[: 2 if unit == "lstm" else 1], *begun]
        outputs = [[b.call.outputs[0], *([b.into] if unit == "gru" else [])] for b in backs]
        if sum(v.id in self.ends for vs in outputs for v in vs) > FEW:
            return MANY
        if not all(isinstance(v, Value) for v in given) or not line.before(last, (*given, *acts, *values, *states, weight[0], *slopes)):
            return EARLY
        backwards = apart < 0
        for several in (acts, values, states) if backwards else (slopes,):
            several.reverse()
        matrix, made = weight[0], list[Call]()
        if weight[1]:
            matrix = self.new(matrix.spec.shape[::-1], dtype)
            made.append(Call(ops.movement.t, (weight[0],), {}, (matrix,), last.position))
        wholes = [self.new((steps, *v.spec.shape), v.spec.dtype) for v in outputs[0]]
        carried = [cells[-1].outputs[2 if unit == "gru" else 1]] if values else []
        inputs = (*given[: len(given) - len(begun)], *acts[:2], *values[:2], *begun, matrix, *(states * 2)[:2], *slopes[:2])
        params = {"unit": unit, "steps": steps, "backwards": backwards, "slope": number}
        made.append(Call(ROWS[unit][1], inputs, params, (*wholes, *carried), last.position))
        for n, cell in enumerate(cells):
            for whole, value in zip(wholes, outputs[n], strict=True):
                made.append(self._part(whole, n if backwards else steps - 1 - n, value, cell))
        self.number += 1
        return last, made, [*cells, *(c for k in links for c in (k.product, *k.others))]

    def _follows(self, cell: Call, former: Call, half: Any) -> bool:
        """Whether a step began with the cell state that the step before it ended with."""
        begun = self.line.rounded(cell.inputs[3], half)
        return begun is not None and self.line.place(begun) == self.line.place(former.inputs[4])

    def _turned(self, value: Any, half: Any) -> tuple[Value, bool] | None:
        """A weight as it is kept, and whether that is to be turned."""
        found, call = self.line.narrow(value, half), self.line.maker(value)
        if found is not None:
            return found, False
        found = self.line.narrow(call.inputs[0], half) if call is not None and call.op is ops.movement.t else None
        return None if found is None else (found, True)

    # ------------------------------------------------------------ what reads the parts

    def _in_time(self) -> list[Call]:
        """The calls, in which sums of products over all steps, from the last to the first, go as their factors lie in memory."""
        line, turned = self.line, dict[int, Call]()
        for call in line.calls:
            (one, odd), (other, even) = map(self._cat_below, call.inputs) if call.op is _matmul else ((None, False), (None, False))
            if not odd or even:
                continue
            if one is None or other is None or [x.spec.shape[0] for x in one.inputs] != [x.spec.shape[0] for x in other.inputs]:
                continue
            slots = [self._slot(x, 0) for x in other.inputs]
            if one.params["dim"] == other.params["dim"] == 0 and all(a and b and a[1] == b[1] + 1 for a, b in pairwise(slots)):
                for c in (one, other):
                    turned[id(c)] = Call(c.op, c.inputs[::-1], c.params, c.outputs, c.position, c.again)
        return [turned.get(id(c), c) for c in line.calls]

    def _cat_below(self, value: Any) -> tuple[Call | None, bool]:
        """The `cat` that a value is, and whether it is turned; nobody else reads what is between."""
        line, turned = self.line, False
        call = line.maker(value) if line.alone(value) else None
        while call is not None and call.op is ops.movement.t:
            turned, call = not turned, line.maker(call.inputs[0]) if line.alone(call.inputs[0]) else None
        return (call, turned) if call is not None and call.op is ops.movement.cat else (None, turned)

    def _cats(self) -> list[Call]:
        """The calls, in which neighbours of a `cat` that lie beside each other anyway are one."""
        found: list[Call] = []
        for call in self.line.calls:
            if call.op is not ops.movement.cat:
                found.append(call)
                continue
            runs: list[list[tuple[Any, Any]]] = []
            for x in call.inputs:
                slot = self._slot(x, call.params["dim"])
                before = runs[-1][-1][1] if runs else None
                if slot is not None and before is not None and slot == (*before[:1], before[1] + 1, *before[2:]):
                    runs[-1].append((x, slot))
                else:
                    runs.append([(x, slot)])
            inputs: list[Any] = []
            for run in runs:
                if len(run) == 1:
                    inputs.append(run[0][0])
                else:
                    made = self._whole(run[0][1], len(run), call, call.outputs[0] if len(runs) == 1 else None)
                    inputs.append(made[-1].outputs[0])
                    found += made
            if len(runs) > 1 or len(call.inputs) == 1:
                found.append(Call(call.op, tuple(inputs), call.params, call.outputs, call.position, call.again))
        return found

    def _sums(self) -> list[Call]:
        """The calls, in which sums of the rows of all steps, added up, are one."""
        line, found, gone = self.line, dict[int, list[Call]](), set[int]()
        for call in reversed(line.calls):
            if call.op is not _add or id(call) in gone:
                continue
            terms, calls = [call.outputs[0]], list[Call]()
            slots = list[Any]()
            while terms:
                made = line.maker(terms.pop())
                if made is None or (made is not call and not line.alone(made.outputs[0])):
                    break
                calls.append(made)
                if made.op in (_add, ops.movement.view):
                    terms += made.inputs
                elif made.op is _sum and tuple(made.params["dim"]) == (0,) and len(made.inputs[0].spec.shape) == 2:
                    slots.append(self._slot(made.inputs[0], 0))
                else:
                    break
            else:
                slots = sorted((s for s in slots if s is not None), key=lambda s: s[1]) if None not in slots else []
                (out,) = call.outputs
                if not slots or any(b[:2] != (a[0], a[1] + 1) for a, b in pairwise(slots)) or out.spec.shape != slots[0][2].spec.shape[2:]:
                    continue
                whole = self._whole(slots[0], len(slots), call, None)
                params = {"dim": (0,), "keepdim": False}
                found[id(call)] = [*whole, Call(_sum, (whole[-1].outputs[0],), params, (out,), call.position)]
                gone |= {id(c) for c in calls if c is not call}
        return [one for c in line.calls if id(c) not in gone for one in found.get(id(c), [c])]

    def _slot(self, value: Any, dim: int) -> tuple[Any, ...] | None:
        """Of which array a part of a `cat` is which part, whether it has a dimension more there, and the type it is converted to."""
        line, dtype, more = self.line, None, False
        call = line.made_by(value, _cast)
        if call is not None and isinstance(call.inputs[0], Value):
            value, dtype = call.inputs[0], call.outputs[0].spec.dtype
        known = self.parts.get(value.id) if isinstance(value, Value) else None
        call = line.maker(value)
        if known is None and call is not None and call.op in (ops.movement.view, ops.movement.unsqueeze):
            shape = value.spec.shape
            known, more = self.parts.get(call.inputs[0].id), True
            if dim > 1 or shape[dim : dim + 1] != (1,) or (*shape[:dim], *shape[dim + 1 :]) != call.inputs[0].spec.shape:
                return None
        return None if known is None or (dim and not more) else (known[0].id, known[1], known[0], more, dtype, dim)

    def _whole(self, slot: Any, number: int, call: Call, out: Value | None) -> list[Call]:
        """What makes of so many parts, from that slot on, what a `cat` makes of them."""
        _, first, base, more, dtype, dim = slot
        made: list[Call] = []

        def then(op: Op, value: Value, params: dict[str, Any], shape: tuple[int, ...], to: Any = None) -> Value:
            made.append(Call(op, (value,), params, (self.new(shape, to or value.spec.dtype),), call.position))
            return made[-1].outputs[0]

        _, batch, width = base.spec.shape
        value = then(_slice, base, {"index": ((first, first + number, 1),)}, (number, batch, width))
        if not more:
            value = then(ops.movement.view, value, {"shape": (number * batch, width)}, (number * batch, width))
        elif dim:
            value = then(ops.movement.transpose, value, {"dim0": 0, "dim1": 1}, (batch, number, width))
        if dtype is not None:
            value = then(_cast, value, {"dtype": dtype}, value.spec.shape, dtype)
        if out is not None:
            made[-1].outputs = (out,)
        return made
