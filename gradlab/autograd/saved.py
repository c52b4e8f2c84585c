"""What a node keeps while `saved_tensors_hooks` are on, or for a Function: packed by the user's function, unpacked when backward asks.

Nodes recorded without hooks never come here: they keep their tensors bare (see `formulas`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd import errors
from gradlab.autograd.base import Differentiable, Version, version_of
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.spec import spec_of

Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # pack and unpack


def without_graph(tensor: Any, array: Any = None) -> Any:
    """A tensor of the same array (or the given one) outside every graph, whose writes are nobody's."""
    twin = object.__new__(type(tensor))
    twin._array, twin._edge, twin._meta = tensor._array if array is None else array, None, None
    return twin


class Held:
    """One packed value. `edge` is the tensor's own edge, or the output's number, where the edge would lead back to who keeps this."""

    __slots__ = ("edge", "unpack", "value")

    def __init__(self, hooks: Hooks, tensor: Any, edge: Any) -> None:
        pack, self.unpack = hooks
        self.edge = edge
        given = without_graph(tensor)
        token = enter(current().replace(recording=False, saved_hooks=None, walking=False))
        try:
            self.value = pack(given)
        finally:
            leave(token)
        if given._meta is not None and given._meta.version is not None and given._meta.version.count:
            raise RuntimeError("saved_tensors_hooks: the pack hook changed its argument in place; it has to leave it as it is")

    def tensor(self, node: Any) -> Any:
        """What unpack gives, in its old place in the graph."""
        token = enter(current().replace(recording=False, saved_hooks=None, walking=False))
        try:
            found = self.unpack(self.value)
        finally:
            leave(token)
        if not isinstance(found, Differentiable):
            raise TypeError(f"saved_tensors_hooks: the unpack hook returns a tensor, not {type(found).__name__}")
        twin = without_graph(found)
        twin._edge = edge_of(node, self.edge)
        return twin


class AliasBackward0(Node):
    """Leads to a leaf whose values came out of a pack: a tensor's edge cannot be another tensor."""

    __slots__ = ()

    def watch(self, index: int, version: Version) -> None:
        """Nothing is kept."""

    def back(self, g: Any) -> Any:
        return (g,)


def _alias(leaf: Any) -> Node:
    node = object.__new__(AliasBackward0)
    node.edges, node.saved, node.params = (leaf,), (), {}
    node.hooks = node.versions = node.code = node.scope = None
    node.specs = node.output_specs = (spec_of(leaf._array),)
    node.seq, node.lasti = next_sequence(), 0
    return node


def edge_of(node: Any, edge: Any) -> Any:
    """What `edge` stands for: itself; of a number, the edge to that output of the node; of a leaf, if it matters now, a way to it."""
    if isinstance(edge, Differentiable):
        return _alias(edge) if current().recording else None
    if type(edge) is not int:
        return edge
    return node if node.count == 1 else Edge(node, edge)


def pack_all(hooks: Hooks, node: Any, saved: tuple[Any, ...], first_output: int) -> tuple[Any, ...]:
    """A row's kept values, packed: inputs are Tensors (or tuples of them, numbers, None), outputs, from `first_output` on, raw arrays."""
    found: list[Any] = []
    for i, value in enumerate(saved):
        if i >= first_output and value is not None:
            index = node.op.outputs.index(node.op.kept_outputs[i - first_output])
            found.append(Held(hooks, without_graph(object.__new__(node.tensor_class), value), index))
        elif type(value) is tuple:
            found.append(tuple(Held(hooks, x, edge_to(x)) if isinstance(x, Differentiable) else x for x in value))
        else:
            found.append(Held(hooks, value, edge_to(value)) if isinstance(value, Differentiable) else value)
    return tuple(found)


def unpack_all(node: Any) -> tuple[Any, ...]:
    """The values of `pack_all` again, as formulas see them."""
    saved = node.saved  # read once: another thread may free it
    if saved is None:
        raise errors.freed(node)
    return tuple(
        tuple(x.tensor(node) if type(x) is Held else x for x in value)
        if type(value) is tuple
        else value.tensor(node)
        if type(value) is Held
        else value
        for value in saved
    )


class Kept:
    """A tensor that a Function keeps bare. It may not be written in place until backward is through; an output is kept without its node."""

    __slots__ = ("array", "edge", "source", "version", "written")
    source: Any
    array: Any

    def __init__(self, tensor: Any, edge: Any) -> None:
        self.version: Version = version_of(tensor)
        self.written = self.version.written
        self.edge = edge
        self.source = None if type(edge) is int else tensor  # an output itself would make a cycle
        self.array = tensor._array if type(edge) is int else None

    def tensor(self, node: Any) -> Any:
        """The tensor again; RuntimeError if it was written since."""
        if self.version.written != self.written:
            shape = (self.array if self.source is None else self.source._array).shape
            raise errors.modified(node, f"a saved tensor of shape {shape}", self.version)
        if self.source is not None:
            return self.source
        twin = without_graph(object.__new__(node.tensor_class), self.array)
        twin._edge = edge_of(node, self.edge)
        return twin


def keep_all(hooks: Hooks | None, tensors: Sequence[Any], outputs: dict[int, int]) -> tuple[Any, ...]:
    """What a Function saved. `outputs` numbers its outputs that are in the graph, by id."""

    def one(tensor: Any) -> Any:
        if tensor is None:
            return None
        edge = outputs.get(id(tensor))
        edge = edge_to(tensor) if edge is None else edge
        return Kept(tensor, edge) if hooks is None else Held(hooks, tensor, edge)

    return tuple(map(one, tensors))
