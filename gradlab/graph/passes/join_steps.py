"""The steps of a layer of LSTM units as one call, forward and backward, in programs of a GPU that have them one after the other.

A traced layer is a product of the state and the weight and a cell for each step, and as much on the way back. Where the inputs' shares of
all steps are there before the first, no two steps need launches of their own: one kernel goes all the way, with the weight in shared memory
(`kernels/cuda/lstm_steps.cuh`), and the states of all steps lie in one array, whose parts the rest of the program reads. So do networks
whose loops users write themselves. On half types a state is rounded after each step, as it was.

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
from gradlab.dtype import FLOAT32, FLOAT64, HALF
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import in_order
from gradlab.graph.passes.reading import Reading, alive
from gradlab.graph.passes.step_rows import lstm_steps, lstm_steps_backward
from gradlab.op import Op
from gradlab.ops.recurrent import lstm_cell, lstm_cell_backward
from gradlab.spec import Spec

FEW = 4  # states and gates that may leave the program: each is copied
_cast, _slice, _matmul = ops.elementwise.cast, ops.movement.slice_, ops.linalg.matmul


def join_steps(graph: Graph) -> Graph:
    """The graph, with steps of LSTM units in one where it is a GPU's."""
    if graph.device.type != "cuda" or not any(c.op in (lstm_cell, lstm_cell_backward) for c in graph.calls):
        return graph
    backend: Any = dispatch.backend_for(graph.device)
    ends = [*graph.outputs, *(new for _, new in graph.updates), *(v for _, v in graph.gradients if v is not None)]
    given = [*graph.inputs, *graph.state, *(v for _, v, _ in graph.random), *ends]
    joining = Joining(graph.calls, {v.id for v in ends}, given, partial(backend.takes_steps, graph.device))
    calls = joining.joined()
    return replace(graph, calls=calls) if joining.number else graph


def _plain(state: Value) -> bool:
    """Whether a state is a matrix whose sizes are known."""
    return len(state.spec.shape) == 2 and all(type(n) is int for n in state.spec.shape)


class Way(NamedTuple):
    """Steps that follow one another: their cells and the products before them; the type that states are rounded to, if there is one."""

    cells: list[Call]
    products: list[Call]
    half: Any


class Link(NamedTuple):
    """What is between two steps on the way back: the product, other calls, and what else arrives at the hidden state."""

    product: Call
    others: list[Call]
    slope: Any
    half: Any


