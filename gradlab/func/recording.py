"""What the derivatives share: fresh inputs to differentiate by, and which results stay in the graph around.

A derivative differentiates by inputs of its own, made anew from its arguments, so an inner derivative never sees the graph of an outer one
as its own. It records its gradients again exactly where somebody outside can ask for them: where recording is on around it and the
results depend on a tensor of a graph from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradlab import ops
from gradlab.autograd import engine
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.node import edge_to
from gradlab.autograd.record import bind, refresh, wrap
from gradlab.batched import Batched
from gradlab.dtype import INEXACT
from gradlab.func.tree import flatten, unflatten
from gradlab.func.vmap_levels import depth_now
from gradlab.tensor import creation

_view = bind(ops.movement.view)


def inputs_of(name: str, value: Any) -> tuple[list[Any], Any]:
    """The tensors of an argument to differentiate by, and their structure. Python numbers become tensors. TypeError, RuntimeError."""
    leaves, structure = flatten(value)
    found = []
    for x in leaves:
        if isinstance(x, (float, complex)):
            x = creation.tensor(x)
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: derivatives are by tensors (nested in tuples, lists, dicts), not by {type(x).__name__}")
        if x._array.dtype not in INEXACT:
            raise RuntimeError(f"{name}: derivatives are by floating point tensors, not by {x._array.dtype}; use .float()")
        found.append(x)
    return found, structure


def fresh(x: Any) -> Any:
    """The same value as a new input: its uses are differentiated by, the uses of `x` elsewhere are not."""
    level = current().vmap
    if x._meta is not None:
        refresh(x)
    if level is not None and not (type(x._array) is Batched and x._array.level is level):
        x = wrap(Batched(x, level, False))
    if x._edge is not None:
        return _view(x, shape=x._array.shape)
    made = wrap(x._array)
    made._edge = LEAF
    return made


class Recording:
    """The time in which a function runs for its derivative. `outer` is the mode around it."""

    def __init__(self) -> None:
        self.outer: Mode = current()
        self.depth = depth_now()
        self._token: Any = None

    def __enter__(self) -> Recording:
        self._token = enter(self.outer.replace(recording=True, inference=False, walking=False))
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._token)

    def foreign(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Whether outputs depend on something from a graph outside."""
        if any(x._edge is not LEAF for x in inputs):
            return True
        own = set(map(id, inputs))
        roots = [edge_to(y) for y in outputs if y._edge is not None]
        if any(isinstance(r, Differentiable) and id(r) not in own for r in roots):
            return True
        return any(
            isinstance(edge, Differentiable) and id(edge) not in own for node in engine.reachable(roots) for edge in node.edges
        )

    def outside(self, value: Any, keep: bool) -> Any:
        """Results as the caller gets them: out of this graph unless `keep`, in those of outside of a vmap. Others stay as they are."""
        if keep:
            return value
        leaves, structure = flatten(value)
        return unflatten(structure, [y if getattr(y, "_edge", None) is None else self._cut(y) for y in leaves])

    def _cut(self, y: Any) -> Any:
        level = self.outer.vmap
        if level is None:
            return y.detach()
        return wrap(y._array) if type(y._array) is Batched and y._array.level is level else y


def in_graph(tensors: Sequence[Any]) -> bool:
    """Whether a tensor, or what it stands for outside of its vmaps, is in a graph."""
    for x in tensors:
        while isinstance(x, Differentiable):
            if x._edge is not None:
                return True
            x = x._array.value if type(x._array) is Batched else None
    return False


def gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], given: Sequence[Any], retain: bool, create: bool, depth: int
) -> list[Any]:
    """Gradients of outputs for inputs, None where there is none; `depth` is that of the graph. Outputs outside of it give nothing."""
    pairs = [(y, g) for y, g in zip(outputs, given, strict=True) if y._edge is not None and g is not None]
    if not pairs:
        return [None] * len(inputs)
    mode = current()
    token = enter(mode if create else mode.replace(floor=min(mode.floor, depth)))
    try:
        return engine.grad([y for y, _ in pairs], inputs, [g for _, g in pairs], retain, create)
    finally:
        leave(token)


@contextmanager
def still() -> Iterator[None]:
    """Operations are not recorded here; those on what lies outside of the vmaps around still are, if they were."""
    mode = current()
    token = enter(mode.replace(recording=False, walking=True, floor=min(mode.floor, depth_now())))
    try:
        yield
    finally:
        leave(token)


def zeros(x: Any) -> Any:
    """The gradient of what was not used."""
    return x.detach().new_zeros(x._array.shape, dtype=x._array.dtype)
