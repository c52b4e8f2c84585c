"""`scan` in a trace: one call whose body is traced once, and its gradient, a scan in the other direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.autograd import grad
from gradlab.autograd.base import LEAF
from gradlab.autograd.mode import current, enable_grad
from gradlab.autograd.record import wrap
from gradlab.dtype import FLOATING
from gradlab.graph.control.body_call import Keeping, Part, dense, like, staged
from gradlab.graph.control.body_tracer import Inner
from gradlab.graph.control.forward_backward import products, split
from gradlab.graph.control.nesting import Unwritten, compare, specs_of, tensors_of
from gradlab.graph.control.run_again import Captured, RunAgain
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.staging.tree import unflatten
from gradlab.nn.multi_output_node import joined
from gradlab.spec import Spec
from gradlab.tensor.generator import drawn

Combine = Callable[[Any, Any], tuple[Any, Any]]


class Scan:
    """Runs a body `length` times. Inputs: carry, stacked inputs, constants; outputs: last carry, stacked results.

    Carries lie in two buffers that change places, stacked inputs are read and stacked results written where they are.
    """

    kind = "scan"

    def __init__(self, body: Part, carries: int, stacked: int, length: int, reverse: bool) -> None:
        self.body, self.carries, self.stacked, self.length, self.reverse = body, carries, stacked, length, reverse
        self.bodies = (body,)

    def run(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the loop."""
        c = self.carries
        state, steps = list(inputs[:c]), inputs[c : c + self.stacked]
        fixed = [dense(a) for a in inputs[c + self.stacked :]]
        last, results = list(outs[:c]), outs[c:]
        pairs = [like(a, 2) for a in state] if self.length > 1 else []
        spare = ([p[0] for p in pairs], [p[1] for p in pairs])
        run = self.body.run
        for turn in range(self.length):
            at = (self.length - 1 - turn if self.reverse else turn, ...)
            target = last if turn == self.length - 1 else spare[turn & 1]
            run([*state, *[x[at] for x in steps], *fixed], [*target, *[y[at] for y in results]])
            state = target

    def __repr__(self) -> str:
        return f"<{self.length} times{' in reverse' if self.reverse else ''}: {len(self.body.source.calls)} calls>"


class _Trace:
    """A body's one trace."""

    def __init__(self, combine: Combine, init: list[Any], init_structure: Any, xs: list[Any], xs_structure: Any) -> None:
        mode = current()
        self.inner = inner = Inner(mode.tracer, "scan")
        record = mode.recording
        wanted = [record and x._edge is not None for x in xs]
        with inner.tracing():
            self.carry = [inner.entry(s, t, record) for s, t in zip(specs_of(init), init, strict=True)]
            self.step = [inner.entry(Spec(s.shape[1:], s.dtype), x, w) for s, x, w in zip(specs_of(xs), xs, wanted, strict=True)]
            result = combine(unflatten(init_structure, self.carry), unflatten(xs_structure, self.step))
            after, ys, self.structure = checked(result, specs_of(init), init_structure)
            self.ys = ys
            found = [*after, *ys]
            self.results = inner.results(found)
            self.differentiable = record and (any(t._edge is not None for t in (*init, *xs)) or bool(inner.leaves))
            self.roots: dict[int, Any] = {}
            self.carry_gradients: list[Any] = []
            self.step_gradients: list[Any] = []
            self.leaf_gradients: list[Any] = []
            if self.differentiable:
                carry = [t for t in self.carry if t._edge is LEAF]
                step = [t for t in self.step if t._edge is LEAF]
                self.roots, gradients = inner.gradients(found, [*carry, *step, *inner.leaves])
                self.carry_gradients = gradients[: len(carry)]
                self.step_gradients = gradients[len(carry) : len(carry) + len(step)]
                self.leaf_gradients = gradients[len(carry) + len(step) :]
                self.differentiable = bool(self.roots)


