"""PyTorch's older names for mixed precision, with the device in the module's name: `gl.cuda.amp.autocast()` is `gl.autocast("cuda")`.

`gradlab.cuda.amp` and `gradlab.cpu.amp`, which lie in rooms below this one, give these.
"""

from __future__ import annotations

import functools
from typing import Any

from gradlab.amp.autocast_mode import autocast
from gradlab.amp.custom import custom_bwd, custom_fwd
from gradlab.amp.grad_scaler import GradScaler
from gradlab.dtype import DType, bfloat16, float16


class CudaAutocast(autocast):
    """`gl.autocast("cuda", …)`."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class CpuAutocast(autocast):
    """`gl.autocast("cpu", …)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class CudaGradScaler(GradScaler):
    """`gl.amp.GradScaler("cuda", …)`."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


class CpuGradScaler(GradScaler):
    """`gl.amp.GradScaler("cpu", …)`."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


CUDA: dict[str, Any] = {
    "GradScaler": CudaGradScaler,
    "autocast": CudaAutocast,
    "custom_bwd": functools.partial(custom_bwd, device_type="cuda"),
    "custom_fwd": functools.partial(custom_fwd, device_type="cuda"),
}
CPU: dict[str, Any] = {"GradScaler": CpuGradScaler, "autocast": CpuAutocast}
