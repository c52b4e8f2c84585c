"""Which kernels attention may use, as PyTorch's scripts switch them. gradlab chooses by itself, and the results are the same: what is set
here is kept and answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_KINDS = ("flash", "mem_efficient", "math", "cudnn")
_chosen = dict.fromkeys(_KINDS, True)


def enable_flash_sdp(enabled: bool) -> None:
    """Set what `flash_sdp_enabled` answers."""
    _chosen["flash"] = bool(enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Set what `mem_efficient_sdp_enabled` answers."""
    _chosen["mem_efficient"] = bool(enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Set what `math_sdp_enabled` answers."""
    _chosen["math"] = bool(enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Set what `cudnn_sdp_enabled` answers."""
    _chosen["cudnn"] = bool(enabled)


def flash_sdp_enabled() -> bool:
    """Whether it is switched on.

    >>> gl.backends.cuda.flash_sdp_enabled()
    True
    """
    return _chosen["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """Whether it is switched on."""
    return _chosen["mem_efficient"]


def math_sdp_enabled() -> bool:
    """Whether it is switched on."""
    return _chosen["math"]


def cudnn_sdp_enabled() -> bool:
    """Whether it is switched on."""
    return _chosen["cudnn"]


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """Switch them within a `with` block.

    >>> with gl.backends.cuda.sdp_kernel(enable_flash=False):
    ...     gl.backends.cuda.flash_sdp_enabled()
    False
    """
    before = dict(_chosen)
    _chosen.update(flash=enable_flash, mem_efficient=enable_mem_efficient, math=enable_math, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _chosen.update(before)
