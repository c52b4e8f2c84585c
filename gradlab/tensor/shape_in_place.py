"""In-place methods that change a tensor's own shape, layout or memory, not its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, refresh
from gradlab.dtype import from_numpy
from gradlab.spec import DimensionError, count, none, normalize_dim, normalize_dims
from gradlab.strides import MemoryFormat, channels_order, contiguous_format, dense_order, formatted, inverse_order
from gradlab.tensor.common_arguments import either, required
from gradlab.tensor.shape import sizes
from gradlab.tensor.storage import is_storage, placed

_rows = ops.movement
for _row in (_rows.squeeze, _rows.unsqueeze, _rows.t, _rows.transpose):
    bind(_row)


class ShapeInPlaceMethods(Differentiable):
    """The methods of this family. Each refuses a leaf that requires grad (as PyTorch's do), unless recording is off."""

    __slots__ = ()

    def squeeze_(self, dim: Any = None, *more: int, axis: Any = None) -> Any:
        """squeeze, in place: this tensor loses its dimensions of size 1 (only those in `dim`, if given). Views of it keep their shapes.

        >>> gl.ones(2, 1).squeeze_()
        tensor([1., 1.])
        """
        dim = (dim, *more) if more else dim if axis is None else either("squeeze_", dim, None, axis)
        refresh(self)
        shape = self._array.shape
        dims = tuple(range(len(shape))) if dim is None else () if none(dim) else normalize_dims(dim, len(shape))
        return inplace.turn("squeeze_", self, _rows.squeeze, {"dims": tuple(d for d in dims if shape[d] == 1)})

    def unsqueeze_(self, dim: int | None = None, *, axis: Any = None) -> Any:
        """unsqueeze, in place: this tensor gets a new dimension of size 1 at `dim`.

        >>> gl.ones(2).unsqueeze_(0)
        tensor([[1., 1.]])
        """
        if axis is not None or dim is None:
            dim = required("unsqueeze_", dim, axis)
        refresh(self)
        rank = len(self._array.shape) + 1
        if not -rank <= dim < rank:
            raise DimensionError(f"unsqueeze_: dimension out of range: dim={dim} (expected {-rank} to {rank - 1})")
        return inplace.turn("unsqueeze_", self, _rows.unsqueeze, {"dim": dim % rank})

    def t_(self) -> Any:
        """t, in place: this matrix turns into its transpose, in the same memory.

        >>> gl.tensor([[1, 2], [3, 4]]).t_()
        tensor([[1, 3],
                [2, 4]])
        """
        refresh(self)
        if len(self._array.shape) > 2:
            raise RuntimeError(f"t_: at most two dimensions, not shape {self._array.shape}; use transpose_(dim0, dim1)")
        return inplace.turn("t_", self, _rows.t, {})

    def transpose_(self, dim0: int, dim1: int) -> Any:
        """transpose, in place: two of this tensor's dimensions exchanged, in the same memory.

        >>> gl.ones(2, 3, 4).transpose_(0, 2).shape
        (4, 3, 2)
        """
        refresh(self)
        rank = len(self._array.shape)
        return inplace.turn(
            "transpose_", self, _rows.transpose, {"dim0": normalize_dim(dim0, rank), "dim1": normalize_dim(dim1, rank)}
        )

    def swapaxes_(self, axis0: int, axis1: int) -> Any:
        """`transpose_`, under NumPy's name.

        >>> gl.ones(2, 3).swapaxes_(0, 1).shape
        (3, 2)
        """
        return self.transpose_(axis0, axis1)

    swapdims_ = transpose_

    def resize_(self, *sizes_: Any, size: Any = None, memory_format: MemoryFormat = contiguous_format) -> Any:
        """This tensor in another shape, its elements as they lie in memory: further ones are 0, missing ones are dropped.

        It stays in its memory unless it grows. memory_format: in which order they then lie. RuntimeError for a tensor that requires grad,
        one inside vmap or a trace, and for one that would grow while a view, a detached twin or an earlier write may share its memory.

        >>> gl.arange(4).resize_(3)
        tensor([0, 1, 2])
        """
        refresh(self)
        mode, shape = current(), sizes(sizes_ if size is None else (size,))
        if self._edge is not None:
            raise RuntimeError("resize_: cannot resize a tensor that requires grad; use reshape, or copy the part into a new tensor")
        array, meta = self._array, self._meta
        if mode.tracer is not None or mode.vmap is not None:
            raise RuntimeError("resize_: only for a tensor in memory of its own: not inside vmap or a trace; use reshape")
        inplace.check("resize_", self, mode)
        if any(s < 0 for s in shape):
            raise RuntimeError(f"resize_: a size cannot be negative: {shape}")
        formatted(shape, memory_format, 1)
        if shape == array.shape:
            return self
        old, new = count(array.shape), count(shape)
        order = dense_order(array.shape, array.strides, array.dtype.itemsize)
        if meta is not None and meta.base is not None:
            if new > old or order is None:
                raise RuntimeError("resize_: a view cannot grow; use reshape, or clone() it first")
            return self.as_strided_(shape, formatted(shape, memory_format, 1))  # type: ignore[attr-defined]
        if new > old and meta is not None and meta.version is not None:
            raise RuntimeError("resize_: views may share this tensor's memory, so it cannot grow; copy_ it into a part of a larger tensor")
        backend = dispatch.backend_of(array)
        line = (array if order is None else array.transpose(order)) if old else array  # its elements as they lie
        line = (line if line.flags.c_contiguous else backend.copy(line)).reshape(-1)
        if new > old:
            grown = backend.from_numpy(np.zeros(new, array.dtype), backend.device_of(array))
            backend.assign(grown[:old], line)
            line = grown
        order = tuple(range(len(shape))) if memory_format is contiguous_format else channels_order(len(shape))
        self._array = line[:new].reshape([shape[d] for d in order]).transpose(inverse_order(order))
        inplace.written(version_of(self))
        return self

    def resize_as_(self, the_template: Any, *, memory_format: MemoryFormat = contiguous_format) -> Any:
        """resize_(the_template.shape).

        >>> gl.arange(4).resize_as_(gl.ones(2))
        tensor([0, 1])
        """
        return self.resize_(the_template._array.shape, memory_format=memory_format)

    def set_(self, source: Any = None, storage_offset: Any = None, size: Any = None, stride: Any = None) -> Any:
        """Let this tensor share the memory of `source`, with its shape; without one it becomes empty.

        source: a tensor of this dtype, or a storage. storage_offset, size, stride: which of its elements, in rows unless strides are given.
        RuntimeError for another dtype, and, while recording, for a tensor that requires grad.

        >>> gl.ones(1).set_(gl.arange(4.0).untyped_storage(), 1, (2,))
        tensor([1., 2.])
        """
        own = from_numpy(self._array.dtype)
        if is_storage(source) and getattr(source, "dtype", own) != own:
            raise RuntimeError(f"set_: a tensor of {own} cannot share the memory of a storage of {source.dtype}; give its .untyped()")
        if is_storage(source) or (source is not None and not (storage_offset is size is stride is None)):
            source = placed(source, own, storage_offset, size, stride)
        if isinstance(source, Differentiable) and source.layout is not self.layout:  # type: ignore[attr-defined]
            raise NotImplementedError("set_: a dense tensor has no memory of a sparse one: give x.to_dense()")
        mode = current()
        refresh(self)
        inplace.check("set_", self, mode, memory=False)
        if mode.tracer is not None or mode.vmap is not None:
            raise RuntimeError("set_: memory cannot be exchanged inside vmap or a trace; use copy_")
        if self._edge is not None and mode.recording:
            raise RuntimeError("set_: a tensor that requires grad cannot get other memory while recording is on; use no_grad(), or .data")
        if source is None:
            backend = dispatch.backend_of(self._array)
            inplace.moved(self, backend.from_numpy(np.empty((0,), self._array.dtype), backend.device_of(self._array)))
            return self
        refresh(source)
        if source._array.dtype != self._array.dtype:
            raise RuntimeError(f"set_: a tensor of {self._array.dtype} cannot share the memory of one of {source._array.dtype}")
        before = inplace.leave_memory(self)
        self._array = source._array
        inplace.mark_detached(self, source, mode)
        self._meta.before = before  # type: ignore[union-attr]
        inplace.written(version_of(self))
        return self
