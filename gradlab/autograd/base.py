"""The base class of Tensor, the rare facts that most tensors do not have, and which operators are left to the other side's class.

A tensor is three slots: its raw array, its edge into the graph and, for few, a `Meta`. PyTorch's legacy name for this class is Variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gradlab.op import Op


class _Leaf:
    """The edge of a tensor that requires grad and was not computed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "LEAF"


LEAF: Any = _Leaf()
Place = tuple[Any, int, Any]  # a code, an instruction of it, and a scope: see position.py
NOWHERE: Place = (None, 0, None)


class Version:
    """When a piece of memory was last written in place: a sequence number, shared by a tensor and its views. 0 is never."""

    written = 0
    count = 0  # how often it was written; a program's writes only let it grow
    added = 0  # how many of these times by backward, which adds to a gradient
    place: Place = NOWHERE  # of the write


class Meta:
    """What only some tensors have: a version, a view's base and how it was made, hooks. Class attributes are the defaults: most stay."""

    version: Version | None = None
    base: Any = None  # the tensor that this one is a view of
    chain: tuple[tuple[Op, dict[str, Any]], ...] = ()  # the view rows that lead from the base here
    seen = 0  # version.written when the view was last derived
    quiet = False  # made while recording was off: shares memory, not the graph
    apart = False  # quiet, by detach(), in a trace: the view has a graph of its own, which a write may give it
    shut = False  # quiet, and a view of something in a graph, to which a write through this view would be lost
    hooks: dict[int, Any] | None = None
    post_hooks: dict[int, Any] | None = None
    accumulate: Any = None  # weak reference to the AccumulateGrad of a leaf
    inference = False
    retains = False
    turned = 0  # when this tensor, a leaf, last got another shape in the same memory (t_, squeeze_, ...), if views of it may be about
    before: Any = None  # of a tensor that got other memory: by the version that its views of then have, what it was
    hidden = False  # the base is this tensor's own value from before such a change, and not for others to see


class Differentiable:
    """Base of Tensor. `_array` is the raw array (or a Symbol), `_edge` is None, LEAF, a Node or an Edge(node, index)."""

    __slots__ = ("__dict__", "__weakref__", "_array", "_edge", "_meta")
    _array: Any
    _edge: Any
    _meta: Meta | None
    _grad: Any = None
    _bearer: Any = None  # of a sparse tensor: its values, which bear its gradient


def meta_of(tensor: Differentiable) -> Meta:
    """The tensor's Meta, made on first use."""
    meta = tensor._meta
    if meta is None:
        meta = tensor._meta = Meta()
    return meta


def version_of(tensor: Differentiable) -> Version:
    """The tensor's version, made on first use and shared with the node that keeps the tensor as its output."""
    meta = meta_of(tensor)
    if meta.version is None:
        meta.version = Version()
        edge = tensor._edge
        if edge is not None and edge is not LEAF:
            edge.node.watch(edge.index, meta.version)
    return meta.version


_TAKEN = (Differentiable, np.ndarray, np.generic, int, float, complex)


def foreign(value: Any, reflected: str) -> bool:
    """Whether an operator's right side is of a class that knows by its own reflected operator what to do with a tensor: a Series, a
    quantity with a unit, a user's. Such an operator says NotImplemented, and Python asks the other side. Not those that Python itself has,
    nor what is taken for numbers, nor what answers by `__torch_function__`."""
    kind = type(value)
    if not hasattr(kind, reflected) or kind.__module__ == "builtins" or hasattr(kind, "__torch_function__") or hasattr(value, "expr"):
        return False
    return not isinstance(value, _TAKEN)


def reflecting(function: Callable[..., Any], reflected: str) -> Callable[..., Any]:
    """A function of two as an operator; see `foreign`."""

    def operator(self: Any, other: Any) -> Any:
        if type(other) is not type(self) and foreign(other, reflected):
            return NotImplemented
        return function(self, other)

    operator.__name__ = operator.__qualname__ = ("__i" if function.__name__.endswith("_") else "__") + reflected.removeprefix("__r")
    operator.__doc__, operator.__module__ = function.__doc__, function.__module__
    return operator
