"""Decorators for the forward and backward of an `autograd.Function` that is used under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gradlab.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled
from gradlab.autograd.base import Differentiable
from gradlab.dtype import FLOAT64, FLOATING, DType, as_dtype


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """A value with the floating point tensors in it on that kind of device, float64 apart, in another dtype."""
    if isinstance(value, Differentiable):
        own = value._array.dtype
        return value.to(dtype) if own in FLOATING and own != FLOAT64 and value.device.type == device_type else value  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """For the `forward` of an `autograd.Function`: with `cast_inputs`, it gets its floating point inputs in that dtype when it is called
    under autocast, and runs with autocast off; without, it runs under autocast as it is, and `custom_bwd` lets backward do so as well.

    >>> class Exp(gl.autograd.Function):
    ...     @staticmethod
    ...     @gl.amp.custom_fwd(device_type="cpu", cast_inputs=gl.float32)
    ...     def forward(ctx, x):
    ...         y = x.exp()
    ...         ctx.save_for_backward(y)
    ...         return y
    ...
    ...     @staticmethod
    ...     @gl.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return g * ctx.saved_tensors[0]
    >>> with gl.autocast("cpu"):
    ...     Exp.apply(gl.ones(2, dtype=gl.bfloat16)).dtype
    gradlab.float32
    """
    if not isinstance(device_type, str):
        raise ValueError(f"custom_fwd: expected `device_type` of type `str`, got {type(device_type).__name__}")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    wanted = None if cast_inputs is None else as_dtype(cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        on, ctx = is_autocast_enabled(device_type), args[0]
        ctx._dtype, ctx._fwd_used_autocast = get_autocast_dtype(device_type), on and wanted is None
        if wanted is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            given = [_cast(x, device_type, wanted) for x in args[1:]]
            return fwd(ctx, *given, **{k: _cast(v, device_type, wanted) for k, v in kwargs.items()})

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """For the `backward` of an `autograd.Function` whose `forward` has `custom_fwd`: it runs under autocast if `forward` did, in its dtype.
    There is an example at `custom_fwd`."""
    if not isinstance(device_type, str):
        raise ValueError(f"custom_bwd: expected `device_type` of type `str`, got {type(device_type).__name__}")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return backward
