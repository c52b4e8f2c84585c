"""From a file's messages to nodes that run: reading and checking them, and running a graph node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.graph.staging.symbol import TraceError
from gradlab.onnx.holders import NAMES, held
from gradlab.onnx.hosts import HOST, OPEN, NotHere, settled
from gradlab.onnx.importing import EXTRA, OPERATORS, Node, OnnxLoadError, Operator, on_host, read, texts, way_out
from gradlab.onnx.packages import format_package
from gradlab.tensor.tensor import Tensor

DOMAINS = ("", "ai.onnx")
KNOWN = (*DOMAINS, EXTRA)
HELD_TYPES = {"QuantizeLinear": (2, "output_dtype"), "CastLike": (1, "to"), "GatherBlockQuantized": (0, "stored"),
              "BitCast": (0, "stored"), "BitwiseNot": (0, "stored")}  # fmt: skip
"""Operators to which it matters which type an input has that is held in another: the input's number, and the attribute that says it."""
LATER = (KeyError, AttributeError, AssertionError, ArithmeticError, MemoryError, RecursionError, StopIteration, OSError)


@dataclass
class Reading:
    """What is known while a file is read. missing: nodes that are not supported."""

    opsets: dict[str, int]
    functions: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    depth: int = 0
    types: dict[str, int] = field(default_factory=dict)  # of tensors that are held in another type: ONNX's numbers of theirs


class Body:
    """The nodes of a graph, also of one inside a node's attribute (a branch, a loop's body)."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str], constants: dict[str, Any], nodes: list[Node]) -> None:
        self.inputs, self.outputs, self.constants, self.nodes = list(inputs), list(outputs), constants, nodes
        self.weights: dict[str, tuple[str, ...]] = {}  # names of tensors, and where the model keeps them
        self.placed: dict[str, tuple[str, ...]] = {}  # likewise constants that are used as tensors, too
        self.owner: Any = None

    def run(self, values: dict[str, Any], device: Device | None) -> list[Any]:
        """Run the nodes; `values` holds inputs and what lies around, and gets what the nodes make."""
        for name, value in self.constants.items():
            values.setdefault(name, value)
        for name, path in self.weights.items():
            values[name] = self.owner.weight(path)
        for node in self.nodes:
            found = self.step(node, [values[name] if name else None for name in node.inputs], device, values)
            made = found if isinstance(found, tuple) else (found,)
            values.update((name, value) for name, value in zip(node.outputs, made, strict=False) if name)
            for name in node.last:
                values.pop(name, None)
        return [values[name] for name in self.outputs]

    def step(self, node: Node, arguments: list[Any], device: Device | None, values: Any) -> Any:
        """Run one node: on the host where all that it is given is there."""
        operator = node.operator
        live = node.at(device, values)
        if operator.host and device is not None and device.type != "cpu" and current().tracer is None:  # plain numbers that lie elsewhere
            arguments = [read(live, a, "a number") if i in operator.host else a for i, a in enumerate(arguments)]
        try:
            if operator.always_host:
                if any(type(a) is np.ndarray and a.dtype == object for a in arguments):
                    raise live.refuse("it needs a size that is left open; keep that size fixed")
                return on_host(operator, live, arguments)
            data = [a for i, a in enumerate(arguments) if a is not None and i not in operator.host]
            known = data or (arguments if node.kind in HOST else ())
            if known and all(type(a) is np.ndarray for a in known) and not any(isinstance(a, Body) for a in node.attributes.values()):
                found = hosted(operator, live, arguments)
                if found is not None:
                    return found
            mixed = operator.numbers and len(arguments) == 2
            moved = []
            for i, a in enumerate(arguments):
                if type(a) is np.ndarray and i not in operator.host and a.dtype.kind != "U":
                    other = arguments[1 - i] if mixed else None
                    if mixed and isinstance(other, Tensor) and a.size == 1 and a.ndim <= other.dim() and same_kind(a, other):
                        a = a.reshape(-1)[0].item() if a.dtype != object else a.reshape(-1)[0]
                    else:
                        place = self.placed.get(node.inputs[i])
                        a = live.tensor(a) if place is None else self.owner.weight(place)
                moved.append(a)
            return operator.run(live, *moved)
        except OnnxLoadError:
            raise
        except TraceError as error:
            what, *places = str(error).split("\n")
            raise TraceError("\n".join([f"onnx: {node.where}: {what}{way_out(live)}", *places])) from error
        except (ValueError, RuntimeError, TypeError, IndexError, NotImplementedError) as error:
            kind = ValueError if isinstance(error, UnicodeError) else type(error)  # one that takes a message
            raise kind(f"onnx: {node.where}: {error}") from error
        except LATER as error:
            raise OnnxLoadError(f"onnx: {node.where}: {type(error).__name__}: {error}") from error


def same_kind(a: Any, other: Tensor) -> bool:
    """Whether a number beside a tensor means what an array of one element does."""
    dtype = other.dtype.dtype
    return bool(a.dtype == dtype or a.dtype == object) if dtype.kind in "fiV" and dtype.itemsize > 1 else False


def hosted(operator: Operator, node: Node, arguments: list[Any]) -> Any:
    """The result on the host, or None for what has to be computed with tensors: with open sizes, where there is no function for them."""
    symbolic = any(type(a) is np.ndarray and a.dtype == object for a in arguments)
    function = HOST.get(node.kind)
    if function is not None and (not symbolic or node.kind in OPEN):
        try:
            found = function(node, *arguments)
            return tuple(map(np.asarray, found)) if isinstance(found, tuple) else settled(found)
        except NotHere:
            pass
        except TraceError:  # it needs the size itself
            return None
    return None if symbolic else on_host(operator, node, arguments)


# ---------------------------------------------------------------- reading


def array_of(proto: Any) -> Any:
    """A tensor's message as an array. ValueError for one whose data do not fit its shape."""
    onnx = format_package()
    if proto.data_type == onnx.TensorProto.UNDEFINED:
        raise ValueError(f"the tensor {proto.name!r} has no data type")
    if any(d < 0 for d in proto.dims):
        raise ValueError(f"the tensor {proto.name!r} has the shape {list(proto.dims)}")
    found = np.array(onnx.numpy_helper.to_array(proto))
    if found.dtype == object:
        found = texts(found)
    if tuple(found.shape) != tuple(proto.dims):
        raise ValueError(f"the data of the tensor {proto.name!r} do not fit its shape {list(proto.dims)}")
    return held(found)


