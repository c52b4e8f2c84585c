"""Tensors and plain values in a safetensors file. Never a pickle: reading a file runs no code of it.

The tensors lie in the file by name, for any reader of safetensors; a flat dict of tensors keeps its keys. How they are nested, and the
numbers, strings and other plain values among them, is a JSON text in the file's metadata under "gradlab".
"""

from __future__ import annotations

import importlib
import json
import math
from collections import OrderedDict
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.device import Device
from gradlab.dtype import ALL, COMPLEX128, DType, as_numpy, from_numpy, named
from gradlab.layout import strided
from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy as tensor_of
from gradlab.utils.serialization import checksum
from gradlab.utils.serialization.errors import FileFormatError, brief, shown
from gradlab.utils.serialization.foreign import what_it_is
from gradlab.utils.serialization.location import located

KEY, VERSION = "gradlab", 2  # files of version 1 have no checksum
CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
# ---------------------------------------------------------------- writing


class _Writer:
    """Turns an object into tensors by name and a tree of JSON values."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.known: dict[Any, str] = {}  # memory already written, to its name
        self.alive: list[Any] = []  # so that no memory is used again while its address is known

    def tree(self, value: Any, path: tuple[str, ...], open_containers: tuple[int, ...] = ()) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, int):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray):
            return {"array": self._array(_checked(value, path), path)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(_checked(np.asarray(value), path), path)}
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, Device):
            return {"device": str(value)}
        if kind in (bytes, bytearray):
            return {kind.__name__: self._array(np.frombuffer(value, np.uint8), path)}
        if id(value) in open_containers:
            raise ValueError(f"save: {_place(path)} contains itself")
        inside = (*open_containers, id(value))
        if isinstance(value, dict):
            entries = [[self._key(k, path), self.tree(v, (*path, str(k)), inside)] for k, v in value.items()]
            found: dict[str, Any] = {"ordered" if isinstance(value, OrderedDict) else "dict": entries}
            if (known := getattr(value, "_metadata", None)) is not None:  # of a module's state_dict: the versions of its parts
                found["metadata"] = self.tree(known, (*path, "_metadata"), inside)
            return found
        if isinstance(value, (list, tuple)):
            items = [self.tree(v, (*path, str(i)), inside) for i, v in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, (int, str, float)):  # of a subclass, such as an enumeration's
            raise TypeError(f"save: {_place(path)} is a {kind.__name__}; save its plain value")
        raise TypeError(
            f"save: {_place(path)} is a {kind.__module__}.{kind.__name__}; a file holds tensors, arrays, numbers, strings, None, "
            f"and lists, tuples and dicts of them. Of a module or an optimizer save the state_dict()"
        )

    def _key(self, key: Any, path: tuple[str, ...]) -> Any:
        if key is None or type(key) in (bool, int, str, float):
            return self.tree(key, path)
        if type(key) is tuple:
            return {"tuple": [self._key(k, path) for k in key]}
        raise TypeError(f"save: {_place(path)} has a key of type {type(key).__name__}; keys are strings, numbers, None, and tuples of them")

    def _tensor(self, value: Tensor, path: tuple[str, ...]) -> Any:
        array = value._array
        if value.layout is not strided:
            raise TypeError(f"save: {_place(path)} is sparse: save its indices() and values(), or x.to_dense()")
        try:
            backend = dispatch.backend_of(array)
            device = backend.device_of(array)
            content = backend.to_numpy(array)
        except (TypeError, NotImplementedError, AttributeError):
            raise TypeError(f"save: {_place(path)} is a traced tensor and has no values; save outside the compiled function") from None
        found: dict[str, Any] = {"tensor": self._array(content, path)}
        if content.dtype == COMPLEX128:  # which safetensors lacks: its parts, as `view_as_real` gives them
            found["complex"] = True
        if value.requires_grad:
            found["requires_grad"] = True
        if device.type != "cpu":
            found["device"] = str(device)
        return found

    def _array(self, array: Any, path: tuple[str, ...]) -> str:
        """Store an array under its path; where the same memory is used again, refer to the first, or at the top level copy."""
        self.alive.append(array)
        memory = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
        first = self.known.get(memory) if array.size else None
        if first is not None and len(path) != 1:
            return first
        name = ".".join(path) or "value"
        while name in self.arrays or name == "__metadata__":
            name += "#"
        held = array if array.flags.c_contiguous else array.copy(order="C")
        self.arrays[name] = held.reshape(*held.shape, 1).view(np.float64) if held.dtype == COMPLEX128 else held
        if first is None:
            self.known[memory] = name
            return name
        self.arrays[name] = self.arrays[first]  # any reader finds both keys; ours shares again
        return first


def _checked(array: Any, path: tuple[str, ...]) -> Any:
    if array.dtype == COMPLEX128:
        raise TypeError(f"save: {_place(path)} is of complex128, unknown to safetensors; save a .pt file, or gl.view_as_real of it")
    try:
        return np.asarray(array).astype(as_numpy(from_numpy(array.dtype)), copy=False)
    except TypeError:
        raise TypeError(f"save: {_place(path)} is an array of dtype {array.dtype}; a file holds {', '.join(d.name for d in ALL)}") from None


def _place(path: tuple[str, ...]) -> str:
    return f"the entry {'.'.join(path)!r}" if path else "the object"


def to_bytes(obj: Any) -> bytes:
    """What `save` writes."""
    writer = _Writer()
    try:
        tree = writer.tree(obj, ())
    except RecursionError:
        raise ValueError("save: the object is nested too deeply") from None
    metadata = {"format": "pt", KEY: json.dumps({"version": VERSION, "tree": tree}, allow_nan=False, separators=(",", ":"))}
    return checksum.sealed(importlib.import_module("safetensors.numpy").save(writer.arrays, metadata))


# ---------------------------------------------------------------- reading


class _Reader:
    """Builds the object of a tree, and complains about everything that does not fit."""

    def __init__(self, arrays: dict[str, Any], map_location: Any) -> None:
        self.arrays, self.map_location = arrays, map_location
        self.made: dict[tuple[str, str], Tensor] = {}

    def value(self, tree: Any) -> Any:
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        if type(tree) is list:
            return [self.value(v) for v in tree]
        if type(tree) is not dict or not tree:
            raise ValueError(f"an entry {shown(tree)} has no meaning")
        kind, content = next(iter(tree.items()))
        if kind == "tensor":
            if type(tree.get("device", "cpu")) is not str:
                raise ValueError("its device has no meaning")
            return self._tensor(content, tree.get("device", "cpu"), tree.get("requires_grad") is True, tree.get("complex") is True)
        if len(tree) != 1 and tree.keys() != {"ordered", "metadata"}:
            raise ValueError(f"an entry {shown(tree)} has no meaning")
        if kind == "ordered":
            ordered: Any = OrderedDict((self._key(k), self.value(v)) for k, v in content)
            if "metadata" in tree:
                ordered._metadata = self.value(tree["metadata"])
                if not isinstance(ordered._metadata, dict):
                    raise ValueError("the versions of a module's parts are a dict")
            return ordered
        if kind == "dict":
            return {self._key(k): self.value(v) for k, v in content}
        if kind == "tuple":
            return tuple(self.value(v) for v in content)
        if kind == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if kind == "array":
            return self._array(content)
        if kind == "scalar":
            return self._array(content).reshape(())[()]
        if kind in ("bytes", "bytearray"):
            raw = self._array(content).tobytes()
            return raw if kind == "bytes" else bytearray(raw)
        if kind == "dtype":
            return named(content)
        if kind == "device":
            return _device(content)
        raise ValueError(f"an entry of kind {shown(kind)} has no meaning; was the file written by a newer gradlab?")

    def _key(self, tree: Any) -> Any:
        key = self.value(tree)
        if not (key is None or type(key) in (bool, int, float, str, tuple)):
            raise ValueError(f"a key of type {type(key).__name__} has no meaning")
        hash(key)
        return key

    def _array(self, name: Any) -> Any:
        if not isinstance(name, str) or name not in self.arrays:
            raise ValueError(f"the tensor {shown(name)} is missing")
        return self.arrays[name]

    def _tensor(self, name: Any, device: Any, requires_grad: bool, complex_: bool) -> Tensor:
        device = str(_device(device))
        found = self.made.get((name, device))
        if found is None:
            array = self._array(name)
            if complex_ and (array.dtype != np.float64 or array.shape[-1:] != (2,)):
                raise ValueError(f"the tensor {shown(name)} holds no real and imaginary parts")
            array = array.view(COMPLEX128)[..., 0] if complex_ else array
            found = self.made[name, device] = located(tensor_of(array), device, self.map_location)
        if requires_grad:
            found.requires_grad_()
        return found


def _device(name: Any) -> Device:
    if not isinstance(name, str):
        raise ValueError(f"a device {shown(name)} has no meaning")
    try:
        return Device(name)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def stored_arrays(content: bytes, name: str = "the file") -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a safetensors file, by key. FileFormatError, naming the file, for anything else."""
    header = header_of(content, name)
    checksum.check(content, header.get("__metadata__") or {}, name)
    try:
        found = importlib.import_module("safetensors").deserialize(content)
    except Exception as error:  # its own exception class, derived from Exception alone
        raise FileFormatError(f"load: {name} is damaged: {brief(error)}") from None
    arrays = {}
    for key, entry in found:
        if entry["dtype"] not in CODES:
            raise FileFormatError(
                f"load: {name} holds a tensor {key!r} of type {entry['dtype']}, which gradlab does not have; there are {', '.join(CODES)}"
            )
        dtype = named(CODES[entry["dtype"]]).dtype
        arrays[key] = np.frombuffer(bytearray(entry["data"]), dtype).reshape(entry["shape"])
    return header, arrays


