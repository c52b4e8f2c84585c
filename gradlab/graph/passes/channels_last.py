"""Images lie in memory with the channels of a pixel beside each other where convolutions gain by it.

Convolutions compute so, and read and write any mixture of the two orders. Norms, poolings and elementwise rows want all their images in one
order, so the images that they join are decided on together. Those of fewer channels than a vector holds are better off in row-major order.
What enters or leaves the program is in row-major order, and so are the images of rows that know no other; where the convolutions gain more
than copies cost, such values are copied from one order into the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gradlab import ops
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings.loops import is_elementwise
from gradlab.backends.native.place import Place, last_place, place_of, viewed
from gradlab.dtype import FLOAT32, HALF, INT64
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import ends, loose

# Which images a row takes in either order: groups of inputs and outputs, those of a group in the same order.
Groups = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
CONVOLUTIONS: dict[str, Groups] = {
    **dict.fromkeys(("convolution", "convolution_relu", "convolution_dx"), (((0,), ()), ((), (0,)))),
    "convolution_dw": (((0,), ()), ((1,), ())),
    "convolution_relu_pool": (((0,), ()), ((), (0,)), ((), (1,))),
    **dict.fromkeys(("convolution_batch_norm", "convolution_batch_norm_relu"), (((0,), ()), ((5,), (0, 1)))),
    "convolution_dx_pooled": (((0,), ()), ((1,), ()), ((), (0,))),
    "convolution_dw_pooled": (((0,), ()), ((1,), ()), ((2,), ())),
}
NORMS: dict[str, Groups] = {
    "batch_norm": (((0,), (0,)),),
    "batch_norm_relu": (((0, 3), (0,)),),
    "batch_norm_relu_again": (((0, 5), (0,)),),
    **dict.fromkeys(("batch_norm_backward", "batch_norm_relu_backward"), (((0, 1), (0,)),)),
}
POOLINGS: dict[str, Groups] = {
    "max_pool": (((0,), (0, 1)),),
    "max_pool_backward": (((0, 1), (0,)),),
    **dict.fromkeys(("avg_pool", "avg_pool_backward"), (((0,), (0,)),)),
}
COPIES: dict[str, Groups] = {  # of any type, and from any place
    **dict.fromkeys(("pad", "resample", "resample_backward", "slice_backward"), (((0,), (0,)),)),
    "slice_scatter": (((0, 1), (0,)),),
}
STRICT = {**NORMS, **POOLINGS}  # whose images lie without gaps
TAKES = {**CONVOLUTIONS, **STRICT, **COPIES}
SUMS = ("sum", "mean", "amax", "amin")

FEWEST = 0  # channels that a convolution gains by; 0 is as many as fill a vector: with fewer it loses
COPY = 4  # what a copy from one order into the other costs, if it is 1 to turn around what a convolution reads or writes
IMAGE = (0, 2, 3, 1)  # dimensions, the longest steps in memory first
ROW, LAST = -1, -2  # an operand on which nothing is decided: in row-major order, or channels last as the view that it is


def channels_last(graph: Graph) -> Graph:
    """The graph with `last`, and with copies where that takes some."""
    if graph.device.type != "cpu" or not any(c.op.name in CONVOLUTIONS for c in graph.calls):
        return graph
    return _Deciding(graph).finish()


def groups(call: Call) -> Groups:
    """Which images a call takes in either order."""
    name, values = call.op.name, [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    found: Groups = ()
    if not any(len(v.spec.shape) == 4 for v in values):
        return found
    if is_elementwise(call, True) or name == "cat":
        found = ((tuple(range(len(call.inputs))), (0,)),) if len(call.outputs[0].spec.shape) == 4 else ()
    elif name in SUMS:
        found = (((0,), ()),) if _keeps_order(call) else ()
    elif name in COPIES or all(v.spec.dtype in (FLOAT32, INT64) or (v.spec.dtype in HALF and not call.op.exact) for v in values):
        found = tuple((ins, tuple(i for i in outs if i < len(call.outputs))) for ins, outs in TAKES.get(name, ()))
        if name == "convolution" and len(call.inputs) > 3:  # what is added to the result
            found = (found[0], ((3,), (0,)))
    return found


def _keeps_order(call: Call) -> bool:
    """Whether the results of a sum come in the same order whichever order the images are in: of channels, or of pixels."""
    shape, dims = call.inputs[0].spec.shape, call.params["dim"]
    kept = [n != 1 and d not in dims for d, n in enumerate(shape)] if dims else []
    return len(shape) == 4 and not (any(kept[1:2]) and any(kept[2:]))


def _is_image(value: Value) -> bool:
    """Whether the two orders of a value's elements differ."""
    if len(value.spec.shape) != 4:
        return False
    n, c, h, w = value.spec.shape
    return n > 0 and c > 1 and h * w > 1


