"""Files that PyTorch's `torch.save` writes, the zip archives of today and the older streams of pickles.

What they hold is a pickle, with the tensors' memory beside it. `_Contents` says what the pickle's names mean: by the table of `allowed.py`
and, for tensors, by functions of ours. So nothing of a file runs, unless it is read with `weights_only=False`.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from gradlab.advice import GradlabWarning, warn
from gradlab.device import Device
from gradlab.dtype import DType, named
from gradlab.layout import Layout, sparse_coo, sparse_csc, sparse_csr, strided
from gradlab.nn.parameter import Buffer, Parameter
from gradlab.spec import ShapeError, count
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty_strided, from_numpy as tensor_of
from gradlab.tensor.size import Size
from gradlab.utils.serialization.allowed import permitted
from gradlab.utils.serialization.archive import DAMAGED, ZIP, Archive
from gradlab.utils.serialization.errors import FileFormatError, UnsafeFileError, brief, shown
from gradlab.utils.serialization.location import located
from gradlab.utils.serialization.unpickling import Machine, Named

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
STREAM = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # how a pickle of MAGIC begins
STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32", "Short": "int16",
    "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


class _Storage:
    """The memory that some tensors share, one-dimensional, and where it was."""

    def __init__(self, key: str, array: Any, location: str) -> None:
        self.key, self.array, self.location = key, array, location


class _Contents:
    """What the names and the outside references of a file's pickle mean. `record(key)`: the bytes of a storage."""

    trusting = False  # whether code of the file's may run

    def __init__(self, name: str, map_location: Any, record: Callable[[str], Any], swapped: bool = False) -> None:
        self.name, self.map_location, self.record, self.swapped = name, map_location, record, swapped
        self.storages: dict[str, _Storage] = {}
        self.tensors: dict[Any, Tensor] = {}
        tensor, parameter = self._tensor, self._parameter
        self.own: dict[str, Any] = {
            "torch._utils._rebuild_tensor_v2": Named("_rebuild_tensor_v2", tensor),
            "torch._utils._rebuild_tensor": Named("_rebuild_tensor", tensor),
            "torch._utils._rebuild_tensor_v3": Named("_rebuild_tensor_v3", self._typed),
            "torch._utils._rebuild_parameter": Named("_rebuild_parameter", parameter),
            "torch._utils._rebuild_parameter_with_state": Named("_rebuild_parameter_with_state", parameter),
            "torch._tensor._rebuild_from_type_v2": Named("_rebuild_from_type_v2", self._of_type),
            "torch._utils._rebuild_meta_tensor_no_storage": Named("_rebuild_meta_tensor_no_storage", _of_meta),
            "torch._utils._rebuild_sparse_tensor": Named("_rebuild_sparse_tensor", _sparse),
            "torch.serialization._get_layout": Named("_get_layout", _layout),
            "torch.Size": Named("Size", lambda sizes=(): Size(sizes)),
            "torch.device": Named("device", _device),
            "torch.Tensor": Named("Tensor", value=Tensor),
            "torch.nn.parameter.Parameter": Named("Parameter", parameter, value=Parameter),
            "torch.nn.parameter.Buffer": Named("Buffer", value=Buffer),
            "torch.storage.UntypedStorage": Named("UntypedStorage", value=np.dtype(np.uint8)),
        }
        for kind, dtype in STORAGES.items():
            self.own[f"torch.{kind}Storage"] = Named(f"{kind}Storage", value=named(dtype).dtype)

    def resolve(self, module: str, name: str) -> Any:
        """The meaning of a name. UnsafeFileError for one that is not known to be harmless."""
        full = f"{module}.{name}"
        found = self.own.get(full)
        if found is None:
            found = permitted(full)
        if found is None and module == "torch" and name.endswith("Storage"):
            raise FileFormatError(f"it holds a tensor of {name}, a type that gradlab does not have; there are {', '.join(STORAGES)}")
        if found is None:
            raise UnsafeFileError(full)
        return found

    def persistent(self, reference: Any) -> _Storage:
        """The storage that a pickle refers to: ("storage", type, key, device, number of elements)."""
        if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
            raise FileFormatError(f"it refers to {shown(reference)}, which is no storage")
        _, kind, key, location, length = reference[:5]
        dtype = kind.value if isinstance(kind, Named) else kind
        texts = isinstance(key, str) and isinstance(location, str)
        if not isinstance(dtype, np.dtype) or not texts or type(length) is not int or length < 0:
            raise FileFormatError("it refers to a storage in a way that has no meaning")
        found = self.storages.get(key)
        if found is None:
            content = bytearray(self.record(key))
            if len(content) < length * dtype.itemsize:
                raise FileFormatError(f"its storage {key} has {len(content)} bytes, and should have {length * dtype.itemsize}")
            array = np.frombuffer(content, dtype, length)
            found = self.storages[key] = _Storage(key, array.byteswap() if self.swapped and dtype.itemsize > 1 else array, location)
        if found.array.dtype != dtype:
            raise FileFormatError(f"its storage {key} has two types")
        return found

    # ------------------------------------------------------------ tensors

    def _tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None, metadata: Any = None
    ) -> Tensor:
        if not isinstance(storage, _Storage):
            raise FileFormatError("it has a tensor without a storage")
        return _marked(self._view(storage, storage.array, offset, size, stride, requires_grad), metadata)

    def _typed(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any, metadata: Any = None
    ) -> Tensor:
        if not isinstance(storage, _Storage) or not isinstance(dtype, DType):
            raise FileFormatError("it has a tensor without a storage, or of a dtype that gradlab does not have")
        return _marked(self._view(storage, storage.array.view(dtype.dtype), offset, size, stride, requires_grad), metadata)

    def _view(self, storage: _Storage, array: Any, offset: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
        size, stride = tuple(size), tuple(stride)
        numbers = (offset, *size, *stride)
        if len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers) or type(requires_grad) is not bool:
            place = f"size {shown(size)}, stride {shown(stride)} and offset {shown(offset)}"
            raise FileFormatError(f"it has a tensor of {place}, which has no meaning")
        last = offset + sum((s - 1) * d for s, d in zip(size, stride, strict=True)) if count(size) else 0
        if last >= max(len(array), 1) or (count(size) and not len(array)):
            raise FileFormatError(f"it has a tensor of size {size}, stride {stride} and offset {offset} in {len(array)} elements")
        key = storage.key, array.dtype, offset, size, stride, requires_grad
        found = self.tensors.get(key)
        if found is None:
            step = array.dtype.itemsize
            place = array[offset:] if count(size) else array[:0]
            view = np.lib.stride_tricks.as_strided(place, size, tuple(d * step for d in stride))
            found = self.tensors[key] = located(tensor_of(view), storage.location, self.map_location)
            if requires_grad:
                found.requires_grad_()
        return found

    def _parameter(self, data: Any, requires_grad: Any = True, hooks: Any = None, state: Any = None) -> Parameter:
        if not isinstance(data, Tensor) or type(requires_grad) is not bool:
            raise FileFormatError("it has a parameter without a tensor")
        return Parameter(data, requires_grad)

    def _of_type(self, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """A tensor with attributes of its own, or of a class of its own, which it becomes a plain tensor or parameter of."""
        call = function.call if isinstance(function, Named) else function if self.trusting else None
        if call is None or not isinstance(arguments, tuple):
            raise FileFormatError("it has a tensor that nothing makes")
        made = call(*arguments)
        if getattr(kind, "value", kind) is Parameter and not isinstance(made, Parameter):
            return Parameter(made, made.requires_grad)
        return made


_MADE_BY = {sparse_coo: "sparse_coo_tensor", sparse_csr: "sparse_csr_tensor", sparse_csc: "sparse_csc_tensor"}


def _layout(name: Any) -> Layout:
    found = next((layout for layout in (strided, *_MADE_BY) if f"torch.{layout.name}" == name), None)
    if found is None:
        raise FileFormatError(f"it holds a tensor of layout {shown(name)}, which gradlab does not have")
    return found


def _sparse(layout: Any, parts: Any) -> Any:
    """A sparse tensor of what PyTorch writes of one; its indices are looked at, whatever the file says of them."""
    if layout not in _MADE_BY or not isinstance(parts, tuple) or len(parts) not in (3, 4) or any(isinstance(p, Named) for p in parts):
        raise FileFormatError("it has a sparse tensor that nothing makes")
    making = importlib.import_module("gradlab.sparse.making")
    ordered = {"is_coalesced": parts[3] is True} if layout is sparse_coo and len(parts) == 4 else {}
    try:
        return getattr(making, _MADE_BY[layout])(*(parts[:3] if layout is sparse_coo else parts), check_invariants=True, **ordered)
    except (RuntimeError, ShapeError, NotImplementedError) as error:
        raise FileFormatError(f"it has a sparse tensor that does not fit together: {error}") from None


def _of_meta(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    numbers = (*size, *stride)
    if not isinstance(dtype, DType) or len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
        raise FileFormatError("it has a tensor without values whose shape has no meaning")
    return empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta", requires_grad=requires_grad is True)


def _device(kind: Any, index: Any = None) -> Device:
    if not isinstance(kind, str):
        raise FileFormatError("a device's name is no text")
    try:
        return Device(kind, index)
    except RuntimeError as error:
        raise FileFormatError(str(error)) from None


# ---------------------------------------------------------------- the pickle


class _Scan(Machine):
    """A run that makes nothing: which names a pickle uses, and which storages it refers to."""

    def __init__(self, content: bytes, place: int = 0) -> None:
        super().__init__(content, self._noted, self._referred, place)
        self.names: dict[str, None] = {}  # in their order
        self.storages: dict[str, Any] = {}

    def _noted(self, module: str, name: str) -> Named:
        full = f"{module}.{name}"
        self.names[full] = None
        nothing = Named(full, lambda *_: None, lambda *_: None, lambda *_: None)
        nothing.value = full
        return nothing

    def _referred(self, reference: Any) -> None:
        if not isinstance(reference, tuple) or len(reference) < 5 or not isinstance(reference[1], Named):
            raise FileFormatError("it refers to something that is no storage")
        if len(reference) > 5 and reference[5] is not None:
            raise FileFormatError("it holds a view of a storage, as PyTorch wrote them before version 0.4")
        self.storages[reference[2]] = reference[1].value, reference[4]

    def _append(self, values: list[Any]) -> None:
        self._top()

    def _set(self, values: list[Any]) -> None:
        self._top()

    def _build(self) -> None:
        self._pop()
        self._top()


def _unsafe(names: Iterable[str], contents: _Contents) -> list[str]:
    return [name for name in names if name not in contents.own and permitted(name) is None]


def _unpickled(content: bytes, place: int, contents: _Contents, weights_only: bool, pickle_module: Any, options: dict[str, Any]) -> Any:
    """The object: by our machine, or by Python's where code of the file's may run and would."""
    if not weights_only:
        try:
            unsafe = _unsafe(_scanned(content, place).names, contents)
        except FileFormatError:  # with instructions that are not taken here
            unsafe = ["what cannot be told beforehand"]
        if unsafe or pickle_module is not None:
            some = ", ".join(unsafe[:3]) + (", …" if len(unsafe) > 3 else "")
            warn(GradlabWarning, f"load: {contents.name} is read with weights_only=False, and what it names may run code: {some}")
            return _trusted(content, place, contents, pickle_module, options)
    return Machine(content, contents.resolve, contents.persistent, place).run()


def _scanned(content: bytes, place: int) -> _Scan:
    scan = _Scan(content, place)
    scan.run()
    return scan


def _of_gradlab(module: str, name: str) -> Any:
    """What a class or function of PyTorch's is here: in the module of that path, or in one that it is in."""
    path = f"gradlab{module[5:]}"
    while path:
        try:
            return getattr(importlib.import_module(path), name)
        except (ImportError, AttributeError):
            path = path.rpartition(".")[0]
    raise FileFormatError(f"it names {module}.{name}, which gradlab does not have")


def _trusted(content: bytes, place: int, contents: _Contents, pickle_module: Any, options: dict[str, Any]) -> Any:
    contents.trusting = True
    base: Any = pickle.Unpickler if pickle_module is None else pickle_module.Unpickler

    class Trusting(base):  # type: ignore[misc]
        def persistent_load(self, reference: Any) -> _Storage:
            return contents.persistent(reference)

        def find_class(self, module: str, name: str) -> Any:
            own = contents.own.get(f"{module}.{name}")
            if own is not None:
                return own.call if own.value is None else own.value
            if module == "torch" or module.startswith("torch."):
                found = permitted(f"{module}.{name}")
                return _of_gradlab(module, name) if found is None else found
            return super().find_class(module, name)

    file = io.BytesIO(content)
    file.seek(place)
    return Trusting(file, **{"encoding": "utf-8", **options}).load()


# ---------------------------------------------------------------- the two kinds of files


def _parts(content: bytes) -> tuple[bytes, int, dict[str, Any], Callable[[str], Any], bool]:
    """The object's pickle and where it begins, the storages that it refers to, how to read one, and whether its bytes are swapped."""
    if content.startswith(ZIP):
        archive = Archive(content)
        pickled = archive.record("data.pkl")
        return pickled, 0, {}, lambda key: archive.record(f"data/{key}"), archive.swapped
    place, parts = 0, []
    for _ in range(3):
        head = _scanned_plain(content, place)
        parts.append(head[0])
        place = head[1]
    if parts[:2] != [MAGIC, PROTOCOL] or not isinstance(parts[2], dict):
        raise FileFormatError("it is no file of torch.save, or of a version that is not read")
    scan = _scanned(content, place)
    keys, end = _scanned_plain(content, scan.place)
    if not isinstance(keys, list) or set(keys) != scan.storages.keys():
        raise FileFormatError("its storages are not those that its tensors name")
    found: dict[str, memoryview] = {}
    for key in keys:
        kind, length = scan.storages[key]
        dtype = STORAGES.get(str(kind).removeprefix("torch.").removesuffix("Storage"))
        if dtype is None:
            raise FileFormatError(f"it holds a tensor of {kind}, a type that gradlab does not have; there are {', '.join(STORAGES)}")
        (there,) = struct.unpack_from("<q", content, end)
        size = named(dtype).itemsize * length
        if there != length or end + 8 + size > len(content):
            raise FileFormatError(f"it is cut short, or its storage {key} has {there} elements in place of {length}")
        found[key] = memoryview(content)[end + 8 : end + 8 + size]
        end += 8 + size
    return content, place, scan.storages, found.__getitem__, parts[2].get("little_endian", True) is not (sys.byteorder == "little")


def _scanned_plain(content: bytes, place: int) -> tuple[Any, int]:
    """A pickle that names nothing, and where it ends."""

    def none(*_: Any) -> Any:
        raise FileFormatError("its head names a class")

    machine = Machine(content, none, none, place)
    return machine.run(), machine.place


def read(
    content: bytes, name: str, map_location: Any, weights_only: bool, pickle_module: Any = None, options: dict[str, Any] | None = None
) -> Any:
    """The object of a file's content. FileFormatError, naming the file, for a damaged one, UnsafeFileError where code of it would run."""
    try:
        pickled, place, _, record, swapped = _parts(content)
        contents = _Contents(name, map_location, record, swapped)
    except DAMAGED as error:
        raise FileFormatError(f"load: {name} cannot be read as a file of torch.save: {_text(error)}") from None
    try:
        return _unpickled(pickled, place, contents, weights_only, pickle_module, options or {})
    except UnsafeFileError as error:
        raise UnsafeFileError(
            f"load: {name} names {error}, which is no plain value: reading it would run code. If you trust the file, allow the class with "
            f"gradlab.serialization.add_safe_globals([{str(error).rpartition('.')[2]}]), or all of them with weights_only=False"
        ) from None
    except DAMAGED as error:
        if contents.trusting and not isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"load: {name} cannot be read as a file of torch.save: {_text(error)}") from None


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, FileFormatError) else f"it is damaged ({type(error).__name__}: {brief(error)})"


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file of torch.save's that `load` refuses unless they are allowed. Nothing of the file runs."""
    with open(f, "rb") if isinstance(f, (str, os.PathLike)) else nullcontext(f) as file:
        content = file.read()
    pickled, place, _, record, _ = _parts(content)
    return _unsafe(_scanned(pickled, place).names, _Contents("the file", None, record))


def _marked(found: Tensor, metadata: Any) -> Tensor:
    """PyTorch's tensors may be marked as conjugated or negated, which their storage is not yet."""
    marks = [mark for mark in ("conj", "neg") if isinstance(metadata, dict) and metadata.get(mark)]
    if not marks:
        return found
    made = found.detach()
    for mark in marks:
        made = made.conj() if mark == "conj" else made.neg()
    return made.requires_grad_(found.requires_grad)
