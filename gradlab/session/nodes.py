"""What a graph holds besides calls: states (variables, tensors from outside), updates of them, random draws, and operations to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab import call_site
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.staging.symbol import Symbol, TraceError

if TYPE_CHECKING:
    from gradlab.session.graph import Graph


class UninitializedError(RuntimeError):
    """A variable was read that has no value in this session yet."""


class FeedError(ValueError):
    """A placeholder that is not fed, or a fed value that does not fit."""


class FetchError(ValueError):
    """Something was asked for that this graph cannot give."""


def here() -> Any:
    """The user's place in the code: (code, instruction, module scope)."""
    code, lasti = call_site.caller()
    return code, lasti, current().scope


def line(place: Any) -> str:
    """A place as "file.py:12: text", or ""."""
    found = call_site.locate(*place) if place is not None else None
    return "" if found is None else f"{Path(found.file).name}:{found.line}: {found.text}".removesuffix(": ")


def at(place: Any) -> str:
    """The line that a message ends with."""
    text = line(place)
    return f"\n  at: {text}" if text else ""


@dataclass(eq=False)
class State:
    """Something with a value that lasts from run to run.

    tensor  the tensor that stands for it: a variable's, or a tensor from outside the graph
    symbol  what reading it gives. A variable's is also the last value of its initialisation: other runs cut the graph there
    shared  a tensor from outside: its array is the value, in all sessions. False: each session has a value of its own
    used    it has been read by what is no part of its initialisation, so writing it is an update
    """

    tensor: Any
    symbol: Symbol
    name: str
    place: Any
    shared: bool = False
    used: bool = False
    trainable: bool = True
    edge: Any = None
    written: int = 0  # when its memory was last written, as autograd counts: updates written down are no writes

    @property
    def value(self) -> Value:
        return Value(self.symbol.id, self.symbol.tracer._values[self.symbol.id].spec)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {self.symbol.dtype.name}{list(self.symbol.shape)}>"


@dataclass(eq=False)
class Update:
    """A state's new value. `at`: how many calls there were when it was written; calls after that see it, if it is part of the run."""

    state: State
    new: Value
    at: int
    place: Any


@dataclass(eq=False)
class Draw:
    """What one random function takes from a generator: its state, of which it uses so many words."""

    generator: Any
    tensor: Any
    words: Any = 0


class Option(NamedTuple):
    """An option of an optimizer that says what its step does: the step was written down with what it was then."""

    optimizer: str
    group: dict[str, Any]
    key: str
    value: Any
    sign: bool  # whether it only matters that it is 0, or not; the number itself is read at each run

    def check(self) -> None:
        """RuntimeError if it is another one now."""
        now, was = self.group.get(self.key), self.value
        numbers = not (isinstance(now, Differentiable) or isinstance(was, Differentiable))
        if now is was or (numbers and ((now != 0) == (was != 0) if self.sign else now == was)):
            return
        raise RuntimeError(
            f"run: {self.key} of {self.optimizer} was {was!r} when the training step was defined and is {now!r} now, which would be "
            f"another step; define a graph with it"
        )


@dataclass(eq=False)
class Operation:
    """Something to run that has no value: its fetch is None. `session.run(operation)` makes its updates, or initialises its states."""

    graph: Graph
    name: str
    place: Any
    updates: list[Update] = field(default_factory=list)
    initializes: list[State] | None = None  # None: no initialiser; an empty list: all variables there are
    options: list[Option] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def __bool__(self) -> bool:
        raise TraceError(f"operation {self.name} has no truth value; run it in a session: session.run({self.name})")


@dataclass(eq=False)
class Node:
    """One call of a graph, for people: its name, the row's name (`type`), names of its inputs and outputs, and the line that made it."""

    name: str
    type: str
    inputs: list[str]
    outputs: list[str]
    call: Call | None = None
    place: Any = None

    @property
    def source(self) -> str:
        """The user's line: "model.py:12: text"."""
        return self.call.source() if self.call is not None else line(self.place)

    def __repr__(self) -> str:
        return f"<node {self.name}: {self.type}({', '.join(self.inputs)})>"
