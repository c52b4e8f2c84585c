"""One walk over the graph: what it has to reach, what waits for which node, whose hooks run.

A node's sequence number is larger than those of everything it was computed from, so when a node's turn comes, its gradient is complete.
A lone successor stays out of the heap. Leaf gradients are collected; `engine` stores them after the walk.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import ReferenceType

from gradlab.autograd.base import LEAF, Differentiable, Place
from gradlab.autograd.hooks import Adding, Sight, checked, replaced
from gradlab.autograd.mode import current, users_code
from gradlab.autograd.node import SPENT, AccumulateGrad, Node
from gradlab.autograd.rounding import Sum
from gradlab.dtype import HALF

Target = Any  # a Node, an Edge or a leaf


class Goals:
    """What a walk to chosen inputs has to reach.

    wanted    the nodes from which an input can be reached, and the leaves asked for
    captures  for the node of each input that is not a leaf: output index -> gradient found
    ends      those of them that need not run, since no other input lies behind, or is not asked for
    """

    __slots__ = ("captures", "ends", "wanted")

    def __init__(self, inputs: Sequence[Differentiable], roots: list[Target], stops: frozenset[Any] = frozenset()) -> None:
        """stops: nodes of inputs at which the walk ends in any case."""
        self.wanted: set[Any] = {x if x._edge is LEAF else x._edge.node for x in inputs}
        self.captures: dict[Any, dict[int, Any]] = {}
        for x in inputs:
            if x._edge is not LEAF:
                self.captures.setdefault(x._edge.node, {})[x._edge.index] = None
        self.ends = set(self.captures)
        for node in reversed(reachable(roots)):
            if node in stops:
                continue
            if any(e is not None and (e if isinstance(e, Differentiable) else e.node) in self.wanted for e in node.edges):
                self.wanted.add(node)
                self.ends.discard(node)

    def gradient_of(self, tensor: Any, leaves: dict[Any, Any]) -> Any:
        """The gradient found for one of the inputs, or None."""
        return leaves.get(tensor) if tensor._edge is LEAF else self.captures[tensor._edge.node][tensor._edge.index]


def reachable(roots: list[Target]) -> list[Any]:
    """Every node of the graph behind the roots, newest first."""
    seen: set[Any] = set()
    stack = [r.node for r in roots if not isinstance(r, Differentiable)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(e.node for e in node.edges if e is not None and not isinstance(e, Differentiable))
    return sorted(seen, key=lambda node: -node.seq)


walk_now: ContextVar[Any] = ContextVar("gradlab_walk", default=None)  # the backward pass that is running in this thread


class Watcher(Protocol):
    """Who takes part in backward passes while they go on: `DistributedDataParallel`, whose gradients travel meanwhile."""

    def begin(self, leaves: Container[Any]) -> Iterable[Any]:
        """A pass begins that will reach these leaves. Returns those of them to be told of; none: it takes no part in this pass."""

    def ready(self, leaf: Any) -> None:
        """The leaf's gradient is complete, and in its `.grad`."""

    def end(self) -> None:
        """All gradients are."""

    def failed(self) -> None:
        """The pass ended with an error."""


watchers: list[ReferenceType[Watcher]] = []  # in the order in which they were made, which is the same in all processes


