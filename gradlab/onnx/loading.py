"""`load`: an ONNX file as a module that runs, and can be trained, here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.dtype import ALL
from gradlab.nn import Module, Parameter
from gradlab.onnx.folding import Folder, bodies, without_dead
from gradlab.onnx.graphs import DOMAINS, Body, Reading, body_of
from gradlab.onnx.holders import held
from gradlab.onnx.importing import Node, OnnxLoadError, Values, is_dynamic, is_text, texts
from gradlab.onnx.operators import ready
from gradlab.onnx.operators.recurrent import GATES, reordered, usual
from gradlab.onnx.packages import format_package
from gradlab.tensor import creation as tensors
from gradlab.tensor.tensor import Tensor

Trainable = bool | str | Sequence[str] | Callable[[str, Any], bool]
HELD = {d.dtype for d in ALL}


class OnnxModel(Module):
    """A loaded ONNX graph. Call it with the graph's inputs, by position or name; it returns its output, or a tuple of several.

    Its floating-point tensors of one dimension and more, initializers and constants alike, are its parameters under their names in the file
    (dots make submodules, as they do in PyTorch's exports), running statistics and scales of quantised numbers are buffers; both have
    `state_dict` entries. What the file holds as plain numbers (shapes, axes, single numbers) stays as it is.
    Call it under `gl.compile` as any module. Made by `gl.onnx.load`.
    """

    maps = True

    def __init__(self, proto: Any, constants: Mapping[str, Any] | None = None, trainable: Trainable = True) -> None:
        super().__init__()
        ready()
        opsets = {("" if o.domain in DOMAINS else o.domain): o.version for o in proto.opset_import}
        self.opset = opsets.setdefault("", 1)
        functions = {("" if f.domain in DOMAINS else f.domain, f.name): f for f in proto.functions}
        reading = Reading(opsets, functions)
        body = body_of(proto.graph, reading)
        if reading.missing:
            raise OnnxLoadError(f"onnx.load: not supported here: {'; '.join(dict.fromkeys(reading.missing))}")
        self.output_names = list(body.outputs)
        self.body = body
        fixed = self._fixed(proto, constants or {})
        body.constants.update(fixed)
        self.input_names = [name for name in body.inputs if name not in body.constants]
        body.inputs = list(self.input_names)
        Folder(trainable is not False).fold(body, {}, set(), {})
        without_dead(body)
        self.onnx_names: dict[tuple[str, ...], str] = {}  # where a tensor is kept, and its name in the file
        self._place(body, wanted(trainable), {i.name for i in proto.graph.initializer})

    def _fixed(self, proto: Any, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs that are given once and for all, in the file's types."""
        onnx = format_package()
        types = {v.name: v.type.tensor_type.elem_type for v in proto.graph.input}
        found = {}
        for name, value in constants.items():
            if name not in types:
                raise ValueError(f"onnx.load: constants names {name!r}; the model's inputs are {', '.join(map(repr, types))}")
            array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
            found[name] = array.astype(onnx.helper.tensor_dtype_to_np_dtype(types[name])) if types[name] else array
        return found

    def _place(self, body: Body, trained: Callable[[str, Any], bool], stored: set[str]) -> None:
        """Make parameters and buffers of a graph's arrays, and of those in the graphs inside."""
        plain, data, fixed = uses(body)
        reorder(body, plain)
        for name, value in list(body.constants.items()):
            if value.dtype not in HELD or value.dtype.byteorder == ">" or name not in data:
                continue
            heavy = value.dtype.kind in "fV" and value.ndim > 0 and (value.size > 1 or name in stored) and name not in plain
            if heavy:
                parameter = name not in fixed and trained(name, value)
                body.weights[name] = self._keep(name, tensors.tensor(value), parameter, True)
                del body.constants[name]
            elif value.size > 1:
                body.placed[name] = self._keep(name, tensors.tensor(value), False, False)
        body.owner = self
        for node in body.nodes:
            for inner in bodies(node):
                inner.placed.update(body.placed)
                self._place(inner, trained, stored)

    def _keep(self, name: str, value: Tensor, trained: bool, persistent: bool) -> tuple[str, ...]:
        """Register a parameter or buffer; where it is."""
        *path, last = [p for p in name.split(".") if p] or [name or "constant"]
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
            module.register_buffer(last, value, persistent=persistent)
        self.onnx_names[(*path, last)] = name
        return (*path, last)

    def weight(self, path: tuple[str, ...]) -> Any:
        """The parameter or buffer at a path."""
        module: Any = self
        for part in path:
            module = module._parameters.get(part) if part in module._parameters else module._buffers.get(part, module._modules.get(part))
        return module

    @contextmanager
    def without_maps(self) -> Iterator[None]:
        """Results are tensors alone: of a list of maps from labels to numbers, as scikit-learn's converters write it, the numbers."""
        self.maps = False
        try:
            yield
        finally:
            del self.maps

    def named_arrays(self) -> Iterator[tuple[str, Any]]:
        """The file's names of the parameters and buffers, and what they hold: an exported file has them again."""
        for path, name in self.onnx_names.items():
            yield name, self.weight(path)._array

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        names = self.input_names
        if len(args) > len(names) or any(k not in names for k in kwargs):
            raise TypeError(f"this model takes {', '.join(names) or 'no inputs'}; {len(args)} arguments and {list(kwargs)} were given")
        values = Values(zip(names, args))
        values.update(kwargs)
        if missing := [n for n in names if n not in values]:
            raise TypeError(f"this model takes {', '.join(names)}; missing: {', '.join(missing)}")
        values.open_inputs, values.maps = names, self.maps
        first = next((t for t in [*values.values(), *map(self.weight, self.body.weights.values())] if isinstance(t, Tensor)), None)
        device = None if first is None else first.device
        for name, value in values.items():
            if isinstance(value, (np.ndarray, np.generic)):
                values[name] = texts(value) if value.dtype.kind in "OSU" else tensors.tensor(held(value), device=device)
            elif is_text(value):
                values[name] = texts(value)
        found = self.body.run(values, device)
        results = [finished(v, device) for v in found]
        return results[0] if len(results) == 1 else tuple(results)


RESULT = Node("Identity", "", [], [""], {}, 1)


def finished(value: Any, device: Device | None) -> Any:
    """A result: plain numbers become tensors, which are values of the program in a trace."""
    if (not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind == "U") and not is_dynamic(value):
        return value  # tensors, lists, and strings
    found = RESULT.at(device, None).tensor(value)
    return found if current().tracer is None else found.clone()


def wanted(trainable: Trainable) -> Callable[[str, Any], bool]:
    """Which arrays are trained, as a function of name and array."""
    if isinstance(trainable, bool):
        return lambda name, value: bool(trainable)
    if callable(trainable):
        return trainable
    patterns = [re.compile(p) for p in ([trainable] if isinstance(trainable, str) else trainable)]
    return lambda name, value: any(p.search(name) for p in patterns)


def load(
    path: str | Path | bytes | Any,
    device: Device | str | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    trainable: Trainable = True,
) -> OnnxModel:
    """Read an ONNX file as a module that runs, and can be trained, on any device.

    path: a file's path, a file's bytes, or an `onnx.ModelProto`. device: where its parameters go (default: the CPU).
    constants: inputs that are fixed, {"sr": 16000}: the model no longer takes them, what follows from them is computed now, and branches
    that they choose are the only ones left.
    trainable: which floating-point tensors become parameters; the others are buffers. True for all, False for none (then all that can be is
    computed when the file is loaded), a regular expression or several to search for in their names, or a function of name and array.
    Raises OnnxLoadError (a ValueError) for what is no ONNX file or a damaged one, and for operators that are not supported, all of them at
    once; ImportError where the package onnx is missing.

    The file may come from a stranger: it is data, nothing of it is executed but the operators of its graph.
    """
    onnx = format_package()
    proto = read(onnx, path)
    if not proto.graph.node and not proto.graph.output:
        raise OnnxLoadError("onnx.load: the file holds no graph")
    for name in constants or {}:
        if all(v.name != name for v in proto.graph.input):
            known = ", ".join(repr(v.name) for v in proto.graph.input)
            raise ValueError(f"onnx.load: constants names {name!r}; the model's inputs are {known}")
    try:
        model = OnnxModel(proto, constants, trainable)
    except OnnxLoadError:
        raise
    except (Exception, RecursionError) as error:  # whatever a damaged file runs into
        raise OnnxLoadError(f"onnx.load: the file is damaged: {type(error).__name__}: {error}") from error
    return model if device is None else model.to(device)


def read(onnx: Any, path: Any) -> Any:
    """The file's message."""
    if isinstance(path, (bytes, bytearray)):
        try:
            return onnx.load_from_string(bytes(path))
        except Exception as error:  # protobuf's own classes of errors
            raise OnnxLoadError(f"onnx.load: these bytes are no ONNX model: {error}") from error
    if isinstance(path, (str, Path)):
        if not Path(path).is_file():
            raise FileNotFoundError(f"onnx.load: there is no file {path}")
        try:
            return onnx.load(str(path))
        except Exception as error:
            raise OnnxLoadError(f"onnx.load: {path} is no ONNX model: {error}") from error
    if isinstance(path, onnx.ModelProto):
        return path
    raise TypeError(f"onnx.load: a path, bytes or an onnx.ModelProto is loaded, not {type(path).__name__}")


def reorder(body: Body, plain: set[str]) -> None:
    """Weights of recurrent layers that are as this library's get their gates in its order, once and for all."""
    used: dict[str, set[tuple[str, int]]] = {}
    count: dict[str, int] = {}

    def look(body: Body) -> None:
        for node in body.nodes:
            for i, name in enumerate(node.inputs):
                used.setdefault(name, set()).add((node.kind if node.kind in GATES and usual(node) else "", i))
                count[name] = count.get(name, 0) + 1
            for inner in bodies(node):
                look(inner)
                for name in inner.outputs:
                    used.setdefault(name, set()).add(("", 0))

    look(body)
    for name in body.outputs:
        used.setdefault(name, set()).add(("", 0))
    done: set[str] = set()
    for node in body.nodes:
        if node.kind in GATES and usual(node) and "gates" not in node.attributes:
            names = [n for n in node.inputs[1:4] if n]
            alone = all(n in body.constants and n not in plain and len(used[n]) == 1 and count[n] == 1 for n in names)
            if alone and not done.intersection(names):
                for name in names:
                    body.constants[name] = reordered(node.kind, body.constants[name])
                done.update(names)
                node.attributes["gates"] = "ours"


def uses(body: Body) -> tuple[set[str], set[str], set[str]]:
    """Names that are plain numbers somewhere, names that are data somewhere, and names that are running statistics or scales."""
    plain: set[str] = set()
    data: set[str] = set(body.outputs)
    fixed: set[str] = set()

    def look(body: Body) -> None:
        for node in body.nodes:
            for i, name in enumerate(node.inputs):
                (plain if i in node.operator.host else data).add(name)
                if i in node.operator.fixed:
                    fixed.add(name)
            for inner in bodies(node):
                data.update(inner.outputs)
                look(inner)

    look(body)
    return plain, data, fixed
