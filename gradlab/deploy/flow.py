"""Control flow as C: the bodies of `cond`, `switch`, `while_loop` and `scan` are functions, called from an if or a loop.

A body's function gets arrays of pointers to its inputs and outputs, which lie without gaps, and memory for its own values and work space,
which is part of the work space of the call. It is generated like the program around it, with the same functions and constants; what is a
constant there and is only read in a body is one in it, so that products find their weights packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradlab.deploy.emitter import Emitter, Step
from gradlab.deploy.freezing import Frozen, freeze
from gradlab.deploy.types import Unsupported, ctype
from gradlab.graph.control.body_call import KINDS, Part
from gradlab.graph.ir.graph import Call, Graph
from gradlab.spec import Spec, count

SIGNATURE = "static int {name}(const gl_team team, const char *const W, char *const A, char *const S, const char *const *X, char *const *Y)"
Write = Callable[[Frozen, Emitter], int]  # writes a body's lines; bytes of its values


def is_flow(call: Call) -> bool:
    """Whether a call has bodies."""
    return call.op.name in KINDS and "flow" in call.params


def bodies(call: Call, known: Sequence[Any]) -> Iterator[Frozen]:
    """The bodies of a call, ready to be written. known: the arrays of those of its inputs that are constants. Raises Unsupported for what a
    forward alone does not do."""
    flow = call.params["flow"]
    for part, fixed in zip(flow.bodies, constants(flow, known)[0]):
        if part.source.random or part.source.updates:
            raise Unsupported("its body draws random numbers or changes tensors: pass them in and out")
        yield freeze(bound(part, fixed))


def constants(flow: Any, known: Sequence[Any]) -> tuple[list[dict[int, Any]], set[int]]:
    """For each body, the arrays of those of its inputs that are constants around it, and the same in every turn; and which of the call's
    inputs are given to no body then."""
    if flow.kind == "switch":
        places = [[i if i else None for i in reads] for reads in flow.reads]
    elif flow.kind == "scan":
        turning = flow.carries + flow.stacked
        places = [[*[None] * turning, *range(turning, len(known))]]
    else:
        asked = flow.carries + flow.constants
        places = [[*[None] * flow.carries, *range(first, end)] for first, end in ((flow.carries, asked), (asked, len(known)))]
    found = [{at: i for at, i in enumerate(reads) if i is not None and known[i] is not None} for reads in places]
    return [{at: known[i] for at, i in body.items()} for body in found], {i for body in found for i in body.values()}


def bound(part: Part, fixed: dict[int, Any]) -> Graph:
    """A body's graph with some inputs as constants."""
    graph = part.source
    given = [v for i, v in enumerate(graph.inputs) if i not in fixed]
    return replace(graph, inputs=given, state={**graph.state, **{graph.inputs[i]: array for i, array in fixed.items()}})


@dataclass
class Body:
    """A function that was written: its name, the bytes of its values and of its work space, and which of its inputs it is given."""

    name: str
    values: int
    space: int
    inputs: list[Spec]
    outputs: list[Spec]
    given: list[int]


def written_body(part: Part, fixed: dict[int, Any], out: Emitter, write: Write) -> Body:
    """The function of a body. fixed: the arrays of inputs that are constants."""
    inner = out.inside()
    size = write(freeze(bound(part, fixed)), inner)
    name = f"body{len(out.bodies)}"
    out.bodies.append((SIGNATURE.format(name=name), inner.lines))
    out.own(inner.own_size)
    graph, given = part.source, [i for i in range(len(part.source.inputs)) if i not in fixed]
    specs = [[v.spec for v in values] for values in (graph.inputs, graph.outputs)]
    return Body(name, -(-size // 64) * 64, inner.scratch_size, specs[0], specs[1], given)


def emit_flow(step: Step, out: Emitter, write: Write) -> None:
    """The lines of a call with bodies."""
    flow = step.params["flow"]
    fixed, unused = constants(flow, step.known)
    found = [written_body(part, arrays, out, write) for part, arrays in zip(flow.bodies, fixed)]
    given = [None if i in unused else out.dense(place) for i, place in enumerate(step.inputs)]
    room = out.scratch((max(body.values + body.space for body in found) + 64,), np.uint8)
    {"switch": _switch, "scan": _scan, "while_loop": _while}[flow.kind](flow, found, given, step, out, out.pointer(room))


def _run(body: Body, room: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The text that runs a body on these pointers."""
    x, y = (", ".join(pointers) or "NULL" for pointers in ([inputs[i] for i in body.given], outputs))
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


def _switch(flow: Any, found: list[Body], given: list[Any], step: Step, out: Emitter, room: str) -> None:
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


def _scan(flow: Any, found: list[Body], given: list[Any], step: Step, out: Emitter, room: str) -> None:
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


def _while(flow: Any, found: list[Body], given: list[Any], step: Step, out: Emitter, room: str) -> None:
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
