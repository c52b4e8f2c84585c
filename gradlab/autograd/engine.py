"""The walk backward: from outputs to leaves by decreasing sequence number, iteratively, freeing kept values on the way.

A node's sequence number is larger than those of everything it was computed from, so when a node's turn comes, its gradient is complete.
A lone successor stays out of the heap. Leaf gradients are collected and stored after the walk, so a failing backward changes none.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from gradlab.autograd import errors, inplace
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.node import Node, edge_to
from gradlab.autograd.record import refresh

Target = Any  # a Node, an Edge or a leaf


class Goals:
    """What a walk to chosen inputs has to reach.

    wanted    the nodes from which an input can be reached, and the leaves asked for
    captures  for the node of each input that is not a leaf: output index -> gradient found
    ends      those of them that need not run, since no other input lies behind
    """

    __slots__ = ("captures", "ends", "wanted")

    def __init__(self, inputs: Sequence[Differentiable], roots: list[Target]) -> None:
        self.wanted: set[Any] = {x if x._edge is LEAF else x._edge.node for x in inputs}
        self.captures: dict[Any, dict[int, Any]] = {}
        for x in inputs:
            if x._edge is not LEAF:
                self.captures.setdefault(x._edge.node, {})[x._edge.index] = None
        self.ends = set(self.captures)
        for node in reversed(reachable(roots)):
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


class Walk:
    """The state of one backward pass."""

    def __init__(self, retain: bool, goals: Goals | None) -> None:
        self.retain = retain
        self.goals = goals
        self.wanted = None if goals is None else goals.wanted
        self.node: Any = None  # whose turn it was when an error came
        self.leaves: dict[Any, Any] = {}
        self.grads: dict[Any, Any] = {}
        self.heap: list[tuple[int, Any]] = []

    def deliver(self, target: Target, gradient: Any) -> None:
        """Add a gradient to what waits for a node or a leaf."""
        if isinstance(target, Differentiable):
            if self.wanted is None or target in self.wanted:
                old = self.leaves.get(target)
                self.leaves[target] = gradient if old is None else old + gradient
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
            waiting[target.index] = gradient if old is None else old + gradient
        else:
            old = self.grads.get(node)
            if old is None:
                self.grads[node] = gradient
                heapq.heappush(self.heap, (-node.seq, node))
            else:
                self.grads[node] = old + gradient

    def run(self) -> None:
        """Until no node waits."""
        heap, grads, leaves, wanted, goals, retain = self.heap, self.grads, self.leaves, self.wanted, self.goals, self.retain
        pop, deliver = heapq.heappop, self.deliver
        waiting: Any = None
        observer = current().observer
        try:
            while heap:
                node = pop(heap)[1]
                gradient = grads.pop(node)
                while True:
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
                    found = node.back(gradient)
                    if node.hooks is not None:
                        found = _after(node, found, gradient)
                    if not retain:
                        node.saved = None
                    successor = None
                    for edge, part in zip(node.edges, found):
                        if part is None or edge is None:
                            continue
                        if edge is successor:
                            waiting = waiting + part
                        elif isinstance(edge, Differentiable):
                            if wanted is None or edge in wanted:
                                old = leaves.get(edge)
                                leaves[edge] = part if old is None else old + part
                        elif successor is None and not heap and edge.count == 1 and (wanted is None or edge in wanted):
                            successor, waiting = edge, part
                        else:
                            deliver(edge, part)
                    if successor is None:
                        break
                    if heap:  # something else was delivered meanwhile: decide by sequence number
                        deliver(successor, waiting)
                        break
                    node, gradient = successor, waiting
        except BaseException:
            self.node = node
            raise
        finally:
            if observer is not None:
                observer.node = None


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
    for index, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and parts[index] is not None:
            old = tensor._grad
            tensor._grad = parts[index].clone() if old is None else old + parts[index]
    return parts if node.count > 1 else parts[0]


def run_hooks(registered: dict[int, Any], gradient: Any) -> Any:
    """What the hooks of a tensor make of its gradient."""
    token = enter(current().replace(walking=False))  # a hook is the user's code: its views are views
    try:
        for hook in list(registered.values()):
            changed = hook(gradient)
            if changed is not None:
                gradient = checked(changed, gradient)
    finally:
        leave(token)
    return gradient


def _before(node: Node, gradient: Any) -> Any:
    """The node's own pre-hooks."""
    hooks = node.hooks
    assert hooks is not None
    parts = tuple(gradient) if node.count > 1 else (gradient,)
    for hook in list(hooks.before.values()):
        changed = hook(parts)
        if changed is not None:
            parts = replaced(changed, parts, "pre-hook", node)
    return list(parts) if node.count > 1 else parts[0]