def sparse_of(proto: Any) -> Any:
    """A sparse tensor's message as an array with all its zeros."""
    values, at, dims = array_of(proto.values), array_of(proto.indices), tuple(proto.dims)
    if np.prod(dims, dtype=object) > 1 << 28:
        raise ValueError(f"a sparse tensor of shape {dims} is too large to be written out")
    found = np.zeros(dims, values.dtype)
    if at.ndim == 1:
        found.reshape(-1)[at] = values
    else:
        found[tuple(at.T)] = values
    return found


def body_of(graph: Any, reading: Reading, outer: Iterable[str] = ()) -> Body:
    """A graph's message. OnnxLoadError for one that reads what nobody makes."""
    constants = {i.name: array_of(i) for i in graph.initializer}
    constants.update((i.values.name, sparse_of(i)) for i in graph.sparse_initializer)
    kinds = {v.name: v.type.tensor_type.elem_type for v in graph.input} | {i.name: i.data_type for i in graph.initializer}
    reading.types.update((name, kind) for name, kind in kinds.items() if kind in NAMES)
    inputs, outputs = [v.name for v in graph.input], [v.name for v in graph.output]
    if len(set(inputs)) != len(inputs) or not all(inputs):
        raise OnnxLoadError(f"onnx.load: the graph's inputs are {inputs}")
    known = {*outer, *inputs, *constants}
    nodes = nodes_of(graph.node, known, {}, reading)
    if lost := [name for name in outputs if name not in known]:
        raise OnnxLoadError(f"onnx.load: no node makes the graph's output {', '.join(map(repr, lost))}")
    return Body(inputs, outputs, constants, nodes)


def nodes_of(protos: Any, known: set[str], given: Mapping[str, Any], reading: Reading) -> list[Node]:
    """Nodes, and in `known` what they make. given: the attributes of the function whose body this is."""
    found: list[Node] = []
    for proto in protos:
        node = node_of(proto, known, given, reading)
        if lost := [name for name in node.inputs if name and name not in known]:
            raise OnnxLoadError(f"onnx.load: {node.where} reads {', '.join(map(repr, lost))}, which no node before it makes")
        found += stored(node, known)
        parts = node.operator.parts if node.operator is not None else None
        found += [node] if parts is None else parts(node)
        known.update(name for n in found[-2:] for name in n.outputs if name)
    return found


def stored(node: Node, known: set[str]) -> Iterator[Node]:
    """Constants of the tensors that stand among a node's attributes, which reads them from now on."""
    if node.operator is None or node.operator.arrays is None:
        return
    for name, array in node.operator.arrays(node).items():
        base = f"{node.name or node.outputs[0]}.{name}"
        label = base if base not in known else f"{base}_{len(known)}"
        known.add(label)
        node.inputs.append(label)
        constant = Node("Constant", label, [], [label], {"value": array}, node.opset)
        constant.operator = OPERATORS["Constant"]
        yield constant


