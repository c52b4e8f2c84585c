"""Making tensors: from Python numbers and NumPy arrays, filled, spaced."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd import graph_cuts
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import apply, created
from gradlab.device import CPU, Device, default_device
from gradlab.dlpack import Carrier, is_capsule, place_of
from gradlab.dtype import BOOL, INT64, as_numpy, from_numpy as public_dtype, get_default_dtype, number_dtype
from gradlab.named_errors import explain, flag, named_functions
from gradlab.ops.memory import Foreign
from gradlab.strides import channels_order, contiguous_format, formatted, preserve_format
from gradlab.tensor.common_arguments import made, plain, sized
from gradlab.tensor.convert import moved
from gradlab.tensor.from_data import filled, on_gpu, plain_like, plain_range, shared, taken, values_in
from gradlab.tensor.memory_formats import checked, laid, laid_as
from gradlab.tensor.shape import sizes

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "from_dlpack", "from_numpy", "frombuffer",
    "full", "full_like", "ones", "ones_like", "scalar_tensor", "tensor", "zeros", "zeros_like",
]  # fmt: skip


def placed(array: Any, device: Any, requires_grad: bool) -> Tensor:
    """A tensor of a new array on a device, the default one unless given."""
    found = created(array)
    place = default_device() if device is None else Device(device)
    if place is not CPU:
        found = moved(found, place)
    return found.requires_grad_() if requires_grad else found


def without_memory(device: Any) -> bool:
    """Whether a tensor is made on "meta": its values are not worth computing."""
    return (default_device() if device is None else Device(device)).type == "meta"


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """A new tensor holding a copy of `data`: a number, nested sequences of equal lengths, an array, a tensor, or another library's object
    that NumPy can read (a pandas Series, a buffer).

    dtype: default: that of an array, and what those of a sequence's parts promote to, NumPy's numbers among them; for Python numbers bool,
    int64 or the default floating point type. A tensor in a sequence counts as one number.
    Raises ValueError for sequences of different lengths, TypeError for what is not numbers (dates are none).

    >>> gl.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    try:
        if requires_grad is not False and requires_grad is not None:
            requires_grad = flag("tensor", "requires_grad", requires_grad)
        if options:
            plain("tensor", options)
        if isinstance(data, Differentiable):
            if data._edge is not None:
                graph_cuts.note("gl.tensor(), which copies,", data)
        elif on_gpu(data):
            made = from_dlpack(data, device=device, copy=True).to(dtype=dtype)
            return made.requires_grad_() if requires_grad else made
        return placed(values_in("tensor", data, dtype), device, requires_grad)
    except Exception as error:
        explain(error, "tensor", tensor, (data,), {"dtype": dtype, "device": device, "requires_grad": requires_grad, **options})


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """As `tensor`, but sharing memory where nothing has to change: of NumPy's arrays, and of other libraries' that have `__dlpack__`, on
    the CPU or a GPU, where it may be written (JAX's may not, and are copied).

    >>> gl.as_tensor([1.0, 2.0])
    tensor([1., 2.])
    """
    if isinstance(data, Differentiable):
        return data.to(dtype=dtype, device=device)  # type: ignore[attr-defined]
    own = data.dtype if isinstance(data, np.ndarray) else None
    if own is not None and (own == as_numpy(dtype) if dtype is not None else own.isnative and own.kind != "O"):
        return placed(from_numpy(data)._array, device, False)
    if own is None and hasattr(data, "__dlpack__") and not isinstance(data, np.generic):
        if on_gpu(data):
            return from_dlpack(data).to(dtype=dtype, device=device)
        array = shared("as_tensor", data)
        if array.flags.writeable:
            return as_tensor(array, dtype, device)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor sharing the array's memory. TypeError for what is not a NumPy array or has no gradlab dtype, ValueError for numbers in
    another byte order than the machine's.

    >>> import numpy as np
    >>> gl.from_numpy(np.arange(3))
    tensor([0, 1, 2])
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}; use tensor()")
    if public_dtype(array.dtype).dtype != array.dtype:
        raise ValueError(f"from_numpy: memory in the other byte order ({array.dtype.str}) cannot be shared; use tensor()")
    return created(np.asarray(Foreign(array)).view(array.dtype) if isinstance(array.base, np.ndarray) else array.view(np.ndarray))


