"""From nodes to the file's messages: only what leads to a result, with the results' names, the types of inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab._version import __version__
from gradlab.graph.ir.dims import Dim
from gradlab.onnx.emitter import Emitter, Node, Subgraph, Wire
from gradlab.onnx.packages import format_package

IR_VERSION = 10  # what ONNX Runtime 1.20 reads
CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "bfloat16": 16,
}  # fmt: skip


class Ends(NamedTuple):
    """Inputs or outputs of the model: their wires and names."""

    wires: Sequence[Wire]
    names: Sequence[str]


def code_of(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a dtype."""
    return CODES[dtype.name]


def model_of(e: Emitter, inputs: Ends, outputs: Ends, title: str) -> Any:
    """The model's message. Its tensors are in it: `exporting.py` moves large ones to a file of their own."""
    onnx = format_package()
    nodes = [*e.prologue, *e.nodes]
    nodes = renamed(e, nodes, inputs, outputs)
    nodes = living(nodes, set(outputs.names))
    used = {name for node in nodes for name in read_by(node)}
    free = {name: wish for name, wish in e.wishes.items() if name in used and wish not in used}
    for node in walk(nodes):
        node.inputs = [free.get(n, n) for n in node.inputs]
    e.constants.update((wish, e.constants.pop(name)) for name, wish in free.items())
    used = {free.get(n, n) for n in used}
    graph = onnx.GraphProto(name=title)
    graph.node.extend(message(onnx, n) for n in with_names(nodes))
    graph.initializer.extend(tensor(onnx, name, a) for name, a in e.constants.items() if name in used)
    graph.input.extend(typed(onnx, name, w.dtype, w.shape) for w, name in zip(inputs.wires, inputs.names))
    graph.output.extend(typed(onnx, name, w.dtype, w.shape) for w, name in zip(outputs.wires, outputs.names))
    model = onnx.ModelProto(producer_name="gradlab", producer_version=__version__, graph=graph)
    model.opset_import.append(onnx.helper.make_opsetid("", e.opset))
    model.ir_version = min(IR_VERSION, onnx.helper.find_min_ir_version_for(model.opset_import))  # what older runtimes read, too
    return model


def renamed(e: Emitter, nodes: list[Node], inputs: Ends, outputs: Ends) -> list[Node]:
    """Results get the names they are to have: where a value is an input, a constant or two results, by Identity."""
    made = {name for node in nodes for name in node.outputs}
    new: dict[str, str] = {}
    for wire, name in zip(outputs.wires, outputs.names):
        if wire.name in made and wire.name not in new:
            new[wire.name] = name
        else:
            nodes.append(Node("Identity", [wire.name], [name]))
    for node in walk(nodes):
        node.inputs = [new.get(n, n) for n in node.inputs]
        node.outputs = [new.get(n, n) for n in node.outputs]
        for body in bodies_of(node):
            for wire in body.outputs:
                wire.name = new.get(wire.name, wire.name)
    return nodes


def bodies_of(node: Node) -> Iterator[Subgraph]:
    """The graphs inside a node."""
    return (v for v in node.attributes.values() if isinstance(v, Subgraph))


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """All nodes, those inside others too."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from walk(body.nodes)


def read_by(node: Node) -> Iterator[str]:
    """The values that a node and the graphs inside it read."""
    yield from node.inputs
    for body in bodies_of(node):
        for inner in body.nodes:
            yield from read_by(inner)
        yield from (w.name for w in body.outputs)


def living(nodes: Sequence[Node], wanted: set[str]) -> list[Node]:
    """The nodes that lead to what is wanted; optional results that nobody reads are left out."""
    kept: list[Node] = []
    wanted = set(wanted)
    for node in reversed(nodes):
        if not any(name in wanted for name in node.outputs):
            continue
        for body in bodies_of(node):
            body.nodes = living(body.nodes, {w.name for w in body.outputs})
        wanted.update(read_by(node))
        if node.kind in ("LayerNormalization", "MaxPool", "TopK", "Dropout"):
            found = [name if name in wanted or i == 0 else "" for i, name in enumerate(node.outputs)]
            while node.kind != "TopK" and not found[-1]:
                found.pop()
            node.outputs = found if node.kind != "TopK" else node.outputs
        kept.append(node)
    return kept[::-1]


def with_names(nodes: Sequence[Node]) -> Sequence[Node]:
    """Nodes are called by the module they belong to."""
    count: dict[str, int] = {}
    for node in walk(nodes):
        base = f"{node.scope}/{node.kind}"
        number = count[base] = count.get(base, -1) + 1
        node.scope = base if not number else f"{base}_{number}"
    return nodes


def message(onnx: Any, node: Node) -> Any:
    """A node's message."""
    found = onnx.NodeProto(op_type=node.kind, input=node.inputs, output=node.outputs, name=node.scope)
    for name, value in node.attributes.items():
        found.attribute.append(attribute(onnx, name, value))
    return found


def attribute(onnx: Any, name: str, value: Any) -> Any:
    """An attribute's message; a dtype is its number."""
    if isinstance(value, np.dtype):
        value = code_of(value)
    if isinstance(value, Subgraph):
        graph = onnx.GraphProto(name="body")
        graph.node.extend(message(onnx, n) for n in value.nodes)
        graph.input.extend(typed(onnx, w.name, w.dtype, w.shape) for w in value.inputs)
        graph.output.extend(onnx.ValueInfoProto(name=w.name) for w in value.outputs)
        return onnx.helper.make_attribute(name, graph)
    if isinstance(value, (list, tuple)):
        value = [v.item() if isinstance(v, np.generic) else v for v in value]
        if not value:
            return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    return onnx.helper.make_attribute(name, value)


def tensor(onnx: Any, name: str, array: Any) -> Any:
    """A constant's message, its bytes as they are."""
    plain = np.ascontiguousarray(array)
    found = onnx.TensorProto(name=name, data_type=code_of(plain.dtype), dims=array.shape)
    found.raw_data = plain.tobytes() if plain.dtype.byteorder != ">" else plain.astype(plain.dtype.newbyteorder("<")).tobytes()
    return found


def typed(onnx: Any, name: str, dtype: np.dtype[Any], shape: Any) -> Any:
    """A value's type; unknown sizes by name, computed ones left open."""
    sizes = None if shape is None else [dimension(s) for s in shape]
    return onnx.helper.make_tensor_value_info(name, code_of(dtype), sizes)


def dimension(size: Any) -> Any:
    """A size as a number, the name of an unknown one, or None."""
    if isinstance(size, Dim):
        return size.expr if isinstance(size.expr, str) else None
    return int(size)


def bytes_of(constants: Mapping[str, Any]) -> int:
    """How much memory constants take."""
    return sum(int(a.nbytes) for a in constants.values())