def _spans(place: Place) -> bool:
    """Whether an operand, broadcast as it may be, has both channels and pixels of its own."""
    own = [n != 1 and s != 0 for n, s in zip(place.shape, place.strides)]
    own = [False] * (4 - len(own)) + own
    return len(own) > 4 or (own[1] and (own[2] or own[3]))


def _walks(place: Place, order: Sequence[int]) -> bool:
    """Whether the dimensions are in that order, the longest steps first."""
    if len(place.shape) != 4:
        return False
    steps = [place.strides[d] for d in order if place.shape[d] != 1 and place.strides[d] != 0]
    return all(a > b for a, b in zip(steps, [*steps[1:], 0]))


class _Copied(NamedTuple):
    """A value that has to be copied, if what `node` belongs to lies channels last: for an input of a call, or where it leaves."""

    node: int
    value: Value
    call: Call | None
    at: int
    last: bool  # the order of the copy


class _Deciding:
    """Sets of values that are decided on together, each led by one of them, with what they gain and cost in elements."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._leader: dict[int, int] = {}
        self._gains: Counter[int] = Counter()
        self._copied: list[_Copied] = []
        self._never: set[int] = set()
        # Whose memory a value lies in, and where, if that one is in row-major order, and if its channels come last.
        self._root: dict[int, int] = {}
        self._row: dict[int, Place] = {}
        self._last: dict[int, Place] = {}
        for call in graph.calls:
            for x in loose([call]):
                if x.id not in self._root:  # it comes from outside
                    self._fixed(x)
            if call.op.view:
                self._look(call)
                continue
            made = {i for _, outputs in groups(call) for i in outputs}
            for i, v in enumerate(call.outputs):
                self._fixed(v)
                if i in made and _is_image(v):
                    self._leader[v.id], self._last[v.id] = v.id, last_place(v.id, v.spec)
        for call in graph.calls:
            if not call.op.view:
                self._meet(call)
        for v in {v.id: v for v in ends(graph)}.values():
            if (root := self._root.get(v.id, -1)) in self._leader:
                self._copied.append(_Copied(root, v, None, 0, False))

    # ------------------------------------------------------------ what belongs together

    def _fixed(self, v: Value) -> None:
        self._root[v.id], self._row[v.id] = v.id, place_of(v.id, v.spec)

    def _look(self, call: Call) -> None:
        """A view: of the same memory, or a copy where it cannot be one."""
        x, y = call.inputs[0], call.outputs[0]
        row = viewed(self._row[x.id], call.op, call.params)
        last = viewed(self._last[x.id], call.op, call.params) if x.id in self._last else None
        if row is not None and (last is not None or x.id not in self._last):
            self._root[y.id], self._row[y.id] = self._root[x.id], row
            if last is not None:
                self._last[y.id] = last
            return
        self._fixed(y)
        if x.id in self._last and (row is not None or (last is not None and not last.contiguous)):
            self._copied.append(_Copied(self._root[x.id], x, call, 0, False))

    def _lead(self, n: int) -> int:
        while self._leader[n] != n:
            self._leader[n] = n = self._leader[self._leader[n]]
        return n

    def _meet(self, call: Call) -> None:
        """What a call that is no view asks of its operands."""
        met: set[int] = set()
        for inputs, outputs in groups(call):
            met.update(inputs)
            # A convolution takes what lies beside nothing else from any place.
            alone = call.op.name in CONVOLUTIONS and len(inputs) + len(outputs) == 1
            strict = not alone and (call.op.name in CONVOLUTIONS or call.op.name in STRICT)
            found = [(self._kind(call, i, strict), i) for i in inputs if isinstance(call.inputs[i], Value)]
            kinds = [*(kind for kind, _ in found), *(v.id for i in outputs if (v := call.outputs[i]).id in self._leader)]
            decided = [kind for kind in kinds if kind is not None and kind >= 0]
            for n in decided:
                self._leader[self._lead(n)] = self._lead(decided[0])
            if not decided:
                continue
            if call.op.name in CONVOLUTIONS or LAST in kinds:
                values = (*(call.inputs[i] for _, i in found), *(call.outputs[i] for i in outputs))
                few = LAST not in kinds and values[0].spec.shape[1] < (FEWEST or compiler.lanes())
                self._gains[decided[0]] += sum(math.prod(v.spec.shape) for v in values) * (-1 if few else 1)
            for i in (i for kind, i in found if kind == ROW):
                x = call.inputs[i]
                if call.op.name == "cat":  # it copies its parts anyway
                    self._gains[decided[0]] -= COPY // 2 * math.prod(x.spec.shape)
                elif len(x.spec.shape) == 4:
                    self._copied.append(_Copied(decided[0], x, call, i, True))
                else:
                    self._never.add(decided[0])
        for i, x in enumerate(call.inputs):
            if i not in met and isinstance(x, Value):
                kind = self._kind(call, i, False)
                if kind is not None and kind >= 0:
                    self._copied.append(_Copied(kind, x, call, i, False))

    def _kind(self, call: Call, at: int, strict: bool) -> int | None:
        """What an input is: a value to decide on, ROW, LAST, or None where the order does not matter.

        strict: whether images have to lie without gaps.
        """
        v: Value = call.inputs[at]
        root, row, last = self._root[v.id], self._row[v.id], self._last.get(v.id)
        if root in self._leader and last is not None:
            if v.id == root:
                return root
            if last.contiguous:  # such as pixels by channels for a linear layer
                if not row.contiguous:
                    self._gains[root] += math.prod(v.spec.shape)
            elif _walks(row, range(4)) and _walks(last, IMAGE):
                if strict and not last.channels_last:
                    self._copied.append(_Copied(root, v, call, at, True))
                return root
            elif _spans(row):
                self._copied.append(_Copied(root, v, call, at, False))
        elif _walks(row, IMAGE) and not row.contiguous and (row.channels_last or not strict):
            return LAST
        return ROW if _spans(row) else None

    # ------------------------------------------------------------ what comes of it

    def _good(self) -> set[int]:
        """The leaders of sets that lie channels last."""
        gains: Counter[int] = Counter()
        for n, gain in self._gains.items():
            gains[self._lead(n)] += gain
        for leader, value in {(self._lead(c.node), c.last, c.value.id): (self._lead(c.node), c.value) for c in self._copied}.values():
            gains[leader] -= COPY * math.prod(value.spec.shape)
        return {n for n, gain in gains.items() if gain > 0} - {self._lead(n) for n in self._never}

    def finish(self) -> Graph:
        """The graph with the values marked, and copied where they have to be in the other order."""
        graph, good = self.graph, self._good()
        if not good:
            return graph
        last = {n for n in self._leader if self._lead(n) in good}
        number = max(v.id for v in (*graph.inputs, *graph.state, *(v for _, v, _ in graph.random), *ends(graph)))
        number = max(number, *self._root)
        wanted: dict[tuple[int, int], bool] = {}  # of an input of a call, in which order it is wanted
        leaving: dict[int, Value] = {}
        copies: dict[tuple[int, bool], Value] = {}
        for c in self._copied:
            if self._lead(c.node) not in good:
                continue
            if c.call is not None:
                wanted[id(c.call), c.at] = c.last or wanted.get((id(c.call), c.at), False)
            elif c.value.id in last:  # views are copied anyway where they leave
                number += 1
                leaving[c.value.id] = copies[c.value.id, False] = Value(number, c.value.spec)
        calls: list[Call] = []
        for call in graph.calls:
            inputs = list(call.inputs)
            for i, x in enumerate(inputs):
                order = wanted.get((id(call), i))
                if order is None:
                    continue
                if (x.id, order) not in copies:
                    number += 1
                    copies[x.id, order] = new = Value(number, x.spec)
                    calls.append(Call(ops.elementwise.clone, (x,), {}, (new,), call.position))
                    last.update([new.id] * order)
                inputs[i] = copies[x.id, order]
            calls.append(replace(call, inputs=tuple(inputs)) if any(a is not b for a, b in zip(inputs, call.inputs)) else call)
            calls += [Call(ops.elementwise.clone, (v,), {}, (leaving[v.id],), call.position) for v in call.outputs if v.id in leaving]

        def out(v: Value) -> Value:
            return leaving.get(v.id, v)

        return replace(
            graph, calls=calls, last=frozenset(last), outputs=list(map(out, graph.outputs)),
            updates=[(old, out(new)) for old, new in graph.updates],
            gradients=[(leaf, None if v is None else out(v)) for leaf, v in graph.gradients],
        )  # fmt: skip