def checked(result: Any, specs: Sequence[Spec], structure: Any) -> tuple[list[Any], list[Any], Any]:
    """What combine_fn returned: carry, outputs, the outputs' structure."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"scan: combine_fn returns a pair (carry, output), not {type(result).__name__}; the output may be None")
    after, after_structure = tensors_of(result[0], "scan: the carry that combine_fn returns")
    way_out = "the carry keeps its structure, shapes and dtypes: cast or pad init or the result"
    compare("scan", "init", (specs, structure), "the carry that combine_fn returns", (specs_of(after), after_structure), way_out)
    ys, ys_structure = tensors_of(result[1], "scan: the output that combine_fn returns")
    return after, ys, ys_structure


def staged_scan(
    combine: Combine, init: list[Any], init_structure: Any, xs: list[Any], xs_structure: Any, length: int, reverse: bool, recompute: bool,
    known: Captured | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """A scan over tensors whose first dimension is the one that is scanned, written into the trace that is going on.

    known: where the body runs once more, what it used before.
    """
    outer = current().tracer
    trace = _Trace(combine, init, init_structure, xs, xs_structure)
    inner = trace.inner
    if known is not None:
        known.check([inner])
    carry_in = [t._array for t in trace.carry]
    first, after, ys = list(init), trace.results[: len(init)], trace.results[len(init) :]
    draws = inner.draws()
    for generator, state, words in draws:  # the random state is carried, and moves on by what one run of the body draws
        carry_in.append(state)
        with inner.quiet():
            after.append(inner.lift(inner.moved_on(wrap(state), words)._array))
        start, offset = drawn(generator, words * length)
        first.append(inner.moved_on(start, offset))
    consts = [(t, s) for i, (t, s) in enumerate(inner.captured) if all(s is not o for _, o in inner.captured[:i])]
    values = inner.values
    backward = _backward_part(trace, carry_in, [*after, *ys], draws, consts, recompute) if trace.differentiable else None
    arguments = [*values(carry_in), *values([t._array for t in trace.step]), *values([s for _, s in consts])]
    results = [*values(after), *values(ys)]

    def flow(calls: Sequence[Call], extra: list[Value]) -> Scan:
        return Scan(Part(arguments, calls, [*results, *extra], outer.device), len(first), len(xs), length, reverse)

    def stacks(some: list[Value]) -> list[Spec]:
        return [Spec((length, *v.spec.shape), v.spec.dtype) for v in some]

    specs = [*(Spec(s.shape, s.dtype) for s in after), *stacks(values(ys))]
    outs = staged(flow(list(inner.graph.calls), []), [*first, *xs, *(t for t, _ in consts)], specs)
    visible = [*outs[: len(init)], *outs[len(first) :]]
    if backward is not None:
        stacked = outs[len(first) :]
        keeping = Keeping(outer, flow(backward.forward, backward.stacked), stacks(backward.stacked))
        inputs = [*init, *xs, *inner.leaves]
        known = Captured("scan", [inner])
        again = _Again(RunAgain(combine), init_structure, xs_structure, list(init), list(xs), reverse, bool(draws), inner.leaves, known)
        fixed = [wrap(outer.lift(x._array)) for x in (*xs, *(t for t, _ in consts))]  # as they are now
        unwritten = Unwritten("scan", [*init, *xs, *(t for t, _ in consts)])

        def back(gradients: list[Any]) -> list[Any]:
            if current().recording:
                unwritten.check()
                return again.back(gradients)
            return backward.apply(gradients, [*stacked, *keeping.results()], fixed, length, reverse, outer.device)

        visible = recorded("ScanBackward0", inputs, visible, back)
    return unflatten(init_structure, visible[: len(init)]), unflatten(trace.structure, visible[len(init) :])


def recorded(title: str, inputs: Sequence[Any], outs: Sequence[Any], back: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The results in the autograd graph, as outputs of one node."""
    found = joined(title, inputs, [t._array for t in outs], back)
    for t in found:
        if t._array.dtype not in FLOATING:
            t._edge = None
    return found


class _Backward(NamedTuple):
    """forward: the calls of the forward. stacked: what it keeps for each step. apply: from gradients and what was kept to gradients."""

    forward: list[Call]
    stacked: list[Value]
    apply: Callable[..., list[Any]]


