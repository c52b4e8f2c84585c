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

from gradlab.autograd import errors
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.node import Node, edge_to

Target = Any  # a Node, an Edge or a leaf


class Walk:
    """The state of one backward pass."""

    def __init__(self, retain: bool, wanted: set[Any] | None, captures: dict[Any, dict[int, Any]] | None) -> None:
        self.retain = retain
        self.wanted = wanted  # nodes that lead to the inputs asked for; None: all
        self.captures = captures  # node -> output index -> gradient found
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
        heap, grads, leaves, wanted, captures, retain = (
            self.heap, self.grads, self.leaves, self.wanted, self.captures, self.retain,
        )  # fmt: skip
        pop, deliver = heapq.heappop, self.deliver
        while heap:
            node = pop(heap)[1]
            gradient = grads.pop(node)
            while True:
                if node.hooks is not None:
                    gradient = _before(node, gradient)
                if captures is not None and node in captures:
                    _capture(captures[node], node, gradient)
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


def _capture(slots: dict[int, Any], node: Node, gradient: Any) -> None:
    parts = gradient if node.count > 1 else [gradient]
    for index in slots:
        slots[index] = parts[index]


def _before(node: Node, gradient: Any) -> Any:
    """Hooks on the outputs' gradients, then the node's own pre-hooks."""
    hooks = node.hooks
    assert hooks is not None
    parts = list(gradient) if node.count > 1 else [gradient]
    for index, registered in hooks.outputs.items():
        for hook in list(registered.values()):
            if parts[index] is not None:
                changed = hook(parts[index])
                if changed is not None:
                    parts[index] = checked(changed, parts[index], "tensor hook")
    for index, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and parts[index] is not None:
            old = tensor._grad
            tensor._grad = parts[index] if old is None else old + parts[index]
    for hook in list(hooks.before.values()):
        changed = hook(tuple(parts))
        if changed is not None:
            parts = list(changed) if isinstance(changed, (tuple, list)) else [changed]
    return parts if node.count > 1 else parts[0]


def _after(node: Node, found: Any, gradient: Any) -> Any:
    hooks = node.hooks
    assert hooks is not None
    for hook in list(hooks.after.values()):
        changed = hook(tuple(found), tuple(gradient) if node.count > 1 else (gradient,))
        if changed is not None:
            found = list(changed) if isinstance(changed, (tuple, list)) else [changed]
    return found


def checked(gradient: Any, like: Any, name: str) -> Any:
    """A gradient that a hook returned: same kind, same shape."""
    if not isinstance(gradient, Differentiable) or gradient._array.shape != like._array.shape:
        got = getattr(gradient, "shape", type(gradient).__name__)
        raise RuntimeError(f"{name}: returned {got}, but the gradient has shape {like._array.shape}")
    return gradient


