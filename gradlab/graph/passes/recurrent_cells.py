"""Steps of recurrent units as programs have them: the calls of one step forward, of one step back, and what is between two of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gradlab import ops
from gradlab.dtype import FLOAT32, FLOAT64, HALF
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.passes.reading import Reading
from gradlab.op import Op
from gradlab.ops.recurrent import gru_cell, gru_cell_backward, lstm_cell, lstm_cell_backward

_rows = ops.elementwise
_add, _cast, _matmul = _rows.add, _rows.cast, ops.linalg.matmul
FORWARD: dict[Op, str] = {lstm_cell: "lstm", gru_cell: "gru", _rows.tanh: "tanh", _rows.relu: "relu"}
BACK: dict[Op, str] = {lstm_cell_backward: "lstm", gru_cell_backward: "gru", _rows.tanh_backward: "tanh", _rows.relu_backward: "relu"}


class Cell(NamedTuple):
    """One step forward. call: what makes the state of it; x: the input's share of the gates; bias: what is added to the product of the
    state; sums: GRU's sums of the state, which backward reads; between: the calls between the product and the state."""

    unit: str
    call: Call
    x: Any
    product: Call
    bias: Value | None
    sums: Value | None
    between: list[Call]


class Back(NamedTuple):
    """One step back. into: the gradient that the product with the weight takes; carried: GRU's gradient of the state past its gates."""

    unit: str
    call: Call
    into: Value
    carried: Value | None


class Link(NamedTuple):
    """What is between two steps on the way back: the product, other calls, what else arrives at the hidden state, and the type that states
    are rounded to, if there is one."""

    product: Call
    others: list[Call]
    slope: Any
    half: Any


def _plain(state: Value) -> bool:
    """Whether a state is a matrix whose sizes are known, of a type in which steps are computed."""
    spec = state.spec
    return len(spec.shape) == 2 and all(type(n) is int for n in spec.shape) and spec.dtype in (FLOAT32, FLOAT64)


def cell_of(line: Reading, call: Call) -> Cell | None:
    """The step whose state a call makes."""
    unit = FORWARD.get(call.op)
    if unit is None or not _plain(call.outputs[0]):
        return None
    if unit == "lstm":
        product = line.made_by(call.inputs[1], _matmul)
        return Cell(unit, call, call.inputs[0], product, None, None, []) if product is not None and line.alone(call.inputs[1]) else None
    sums = call.inputs[int(unit == "gru")]
    if unit == "gru" and (product := line.made_by(sums, _matmul)) is not None:
        same = line.same(call.inputs[2], product.inputs[0])
        return Cell(unit, call, call.inputs[0], product, None, sums, []) if same else None
    add = line.made_by(sums, _add)
    for value, other in (add.inputs, add.inputs[::-1]) if add is not None else ():
        product = line.made_by(value, _matmul)
        if product is None or not line.alone(value) or not isinstance(other, Value) or other.spec.dtype != value.spec.dtype:
            continue
        if unit != "gru":
            same = line.alone(sums) and other.spec.shape == value.spec.shape
            return Cell(unit, call, other, product, None, None, [add]) if same and add is not None else None
        if other.spec.shape == value.spec.shape[1:] and line.same(call.inputs[2], product.inputs[0]) and add is not None:
            return Cell(unit, call, call.inputs[0], product, other, sums, [add])
    return None


def back_of(call: Call) -> Back | None:
    """The step back that a call is."""
    unit = BACK.get(call.op)
    if unit is None or not isinstance(call.inputs[0], Value) or not _plain(call.inputs[0]):
        return None
    return Back(unit, call, call.outputs[int(unit == "gru")], call.outputs[2] if unit == "gru" else None)


def link_of(line: Reading, back: Back, backs: dict[int, Back]) -> tuple[Link, Back] | None:
    """What is between a step and the one before it on the way back (`backs`: all, by their calls), and that one."""
    dh = back.call.inputs[0]
    if not line.alone(dh):
        return None
    wide = line.made_by(dh, _cast)
    half = wide.inputs[0].spec.dtype if wide is not None and wide.inputs[0].spec.dtype in HALF else None
    if half is None or wide is None:
        total, others, slopes = dh, list[Call](), []
    else:  # the sum of the step's own is rounded before what else arrives is added
        found = _spread(line, wide.inputs[0], lambda v: line.made_by(v, _cast) is not None and _is_sum(line, v, backs))
        rounding = None if found is None or len(found[0]) != 1 else line.maker(found[0][0])
        if found is None or rounding is None:
            return None
        total, others, slopes = rounding.inputs[0], [wide, *found[2], rounding], found[1]
    parts = _spread(line, total, lambda v: _product(line, v, backs) is not None or any(v == b.carried for b in backs.values()))
    if parts is None:
        return None
    products = [(v, p) for v in parts[0] if (p := _product(line, v, backs)) is not None]
    slopes = [*slopes, *parts[1]]
    if len(products) != 1 or len(slopes) > 1 or (half is not None and parts[1]):
        return None
    value, product = products[0]
    last = backs[id(line.maker(product.inputs[0]))]
    carried = [v for v in parts[0] if v != value]
    if last.unit != back.unit or carried != [v for v in (last.carried,) if v is not None] or not all(map(line.alone, parts[0])):
        return None
    slope, dtype = slopes[0] if slopes else 0.0, dh.spec.dtype if half is None else half
    if isinstance(slope, Value) and (slope.spec.shape != dh.spec.shape or slope.spec.dtype != dtype):
        return None
    return Link(product, [*others, *parts[2]], slope, half), last


def _product(line: Reading, value: Any, backs: dict[int, Back]) -> Call | None:
    """The product with a weight that a value is, of the gradients of a step back."""
    product = line.made_by(value, _matmul)
    last = None if product is None else backs.get(id(line.maker(product.inputs[0])))
    return product if product is not None and last is not None and last.into == product.inputs[0] else None


def _is_sum(line: Reading, value: Value, backs: dict[int, Back]) -> bool:
    call = line.maker(value)
    found = call is not None and _spread(line, call.inputs[0], lambda v: _product(line, v, backs) is not None)
    return bool(found) and line.alone(value)


def _spread(line: Reading, value: Any, leaf: Callable[[Value], bool]) -> tuple[list[Value], list[Any], list[Call]] | None:
    """A sum's leaves, its other terms, and the calls that add them up, which nobody else reads; None if it has no leaves."""
    if not isinstance(value, Value):
        return None
    if leaf(value):
        return [value], [], []
    add = line.made_by(value, _add)
    if add is None or not line.alone(value):
        return None
    leaves, others, calls = list[Value](), list[Any](), [add]
    for x in add.inputs:
        found = _spread(line, x, leaf)
        if found is None:
            others.append(x)
        else:
            leaves += found[0]
            others += found[1]
            calls += found[2]
    return (leaves, others, calls) if leaves else None
