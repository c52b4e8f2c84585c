"""Control flow as C: the bodies of `cond`, `switch`, `while_loop` and `scan` are functions, called from an if or a loop.

A body's function gets arrays of pointers to its inputs and outputs, which lie without gaps, and memory for its own values and work space,
which is part of the work space of the call. It is generated like the program around it, with the same functions and constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step
from gradlab.deploy.freezing import Frozen, freeze
from gradlab.deploy.types import Unsupported, ctype
from gradlab.graph.control.body_call import KINDS, Part
from gradlab.graph.ir.graph import Call
from gradlab.spec import Spec, count

SIGNATURE = "static int {name}(const gl_team team, const char *const W, char *const A, char *const S, const char *const *X, char *const *Y)"
Write = Callable[[Frozen, Emitter], int]  # writes a body's lines; bytes of its values


def is_flow(call: Call) -> bool:
    """Whether a call has bodies."""
    return call.op.name in KINDS and "flow" in call.params


def bodies(call: Call) -> Iterator[Frozen]:
    """The bodies of a call, ready to be written. Raises Unsupported for what a forward alone does not do."""
    for part in call.params["flow"].bodies:
        if part.source.random or part.source.updates:
            raise Unsupported("its body draws random numbers or changes tensors: pass them in and out")
        yield freeze(part.source)


@dataclass
class Body:
    """A function that was written: its name, and the bytes of its values and of its work space."""

    name: str
    values: int
    space: int
    inputs: list[Spec]
    outputs: list[Spec]


def written_body(part: Part, out: Emitter, write: Write) -> Body:
    """The function of a body."""
    inner = out.inside()
    size = write(freeze(part.source), inner)
    name = f"body{len(out.bodies)}"
    out.bodies.append((SIGNATURE.format(name=name), inner.lines))
    out.own(inner.own_size)
    graph = part.source
    return Body(name, -(-size // 64) * 64, inner.scratch_size, [v.spec for v in graph.inputs], [v.spec for v in graph.outputs])


def emit_flow(step: Step, out: Emitter, write: Write) -> None:
    """The lines of a call with bodies."""
    flow = step.params["flow"]
    found = [written_body(part, out, write) for part in flow.bodies]
    given = [out.dense(place) for place in step.inputs]
    room = out.scratch((max(body.values + body.space for body in found) + 64,), np.uint8)
    {"switch": _switch, "scan": _scan, "while_loop": _while}[flow.kind](flow, found, given, step, out, out.pointer(room))


def _run(body: Body, room: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The text that runs a body on these pointers."""
    x, y = (", ".join(pointers) or "NULL" for pointers in (inputs, outputs))
    return (
        f"{{ const char *const x_[] = {{{x}}}; char *const y_[] = {{{y}}}; "
        f"if ((error = {body.name}(team, W, {room}, {room} + {body.values}, x_, y_)) != 0) return error; }}"
    )


def _result(step: Step, out: Emitter, i: int, spec: Spec) -> str:
    """Where a result goes: work space where nobody reads it."""
    place = step.output(i)
    if place is not None and not place.contiguous:
        raise Unsupported("a result with gaps")
    return out.pointer(place if place is not None else out.scratch(spec.shape, spec.dtype))


def _switch(flow: Any, found: list[Body], given: list[Place], step: Step, out: Emitter, room: str) -> None:
    specs: dict[int, Spec] = {i: spec for writes, body in zip(flow.writes, found) for i, spec in zip(writes, body.outputs)}
    results = {i: _result(step, out, i, spec) for i, spec in sorted(specs.items())}
    at = f"(int64_t)*(const {ctype(given[0].dtype).storage} *)(const void *)({out.pointer(given[0])})"
    lines = [f"switch ({at} <= 0 ? 0 : {at} >= {len(found) - 1} ? {len(found) - 1} : (int)({at})) {{"]
    for number, (body, reads, writes) in enumerate(zip(found, flow.reads, flow.writes)):
        label = "default" if number == len(found) - 1 else f"case {number}"
        run = _run(body, room, [out.pointer(given[i]) for i in reads], [results[i] for i in writes])
        lines.append(f"  {label}: {run} break;")
    out.block([*lines, "}"])


def _pairs(specs: Sequence[Spec], out: Emitter) -> list[tuple[str, str]]:
    """For each carry two buffers that change places."""
    return [(out.pointer(out.scratch(s.shape, s.dtype)), out.pointer(out.scratch(s.shape, s.dtype))) for s in specs]


def _size(spec: Spec) -> int:
    return count(spec.shape) * spec.dtype.itemsize


def _scan(flow: Any, found: list[Body], given: list[Place], step: Step, out: Emitter, room: str) -> None:
    (body,), many, length = found, flow.carries, flow.length
    carries, made = body.outputs[:many], body.outputs[many:]
    last = [_result(step, out, i, spec) for i, spec in enumerate(carries)]
    results = [_result(step, out, many + i, Spec((length, *spec.shape), spec.dtype)) for i, spec in enumerate(made)]
    starts = [out.pointer(place) for place in given]
    if length == 0:
        out.block([f"memcpy({y}, {x}, {_size(spec)});" for y, x, spec in zip(last, starts, carries)])
        return
    pairs = _pairs(carries, out) if length > 1 else [(y, y) for y in last]
    state = [f"turn == 0 ? {x} : turn % 2 != 0 ? {even} : {odd}" for x, (even, odd) in zip(starts, pairs)]
    ends = [f"turn == {length - 1} ? {y} : turn % 2 == 0 ? {even} : {odd}" for y, (even, odd) in zip(last, pairs)]
    steps = [f"{x} + at * {_size(spec)}" for x, spec in zip(starts[many : many + flow.stacked], body.inputs[many:])]
    stacked = [f"{y} + at * {_size(spec)}" for y, spec in zip(results, made)]
    run = _run(body, room, [*state, *steps, *starts[many + flow.stacked :]], [*ends, *stacked])
    at = f"{length - 1} - turn" if flow.reverse else "turn"
    out.block([f"for (int64_t turn = 0; turn < {length}; ++turn) {{", f"  const int64_t at = {at};", "  (void)at;", f"  {run}", "}"])


def _while(flow: Any, found: list[Body], given: list[Place], step: Step, out: Emitter, room: str) -> None:
    (condition, body), many = found, flow.carries
    fixed = [out.pointer(place) for place in given[many:]]
    asked, used = fixed[: flow.constants], fixed[flow.constants :]
    pairs = _pairs(body.outputs, out)
    flag = out.pointer(out.scratch((), np.bool_))
    state = [f"turn == 0 ? {out.pointer(x)} : turn % 2 != 0 ? {even} : {odd}" for x, (even, odd) in zip(given, pairs)]
    target = [f"turn % 2 == 0 ? {even} : {odd}" for even, odd in pairs]
    out.block([
        "for (int64_t turn = 0;; ++turn) {",
        f"  {_run(condition, room, [*state, *asked], [flag])}",
        f"  if (*(const unsigned char *)({flag}) == 0) {{",
        *(f"    memcpy({_result(step, out, i, s)}, {x}, {_size(s)});" for i, (x, s) in enumerate(zip(state, body.outputs)) if _size(s)),
        "    break;", "  }",
        f"  {_run(body, room, [*state, *used], target)}", "}",
    ])  # fmt: skip
