"""Windows of `torch.signal.windows`: vectors of M numbers, computed in float64, then rounded.

sym: symmetric windows, for the design of filters; with sym=False the window is one longer, without its last number, for Fourier transforms.
dtype: float32 or float64, the default dtype unless given. Sources: F. J. Harris, "On the use of windows for harmonic analysis with the
discrete Fourier transform", Proc. IEEE 66 (1978); Nuttall's coefficients are of A. H. Nuttall, IEEE Trans. ASSP 29 (1981).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64, as_numpy, get_default_dtype
from gradlab.layout import strided
from gradlab.named_errors import named_functions
from gradlab.spec import whole
from gradlab.tensor.creation import tensor

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


def _window(
    name: str, M: int, sym: bool, shape: Callable[[Any, int], Any], dtype: Any, layout: Any, device: Any, requires_grad: bool
) -> Tensor:  # fmt: skip
    """`shape` of the numbers 0 … M - 1 and of the window's length."""
    number = whole(M)
    if number < 0:
        raise ValueError(f"{name}: the window's length is not negative, got {number}")
    if layout not in (None, strided):
        raise ValueError(f"{name}: windows are strided tensors, not {layout}")
    chosen = as_numpy(get_default_dtype() if dtype is None else dtype)
    if chosen not in (FLOAT32, FLOAT64):
        raise ValueError(f"{name}: a window is float32 or float64, not {dtype}")
    length = number if sym or number < 2 else number + 1
    values = shape(np.arange(number, dtype=np.float64), length) if number > 1 else np.ones(number)
    return tensor(values, dtype=chosen, device=device, requires_grad=requires_grad)


def _cosines(a: Any) -> Callable[[Any, int], Any]:
    """a0 - a1 cos(2π k / (n - 1)) + a2 cos(4π k / (n - 1)) - …"""
    return lambda k, n: sum((-1) ** i * c * np.cos(2 * math.pi * i * k / (n - 1)) for i, c in enumerate(a))


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """A triangle: 1 - |2 k / (n - 1) - 1|.

    >>> gl.signal.windows.bartlett(4)
    tensor([0.0000, 0.6667, 0.6667, 0.0000])
    """
    return _window("bartlett", M, sym, lambda k, n: 1 - np.abs(2 * k / (n - 1) - 1), dtype, layout, device, requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos + 0.08 cos of the double angle.

    >>> gl.signal.windows.blackman(4)
    tensor([-1.4901e-08,  6.3000e-01,  6.3000e-01, -1.4901e-08])
    """
    return _window("blackman", M, sym, _cosines((0.42, 0.5, 0.08)), dtype, layout, device, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Half a wave: sin(π (k + 1/2) / n).

    >>> gl.signal.windows.cosine(4)
    tensor([0.3827, 0.9239, 0.9239, 0.3827])
    """
    return _window("cosine", M, sym, lambda k, n: np.sin(math.pi * (k + 0.5) / n), dtype, layout, device, requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """e^(-|k - center| / tau). center: the middle, unless sym is False and it is given.

    >>> gl.signal.windows.exponential(4)
    tensor([0.2231, 0.6065, 0.6065, 0.2231])
    """
    if tau <= 0:
        raise ValueError(f"exponential: tau is positive, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential: a symmetric window has its center in the middle; give sym=False with center=")

    def shape(k: Any, n: int) -> Any:
        return np.exp(-np.abs(k - ((n - 1) / 2 if center is None else center)) / tau)

    return _window("exponential", M, sym, shape, dtype, layout, device, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """e^(-((k - (n - 1) / 2) / std)² / 2).

    >>> gl.signal.windows.gaussian(4)
    tensor([0.3247, 0.8825, 0.8825, 0.3247])
    """
    if std <= 0:
        raise ValueError(f"gaussian: std is positive, got {std}")
    return _window("gaussian", M, sym, lambda k, n: np.exp(-0.5 * np.square((k - (n - 1) / 2) / std)), dtype, layout, device, requires_grad)


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """A sum of cosines of multiples of the angle 2π k / (n - 1), with the weights `a` and signs that alternate.

    >>> gl.signal.windows.general_cosine(4, a=[0.5, 0.5])
    tensor([0.0000, 0.7500, 0.7500, 0.0000])
    """
    if not isinstance(a, Iterable):
        raise TypeError(f"general_cosine: the weights are several numbers, not {a!r}")
    weights = tuple(a)
    if not weights:
        raise ValueError("general_cosine: at least one weight")
    return _window("general_cosine", M, sym, _cosines(weights), dtype, layout, device, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos.

    >>> gl.signal.windows.general_hamming(4)
    tensor([0.0800, 0.7700, 0.7700, 0.0800])
    """
    return _window("general_hamming", M, sym, _cosines((alpha, 1 - alpha)), dtype, layout, device, requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """0.54 - 0.46 cos.

    >>> gl.signal.windows.hamming(4)
    tensor([0.0800, 0.7700, 0.7700, 0.0800])
    """
    return _window("hamming", M, sym, _cosines((0.54, 0.46)), dtype, layout, device, requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """0.5 - 0.5 cos.

    >>> gl.signal.windows.hann(4)
    tensor([0.0000, 0.7500, 0.7500, 0.0000])
    """
    return _window("hann", M, sym, _cosines((0.5, 0.5)), dtype, layout, device, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """I0(beta √(1 - (2 k / (n - 1) - 1)²)) / I0(beta), I0 being the modified Bessel function.

    >>> gl.signal.windows.kaiser(4)
    tensor([5.2773e-05, 5.1884e-01, 5.1884e-01, 5.2773e-05])
    """
    if beta < 0:
        raise ValueError(f"kaiser: beta is not negative, got {beta}")

    def shape(k: Any, n: int) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - np.square(2 * k / (n - 1) - 1), 0))) / np.i0(beta)

    return _window("kaiser", M, sym, shape, dtype, layout, device, requires_grad)


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Four cosines with side lobes below 98 dB.

    >>> gl.signal.windows.nuttall(4)
    tensor([3.6280e-04, 5.2923e-01, 5.2923e-01, 3.6280e-04])
    """
    return _window("nuttall", M, sym, _cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411)), dtype, layout, device, requires_grad)


named_functions(__name__)
