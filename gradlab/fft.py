"""Discrete Fourier transforms by PyTorch's names: `gradlab.fft.fft` and so on.

A transform takes real or complex numbers of any shape and gives complex ones (complex64 of float32, half types and integers, complex128 of
float64). n, s: the number of elements along each dimension, which are cut off or filled up with zeros at the end first. norm: "backward"
(the default) divides what goes back by that number, "forward" what goes there, "ortho" both by its root. `r` stands for real input, whose
spectrum's second half is the first one's mirror image and left out, `h` for a spectrum that is real because its input is so mirrored.

Gradients are of any order. ShapeError (a RuntimeError) for no elements, for a dimension named twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, HALF, as_numpy, complex_of, get_default_dtype
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, count, is_number as _is_number, normalize_dim, whole
from gradlab.tensor.common_arguments import functions_take_axis as _functions_take_axis, into as _into
from gradlab.tensor.creation import tensor
from gradlab.tensor.missing_names import absent as _absent

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2",
    "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_fft, _rfft, _irfft = map(bind, (ops.fourier.fft, ops.fourier.rfft, ops.fourier.irfft))


def _ready(name: str, input: Any) -> Any:
    """float32, float64 or complex numbers."""
    if not isinstance(input, Differentiable):
        raise TypeError(f"fft.{name}: takes a tensor, not {type(input).__name__}")
    dtype = input._array.dtype
    if dtype in COMPLEX or dtype in (FLOAT32, FLOAT64):
        return input
    return input.to(FLOAT32 if dtype in HALF else as_numpy(get_default_dtype()))  # type: ignore[attr-defined]


def _dims(name: str, input: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int | None]]:
    """The dimensions, and the size asked for along each (None: its own)."""
    rank = len(input._array.shape)
    sizes = None if s is None else [whole(n) for n in ((s,) if _is_number(s) else s)]
    if dim is None:
        dims = tuple(range(rank)) if sizes is None else tuple(range(rank - len(sizes), rank))
        if dims and dims[0] < 0:
            raise ShapeError(f"fft.{name}: {len(sizes or ())} sizes for a tensor of {rank} dimensions")
    else:
        given = (dim,) if _is_number(dim) else tuple(dim)
        dims = tuple([normalize_dim(whole(d), rank) for d in given])
    if len(set(dims)) != len(dims):
        raise ShapeError(f"fft.{name}: dims must be unique, got {dim}")
    if sizes is not None and len(sizes) != len(dims):
        raise ShapeError(f"fft.{name}: a size for each dimension, got s={s} and dim={dim}")
    if rank == 0 and dims:
        raise ShapeError(f"fft.{name}: a tensor without dimensions has none to transform")
    own = -1 if name[-1] in "2n" else None  # of several dimensions a size of -1 is the dimension's own
    wanted: list[int | None] = [None if n == own else n for n in sizes] if sizes is not None else [None] * len(dims)
    if any(n is not None and n < 1 for n in wanted):
        raise ShapeError(f"fft.{name}: Invalid number of data points ({s}) specified; at least one")
    return dims, wanted


def _resized(x: Any, dims: Sequence[int], wanted: Sequence[int | None]) -> Any:
    """Cut off, or filled up with zeros, at the end of each dimension."""
    for d, n in zip(dims, wanted, strict=True):
        size = x._array.shape[d]
        if n is None or n == size:
            continue
        if n < size:
            x = x.narrow(d, 0, n)
        else:
            shape = list(x._array.shape)
            shape[d] = n
            x = x.new_zeros(tuple(shape)).slice_scatter(x, d, 0, size)
    return x


def _scale(name: str, norm: str | None, elements: int, back: bool) -> float:
    """The factor of a transform that goes there, or back."""
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f"fft.{name}: norm is backward, forward or ortho, not {norm!r}")
    if norm == "ortho":
        return 1 / math.sqrt(elements)
    return 1 / elements if (norm == "forward") != back else 1.0


def _whole(name: str, input: Any, s: Any, dim: Any, norm: str | None, back: bool, out: Any) -> Any:
    x = _ready(name, input)
    dims, wanted = _dims(name, x, s, dim)
    x = _resized(x, dims, wanted)
    if not dims:
        found = x.clone() if x._array.dtype in COMPLEX else x.to(complex_of(x._array.dtype))
    else:
        scale = _scale(name, norm, count([x._array.shape[d] for d in dims]), back)
        found = _fft(x, dims=dims, inverse=back, scale=scale)
    return found if out is None else _into(name, out, found)


def _half(name: str, input: Any, s: Any, dim: Any, norm: str | None, back: bool, out: Any) -> Any:
    """Of real input the first half of the spectrum; `back` gives its conjugate, with the other direction's factor."""
    x = _ready(name, input)
    if x._array.dtype in COMPLEX:
        raise RuntimeError(f"fft.{name}: expects real numbers, not {x.dtype}; use fft")
    dims, wanted = _dims(name, x, s, dim)
    if not dims:
        raise ShapeError(f"fft.{name}: at least one dimension to transform")
    x = _resized(x, dims, wanted)
    found = _rfft(x, dims=dims, scale=_scale(name, norm, count([x._array.shape[d] for d in dims]), back))
    found = found.conj() if back else found
    return found if out is None else _into(name, out, found)


