"""Rows of discrete Fourier transforms over some dimensions, without a norm but for a factor `scale`.

SciPy's pocketfft on the CPU where it is installed, else NumPy's, in the precision of the input. A transform's adjoint is the transform of
the other direction, so the gradients are of any order: of real input (`rfft`, the first half of the spectrum) the coefficients that stand
for two count half, of `irfft` twice.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import numpy as np

from gradlab.dtype import COMPLEX, complex_of, real_of
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, count


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
        return
    engine, norm, left = _chosen(x, inverse, scale, count([x.shape[d] for d in dims]))
    _several(engine, x, dims, inverse, norm, y)
    _scaled(y, left)


def _several(engine: Any, x: Any, dims: tuple[int, ...], inverse: bool, norm: str, y: Any) -> None:
    """The complex transform of all `dims`, into y."""
    if engine is np.fft and len(dims) == 1:
        (engine.ifft if inverse else engine.fft)(x, axis=dims[0], norm=norm, out=y)
    elif len(dims) == 1:
        y[...] = (engine.ifft if inverse else engine.fft)(x, axis=dims[0], norm=norm)
    else:
        y[...] = (engine.ifftn if inverse else engine.fftn)(x, axes=dims, norm=norm)


SCIPY_FROM = 1024  # elements; SciPy's transforms run several lines in one vector, NumPy's do not, but a call costs more


@functools.cache
def _scipy() -> Any:
    """scipy.fft where SciPy is installed."""
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None


def _chosen(x: Any, inverse: bool, scale: float, n: int) -> tuple[Any, str, float]:
    """The library, its name for a transform of n numbers with this factor, and what of the factor is left to do."""
    engine = (_scipy() if x.size >= SCIPY_FROM else None) or np.fft
    for norm, factor in (("ortho", 1 / math.sqrt(n)), ("backward" if inverse else "forward", 1 / n)):
        if n > 1 and abs(scale / factor - 1) < 1e-15:
            return engine, norm, 1.0
    return engine, "forward" if inverse else "backward", scale


def _scaled(y: Any, scale: float) -> None:
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
    engine, norm, left = _chosen(x, False, scale, count([x.shape[d] for d in dims]))
    if engine is not np.fft:
        y[...] = engine.rfftn(x, axes=dims, norm=norm)
    else:
        engine.rfft(x, axis=dims[-1], norm=norm if not dims[1:] else "backward", out=y)
        if dims[1:]:
            left = scale
            _several(engine, y, dims[:-1], False, "backward", y)
    _scaled(y, left)


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
    engine, norm, left = _chosen(x, True, scale, n * count([x.shape[d] for d in dims[:-1]]))
    if engine is not np.fft:
        y[...] = engine.irfftn(x, [*(x.shape[d] for d in dims[:-1]), n], axes=dims, norm=norm)
    else:
        if dims[1:]:
            x, norm, left = np.fft.ifftn(x, axes=dims[:-1], norm="forward"), "forward", scale
        engine.irfft(x, n, axis=dims[-1], norm=norm, out=y)
    _scaled(y, left)


def _weighted(x: Any, dim: int, n: int, middle: float) -> Any:
    """The coefficients that stand for two (all but the first and, of an even n, the last) times `middle`."""
    size = x.shape[dim]
    if type(size) is not int or type(n) is not int:
        raise NotImplementedError("rfft, irfft: their gradients need a length that is known when the graph is made; leave that size fixed")
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
