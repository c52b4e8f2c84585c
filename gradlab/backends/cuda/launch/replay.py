"""Plans made by watching: a launch rule is run once, and what it launched is repeated for operands like those.

What a rule does depends on shapes, strides, dtypes and parameters alone; a plan is kept for each of them (`backend.py`). So the second
call needs none of the rule's Python: the same kernels with the same grids, with the addresses of the new operands put in their places.
A rule that does more than launch kernels, copy, clear and allocate (`Watched`) is not repeated, but run each time.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends import cudnn
from gradlab.backends.cuda.arguments import KINDS, repeater
from gradlab.backends.cuda.driver import Function
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.cuda.launch_context import Work
from gradlab.spec import Spec

Plan = Callable[..., Any]
OTHERS = -1  # `choice` where a library computes, which is asked each time
MOST_TRIES = 3  # calls whose operands lie in one another's memory, which cannot be told apart, before the rule is left alone


def choice() -> int:
    """A number for what users have chosen about products and convolutions; rules that depend on it are watched anew when it changes."""
    return OTHERS if cudnn.enabled else SETTINGS.number


class Varying:
    """Stands for a parameter whose value is another one in each call: what a rule does with it is to hand it on."""

    __slots__ = ("place", "value")

    def __init__(self, place: int, value: int) -> None:
        self.place, self.value = place, value  # place: where it stands among the addresses, from their end


class WatchedDriver:
    """The driver that a watched rule sees: what cannot be repeated is done, but spoils the record."""

    def __init__(self, watch: Watched) -> None:
        self._watch, self._driver = watch, watch.real.driver
        self.array_type, self.current_device = self._driver.array_type, self._driver.current_device
        self.capability = self._driver.capability
        self.empty, self.copy, self.fill_zero = watch.empty, watch.copy_bytes, watch.fill_zero

    def __getattr__(self, name: str) -> Any:
        self._watch.spoiled = True
        return getattr(self._driver, name)


class Watched(Work):
    """Runs a rule and writes down its steps."""

    def __init__(self, work: Work, arrays: Sequence[Any]) -> None:
        self.real, self.compiler, self._kernels = work, work.compiler, work._kernels
        self.spoiled = self.aligned = self.reports = False
        self.known: list[Any] = list(arrays)
        self.given = len(self.known)
        self.ranges = [self._range(a) for a in self.known]
        self.scratch: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self.steps: list[Any] = []  # a function of the operands' addresses, or the numbers of the operands to clear or to copy
        self.empty = self._empty
        self.pointer = self._pointer
        self.driver: Any = WatchedDriver(self)

    def _range(self, array: Any) -> tuple[int, int]:
        """Where its memory begins and ends; nothing for an empty array."""
        begin = end = self.real.pointer(array)
        if not array.size:
            return begin, begin
        for size, stride in zip(array.shape, array.strides, strict=True):
            if stride < 0:
                begin += stride * (size - 1)
            else:
                end += stride * (size - 1)
        return begin, end + array.dtype.itemsize

    def apart(self) -> bool:
        """Whether no operand lies in another's memory."""
        places = sorted(r for r in self.ranges if r[1] > r[0])
        return all(first[1] <= second[0] for first, second in itertools.pairwise(places))

    @property
    def faults(self) -> Any:  # type: ignore[override]
        self.reports = True
        return self.real.faults

    def _pointer(self, array: Any) -> int:
        """Rules ask for addresses to see how they are aligned."""
        self.aligned = True
        return self.real.pointer(array)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made = self.real.driver.empty(shape, dtype)
        self.scratch.append((shape, dtype))
        self.known.append(made)
        self.ranges.append(self._range(made))
        return made

    def place(self, array: Any) -> tuple[int, int] | int:
        """Which operand an array is or lies in, and how far from its first element; the address of the fault record."""
        address = self.real.pointer(array)
        for i, a in enumerate(self.known):
            if a is array:
                return i, 0
        for i, (begin, end) in enumerate(self.ranges):
            if begin <= address < end:
                return i, address - self.real.pointer(self.known[i])
        if array is not self.real.faults._record:
            self.spoiled = True
        return address

    def launch_grid(self, function: Function, grid: tuple[int, int, int], threads: int, *values: Any, shared: int = 0) -> None:
        kinds: list[str | int] = []
        constants: list[Any] = []
        places: list[tuple[int, int, int]] = []
        for v in values:
            kind = type(v)
            if kind is self.driver.array_type:
                kinds.append("P")
                found = self.place(v)
                if isinstance(found, tuple):
                    places.append((len(constants), *found))
                    found = 0
                constants.append(found)
            elif v is None:
                kinds.append("P")
                constants.append(0)
            elif kind is Varying:
                kinds.append("q")
                places.append((len(constants), v.place, 0))
                constants.append(0)
            else:
                kinds.append(len(v) if kind is bytes else KINDS[kind])
                constants.append(v)
        launch = self.real.driver.launcher(function, grid, (threads, 1, 1), shared)
        self.steps.append(repeater(kinds, constants, places, launch))
        self.real.launch_grid(function, grid, threads, *[v.value if type(v) is Varying else v for v in values], shared=shared)

    def copy_bytes(self, target: Any, source: Any) -> None:
        self.real.driver.copy(target, source)
        self._whole(target, source)

    def fill_zero(self, array: Any) -> None:
        self.real.driver.fill_zero(array)
        self._whole(array)

    def _whole(self, *arrays: Any) -> None:
        """A step of the driver on whole operands; not on parts of them."""
        found = [next((i for i, a in enumerate(self.known) if a is array), None) for array in arrays]
        if None in found:
            self.spoiled = True
        self.steps.append(tuple(found))