def _backward_part(trace: _Trace, carry_in: list[Any], results: list[Any], draws: Any, consts: Any, recompute: bool) -> _Backward:
    inner = trace.inner
    value, values = inner.value, inner.values
    count = len(trace.carry)
    carries = [i for i, t in enumerate(trace.carry) if t._edge is LEAF]
    steps = [i for i, t in enumerate(trace.step) if t._edge is LEAF]
    # A sum over the steps of products of matrices is one product of what is stacked; other sums are carried.
    constants = values([s for _, s in consts])
    found = {i: products(inner.graph.calls, value(g), constants) for i, g in enumerate(trace.leaf_gradients) if g is not None}
    multiplied = {i: pairs for i, pairs in found.items() if pairs}
    leaves = [i for i in found if i not in multiplied]
    # What the loop carries: the gradients of the carry, and the sums of the leaves' gradients.
    arriving = [trace.roots[i] if i in trace.roots else inner.twin(carry_in[i]) for i in carries]
    sums = [inner.twin(trace.leaf_gradients[i]) for i in leaves]
    leaving = [g if g is not None else inner.zeros(Spec(carry_in[i].shape, carry_in[i].dtype))
               for i, g in zip(carries, trace.carry_gradients, strict=True)]  # fmt: skip
    with inner.quiet():
        totals = [inner.lift((wrap(s) + wrap(trace.leaf_gradients[i]))._array) for s, i in zip(sums, leaves, strict=True)]
    given = [(n, g) for n, g in enumerate(trace.step_gradients) if g is not None]
    outputs = [*values(leaving), *values(totals), *values([g for _, g in given])]
    factors = {v.id: v for pairs in multiplied.values() for pair in pairs for v in pair}
    halves = split(inner.graph.calls, values(results), [*outputs, *factors.values()], constants, values(carry_in), recompute)
    # Of the outputs of the forward, those that were kept already are not kept twice.
    total = count + len(draws)
    ys = [v.id for v in values(results[total:])]
    stacked = [v for v in halves.saved if v.id not in ys]
    place = {n: i for i, n in reversed(list(enumerate(ys)))} | {v.id: len(ys) + i for i, v in enumerate(stacked)}
    roots = {i - count: s for i, s in trace.roots.items() if i >= count}
    step_values = values([t._array for t in trace.step])
    used_steps = [i for i, v in enumerate(step_values) if v.id in halves.used]
    used_consts = [i for i, v in enumerate(constants) if v.id in halves.used]
    inputs = [
        *values(arriving), *values(sums), *values(list(roots.values())), *halves.saved,
        *(step_values[i] for i in used_steps), *(constants[i] for i in used_consts),
    ]  # fmt: skip
    part: list[Part] = []
    specs_leaf = [s.spec for s in values(sums)]
    n_steps = len(step_values)
    loop = len(arriving) + len(sums)
    outputs += [v for v in factors.values() if v.id not in place and v.id not in {o.id for o in (*outputs[loop:], *step_values)}]

    def build(gradients: list[Any], history: list[Any], fixed: list[Any], length: int, reverse: bool, device: Any) -> list[Any]:
        if not part:
            part.append(Part(inputs, halves.backward, outputs, device))
        some = next(g for g in gradients if g is not None)

        def zeros(spec: Spec) -> Any:
            return some.new_zeros(spec.shape, dtype=spec.dtype)

        starts = [zeros(value(carry_in[i]).spec) if gradients[i] is None else gradients[i] for i in carries]
        arrived = [
            zeros(Spec((length, *s.shape), s.dtype)) if gradients[count + i] is None else gradients[count + i] for i, s in roots.items()
        ]
        kept = [history[place[v.id]] for v in halves.saved]
        stacks = [*arrived, *kept, *(fixed[i] for i in used_steps)]
        flow = Scan(part[0], loop, len(stacks), length, not reverse)
        specs = [v.spec for v in outputs[:loop]] + [Spec((length, *v.spec.shape), v.spec.dtype) for v in outputs[loop:]]
        outs = staged(flow, [*starts, *map(zeros, specs_leaf), *stacks, *(fixed[n_steps + i] for i in used_consts)], specs)
        waiting = iter(outs)
        result: list[Any] = [None] * (count + n_steps + len(trace.leaf_gradients))
        for i in (*carries, *(count + n_steps + i for i in leaves), *(count + steps[n] for n, _ in given)):
            result[i] = next(waiting)
        stacks_of = {v.id: t for v, t in zip(step_values, fixed)} | {n: history[i] for n, i in place.items()}
        stacks_of |= {v.id: t for v, t in zip(outputs[loop:], outs[loop:], strict=True)}
        for i, pairs in multiplied.items():
            terms = [stacks_of[a.id].flatten(0, 1).t() @ stacks_of[b.id].flatten(0, 1) for a, b in pairs]
            result[count + n_steps + i] = sum(terms[1:], terms[0])
        return result

    return _Backward(halves.forward, stacked, build)


