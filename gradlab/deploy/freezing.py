"""From a graph to the line that the runner computes: state is constant now, so what depends on nothing else is computed here; scales
and shifts behind a product go into its weights, a residual and an activation into its last step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.device import CPU
from gradlab.dtype import immediate
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes import PASSES
from gradlab.graph.passes.replacing import is_ours
from gradlab.spec import count

SMALL_FILL = 1 << 16  # bytes of a tensor of one value that is kept rather than filled in each run
GROWTH = 1 << 20  # bytes by which a constant may be larger than what it is made of
USED_PASSES = ("drop_clones", "fold_constants", "rewrite", "common_subexpressions")
ACTIVATIONS = frozenset(["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
FLOAT32 = np.dtype(np.float32)


@dataclass
class Frozen:
    """What is left to run.

    known      arrays of constants, also of views of them, by value number
    fixed      constants that calls read: value -> array
    endings    of a product, by the number of its result: the activation, and whether its last input is added before that
    """

    graph: Graph
    calls: list[Call]
    known: dict[int, Any]
    fixed: dict[Value, Any] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    endings: dict[int, tuple[str, bool]] = field(default_factory=dict)


def freeze(graph: Graph) -> Frozen:
    """The line of a graph. `graph` stays as it is."""
    for name in USED_PASSES:
        graph = PASSES[name](graph)
    graph = graph.without_dead_calls()
    known: dict[int, Any] = {v.id: np.asarray(a) for v, a in graph.state.items()}
    values: dict[int, Value] = {v.id: v for v in graph.state}
    given = {v.id for v in graph.inputs}
    calls: list[Call] = []
    for call in graph.calls:
        values.update((v.id, v) for v in call.outputs)
        if _foldable(call, known):
            result = _computed(call, known)
            if result is not None:
                known.update(zip((v.id for v in call.outputs), result))
                if not call.op.view or result[0].nbytes <= known[call.inputs[0].id].nbytes + GROWTH:
                    continue
        calls.append(call)
    frozen = Frozen(graph, calls, known, outputs=list(graph.outputs))
    _fold_ends(frozen)
    _drop(frozen)
    made = {v.id for c in frozen.calls for v in c.outputs} | given
    needed = [x for c in frozen.calls for x in c.inputs if isinstance(x, Value)] + frozen.outputs
    for v in needed:
        if v.id not in made and v.id in known and v not in frozen.fixed:
            frozen.fixed[values.get(v.id, v)] = np.ascontiguousarray(known[v.id])
    return frozen


def _foldable(call: Call, known: dict[int, Any]) -> bool:
    if call.op.dynamic or not is_ours(call.op) or call.op.name.startswith(("random_", "empty")):
        return False
    inputs = [x for x in call.inputs if isinstance(x, Value)]
    if any(x.id not in known for x in inputs):
        return False
    size = sum(count(v.spec.shape) * v.spec.dtype.itemsize for v in call.outputs)
    if not inputs:
        return "device" in call.params and (call.op is not ops.creation.full or size <= SMALL_FILL)
    return call.op.view or size <= sum(known[x.id].nbytes for x in inputs) + GROWTH


def _computed(call: Call, known: dict[int, Any]) -> tuple[Any, ...] | None:
    arrays = [known[x.id] if isinstance(x, Value) else x for x in call.inputs]
    backend = dispatch.backend_for(CPU)
    params = {k: CPU if k == "device" else v for k, v in call.params.items()}
    if call.op.view:
        return (call.op.cpu(arrays[0], **params),)
    result = backend.run(call.op, arrays, params)
    return (result,) if call.op.result is None else tuple(result)


def _drop(frozen: Frozen) -> None:
    """Leave out calls that nothing needs, and results at the end of a call's list that nobody reads."""
    wanted = {v.id for v in frozen.outputs}
    kept: list[Call] = []
    for call in reversed(frozen.calls):
        if not any(v.id in wanted for v in call.outputs):
            continue
        outputs = list(call.outputs)
        while len(outputs) > 1 and outputs[-1].id not in wanted:
            outputs.pop()
        kept.append(Call(call.op, call.inputs, call.params, tuple(outputs), call.position))
        wanted.update(x.id for x in call.inputs if isinstance(x, Value))
    frozen.calls = kept[::-1]


