"""Programs that are differentiated from outside: their results' node in the autograd graph, and the backward program behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from sys import _getframe as getframe
from typing import Any, ClassVar

from gradlab.autograd import errors
from gradlab.autograd.base import LEAF, Version, version_of
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.autograd.record import wrap
from gradlab.batched import Batched
from gradlab.call_site import user_frame
from gradlab.graph.calls.forward_backward import Second
from gradlab.graph.staging.stage import Backward
from gradlab.graph.staging.symbol import TraceError
from gradlab.nn.multi_output_node import joined

CHANGED = (
    "compile: a tensor that the backward of this compiled function needs was changed in place after its forward; call the function again, "
    "or compile the whole step with the update in it"
)
WRITES = "compile: gradients of gradients (create_graph=True) through a compiled function that uses an argument and writes it in place"
MADE = (
    "compile: gradients of gradients (create_graph=True) through a compiled function that returns a leaf which it makes; make it outside, "
    "and pass it in"
)
LATE = "a result of a compiled function that ran before the trace is differentiated in it; call that function inside as well"


class Call:
    """One call of a differentiable program, as its backward has to know it to be differentiated itself."""

    __slots__ = ("args", "drawn", "given", "kwargs", "mode", "when")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[Any], drawn: list[tuple[Any, Any]]) -> None:
        self.args, self.kwargs, self.given = args, kwargs, given
        self.drawn = drawn  # the generators, as they were before
        self.mode, self.when = current(), next_sequence()


Again = Callable[[Call, list[Any]], list[Any]]


class Outside:
    """The backward of one program: `results(...)` puts the values of a call into the graph.

    executable  of the backward program
    memory      makes arrays of the program's device
    read        positions, among the arguments, of those whose arrays the backward reads
    again       from a call and the gradients of its results to those of its inputs, differentiable again
    """

    def __init__(self, backward: Backward, second: Second, executable: Any, memory: Any, read: Sequence[int], again: Again) -> None:
        self.backward, self.second, self.executable, self.memory = backward, second, executable, memory
        self.read, self.again = read, again
        self.arrays = second.arguments
        # Whose the gradients are: known once and for all, but for arguments. That a tensor's edge is what it was is guarded.
        self.edges = [edge_to(place) if kind == "tensor" else None for kind, place in backward.leaves]
        self.arguments = [(i, place) for i, (kind, place) in enumerate(backward.leaves) if kind == "argument"]
        self.made = [(i, place) for i, (kind, place) in enumerate(backward.leaves) if kind == "value" and place is not None]
        self.unseen = all(kind == "value" and place is None for kind, place in backward.leaves)
        self.specs = tuple(v.spec for v in backward.gradients)
        self.empty = [(v.spec.shape, v.spec.dtype) for v in second.outputs]
        members = {"__slots__": (), "outside": self, "count": len(backward.roots)}
        self.node = type("CompiledBackward0", (CompiledNode,), members)

    def results(self, given: Sequence[Any], arrays: Sequence[Any], outs: Sequence[Any], saved: Sequence[Any], call: Call) -> list[Any]:
        """The values of a call as tensors."""
        node: CompiledNode = object.__new__(self.node)
        made = list(map(wrap, outs))
        edges = self.edges
        if self.arguments or self.made:
            edges = edges.copy()
            for i, place in self.arguments:
                edges[i] = edge_to(given[place])
            for i, place in self.made:
                made[place]._edge = LEAF
                edges[i] = edge_to(made[place])
        node.edges = tuple(edges)
        node.params, node.specs, node.versions, node.hooks, node.output_specs = _NOTHING, None, None, None, self.specs
        node.seq, node.scope, node.call = call.when, call.mode.scope, call
        node.code, node.lasti = user_frame(getframe(2))
        node.saved = (*[arrays[i] for i in self.arrays], *saved)
        node.stamps = stamps = []
        for t in (*self.second.tensors, *[given[i] for i in self.read]) if self.read else self.second.tensors:
            version = None if t._meta is None else t._meta.version
            if version is None:
                version = version_of(t)
            stamps.append((version, version.written))
        if node.count == 1:
            made[self.backward.roots[0]]._edge = node
        else:
            for index, i in enumerate(self.backward.roots):
                made[i]._edge = Edge(node, index)
        return made

    def through(self, made: list[Any], given: Sequence[Any], written: Sequence[tuple[int, int]]) -> list[Any]:
        """The values of a call as functions of the arguments that it has written, too: such an argument may be asked for its gradient."""
        late, roots = self.backward.late, self.backward.roots
        rest = [i for i in roots if i not in late]
        places = {k: given[i] for i, k in written}
        node = made[rest[0]]._edge.node

        def back(gradients: list[Any]) -> list[Any]:
            if current().recording:
                raise NotImplementedError(WRITES)
            arrived = dict(zip(rest, gradients, strict=True))
            return [*gradients, *self.gradients(node, [arrived.get(i) for i in roots], late=True)]

        inputs = [*(made[i] for i in rest), *(places[k] for k in late)]
        found = dict(zip(rest, joined("CompiledBackward0", inputs, [made[i]._array for i in rest], back), strict=True))
        return [found.get(i, t) for i, t in enumerate(made)]

    def gradients(self, node: CompiledNode, arrived: list[Any], late: bool = False) -> list[Any]:
        """Of a call's inputs, from those of its results. late: of the arguments that it has written instead."""
        mode = current()
        if mode.tracer is not None:
            raise TraceError(LATE)
        if node.saved is None:
            raise errors.freed(node)
        for version, was in node.stamps:
            if version.written != was:
                raise RuntimeError(CHANGED)
        if self.unseen:
            return [None] * len(self.edges)
        if mode.vmap is not None and any(g is not None and type(g._array) is Batched for g in arrived):
            return self._one_by_one(node, arrived, late)
        if mode.recording:
            if self.made:
                raise NotImplementedError(MADE)
            return self.again(node.call, arrived)
        memory = self.memory
        starts = [memory.zeros(*spec) if g is None else g._array for g, spec in zip(arrived, node.output_specs)]
        empty = memory.empty
        results = [empty(shape, dtype) for shape, dtype in self.empty]
        execute = None if mode.observer is None else getattr(mode.observer, "execute", None)  # of a profile
        if execute is None:
            self.executable.run([*starts, *node.saved], results)
        else:
            execute(self.executable, [*starts, *node.saved], results)
        found = map(wrap, results)
        every = [None if v is None else next(found) for v in self.backward.results]
        return every[len(self.edges) :] if late else every[: len(self.edges)]


    def _one_by_one(self, node: CompiledNode, arrived: list[Any], late: bool) -> list[Any]:
        """The same under vmap, as `func.jacrev` and `func.hessian` go backward: the program runs for each vector of the batch."""
        levels: Any = import_module("gradlab.func.vmap_levels")  # few programs meet it
        level = max((g._array.level for g in arrived if g is not None and type(g._array) is Batched), key=lambda found: found.depth)
        token = enter(level.below(current()))
        try:
            rows = [[_row(g, level, i) for g in arrived] for i in range(level.size)] or [[None] * len(arrived)]
            columns = zip(*(self.gradients(node, row, late) for row in rows))
            return [
                None if ys[0] is None else wrap(Batched(levels.together(list(ys)).narrow(0, 0, level.size), level, True)) for ys in columns
            ]
        finally:
            leave(token)


def _row(g: Any, level: Any, i: int) -> Any:
    """What a gradient inside of vmap is for one sample."""
    if g is None or type(g._array) is not Batched or g._array.level is not level:
        return g
    return g._array.value.select(0, i) if g._array.mapped else g._array.value


class CompiledNode(Node):
    """One call of a compiled function in the graph; every program has a class of its own."""

    __slots__ = ("call", "stamps")
    outside: ClassVar[Outside]
    call: Call
    stamps: list[tuple[Version, int]]  # of the tensors that the backward reads, and when they had been written
    targets = frozenset(range(4096))

    def watch(self, index: int, version: Version) -> None:
        """Nothing to watch: what the backward keeps are copies of its own, or stamped."""

    def back(self, g: Any) -> Any:
        return self.outside.gradients(self, list(g) if self.count > 1 else [g])


_NOTHING: dict[str, Any] = {}