class _Again:
    """The backward of a scan that is itself to be differentiated: a scan that runs combine_fn and its gradient again."""

    def __init__(
        self, combine: Combine, init_structure: Any, xs_structure: Any, init: list[Any], xs: list[Any], reverse: bool, draws: bool,
        leaves: list[Any], known: Captured,
    ) -> None:  # fmt: skip
        self.combine, self.init_structure, self.xs_structure = combine, init_structure, xs_structure
        self.init, self.xs, self.reverse, self.draws, self.leaves, self.known = init, xs, reverse, draws, list(leaves), known

    def back(self, gradients: list[Any]) -> list[Any]:
        """The gradients of init, xs and leaves, differentiable again."""
        if self.draws:
            raise RuntimeError(
                "scan: gradients of gradients through a body that draws random numbers would draw others; draw the numbers before the scan "
                "and pass them in xs"
            )
        combine, init_structure, xs_structure = self.combine, self.init_structure, self.xs_structure
        c, x = len(self.init), len(self.xs)
        length = self.xs[0]._array.shape[0]
        flat = (tuple, ("tensor",) * c)

        def states(carry: Any, step: Any) -> Any:
            return tensors_of(combine(carry, step)[0], "scan")[0], tensors_of(carry, "scan")[0]

        def rearranged(carry: Any, step: Any) -> Any:
            after, before = states(unflatten(init_structure, list(carry)), step)
            return tuple(after), tuple(before)

        _, history = staged_scan(rearranged, self.init, flat, self.xs, xs_structure, length, self.reverse, False, self.known)
        some = next(g for g in gradients if g is not None)
        floats = [i for i, t in enumerate(self.init) if t._array.dtype in FLOATING]
        starts = [some.new_zeros(self.init[i].shape, dtype=self.init[i].dtype) if gradients[i] is None else gradients[i] for i in floats]
        arrived = [(i - c, g) for i, g in enumerate(gradients) if i >= c and g is not None]
        sums = [some.new_zeros(t.shape, dtype=t.dtype) for t in self.leaves]
        wanted = [i for i, t in enumerate(self.xs) if t._edge is not None]

        def gradient(carry: Any, step: Any) -> Any:
            given, totals = carry[: len(floats)], carry[len(floats) :]
            before, inputs, outputs = step[:c], step[c : c + x], step[c + x :]
            with enable_grad():
                after, ys = combine(unflatten(init_structure, list(before)), unflatten(xs_structure, list(inputs)))
                ends = tensors_of(after, "scan")[0]
                results = tensors_of(ys, "scan")[0]
                pairs = [(ends[i], g) for i, g in zip(floats, given, strict=True)]
                pairs += [(results[i], g) for (i, _), g in zip(arrived, outputs, strict=True)]
                pairs = [(t, g) for t, g in pairs if t._edge is not None]
                targets = [*(before[i] for i in floats), *(inputs[i] for i in wanted), *self.leaves]
                asked = [t for t in targets if t._edge is not None]
                found = iter(grad([t for t, _ in pairs], asked, [g for _, g in pairs], create_graph=True, allow_unused=True))
            raw = [next(found) if t._edge is not None else None for t in targets]
            full = [t.new_zeros(t.shape, dtype=t.dtype) if g is None else g for t, g in zip(targets, raw, strict=True)]
            n = len(floats)
            more = [s + g for s, g in zip(totals, full[n + len(wanted) :], strict=True)]
            return (*full[:n], *more), tuple(full[n : n + len(wanted)])

        stacks = [*history, *self.xs, *(g for _, g in arrived)]
        carry = [*starts, *sums]
        last, stacked = staged_scan(
            gradient, carry, (tuple, ("tensor",) * len(carry)), stacks, (tuple, ("tensor",) * len(stacks)), length, not self.reverse, False,
            self.known,
        )  # fmt: skip
        result: list[Any] = [None] * (c + x + len(self.leaves))
        for i, g in zip(floats, last, strict=False):
            result[i] = g
        for i, g in zip(wanted, stacked, strict=True):
            result[c + i] = g
        result[c + x :] = last[len(floats) :]
        return result


__all__ = ["Scan", "checked", "recorded", "staged_scan"]
