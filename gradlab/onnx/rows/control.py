"""Control flow: `switch` as If, `while_loop` as Loop, `scan` as Scan. Their bodies see the values around them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.dtype import BOOL, INT64
from gradlab.onnx.emitter import Emitter, Subgraph, Wire
from gradlab.onnx.registry import exports
from gradlab.spec import Spec


def part(e: Emitter, body: Any, inputs: Sequence[Wire]) -> list[Wire]:
    """The nodes of a part's calls."""
    return e.root.lower(e, body, inputs)


def renewed(e: Emitter, wires: Sequence[Wire], specs: Sequence[Spec]) -> list[Wire]:
    """Inputs of a graph inside that stand for values of these Specs."""
    return [e.entry(s.dtype, s.shape) for s in specs]


def several(found: Any) -> tuple[Wire, ...]:
    """Always a tuple."""
    return found if isinstance(found, tuple) else (found,)


def typed(found: Any, outputs: Sequence[Spec]) -> tuple[Wire, ...]:
    """Results with the dtypes and shapes that are known of them."""
    wires = several(found)
    for wire, spec in zip(wires, outputs, strict=True):
        wire.dtype, wire.shape = spec.dtype, spec.shape
    return wires


@exports("switch", wide=False)
def switch(e: Emitter, index: Wire, *inputs: Wire, flow: Any) -> Any:
    """One branch of several: an If, or a chain of them; an index outside the range chooses the nearest."""
    outputs = e.outputs
    flat = e.reshape(index, ())

    def branch(at: Emitter, number: int) -> Subgraph:
        reads, writes = flow.reads[number], flow.writes[number]
        found = part(at, flow.parts[number], [inputs[i - 1] for i in reads])
        written = dict(zip(writes, found, strict=True))
        ends = [written[i] if i in written else at.expand(at.number(0, s.dtype), s.shape) for i, s in enumerate(outputs)]
        return at.graph([], ends)

    def choose(at: Emitter, first: int) -> Any:
        last = len(flow.parts) - 1
        truth = index.dtype == BOOL
        condition = at("Not", flat) if truth else at("LessOrEqual", at.cast(flat, INT64), first)
        with at.inside() as this:
            then = branch(this, first)
        with at.inside() as other:
            rest = branch(other, last) if first + 1 == last else other.graph([], list(several(choose(other, first + 1))))
        found = at("If", condition, outputs=len(outputs), dtype=outputs[0].dtype, then_branch=then, else_branch=rest)
        return typed(found, outputs)

    return typed(part(e, flow.parts[0], [inputs[i - 1] for i in flow.reads[0]]), outputs) if len(flow.parts) == 1 else choose(e, 0)


@exports("while_loop", wide=False)
def while_loop(e: Emitter, *inputs: Wire, flow: Any) -> Any:
    """A Loop without a limit; its condition is asked before it and at the end of its body."""
    many, outputs = flow.carries, e.outputs
    state, fixed = list(inputs[:many]), inputs[many:]
    asked, used = fixed[: flow.constants], fixed[flow.constants :]

    def condition(at: Emitter, carry: Sequence[Wire]) -> Wire:
        return at.reshape(part(at, flow.condition, [*carry, *asked])[0], ())

    with e.inside() as inner:
        turn, going = inner.entry(INT64, ()), inner.entry(BOOL, ())
        carry = renewed(inner, state, outputs)
        after = part(inner, flow.body, [*carry, *used])
        body = inner.graph([turn, going, *carry], [condition(inner, after), *after])
    start = condition(e, state)
    return typed(e("Loop", None, start, *state, outputs=many, dtype=outputs[0].dtype, body=body), outputs)


@exports("scan", wide=False)
def scan(e: Emitter, *inputs: Wire, flow: Any) -> Any:
    """A Scan over the first dimension."""
    many, stacked, outputs = flow.carries, flow.stacked, e.outputs
    state, steps, fixed = inputs[:many], inputs[many : many + stacked], inputs[many + stacked :]
    if not stacked:
        return counted(e, inputs, flow)
    with e.inside() as inner:
        carry = renewed(inner, state, outputs[:many])
        step = [inner.entry(x.dtype, (x.shape or ())[1:]) for x in steps]
        body = inner.graph([*carry, *step], part(inner, flow.body, [*carry, *step, *fixed]))
    ways = int(flow.reverse)
    found = e("Scan", *state, *steps, outputs=len(outputs), dtype=outputs[0].dtype, num_scan_inputs=stacked,
              scan_input_directions=[ways] * stacked, scan_output_directions=[ways] * (len(outputs) - many) or None, body=body)  # fmt: skip
    return typed(found, outputs)


def counted(e: Emitter, inputs: Sequence[Wire], flow: Any) -> Any:
    """A scan over nothing but a number of steps: a Loop that counts."""
    many, outputs = flow.carries, e.outputs
    state, fixed = inputs[:many], inputs[many:]
    with e.inside() as inner:
        turn, going = inner.entry(INT64, ()), inner.entry(BOOL, ())
        carry = renewed(inner, state, outputs[:many])
        found = part(inner, flow.body, [*carry, *fixed])
        body = inner.graph([turn, going, *carry], [inner("Identity", going), *found])
    ends = e("Loop", e.number(flow.length, INT64), e.constant(True), *state, outputs=len(outputs), dtype=outputs[0].dtype, body=body)
    wires = typed(ends, outputs)
    if not flow.reverse:
        return wires
    turned = []
    for wire in wires[many:]:
        one = e.constant([-1], INT64)
        turned.append(e("Slice", wire, one, e.constant([-(1 << 31)], INT64), e.constant([0], INT64), one))
    return typed((*wires[:many], *turned), outputs)
