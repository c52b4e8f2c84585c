"""A plan put into a model: forwards that are computed again in backward, or whose kept values wait in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.graph import from_host, saved_tensors_hooks, to_host
from gradlab.nn.module import Module
from gradlab.tensor import Tensor
from gradlab.utils.checkpoint import checkpoint
from gradlab.utils.memory_budget.choosing import Run
from gradlab.utils.memory_budget.survey import memory_of


class Offload(saved_tensors_hooks):
    """Within the block, what operations keep is moved to the host, but for what is in memory anyway: a module's own parameters."""

    def __init__(self, module: Module) -> None:
        staying = memory_of([*module.parameters(), *module.buffers()])

        def pack(tensor: Tensor) -> tuple[Any, Any]:
            return (None, tensor) if memory_of([tensor]).keys() <= staying.keys() else to_host(tensor)

        super().__init__(pack, from_host)


def _by(how: str, module: Module, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if how == "checkpoint":
        return checkpoint(function, *args, **kwargs)
    if how == "offload":
        with Offload(module):
            return function(*args, **kwargs)
    return function(*args, **kwargs)


class Planned:
    """Stands in an instance for its class's `forward`, as a plan says. A copy of the module has one of its own."""

    def __init__(self, module: Module, how: str) -> None:
        self.module, self.how = module, how
        self.inner = module.__dict__.get("forward")

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """The forward without a plan."""
        return type(self.module).forward(self.module, *args, **kwargs) if self.inner is None else self.inner(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _by(self.how, self.module, self.plain, *args, **kwargs)

    def remove(self) -> None:
        """Let the module's forward be what it was."""
        known = self.module.__dict__
        if known.get("forward") is self:
            del known["forward"]
            if self.inner is not None:
                known["forward"] = self.inner


class PlannedSequence(Planned):
    """The same of an nn.Sequential, for runs of its children: (first, past the last, how)."""

    def __init__(self, module: Module, spans: Sequence[tuple[int, int, str]]) -> None:
        super().__init__(module, "keep")
        self.spans = list(spans)

    def __call__(self, input: Any) -> Any:
        children: list[Any] = list(self.module._modules.values())
        for first, last, how in self._all(len(children)):

            def run(x: Any, these: Sequence[Any] = children[first:last]) -> Any:
                for child in these:
                    x = child(x)
                return x

            input = _by(how, self.module, run, input)
        return input

    def _all(self, count: int) -> list[tuple[int, int, str]]:
        """The spans and what lies between them."""
        found, at = [], 0
        for first, last, how in sorted(self.spans):
            found += [(at, first, "keep"), (first, last, how)]
            at = last
        return [span for span in [*found, (at, count, "keep")] if span[0] < span[1]]


def apply(runs: Sequence[Run]) -> list[Planned]:
    """Put the runs that are not left as they are into their modules; what undoes it."""
    spans: dict[Module, list[tuple[int, int, str]]] = {}
    made: list[Planned] = []
    for run in runs:
        if run.how == "keep":
            continue
        if len(run.parts) > 1:
            assert run.parts[0].place is not None and run.parts[-1].place is not None
            parent = run.parts[0].place[0]
            spans.setdefault(parent, []).append((run.parts[0].place[1], run.parts[-1].place[1] + 1, run.how))
        else:
            made.append(Planned(run.parts[0].module, run.how))
    made += [PlannedSequence(module, found) for module, found in spans.items()]
    for planned in made:
        planned.module.__dict__["forward"] = planned
    return made
