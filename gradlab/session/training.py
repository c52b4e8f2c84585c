"""Training steps of a graph: `Optimizer.minimize` as an operation, with the optimizer's buffers as variables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab.autograd import grad
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current, enter, leave, no_grad
from gradlab.autograd.record import wrap
from gradlab.graph.ir.graph import Graph as Program, Value, leading_to
from gradlab.graph.staging.symbol import Symbol
from gradlab.session.nodes import Operation, Option, State, Update, here
from gradlab.tensor import Tensor

if TYPE_CHECKING:
    from gradlab.session.graph import Graph


class Training:
    """The part of the tracer that makes training steps."""

    owner: Graph
    graph: Program
    updates: list[Update]
    group: list[Update] | None
    names: dict[int, str]
    consumed: set[int]  # values that some call reads
    placeholders: dict[int, Any]
    hyper: dict[Any, tuple[dict[str, Any], tuple[Any, ...], Any]]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first_values: dict[int, Any] = {}  # id of a tensor that is no variable -> what it held before it was written
        self._slots: dict[int, tuple[Any, dict[Any, dict[str, Any]]]] = {}  # of each optimizer: parameter -> buffers by name

    def minimize(self, optimizer: Any, loss: Any) -> Operation:
        """The operation that makes one step down the gradient of the loss."""
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"minimize: the loss is a tensor of one element, not {shape}; take its mean() or sum()")
        params = [p for group in optimizer.param_groups for p in group["params"] if p._edge is LEAF]
        if loss._edge is None or not params:
            raise ValueError("minimize: the loss does not depend on any parameter of the optimizer that requires grad")
        gradients = grad(loss.sum() if loss.dim() else loss, params, retain_graph=True, allow_unused=True)
        pairs = [(g, p) for g, p in zip(gradients, params, strict=True) if g is not None]
        if not pairs:
            raise ValueError("minimize: the loss does not depend on any parameter of the optimizer")
        operation = self.apply_gradients(optimizer, pairs, "minimize")
        operation.updates = self._of_modules([loss, *(g for g, _ in pairs)]) + operation.updates
        return operation

    def apply_gradients(self, optimizer: Any, pairs: Sequence[tuple[Any, Any]], name: str = "apply_gradients") -> Operation:
        """The operation that makes one step with these (gradient, parameter) pairs."""
        if not pairs:
            raise ValueError("apply_gradients: no (gradient, parameter) pairs")
        params = [p for group in optimizer.param_groups for p in group["params"]]
        before = [(p, p._grad) for p in params]
        own, mode = optimizer.state, current()
        _, known = self._slots.setdefault(id(optimizer), (optimizer, {}))
        token = enter(mode.replace(scope=None))
        try:
            for p in params:
                p._grad = None
            for g, p in pairs:
                if all(p is not q for q in params):
                    raise ValueError(f"apply_gradients: a tensor of shape {tuple(p.shape)} is no parameter of this optimizer")
                p._grad = g
            made: list[Update] = []
            late: list[tuple[Any, Any]] = []
            if any(p not in known for _, p in pairs):
                late = self._make_slots(optimizer, [p for _, p in pairs if p not in known], own, known)
            optimizer.state = defaultdict(dict, {p: dict(slots) for p, slots in known.items()})
            self.group = made
            optimizer.step()
            for started, earlier in late:
                self._first_time(made, started, earlier)
        finally:
            leave(token)
            self.group = None
            optimizer.state = own
            for p, g in before:
                p._grad = g
        return Operation(self.owner, self.owner.unique(name), here(), made, options=self._options(optimizer))

    def _options(self, optimizer: Any) -> list[Option]:
        """The options of an optimizer that are not read anew at each run."""
        found: list[Option] = []
        for group in optimizer.param_groups:
            read = {n if type(n) is str else n[0] for g, names, _ in self.hyper.values() if g is group for n in names}
            keys = [k for k in optimizer.defaults if k not in optimizer.unread and (k not in read or k in optimizer.decisive)]
            found += [Option(type(optimizer).__name__, group, k, group[k], k in read) for k in keys if k in group]
        return found

    def _make_slots(self, optimizer: Any, params: list[Any], own: Any, known: dict[Any, dict[str, Any]]) -> list[tuple[Any, Any]]:
        """Make the optimizer's buffers variables, by a step whose updates nobody runs.

        Where a first step differs from later ones in more than zeros in its buffers, the first updates are returned, with the variable that
        says whether they have been made.
        """
        calls, updates, mark = self.graph.calls, len(self.updates), len(self.graph.calls)
        counts, consumed = dict(self.owner._counts), set(self.consumed)
        optimizer.state = state = defaultdict(dict, {p: dict(own.get(p, {})) for p in params})
        self.first_values.clear()
        first: list[Update] = []
        self.group = first
        hooked = type(optimizer).step
        getattr(hooked, "__wrapped__", hooked)(optimizer)
        del self.updates[updates:]
        self.group = None
        delayed = False
        starts: list[Any] = []
        made: list[tuple[Any, str, Any]] = []
        for p in params:
            known[p] = {}
            for name, t in state[p].items():
                if isinstance(t, Differentiable) and type(t._array) is Symbol and self.state_of(t) is None:  # type: ignore[attr-defined]
                    start = self.first_values.get(id(t))
                    if start is None:  # not made beforehand: it is the first step's result
                        delayed = True
                    made.append((p, name, t))
                    starts.append(start)
                known[p][name] = t
        exact = delayed and any(group.get("dampening") for group in optimizer.param_groups)
        if not exact:
            wanted = leading_to(calls[mark:], [self.value(s) for s in starts if s is not None])  # type: ignore[attr-defined]
            calls[mark:] = [c for c in calls[mark:] if id(c) in wanted]
            self.owner._counts, self.consumed = counts, consumed
            for call in calls[mark:]:
                self.named(call)  # type: ignore[attr-defined]
        for (p, name, t), start in zip(made, starts, strict=True):
            twin = wrap(t._array if start is None else start)
            if start is None:
                twin._array = t.new_zeros(t.shape)._array
            parent: State | None = self.state_of(p)  # type: ignore[attr-defined]
            title = f"{'' if parent is None else parent.name}/{type(optimizer).__name__}/{name}"
            self.variable(twin, title, False, True)  # type: ignore[attr-defined]
            known[p][name] = twin
        if not exact:
            return []
        started = wrap(params[0].new_zeros((), dtype=bool)._array)
        self.variable(started, f"{type(optimizer).__name__}/started", False, True)  # type: ignore[attr-defined]
        return [(started, {**{id(u.state): u for u in first}, **{id(self.state_of(known[p][n])): t for p, n, t in made}})]  # type: ignore[attr-defined]

    def _first_time(self, made: list[Update], started: Any, earlier: dict[int, Any]) -> None:
        """Let updates be those of a first step until that has been made."""
        with no_grad():
            for u in made:
                first = earlier.get(id(u.state))
                if first is not None:
                    before = self._tensor(first.new.id) if isinstance(first, Update) else first
                    u.new = self.value(self._tensor(u.new.id).where(started, before)._array)  # type: ignore[attr-defined]
                    u.at = len(self.graph.calls)
            self.write(started, started.logical_not().logical_or(started)._array)  # type: ignore[attr-defined]

    def _tensor(self, number: int) -> Any:
        value = self._values[number]  # type: ignore[attr-defined]
        return wrap(Symbol(number, value.spec, self))  # type: ignore[arg-type]

    # ------------------------------------------------------------ what modules write

    def _of_modules(self, ends: Sequence[Any]) -> list[Update]:
        """The updates that the module calls behind these values made: batch norm's statistics."""
        calls = self.graph.calls
        states = self.of_value  # type: ignore[attr-defined]
        wanted = {t._array.id for t in ends}
        scopes: set[int] = set()
        for call in reversed(calls):
            if any(v.id in wanted for v in call.outputs):
                if call.position[2] is not None:
                    scopes.add(id(call.position[2]))
                wanted.update(x.id for x in call.inputs if isinstance(x, Value) and states(x.id) is None)
        return [u for u in self.updates if u.place[2] is not None and id(u.place[2]) in scopes]
