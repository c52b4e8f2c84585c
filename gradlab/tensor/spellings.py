"""Other spellings: functions that are a method's, and methods that answer what kind of tensor this is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.dtype import BOOL
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import only_tensors
from gradlab.tensor.creation import empty_strided
from gradlab.tensor.missing_names import MissingMethods
from gradlab.tensor.shape import sizes
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["clone", "detach", "fill", "is_same_size", "is_signed", "unravel_index"]


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy in memory of its own, in the order of the tensor or of a `memory_format`; gradients pass through.

    >>> gl.clone(gl.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return input.clone(memory_format=memory_format)


def detach(input: Tensor) -> Tensor:
    """The same memory outside the graph.

    >>> gl.detach(gl.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


def fill(input: Tensor, value: Any) -> Tensor:
    """One value (a number or a 0-d tensor) everywhere, in the shape and dtype of `input`; the gradient of `input` is 0.

    >>> gl.fill(gl.ones(2), 7)
    tensor([7., 7.])
    """
    return filled(input, input.new_ones((), dtype=BOOL), value)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat places (integers, any shape) in a tensor of that shape, as one int64 tensor of places for each dimension.

    >>> gl.unravel_index(gl.tensor([4, 5]), (2, 3))
    (tensor([1, 1]), tensor([1, 2]))
    """
    if indices._array.dtype.kind not in "iu":
        raise TypeError(f"unravel_index: indices are integers, not {indices.dtype}")
    dims = sizes((shape,))
    if min(dims, default=0) < 0:
        raise ValueError(f"unravel_index: no size of shape is negative, in {dims}")
    found: list[Any] = []
    rest: Any = indices.long()
    for size in reversed(dims):
        found.append(rest % size)
        rest = rest.div(size, rounding_mode="floor")
    return tuple(reversed(found))


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers: all but uint8 and bool.

    >>> gl.is_signed(gl.tensor([1])), gl.is_signed(gl.tensor([True]))
    (True, False)
    """
    return bool(input._array.dtype.kind not in "ub")


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape.

    >>> gl.is_same_size(gl.ones(2), gl.ones(2, 1))
    False
    """
    only_tensors("is_same_size", other)
    return input._array.shape == other._array.shape


named_functions(__name__)


class SpellingMethods(MissingMethods):
    """The methods of this family, and what is said of those that are missing; the last of Tensor's bases."""

    __slots__ = ()
    is_signed, is_same_size = is_signed, is_same_size
    is_quantized = is_nested = False
    is_mkldnn = is_xpu = is_mps = is_ipu = is_xla = is_mtia = is_maia = is_vulkan = is_hpu = False
    name: Any = None
    if TYPE_CHECKING:

        @property
        def device(self) -> Any: ...
        @property
        def _base(self) -> Any: ...

    @property
    def is_cuda(self) -> bool:
        """Whether the elements live on a GPU.

        >>> gl.ones(1).is_cuda
        False
        """
        return bool(self.device.type == "cuda")

    @property
    def is_cpu(self) -> bool:
        """Whether the elements live in the CPU's memory.

        >>> gl.ones(1).is_cpu
        True
        """
        return bool(self.device.type == "cpu")

    @property
    def is_meta(self) -> bool:
        """Whether the tensor has a shape and a dtype alone, on the device "meta".

        >>> gl.ones(1).is_meta
        False
        """
        return bool(self.device.type == "meta")

    def get_device(self) -> int:
        """The GPU's index; -1 on the CPU.

        >>> gl.ones(1).get_device()
        -1
        """
        return -1 if self.is_cpu else int(self.device.index or 0)

    def is_distributed(self) -> bool:
        """False: there is one process, and every tensor is whole.

        >>> gl.ones(1).is_distributed()
        False
        """
        return False

    def _is_view(self) -> bool:
        """Whether this tensor is a view of another one."""
        return self._base is not None

    def is_nonzero(self) -> bool:
        """Whether the one element is not 0. RuntimeError unless there is exactly one.

        >>> gl.tensor([2.0]).is_nonzero()
        True
        """
        if self.numel() != 1:  # type: ignore[attr-defined]
            raise RuntimeError(f"is_nonzero: a tensor with one element, not of shape {tuple(self._array.shape)}; use .any() or .all()")
        return bool(self)

    def new_empty_strided(
        self, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
    ) -> Tensor:
        """`gl.empty_strided` with this tensor's dtype and device unless others are given.

        >>> gl.ones(1).new_empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
        """
        dtype, device = self._array.dtype if dtype is None else dtype, self.device if device is None else device
        return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad, **options)

    def ndimension(self) -> int:
        """Number of dimensions.

        >>> gl.ones(2, 3).ndimension()
        2
        """
        return len(self._array.shape)
