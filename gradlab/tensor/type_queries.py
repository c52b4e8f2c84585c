"""Questions about types: what dtype a result has, what can be cast, what a tensor is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import BOOL, COMPLEX, FLOATING, INEXACT, INT64, DType, as_numpy, from_numpy, promote, result_type as result_of
from gradlab.named_errors import named_functions

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "can_cast", "get_device", "is_complex", "is_distributed", "is_floating_point", "is_inference", "is_nonzero", "is_tensor", "numel",
    "promote_types", "result_type", "typename",
]  # fmt: skip


def promote_types(type1: Any, type2: Any) -> DType:
    """The smallest dtype of the higher category (bool, integer, floating point, complex) that both convert to.

    >>> gl.promote_types(gl.int64, gl.float16)
    gradlab.float16
    """
    return from_numpy(promote(as_numpy(type1), as_numpy(type2)))


def result_type(tensor: Any, other: Any) -> DType:
    """The dtype of an arithmetic operation on two operands, tensors or Python numbers.

    >>> gl.result_type(gl.tensor([1]), 1.5)
    gradlab.float32
    """
    both = (tensor, other)
    tensors = [(x._array.dtype, len(x._array.shape)) for x in both if isinstance(x, Differentiable)]
    return from_numpy(result_of(tensors, [x for x in both if not isinstance(x, Differentiable)]))


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a result of one dtype may be stored in a tensor of another: not complex numbers in real ones, not floating point in
    integers, not numbers in truth values.

    >>> gl.can_cast(gl.float32, gl.int64)
    False
    """
    source, target = as_numpy(from_), as_numpy(to)
    if source in COMPLEX:
        return target in COMPLEX
    if source in FLOATING:
        return target in INEXACT
    return source == BOOL or target != BOOL


def is_tensor(obj: Any) -> bool:
    """Whether the object is a tensor.

    >>> gl.is_tensor([1.0])
    False
    """
    return isinstance(obj, Differentiable)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is float16, bfloat16, float32 or float64.

    >>> gl.is_floating_point(gl.tensor([1]))
    False
    """
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex64 or complex128.

    >>> gl.is_complex(gl.tensor([1.0])), gl.is_complex(gl.tensor([1j]))
    (False, True)
    """
    return input.is_complex()


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero. RuntimeError unless there is exactly one.

    >>> gl.is_nonzero(gl.tensor([2.0]))
    True
    """
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: one element, not {input.numel()}")
    return bool(input.item() != 0)


def numel(input: Tensor) -> int:
    """Number of elements.

    >>> gl.numel(gl.ones(2, 3))
    6
    """
    return input.numel()


def typename(obj: Any) -> str:
    """The name of an object's type: of a tensor as `x.type()` gives it, of others with their module, of a class that of the class.

    >>> gl.typename(gl.ones(1)), gl.typename(gl.nn.Linear(1, 1)), gl.typename(3)
    ('torch.FloatTensor', 'gradlab.nn.modules.linear.Linear', 'int')
    """
    if isinstance(obj, Differentiable):
        found: str = obj.type()  # type: ignore[attr-defined]
        return found
    kind = obj if hasattr(obj, "__qualname__") and hasattr(obj, "__module__") else type(obj)
    return kind.__qualname__ if kind.__module__ in ("builtins", "", None) else f"{kind.__module__}.{kind.__qualname__}"


def get_device(input: Tensor) -> int:
    """The GPU's index; -1 on the CPU.

    >>> gl.get_device(gl.ones(1))
    -1
    """
    found: int = input.get_device()
    return found


def is_inference(input: Tensor) -> bool:
    """Whether made under `inference_mode`.

    >>> gl.is_inference(gl.ones(1))
    False
    """
    return input.is_inference()


def is_distributed(input: Tensor) -> bool:
    """False: there is one process, and every tensor is whole.

    >>> gl.is_distributed(gl.ones(1))
    False
    """
    return input.is_distributed()


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`, as a function."""
    if not condition:
        raise AssertionError(message)


def _shape_as_tensor(input: Tensor) -> Any:
    """The sizes as a vector of int64."""
    return input.new_tensor(input._array.shape, dtype=INT64, device="cpu")


named_functions(__name__)
