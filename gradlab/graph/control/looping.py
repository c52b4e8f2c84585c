"""`while_loop` in a trace: one call with a sub-graph for the condition and one for the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.mode import current
from gradlab.dtype import BOOL
from gradlab.graph.control.body_call import Part, copy, dense, like, number, staged
from gradlab.graph.control.body_tracer import Inner
from gradlab.graph.control.nesting import compare, specs_of, tensors_of
from gradlab.graph.control.scanning import recorded
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import unflatten

NO_GRADIENT = (
    "while_loop: a loop of unknown length keeps nothing for a backward; use scan with the largest number of steps and "
    "where(done, old, new) in its body, or call while_loop under no_grad"
)


class While:
    """Runs a body as long as a condition holds. Inputs: carry, what the condition reads, what the body reads; outputs: the last carry."""

    kind = "while_loop"

    def __init__(self, condition: Part, body: Part, carries: int, constants: int) -> None:
        self.condition, self.body, self.carries, self.constants = condition, body, carries, constants
        self.bodies = (condition, body)

    def run(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the loop. On a GPU the host waits for each condition's value."""
        c = self.carries
        state: list[Any] = list(inputs[:c])
        fixed = [dense(a) for a in inputs[c:]]
        asked, used = fixed[: self.constants], fixed[self.constants :]
        flag = np.empty((), BOOL) if type(outs[0]) is np.ndarray else self._flag(outs[0])
        pairs: list[list[Any]] = []
        turn = 0
        while True:
            self.condition.run([*state, *asked], [flag])
            if not number(flag):
                break
            pairs = pairs or [like(a, 2) for a in outs]
            turn += 1
            target = [p[turn & 1] for p in pairs]
            self.body.run([*state, *used], target)
            state = target
        for target, source in zip(outs, state, strict=True):
            copy(target, source)

    def _flag(self, array: Any) -> Any:
        backend = dispatch.backend_of(array)
        return backend.from_numpy(np.zeros((), BOOL), backend.device_of(array))

    def __repr__(self) -> str:
        return f"<while {self.condition!r}: {self.body!r}>"


def staged_while(condition: Callable[..., Any], body: Callable[..., Any], carried: list[Any], structure: Any) -> Any:
    """A loop over tensors, written into the trace that is going on."""
    mode = current()
    specs = specs_of(carried)
    record = mode.recording
    asks, does = Inner(mode.tracer, "while_loop"), Inner(mode.tracer, "while_loop")
    with asks.tracing(), asks.quiet():
        entered = [asks.entry(s, t, False) for s, t in zip(specs, carried, strict=True)]
        flag = single("cond_fn returns", condition(*unflatten(structure, entered)))
        (decision,) = asks.results([flag.to(BOOL)])
    with does.tracing():
        carry = [does.entry(s, t, record) for s, t in zip(specs, carried, strict=True)]
        after, after_structure = tensors_of(body(*unflatten(structure, carry)), "while_loop: what body_fn returns")
        compare("while_loop", "carried", (specs, structure), "the result of body_fn", (specs_of(after), after_structure), WAY_OUT)
        results = does.results(after)
    if asks.draws() or does.draws():
        raise TraceError(
            "while_loop: in a trace its functions cannot draw random numbers, because how many is not known; draw outside of the loop, or "
            "use scan"
        )
    parts = []
    inputs: list[Any] = [*carried]
    constants = 0
    for inner, twins, ends in ((asks, entered, [decision]), (does, carry, results)):
        used = [(t, s) for i, (t, s) in enumerate(inner.captured) if all(s is not o for _, o in inner.captured[:i])]
        values = inner.values([*(t._array for t in twins), *(s for _, s in used)])
        parts.append(Part(values, inner.graph.calls, inner.values(ends), mode.tracer.device))
        inputs += [t for t, _ in used]
        constants = constants or (len(used) if inner is asks else 0)
    outs = staged(While(parts[0], parts[1], len(carried), constants), inputs, specs)
    sources = [*carried, *does.leaves]
    if record and any(t._edge is not None for t in sources):

        def back(_: list[Any]) -> list[Any]:
            raise RuntimeError(NO_GRADIENT)

        outs = recorded("WhileLoopBackward0", sources, outs, back)
    return unflatten(structure, outs)


WAY_OUT = "the carry keeps its structure, shapes and dtypes: cast or pad what differs"


def single(what: str, value: Any) -> Any:
    """A tensor of one element. TypeError or ValueError otherwise."""
    if not hasattr(value, "_array"):
        raise TypeError(f"while_loop: {what} a {type(value).__name__}; in a trace it is a tensor of one element, computed from the carry")
    if value.numel() != 1:
        raise ValueError(f"while_loop: {what} a tensor of shape {tuple(value.shape)}; the condition is one truth value: use all() or any()")
    return value
