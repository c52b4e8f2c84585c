"""`switch` and `cond` in a trace: one call with a sub-graph for each branch; only the one that is chosen runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd import grad
from gradlab.autograd.base import LEAF
from gradlab.autograd.mode import current, enable_grad
from gradlab.autograd.record import wrap
from gradlab.graph.control.body_call import Keeping, Part, number, staged
from gradlab.graph.control.body_tracer import Inner
from gradlab.graph.control.forward_backward import split
from gradlab.graph.control.nesting import Unwritten, compare, specs_of, tensors_of
from gradlab.graph.control.run_again import Captured, RunAgain
from gradlab.graph.control.scanning import recorded
from gradlab.graph.staging.tree import unflatten
from gradlab.spec import Spec
from gradlab.tensor.generator import drawn

Branch = Callable[..., Any]


class Switch:
    """Runs one of several parts. Inputs: the index, then what the parts read; each part has a list of its inputs and its outputs."""

    kind = "switch"

    def __init__(self, parts: list[Part], reads: list[list[int]], writes: list[list[int]]) -> None:
        self.parts, self.reads, self.writes = parts, reads, writes
        self.bodies = parts

    def run(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the chosen part; an index outside the range chooses the nearest."""
        at = min(max(number(inputs[0]), 0), len(self.parts) - 1)
        self.parts[at].run([inputs[i] for i in self.reads[at]], [outs[i] for i in self.writes[at]])

    def __repr__(self) -> str:
        return f"<one of {', '.join(map(repr, self.parts))}>"


class _Trace:
    """One branch's one trace."""

    def __init__(self, what: str, branch: Branch, operands: list[Any], structure: Any) -> None:
        mode = current()
        self.inner = inner = Inner(mode.tracer, what)
        wanted = [mode.recording and t._edge is not None for t in operands]
        with inner.tracing():
            self.operands = [inner.entry(s, t, w) for s, t, w in zip(specs_of(operands), operands, wanted, strict=True)]
            result = branch(*unflatten(structure, self.operands))
            self.found, self.structure = tensors_of(result, f"{what}: the result of {name_of(branch)}")
            self.results = inner.results(self.found)
            self.specs = specs_of(self.found)
            self.roots: dict[int, Any] = {}
            self.gradients: dict[int, Any] = {}  # by position of the operand, or the id of the leaf
            if mode.recording:
                at = [i for i, t in enumerate(self.operands) if t._edge is LEAF]
                self.roots, found = inner.gradients(self.found, [*(self.operands[i] for i in at), *inner.leaves])
                keys = [*at, *map(id, inner.leaves)]
                self.gradients = {k: g for k, g in zip(keys, found, strict=True) if g is not None}


def name_of(branch: Branch) -> str:
    """What messages call a branch."""
    return getattr(branch, "__qualname__", None) or type(branch).__name__


