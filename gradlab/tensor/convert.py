"""Conversion: dtypes, devices, NumPy, Python numbers; copies; tensors like this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd import graph_cuts, inplace
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import apply, bind, created, finish, refresh, wrap
from gradlab.batched import Batched
from gradlab.device import TYPES, Device
from gradlab.dtype import BOOL, COMPLEX, as_numpy, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from gradlab.named_errors import explain, flag
from gradlab.op import Op
from gradlab.spec import is_number
from gradlab.strides import inverse_order, like_first, preserve_format, suggested
from gradlab.tensor.common_arguments import only_tensors, plain, sized
from gradlab.tensor.from_data import SURE, beyond, filled, imaginary_lost, values_in
from gradlab.tensor.in_place_methods import assign, ordinary, put, unrepeated
from gradlab.tensor.memory_formats import copied, laid_as
from gradlab.tensor.values import values_of

if TYPE_CHECKING:
    from gradlab.tensor.size import Size
    from gradlab.tensor.tensor import Tensor

_cast = bind(ops.elementwise.cast)


class ConvertMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def shape(self) -> Size: ...

        @property
        def device(self) -> Device: ...

    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False, other: Any = None,
        memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        """This tensor in another dtype or on another device (`to(dtype)`, `to(device)`, `to(other_tensor)`); itself if nothing changes.

        memory_format: in which order a copy lies; as this tensor unless given. A format of which this tensor is not makes a copy.

        >>> gl.tensor([1.5]).to(gl.int64)
        tensor([1])
        """
        try:
            if copy is not False and copy is not True:
                copy = flag("to", "copy", copy)
            if non_blocking is not False:
                flag("to", "non_blocking", non_blocking)
            for argument in args if other is None else (*args, other):
                if isinstance(argument, Differentiable):
                    dtype, device = argument._array.dtype, argument.device  # type: ignore[attr-defined]
                elif isinstance(argument, Device) or (isinstance(argument, str) and argument.split(":")[0] in TYPES):
                    device = argument
                elif argument is not None and not isinstance(argument, bool):  # non_blocking: a copy is complete when it returns
                    dtype = argument
            out: Any = self
            if dtype is not None and (new := dtype if type(dtype) is np.dtype else as_numpy(dtype)) != (old := self._array.dtype):
                if old in COMPLEX and new not in COMPLEX and new != BOOL:
                    imaginary_lost()
                out = _cast(out, dtype=new)
            if device is not None:
                out = moved(out, Device(device))
            if memory_format is not None and memory_format is not preserve_format:
                order, array = laid_as("to", out, memory_format), out._array
                if type(array) is not Batched and (copy or suggested(array.shape, array.strides) is not memory_format):
                    return copied(out, order)
            return copied(out, laid_as("to", out)) if copy and out is self else out
        except Exception as error:
            explain(error, "to", type(self).to, (self, *args), {"dtype": dtype, "device": device, "memory_format": memory_format})

    def type_as(self, other: Tensor) -> Tensor:
        """`to(other.dtype)`.

        >>> gl.tensor([1.5]).type_as(gl.tensor([1]))
        tensor([1])
        """
        only_tensors("type_as", other)
        return self.to(dtype=other._array.dtype)

    def float(self, memory_format: Any = None) -> Tensor:
        """As float32.

        >>> gl.tensor([1]).float()
        tensor([1.])
        """
        return self.to(memory_format=memory_format, dtype=float32)

    def double(self, memory_format: Any = None) -> Tensor:
        """As float64.

        >>> gl.tensor([1]).double()
        tensor([1.], dtype=gradlab.float64)
        """
        return self.to(memory_format=memory_format, dtype=float64)

    def half(self, memory_format: Any = None) -> Tensor:
        """As float16.

        >>> gl.tensor([1]).half()
        tensor([1.], dtype=gradlab.float16)
        """
        return self.to(memory_format=memory_format, dtype=float16)

    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """As bfloat16.

        >>> gl.tensor([1]).bfloat16()
        tensor([1.], dtype=gradlab.bfloat16)
        """
        return self.to(memory_format=memory_format, dtype=bfloat16)

    def int(self, memory_format: Any = None) -> Tensor:
        """As int32.

        >>> gl.tensor([1.5]).int()
        tensor([1], dtype=gradlab.int32)
        """
        return self.to(memory_format=memory_format, dtype=int32)

    def long(self, memory_format: Any = None) -> Tensor:
        """As int64.

        >>> gl.tensor([1.5]).long()
        tensor([1])
        """
        return self.to(memory_format=memory_format, dtype=int64)

    def short(self, memory_format: Any = None) -> Tensor:
        """As int16.

        >>> gl.tensor([1.5]).short()
        tensor([1], dtype=gradlab.int16)
        """
        return self.to(memory_format=memory_format, dtype=int16)

    def char(self, memory_format: Any = None) -> Tensor:
        """As int8.

        >>> gl.tensor([1.5]).char()
        tensor([1], dtype=gradlab.int8)
        """
        return self.to(memory_format=memory_format, dtype=int8)

    def byte(self, memory_format: Any = None) -> Tensor:
        """As uint8.

        >>> gl.tensor([1.5]).byte()
        tensor([1], dtype=gradlab.uint8)
        """
        return self.to(memory_format=memory_format, dtype=uint8)

    def bool(self, memory_format: Any = None) -> Tensor:
        """As truth values: whether nonzero.

        >>> gl.tensor([0.0, 1.5]).bool()
        tensor([False,  True])
        """
        return self.to(memory_format=memory_format, dtype=BOOL)

    def cpu(self, memory_format: Any = None) -> Tensor:
        """On the CPU.

        >>> gl.ones(2).cpu()
        tensor([1., 1.])
        """
        return self.to(device="cpu", memory_format=memory_format)

    def record_stream(self, s: Any) -> None:
        """Say that a `gl.cuda.Stream` works with this tensor, which was made on another one: once it is dropped, its memory is not given
        out again before that stream's work queued by then is done. RuntimeError for a tensor that is not on a GPU.

        >>> gl.ones(1, device="cuda").record_stream(gl.cuda.Stream())  # doctest: +SKIP
        """
        backend, handle = dispatch.backend_of(self._array), getattr(s, "_handle", None)
        if handle is None:
            raise TypeError(f"record_stream: takes a gl.cuda.Stream, not {type(s).__name__}")
        if not hasattr(backend, "record_stream"):
            raise RuntimeError(f"record_stream: the tensor is on {self.device}, whose memory no stream works with")
        backend.record_stream(self._array, handle)

    def cuda(self, device: Any = None, non_blocking: Any = False, memory_format: Any = None) -> Tensor:
        """On a GPU: the current one, or the one of that index.

        >>> gl.ones(2).cuda().device.type  # doctest: +SKIP
        'cuda'
        """
        place = Device("cuda", device) if device is None or isinstance(device, int_) else device
        return self.to(device=place, memory_format=memory_format)

    def numpy(self, *, force: Any = False) -> Any:
        """A NumPy array sharing this CPU tensor's memory. Raises where it lives elsewhere (cpu()), or requires grad and records (detach()).

        >>> gl.ones(2).numpy().dtype
        dtype('float32')
        """
        if force:
            if self._edge is not None:
                graph_cuts.note("numpy(force=True)", self)
            return self.detach().cpu().numpy()  # type: ignore[attr-defined]
        if self._edge is not None and current().recording:
            raise RuntimeError("numpy: this tensor requires grad; call .detach().numpy(), since NumPy does not record operations")
        if self.device.type != "cpu":
            raise TypeError(f"numpy: this tensor is on {self.device}; call .cpu().numpy()")
        return values_of(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def item(self) -> Any:
        """The one element as a Python number. RuntimeError unless there is exactly one.

        >>> gl.tensor([1.5]).item()
        1.5
        """
        if self._edge is not None:
            graph_cuts.note("item()", self)
        array = values_of(self)
        if array.size != 1:
            raise RuntimeError(f"item: a tensor with {array.size} elements (shape {self.shape}) is not one number")
        value = array.item()
        return value if type(value) in (float_, int_, bool_, complex) else float_(value)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers (a number for a 0-d tensor).

        >>> gl.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        if self._edge is not None:
            graph_cuts.note("tolist()", self)
        array = values_of(self)
        return (array.astype(np.float64) if array.dtype.kind == "V" else array).tolist()

    def copy_(self, other: Any, non_blocking: Any = False) -> Any:
        """Write the elements of `other` (broadcast, cast) into this tensor.

        >>> gl.zeros(2).copy_(gl.tensor([1, 2]))
        tensor([1., 2.])
        """
        if isinstance(other, Differentiable) and ordinary(self, other):
            return put(self, other._array)
        inplace.check("copy_", self, current())
        source: Any = other if isinstance(other, Differentiable) else wrap(np.asarray(other))
        return assign_cast("copy_", self, source.expand(self.shape))

    def fill_(self, value: Any) -> Any:
        """Write one value everywhere.

        >>> gl.zeros(2).fill_(7)
        tensor([7., 7.])
        """
        if type(value) is float and ordinary(self) and (-SURE <= value <= SURE or not beyond(value, self._array.dtype)):
            return put(self, value)
        if (part := unrepeated(self)) is not None:
            part.fill_(value)
            return self
        inplace.check("fill_", self, current())
        if isinstance(value, Differentiable):
            return assign_cast("fill_", self, value.expand(self.shape))  # type: ignore[attr-defined]
        return assign("fill_", self, self.new_full(self.shape, value))

    def zero_(self) -> Any:
        """Write 0 everywhere.

        >>> gl.ones(2).zero_()
        tensor([0., 0.])
        """
        return put(self, 0.0) if ordinary(self) else self.fill_(0)

    # ------------------------------------------------------------ tensors like this one

    def new_full(
        self, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any
    ) -> Tensor:
        """A tensor of that size and value with this tensor's dtype and device unless others are given.

        >>> gl.tensor([1]).new_full((2,), 7)
        tensor([7, 7])
        """
        try:
            if options:
                plain("new_full", options)
            shape = (size,) if isinstance(size, int_) else tuple(size)
            made = filled(shape, fill_value, self._array.dtype if dtype is None else as_numpy(dtype), Device(device or self.device))
            if type(self._array) is Batched:  # so that each sample may write into its own
                made = wrap(self._array.lifted(made))
            if requires_grad is False or requires_grad is None:
                return made
            return made.requires_grad_(flag("new_full", "requires_grad", requires_grad))
        except Exception as error:
            explain(error, "new_full", type(self).new_full, (self, size, fill_value), {"dtype": dtype, "device": device, **options})

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
        """Zeros with this tensor's dtype and device unless others are given.

        >>> gl.tensor([1]).new_zeros(2)
        tensor([0, 0])
        """
        size = sized("new_zeros", size, options) if options else size
        return self.new_full(_size(size), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
        """Ones with this tensor's dtype and device unless others are given.

        >>> gl.tensor([1]).new_ones(2)
        tensor([1, 1])
        """
        size = _size(sized("new_ones", size, options) if options else size)
        return self.new_full(size, 1, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
        """As `new_zeros`: memory without values would make two runs differ.

        >>> gl.tensor([1]).new_empty(2).shape
        (2,)
        """
        size = sized("new_empty", size, options) if options else size
        return self.new_zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
        """A tensor of that data with this tensor's dtype and device unless others are given.

        >>> gl.tensor([1.0]).new_tensor([2, 3])
        tensor([2., 3.])
        """
        plain("new_tensor", options)
        made = moved(created(values_in("new_tensor", data, dtype or self._array.dtype)), Device(device or self.device))
        return made.requires_grad_() if requires_grad else made

    def zeros_like(self) -> Tensor:
        """Zeros of this shape, dtype and device.

        >>> gl.ones(2).zeros_like()
        tensor([0., 0.])
        """
        return filled(self.shape, 0, self._array.dtype, self.device) if type(self._array) is not Batched else self.new_zeros(self.shape)

    def ones_like(self) -> Tensor:
        """Ones of this shape, dtype and device.

        >>> gl.zeros(2).ones_like()
        tensor([1., 1.])
        """
        return filled(self.shape, 1, self._array.dtype, self.device) if type(self._array) is not Batched else self.new_ones(self.shape)


int_, float_, bool_ = int, float, bool  # inside the class the names are methods


def _size(size: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(size[0]) if len(size) == 1 and not is_number(size[0]) else tuple(size)


def assign_cast(name: str, target: Any, source: Any) -> Any:
    """Write `source` in the target's dtype and on its device, whatever its own."""
    return assign(name, target, moved(source, target.device).to(target._array.dtype))


def moved(tensor: Any, device: Device) -> Any:
    """The tensor on `device`."""
    own = tensor.device
    if own.type == device.type and (device.index is None or own.index == device.index):
        return tensor
    return _transfer(tensor, device=device, source=own)


# What `moved` records. No row of a family: it is the one operation whose input and output are on different devices, so no backend runs it.
transfer = Op("to_device", lambda x, *, device, source: x, params=("device", "source"), exact=True, lies=like_first,
              grad={"x": lambda g, source: g.to(source)},
              cpu=lambda x, y, *, device, source: np.copyto(y, x))  # fmt: skip
bind(transfer)


def _transfer(tensor: Any, device: Device, source: Device) -> Any:
    params = {"device": device, "source": source}
    mode = current()
    if mode.tracer is not None:
        return apply(transfer, (tensor,), params)
    if tensor._meta is not None:
        refresh(tensor)
    array = tensor._array
    old, new = dispatch.backend_of(array), dispatch.backend_for(device)
    order = laid_as("to", tensor)
    turned = array if order is None else array.transpose(order)
    made = new.from_numpy(turned if device.type == "meta" else old.to_numpy(turned), device)
    return finish(transfer, [tensor], params, made if order is None else made.transpose(inverse_order(order)), mode)
