"""Keeping gradients small: all together by their norm, or one by one by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gradlab.advice import warn
from gradlab.autograd.mode import no_grad
from gradlab.dtype import HALF, real_of, result_type
from gradlab.layout import strided
from gradlab.named_errors import named_functions
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor as make
from gradlab.tensor.norms import vector_norm
from gradlab.tensor.shape import stack


def _gradients(parameters: Any) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in listed if p.grad is not None]


def _norm(x: Tensor, norm_type: float) -> Tensor:
    x = x if x.layout is strided else x.coalesce().values()
    x = x.float() if x._array.dtype in HALF else x
    return vector_norm(x, norm_type, tuple(range(len(x._array.shape))), False)


def _total_norm(listed: list[Tensor], norm_type: float | str, error_if_nonfinite: bool) -> Tensor:
    """The norm of all tensors together; of half tensors in float32."""
    norm_type = float(norm_type)
    parts = [_norm(x.detach(), norm_type) for x in listed if x.numel()]
    if not parts:
        return make(0.0)
    total = parts[0] if len(parts) == 1 and norm_type else _norm(stack(parts), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"the norm of order {norm_type} of {len(listed)} gradients is {total.item()}, so they cannot be clipped; "
            f"pass error_if_nonfinite=False to clip them nevertheless"
        )
    return total


def _rounded(total: Tensor, listed: list[Tensor]) -> Tensor:
    """The norm in the type of the tensors, of complex ones in that of their parts."""
    dtype = real_of(result_type((x._array.dtype, 1) for x in listed)) if listed else total._array.dtype
    return total if total._array.dtype == dtype else total.to(dtype)


@no_grad()
def get_total_norm(
    tensors: Any, norm_type: float | str = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors together, as if they were one vector: a 0-d tensor (0 without tensors) of their type.
    That of order 0 is the number of tensors with a nonzero, as in PyTorch.

    RuntimeError, if error_if_nonfinite, for a norm that is NaN or infinite. foreach has no effect.
    """
    listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _rounded(_total_norm(listed, norm_type, error_if_nonfinite), listed)


@no_grad()
def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Multiply the gradients, in place, by max_norm / total_norm where that is below 1."""
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for gradient in _gradients(parameters):
        gradient.mul_(factor)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of the parameters, in place, so that their common norm is at most max_norm. Returns the norm before."""
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    gradients = _gradients(listed)
    with no_grad():
        total = _total_norm(gradients, norm_type, error_if_nonfinite)
        clip_grads_with_norm_(listed, max_norm, total)
        return _rounded(total, gradients)


def clip_grad_norm(
    parameters: Any, max_norm: float, norm_type: float | str = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """`clip_grad_norm_`, under its older name: a FutureWarning says so."""
    warn(FutureWarning, "nn.utils.clip_grad_norm is deprecated; clip_grad_norm_ says that it works in place")
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every gradient, in place, to -clip_value … clip_value."""
    value = float(clip_value)
    for gradient in _gradients(parameters):
        gradient.clamp_(-value, value)


named_functions(__name__)