def staged_switch(
    what: str, index: Any, branches: Sequence[Branch], operands: list[Any], structure: Any, names: Sequence[str],
    known: Captured | None = None,
) -> Any:  # fmt: skip
    """A choice between branches by a tensor of one element, written into the trace that is going on.

    known: where the branches run once more, what they used before.
    """
    outer = current().tracer
    traces = [_Trace(what, b, operands, structure) for b in branches]
    if known is not None:
        known.check(t.inner for t in traces)
    first = traces[0]
    way_out = "branches give the same structure, shapes and dtypes"
    for name, t in zip(names[1:], traces[1:], strict=True):
        compare(what, names[0], (first.specs, first.structure), name, (t.specs, t.structure), way_out)
    used: dict[int, Any] = {}  # tensors from outside, by id
    for t in traces:
        used.update((id(x), x) for x, _ in t.inner.captured)
    place = {key: 1 + len(operands) + i for i, key in enumerate(used)}
    inputs = [index, *operands, *used.values()]
    random, start = _draws(traces)
    inputs += start
    at = {id(g): len(inputs) - len(start) + i for i, g in enumerate(random)}
    count = len(first.results)
    plans = [_Plan(t, operands, place, at) for t in traces]
    reads = [p.reads for p in plans]
    visible = staged(Switch([p.forward(outer.device) for p in plans], reads, [[*range(count)]] * len(plans)), inputs, first.specs)
    if any(t.roots and t.gradients for t in traces):
        # What the gradients need of a branch is kept in places that the branches share.
        slots: list[Spec] = []
        for plan in plans:
            plan.halve(slots)
        writes = [[*range(count), *(count + s for s in p.slots)] for p in plans]
        keeping = Keeping(outer, Switch([p.forward(outer.device) for p in plans], reads, writes), slots)
        leaves = {id(x): x for t in traces for x in t.inner.leaves}
        fixed = [wrap(outer.lift(x._array)) for x in inputs]  # as they are now
        unwritten = Unwritten(what, [*operands, *used.values()])
        known = Captured(what, [t.inner for t in traces])
        again = _Again(what, index, [*map(RunAgain, branches)], operands, structure, names, list(leaves.values()), bool(random), known)

        def back(gradients: list[Any]) -> list[Any]:
            if current().recording:
                unwritten.check()
                return again.back(gradients)
            return _backward(plans, gradients, keeping.results(), slots, fixed, len(operands), list(leaves.values()), outer.device)

        visible = recorded(f"{what.capitalize()}Backward0", [*operands, *leaves.values()], visible, back)
    return unflatten(first.structure, visible)


def _draws(traces: list[_Trace]) -> tuple[list[Any], list[Any]]:
    """The generators from which branches draw, and their states as inputs. Each branch may use as much as the one that uses most."""
    most: dict[int, tuple[Any, int]] = {}
    for t in traces:
        for generator, _, words in t.inner.draws():
            most[id(generator)] = (generator, max(words, most.get(id(generator), (None, 0))[1]))
    states = []
    for generator, words in most.values():
        start, offset = drawn(generator, words)
        states.append(traces[0].inner.moved_on(start, offset))
    return [g for g, _ in most.values()], states


class _Plan:
    """A branch's parts: which inputs of the call they read, and where what is kept lies."""

    def __init__(self, trace: _Trace, operands: list[Any], place: dict[int, int], random: dict[int, int]) -> None:
        self.trace = trace
        inner = trace.inner
        symbols = [t._array for t in trace.operands]
        reads = [1 + i for i in range(len(operands))]
        for i, (x, s) in enumerate(inner.captured):
            if all(s is not o for _, o in inner.captured[:i]):
                symbols.append(s)
                reads.append(place[id(x)])
        for generator, state, _ in inner.draws():
            symbols.append(state)
            reads.append(random[id(generator)])
        self.inputs, self.reads = inner.values(symbols), reads
        self.calls = inner.graph.calls
        self.slots: list[int] = []
        self.kept: list[Any] = []
        self.back: list[Any] = []
        self.outputs: dict[int, Any] = {}

    def halve(self, slots: list[Spec]) -> None:
        """Split the branch's trace; what is kept goes into slots of its Spec, new ones where the others have none left."""
        inner = self.trace.inner
        self.outputs = {k: inner.value(g) for k, g in self.trace.gradients.items()}
        halves = split(inner.graph.calls, inner.values(self.trace.results), self.outputs.values(), self.inputs, [], False)
        self.calls, self.back, self.kept = halves.forward, halves.backward, halves.saved
        free = list(range(len(slots)))
        for v in self.kept:
            at = next((i for i in free if slots[i] == v.spec), None)
            if at is None:
                at = len(slots)
                slots.append(v.spec)
            else:
                free.remove(at)
            self.slots.append(at)

    def forward(self, device: Any) -> Part:
        """The branch itself."""
        return Part(self.inputs, self.calls, [*self.trace.inner.values(self.trace.results), *self.kept], device)


