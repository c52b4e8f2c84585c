"""Memory that arrays share. A graph takes its inputs and its state for memory of their own; where one of them is written and another that
it uses lies in the same place, no program stands for the function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.autograd.base import LEAF
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.staging.symbol import TraceError
from gradlab.spec import Spec

_MOST = 1000  # candidates that NumPy tries before interleaved arrays count as sharing


def owner(array: Any) -> Any:
    """The array whose memory it is."""
    while type(array.base) is type(array):
        array = array.base
    return array


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays share memory; where that is hard to tell, they do."""
    if a is b:
        return True
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return type(a) is type(b) and owner(a) is owner(b)
    if (a.base is None and b.base is None) or not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, _MOST)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class Part(NamedTuple):
    """An array of a program: of the argument at that position among the different tensors, or a captured one."""

    argument: int
    array: Any

    def now(self, given: Sequence[Any]) -> Any:
        """The array in a call with these tensors; None where it has fewer."""
        return self.array if self.argument < 0 else given[self.argument]._array if self.argument < len(given) else None


class Eager(TraceError):
    """The function can be run, but no program stands for it."""

    advice = "pass it as an argument, or write what is detached"

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether this is so in a call with these tensors, too."""
        return True


class Recorded(Eager):
    """An argument that is the result of recorded operations is written in place, and so gets a graph beyond the call."""

    advice = "write a clone() of it in the function"

    def __init__(self, argument: int, shape: tuple[int, ...]) -> None:
        self.argument = argument
        super().__init__(
            f"the function writes tensor {argument} of the arguments in place, of shape {shape}, which is the result of recorded "
            f"operations and then has a graph beyond the call"
        )

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether it is one in a call with these tensors, too."""
        return self.argument < len(given) and given[self.argument]._edge not in (None, LEAF)


class Exchanged(Eager):
    """A tensor from outside is to hold an array of another shape or dtype, which its memory has no room for."""

    advice = "return the new tensor, or let an attribute hold it"

    def __init__(self, before: Spec, after: Spec) -> None:
        super().__init__(
            f"the function sets the .data of a tensor from outside, of shape {before.shape} and {before.dtype}, to one of shape "
            f"{after.shape} and {after.dtype}, and a program writes into the memory that is there"
        )


class Graded(Eager):
    """The function looks at an argument's .grad that was there before the call."""

    advice = "pass the gradient as an argument of its own"

    def __init__(self, argument: int, shape: tuple[int, ...]) -> None:
        self.argument = argument
        super().__init__(f"the function looks at the .grad of tensor {argument} of the arguments, of shape {shape}, from before the call")

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether it has one in a call with these tensors, too."""
        return self.argument < len(given) and given[self.argument]._grad is not None


class Subclassed(Eager):
    """An argument is an instance of a user's subclass of Tensor: the function, and the class, may ask what it is."""

    advice = "pass as_subclass(gradlab.Tensor)"

    def __init__(self, argument: int, kind: type) -> None:
        self.argument, self.kind = argument, kind
        super().__init__(f"tensor {argument} of the arguments is a {kind.__qualname__}, and a program computes with plain tensors")

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether it is one in a call with these tensors, too."""
        return self.argument < len(given) and type(given[self.argument]) is self.kind


class Refused(Eager):
    """The trace was refused, and the user did not ask for a program of the whole function (fullgraph=False)."""

    advice = "fullgraph=True makes an error of it"

    def __init__(self, error: TraceError) -> None:
        super().__init__(str(error).removeprefix("compile: "))


class SharedMemory(Eager):
    """Of two arrays that share memory one is written and the other used: what the function does depends on the order."""

    advice = "pass copies (clone())"

    def __init__(self, a: Part, b: Part) -> None:
        self.parts = a, b
        what = [f"tensor {p.argument} of the arguments" if p.argument >= 0 else "one that it finds elsewhere" for p in self.parts]
        super().__init__(
            f"two tensors that the function uses share memory ({' and '.join(what)}, of shapes {tuple(a.array.shape)} and "
            f"{tuple(b.array.shape)}), and it writes one in place"
        )

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether they do in a call with these tensors, too."""
        a, b = (part.now(given) for part in self.parts)
        return a is not None and b is not None and overlap(a, b)


def uses(graph: Graph) -> tuple[set[int], set[int]]:
    """Which of its values a graph writes, and which it writes or uses."""
    written = {old.id for old, _ in graph.updates}
    used = {x.id for call in graph.calls for x in call.inputs if isinstance(x, Value)}
    return written, used | written | {new.id for _, new in graph.updates}


def check_apart(parts: Mapping[int, Part], written: Collection[int]) -> None:
    """Raise SharedMemory where one of the values that are written shares memory with another of these."""
    together: dict[int, list[int]] = {}  # by the owner of the memory
    for number, part in parts.items():
        array = owner(part.array)
        together.setdefault(id(array) if array.base is None else -1, []).append(number)
    abroad = together.pop(-1, [])  # in memory of another library's
    groups = [*(numbers for numbers in together.values() if len(numbers) > 1), *([list(parts)] if abroad else [])]
    for group in groups:
        for number in group:
            for other in group if number in written else ():
                if other != number and overlap(parts[number].array, parts[other].array):
                    raise SharedMemory(parts[number], parts[other])


def apart(array: Any, others: Iterable[Any]) -> bool:
    """Whether an array shares memory with none of the others."""
    return not any(overlap(array, other) for other in others)
