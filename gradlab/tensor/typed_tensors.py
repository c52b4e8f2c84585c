"""Tensors by the name of their type, PyTorch's oldest way: `FloatTensor(2, 3)`, `cuda.LongTensor([1, 2])`, `x.type()`, `x.new(3)`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.device import CPU, Device, set_default_device
from gradlab.dtype import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DType,
    as_numpy,
    bfloat16,
    float16,
    float32,
    float64,
    from_numpy as public_dtype,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
)
from gradlab.named_errors import explain, named_functions
from gradlab.tensor.creation import as_tensor, empty, tensor
from gradlab.tensor.size import Size

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "ShortTensor", "set_default_tensor_type",
]  # fmt: skip

_NAMES = {
    float32.dtype: "Float", float64.dtype: "Double", float16.dtype: "Half", bfloat16.dtype: "BFloat16", uint8.dtype: "Byte",
    int8.dtype: "Char", int16.dtype: "Short", int32.dtype: "Int", int64.dtype: "Long", BOOL: "Bool",
    COMPLEX64: "ComplexFloat", COMPLEX128: "ComplexDouble",
}  # fmt: skip


class TensorType(type):
    """The class of `FloatTensor` and its kin. None of them has instances of its own: calling one makes a Tensor of that dtype on that
    device, and `isinstance(x, FloatTensor)` asks whether a tensor has them.

    Called with integers or one `Size` it gives zeros of that shape, with a list or an array their values, with a tensor of that type an
    alias of it. TypeError for a tensor of another type: use `x.type(...)`, which converts.

    >>> gl.LongTensor([1, 2])
    tensor([1, 2])
    >>> isinstance(gl.ones(2), gl.FloatTensor), gl.FloatTensor.dtype
    (True, gradlab.float32)
    """

    dtype: DType
    is_cuda: bool
    is_sparse = False

    def __call__(cls, *data: Any, device: Any = None, size: Any = None) -> Any:
        place = Device("cuda") if cls.is_cuda else CPU
        if device is not None and Device(device).type != place.type:
            raise RuntimeError(f"{cls.__name__}: this type is of {place.type} tensors, not of {device}")
        return constructed(cls.__name__, data if size is None else (Size(size),), device or place, as_numpy(cls.dtype))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Differentiable) and not hasattr(instance._array, "pattern") and type_name(instance) == repr_of(cls)


def repr_of(kind: TensorType) -> str:
    """The name of such a type, as `x.type()` gives it."""
    return f"torch.{'cuda.' if kind.is_cuda else ''}{kind.__name__}"


def _make(package: str, cuda: bool) -> dict[str, TensorType]:
    return {
        f"{name}Tensor": TensorType(f"{name}Tensor", (), {"__module__": package, "dtype": public_dtype(dtype), "is_cuda": cuda})
        for dtype, name in _NAMES.items()
    }


CPU_TYPES = _make("gradlab", cuda=False)
CUDA_TYPES = _make("gradlab.cuda", cuda=True)
FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, ByteTensor = list(CPU_TYPES.values())[:5]
CharTensor, ShortTensor, IntTensor, LongTensor, BoolTensor = list(CPU_TYPES.values())[5:10]
_BY_NAME = {repr_of(kind): kind for kind in (*CPU_TYPES.values(), *CUDA_TYPES.values())}


def type_name(tensor: Any) -> str:
    """PyTorch's older name of a tensor's type, such as torch.FloatTensor or torch.cuda.LongTensor."""
    return f"torch.{'' if tensor.device.type == 'cpu' else 'cuda.'}{_NAMES[tensor._array.dtype]}Tensor"


def named_type(name: str) -> TensorType | None:
    """The type of such a name, with torch's or gradlab's in front of it, or nothing; None for another text."""
    package, _, rest = name.partition(".")
    return _BY_NAME.get(f"torch.{rest}" if package in ("torch", "gradlab") else f"torch.{name}")


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype, and the default device to the type's: `t` is a type, such as `gl.DoubleTensor`, or its name.

    >>> gl.set_default_tensor_type("torch.FloatTensor")
    >>> gl.get_default_dtype()
    gradlab.float32
    """
    kind = named_type(t) if isinstance(t, str) else t
    if not isinstance(kind, TensorType):
        raise TypeError(f"set_default_tensor_type: takes a type of tensors, such as gl.FloatTensor, or its name, not {t!r}")
    set_default_dtype(kind.dtype)
    set_default_device("cuda" if kind.is_cuda else None)


def _is_size(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def constructed(name: str, data: tuple[Any, ...], device: Any, dtype: Any = None) -> Any:
    """The tensor that the old constructor `name(*data)` means, of `dtype`; None: of the default one, where an alias keeps its own."""
    try:
        only = data[0] if len(data) == 1 else None
        if isinstance(only, Differentiable):
            if dtype is not None and dtype != only._array.dtype:
                raise TypeError(f"{name}: an alias of a tensor has its type, {type_name(only)}; use x.type(...) to convert it")
            found: Any = only.view(only._array.shape)  # type: ignore[attr-defined]
            return found if device is None else found.to(device=device)
        chosen = get_default_dtype() if dtype is None else dtype
        if isinstance(only, Size):
            return empty(only, dtype=chosen, device=device)
        if len(data) != 1 or _is_size(only):
            if not all(map(_is_size, data)):
                raise TypeError(f"{name}: sizes are integers, not {data}; for values give one list or array")
            return empty(data or (0,), dtype=chosen, device=device)
        if only is None or isinstance(only, (bool, float, str, bytes, np.generic)):
            raise TypeError(f"{name}: {only!r} is neither a size nor a sequence of values; use gl.tensor({only!r})")
        if isinstance(only, np.ndarray) and only.dtype == as_numpy(chosen):
            return as_tensor(only, device=device)
        return tensor(only, dtype=chosen, device=device)
    except Exception as error:
        explain(error, name, constructed, (name, data, device, dtype), depth=1)


builtin = type  # inside the class the name is a method


named_functions(__name__)


class TypedTensorMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """This tensor converted to a type: a dtype, such as `gl.int64`, or one of PyTorch's older types or its name, such as
        `gl.LongTensor` or "torch.cuda.LongTensor", which says the device, too. Without an argument the name of its own type.

        >>> gl.tensor([1.5]).type(gl.LongTensor)
        tensor([1])
        >>> gl.tensor([1.5]).type()
        'torch.FloatTensor'
        """
        if dtype is None:
            return type_name(self)
        kind = named_type(dtype) if isinstance(dtype, str) else dtype
        if isinstance(kind, builtin) and issubclass(kind, Differentiable):  # `Tensor` itself
            kind = CPU_TYPES[f"{_NAMES[get_default_dtype().dtype]}Tensor"]
        if not isinstance(kind, TensorType):
            return self.to(dtype=dtype)
        place = "cuda" if kind.is_cuda else "cpu"
        return self.to(dtype=kind.dtype, device=None if self.device.type == place else place)

    def new(self: Any, *data: Any, device: Any = None, size: Any = None) -> Any:
        """A tensor of this dtype on this device, as the old constructors make it: of zeros in the shape given by integers or a `Size`,
        of the values of a list or array, an alias of a tensor of this type; empty without arguments.

        >>> gl.ones(2, dtype=gl.int64).new(3), gl.ones(2).new([1, 2])
        (tensor([0, 0, 0]), tensor([1., 2.]))
        """
        return constructed("new", data if size is None else (Size(size),), device or self.device, self._array.dtype)
