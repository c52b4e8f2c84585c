"""Compiled programs in a profile: run step by step, each of which is an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.graph.calls.listing import Step
from gradlab.graph.ir.graph import Value
from gradlab.profiler.counting import moved
from gradlab.profiler.events import Event

LONGEST = 60  # letters of a name


def execute(
    executable: Any, arrays: Sequence[Any], outs: Sequence[Any], now: Callable[[], float], moment: Callable[[Any], Any]
) -> list[Event]:
    """Run a program; its events. now: the time in microseconds. moment: an event on a backend's device, or None."""
    found: list[Event] = []
    backend = getattr(executable, "backend", None)

    def each(step: Step | None, run: Callable[[], Any]) -> None:
        first, start = moment(backend), now()
        run()
        event = Event(title(step), "compiled", start, now(), threading.get_ident())
        event.moments = None if first is None else (backend.driver, first, moment(backend))  # type: ignore[union-attr]
        if step is not None and step.calls:
            event.work = tuple((c.op, _shapes(c.inputs), _shapes(c.outputs)) for c in step.calls)
            event.bytes = crossing(step)
            event.scope = (step.calls[0].position or (None, 0, None))[2]
            event.place = (step.calls[0].position or (None, 0, None))[:2]
        found.append(event)

    executable.run(arrays, outs, each)
    return found


def title(step: Step | None) -> str:
    """A step's name in the table: the rows in it, each once."""
    if step is None:
        return "compiled program"
    names = " ".join(dict.fromkeys(c.op.name for c in step.calls)) or step.kind
    short = names if len(names) <= LONGEST else f"{names[: LONGEST - 1]}…"
    return f"compiled {short}" + (" (NumPy)" if step.kind == "numpy" else "")


def crossing(step: Step) -> int:
    """The bytes that come into a step and go out of it: what one of its calls makes and another takes stays inside."""
    made = {v.id for c in step.calls for v in c.outputs}
    taken = {x.id for c in step.calls for x in c.inputs if isinstance(x, Value)}
    inputs = {x.id: x for c in step.calls for x in c.inputs if isinstance(x, Value) and x.id not in made}
    outputs = [v for c in step.calls for v in c.outputs if v.id not in taken]
    return moved([v.spec for v in (*inputs.values(), *outputs)])


def _shapes(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(v.spec.shape) if isinstance(v, Value) else None for v in values)
