"""Fourier transforms by the array API standard: `gradlab.fft` with its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab import fft as _own

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def _along(name: str) -> Callable[..., Any]:
    """A transform along one axis."""

    def function(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return getattr(_own, name)(x, n=n, dim=axis, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`gradlab.fft.{name}` along an axis, with n elements there."
    return function


def _over(name: str) -> Callable[..., Any]:
    """A transform over several axes."""

    def function(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return getattr(_own, name)(x, s=s, dim=axes, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`gradlab.fft.{name}` over axes (all, or the last ones where `s` has sizes)."
    return function


fft = _along("fft")
ifft = _along("ifft")
rfft = _along("rfft")
irfft = _along("irfft")
hfft = _along("hfft")
ihfft = _along("ihfft")
fftn = _over("fftn")
ifftn = _over("ifftn")
rfftn = _over("rfftn")
irfftn = _over("irfftn")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft`'s coefficients for samples at a distance of `d`.

    >>> gl.array_api.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _own.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`'s coefficients for samples at a distance of `d`.

    >>> gl.array_api.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return _own.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Coefficients in the order of their frequencies: zero in the middle.

    >>> gl.array_api.fft.fftshift(gl.tensor([0, 1, -2, -1]))
    tensor([-2, -1,  0,  1])
    """
    return _own.fftshift(x, axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """What `fftshift` does, undone.

    >>> gl.array_api.fft.ifftshift(gl.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    return _own.ifftshift(x, axes)