def plan(
    work: Work, run: Callable[..., None], arrays: list[Any], outs: tuple[Spec, ...], params: dict[str, Any], otherwise: Plan,
    varying: tuple[str, ...] = (), chooses: bool = False,
) -> Plan:  # fmt: skip
    """A plan that watches `run` at its first call and repeats it from then on. `otherwise` runs the rule.
    varying: parameters that each call gives anew. chooses: see `Rule`."""
    driver = work.driver
    pointer = work.pointer
    if any(isinstance(a, (int, float, complex)) for a in arrays):
        return otherwise
    places = [i for i, a in enumerate(arrays) if a is not None]
    results = [driver.maker(*s) for s in outs]
    number, complete = len(outs), len(places) == len(arrays)
    tries = chosen = 0
    steps: tuple[Any, ...] | None = None  # what was seen
    makers, scratch, aligned, faults = results, [], False, None

    def watch(inputs: list[Any], outs: Sequence[Any] | None, now: dict[str, Any]) -> Any:
        nonlocal tries, steps, makers, scratch, aligned, faults
        made = [make() for make in results] if outs is None else list(outs)
        seen = Watched(work, [*(inputs[i] for i in places), *made])
        run(seen, inputs, made, now | {name: Varying(i - len(varying), now[name]) for i, name in enumerate(varying)})
        tries += 1
        if seen.spoiled or (seen.aligned and any(pointer(a) & 15 for a in seen.known[: seen.given])):
            if seen.spoiled:
                tries = MOST_TRIES
        elif seen.apart():
            scratch = [driver.maker(*s) for s in seen.scratch]
            steps, makers, aligned, faults = tuple(seen.steps), [*results, *scratch], seen.aligned, work.faults if seen.reports else None
        return made[0] if number == 1 else tuple(made)

    def again(inputs: list[Any], outs: Sequence[Any] | None = None, now: dict[str, Any] = params) -> Any:
        nonlocal tries, chosen, steps
        if chooses and (now_chosen := choice()) != chosen:
            if now_chosen == OTHERS:
                return otherwise(inputs, outs, now)
            steps, tries, chosen = None, 0, now_chosen
        if steps is None:
            return watch(inputs, outs, now) if tries < MOST_TRIES else otherwise(inputs, outs, now)
        addresses = list(map(pointer, inputs if complete else [inputs[i] for i in places]))
        if aligned:
            joined = 0
            for address in addresses:
                joined |= address
            if outs is not None:
                for given in outs:
                    joined |= pointer(given)
            if joined & 15:
                return otherwise(inputs, outs, now)
        made = list(map(operator.call, makers)) if outs is None else [*outs, *map(operator.call, scratch)]
        addresses += map(pointer, made)
        for name in varying:
            addresses.append(now[name])
        for step in steps:
            if type(step) is not tuple:
                step(addresses)
            else:
                known = [*(inputs[i] for i in places), *made]
                if len(step) == 1:
                    driver.fill_zero(known[step[0]])
                else:
                    driver.copy(known[step[0]], known[step[1]])
        if faults is not None:
            faults.check()
        return made[0] if number == 1 else tuple(made[:number])

    return again