def _fold_ends(frozen: Frozen) -> None:
    """Products and what follows them, from front to back."""
    uses: Counter[int] = Counter(x.id for c in frozen.calls for x in c.inputs if isinstance(x, Value))
    uses.update(v.id for v in frozen.outputs)
    readers: dict[int, Call] = {x.id: c for c in frozen.calls for x in c.inputs if isinstance(x, Value)}
    place = {id(c): i for i, c in enumerate(frozen.calls)}
    maker = {v.id: i for i, c in enumerate(frozen.calls) for v in c.outputs}
    gone: set[int] = set()
    new: dict[int, Call] = {}
    next_id = 1 + max([0, *frozen.known, *maker, *(v.id for v in frozen.graph.inputs)])
    for call in list(frozen.calls):
        if call.op not in (ops.conv.convolution, ops.linear.linear) or call.outputs[0].spec.dtype != FLOAT32:
            continue
        if call.op is ops.conv.convolution and len(call.params["stride"]) > 2:
            continue
        result = call.outputs[0]
        taken: list[Call] = []

        def follower() -> Call | None:
            return readers.get(result.id) if uses[result.id] == 1 else None  # noqa: B023 - used in this turn alone

        w, b = call.inputs[1:3]
        scale_shift = _Affine(call, frozen.known) if w.id in frozen.known and (b is None or b.id in frozen.known) else None
        while scale_shift is not None and (reader := follower()) is not None and scale_shift.takes(reader, result):
            taken.append(reader)
            result = reader.outputs[0]
        inputs: tuple[Any, ...] = call.inputs
        if scale_shift is not None and scale_shift.changed:
            arrays = scale_shift.arrays()
            fresh = [Value(next_id + i, type(w.spec)(a.shape, a.dtype)) for i, a in enumerate(arrays)]
            next_id += len(arrays)
            frozen.known.update((v.id, a) for v, a in zip(fresh, arrays))
            inputs = (call.inputs[0], *fresh)
        added = ""
        reader = follower()
        if reader is not None and reader.op is ops.elementwise.add and reader.outputs[0].spec == result.spec:
            other = next((x for x in reader.inputs if isinstance(x, Value) and x.id != result.id), None)
            early = other is not None and other.id not in frozen.known and maker.get(other.id, -1) < place[id(call)]
            if other is not None and early and other.spec == result.spec and _dense(other, frozen, maker):
                inputs = (*inputs, other)
                added = "+"
                taken.append(reader)
                result = reader.outputs[0]
        reader = follower()
        activation = ""
        if reader is not None and reader.op.name in ACTIVATIONS and is_ours(reader.op) and reader.outputs[0].spec == result.spec:
            activation = reader.op.name
            taken.append(reader)
            result = reader.outputs[0]
        if not taken:
            continue
        gone.update(id(c) for c in taken)
        new[id(call)] = Call(call.op, inputs, call.params, (result,), call.position)
        frozen.endings[result.id] = (activation, bool(added))
    frozen.calls = [new.get(id(c), c) for c in frozen.calls if id(c) not in gone]


def _dense(value: Value, frozen: Frozen, maker: dict[int, int]) -> bool:
    """Whether a value lies in memory without gaps: an input, or the result of a call that is no view."""
    at = maker.get(value.id)
    if at is None:
        return True
    call = frozen.calls[at]
    return not call.op.view or (call.op.name == "view" and isinstance(call.inputs[0], Value) and _dense(call.inputs[0], frozen, maker))


class _Affine:
    """y = scale · product + shift, for each output channel, gathered from the calls that follow."""

    def __init__(self, call: Call, known: dict[int, Any]) -> None:
        self._known = known
        self._weight = known[call.inputs[1].id]
        bias = call.inputs[2]
        rank = len(call.outputs[0].spec.shape)
        self._axis = 1 if call.op is ops.conv.convolution else rank - 1
        self._size = self._weight.shape[0]
        self._scale = np.ones(self._size)
        self._shift = np.zeros(self._size) if bias is None else np.broadcast_to(known[bias.id], (self._size,)).astype(np.float64)
        self.changed = False

    def takes(self, call: Call, product: Value) -> bool:
        """Whether a call is of that kind; it is then part of the scale and shift."""
        name = call.op.name
        if name not in ("add", "sub", "mul", "div") or not is_ours(call.op) or call.outputs[0].spec != product.spec:
            return False
        first = isinstance(call.inputs[0], Value) and call.inputs[0].id == product.id
        other = self._channel(call.inputs[1] if first else call.inputs[0], len(product.spec.shape))
        if other is None or (name == "div" and not first):
            return False
        if name == "add":
            self._shift = self._shift + other
        elif name == "sub":
            self._scale, self._shift = (self._scale, self._shift - other) if first else (-self._scale, other - self._shift)
        else:
            factor = other if name == "mul" else 1 / other
            self._scale, self._shift = self._scale * factor, self._shift * factor
        self.changed = True
        return True

    def _channel(self, x: Any, rank: int) -> Any:
        if isinstance(x, (int, float, complex)):
            return np.full(self._size, float(immediate(x, FLOAT32)))
        if not isinstance(x, Value) or x.id not in self._known or x.spec.dtype != FLOAT32:
            return None
        array = self._known[x.id]
        shape = (1,) * (rank - array.ndim) + array.shape
        if any(n != 1 and (d != self._axis or n != self._size) for d, n in enumerate(shape)):
            return None
        return np.broadcast_to(array.reshape(-1), (self._size,)).astype(np.float64)

    def arrays(self) -> tuple[Any, Any]:
        """The weight and the bias with all that in them."""
        scale = self._scale.reshape(-1, *(1,) * (self._weight.ndim - 1))
        return (self._weight * scale).astype(np.float32), self._shift.astype(np.float32)
