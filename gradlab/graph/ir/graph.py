"""The graph: a straight line of row calls on numbered values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab.call import Call as Call, Value as Value
from gradlab.device import CPU, Device

if TYPE_CHECKING:
    from gradlab.viz import Picture


@dataclass
class Graph:
    """inputs → calls → outputs. `state` holds the arrays from before the trace, `updates` what is written into them at the end, `last` the
    numbers of images whose channels come last in memory, `notes` what passes left as it is, and why, for people."""

    inputs: list[Value] = field(default_factory=list)
    state: dict[Value, Any] = field(default_factory=dict)  # value -> array
    random: list[tuple[Any, Value, int]] = field(default_factory=list)  # generator, its state value, words used by one run
    calls: list[Call] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    updates: list[tuple[Value, Value]] = field(default_factory=list)  # state value, new value
    gradients: list[tuple[Any, Value | None]] = field(default_factory=list)  # leaf, its .grad after the run
    device: Device = CPU
    last: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    autocast: bool = False  # whether all that was cast to bfloat16 was so under autocast
    lowered: bool = False  # whether products may round what they multiply to bfloat16

    def __str__(self) -> str:
        def typed(value: Value) -> str:
            return f"%{value.id}: {value.spec.dtype.name}{list(value.spec.shape)}"

        lines = [f"graph({', '.join(map(typed, self.inputs))}):"]
        lines += [f"  {typed(value)} = state" for value in self.state]
        lines += [f"  {typed(value)} = random state" for _, value, _ in self.random]
        known = {v.id for v in (*self.inputs, *self.state, *(v for _, v, _ in self.random), *(v for c in self.calls for v in c.outputs))}
        given = {x.id: x for c in self.calls for x in c.inputs if isinstance(x, Value) and x.id not in known}
        lines += [f"  {typed(value)} = hyper-parameters" for value in given.values()]
        last = ""
        for call in self.calls:
            source = call.source()
            if source and source != last:
                lines.append(f"  # {source}")
            last = source or last
            lines.append(f"  {call.text(self.last)}")
        lines += [f"  {old!r} <- {new!r}" for old, new in self.updates]
        lines += [f"  .grad of {list(leaf._array.shape)} <- {new!r}" for leaf, new in self.gradients]
        return "\n".join([*lines, f"  return {', '.join(map(repr, self.outputs))}"])

    def picture(self) -> Picture:
        """The graph as a picture, which can be saved as SVG, as an HTML page, and in other languages (`gradlab.viz.graph`)."""
        found: Picture = import_module("gradlab.viz").graph(self)  # not with this module: it takes time and memory
        return found

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """The graph as an SVG document."""
        return self.picture().to_svg()

    def without_dead_calls(self) -> Graph:
        """The same graph with only the calls that lead to an output, an update or a gradient, and those that other processes wait for."""
        ends = [*self.outputs, *(new for _, new in self.updates), *(v for _, v in self.gradients if v is not None)]
        ends += [v for call in self.calls if call.op.together for v in call.outputs]
        needed = leading_to(self.calls, ends)
        kept = [call for call in self.calls if id(call) in needed]
        return replace(self, calls=kept)


def leading_to(calls: Sequence[Call], ends: Iterable[Value]) -> set[int]:
    """The calls (by id) that the values `ends` depend on."""
    wanted = {v.id for v in ends}
    found = set()
    for call in reversed(calls):
        if any(v.id in wanted for v in call.outputs):
            found.add(id(call))
            wanted.update(x.id for x in call.inputs if isinstance(x, Value))
    return found