def node_of(proto: Any, known: set[str], given: Mapping[str, Any], reading: Reading) -> Node:
    """One node."""
    onnx = format_package()
    domain = "" if proto.domain in DOMAINS else proto.domain
    attributes: dict[str, Any] = {}
    for a in proto.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in given:
                attributes[a.name] = given[a.ref_attr_name]
            continue
        attributes[a.name] = attribute_of(onnx, a, reading, known)
    opset = reading.opsets.get(domain, reading.opsets.get("", 1))
    reading.types.update((proto.output[0], a.t.data_type) for a in proto.attribute if a.name == "value" and a.t.data_type in NAMES)
    if proto.op_type in ("Cast", "BitCast") and attributes.get("to") in NAMES:
        reading.types[proto.output[0]] = attributes["to"]
    at, attribute = HELD_TYPES.get(proto.op_type, (0, ""))
    if attribute and len(proto.input) > at and proto.input[at] in reading.types:
        attributes[attribute] = reading.types[proto.input[at]]
    node = Node(proto.op_type, proto.name, list(proto.input), list(proto.output), attributes, opset)
    function = reading.functions.get((domain, proto.op_type))
    name = proto.op_type if not domain else f"{domain}:{proto.op_type}"
    node.operator = OPERATORS.get(name) if function is None else None
    schema = schema_of(proto.op_type, domain, opset)
    if node.operator is not None and schema is not None:
        fits(node, schema)
    if node.operator is None:
        node.operator = expanded(node, function, schema, reading)
    if node.operator is None:
        reading.missing.append(node.where + (f" of {domain}" if domain else ""))
    elif domain == "" and opset < node.operator.first:
        reading.missing.append(f"{node.where} of opset {opset} (from {node.operator.first} on it is supported)")
    elif schema is not None and schema.deprecated and node.kind not in ("Upsample", "Scatter", "GroupNormalization"):
        reading.missing.append(f"{node.where}, which opset {opset} no longer has")
    return node


def attribute_of(onnx: Any, proto: Any, reading: Reading, known: Iterable[str] = ()) -> Any:
    """An attribute's value. known: what a graph in it sees."""
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, onnx.GraphProto):
        return body_of(value, reading, known)
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, onnx.SparseTensorProto):
        return sparse_of(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value


def schema_of(kind: str, domain: str, opset: int) -> Any:
    """ONNX's own description of an operator, if it has one."""
    onnx = format_package()
    try:
        return onnx.defs.get_schema(kind, min(opset, onnx.defs.onnx_opset_version()), domain)
    except Exception:  # the package's own class of error: there is none
        return None


def fits(node: Node, schema: Any) -> None:
    """OnnxLoadError for a node with more or fewer inputs than its operator takes, or without an attribute that it needs."""
    count = len(node.inputs)
    while count and not node.inputs[count - 1]:
        count -= 1
    if not schema.min_input <= len(node.inputs) or count > schema.max_input:
        raise node.refuse(f"{schema.min_input} to {schema.max_input} inputs are taken, and there are {count}")
    if len(node.outputs) > schema.max_output or not any(node.outputs):
        raise node.refuse(f"{schema.min_output} to {schema.max_output} results are made, and {len(node.outputs)} are asked for")
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            raise node.refuse(f"the attribute {name} is missing")


def expanded(node: Node, function: Any, schema: Any, reading: Reading) -> Operator | None:
    """An operator that is a function of others: of the file's own functions, or as ONNX describes it."""
    if function is None and schema is not None and schema.has_function:
        function = schema.function_body
    if function is None or reading.depth > 30:
        return None
    opsets = {("" if o.domain in DOMAINS else o.domain): o.version for o in function.opset_import} or reading.opsets
    inner = Reading(opsets, reading.functions, reading.missing, reading.depth + 1)
    onnx = format_package()
    attributes = {a.name: attribute_of(onnx, a, reading) for a in function.attribute_proto}
    known = set(function.input)
    nodes = nodes_of(function.node, known, {**attributes, **node.attributes}, inner)
    if lost := [name for name in function.output if name not in known]:
        raise node.refuse(f"its function makes no {', '.join(lost)}")
    body = Body(list(function.input), list(function.output), {}, nodes)
    node.attributes["body"] = body

    def run(node: Node, *inputs: Any) -> Any:
        inside: Body = node.get("body")
        values = dict.fromkeys(inside.inputs)
        values.update(zip(inside.inputs, inputs, strict=False))
        return tuple(inside.run(values, node.device))

    return Operator(run)
