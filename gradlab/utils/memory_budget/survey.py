"""What each part of a model keeps for backward and how long its forward takes, found by a forward that keeps nothing."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gradlab.autograd.graph import saved_tensors_hooks
from gradlab.func.tree import flatten
from gradlab.nn.module import Module
from gradlab.nn.modules.containers import Sequential
from gradlab.tensor import Tensor

DEEPER = 1 / 8


def owner(array: Any) -> Any:
    """The array whose memory this one lies in."""
    while (base := getattr(array, "base", None)) is not None and hasattr(base, "nbytes"):
        array = base
    return array


def memory_of(tensors: Iterable[Any]) -> dict[int, int]:
    """Bytes of tensors by the id of the array that owns them, each counted once."""
    arrays = [owner(x._array) for x in tensors if isinstance(x, Tensor)]
    return {id(array): int(array.nbytes) for array in arrays}


def tensors_in(*values: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    return [x for value in values for x in flatten(value)[0] if isinstance(x, Tensor)]


@dataclass
class Part:
    """A module as the forward met it. kept: bytes that backward needs and that nothing met before keeps; given: bytes of its inputs."""

    name: str
    module: Module
    place: tuple[Module, int] | None = None  # the Sequential that it is in, and where
    calls: int = 0
    kept: int = 0
    given: int = 0
    seconds: float = 0.0
    first: int = 0  # among all parts, by their first call

    def __repr__(self) -> str:
        return f"{self.name}: {self.kept} bytes, {self.seconds:.2e} s"


@dataclass
class _Meter:
    """Counts what operations would keep, and lets it go."""

    resident: dict[int, int]
    total: int = 0
    alive: dict[int, weakref.ref[Any]] = field(default_factory=dict)

    def pack(self, tensor: Tensor) -> None:
        array = owner(tensor._array)
        number = id(array)
        if number in self.resident or number in self.alive:
            return
        self.alive[number] = weakref.ref(array, lambda _: self.alive.pop(number, None))
        self.total += int(array.nbytes)


def _never(_: Any) -> Any:
    raise RuntimeError("fit_memory: the forward that only measures was differentiated")


def survey(model: Module, run: Callable[[], Any], inputs: Iterable[Tensor], synchronize: Callable[[], None]) -> dict[Module, Part]:
    """Every module that `run` calls, the model among them. run: one forward of the model, with its loss."""
    resident = memory_of([*model.parameters(), *model.buffers(), *inputs])
    meter = _Meter(resident)
    parts = {module: Part(name, module) for name, module in model.named_modules()}
    for module in parts:
        if isinstance(module, Sequential):
            for i, child in enumerate(module):
                parts[child].place = (module, i)
    running: list[tuple[float, int]] = []
    order = [0]

    def before(module: Module, args: Any, kwargs: Any) -> None:
        part = parts[module]
        if not part.calls:
            order[0] += 1
            part.first = order[0]
        part.calls += 1
        part.given += sum(size for number, size in memory_of(tensors_in(args, kwargs)).items() if number not in resident)
        synchronize()
        running.append((time.perf_counter(), meter.total))

    def after(module: Module, args: Any, output: Any) -> None:
        synchronize()
        begun, total = running.pop()
        parts[module].seconds += time.perf_counter() - begun
        parts[module].kept += meter.total - total

    handles: list[Any] = [module.register_forward_pre_hook(before, with_kwargs=True) for module in parts]
    handles += [module.register_forward_hook(after) for module in parts]
    try:
        with saved_tensors_hooks(meter.pack, _never):
            run()
    finally:
        for handle in handles:
            handle.remove()
    rest = meter.total - parts[model].kept
    parts[model].kept += rest  # the loss's
    return {module: part for module, part in parts.items() if part.calls}


def chained(module: Module) -> bool:
    """Whether its children run one after the other and nothing else: an nn.Sequential, or a class that leaves its forward."""
    return isinstance(module, Sequential) and type(module).forward is Sequential.forward


def units(model: Module, parts: dict[Module, Part], deeper: bool) -> list[Part]:
    """Parts of the model that do not overlap, in the order in which they run: what is kept, computed again or moved as one.

    An nn.Sequential is its children, and so is a module that holds half of all that is kept. deeper: one that holds an eighth, too. What
    lies between the children of such a module is not known, so that more of it stays than is foreseen.
    """
    everything = parts[model].kept
    share = DEEPER if deeper else 1 / 2

    def children(module: Module) -> list[Module]:
        """What it calls: of lists and dicts of modules, their members."""
        found: list[Module] = []
        for child in module.children():
            found += [child] if child in parts else children(child)
        return found

    def within(module: Module) -> list[Part]:
        part, below = parts[module], children(module)
        if below and (module is model or chained(module) or part.kept > share * everything):
            return [unit for child in below for unit in within(child)]
        return [] if module is model else [part]

    distinct = {unit.module: unit for unit in within(model)}  # one that is called in several places is one unit
    return sorted(distinct.values(), key=lambda unit: unit.first)