class Walk:
    """The state of one backward pass."""

    early: dict[Any, list[tuple[Any, Watcher]]] | None = None  # by the last node that leads to them: leaves that somebody waits for
    keep: Callable[[Any], None]  # puts a leaf's gradient into its `.grad`

    place: Place | None = None  # of the user's call, once it was asked for

    def __init__(self, retain: bool, goals: Goals | None) -> None:
        self.retain = retain
        self.goals = goals
        self.wanted = None if goals is None else goals.wanted
        self.node: Any = None  # whose turn it was when an error came
        self.leaves: dict[Any, Any] = {}
        self.grads: dict[Any, Any] = {}
        self.heap: list[tuple[int, Any]] = []
        self.roots: list[Target] = []
        self.sums = False  # whether there is a Sum among what waits

    def reaches(self, edges: Sequence[Any]) -> list[bool]:
        """Whether this walk computes a gradient for each of these GradientEdges."""
        targets = [e.node.variable if isinstance(e.node, AccumulateGrad) else e.node for e in edges]
        found = self.wanted
        if found is None:
            found = {r for r in self.roots if isinstance(r, Differentiable)}
            for node in reachable(self.roots):
                found.add(node)
                found.update(e for e in node.edges if isinstance(e, Differentiable))
        return [t in found for t in targets]

    def deliver(self, target: Target, gradient: Any) -> None:
        """Add a gradient to what waits for a node or a leaf."""
        if isinstance(target, Differentiable):
            if self.wanted is None or target in self.wanted:
                old = self.leaves.get(target)
                if old is not None:
                    gradient = old + gradient if type(old) is Sum or old._array.dtype not in HALF else self.half(old, gradient)
                self.leaves[target] = gradient
            return
        node = target.node
        if self.wanted is not None and node not in self.wanted:
            return
        if node.count > 1:
            waiting = self.grads.get(node)
            if waiting is None:
                waiting = self.grads[node] = [None] * node.count
                heapq.heappush(self.heap, (-node.seq, node))
            old = waiting[target.index]
            if old is not None:
                gradient = old + gradient if type(old) is Sum or old._array.dtype not in HALF else self.half(old, gradient)
            waiting[target.index] = gradient
        else:
            old = self.grads.get(node)
            if old is None:
                heapq.heappush(self.heap, (-node.seq, node))
            else:
                gradient = old + gradient if type(old) is Sum or old._array.dtype not in HALF else self.half(old, gradient)
            self.grads[node] = gradient

    def half(self, old: Any, gradient: Any) -> Sum:
        """Two gradients of a half tensor as a Sum, which stays open for more."""
        self.sums = True
        return Sum(old, gradient)

    def watched(self, keep: Callable[[Any], None]) -> list[Watcher]:
        """Ask the watchers which leaves they wait for. Returns those who take part."""
        last: dict[Any, Any] = {}
        ends = () if self.goals is None else self.goals.ends
        for node in reachable(self.roots):
            if (self.wanted is None or node in self.wanted) and node not in ends:  # newest first: a leaf's last node stays
                last.update((e, node) for e in node.edges if isinstance(e, Differentiable) and (self.wanted is None or e in self.wanted))
        found, self.early, self.keep = [], {}, keep
        for reference in list(watchers):
            watcher = reference()
            if watcher is None:
                watchers.remove(reference)
            elif told := list(watcher.begin(last)):
                found.append(watcher)
                for leaf in told:
                    self.early.setdefault(last[leaf], []).append((leaf, watcher))
        return found

    def tell(self, ready: list[tuple[Any, Watcher]]) -> None:
        """Leaves whose gradients are complete before the pass ends."""
        for leaf, watcher in ready:
            if leaf in self.leaves:
                self.leaves[leaf] = _complete(self.leaves[leaf])
                self.keep(leaf)
            watcher.ready(leaf)

    def run(self) -> None:
        """Until no node waits."""
        heap, grads, leaves, wanted, goals, retain = self.heap, self.grads, self.leaves, self.wanted, self.goals, self.retain
        pop, deliver, half, early = heapq.heappop, self.deliver, self.half, self.early
        waiting: Any = None
        mode = current()
        observer = mode.observer if mode.tracer is None else mode.tracer
        try:
            while heap:
                node = pop(heap)[1]
                gradient = grads.pop(node)
                while True:
                    if self.sums:
                        gradient = _complete(gradient)
                    if node.hooks is not None:
                        gradient = _arrived(node, gradient)
                    if goals is not None and node in goals.captures:
                        _capture(goals.captures[node], node, gradient)
                        if node in goals.ends:
                            break
                    if node.hooks is not None:
                        gradient = _before(node, gradient)
                    if observer is not None:
                        observer.node = node  # on whose behalf the next operations run
                    if node.hooks is None:
                        found = node.back(gradient)
                    else:  # of no gradient at all, which a pre-hook may leave, nothing is taken
                        nothing = gradient is None or (node.count > 1 and all(part is None for part in gradient))
                        found = _after(node, [None] * len(node.edges) if nothing else node.back(gradient), gradient)
                    if not retain:  # of what keeps nothing, nothing is freed: it may run again
                        node.saved = None if node.saved else SPENT
                    successor = None
                    for edge, part in zip(node.edges, found):
                        if part is None or edge is None:
                            continue
                        if edge is successor:
                            waiting = waiting + part if type(waiting) is Sum or waiting._array.dtype not in HALF else half(waiting, part)
                        elif isinstance(edge, Differentiable):
                            if wanted is None or edge in wanted:
                                old = leaves.get(edge)
                                if old is None:
                                    leaves[edge] = part
                                else:
                                    leaves[edge] = old + part if type(old) is Sum or old._array.dtype not in HALF else half(old, part)
                        elif successor is None and not heap and edge.count == 1 and (wanted is None or edge in wanted):
                            successor, waiting = edge, part
                        else:
                            deliver(edge, part)
                    if early is not None and node in early:
                        self.tell(early.pop(node))
                    if successor is None:
                        break
                    if heap:  # something else was delivered meanwhile: decide by sequence number
                        deliver(successor, waiting)
                        break
                    node, gradient = successor, waiting
            if self.sums:
                for leaf, gradient in leaves.items():
                    leaves[leaf] = _complete(gradient)
        except BaseException:
            self.node = node
            raise
        finally:
            if observer is not None:
                observer.node = None


