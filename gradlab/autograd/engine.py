"""The walk backward: from outputs to leaves by decreasing sequence number, iteratively, freeing kept values on the way (see `walk`).

Leaf gradients are collected and stored after the walk, so a failing backward changes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import _getframe as getframe, getrefcount
from threading import RLock
from typing import Any

import numpy as np

from gradlab import call_site, dispatch
from gradlab.above import above
from gradlab.autograd import errors, graph_cuts
from gradlab.autograd.base import LEAF, Differentiable, version_of
from gradlab.autograd.hooks import Adding
from gradlab.autograd.mode import current, enter, leave, users_code
from gradlab.autograd.node import edge_to, next_sequence
from gradlab.autograd.record import refresh
from gradlab.autograd.walk import Goals, Target, Walk, Watcher, reachable as reachable, run_leaf_hooks, walk_now, watchers
from gradlab.batched import Batched
from gradlab.dtype import COMPLEX
from gradlab.layout import strided
from gradlab.quiet import quietly, run
from gradlab.strides import contiguous_format, dense_order, inverse_order


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
        raise errors.no_graph(output, current().recording)
    shape, dtype = output._array.shape, output._array.dtype
    if gradient is None:
        if output.numel() != 1:
            raise errors.not_scalar(shape, errors.MIXED_UP if what == "grad" and output._edge is LEAF else "", output._edge)
        if dtype in COMPLEX:
            raise errors.not_real(dtype)
        return output.ones_like()
    if not isinstance(gradient, Differentiable):
        raise TypeError(f"{what}: gradient is a tensor or None, not {type(gradient).__name__}")
    if gradient._array.shape != shape:
        raise errors.wrong_gradient("", shape, gradient._array.shape, what)
    if gradient._array.dtype == dtype:
        return gradient
    if (gradient._array.dtype in COMPLEX) != (dtype in COMPLEX):
        raise errors.wrong_kind(what, dtype, gradient._array.dtype)
    return gradient.to(dtype)  # type: ignore[attr-defined]


def _walk(roots: list[tuple[Target, Any]], walk: Walk) -> None:
    for target, gradient in roots:
        walk.roots.append(target)
        walk.deliver(target, gradient)
    try:
        walk.run()
    except Exception as error:
        errors.explain(error, walk.node, reachable(walk.roots))
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
    token = enter(mode.replace(recording=True, walking=False, autocast=None) if create_graph else mode.walk())
    outer = walk_now.set(walk)
    told: list[Watcher] = []
    try:
        if watchers:
            walk.roots += [target for target, _ in roots]
            told = walk.watched(lambda leaf: store(leaf, walk, create_graph))
            walk.roots.clear()
        _walk(roots, walk)
        del roots
        leaves = walk.leaves
        while leaves:
            leaf = next(iter(leaves))
            if leaf._edge is LEAF:
                store(leaf, walk, create_graph)
            else:  # it stopped requiring grad after the forward
                del leaves[leaf]
        for x in inputs or ():
            if x._edge is not LEAF and (found := goals.gradient_of(x, leaves)) is not None:  # type: ignore[union-attr]
                x._grad = found.clone() if x._grad is None else x._grad + found
        graph_cuts.forget()
        for watcher in told:
            watcher.end()
    except BaseException:
        for watcher in told:
            watcher.failed()
        raise
    finally:
        walk_now.reset(outer)
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


_storing = RLock()  # two threads may add to one leaf's gradient


def store(leaf: Any, walk: Walk, create_graph: bool) -> None:
    """Take a leaf's complete gradient and add it to the leaf's `.grad`, which shares memory with nothing else."""
    gradient = walk.leaves.pop(leaf)
    meta = leaf._meta
    if meta is not None and meta.hooks:
        gradient = run_leaf_hooks(meta.hooks, gradient, True)
    mode = current()
    if mode.tracer is not None and leaf._grad is None:
        mode.tracer.before_gradient(leaf, True)
    with _storing:
        old = leaf._grad
        if old is None:
            row_major = type(leaf._array) is not np.ndarray or leaf._array.flags.c_contiguous
            if row_major and getrefcount(gradient) <= _ALONE and _owns(gradient):
                leaf._grad = gradient
            elif create_graph and gradient._edge is not None:
                leaf._grad = gradient.clone(memory_format=contiguous_format)
            else:
                leaf._grad = _copied(gradient, None if row_major else leaf._array)
        elif create_graph or type(old._array) is Batched:
            leaf._grad = old + gradient
        elif old.layout is not gradient.layout:  # a sparse gradient and a dense one
            leaf._grad = gradient + old if gradient.layout is strided else old.add_(gradient)
        elif mode.tracer is not None:
            mode.tracer.reads_gradient(leaf, True)
            old.add_(gradient)
        elif type(old._array) is not np.ndarray:
            array = old._array
            alone = getattr(array, "base", array) is None and getrefcount(old) <= _ALONE + 1 and getrefcount(array) <= _ALONE + 1
            if alone and old._meta is None:  # nobody sees that the sum is another tensor
                leaf._grad = old + gradient
            else:
                old.add_(gradient)
        elif not old._array.flags.writeable:
            leaf._grad = old + gradient
        else:
            try:
                run(np.add, old._array, gradient._array, old._array)
            except RuntimeError:  # another thread is in there
                quietly(np.add, old._array, gradient._array, old._array)
            version = version_of(old) if old._meta is None or old._meta.version is None else old._meta.version
            if walk.place is None:
                walk.place = (*call_site.user_frame(getframe(2)), mode.scope)
            version.written, version.place = next_sequence(), walk.place
            version.count += 1
            version.added += 1
    if meta is not None and meta.post_hooks:
        with users_code():
            for hook in sorted(meta.post_hooks.values(), key=lambda hook: type(hook) is Adding):  # the leaf's own, then its node's
                if hook(leaf) is not None:
                    raise RuntimeError("a hook of register_post_accumulate_grad_hook returns None; it may write to the leaf and its .grad")


def _count_of_a_local() -> int:
    value = object()
    return getrefcount(value)


_ALONE = _count_of_a_local()  # of an object that one local variable holds; how Python counts depends on its version


def _owns(gradient: Any) -> bool:
    """Whether nobody but this Tensor can see the gradient's memory, which may be an array that it is another shape of."""
    array = gradient._array
    base = getattr(array, "base", array)
    if gradient._meta is not None or (base is not None and (type(array) is not np.ndarray or type(base) is not np.ndarray)):
        return False
    if not array.flags.c_contiguous:
        return False
    if base is not None:
        whole = base.base is None and base.flags.owndata and base.size == array.size and base.dtype == array.dtype
        if not whole or getrefcount(base) > _ALONE + 1:
            return False
    return getrefcount(array) <= _ALONE + 1


