"""Fake quantisation: numbers rounded to what few bits hold, in floating point, with gradients that pass straight through.

Jacob and others, "Quantization and training of neural networks for efficient integer-arithmetic-only inference" (2018); the gradient is
the straight-through one of Bengio, Léonard and Courville (2013), 0 where a number lies beyond the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import FLOATING
from gradlab.named_errors import named_functions
from gradlab.spec import whole
from gradlab.tensor import creation, elementwise, where
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def fake_quantize_per_tensor_affine(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) · scale, of input's shape and dtype.

    scale: a number above 0, or a tensor of one; zero_point: a whole number between quant_min and quant_max, or a tensor of one. The
    gradient of input is that of the result where the range was not left, else 0; scale and zero_point have none.
    ValueError for an empty range or a zero_point outside it, RuntimeError for an input that is not floating point.

    >>> gl.fake_quantize_per_tensor_affine(gl.tensor([-9.0, 0.26, 0.74]), 0.5, 0, -8, 7)
    tensor([-4.0000,  0.5000,  0.5000])
    """
    _check("fake_quantize_per_tensor_affine", input, quant_min, quant_max)
    for name, value in (("scale", scale), ("zero_point", zero_point)):
        shape = value._array.shape if isinstance(value, Differentiable) else ()
        if any(n != 1 for n in shape):
            raise ValueError(f"fake_quantize_per_tensor_affine: {name} is of shape {tuple(shape)}, and is one number for all")
    if not isinstance(zero_point, Differentiable) and not quant_min <= whole(zero_point) <= quant_max:
        raise ValueError(f"fake_quantize_per_tensor_affine: zero_point {zero_point} is not between {quant_min} and {quant_max}")
    return _fake_quantized(input, _single(scale), _single(zero_point), quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each place of a dimension: tensors (input.shape[axis],).

    >>> x, scale = gl.tensor([[0.3, 0.9], [30.0, 90.0]]), gl.tensor([0.25, 25.0])
    >>> gl.fake_quantize_per_channel_affine(x, scale, gl.zeros(2), 0, -8, 7)
    tensor([[  0.2500,   1.0000],
            [ 25.0000, 100.0000]])
    """
    _check("fake_quantize_per_channel_affine", input, quant_min, quant_max)
    if not -input.ndim <= axis < input.ndim:
        raise IndexError(f"fake_quantize_per_channel_affine: axis {axis} is out of range of {input.ndim} dimensions")
    shape = [1] * input.ndim
    shape[axis] = input.shape[axis]
    parts: list[Tensor] = []
    for name, value in (("scale", scale), ("zero_point", zero_point)):
        if not isinstance(value, Differentiable) or tuple(value.shape) != (input.shape[axis],):
            given = f"of shape {tuple(value.shape)}" if isinstance(value, Differentiable) else f"a {type(value).__name__}"
            raise ValueError(f"fake_quantize_per_channel_affine: {name} is {given}, where dimension {axis} has {input.shape[axis]} places")
        parts.append(value.detach().reshape(shape))
    return _fake_quantized(input, parts[0], parts[1], quant_min, quant_max)


def _single(value: Any) -> Any:
    return value.detach().reshape(()) if isinstance(value, Differentiable) else value  # type: ignore[attr-defined]


def _check(name: str, input: Tensor, quant_min: int, quant_max: int) -> None:
    if input._array.dtype not in FLOATING:
        raise RuntimeError(f"{name}: the input is {input.dtype}, and is floating point")
    if quant_min > quant_max:
        raise ValueError(f"{name}: quant_min {quant_min} is above quant_max {quant_max}")


def _of_type(value: Any, input: Tensor) -> Tensor:
    given: Any = value
    if isinstance(value, Differentiable):
        found: Tensor = given.to(input.dtype)
        return found
    return creation.full((), given, dtype=input.dtype, device=input.device)


@rounds_once(first=1)
def _fake_quantized(input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
    values = input.detach()
    # As tensors: a number is rounded before its inverse is taken, by which PyTorch's kernels multiply, too.
    step, middle = (_of_type(x, input) for x in (scale, zero_point))
    places = elementwise.round(values * (1 / step)) + middle
    result = (places.clamp(low, high) - middle) * step
    if not input.requires_grad:
        return result
    # input - values is 0, and has the gradient 1.
    inside = (places >= low) & (places <= high)
    return result + where.where(inside, input - values, 0.0)


named_functions(__name__)
