"""What a tensor is: its shape, dtype, device and place in memory."""

from __future__ import annotations

from typing import Any

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.device import Device
from gradlab.dtype import FLOATING, DType, from_numpy
from gradlab.named_errors import explain
from gradlab.spec import count, whole
from gradlab.tensor.common_arguments import either
from gradlab.tensor.size import Size, known


class PropertyMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    _cdata = property(id)  # by which Pyro and others ask whether two names are one tensor

    @property
    def shape(self) -> Size:
        """Sizes of the dimensions.

        >>> gl.ones(2, 3).shape
        (2, 3)
        """
        return known[self._array.shape]

    def size(self, dim: int | None = None, *, axis: Any = None) -> Any:
        """The shape, or the size of one dimension.

        >>> gl.ones(2, 3).size(0)
        2
        """
        try:
            if type(dim) is int and axis is None:
                return self._array.shape[dim]
            dim = dim if axis is None else either("size", dim, None, axis)
            return self.shape if dim is None else self._array.shape[whole(dim)]
        except Exception as error:
            explain(error, "size", type(self).size, (self, dim), {"axis": axis})

    @property
    def ndim(self) -> int:
        """Number of dimensions.

        >>> gl.ones(2, 3).ndim
        2
        """
        return len(self._array.shape)

    def dim(self) -> int:
        """Number of dimensions.

        >>> gl.ones(2, 3).dim()
        2
        """
        return len(self._array.shape)

    def numel(self) -> int:
        """Number of elements.

        >>> gl.ones(2, 3).numel()
        6
        """
        return count(self._array.shape)

    nelement = numel

    @property
    def dtype(self) -> DType:
        """Type of the elements.

        >>> gl.ones(2).dtype
        gradlab.float32
        """
        return from_numpy(self._array.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element.

        >>> gl.ones(2).itemsize
        4
        """
        return int(self._array.dtype.itemsize)

    def element_size(self) -> int:
        """Bytes of one element.

        >>> gl.ones(2).element_size()
        4
        """
        return int(self._array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        >>> gl.ones(2, 3).nbytes
        24
        """
        return self.numel() * self.itemsize

    @property
    def device(self) -> Device:
        """Where the elements live.

        >>> gl.ones(2).device
        device(type='cpu')
        """
        return dispatch.backend_of(self._array).device_of(self._array)

    def is_floating_point(self) -> bool:
        """Whether the dtype is float16, bfloat16, float32 or float64.

        >>> gl.ones(2).is_floating_point()
        True
        """
        return self._array.dtype in FLOATING

    def is_inference(self) -> bool:
        """Whether made under `inference_mode`.

        >>> with gl.inference_mode():
        ...     gl.ones(2).is_inference()
        True
        """
        return self._meta is not None and self._meta.inference
