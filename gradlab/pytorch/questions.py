"""What programs ask PyTorch's top about itself and its settings, and gradlab answers as a program of one CPU and one kind of GPU."""

from __future__ import annotations

from typing import Any

import gradlab
from gradlab.amp import GradScaler as GradScaler
from gradlab.cuda import Event as Event, OutOfMemoryError as OutOfMemoryError, Stream as Stream
from gradlab.device import Device
from gradlab.distributed.futures import Future as Future
from gradlab.utils.dlpack import to_dlpack as to_dlpack

has_lapack = has_openmp = True
has_mkl = has_spectral = False
USE_RTLD_GLOBAL_WITH_LIBTORCH = USE_GLOBAL_DEPS = False


class SymInt:
    """No value is one: sizes in a trace are integers."""


class SymFloat:
    """No value is one."""


class SymBool:
    """No value is one."""


class AcceleratorError(RuntimeError):
    """Of PyTorch's names for a GPU's errors: nothing here raises it."""


def compiled_with_cxx11_abi() -> bool:
    """As PyTorch's wheels are."""
    return True


def is_anomaly_check_nan_enabled() -> bool:
    """It looks for NaN where it is on."""
    return bool(gradlab.is_anomaly_enabled())


def get_device_module(device: Any = None) -> Any:
    """`torch.cuda` or `torch.cpu`."""
    kind = Device(device).type if device is not None else "cuda" if gradlab.cuda.is_available() else "cpu"
    return getattr(gradlab, kind)


def sym_int(value: Any) -> int:
    """As an integer."""
    return int(value)


def sym_float(value: Any) -> float:
    """As a float."""
    return float(value)


def sym_max(a: Any, b: Any) -> Any:
    """The larger."""
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller."""
    return min(a, b)


def sym_not(value: Any) -> bool:
    """The opposite."""
    return not value