def _after(node: Node, found: Any, gradient: Any) -> Any:
    """The node's own hooks."""
    hooks = node.hooks
    assert hooks is not None
    given = tuple(gradient) if node.count > 1 else (gradient,)
    for hook in list(hooks.after.values()):
        changed = hook(tuple(found), given)
        if changed is not None:
            found = replaced(changed, found, "hook", node)
    return found


def replaced(changed: Any, old: Sequence[Any], what: str, node: Node) -> tuple[Any, ...]:
    """The gradients that a node's hook returned: as many as it was given."""
    parts = tuple(changed) if isinstance(changed, (tuple, list)) else (changed,)
    if len(parts) != len(old):
        raise RuntimeError(f"{what} of {node.name()}: returned {len(parts)} gradients in place of {len(old)}")
    return parts


def checked(gradient: Any, like: Any) -> Any:
    """The gradient that a tensor's hook returned: same kind, same shape."""
    if not isinstance(gradient, Differentiable):
        raise TypeError(f"tensor hook: returned a {type(gradient).__name__}; return a tensor, or None to leave the gradient as it is")
    if gradient._array.shape != like._array.shape:
        raise RuntimeError(f"tensor hook: returned shape {gradient._array.shape}, but the gradient has shape {like._array.shape}")
    return gradient


def _roots(outputs: Sequence[Any], gradients: Sequence[Any] | None, what: str) -> list[tuple[Target, Any]]:
    given = list(gradients) if gradients is not None else [None] * len(outputs)
    if len(given) != len(outputs):
        raise RuntimeError(f"{what}: {len(given)} gradients for {len(outputs)} outputs; give one for each")
    found = []
    for i, (output, gradient) in enumerate(zip(outputs, given, strict=True)):
        if not isinstance(output, Differentiable):
            raise TypeError(f"{what}: output {i} is a {type(output).__name__}, not a tensor")
        refresh(output)
        found.append((edge_to(output), _start(output, gradient, what)))
    return found


def _start(output: Any, gradient: Any, what: str) -> Any:
    """The gradient with which the walk begins at an output."""
    if output._edge is None:
        raise errors.no_graph()
    shape, dtype = output._array.shape, output._array.dtype
    if gradient is None:
        if output.numel() != 1:
            raise errors.not_scalar(shape, errors.MIXED_UP if what == "grad" and output._edge is LEAF else "")
        return output.detach().new_ones(shape, dtype=dtype)
    if not isinstance(gradient, Differentiable):
        raise TypeError(f"{what}: gradient is a tensor or None, not {type(gradient).__name__}")
    if gradient._array.shape != shape:
        raise errors.wrong_gradient("", shape, gradient._array.shape, what)
    return gradient if gradient._array.dtype == dtype else gradient.to(dtype)  # type: ignore[attr-defined]


def _walk(roots: list[tuple[Target, Any]], walk: Walk) -> None:
    for target, gradient in roots:
        walk.deliver(target, gradient)
    try:
        walk.run()
    except Exception as error:
        errors.explain(error, walk.node, reachable([target for target, _ in roots]))
        raise