def _filled(size: tuple[Any, ...], value: float, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    try:
        place, shape = default_device() if device is None else Device(device), sizes(size)
        if shape and min(shape) < 0:
            raise RuntimeError(f"a size cannot be negative: {shape}")
        found = filled(shape, value, as_numpy(get_default_dtype() if dtype is None else dtype), place)
        if requires_grad is not False and requires_grad is not None:
            found.requires_grad_(requires_grad is True or flag(sys._getframe(1).f_code.co_name, "requires_grad", requires_grad))
        return found
    except Exception as error:
        explain(error, sys._getframe(1).f_code.co_name, _filled, (size, value, dtype, device), depth=1)


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any) -> Tensor:
    """Zeros of a shape, given as numbers or one sequence.

    >>> gl.zeros(2)
    tensor([0., 0.])
    """
    if options:
        size = sized("zeros", size, options)
    if out is not None:
        return made("zeros", out, dtype, device, lambda dtype, device: _filled(size, 0, dtype, device, requires_grad))
    return _filled(size, 0, dtype, device, requires_grad)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any) -> Tensor:
    """Ones of a shape, given as numbers or one sequence.

    >>> gl.ones(1, 2)
    tensor([[1., 1.]])
    """
    if options:
        size = sized("ones", size, options)
    if out is not None:
        return made("ones", out, dtype, device, lambda dtype, device: _filled(size, 1, dtype, device, requires_grad))
    return _filled(size, 1, dtype, device, requires_grad)


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any) -> Tensor:
    """A tensor whose values do not matter (here zeros, so that two runs agree). memory_format: in which order they lie in memory.

    >>> gl.empty(2, 3).shape
    (2, 3)
    """
    chosen = options.pop("memory_format", None)
    if options:
        size = sized("empty", size, options)
    if chosen is not None and checked("empty", chosen) not in (contiguous_format, preserve_format):
        shape = sizes(size)
        formatted(shape, chosen, 1)
        order = channels_order(len(shape))
        found = laid(_filled(([shape[d] for d in order],), 0, dtype, device, False), order)
        return found.requires_grad_() if requires_grad else found
    if out is not None:
        return made("empty", out, dtype, device, lambda dtype, device: _filled(size, 0, dtype, device, requires_grad))
    return _filled(size, 0, dtype, device, requires_grad)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any
) -> Tensor:  # fmt: skip
    """One value everywhere; its dtype is the value's unless given.

    >>> gl.full((2,), 7.0)
    tensor([7., 7.])
    """
    if options:
        plain("full", options)
    if isinstance(fill_value, (Differentiable, np.generic, np.ndarray)):
        fill_value = fill_value.item()  # type: ignore[union-attr]
    if out is not None:
        return made("full", out, dtype, device, lambda dtype, device: _filled((size,), fill_value, dtype, device, requires_grad))
    if dtype is None:
        dtype = BOOL if isinstance(fill_value, bool) else INT64 if isinstance(fill_value, int) else number_dtype(fill_value)
    return _filled((size,), fill_value, dtype, device, requires_grad)


def _like(name: str, input: Any, value: Any, dtype: Any, device: Any, requires_grad: bool, options: dict[str, Any]) -> Any:
    """One value in the shape and the order of another tensor, or in that of the option `memory_format`."""
    if not options and dtype is None and device is None and not requires_grad and (simple := plain_like(input, value)) is not None:
        return simple
    order = None
    if options or not getattr(getattr(input._array, "flags", None), "c_contiguous", True):
        order = laid_as(name, input, options.pop("memory_format", None))
        plain(name, options)
    shape = input.shape if order is None else [input.shape[d] for d in order]
    found = laid(input.new_full(shape, value, dtype=dtype, device=device), order)
    return found.requires_grad_() if requires_grad else found