def _real(name: str, input: Any, s: Any, dim: Any, norm: str | None, back: bool, out: Any) -> Any:
    """Real numbers of the first half of their spectrum; without `back` of its conjugate, with the other direction's factor."""
    x = _ready(name, input)
    dims, wanted = _dims(name, x, s, dim)
    if not dims:
        raise ShapeError(f"fft.{name}: at least one dimension to transform")
    x = x if x._array.dtype in COMPLEX else x.to(complex_of(x._array.dtype))
    n = wanted[-1] if wanted[-1] is not None else 2 * (x._array.shape[dims[-1]] - 1)
    if n < 1:
        raise ShapeError(f"fft.{name}: Invalid number of data points ({n}) specified; give n")
    x = _resized(x, dims, [*wanted[:-1], n // 2 + 1])
    scale = _scale(name, norm, n * count([x._array.shape[d] for d in dims[:-1]]), back)
    found = _irfft(x if back else x.conj(), dims=dims, n=n, scale=scale)
    return found if out is None else _into(name, out, found)


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform of one dimension: y[k] = Σ x[j] e^(-2πi jk/n).

    >>> gl.fft.fft(gl.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([ 3.+0.j,  1.-2.j, -1.+0.j,  1.+2.j])
    """
    return _whole("fft", input, n, dim, norm, False, out)


def fft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `fftn`, of two dimensions.

    >>> gl.fft.fft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _whole("fft2", input, s, dim, norm, False, out)


def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `fft`, of several dimensions (default: all, or the last ones where `s` has sizes).

    >>> gl.fft.fftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _whole("fftn", input, s, dim, norm, False, out)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """What goes back: x[j] = Σ y[k] e^(2πi jk/n) / n.

    >>> gl.fft.ifft(gl.tensor([4.0, 0.0, 0.0, 0.0]))
    tensor([1.-0.j, 1.-0.j, 1.-0.j, 1.+0.j])
    """
    return _whole("ifft", input, n, dim, norm, True, out)


def ifft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `ifftn`, of two dimensions.

    >>> gl.fft.ifft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _whole("ifft2", input, s, dim, norm, True, out)


def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `ifft`, of several dimensions (default: all, or the last ones where `s` has sizes).

    >>> gl.fft.ifftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _whole("ifftn", input, s, dim, norm, True, out)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The first n // 2 + 1 coefficients of the transform of real numbers; the others mirror them.

    >>> gl.fft.rfft(gl.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([ 3.+0.j,  1.-2.j, -1.+0.j])
    """
    return _half("rfft", input, n, dim, norm, False, out)


def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `rfftn`, of two dimensions.

    >>> gl.fft.rfft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _half("rfft2", input, s, dim, norm, False, out)


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `rfft`, of several dimensions (default: all, or the last ones where `s` has sizes); the last of them is the one that is halved.

    >>> gl.fft.rfftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _half("rfftn", input, s, dim, norm, False, out)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The n real numbers (default: 2 (m - 1), an even number) of m = n // 2 + 1 coefficients of `rfft`.

    >>> gl.fft.irfft(gl.tensor([4.0, 0.0, 0.0]))
    tensor([1., 1., 1., 1.])
    """
    return _real("irfft", input, n, dim, norm, True, out)


def irfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `irfftn`, of two dimensions.

    >>> gl.fft.irfft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _real("irfft2", input, s, dim, norm, True, out)


def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `irfft`, of several dimensions (default: all, or the last ones where `s` has sizes); the last of them is the one that is halved.

    >>> gl.fft.irfftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _real("irfftn", input, s, dim, norm, True, out)


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The n real coefficients (default: 2 (m - 1)) of numbers that mirror each other, of which the first m = n // 2 + 1 are given.

    >>> gl.fft.hfft(gl.tensor([1.0, 2.0, 0.0]))
    tensor([ 5.,  1., -3.,  1.])
    """
    return _real("hfft", input, n, dim, norm, False, out)


def hfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `hfftn`, of two dimensions.

    >>> gl.fft.hfft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _real("hfft2", input, s, dim, norm, False, out)


def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `hfft`, of several dimensions (default: all, or the last ones where `s` has sizes); the last of them is the one that is halved.

    >>> gl.fft.hfftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _real("hfftn", input, s, dim, norm, False, out)


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """What goes back from real coefficients: the first n // 2 + 1 numbers, which the others mirror.

    >>> gl.fft.ihfft(gl.tensor([4.0, 0.0, 0.0, 0.0]))
    tensor([1.-0.j, 1.-0.j, 1.-0.j])
    """
    return _half("ihfft", input, n, dim, norm, True, out)


def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `ihfftn`, of two dimensions.

    >>> gl.fft.ihfft2(gl.ones(2, 2)).shape
    (2, 2)
    """
    return _half("ihfft2", input, s, dim, norm, True, out)


def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """As `ihfft`, of several dimensions (default: all, or the last ones where `s` has sizes); the last of them is the one that is halved.

    >>> gl.fft.ihfftn(gl.ones(2, 2, 2)).shape
    (2, 2, 2)
    """
    return _half("ihfftn", input, s, dim, norm, True, out)


def fftfreq(
    n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """The frequencies of the coefficients of `fft`, in cycles for each unit of which samples are `d` apart: 0, 1, … and then -…, -1, over
    n d.

    >>> gl.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    found = tensor(_frequencies("fftfreq", whole(n), d, False), dtype=_floating(dtype), device=device, requires_grad=requires_grad)
    return found if out is None else _into("fftfreq", out, found, warn=False)


def rfftfreq(
    n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """The frequencies of the coefficients of `rfft`, 0 to n // 2, over n d.

    >>> gl.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    found = tensor(_frequencies("rfftfreq", whole(n), d, True), dtype=_floating(dtype), device=device, requires_grad=requires_grad)
    return found if out is None else _into("rfftfreq", out, found, warn=False)


def _frequencies(name: str, n: int, d: float, half: bool) -> Any:
    if n < 0:
        raise ShapeError(f"fft.{name}: {n} frequencies; n is not negative")
    numbers = np.arange(n // 2 + 1 if half else n, dtype=np.float64)
    if not half:
        numbers[(n + 1) // 2 :] -= n
    with np.errstate(divide="ignore", invalid="ignore"):
        return numbers * (1 / np.float64(n * d))  # inf where that is 0: 0 gives NaN then, as in PyTorch


def _floating(dtype: Any) -> Any:
    return get_default_dtype() if dtype is None else dtype


def _shifted(name: str, input: Any, dim: Any, back: bool) -> Any:
    if not isinstance(input, Differentiable):
        raise TypeError(f"fft.{name}: takes a tensor, not {type(input).__name__}")
    shape = input._array.shape
    given = tuple(range(len(shape))) if dim is None else (dim,) if _is_number(dim) else tuple(dim)
    dims = [normalize_dim(whole(d), len(shape)) for d in given]
    return input.roll([(shape[d] + 1) // 2 if back else shape[d] // 2 for d in dims], dims) if dims else input.clone()  # type: ignore[attr-defined]


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """With the frequency 0 in the middle of each of `dim` (default: all).

    >>> gl.fft.fftshift(gl.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return _shifted("fftshift", input, dim, False)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """What `fftshift` moved, moved back.

    >>> gl.fft.ifftshift(gl.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    return _shifted("ifftshift", input, dim, True)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.fft", name)


_functions_take_axis(__name__)
named_functions(__name__)
