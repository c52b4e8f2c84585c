"""The arrays of a program's values: parts of its arena, of what it is given, of its results."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.native.place import ARENA, Place
from gradlab.graph.executables.native.planning import FIRST, Arranged
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Value


class Arrays:
    """Places and the memory that they are in."""

    def __init__(self, backend: Any, arranged: Arranged, arena: Any, inputs: list[Any], outputs: list[Any]) -> None:
        self.backend, self.driver, self.arranged = backend, backend.driver, arranged
        self.arena, self.inputs, self.outputs = arena, inputs, outputs
        self._own: dict[int, Any] = {}  # memory of half types that NumPy does not know, by value

    def base(self, number: int) -> Any:
        """The array of a base outside of the arena."""
        inputs, outputs = len(self.inputs), len(self.outputs)
        at = number - FIRST
        if at < inputs:
            return self.inputs[at]
        return self.outputs[at - inputs] if at < inputs + outputs else self.arranged.fixed[at - inputs - outputs]

    def at(self, place: Place) -> Any:
        """The array of a place."""
        size = place.dtype.itemsize
        base = self.arena if place.base == ARENA else self.base(place.base)
        if place.dtype != base.dtype:  # also of an argument whose bits are seen as another type
            reach = sum((n - 1) * s for n, s in zip(place.shape, place.strides)) + 1 if place.size else 0
            line = base.reshape(-1).view(np.uint8)
            return self._laid(line[place.offset : place.offset + reach * size].view(place.dtype), place)
        if place.offset == 0 and place.shape == base.shape and place.contiguous:
            return base
        return self._laid(base.reshape(-1)[place.offset // size :], place)

    def _laid(self, elements: Any, place: Place) -> Any:
        """Elements, from the first of a place on, as it has them."""
        if place.contiguous:
            return elements[: place.size].reshape(place.shape)
        step = place.dtype.itemsize
        return self.driver.library.lib.stride_tricks.as_strided(elements, place.shape, [s * step for s in place.strides])

    def _standing(self, number: int) -> Any:
        """The array of a value that is no view."""
        place, inside = self.arranged.places[number], self.arranged.relative[number]
        if place.base != ARENA or place.dtype.kind != "V":
            return self.at(place)
        if inside.base not in self._own:
            self._own[inside.base] = self.driver.empty((self.arranged.relative[inside.base].size,), place.dtype)
        return self._laid(self._own[inside.base][inside.offset // place.dtype.itemsize :], inside)

    def of(self, line: Line) -> dict[int, Any]:
        """The array of every value that has memory; views are taken once."""
        places = self.arranged.places
        env: dict[int, Any] = {v.id: a for v, a in zip(line.inputs, self.inputs)}
        env.update((v.id, a) for v, a in line.fixed.items())
        standing = {v.id for u in self.arranged.units for c in u.calls for v in c.outputs}
        for call in line.calls:
            for v in call.outputs:
                if v.id not in places:
                    continue
                if v.id in standing:
                    env[v.id] = self._standing(v.id)
                else:
                    source = [env[x.id] if isinstance(x, Value) else x for x in call.inputs]
                    env[v.id] = self.backend.prepared(call.op, source, call.params)(source)
        return env


def parts_to_copy(driver: Any, inputs: list[Any], whole: Any, dim: int) -> list[tuple[Any, Any]]:
    """Where the inputs of a `cat` belong, but for those that lie there already, and what is to be copied there."""
    found, start, pointer = [], 0, driver.pointer
    for x in inputs:
        target = whole[(*(slice(None),) * dim, slice(start, start + x.shape[dim]), Ellipsis)]
        start += x.shape[dim]
        if x.size and not (pointer(x) == pointer(target) and x.strides == target.strides):
            found.append((target, x))
    return found