def backward(
    tensors: Sequence[Any], gradients: Sequence[Any] | None, retain_graph: bool | None, create_graph: bool, inputs: Sequence[Any] | None
) -> None:
    """Add the gradients of `tensors` to the leaves' `.grad` (only to those of `inputs`, if given)."""
    roots = _roots(tensors, gradients, "backward")
    goals = None
    if inputs is not None:
        if not inputs:
            raise RuntimeError("backward: inputs is empty; leave it out to reach every leaf")
        goals = Goals(differentiable(inputs, "backward"), [t for t, _ in roots])
    walk = Walk(create_graph if retain_graph is None else retain_graph, goals)
    mode = current()
    token = enter(mode.replace(recording=create_graph, walking=not create_graph))
    try:
        _walk(roots, walk)
        del roots
        leaves = walk.leaves
        while leaves:
            leaf = next(iter(leaves))
            if leaf._edge is LEAF:
                store(leaf, leaves, create_graph)
            else:  # it stopped requiring grad after the forward
                del leaves[leaf]
        for x in inputs or ():
            if x._edge is not LEAF and (found := goals.gradient_of(x, leaves)) is not None:  # type: ignore[union-attr]
                x._grad = found.clone() if x._grad is None else x._grad + found
    finally:
        leave(token)


def differentiable(inputs: Sequence[Any], what: str) -> Sequence[Any]:
    """Inputs to differentiate by, checked, views up to date."""
    for i, x in enumerate(inputs):
        if not isinstance(x, Differentiable):
            raise TypeError(f"{what}: input {i} is a {type(x).__name__}, not a tensor")
        refresh(x)
        if x._edge is None:
            raise RuntimeError(
                f"{what}: input {i} (shape {x._array.shape}) does not require grad; call requires_grad_() on it before it is used"
            )
    return inputs


def store(leaf: Any, leaves: dict[Any, Any], create_graph: bool) -> None:
    """Take a leaf's complete gradient and add it to the leaf's `.grad`, which shares memory with nothing else."""
    gradient = leaves.pop(leaf)
    meta = leaf._meta
    if meta is not None and meta.hooks:
        gradient = run_hooks(meta.hooks, gradient)
    mode = current()
    if mode.tracer is not None:
        mode.tracer.before_gradient(leaf)
    old = leaf._grad
    if old is None:
        if create_graph and gradient._edge is not None:
            leaf._grad = gradient
        else:
            leaf._grad = gradient if getrefcount(gradient) <= _ALONE and _owns(gradient) else _copied(gradient)
    elif create_graph or mode.tracer is not None or type(old._array) is not np.ndarray or not old._array.flags.writeable:
        leaf._grad = old + gradient
    else:
        np.add(old._array, gradient._array, old._array)
        if old._meta is not None and old._meta.version is not None:
            inplace.written(old._meta.version)
    if meta is not None and meta.post_hooks:
        token = enter(mode.replace(walking=False))
        try:
            for hook in list(meta.post_hooks.values()):
                hook(leaf)
        finally:
            leave(token)


def _count_of_a_local() -> int:
    value = object()
    return getrefcount(value)


_ALONE = _count_of_a_local()  # of an object that one local variable holds; how Python counts depends on its version


def _owns(gradient: Any) -> bool:
    """Whether nobody but this Tensor can see the gradient's memory."""
    array = gradient._array
    if gradient._meta is not None or getattr(array, "base", array) is not None or not array.flags.c_contiguous:
        return False
    return getrefcount(array) <= _ALONE + 1


def _copied(gradient: Any) -> Any:
    array = gradient._array
    if type(array) is not np.ndarray:
        return gradient.clone()
    fresh = object.__new__(type(gradient))
    fresh._array, fresh._edge, fresh._meta = array.copy(), None, None
    return fresh


def grad(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    gradients: Sequence[Any] | None,
    retain_graph: bool | None,
    create_graph: bool,
) -> list[Any]:
    """The gradients of `outputs` for `inputs`, in order, None where there is no path; `.grad` is left alone."""
    roots = _roots(outputs, gradients, "grad")
    goals = Goals(differentiable(inputs, "grad"), [t for t, _ in roots])
    walk = Walk(create_graph if retain_graph is None else retain_graph, goals)
    mode = current()
    token = enter(mode.replace(recording=create_graph, walking=not create_graph))
    try:
        _walk(roots, walk)
        for leaf, gradient in walk.leaves.items():
            if leaf._meta is not None and leaf._meta.hooks:
                walk.leaves[leaf] = run_hooks(leaf._meta.hooks, gradient)
    finally:
        leave(token)
    return [goals.gradient_of(x, walk.leaves) for x in inputs]
