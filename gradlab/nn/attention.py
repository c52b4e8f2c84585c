"""Which kernels attention may use, as in `torch.nn.attention`: gradlab chooses by itself, and the results are the same."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradlab.backends.cuda.attention import (
    cudnn_sdp_enabled,
    flash_sdp_enabled,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Within the block `gl.backends.cuda.math_sdp_enabled()` and its kin say yes to these (one or several) alone.

    >>> with gl.nn.attention.sdpa_kernel(gl.nn.attention.SDPBackend.MATH):
    ...     gl.backends.cuda.math_sdp_enabled(), gl.backends.cuda.flash_sdp_enabled()
    (True, False)
    """
    chosen = {backends} if isinstance(backends, SDPBackend) else set(backends)
    if not chosen or not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise AssertionError(f"sdpa_kernel: takes one SDPBackend or several, not {backends!r}")
    with sdp_kernel(
        enable_flash=SDPBackend.FLASH_ATTENTION in chosen, enable_math=SDPBackend.MATH in chosen,
        enable_mem_efficient=SDPBackend.EFFICIENT_ATTENTION in chosen, enable_cudnn=SDPBackend.CUDNN_ATTENTION in chosen,
    ):  # fmt: skip
        yield


def _cur_sdpa_kernel_backends() -> list[SDPBackend]:
    """Those that are switched on."""
    switched = {
        SDPBackend.MATH: math_sdp_enabled(), SDPBackend.FLASH_ATTENTION: flash_sdp_enabled(),
        SDPBackend.EFFICIENT_ATTENTION: mem_efficient_sdp_enabled(), SDPBackend.CUDNN_ATTENTION: cudnn_sdp_enabled(),
    }  # fmt: skip
    return [backend for backend, on in switched.items() if on]