def _leading_to(inputs: Sequence[Differentiable], roots: list[Target]) -> set[Any]:
    """The nodes from which an input can be reached, and the leaves asked for."""
    goals: set[Any] = set()
    for x in inputs:
        goals.add(x if x._edge is LEAF else x._edge.node if x._edge is not None else x)
    wanted = set(goals)
    order, seen = [], set()
    stack = [r.node for r in roots if not isinstance(r, Differentiable)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            stack.extend(e.node for e in node.edges if e is not None and not isinstance(e, Differentiable))
    order.sort(key=lambda node: node.seq)
    for node in order:
        if any(e is not None and (e if isinstance(e, Differentiable) else e.node) in wanted for e in node.edges):
            wanted.add(node)
    wanted.update(r for r in roots if isinstance(r, Differentiable) and r in goals)
    return wanted


def _roots(outputs: Sequence[Any], gradients: Sequence[Any] | None, what: str) -> list[tuple[Target, Any]]:
    given = list(gradients) if gradients is not None else [None] * len(outputs)
    if len(given) != len(outputs):
        raise RuntimeError(f"{what}: {len(given)} gradients for {len(outputs)} outputs; give one for each")
    found = []
    for output, gradient in zip(outputs, given, strict=True):
        if output._edge is None:
            raise errors.no_graph()
        shape = output._array.shape
        if gradient is None:
            if output.numel() != 1:
                raise errors.not_scalar(shape)
            gradient = output.detach().new_ones(shape, dtype=output._array.dtype)
        else:
            if not isinstance(gradient, Differentiable):
                raise TypeError(f"{what}: gradient is a tensor or None, not {type(gradient).__name__}")
            if gradient._array.shape != shape:
                raise errors.wrong_gradient("", shape, gradient._array.shape, what)
            if gradient._array.dtype != output._array.dtype:
                gradient = gradient.to(output._array.dtype)  # type: ignore[attr-defined]
        found.append((edge_to(output), gradient))
    return found


def _walk(roots: list[tuple[Target, Any]], walk: Walk, create_graph: bool) -> None:
    mode = current()
    token = enter(mode.replace(recording=create_graph, walking=not create_graph))
    try:
        for target, gradient in roots:
            walk.deliver(target, gradient)
        walk.run()
    finally:
        leave(token)


def backward(
    tensors: Sequence[Any], gradients: Sequence[Any] | None, retain_graph: bool | None, create_graph: bool, inputs: Sequence[Any] | None
) -> None:
    """Add the gradients of `tensors` to the leaves' `.grad` (only to those of `inputs`, if given)."""
    roots = _roots(tensors, gradients, "backward")
    retain = create_graph if retain_graph is None else retain_graph
    wanted, captures = None, None
    if inputs is not None:
        if not inputs:
            raise RuntimeError("backward: inputs is empty; leave it out to reach every leaf")
        wanted = _leading_to(inputs, [t for t, _ in roots])
        captures = _capturing(inputs)
    walk = Walk(retain, wanted, captures)
    _walk(roots, walk, create_graph)
    given = [g for _, g in roots]
    for leaf, gradient in walk.leaves.items():
        store(leaf, gradient, create_graph, given)
    for x in inputs or ():
        if x._edge is not None and x._edge is not LEAF:
            found = walk.captures[x._edge.node][x._edge.index]  # type: ignore[index]
            if found is not None:
                x._grad = found if x._grad is None else x._grad + found


def _capturing(inputs: Sequence[Any]) -> dict[Any, dict[int, Any]]:
    captures: dict[Any, dict[int, Any]] = {}
    for x in inputs:
        if x._edge is not None and x._edge is not LEAF:
            captures.setdefault(x._edge.node, {})[x._edge.index] = None
    return captures


def leaf_gradient(leaf: Any, gradient: Any) -> Any:
    """What the leaf's own hooks make of its gradient."""
    meta = leaf._meta
    if meta is not None and meta.hooks:
        for hook in list(meta.hooks.values()):
            changed = hook(gradient)
            if changed is not None:
                gradient = checked(changed, gradient, "tensor hook")
    return gradient


def store(leaf: Any, gradient: Any, create_graph: bool, given: list[Any]) -> None:
    """Add a complete gradient to a leaf's `.grad`, which shares memory with nothing else."""
    gradient = leaf_gradient(leaf, gradient)
    tracer = current().tracer
    if tracer is not None:
        tracer.before_gradient(leaf)
    old = leaf._grad
    if old is not None:
        token = enter(current().replace(recording=create_graph))
        try:
            leaf._grad = old + gradient
        finally:
            leave(token)
    elif create_graph:
        leaf._grad = gradient if gradient._edge is not None else _owned(gradient, given)
    else:
        leaf._grad = _owned(gradient, given)
    meta = leaf._meta
    if meta is not None and meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            hook(leaf)


def _owned(gradient: Any, given: list[Any]) -> Any:
    """The gradient itself if nobody else can see its memory, else a copy."""
    array = gradient._array
    if type(array) is not np.ndarray:
        return gradient.clone()
    mine = array.base is None and array.flags.c_contiguous and gradient._meta is None
    # references: the slot of `gradient`, the local `array`, the argument of getrefcount
    if mine and getrefcount(array) <= 3 and not any(gradient is g for g in given) and getrefcount(gradient) <= _REFERENCES:
        return gradient
    fresh = object.__new__(type(gradient))
    fresh._array, fresh._edge, fresh._meta = array.copy(), None, None
    return fresh


_REFERENCES = 5  # of a gradient that only the walk holds, as seen in `_owned` when called by `store`


def grad(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    gradients: Sequence[Any] | None,
    retain_graph: bool | None,
    create_graph: bool,
) -> list[Any]:
    """The gradients of `outputs` for `inputs`, in order, None where there is no path; `.grad` is left alone."""
    roots = _roots(outputs, gradients, "grad")
    wanted = _leading_to(inputs, [t for t, _ in roots])
    captures = _capturing(inputs)
    walk = Walk(create_graph if retain_graph is None else retain_graph, wanted, captures)
    _walk(roots, walk, create_graph)
    found = []
    for x in inputs:
        if x._edge is LEAF:
            gradient = walk.leaves.get(x)
            found.append(None if gradient is None else leaf_gradient(x, gradient))
        elif x._edge is None:
            found.append(None)
        else:
            found.append(captures[x._edge.node][x._edge.index])
    return found

