"""Windows of signal processing, as in `torch.hann_window`: computed in float64, then rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.dtype import FLOATING, as_numpy, get_default_dtype
from gradlab.named_errors import named_functions
from gradlab.spec import whole
from gradlab.tensor.common_arguments import plain
from gradlab.tensor.creation import tensor

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    name: str, length: Any, periodic: bool, shape: Any, dtype: Any, device: Any, requires_grad: bool, options: dict[str, Any]
) -> Tensor:
    """`shape` of the places in the window, which go from 0 to 1. periodic: as of a window that is one longer, without its last."""
    plain(name, options)
    number = whole(length)
    if number < 0:
        raise RuntimeError(f"{name}: the length is not negative, got {number}")
    chosen = as_numpy(get_default_dtype() if dtype is None else dtype)
    if chosen not in FLOATING:
        raise RuntimeError(f"{name}: a window is of a floating point type, not {chosen}")
    places = np.arange(number) / max(number - (not periodic), 1)
    values = shape(places) if number > 1 else np.ones(number)
    return tensor(values, dtype=chosen, device=device, requires_grad=requires_grad)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """sin(π x)² for x from 0 to 1. periodic: for use with Fourier transforms; otherwise symmetric.

    >>> gl.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann_window", window_length, periodic, lambda x: np.sin(np.pi * x) ** 2, dtype, device, requires_grad, options)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    """alpha - beta cos(2π x) for x from 0 to 1.

    >>> gl.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """

    def shape(x: Any) -> Any:
        return alpha - beta * np.cos(2 * np.pi * x)

    return _window("hamming_window", window_length, periodic, shape, dtype, device, requires_grad, options)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """0.42 - 0.5 cos(2π x) + 0.08 cos(4π x) for x from 0 to 1.

    >>> gl.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """

    def shape(x: Any) -> Any:
        return 0.42 - 0.5 * np.cos(2 * np.pi * x) + 0.08 * np.cos(4 * np.pi * x)

    return _window("blackman_window", window_length, periodic, shape, dtype, device, requires_grad, options)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """1 - |2 x - 1| for x from 0 to 1: a triangle.

    >>> gl.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("bartlett_window", window_length, periodic, lambda x: 1 - np.abs(2 * x - 1), dtype, device, requires_grad, options)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    **options: Any,
) -> Tensor:  # fmt: skip
    """I0(beta √(1 - (2 x - 1)²)) / I0(beta) for x from 0 to 1, I0 being the Bessel function (Kaiser).

    >>> gl.kaiser_window(4)[1:]
    tensor([0.2157, 1.0000, 0.2157])
    """

    def shape(x: Any) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * x - 1) ** 2, 0))) / float(np.i0(beta))

    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad, options)


named_functions(__name__)