def _backward(
    plans: list[_Plan], gradients: list[Any], kept: list[Any], slots: list[Spec], fixed: list[Any], operands: int, leaves: list[Any],
    device: Any,
) -> list[Any]:  # fmt: skip
    """The chosen branch's gradients; zeros for what it does not use."""
    keys = [k for k in (*range(operands), *map(id, leaves)) if any(k in p.outputs for p in plans)]
    some = next(g for g in gradients if g is not None)
    specs = [next(p.outputs[k].spec for p in plans if k in p.outputs) for k in keys]
    results = plans[0].trace.specs
    asked = sorted({i for p in plans for i in p.trace.roots})
    arrived = [some.new_zeros(results[i].shape, dtype=results[i].dtype) if gradients[i] is None else gradients[i] for i in asked]
    inputs = [*fixed, *kept, *arrived]
    parts, reads = [], []
    for p in plans:
        inner = p.trace.inner
        before = len(inner.graph.calls)
        outputs = [p.outputs[k] if k in p.outputs else inner.value(inner.zeros(s)) for k, s in zip(keys, specs, strict=True)]
        roots = list(p.trace.roots.items())
        given = [*p.inputs, *p.kept, *inner.values([s for _, s in roots])]
        parts.append(Part(given, [*p.back, *inner.graph.calls[before:]], outputs, device))
        reads.append([*p.reads, *(len(fixed) + s for s in p.slots), *(len(fixed) + len(slots) + asked.index(i) for i, _ in roots)])
    outs = staged(Switch(parts, reads, [list(range(len(keys)))] * len(plans)), inputs, specs)
    found = dict(zip(keys, outs, strict=True))
    return [found.get(k) for k in (*range(operands), *map(id, leaves))]


class _Again:
    """The backward that is itself to be differentiated: a switch between the branches' gradients, computed again."""

    def __init__(
        self, what: str, index: Any, branches: Sequence[Branch], operands: list[Any], structure: Any, names: Sequence[str],
        leaves: list[Any], draws: bool, known: Captured,
    ) -> None:  # fmt: skip
        self.what, self.index, self.branches, self.operands, self.structure = what, index, branches, list(operands), structure
        self.names, self.leaves, self.draws, self.known = names, leaves, draws, known

    def back(self, gradients: list[Any]) -> list[Any]:
        """The gradients of operands and leaves, differentiable again."""
        if self.draws:
            raise RuntimeError(
                f"{self.what}: gradients of gradients through a branch that draws random numbers would draw others; draw the numbers "
                f"outside and pass them as operands"
            )
        count = len(self.operands)
        wanted = [i for i, t in enumerate(self.operands) if t._edge is not None]
        arrived = [(i, g) for i, g in enumerate(gradients) if g is not None]

        def gradient_of(branch: Branch) -> Branch:
            def gradient(*given: Any) -> Any:
                inputs = list(given[:count])
                with enable_grad():
                    results = tensors_of(branch(*unflatten(self.structure, inputs)), self.what)[0]
                    pairs = [(results[i], g) for (i, _), g in zip(arrived, given[count:], strict=True) if results[i]._edge is not None]
                    targets = [*(inputs[i] for i in wanted), *self.leaves]
                    found: list[Any] = [None] * len(targets)
                    if pairs:
                        found = list(
                            grad([t for t, _ in pairs], targets, [g for _, g in pairs], create_graph=True, allow_unused=True)
                        )
                return tuple(t.new_zeros(t.shape, dtype=t.dtype) if g is None else g for t, g in zip(targets, found, strict=True))

            return gradient

        flat = [*self.operands, *(g for _, g in arrived)]
        found = staged_switch(
            self.what, self.index, [gradient_of(b) for b in self.branches], flat, (tuple, ("tensor",) * len(flat)),
            [f"the gradient of {n}" for n in self.names], self.known,
        )  # fmt: skip
        result: list[Any] = [None] * count
        for i, g in zip(wanted, found, strict=False):
            result[i] = g
        return [*result, *found[len(wanted) :]]