def from_bytes(content: bytes, name: str = "the file", map_location: Any = None) -> Any:
    """What was saved in `content`. FileFormatError, naming the file, for anything else."""
    header, arrays = stored_arrays(content, name)
    return built(header, arrays, name, map_location)


def built(header: dict[str, Any], arrays: dict[str, Any], name: str, map_location: Any) -> Any:
    """What was saved, of the file's header and arrays."""
    metadata = header.get("__metadata__") or {}
    if KEY not in metadata:
        order = [key for key in header if key != "__metadata__"]
        return {key: located(tensor_of(arrays[key]), "cpu", map_location) for key in order}
    try:
        outline = json.loads(metadata[KEY])
        if outline["version"] not in (1, VERSION):
            raise FileFormatError(f"load: {name} has version {shown(outline['version'])} of the format, this gradlab reads up to {VERSION}")
        if outline["version"] == VERSION and checksum.KEY not in metadata:
            raise FileFormatError(f"load: {name} is damaged: it has lost its checksum")
        reader = _Reader(arrays, map_location)
        return reader.value(outline["tree"])
    except FileFormatError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"its outline does not fit its tensors ({type(error).__name__}: {brief(error)})"
        raise FileFormatError(f"load: {name} is damaged: {what}") from None


def header_of(content: Any, name: str) -> dict[str, Any]:
    """The header as a dict, after the checks that tell what is wrong with a file."""
    if not content:
        raise FileFormatError(f"load: {name} is empty")
    foreign = what_it_is(content, name) if content[8:9] != b"{" else None  # a header's length may be any bytes; the header begins with {
    if foreign is not None:
        raise FileFormatError(f"load: {name} is not a safetensors file: it is {foreign[0]}; {foreign[1]}")
    if len(content) < 8:
        raise FileFormatError(f"load: {name} is cut short, or not a safetensors file: it has {len(content)} bytes")
    length = int.from_bytes(content[:8], "little")
    if content[8:9] != b"{" and len(content) > 8:
        raise FileFormatError(f"load: {name} is not a safetensors file")
    if length > len(content) - 8:
        raise FileFormatError(
            f"load: {name} is cut short, or not a safetensors file: its header should have {length} bytes, {len(content) - 8} are there"
        )
    try:
        header = json.loads(content[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"load: {name} is damaged, or not a safetensors file: its header is no JSON ({error})") from None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise FileFormatError(f"load: {name} is not a safetensors file")
    expected = _data_end(header)
    if expected is not None and expected > len(content) - 8 - length:
        raise FileFormatError(
            f"load: {name} is cut short: its tensors should have {expected} bytes, {len(content) - 8 - length} are there"
        )
    return header


def _data_end(header: dict[str, Any]) -> int | None:
    try:
        return max((int(v["data_offsets"][1]) for k, v in header.items() if k != "__metadata__"), default=0)
    except (TypeError, KeyError, IndexError, ValueError):
        return None