def _complete(gradient: Any) -> Any:
    """What waited for a node or a leaf, each Sum in it as a tensor."""
    if type(gradient) is list:
        return [_complete(part) for part in gradient]
    return gradient.total() if type(gradient) is Sum else gradient


def _capture(slots: dict[int, Any], node: Node, gradient: Any) -> None:
    parts = gradient if node.count > 1 else [gradient]
    for index in slots:
        slots[index] = parts[index]


def _arrived(node: Node, gradient: Any) -> Any:
    """Hooks on the outputs' gradients, and the gradients that outputs retain."""
    hooks = node.hooks
    assert hooks is not None
    parts = list(gradient) if node.count > 1 else [gradient]
    for index, registered in hooks.outputs.items():
        if parts[index] is not None:
            parts[index] = run_hooks(registered, parts[index])
        else:
            with users_code():
                for hook in list(registered.values()):
                    if type(hook) is Sight:
                        hook(None)
    for index, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and parts[index] is not None:
            old = tensor._grad
            tensor._grad = parts[index].clone() if old is None else old + parts[index]
    return parts if node.count > 1 else parts[0]


def run_hooks(registered: dict[int, Any], gradient: Any) -> Any:
    """What the hooks of a tensor make of its gradient."""
    with users_code():
        for hook in list(registered.values()):
            changed = hook(gradient)
            if changed is not None:
                gradient = checked(changed, gradient)
    return gradient


def run_leaf_hooks(registered: dict[int, Any], gradient: Any, adding: bool) -> Any:
    """What a leaf's hooks make of its gradient, then, if it will be added to `.grad`, those of its AccumulateGrad."""
    if not any(type(hook) is Adding for hook in registered.values()):
        return run_hooks(registered, gradient)
    turns: list[dict[int, Any]] = [{}, {}, {}]
    for key, hook in registered.items():
        turns[0 if type(hook) is not Adding else 1 + hook.last][key] = hook
    for turn in turns if adding else turns[:1]:
        gradient = run_hooks(turn, gradient)
    return gradient


def _before(node: Node, gradient: Any) -> Any:
    """The node's own pre-hooks."""
    hooks = node.hooks
    assert hooks is not None
    parts = tuple(gradient) if node.count > 1 else (gradient,)
    with users_code():
        for hook in list(hooks.before.values()):
            changed = hook(parts)
            if changed is not None:
                parts = replaced(changed, parts, f"pre-hook of {node.name()}")
    return list(parts) if node.count > 1 else parts[0]


def _after(node: Node, found: Any, gradient: Any) -> Any:
    """The node's own hooks."""
    hooks = node.hooks
    assert hooks is not None
    given = tuple(gradient) if node.count > 1 else (gradient,)
    with users_code():
        for hook in list(hooks.after.values()):
            changed = hook(tuple(found), given)
            if changed is not None:
                found = replaced(changed, found, f"hook of {node.name()}")
    return found
