"""Rows of discrete Fourier transforms over some dimensions, without a norm but for a factor `scale`.

NumPy's pocketfft on the CPU, in the precision of the input. A transform's adjoint is the transform of the other direction, so the gradients
are of any order: of real input (`rfft`, the first half of the spectrum) the coefficients that stand for two count half, of `irfft` twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import COMPLEX, complex_of, real_of
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec


def fft_rule(x: Spec, *, dims: tuple[int, ...], inverse: bool, scale: float) -> Spec:
    """Rule: a complex result of the input's shape."""
    _elements(x, dims)
    return Spec(x.shape, x.dtype if x.dtype in COMPLEX else complex_of(x.dtype))


def _elements(x: Spec, dims: tuple[int, ...]) -> None:
    if any(x.shape[d] < 1 for d in dims):
        raise ShapeError(f"a transform takes at least one number along each dimension, got shape {x.shape} and dim {dims}")


def fft_cpu(x: Any, y: Any, *, dims: tuple[int, ...], inverse: bool, scale: float) -> None:
    if not dims:
        np.copyto(y, x)
    elif len(dims) == 1:
        (np.fft.ifft if inverse else np.fft.fft)(x, axis=dims[0], norm="forward" if inverse else "backward", out=y)
    elif inverse:
        y[...] = np.fft.ifftn(x, axes=dims, norm="forward")
    else:
        y[...] = np.fft.fftn(x, axes=dims)
    if scale != 1:
        y *= y.dtype.type(scale)


def rfft_rule(x: Spec, *, dims: tuple[int, ...], scale: float) -> Spec:
    """Rule: the first half of the spectrum along the last of `dims`."""
    if x.dtype in COMPLEX:
        raise TypeError(f"expects real numbers, not {x.dtype}; use fft")
    _elements(x, dims)
    shape = list(x.shape)
    shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    return Spec(tuple(shape), complex_of(x.dtype))


def rfft_cpu(x: Any, y: Any, *, dims: tuple[int, ...], scale: float) -> None:
    np.fft.rfft(x, axis=dims[-1], out=y)
    if dims[1:]:
        y[...] = np.fft.fftn(y, axes=dims[:-1])
    if scale != 1:
        y *= y.dtype.type(scale)


def irfft_rule(x: Spec, *, dims: tuple[int, ...], n: int, scale: float) -> Spec:
    """Rule: n real numbers along the last of `dims`, of n // 2 + 1 coefficients."""
    if x.dtype not in COMPLEX:
        raise TypeError(f"expects complex numbers, not {x.dtype}")
    if n < 1 or x.shape[dims[-1]] != n // 2 + 1:
        raise ShapeError(f"{n} numbers have {n // 2 + 1} coefficients, not {x.shape[dims[-1]]} (shape {x.shape}, dim {dims[-1]})")
    _elements(x, dims)
    shape = list(x.shape)
    shape[dims[-1]] = n
    return Spec(tuple(shape), real_of(x.dtype))


def irfft_cpu(x: Any, y: Any, *, dims: tuple[int, ...], n: int, scale: float) -> None:
    if dims[1:]:
        x = np.fft.ifftn(x, axes=dims[:-1], norm="forward")
    np.fft.irfft(x, n, axis=dims[-1], norm="forward", out=y)
    if scale != 1:
        y *= y.dtype.type(scale)


def _weighted(x: Any, dim: int, n: int, middle: float) -> Any:
    """The coefficients that stand for two (all but the first and, of an even n, the last) times `middle`."""
    size = x.shape[dim]
    weights = [1.0] + [middle] * (size - 1)
    if n % 2 == 0:
        weights[-1] = 1.0
    shape = [1] * len(x.shape)
    shape[dim] = size
    return x * x.new_tensor(weights, dtype=x.real.dtype).reshape(tuple(shape))


def _rfft_gradient(g: Any, x_spec: Spec, dims: tuple[int, ...], scale: float) -> Any:
    n = x_spec.shape[dims[-1]]
    return irfft(_weighted(g, dims[-1], n, 0.5), dims=dims, n=n, scale=scale)


def _irfft_gradient(g: Any, dims: tuple[int, ...], n: int, scale: float) -> Any:
    return _weighted(rfft(g, dims=dims, scale=scale), dims[-1], n, 2.0)


fft: Op = Op("fft", fft_rule, params=("dims", "inverse", "scale"), cpu=fft_cpu, cuda=Kernel("fft.cu", "fft", "fourier"), roundings=1,
             grad={"x": lambda g, dims, inverse, scale: fft(g, dims=dims, inverse=not inverse, scale=scale)})  # fmt: skip
rfft: Op = Op("rfft", rfft_rule, params=("dims", "scale"), cpu=rfft_cpu, cuda=Kernel("fft.cu", "rfft", "fourier"), roundings=1,
              grad={"x": _rfft_gradient})  # fmt: skip
irfft: Op = Op("irfft", irfft_rule, params=("dims", "n", "scale"), cpu=irfft_cpu, cuda=Kernel("fft.cu", "irfft", "fourier"), roundings=1,
               grad={"x": _irfft_gradient})  # fmt: skip
