"""A sparse tensor's place in the graph, which is that of its values."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.base import LEAF, Version
from gradlab.autograd.hooks import RemovableHandle
from gradlab.autograd.node import Node, edge_to, next_sequence
from gradlab.call_site import caller
from gradlab.dtype import FLOATING
from gradlab.sparse import entries
from gradlab.sparse.array import Pattern, SparseArray, SparseError, is_sparse, sparse
from gradlab.spec import spec_of
from gradlab.tensor import Tensor


class SparseBackward0(Node):
    """Leads from a sparse tensor to its values: their gradient is what the tensor's gradient has at their places."""

    __slots__ = ("pattern", "values")
    pattern: Pattern
    values: Tensor

    def watch(self, index: int, version: Version) -> None:
        """Nothing is kept."""

    def back(self, g: Any) -> Any:
        return (entries.values_at(g, self.pattern),)


class GraphMethods(Tensor):
    """What of a sparse tensor has to do with gradients. They are kept by its values and shown as sparse tensors."""

    __slots__ = ()
    _array: SparseArray

    @property
    def _edge(self) -> Any:
        array = self._array
        if array.values._edge is None:
            return None
        node = object.__new__(SparseBackward0)
        node.edges, node.saved, node.params = (edge_to(array.values),), (), {}
        node.hooks = node.versions = node.scope = None
        node.code, node.lasti = caller()
        node.specs = (spec_of(array.values._array),)
        node.output_specs = (spec_of(array),)
        node.seq = next_sequence()
        node.pattern, node.values = array.pattern, array.values
        return node

    @_edge.setter
    def _edge(self, edge: Any) -> None:
        array = self._array
        if edge is None:
            values = array.values.detach()
        elif isinstance(edge, SparseBackward0):
            values = edge.values
        else:
            raise SparseError("a sparse tensor cannot be the result of a Function in a graph: return its values, and make it outside")
        self._array = SparseArray(array.pattern, values, array.layout)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Start (or stop) recording operations on this leaf."""
        if not requires_grad or self._array.dtype in FLOATING:
            self._array.values.requires_grad_(requires_grad)
            return self
        raise RuntimeError(f"requires_grad_: only floating point tensors can require gradients, not {self.dtype}; use .float()")

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        return self._array.values.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was not computed by a recorded operation."""
        return self._array.values.is_leaf

    @property
    def grad_fn(self) -> Any:
        """The node that leads to the values; None for a leaf."""
        return None if self.is_leaf else self._edge

    output_nr = 0

    @property
    def _bearer(self) -> Any:
        return self._array.values

    def shown(self, gradient: Tensor) -> Any:
        """The gradient of the values as that of this tensor: where entries share a place, that of the place."""
        return entries.as_gradient(self._array.pattern, gradient, self._array.layout)

    @property
    def _grad(self) -> Any:
        gradient = self._array.values._grad
        if gradient is None:
            return None
        found = self.shown(gradient)
        found.owner = self  # to whom what is done to it in place is told
        return found

    @_grad.setter
    def _grad(self, value: Any) -> None:
        self._array.values._grad = None if value is None else entries.values_at(value, self._array.pattern)

    def detach(self) -> Any:
        """The same entries outside the graph."""
        return sparse(self._array.pattern, self._array.values.detach(), self._array.layout)

    @property
    def data(self) -> Any:
        """As `detach`, but backward does not notice changes."""
        return sparse(self._array.pattern, self._array.values.data, self._array.layout)

    @data.setter
    def data(self, value: Any) -> None:
        if not is_sparse(value):
            raise TypeError("data: a sparse tensor takes the data of a sparse tensor; convert it with to_sparse()")
        kept = self._array.values._edge is LEAF
        self._array = value.detach()._array
        self.requires_grad_(kept)

    def detach_(self) -> Any:
        """Take this tensor itself out of its graph."""
        self._edge = None
        return self

    def retain_grad(self) -> None:
        """Also keep the gradient of this computed tensor in `.grad` at the next backward."""
        self._array.values.retain_grad()

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self._array.values.retains_grad

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(gradient)` when this tensor's gradient is computed; a tensor that it returns takes the gradient's place."""

        def on_values(gradient: Any) -> Any:
            changed = hook(self.shown(gradient))
            return None if changed is None else entries.values_at(changed, self._array.pattern)

        return self._array.values.register_hook(on_values)

