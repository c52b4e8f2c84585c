"""`load`: an ONNX file as a module that runs, and can be trained, here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradlab.device import Device
from gradlab.nn import Module, Parameter
from gradlab.onnx.importing import OPERATORS, Node, OnnxLoadError, on_host
from gradlab.onnx.operators import ready
from gradlab.onnx.packages import format_package
from gradlab.tensor import creation as tensors
from gradlab.tensor.tensor import Tensor

DOMAINS = ("", "ai.onnx")
STATISTICS = {"BatchNormalization": (3, 4)}  # inputs that are no parameters: they are not trained


class Body:
    """The nodes of a graph, also of one inside a node's attribute (a branch, a loop's body)."""

    def __init__(self, graph: Any, opset: int, owner: OnnxModel) -> None:
        onnx = format_package()
        self.owner = owner
        self.inputs = [v.name for v in graph.input]
        self.outputs = [v.name for v in graph.output]
        self.constants: dict[str, Any] = {i.name: _array(onnx, i) for i in graph.initializer}
        self.nodes = [self._node(onnx, n, opset) for n in graph.node]

    def _node(self, onnx: Any, proto: Any, opset: int) -> Node:
        attributes: dict[str, Any] = {}
        for a in proto.attribute:
            value = onnx.helper.get_attribute_value(a)
            if isinstance(value, onnx.GraphProto):
                value = Body(value, opset, self.owner)
            elif isinstance(value, onnx.TensorProto):
                value = _array(onnx, value)
            elif isinstance(value, bytes):
                value = value.decode()
            elif isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
                value = [v.decode() if isinstance(v, bytes) else v for v in value]
            attributes[a.name] = value
        node = Node(proto.op_type, proto.name, list(proto.input), list(proto.output), attributes, opset)
        node.operator = OPERATORS.get(proto.op_type) if proto.domain in DOMAINS else None
        if node.operator is None:
            self.owner.missing.append(node.where + (f" of {proto.domain}" if proto.domain not in DOMAINS else ""))
        elif opset < node.operator.first:
            self.owner.missing.append(f"{node.where} of opset {opset} (from {node.operator.first} on it is supported)")
        return node

    def run(self, values: dict[str, Any], device: Device | None) -> list[Any]:
        """Run the nodes; `values` holds inputs and what lies around, and gets what the nodes make."""
        for name, value in self.constants.items():
            values.setdefault(name, value)
        for node in self.nodes:
            arguments = [values[name] if name else None for name in node.inputs]
            found = step(node, arguments, device, values)
            made = found if isinstance(found, tuple) else (found,)
            values.update((name, value) for name, value in zip(node.outputs, made, strict=False) if name)
        return [values[name] for name in self.outputs]


def step(node: Node, arguments: Sequence[Any], device: Device | None, values: dict[str, Any]) -> Any:
    """Run one node: on the host where all that it is given is there."""
    operator = node.operator
    node.device, node.scope = device, values
    try:
        data = [a for i, a in enumerate(arguments) if i not in operator.host and a is not None]
        inner = any(isinstance(a, Body) for a in node.attributes.values())
        if operator.always_host or (data and not inner and all(isinstance(a, np.ndarray) for a in data)):
            return on_host(operator, node, arguments)
        moved = [node.tensor(a) if isinstance(a, np.ndarray) and i not in operator.host else a for i, a in enumerate(arguments)]
        return operator.run(node, *moved)
    except OnnxLoadError:
        raise
    except (ValueError, RuntimeError, TypeError, IndexError, NotImplementedError) as error:
        raise type(error)(f"onnx: {node.where}: {error}") from error


class OnnxModel(Module):
    """A loaded ONNX graph. Call it with the graph's inputs, by position or name; it returns its output, or a tuple of several.

    Floating-point initializers are its parameters, under their names in the file (dots make submodules, as they do in PyTorch's exports),
    running statistics are buffers; both have `state_dict` entries. What the file holds as plain numbers (shapes, axes) stays as it is.
    Call it under `gl.compile` as any module. Made by `gl.onnx.load`.
    """

    def __init__(self, proto: Any) -> None:
        super().__init__()
        ready()
        versions = {o.domain: o.version for o in proto.opset_import}
        self.opset = versions.get("", versions.get("ai.onnx", 1))
        self.missing: list[str] = []
        self.body = Body(proto.graph, self.opset, self)
        if self.missing:
            raise OnnxLoadError(f"onnx.load: not supported here: {'; '.join(dict.fromkeys(self.missing))}")
        constants = self.body.constants
        self.input_names = [name for name in self.body.inputs if name not in constants]
        self.output_names = list(self.body.outputs)
        self.weights: dict[str, tuple[str, ...]] = {}
        plain, statistics = _uses(self.body)
        for name, value in list(constants.items()):
            if value.dtype.kind not in "fV" or name in plain:
                continue
            path = self._keep(name, tensors.tensor(value), value.ndim > 0 and name not in statistics)
            self.weights[name] = path
            del constants[name]

    def _keep(self, name: str, value: Tensor, trained: bool) -> tuple[str, ...]:
        """Register a parameter or buffer; where it is."""
        *path, last = [p for p in name.split(".") if p] or [name]
        module: Module = self
        for i, part in enumerate(path):
            inner = module._modules.get(part)
            if inner is None:
                if hasattr(module, part):  # a name that the module has otherwise: keep it flat
                    path, last = path[:i], "_".join([*path[i:], last])
                    break
                inner = Module()
                module.add_module(part, inner)
            module = inner
        while hasattr(module, last):
            last += "_"
        if trained:
            module.register_parameter(last, Parameter(value))
        else:
            module.register_buffer(last, value)
        return (*path, last)

    def _weight(self, path: tuple[str, ...]) -> Any:
        module: Any = self
        for part in path:
            module = module._parameters.get(part) if part in module._parameters else module._buffers.get(part, module._modules.get(part))
        return module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        names = self.input_names
        if len(args) > len(names) or any(k not in names for k in kwargs):
            raise TypeError(f"this model takes {', '.join(names) or 'no inputs'}; {len(args)} arguments and {list(kwargs)} were given")
        values: dict[str, Any] = dict(zip(names, args))
        values.update(kwargs)
        if missing := [n for n in names if n not in values]:
            raise TypeError(f"this model takes {', '.join(names)}; missing: {', '.join(missing)}")
        weights = {name: self._weight(path) for name, path in self.weights.items()}
        first = next((t for t in [*values.values(), *weights.values()] if isinstance(t, Tensor)), None)
        device = None if first is None else first.device
        values = {n: tensors.tensor(v, device=device) if isinstance(v, (np.ndarray, np.generic)) else v for n, v in values.items()}
        values.update(weights)
        found = self.body.run(values, device)
        results = [tensors.tensor(v, device=device) if isinstance(v, np.ndarray) else v for v in found]
        return results[0] if len(results) == 1 else tuple(results)


def load(path: str | Path | bytes | Any, device: Device | str | None = None) -> OnnxModel:
    """Read an ONNX file as a module that runs, and can be trained, on any device.

    path: a file's path, a file's bytes, or an `onnx.ModelProto`. device: where its parameters go (default: the CPU).
    Raises OnnxLoadError (a ValueError) for what is no ONNX file, and for operators that are not supported, all of them at once;
    ImportError where the package onnx is missing.

    The file may come from a stranger: it is data, nothing of it is executed but the operators of its graph.
    """
    onnx = format_package()
    if isinstance(path, (bytes, bytearray)):
        try:
            proto = onnx.load_from_string(bytes(path))
        except Exception as error:  # protobuf's own classes of errors
            raise OnnxLoadError(f"onnx.load: these bytes are no ONNX model: {error}") from error
    elif isinstance(path, (str, Path)):
        if not Path(path).is_file():
            raise FileNotFoundError(f"onnx.load: there is no file {path}")
        try:
            proto = onnx.load(str(path))
        except Exception as error:
            raise OnnxLoadError(f"onnx.load: {path} is no ONNX model: {error}") from error
    elif isinstance(path, onnx.ModelProto):
        proto = path
    else:
        raise TypeError(f"onnx.load: a path, bytes or an onnx.ModelProto is loaded, not {type(path).__name__}")
    if not proto.graph.node and not proto.graph.output:
        raise OnnxLoadError("onnx.load: the file holds no graph")
    model = OnnxModel(proto)
    return model if device is None else model.to(device)


def _array(onnx: Any, proto: Any) -> Any:
    return np.array(onnx.numpy_helper.to_array(proto))


def _uses(body: Body) -> tuple[set[str], set[str]]:
    """Names that are plain numbers wherever they are used, and names that are running statistics."""
    plain: set[str] = set()
    data: set[str] = set()
    statistics: set[str] = set()

    def look(body: Body) -> None:
        for node in body.nodes:
            for i, name in enumerate(node.inputs):
                (plain if i in node.operator.host else data).add(name)
                if i in STATISTICS.get(node.kind, ()):
                    statistics.add(name)
            for value in node.attributes.values():
                if isinstance(value, Body):
                    look(value)

    look(body)
    return plain - data, statistics
