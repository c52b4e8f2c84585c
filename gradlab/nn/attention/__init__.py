"""Which way attention is computed, as PyTorch's programs choose it, and attention with scores of one's own (`flex_attention`).

There is one way here: `nn.functional.scaled_dot_product_attention` takes the kernel that fits by itself. So the choices are kept and change
nothing, but for one that leaves no way at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum


class SDPBackend(IntEnum):
    """PyTorch's ways to compute attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {
    "flash": SDPBackend.FLASH_ATTENTION, "mem_efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}  # fmt: skip
_on = set(_SWITCHES.values())


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """A block in which only these ways are switched on. Attention is computed as ever. TypeError for what is no SDPBackend.

    >>> from gradlab.nn.attention import SDPBackend, sdpa_kernel
    >>> q = gl.ones(1, 2, 4)
    >>> with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    ...     gl.nn.functional.scaled_dot_product_attention(q, q, q).shape
    (1, 2, 4)
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not chosen or not all(isinstance(each, SDPBackend) for each in chosen):
        raise TypeError(f"sdpa_kernel: expected an SDPBackend or several of them, not {backends!r}")
    before = set(_on)
    _on.clear()
    _on.update(chosen)
    try:
        yield
    finally:
        _on.clear()
        _on.update(before)


def _switch(backend: SDPBackend, enabled: bool) -> None:
    (_on.add if enabled else _on.discard)(backend)


def enable_flash_sdp(enabled: bool) -> None:
    """Switch PyTorch's flash attention on or off: kept, without effect."""
    _switch(SDPBackend.FLASH_ATTENTION, enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Switch PyTorch's memory-efficient attention on or off: kept, without effect."""
    _switch(SDPBackend.EFFICIENT_ATTENTION, enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Switch PyTorch's plain attention on or off: kept, without effect."""
    _switch(SDPBackend.MATH, enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Switch PyTorch's attention by cuDNN on or off: kept, without effect; here `gl.backends.cudnn.enabled` decides."""
    _switch(SDPBackend.CUDNN_ATTENTION, enabled)


def flash_sdp_enabled() -> bool:
    """What was switched last."""
    return SDPBackend.FLASH_ATTENTION in _on


def mem_efficient_sdp_enabled() -> bool:
    """What was switched last."""
    return SDPBackend.EFFICIENT_ATTENTION in _on


def math_sdp_enabled() -> bool:
    """What was switched last."""
    return SDPBackend.MATH in _on


def cudnn_sdp_enabled() -> bool:
    """What was switched last."""
    return SDPBackend.CUDNN_ATTENTION in _on


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """The older form of `sdpa_kernel`. RuntimeError where every way is switched off."""
    given = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient, "cudnn": enable_cudnn}
    chosen = [_SWITCHES[name] for name, enabled in given.items() if enabled]
    if not chosen:
        raise RuntimeError("sdp_kernel: every way to compute attention is switched off; leave one on")
    with sdpa_kernel(chosen):
        yield


__all__ = ["SDPBackend", "sdpa_kernel"]
