"""Recurrent layers as one node: while a module is exported they are traced as one call instead of their steps.

The rows stand in exported graphs alone. A layer's inputs are x (T, B, features), its tensors as ONNX packs them or as this library's layers
hold them, the lengths of sequences and the initial states; its results y (T, directions, B, size) and the last states of each direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradlab.autograd.record import bind
from gradlab.nn.modules.steps import keep
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.importing import Node
from gradlab.onnx.operators.recurrent import GATES, reordered
from gradlab.onnx.registry import exports
from gradlab.op import Op
from gradlab.spec import Spec

ATTRIBUTES = ("activations", "activation_alpha", "activation_beta", "clip", "direction", "input_forget", "linear_before_reset")
INT32 = np.dtype(np.int32)


def _rule(*xs: Spec, kind: str, size: int, directions: int, present: Any, packed: Any, attributes: Any) -> tuple[Spec, ...]:
    """Rule: y and the last states."""
    time, batch = xs[0].shape[:2]
    end = Spec((directions, batch, size), xs[0].dtype)
    return (Spec((time, directions, batch, size), xs[0].dtype), *[end] * (2 if kind == "LSTM" else 1))


def _cpu(*_: Any, **__: Any) -> None:
    raise NotImplementedError("this row stands in exported graphs alone")


PARAMETERS = ("kind", "size", "directions", "present", "packed", "attributes")
ROWS = {
    kind: Op(f"{kind.lower()}_layer", _rule, params=PARAMETERS, cpu=_cpu, outputs=("y", "h", "c")[: 3 if kind == "LSTM" else 2])
    for kind in GATES
}  # fmt: skip


@contextmanager
def kept() -> Iterator[None]:
    """Within it, traced recurrent layers are one call each."""
    token = keep.set(_write)
    try:
        yield
    finally:
        keep.reset(token)


def _write(layer: Any, x: Any, weights: Any, *rest: Any) -> Any:
    """One call: for a node of a loaded file (then lengths and states follow), or for a layer of this library (states, nonlinearity)."""
    if isinstance(layer, Node):
        lengths, states = rest
        w, r, b, *peepholes = weights
        given = [w, r, b, lengths, *states, *peepholes]
        present: tuple[Any, ...] = tuple(t is not None and (not isinstance(t, np.ndarray) or t.size > 0) for t in given)
        attributes = {k: v for k, v in layer.attributes.items() if k in ATTRIBUTES}
        kind, packed, size, directions = layer.kind, "ours" if "gates" in layer.attributes else "onnx", r.shape[-1], w.shape[0]
        tensors = [t for t, there in zip(given, present, strict=True) if there]
    else:
        states, nonlinearity = rest
        kind, packed, size, directions = layer, "", weights[0][1].shape[-1], len(weights)
        attributes = {"direction": "bidirectional" if directions == 2 else "forward"}
        if kind == "GRU":
            attributes["linear_before_reset"] = 1
        if nonlinearity != "tanh":
            attributes["activations"] = [nonlinearity.capitalize()] * directions
        tensors = [t for direction in weights for t in direction] + list(states)
        present = (len(weights[0]),)
    parameters = {"kind": kind, "size": size, "directions": directions, "present": present, "packed": packed, "attributes": attributes}
    return tuple(bind(ROWS[kind])(x, *tensors, **parameters))


@exports("rnn_layer", "gru_layer", "lstm_layer")
def layer(e: Emitter, x: Wire, *rest: Wire, kind: str, size: int, directions: int, present: Any, packed: str, attributes: Any) -> Any:
    """RNN, GRU or LSTM."""
    if packed:
        queue = list(rest)
        given = [queue.pop(0) if there else None for there in present]
        if packed == "ours":
            given[:3] = [None if g is None else _back(e, kind, g) for g in given[:3]]
        if given[3] is not None:
            given[3] = e.cast(given[3], INT32)
    else:
        each = present[0]
        parts = [rest[d * each : (d + 1) * each] for d in range(directions)]
        given = [_joined(e, kind, [p[0] for p in parts]), _joined(e, kind, [p[1] for p in parts]),
                 _biases(e, kind, parts) if each == 4 else None, None, *rest[each * directions :]]  # fmt: skip
    count = 3 if kind == "LSTM" else 2
    found = e(kind, x, *given, outputs=count, hidden_size=size, **attributes)
    return tuple(found)


def _array(e: Emitter, wire: Wire) -> Any:
    """What a constant holds; None for what is computed."""
    return e.root.constants.get(wire.name)


def _back(e: Emitter, kind: str, wire: Wire) -> Wire:
    """A packed tensor with ONNX's order of gates again, under its name."""
    array = _array(e, wire)
    if array is not None:
        if wire.name not in e.root.turned:
            e.root.turned.add(wire.name)
            e.root.constants[wire.name] = reordered(kind, array, True)
        return wire
    return _permuted(e, kind, wire, 1, (wire.shape or ())[1:2])


def _permuted(e: Emitter, kind: str, wire: Wire, axis: int, rows: Sequence[int]) -> Wire:
    """The gates of a computed tensor in ONNX's order: by nodes."""
    order = GATES[kind]
    order = tuple(order.index(i) for i in range(len(order)))
    if order == (0,):
        return wire
    pieces = e("Split", wire, outputs=len(order), axis=axis, num_outputs=len(order))
    found: Wire = e("Concat", *[pieces[i] for i in order], axis=axis)
    return found


def _joined(e: Emitter, kind: str, weights: Sequence[Wire]) -> Wire:
    """The weights (gates size, …) of each direction as one tensor with ONNX's order of gates."""
    arrays = [_array(e, w) for w in weights]
    if all(a is not None for a in arrays):
        return _instead(e, weights[0], reordered(kind, np.stack(arrays), True))
    turned = [e.unsqueeze(_permuted(e, kind, w, 0, ()), 0) for w in weights]
    found: Wire = turned[0] if len(turned) == 1 else e("Concat", *turned, axis=0)
    return found


def _instead(e: Emitter, wire: Wire, array: Any) -> Wire:
    """A constant that gets the name of another, if nothing else reads that one."""
    found = e.constant(array, name=wire.name)
    e.root.wishes[found.name] = wire.name
    return found


def _biases(e: Emitter, kind: str, parts: Sequence[Sequence[Wire]]) -> Wire:
    """Both biases of each direction, one behind the other."""
    arrays = [[_array(e, b) for b in part[2:]] for part in parts]
    if all(a is not None for pair in arrays for a in pair):
        return _instead(e, parts[0][2], reordered(kind, np.stack([np.concatenate(pair) for pair in arrays]), True))
    rows = [e.unsqueeze(e("Concat", *[_permuted(e, kind, b, 0, ()) for b in part[2:]], axis=0), 0) for part in parts]
    found: Wire = rows[0] if len(rows) == 1 else e("Concat", *rows, axis=0)
    return found
