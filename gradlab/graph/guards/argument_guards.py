"""The conditions that a program has on its arguments: what each is, and whose memory it shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.graph.calls.runner import Runner
from gradlab.graph.guards.contents import is_dataclass
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.rebinding import Held
from gradlab.graph.guards.sources import is_opaque
from gradlab.graph.staging.memory_sharing import apart, overlap, owner
from gradlab.graph.staging.stage import Staged
from gradlab.graph.staging.tree import fields_of, flatten
from gradlab.strides import is_writable
from gradlab.tensor.bits import offset_of


class _Memory:
    """An argument lies apart from captured tensors that the program writes; one that it writes from all captured ones."""

    def __init__(self, guards: Guards, staged: Staged, runner: Runner) -> None:
        self.guards = guards
        state = list(staged.graph.state.values())
        self.arrays = [a for a in state if id(a) in runner.written], state  # for arguments that are read, and written
        self.owners = [frozenset(id(x) for a in arrays for x in (a, owner(a))) for arrays in self.arrays]

    def guard(self, array: str, label: str, written: bool) -> None:
        """The condition of the argument whose array is found there. Mostly the owner of its memory tells."""
        guards = self.guards
        if not self.arrays[written]:
            return
        guards.names["id"], guards.names["apart"] = id, apart
        others, owners, base = guards.name(self.arrays[written]), guards.name(self.owners[written]), f"{array}.base"
        own = f"{base} is None or (type({base}) is type({array}) and {base}.base is None and id({base}) not in {owners})"
        guards.test(
            f"((id({array}) not in {owners} and ({own})) or apart({array}, {others}))", f"{label} lying in memory that the function writes"
        )


def guard_arguments(
    guards: Guards, staged: Staged, runner: Runner, held: Sequence[Held], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Let the guards test that arguments are like these.

    held: the places whose tensors are the last of `args` (`Holding`).
    """
    seen: dict[int, tuple[str, str]] = {}
    arrays: list[Any] = []  # of the tensors in `seen`
    known = {id(array) for _, array in staged.tensors}
    written, memory = set(runner.written_arguments), _Memory(guards, staged, runner)

    def visit(expression: str, label: str, value: Any) -> None:
        if isinstance(value, Differentiable):
            array = f"{expression}._array"
            kind, dtype = guards.name(type(value)), guards.name(value._array.dtype)
            guards.test(f"type({expression}) is {kind}", f"{label}'s type", f"type({expression})")
            guards.test(f"type({array}) is {guards.name(type(value._array))}", f"{label}'s device", f"{expression}.device")
            backend: Any = dispatch.backend_of(value._array)
            where = backend.device_of(value._array)
            if where.type != "cpu" and not (where.type == "cuda" and backend.driver.device_count() == 1):  # of one the array's type tells
                guards.test(f"{expression}.device.index == {where.index}", f"{label}'s device", f"{expression}.device", where)
            guards.test(f"{array}.shape == {value._array.shape!r}", f"{label}'s shape", f"{array}.shape", value._array.shape)
            test = f"({array}.dtype is {dtype} or {array}.dtype == {dtype})"
            guards.test(test, f"{label}'s dtype", f"{array}.dtype", value._array.dtype)
            if id(value._array) in staged.asked:
                guards.test(f"{array}.strides == {value._array.strides!r}", f"how {label} lies in memory", f"{expression}.stride()")
            if ("offset", id(value._array)) in staged.asked:
                guards.names["offset_of"] = offset_of
                guards.test(f"offset_of({array}) == {offset_of(value._array)}", f"where {label} begins in its memory")
            edge = "is None" if value._edge is None else "is not None"
            guards.test(f"{expression}._edge {edge}", f"whether {label} requires grad")
            if id(value) not in seen and len(seen) in staged.without:
                guards.test(f"{expression}._grad is None", f"{label}'s .grad")
            if id(value) not in seen and len(seen) in written:
                guards.names["is_writable"] = is_writable
                guards.test(f"is_writable({array})", f"whether {label} can be written", f"is_writable({array})")
            if id(value) in seen:
                guards.test(f"{expression} is {seen[id(value)][0]}", f"{label} being {seen[id(value)][1]}")
            else:
                for i, (other, name) in enumerate(seen.values()):
                    guards.test(f"{expression} is not {other}", f"{label} and {name} being one tensor")
                    if value._array is arrays[i]:
                        guards.test(f"{array} is {other}._array", f"{label} and {name} sharing memory")
                    elif {i, len(seen)} & written:
                        guards.names["overlap"] = overlap
                        guards.test(f"not overlap({array}, {other}._array)", f"{label} and {name} sharing memory")
                arrays.append(value._array)
                memory.guard(array, label, len(seen) in written)
                seen[id(value)] = expression, label
            if id(value._array) in known:
                guards.same(array, value._array, f"{label} being a tensor that the function finds elsewhere, too")
        elif isinstance(value, (list, tuple)):
            guards.test(f"type({expression}) is {guards.name(type(value))}", f"{label}'s type")
            guards.test(f"len({expression}) == {len(value)}", f"{label}'s length", f"len({expression})", len(value))
            for i, part in enumerate(value):
                visit(f"{expression}[{i}]", f"{label}[{i}]", part)
        elif isinstance(value, dict):
            guards.test(f"type({expression}) is {guards.name(type(value))}", f"{label}'s type", f"type({expression})")
            guards.test(f"[*{expression}] == {guards.name(list(value))}", f"{label}'s keys")
            for key, part in value.items():
                visit(f"{expression}[{guards.name(key)}]", f"{label}[{key!r}]", part)
        elif is_dataclass(type(value)) and flatten(value)[0]:
            guards.test(f"type({expression}) is {guards.name(type(value))}", f"{label}'s type", f"type({expression})")
            for key, part in fields_of(value).items():
                visit(f"{expression}.{key}", f"{label}.{key}", part)
        elif is_opaque(value):  # what is read of it has conditions of its own
            guards.same(expression, value, label)
        else:
            guards.equal(expression, value, label)

    guards.test(f"len(args) == {len(args)}", "the number of arguments", "len(args)", len(args))
    guards.test(f"[*kwargs] == {guards.name(list(kwargs))}" if kwargs else "not kwargs", "the names of keyword arguments")
    own = len(args) - len(held)
    for i, value in enumerate(args):
        visit(f"args[{i}]", f"argument {i}" if i < own else held[i - own].label, value)
    for key, value in kwargs.items():
        visit(f"kwargs[{key!r}]", f"argument {key}", value)