def zeros_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """Zeros of the same shape, dtype and device, unless others are given.

    >>> gl.zeros_like(gl.tensor([1, 2]))
    tensor([0, 0])
    """
    return _like("zeros_like", input, 0, dtype, device, requires_grad, options)


def ones_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """Ones of the same shape, dtype and device, unless others are given.

    >>> gl.ones_like(gl.tensor([1, 2]))
    tensor([1, 1])
    """
    return _like("ones_like", input, 1, dtype, device, requires_grad, options)


def empty_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """As `zeros_like`.

    >>> gl.empty_like(gl.ones(2, 3)).shape
    (2, 3)
    """
    return _like("empty_like", input, 0, dtype, device, requires_grad, options)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """One value, in the same shape, dtype and device unless others are given.

    >>> gl.full_like(gl.tensor([1, 2]), 7)
    tensor([7, 7])
    """
    return _like("full_like", input, fill_value, dtype, device, requires_grad, options)


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """start, start + step, … below `end`; `arange(end)` starts at 0. int64 if all three are integers.

    >>> gl.arange(0, 1, 0.25)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if dtype is None is device is out and not (requires_grad or options) and (simple := plain_range(start, end, step)) is not None:
        return simple
    if options:
        plain("arange", options)
    if out is not None:
        return made("arange", out, dtype, device, lambda dtype, device: arange(start, end, step, dtype=dtype, device=device))
    if start is None or end is None:
        start, end = 0, start if end is None else end
    start, end, step = (x.item() if isinstance(x, (Differentiable, np.generic)) else x for x in (start, end, step))  # type: ignore[union-attr]
    for x in (start, end, step):
        if not isinstance(x, (int, float)):
            raise TypeError(f"arange: start, end and step are numbers, not {type(x).__name__}")
        if isinstance(x, float) and not math.isfinite(x):
            raise RuntimeError(f"arange: start, end and step are finite, got {start}, {end}, {step}")
    whole = all(isinstance(x, int) for x in (start, end, step))
    chosen = INT64 if whole and dtype is None else as_numpy(get_default_dtype() if dtype is None else dtype)
    if chosen == INT64 and not whole:  # as PyTorch: of an int64 range the ends are integers, too
        start, end, step, whole = int(start), int(end), int(step), True
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError(f"arange: step {step} does not lead from {start} to {end}")
    size = -((start - end) // step) if whole else math.ceil((end - start) / step)
    params = {"start": start, "step": step, "size": size, "dtype": chosen, "device": default_device() if device is None else Device(device)}
    found = apply(ops.creation.arange, (), params)
    return found.requires_grad_() if requires_grad else found


def scalar_tensor(s: float, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """A 0-d tensor of one number, of the default floating point dtype unless another is given.

    >>> gl.scalar_tensor(3.0)
    tensor(3.)
    """
    if options:
        plain("scalar_tensor", options)
    return full((), s, dtype=get_default_dtype() if dtype is None else dtype, device=device, requires_grad=requires_grad)


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """A tensor of that size whose elements lie `stride` elements apart in memory. Its values do not matter (here zeros).

    >>> gl.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    if options:
        plain("empty_strided", options)
    shape, steps = sizes((size,)), sizes((stride,))
    if len(shape) != len(steps) or any(s < 0 for s in (*shape, *steps)):
        raise RuntimeError(f"empty_strided: a stride that is not negative for each size, got {shape} and {steps}")
    chosen = as_numpy(get_default_dtype() if dtype is None else dtype)
    length = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if 0 not in shape else 0
    memory = np.zeros(length, chosen)
    array = np.lib.stride_tricks.as_strided(memory, shape, [s * chosen.itemsize for s in steps])
    return placed(array, device, requires_grad)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor sharing the memory of another library's array, on the CPU or a CUDA device, by the DLPack protocol; or that of a capsule.

    device: where it goes; on another device than the array's it is a copy. copy: True: always a copy, False: never.
    BufferError where the memory cannot be shared. Of what may not be written the tensor is read-only.

    >>> import numpy as np
    >>> gl.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if not (is_capsule(ext_tensor) or hasattr(ext_tensor, "__dlpack__")):
        raise TypeError(f"from_dlpack: an object with __dlpack__, or a capsule of one, not {type(ext_tensor).__name__}; use gl.asarray")
    if isinstance(ext_tensor, Differentiable) and ext_tensor.device.type != "cpu":  # type: ignore[attr-defined]
        found: Any = ext_tensor.detach()  # type: ignore[attr-defined]
    else:
        carrier = Carrier(ext_tensor)
        home = Device(place_of(carrier.__dlpack_device__()))
        if home.type == "cuda":
            backend: Any = dispatch.backend_for(home)  # CuPy makes the array's device the current one while it looks
            found = created(backend.driver.from_dlpack(ext_tensor))
        else:
            array = taken(ext_tensor, carrier, copy or None)
            found = created(from_numpy(array)._array)
            copy = None if copy else copy
            device = "cpu" if device is None else device
    place = found.device if device is None else Device(device)
    if copy is False and place.type != found.device.type:
        raise BufferError(f"from_dlpack: from {found.device} to {place} the numbers go only as a copy, and copy=False")
    return found.to(device=place, copy=bool(copy))


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-D tensor sharing the memory of an object with a buffer (bytearray, array, mmap): `count` elements (-1: all) from byte `offset`.

    ValueError where the buffer is empty or too small, its length no multiple of an element's, or count 0. What is read-only is copied.

    >>> gl.frombuffer(bytearray([1, 2, 3]), dtype=gl.uint8)
    tensor([1, 2, 3], dtype=gradlab.uint8)
    """
    if not count or not 0 <= offset < memoryview(buffer).nbytes:
        raise ValueError(f"frombuffer: count={count} from byte offset={offset} of {memoryview(buffer).nbytes} bytes is no element")
    array = np.frombuffer(buffer, as_numpy(dtype), count, offset)
    return placed(array if array.flags.writeable else array.copy(), "cpu", requires_grad)


def _from_buffer(obj: Any, dtype: Any) -> Any:
    """An object with a buffer, which neither NumPy nor a tensor made, as an array of its memory; other objects as they are."""
    if isinstance(obj, (Differentiable, np.ndarray, np.generic, list, tuple, bytes)):
        return obj
    try:
        array = np.asarray(memoryview(obj))
    except (TypeError, BufferError):
        return obj
    return array.view(as_numpy(dtype)) if dtype is not None and array.dtype == np.uint8 else array


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None) -> Tensor:
    """A tensor of `obj`, sharing its memory where possible (`copy=True` never does): a tensor's, an array's, a buffer's, a capsule's.

    dtype: of bytes (bytearray, mmap) what they are read as; another buffer's and an array's numbers are converted to it. requires_grad:
    by default a tensor stays in its graph; False takes it out, True asks for gradients where it has none.

    >>> gl.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    obj = from_dlpack(obj) if is_capsule(obj) else obj
    if copy and not isinstance(obj, Differentiable):
        return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad or False)
    found = as_tensor(_from_buffer(obj, dtype), dtype=dtype, device=device)
    found = found if not copy or found is not obj else found.clone()
    found = found if requires_grad is None or flag("asarray", "requires_grad", requires_grad) else found.detach()
    return found.requires_grad_() if requires_grad and not found.requires_grad else found


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any
) -> Tensor:  # fmt: skip
    """Ones on the diagonal of an (n, m) matrix of zeros.

    >>> gl.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    if options:
        plain("eye", options)
    if out is not None:
        return made("eye", out, dtype, device, lambda dtype, device: eye(n, m, dtype=dtype, device=device))
    if without_memory(device):
        return empty(n, n if m is None else m, dtype=dtype, device="meta", requires_grad=requires_grad)
    return placed(np.eye(n, m, dtype=as_numpy(get_default_dtype() if dtype is None else dtype)), device, requires_grad)


named_functions(__name__, without="zeros ones")
