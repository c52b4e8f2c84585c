"""PyTorch's older functions for autocast, one for each device: `get_autocast_gpu_dtype()` for `get_autocast_dtype("cuda")`, and so on."""

from __future__ import annotations

from typing import Any

from gradlab.advice import warn
from gradlab.amp import autocast_mode
from gradlab.dtype import DType


def _deprecated(name: str, today: str) -> None:
    warn(DeprecationWarning, f"{name} is deprecated; use {today}")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    _deprecated("get_autocast_gpu_dtype()", 'get_autocast_dtype("cuda")')
    return autocast_mode.get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    _deprecated("get_autocast_cpu_dtype()", 'get_autocast_dtype("cpu")')
    return autocast_mode.get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    _deprecated("is_autocast_cpu_enabled()", 'is_autocast_enabled("cpu")')
    return autocast_mode.is_autocast_enabled("cpu")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """`set_autocast_dtype("cuda", dtype)`."""
    _deprecated("set_autocast_gpu_dtype(dtype)", 'set_autocast_dtype("cuda", dtype)')
    autocast_mode.set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    _deprecated("set_autocast_cpu_dtype(dtype)", 'set_autocast_dtype("cpu", dtype)')
    autocast_mode.set_autocast_dtype("cpu", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`."""
    _deprecated("set_autocast_cpu_enabled(enabled)", 'set_autocast_enabled("cpu", enabled)')
    autocast_mode.set_autocast_enabled("cpu", enabled)
