"""The variables that a block gives: their tensors, and how the rest of each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.staging.tree import flatten, has_keys, unflatten, with_keys
from gradlab.spec import spec_of
from gradlab.tensor.creation import tensor as tensor_of


class Pieces:
    """Variables by name. Numbers count as tensors: the other branch, or the next turn, may have another number.

    numbers: by position among the tensors, the Python number that it was.
    """

    def __init__(self, values: Sequence[Any], names: Sequence[str]) -> None:
        self.values, self.names = list(values), list(names)
        self.numbers: dict[int, Any] = {}
        self.tensors: list[Any] = []
        self.structures: list[Any] = []
        self.starts: list[int] = []
        for value in self.values:
            self.starts.append(len(self.tensors))
            self.structures.append(self._take(value))

    def _take(self, value: Any) -> Any:
        if type(value) in (bool, int, float):
            self.numbers[len(self.tensors)] = value
            self.tensors.append(tensor_of(value))
            return "tensor"
        if isinstance(value, Differentiable):
            self.tensors.append(value)
            return "tensor"
        if isinstance(value, (list, tuple)):
            return (type(value), tuple(map(self._take, value)))
        if isinstance(value, dict):
            return (dict, tuple(value), tuple(map(self._take, value.values())))
        return flatten(value)[1]

    def undefined(self) -> str:
        """The first variable without a value."""
        return next((n for n, v in zip(self.names, self.values, strict=True) if type(v).__name__ == "Undefined"), "")

    def rebuilt(self, tensors: Sequence[Any]) -> list[Any]:
        """The variables with other tensors."""
        waiting = iter(tensors)
        found = []
        for structure in self.structures:
            own = [next(waiting) for _ in range(_count(structure))]
            found.append(unflatten(structure, own))
        return found

    def _specs(self, i: int) -> list[Any]:
        return [spec_of(t._array) for t in self.tensors[self.starts[i] : self.starts[i] + _count(self.structures[i])]]

    def differs(self, other: Pieces) -> str:
        """What is wrong with two branches: this one where the condition holds, and the other; "" for nothing."""
        for i, name in enumerate(self.names):
            gone = [type(v).__name__ == "Undefined" for v in (self.values[i], other.values[i])]
            if any(gone) and not all(gone):
                word = "only where the condition does not hold" if gone[0] else "only where the condition holds"
                way_out = "give it one of the same shape and dtype before, or in the other branch"
                return f"{name} gets a value {word}, and is used behind the if; {way_out}"
            mine, theirs = (self.structures[i], self._specs(i)), (other.structures[i], other._specs(i))
            if not _equal(mine[0], theirs[0]) or mine[1] != theirs[1]:
                a, b = shown(self.values[i]), shown(other.values[i])
                return f"{name} is {a} where the condition holds, and {b} where it does not; both branches give one shape and dtype"
        return ""

    def changes_to(self, after: Pieces) -> str:
        """What is wrong with a loop's turn that makes `after` of these; "" for nothing."""
        for i, name in enumerate(self.names):
            if not _equal(self.structures[i], after.structures[i]) or self._specs(i) != after._specs(i):
                a, b = shown(self.values[i]), shown(after.values[i])
                kept = "in a loop that decides by a tensor it keeps its shape and dtype"
                return f"{name} is {a} before the loop, and {b} after a turn; {kept}"
        return ""


def merged(yes: Pieces, no: Pieces, tensors: list[Any]) -> list[Any]:
    """The variables after an if; a number that both branches have stays a number."""
    if not tensors:
        return [a for a, _ in zip(yes.values, no.values, strict=True)]
    for i, number in yes.numbers.items():
        other = no.numbers.get(i)
        if type(other) is type(number) and (other == number or str(other) == str(number)):
            tensors[i] = number
    waiting = iter(tensors)
    return [_with(structure, waiting) for structure in yes.structures]


def _with(structure: Any, waiting: Any) -> Any:
    if structure == "tensor":
        return next(waiting)
    kind = structure[0]
    if kind == "value":
        return structure[1]
    if has_keys(kind):
        return with_keys(kind, {k: _with(s, waiting) for k, s in zip(structure[1], structure[2], strict=True)})
    children = [_with(s, waiting) for s in structure[1]]
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def _count(structure: Any) -> int:
    if structure == "tensor":
        return 1
    return 0 if structure[0] == "value" else sum(map(_count, structure[-1]))


def _equal(a: Any, b: Any) -> bool:
    """Whether two structures are alike: other values than tensors are the same object, or equal."""
    if a == "tensor" or b == "tensor":
        return bool(a == b)
    if a[0] != b[0]:
        return False
    if a[0] == "value":
        x, y = a[1], b[1]
        return x is y or (type(x) is type(y) is str and x == y) or type(x).__name__ == type(y).__name__ == "Undefined"
    return a[:-1] == b[:-1] and len(a[-1]) == len(b[-1]) and all(map(_equal, a[-1], b[-1]))


def shown(value: Any) -> str:
    """A variable for a message: float32[3, 4], int64[] (from 0), (float32[2], None)."""
    if isinstance(value, Differentiable):
        spec = spec_of(value._array)
        return f"{spec.dtype.name}{list(spec.shape)}"
    if type(value) in (bool, int, float):
        spec = spec_of(tensor_of(value)._array)
        return f"{spec.dtype.name}[] (from {value!r})"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v)}" for k, v in value.items()) + "}"
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
