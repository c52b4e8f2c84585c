"""Files that PyTorch's `torch.load` reads: a zip archive of a pickle, which names PyTorch's functions, and of the tensors' memory.

Python's own pickler does the work, in the form of it that can be told how a name is written. What an object of any class needs is named in
its file, and reading runs it; `to_bytes` refuses to write such a file unless it is asked to.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from types import FunctionType
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.advice import GradlabWarning, warn
from gradlab.autograd.record import wrap
from gradlab.device import Device
from gradlab.dtype import DType, from_numpy
from gradlab.layout import Layout, sparse_coo, sparse_csr, strided
from gradlab.nn.parameter import Parameter
from gradlab.overrides.overridable import Overridable
from gradlab.tensor import Tensor
from gradlab.tensor.size import Size
from gradlab.utils.serialization.allowed import ALLOWED
from gradlab.utils.serialization.torch_reading import STORAGES
from gradlab.utils.words import some

_KINDS = {dtype: kind for kind, dtype in STORAGES.items()}
_ALIGNMENT = 64  # of the tensors' memory in the file
_Pickler: Any = pickle._Pickler


class _Name:
    """A name of PyTorch's, written as such."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *_: Any) -> None:
        """Never called: pickle asks only that it could be."""


class _Stored:
    """The memory of tensors, under its number in the archive."""

    def __init__(self, number: str, array: Any, location: str) -> None:
        self.number, self.array, self.location = number, array, location


_TENSOR, _PARAMETER = _Name("torch._utils", "_rebuild_tensor_v2"), _Name("torch._utils", "_rebuild_parameter")
_SPARSE, _LAYOUT = _Name("torch._utils", "_rebuild_sparse_tensor"), _Name("torch.serialization", "_get_layout")
_META = _Name("torch._utils", "_rebuild_meta_tensor_no_storage")
_DEVICE, _SIZE = _Name("torch", "device"), _Name("torch", "Size")
_STORAGE_NAMES = {kind: _Name("torch", f"{kind}Storage") for kind in STORAGES}


class _Writer(_Pickler):  # type: ignore[misc]
    """A pickler that knows tensors. `unknown`: the full names of what it wrote and `load` does not read without being told to."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.stored: list[_Stored] = []
        self.known: dict[Any, _Stored] = {}
        self.alive: list[Any] = []  # so that no address is used again
        self.unknown: dict[str, None] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Stored):
            return None
        kind = _KINDS[from_numpy(obj.array.dtype).name]
        return "storage", _STORAGE_NAMES[kind], obj.number, obj.location, obj.array.size

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Name):
            return obj.name
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, DType):
            return obj.name
        if isinstance(obj, np.ndarray):
            return obj.__reduce__()
        if isinstance(obj, Device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        if isinstance(obj, Layout):
            return _LAYOUT, (f"torch.{obj.name}",)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write a name; PyTorch's without looking for it."""
        if isinstance(obj, (_Name, DType)):
            module = obj.module if isinstance(obj, _Name) else "torch"
            self.write(b"c" + f"{module}\n{obj.name}\n".encode())
            self.memoize(obj)
            return
        full = f"{obj.__module__}.{name or obj.__qualname__}"
        if full not in ALLOWED:
            self.unknown[full] = None
        if isinstance(obj, Overridable):  # as the plain one is: what stands in its place depends on who reads
            return self.save_global(_Name(obj.__module__, obj.__qualname__))
        super().save_global(obj, name)

    def _tensor(self, tensor: Any) -> Any:
        if tensor.layout is not strided:
            return _SPARSE, (tensor.layout, _parts(tensor.detach()))
        if tensor.device.type == "meta":
            return _META, (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
        array = tensor._array
        try:
            backend = dispatch.backend_of(array)
            location, content = str(backend.device_of(array)), backend.to_numpy(array)
        except (TypeError, NotImplementedError, AttributeError):
            raise TypeError("save: a traced tensor has no values; save outside the compiled function") from None
        memory = content.__array_interface__["data"][0], content.shape, content.strides, content.dtype, location
        stored = self.known.get(memory) if content.size else None
        if stored is None:
            content = content if _is_dense(content) else content.copy(order="C")
            stored = _Stored(str(len(self.stored)), content.transpose(_order(content)).reshape(-1), location)
            self.stored.append(stored)
            self.known[memory] = stored
            self.alive.append((array, content))
        if isinstance(tensor, Parameter):
            return _PARAMETER, (wrap(array), tensor.requires_grad, OrderedDict())
        strides, step = [0] * content.ndim, 1
        for d in reversed(_order(content) if _is_dense(content) else range(content.ndim)):
            strides[d] = step
            step *= max(content.shape[d], 1)
        return _TENSOR, (stored, 0, content.shape, tuple(strides), tensor.requires_grad, OrderedDict())


def _order(array: Any) -> list[int]:
    """The dimensions in the order of their strides, the largest first."""
    return sorted(range(array.ndim), key=lambda d: -array.strides[d])


def _is_dense(array: Any) -> bool:
    """Whether the elements fill a piece of memory, in whatever order of the dimensions."""
    return array.transpose(_order(array)).flags.c_contiguous


def _parts(sparse: Any) -> tuple[Any, ...]:
    """What a sparse tensor is made of, as PyTorch writes it."""
    if sparse.layout is sparse_coo:
        return sparse._indices(), sparse._values(), sparse.shape, sparse.is_coalesced()
    if sparse.layout is sparse_csr:
        return sparse.crow_indices(), sparse.col_indices(), sparse.values(), sparse.shape
    return sparse.ccol_indices(), sparse.row_indices(), sparse.values(), sparse.shape


_Writer.dispatch = {**_Pickler.dispatch, FunctionType: _Writer.save_global, Overridable: _Writer.save_global}


def to_bytes(obj: Any, allow_pickle: bool, protocol: int = 2) -> bytes:
    """What `save` writes in PyTorch's format. TypeError, unless pickles are allowed, where it would name what `load` does not read."""
    pickled = io.BytesIO()
    writer = _Writer(pickled, protocol)
    try:
        writer.dump(obj)
    except RecursionError:
        raise ValueError("save: the object is nested too deeply") from None
    except (pickle.PicklingError, AttributeError) as error:
        raise TypeError(f"save: {error}; a file names classes and functions, so they stand at the top of a module") from None
    unknown = list(writer.unknown)
    if unknown and not allow_pickle:
        raise TypeError(
            f"save: the object holds {some(unknown, 4)}; a file holds tensors, arrays, numbers, strings, None, argparse's Namespace, and "
            f"lists, tuples, dicts and sets of them. Of a module or an optimizer save the state_dict(), or, with pickle=True, write a file "
            f"that runs code when it is read"
        )
    if unknown:
        warn(GradlabWarning, f"save: the file names {some(unknown, 4)}: whoever reads it runs code of it; a state_dict() is safe")
    return _archive(pickled.getvalue(), writer.stored)


def _archive(pickled: bytes, stored: list[_Stored]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:

        def record(name: str, content: Any) -> None:
            entry = zipfile.ZipInfo(f"archive/{name}")  # of the year 1980: equal objects make equal files
            start = file.tell() + 30 + len(entry.filename) + 4
            space = -start % _ALIGNMENT
            entry.extra = b"FB" + space.to_bytes(2, "little") + b"Z" * space
            archive.writestr(entry, content)

        record("data.pkl", pickled)
        record("byteorder", sys.byteorder.encode())
        for each in stored:
            record(f"data/{each.number}", each.array.tobytes())
        record("version", b"3\n")
    return file.getvalue()
