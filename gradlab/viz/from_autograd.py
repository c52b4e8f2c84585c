"""The Diagram of a recorded graph: what leads to a loss, in the order of the forward."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.engine import reachable
from gradlab.spec import Spec, spec_of
from gradlab.tensor import Tensor
from gradlab.viz.diagram import ROOT, Chip, Diagram, Vertex, extent, size, source_line

WORDS = {"w": "weight", "b": "bias", "x": "input", "a": "input", "xs": "input", "at": "indices"}


def root_of(tensor: Any) -> Any:
    """The tensor's node. TypeError or RuntimeError where there is none."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"a picture is drawn of a tensor that was computed, for example a loss, not of {type(tensor).__name__}")
    if tensor.grad_fn is None:
        raise RuntimeError(
            "this tensor has no grad_fn, so there is no graph to show: it is a leaf, or nothing that it was computed from requires grad, "
            "or it was computed under no_grad() or detached"
        )
    return tensor.grad_fn


def diagram(tensor: Any, names: dict[int, str] | None = None) -> Diagram:
    """What leads to `tensor`. `names` gives the parameters' names by the id of the tensor."""
    root = root_of(tensor)
    return _Reader(tensor, root, names or {}).read()


class _Reader:
    def __init__(self, tensor: Any, root: Any, names: dict[int, str]) -> None:
        self.tensor, self.root, self.names = tensor, root, names
        self.nodes = reachable([root])[::-1]
        self.specs = output_specs(self.nodes, tensor)
        self.found = Diagram(_title(root))
        self.vertices: dict[Any, Vertex] = {}
        self.counted: set[int] = set()  # buffers whose bytes some operation has shown already
        self.leaves: dict[int, tuple[Any, list[tuple[Any, int]]]] = {}  # id -> leaf, the nodes and positions that use it
        self.inputs: dict[int, Vertex] = {}

    def read(self) -> Diagram:
        found = self.found
        for node in self.nodes:
            found.boxes[found.box_of(node.scope, node.seq)].place = ""
            vertex = self.vertices[node] = self._operation(node)
            for position, edge in enumerate(node.edges):
                if isinstance(edge, Differentiable):
                    self.leaves.setdefault(id(edge), (edge, []))[1].append((node, position))
                elif edge is not None:
                    found.flow(self.vertices[edge.node], vertex)
        for leaf, uses in self.leaves.values():
            self._leaf(leaf, uses)
        for node in self.nodes:
            self._unrecorded(node)
        end = found.vertex("output", self._name(self.tensor) or "output", extent(*spec_of(self.tensor._array)), ROOT, math.inf)
        found.flow(self.vertices[self.root], end)
        found.note = " · ".join(found.summary(found.vertices + self._tied()))
        return found.melt()

    def _tied(self) -> list[Vertex]:
        """The parameters with a vertex of their own, as chips, to be counted."""
        shared = [leaf for leaf, uses in self.leaves.values() if len(uses) > 1 and _kind(leaf) == "parameter"]
        return [Vertex(0, "", "", "", 0, 0, chips=[Chip("parameter", "", "", x.numel()) for x in shared])]

    def _operation(self, node: Any) -> Vertex:
        spec = self.specs.get((node, 0))
        where, line = source_line(node.forward_position)
        kept, own = self._kept(node)
        facts = [("backward", node.name())]
        if node.count > 1:
            names = node.op.outputs if hasattr(node, "op") else range(node.count)
            facts += [(f"output {name}", _text(self.specs.get((node, i)))) for i, name in enumerate(names)]
        elif spec is not None:
            facts.append(("result", _text(spec)))
        params = getattr(node, "params", None) or {}
        facts += [(name, repr(value)) for name, value in params.items() if len(repr(value)) < 60]
        facts += own
        if node.saved is None:
            facts.append(("kept", "freed by a backward"))
        shape = extent(*spec) if spec is not None else ""
        return self.found.vertex(
            "operation", _title(node), shape, self.found.box_of(node.scope, node.seq), node.seq, kept=kept, place=where, facts=facts + line
        )

    def _kept(self, node: Any) -> tuple[int, list[tuple[str, str]]]:
        """Bytes that only backward keeps alive, each buffer counted at the first operation that keeps it; and what is kept, in words."""
        total, facts = 0, []
        op = getattr(node, "op", None)
        names = (*op.kept_inputs, *op.kept_outputs) if op is not None else ()
        for name, value in zip_longest(names, node.saved or (), fillvalue=None):
            for part in value if type(value) is tuple else (value,):
                part = getattr(part, "value", part)  # packed by saved_tensors_hooks
                if not isinstance(part, Differentiable) and not hasattr(part, "nbytes"):
                    continue
                leaf = isinstance(part, Differentiable) and part._edge is LEAF
                array = part._array if isinstance(part, Differentiable) else part
                buffer = _buffer(array)
                if leaf:
                    facts.append(("keeps", f"{name}: the leaf itself"))
                elif id(buffer) in self.counted:
                    facts.append(("keeps", f"{name}: shared with an earlier operation"))
                else:
                    self.counted.add(id(buffer))
                    count = int(getattr(buffer, "nbytes", 0))
                    total += count
                    facts.append(("keeps", f"{name}: {size(count)}"))
        return total, facts

    def _name(self, tensor: Any) -> str:
        return self.names.get(id(tensor), "")

    def _leaf(self, leaf: Any, uses: list[tuple[Any, int]]) -> None:
        """A leaf with one use is a chip at its operation; one with several is a vertex."""
        node, position = uses[0]
        shape, kind = extent(*spec_of(leaf._array)), _kind(leaf)
        name = self._name(leaf) or _role(node, position) or kind
        if len(uses) == 1 and kind == "parameter":
            self.vertices[node].chips.append(Chip(kind, name.rpartition(".")[2], shape, leaf.numel()))
            self.vertices[node].facts.append((kind, f"{name} {shape}"))
            return
        where = [self.vertices[n].box for n, _ in uses]
        box = self.found.common(where) if kind == "parameter" else ROOT
        made = self.found.vertex(kind, name, shape, box, self._before(box))
        made.facts.append((KIND_WORDS[kind], f"{leaf.numel():,} elements, {size(leaf.nbytes)}"))
        for user, _ in uses:
            self.found.flow(made, self.vertices[user])

    def _before(self, box: int) -> float:
        """A time before all that is in a box."""
        return (self.found.boxes[box].order if box else 0.0) - 1 + 1e-6 * len(self.found.vertices)

    def _unrecorded(self, node: Any) -> None:
        """What an operation keeps of tensors outside the graph: data where the graph begins or a loss ends, else constants."""
        begins = all(e is None or isinstance(e, Differentiable) for e in node.edges)
        for name, value in zip(node.op.kept_inputs if hasattr(node, "op") else (), node.saved or ()):
            if not isinstance(value, Differentiable) or value._edge is not None or not value._array.shape:
                continue
            position = node.op.inputs.index(name)
            if position < len(node.edges) and node.edges[position] is not None:
                continue
            shape, dtype = spec_of(value._array)
            text, word, vertex = extent(shape, dtype), WORDS.get(name, name), self.vertices[node]
            if not begins and dtype.kind not in "iu":
                vertex.chips.append(Chip("constant", word, text, math.prod(shape)))
                continue
            key = id(_buffer(value._array))
            if key not in self.inputs:
                self.inputs[key] = self.found.vertex("input", self._name(value) or word, text, ROOT, self._before(ROOT))
            self.found.flow(self.inputs[key], vertex)