class Joining:
    """Steps of a line while they are joined."""

    def __init__(self, calls: Sequence[Call], ends: set[int], others: Iterable[Value], takes: Callable[[Any, int, int], bool]) -> None:
        self.ends, self.takes = ends, takes  # takes: whether a kernel does, of a dtype, a batch and so many units
        values = [v for c in calls for v in (*c.inputs, *c.outputs) if isinstance(v, Value)]
        self.free = 1 + max((v.id for v in (*values, *others)), default=0)
        self.parts: dict[int, tuple[Value, int]] = {}  # values that are one step's part of what a kernel writes: of which, and which
        self.number = 0  # of ways that were joined
        self.line = Reading(calls, ends)

    def joined(self) -> list[Call]:
        """The calls, with steps in one."""
        for find, join in ((self._ways, self._forward), (self._ways_back, self._backward)):
            for way in find():
                found = join(way)
                if found is not None:
                    at, made, gone = found
                    dead = set(map(id, gone))
                    kept = [[*made, c] if c is at else [c] for c in self.line.calls]
                    self.line = Reading([c for cs in kept for c in cs if id(c) not in dead], self.ends)
        if self.parts:
            self.line = Reading(self._in_time(), self.ends)
            self.line = Reading(self._cats(), self.ends)
        return in_order(alive(self.line.calls, self.ends)) if self.number else self.line.calls

    def new(self, shape: tuple[int, ...], dtype: Any) -> Value:
        """A value that no call makes yet."""
        self.free += 1
        return Value(self.free, Spec(shape, dtype))

    # ------------------------------------------------------------ forward

    def _ways(self) -> list[Way]:
        line, products, before, behind = self.line, dict[int, Call](), dict[int, Call](), dict[int, Call]()
        halves: dict[int, Any] = {}
        cells = [c for c in line.calls if c.op is lstm_cell and _plain(c.outputs[0])]
        for cell in cells:
            product = line.made_by(cell.inputs[1], _matmul)
            if product is None or not line.alone(cell.inputs[1]) or cell.outputs[0].spec.dtype not in (FLOAT32, FLOAT64):
                continue
            products[id(cell)] = product
            half = halves[id(cell)] = line.half(product.inputs[1])
            h, c = line.rounded(product.inputs[0], half), line.rounded(cell.inputs[2], half)
            last = line.made_by(h, lstm_cell)
            if last is None or c is None or h is None or id(last) not in products or id(last) in behind:
                continue
            same = line.same(products[id(last)].inputs[1], product.inputs[1])
            if same and (h.id, c.id) == (last.outputs[0].id, last.outputs[1].id):
                before[id(cell)], behind[id(last)] = last, cell
        found = []
        for cell in cells:
            if id(cell) in products and id(cell) not in before and id(cell) in behind:
                way = [cell]
                while id(way[-1]) in behind:
                    way.append(behind[id(way[-1])])
                found.append(Way(way, [products[id(c)] for c in way], halves[id(way[-1])]))
        return found

    def _forward(self, way: Way) -> Any:
        line, (cells, products, half), steps = self.line, way, len(way.cells)
        x = [line.narrow(c.inputs[0], half) for c in cells]
        weight, first, begun = line.narrow(products[0].inputs[1], half), products[0].inputs[0], cells[0].inputs[2]
        apart = line.evenly(x)
        if apart is None or weight is None or not isinstance(first, Value) or not isinstance(begun, Value):
            return None
        if line.place(x[0]).strides[-1] != 1 or not line.before(products[0], (*x, weight, first, begun)):  # type: ignore[arg-type]
            return None
        if not self.takes(weight.spec.dtype, *first.spec.shape):
            return None
        states = [[c.outputs[0]] for c in cells]
        if half is not None:
            readers = [line.readers.get(c.outputs[0].id, []) for c in cells]
            if any(r.op is not _cast or r.outputs[0].spec.dtype != half for rs in readers for r in rs) or any(
                c.outputs[0].id in self.ends for c in cells
            ):
                return None
            states = [[r.outputs[0] for r in rs] for rs in readers]
        leaving = [v for c, vs in zip(cells, states) for v in (*vs, *c.outputs[1:]) if v.id in self.ends]
        if len(leaving) > FEW:
            return None
        backwards, (batch, units), dtype = apart < 0, first.spec.shape, begun.spec.dtype
        if backwards:
            x.reverse()
        hidden = self.new((steps + 1, batch, units), weight.spec.dtype)
        values, acts = self.new((steps, batch, units), dtype), self.new((steps, batch, 4 * units), dtype)
        inputs = (x[0], x[1], weight, first, begun)
        params = {"steps": steps, "backwards": backwards}
        made = [Call(lstm_steps, inputs, params, (hidden, values, acts), products[0].position)]
        if half is None:
            self.parts[first.id] = hidden, steps if backwards else 0
        for n, cell in enumerate(cells):
            t = steps - 1 - n if backwards else n
            made += [self._part(hidden, t if backwards else t + 1, v, cell) for v in states[n]]
            made += [self._part(values, t, cell.outputs[1], cell), self._part(acts, t, cell.outputs[2], cell)]
        self.number += 1
        gone = [*products, *cells, *(r for c in cells if half is not None for r in line.readers.get(c.outputs[0].id, []))]
        return products[0], made, gone

    def _part(self, whole: Value, slot: int, value: Value, call: Call) -> Call:
        self.parts[value.id] = whole, slot
        return Call(_slice, (whole,), {"index": (slot,)}, (value,), call.position)

    # ------------------------------------------------------------ backward

    def _ways_back(self) -> list[Any]:
        line, behind, after = self.line, dict[int, tuple[Call, Link]](), set[int]()
        cells = [c for c in line.calls if c.op is lstm_cell_backward and _plain(c.outputs[1])]
        for cell in cells:
            link = self._link(cell)
            last = None if link is None else line.made_by(link.product.inputs[0], lstm_cell_backward)
            if link is None or last is None or id(last) in behind or link.product.inputs[0].id != last.outputs[0].id:
                continue
            dc = line.rounded(cell.inputs[1], link.half)
            between = self._between(cell.inputs[1], dc)
            if dc is not None and dc.id == last.outputs[1].id and between is not None:
                behind[id(last)] = cell, link._replace(others=[*link.others, *between])
                after.add(id(cell))
        found = []
        for cell in cells:
            if id(cell) in behind and id(cell) not in after:
                way, links = [cell], list[Link]()
                while id(way[-1]) in behind:
                    then, link = behind[id(way[-1])]
                    if links and not line.same(link.product.inputs[1], links[0].product.inputs[1]):
                        break
                    way.append(then)
                    links.append(link)
                found.append((way, links))
        return found

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

    def _link(self, cell: Call) -> Link | None:
        line, dh = self.line, cell.inputs[0]
        if not line.alone(dh) or dh.spec.dtype not in (FLOAT32, FLOAT64):
            return None
        wide = line.made_by(dh, _cast)
        half = wide.inputs[0].spec.dtype if wide is not None and wide.inputs[0].spec.dtype in HALF else None
        sum_ = wide.inputs[0] if half is not None and wide is not None else dh
        others = [wide] if half is not None and wide is not None else []
        add = line.made_by(sum_, ops.elementwise.add)
        for x, slope in (add.inputs, add.inputs[::-1]) if add is not None and line.alone(sum_) else ((sum_, 0.0),):
            rounding = line.made_by(x, _cast) if half is not None else None
            total = rounding.inputs[0] if rounding is not None else x
            product = line.made_by(total, _matmul)
            if (half is not None and rounding is None) or product is None or not (line.alone(x) and line.alone(total)):
                continue
            dtype = dh.spec.dtype if half is None else half
            if isinstance(slope, Value) and (slope.spec.shape != dh.spec.shape or slope.spec.dtype != dtype):
                return None
            return Link(product, [c for c in (*others, add, rounding) if c is not None], slope, half)
        return None

    def _backward(self, way: Any) -> Any:
        line, (cells, links) = self.line, way
        steps, half, last = len(cells), links[0].half, cells[0]
        acts, values, begun = [[c.inputs[i] for c in cells[::-1]] for i in (2, 4)] + [cells[-1].inputs[3]]
        apart, gap = line.evenly(acts), line.evenly(values)
        weight = self._turned(links[0].product.inputs[1], half)
        if apart is None or gap is None or (apart < 0) != (gap < 0) or weight is None or any(k.half != half for k in links):
            return None
        if any(line.place(v[0]).strides[-1] != 1 for v in (acts, values)) or not all(map(self._follows, cells, cells[1:], [half] * steps)):
            return None
        slopes, number = [k.slope for k in links], 0.0
        if all(isinstance(v, Value) for v in slopes):
            if line.evenly(slopes) is None:
                return None
        elif all(not isinstance(v, Value) and v == slopes[0] for v in slopes):
            number, slopes = float(slopes[0]), []
        else:
            return None
        dtype = weight[0].spec.dtype
        batch, units = last.outputs[1].spec.shape
        given = (*last.inputs[:2], begun)
        if not self.takes(dtype, batch, units) or not all(isinstance(v, Value) for v in given):
            return None
        if not line.before(last, (*given, *acts, *values, weight[0], *slopes)) or sum(c.outputs[0].id in self.ends for c in cells) > FEW:
            return None
        backwards = apart < 0
        if backwards:
            acts.reverse()
            values.reverse()
        else:
            slopes.reverse()
        matrix, made = weight[0], list[Call]()
        if weight[1]:
            matrix = self.new(matrix.spec.shape[::-1], dtype)
            made.append(Call(ops.movement.t, (weight[0],), {}, (matrix,), last.position))
        dgates = self.new((steps, *last.outputs[0].spec.shape), last.outputs[0].spec.dtype)
        inputs = (*last.inputs[:2], *acts[:2], *values[:2], begun, matrix, *slopes[:2])
        params = {"steps": steps, "backwards": backwards, "slope": number}
        made.append(Call(lstm_steps_backward, inputs, params, (dgates, cells[-1].outputs[1]), last.position))
        for n, cell in enumerate(cells):
            made.append(self._part(dgates, n if backwards else steps - 1 - n, cell.outputs[0], cell))
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
            turn = line.made_by(call.inputs[0], ops.movement.t) if call.op is _matmul and line.alone(call.inputs[0]) else None
            one = None if turn is None or not line.alone(turn.inputs[0]) else line.made_by(turn.inputs[0], ops.movement.cat)
            other = line.made_by(call.inputs[1], ops.movement.cat) if one is not None and line.alone(call.inputs[1]) else None
            if one is None or other is None or [x.spec.shape[0] for x in one.inputs] != [x.spec.shape[0] for x in other.inputs]:
                continue
            slots = [self._slot(x, 0) for x in other.inputs]
            if one.params["dim"] == other.params["dim"] == 0 and all(a and b and a[1] == b[1] + 1 for a, b in pairwise(slots)):
                for c in (one, other):
                    turned[id(c)] = Call(c.op, c.inputs[::-1], c.params, c.outputs, c.position, c.again)
        return [turned.get(id(c), c) for c in line.calls]

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
