"""The memory that a tensor is a part of, as an object: `x.untyped_storage()` of bytes, `x.storage()` of elements.

What scripts ask it for: how large it is, where it is, whether two tensors share it; and its elements, to read and to write. It cannot be
resized.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import refresh, wrap
from gradlab.device import Device
from gradlab.dtype import DType, from_numpy, uint8
from gradlab.named_errors import named_functions
from gradlab.spec import count

__all__ = ["TypedStorage", "UntypedStorage", "is_storage"]


class _Memory:
    """What both kinds share. `_tensor` is the whole of the memory as one vector."""

    _tensor: Any

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def data_ptr(self) -> int:
        """The address of the first byte; 0 of memory without any."""
        return int(self._tensor.data_ptr())

    _cdata = property(data_ptr)

    def nbytes(self) -> int:
        """How many bytes there are."""
        return int(self._tensor.nbytes)

    def size(self) -> int:
        """How many elements there are; of an untyped storage, bytes."""
        return int(self._tensor.numel())

    __len__ = size

    def __sizeof__(self) -> int:
        """Bytes of the object and of its memory, for `sys.getsizeof`."""
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self._tensor.itemsize)

    @property
    def device(self) -> Device:
        """Where the memory is."""
        found: Device = self._tensor.device
        return found

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU's."""
        return self.device.type == "cuda"

    is_sparse = False

    def get_device(self) -> int:
        """The GPU's index; -1 on the CPU."""
        return int(self._tensor.get_device())

    def resizable(self) -> bool:
        """False: make a tensor of another size instead."""
        return False

    def __getitem__(self, index: Any) -> Any:
        found = self._tensor[index]
        return type(self)(found) if isinstance(index, slice) else found.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tensor[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        found: list[Any] = self._tensor.tolist()
        return found

    def clone(self) -> Any:
        """A copy, in memory of its own."""
        return type(self)(self._tensor.clone())

    def cpu(self) -> Any:
        """It itself on the CPU, else a copy there."""
        return self if not self.is_cuda else type(self)(self._tensor.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """It itself on that GPU, else a copy there."""
        moved = self._tensor.cuda(device)
        return self if moved is self._tensor else type(self)(moved)

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Write what is in another storage of this size."""
        self._tensor.copy_(source._tensor)
        return self

    def fill_(self, value: Any) -> Any:
        """Write one value everywhere."""
        self._tensor.fill_(value)
        return self

    def is_shared(self) -> bool:
        """Whether other processes can share it."""
        return bool(self._tensor.is_shared())

    def __repr__(self) -> str:
        """Every element on a line of its own, of over 1000 the first and the last three; then what they are, in brackets."""
        size = self.size()
        shown = self.tolist() if size <= 1000 else [*self[:3], "...", *self[-3:]]
        lines = "\n".join(f" {value}" for value in shown)
        return f"{lines}\n[{type(self).__name__}({self._said()}device={self.device}) of size {size}]"

    def _said(self) -> str:
        return ""


class UntypedStorage(_Memory):
    """Memory as bytes. `UntypedStorage(size)` is that many new ones.

    >>> gl.ones(2, 3)[1].untyped_storage().nbytes()
    24
    """

    def __init__(self, source: Any = 0) -> None:
        super().__init__(source if isinstance(source, Differentiable) else wrap(np.zeros(source, np.uint8)))

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int | None = None) -> UntypedStorage:
        """The bytes of a file, mapped; shared: what is written goes to the file, too. nbytes: how many, by default all; a shared one grows.

        ValueError where the file has fewer and is not shared.
        """
        path = os.fspath(filename)
        found = os.path.getsize(path) if os.path.exists(path) else 0
        size = found if nbytes is None else int(nbytes)
        if size > found and not shared:
            raise ValueError(f"UntypedStorage.from_file: {path} has {found} bytes, not {size}")
        if size > found:
            with open(path, "ab") as file:
                file.truncate(size)
        return cls(wrap(np.asarray(np.memmap(path, np.uint8, "r+" if shared else "c", shape=(size,))) if size else np.zeros(0, np.uint8)))

    def untyped(self) -> UntypedStorage:
        """It itself."""
        return self


class TypedStorage(_Memory):
    """Memory as elements of one dtype.

    >>> gl.tensor([[1, 2], [3, 4]])[1].storage().tolist()
    [1, 2, 3, 4]
    """

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return from_numpy(self._tensor._array.dtype)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._tensor.view(uint8))

    _untyped_storage = property(untyped)

    def type(self) -> str:
        """Its name, as torch.FloatStorage."""
        name: str = self._tensor.type()
        return name.removesuffix("Tensor") + "Storage"

    def _said(self) -> str:
        return f"dtype={self.dtype}, "


def is_storage(obj: Any) -> bool:
    """Whether the object is a storage.

    >>> gl.is_storage(gl.ones(1).storage())
    True
    """
    return isinstance(obj, _Memory)


def placed(storage: Any, dtype: Any, first: Any, size: Any, stride: Any) -> Any:
    """The elements of a storage, or of the memory of a tensor, from the one numbered `first` on, in that size and those steps."""
    line = storage._tensor.view(dtype) if isinstance(storage, _Memory) else _line(storage)
    first = first or 0
    shape = (max(line.numel() - first, 0),) if size is None else tuple(size)
    return line.as_strided(shape, tuple(count(shape[i + 1 :]) for i in range(len(shape))) if stride is None else stride, first)


def _line(tensor: Any, dtype: Any = None) -> Any:
    refresh(tensor)
    line = ops.memory.line_of(tensor._array)
    if line is None:  # memory with gaps, somebody else's: what the tensor has of it
        line = tensor.detach().reshape(-1)._array
    whole = wrap(line)
    inplace.mark_detached(whole, tensor, current())
    return whole if dtype is None else whole.view(dtype)


named_functions(__name__)


class StorageMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def untyped_storage(self) -> UntypedStorage:
        """The memory that this tensor is a part of, as bytes.

        >>> x = gl.ones(4)
        >>> x[2:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        True
        """
        return UntypedStorage(_line(self, uint8))

    def storage(self) -> TypedStorage:
        """The memory that this tensor is a part of, as elements of its dtype.

        >>> gl.arange(4)[2:].storage().size()
        4
        """
        return TypedStorage(_line(self))

    _typed_storage = storage

    def storage_type(self) -> type[TypedStorage]:
        """The class of its `storage()`.

        >>> gl.ones(1).storage_type().__name__
        'TypedStorage'
        """
        return TypedStorage