def _copied(gradient: Any, leaf: Any) -> Any:
    """A copy that lies as the leaf's array does; row by row for None."""
    array = gradient._array
    if type(array) is not np.ndarray:
        return gradient.clone(memory_format=contiguous_format)
    order = None if leaf is None else dense_order(leaf.shape, leaf.strides, leaf.dtype.itemsize)
    fresh, copy = object.__new__(type(gradient)), dispatch.backend_of(array).copy
    fresh._array = copy(array) if order is None else copy(array.transpose(order)).transpose(inverse_order(order))
    fresh._edge = fresh._meta = None
    return fresh


def grad(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    gradients: Sequence[Any] | None,
    retain_graph: bool | None,
    create_graph: bool,
    hooks: bool = True,
    stops: frozenset[Any] = frozenset(),
) -> list[Any]:
    """The gradients of `outputs` for `inputs`, in order, None where there is no path; `.grad` is left alone.

    hooks: whether the leaves' hooks run; not where another walk takes the gradients to the same leaves, which runs them.
    stops: nodes of inputs at which the walk ends: what lies behind gets nothing through them.
    """
    roots = _roots(outputs, gradients, "grad")
    goals = Goals(differentiable(inputs, "grad"), [t for t, _ in roots], stops)
    walk = Walk(create_graph if retain_graph is None else retain_graph, goals)
    mode = current()
    token = enter(mode.replace(recording=create_graph, walking=not create_graph))
    outer = walk_now.set(walk)
    try:
        _walk(roots, walk)
        for leaf, gradient in walk.leaves.items():
            if hooks and leaf._meta is not None and leaf._meta.hooks:
                walk.leaves[leaf] = run_leaf_hooks(leaf._meta.hooks, gradient, False)
    finally:
        walk_now.reset(outer)
        leave(token)
    return [goals.gradient_of(x, walk.leaves) for x in inputs]


def batch_of(gradients: list[Any] | None) -> tuple[int, ...]:
    """The number of vectors in batched grad_outputs, as the front of a shape."""
    sizes = {g._array.shape[:1] for g in gradients or () if isinstance(g, Differentiable)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError("grad: with is_grads_batched each of grad_outputs has a first dimension of one size: that of the batch")
    return sizes.pop()


def batched(
    targets: list[Any], sources: list[Any], gradients: list[Any] | None, retain: bool | None, create: bool
) -> list[Any]:
    """The gradients for each vector of a batch, in new tensors with one more dimension: one walk for all of them, by vmap."""
    batch_of(gradients)
    found: list[Any] = above("gradients of several vectors")(targets, sources, gradients, retain, create)
    return found