KIND_WORDS = {"parameter": "parameter", "leaf": "leaf"}


def _kind(leaf: Any) -> str:
    return "leaf" if type(leaf) is Tensor else "parameter"


def _title(node: Any) -> str:
    """The row's name; of a node without a row, the name of its class without its ending."""
    return node.op.name if hasattr(node, "op") else node.name().partition("Backward")[0] or node.name()


def _role(node: Any, position: int) -> str:
    """What a layer's row calls a parameter; nothing for rows such as `mul`, whose inputs have no roles."""
    name = _input_name(node, position)
    return WORDS.get(name, name) if name in ("weight", "bias", "w") or (name == "b" and "w" in node.op.inputs) else ""


def _input_name(node: Any, position: int) -> str:
    return node.op.inputs[min(position, len(node.op.inputs) - 1)] if hasattr(node, "op") else "input"


def _buffer(array: Any) -> Any:
    """The array that owns the memory."""
    while hasattr(getattr(array, "base", None), "nbytes"):
        array = array.base
    return array


def _text(spec: Any) -> str:
    return "" if spec is None else f"{tuple(spec[0])} {spec[1]}"


def output_specs(nodes: list[Any], tensor: Any) -> dict[tuple[Any, int], Spec]:
    """The Spec of each output of the nodes (oldest first). Those of the fast call paths do not note it; it follows from their inputs."""
    found: dict[tuple[Any, int], Spec] = {}
    for node in nodes:
        known = getattr(node, "output_specs", None)
        if known is not None:
            found.update({(node, i): Spec(*spec) for i, spec in enumerate(known)})
        elif (spec := _by_rule(node, found)) is not None:
            found[node, 0] = spec
        for position, edge in enumerate(node.edges):
            if edge is not None and not isinstance(edge, Differentiable) and node.specs is not None and position < len(node.specs):
                found[edge.node, edge.index] = Spec(*node.specs[position])
    found[tensor._edge.node, tensor._edge.index] = spec_of(tensor._array)
    return found


def _by_rule(node: Any, found: dict[tuple[Any, int], Spec]) -> Spec | None:
    """An output's Spec from the row's rule; an input that left no trace (a number, a constant) is taken to be like the others."""
    if not hasattr(node, "op"):
        return None
    kept = dict(zip(node.op.kept_inputs, node.saved or ()))
    specs: list[Spec | None] = []
    for position, edge in enumerate(node.edges):
        value = kept.get(_input_name(node, position))
        if node.specs is not None:
            specs.append(node.specs[position])
        elif isinstance(edge, Differentiable):
            specs.append(spec_of(edge._array))
        elif edge is not None:
            specs.append(found.get((edge.node, edge.index)))
        else:
            specs.append(spec_of(value._array) if isinstance(value, Differentiable) else None)
    like = next((s for s in specs if s is not None), None)
    if like is None:
        return None
    try:
        return node.op.specs(*[s or like for s in specs], **(getattr(node, "params", None) or {}))[0]
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
