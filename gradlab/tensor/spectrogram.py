"""Short-time Fourier transforms: the spectra of overlapping pieces of a signal, and the signal that such spectra belong to.

Source: D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier transform", IEEE Trans. ASSP 32 (1984): what goes back is
the least-squares signal, a sum of windowed pieces over the sum of the windows' squares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOAT32, HALF, INEXACT, real_of
from gradlab.named_errors import explain, flag, named_functions
from gradlab.spec import ShapeError, whole
from gradlab.tensor.creation import arange

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_fft, _rfft, _irfft = map(bind, (ops.fourier.fft, ops.fourier.rfft, ops.fourier.irfft))
_pairs = bind(ops.complex.view_as_real)


def _window(name: str, window: Any, n_fft: int, win_length: int | None, like: Any) -> Any:
    """The window, filled up with zeros on both sides to n_fft."""
    length = n_fft if win_length is None else win_length
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, got win_length={length} and n_fft={n_fft}")
    if window is None:
        window = like.new_ones((length,), dtype=real_of(like._array.dtype) if like._array.dtype in COMPLEX else like._array.dtype)
    if not isinstance(window, Differentiable) or window._array.shape != (length,):
        raise ShapeError(f"{name}: a window of {length} numbers, not {getattr(window, 'shape', window)}")
    if window._array.dtype in HALF:
        window = window.to(FLOAT32)  # type: ignore[attr-defined]
    left = (n_fft - length) // 2
    return window if length == n_fft else window.new_zeros((n_fft,)).slice_scatter(window, 0, left, left + length)


def _integers(*numbers: int | None) -> list[Any]:
    """Integer arguments as ints: those of NumPy wrap around."""
    return [None if number is None else whole(number) for number in numbers]


def _hop(name: str, hop_length: int | None, n_fft: int) -> int:
    hop = n_fft // 4 if hop_length is None else hop_length
    if hop <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, got {hop}")
    return hop


def _reflected(x: Any, width: int, mode: str) -> Any:
    """The signal (batch, n) with `width` more numbers on both sides."""
    n = x._array.shape[-1]
    if mode == "constant":
        return x.new_zeros((x._array.shape[0], n + 2 * width)).slice_scatter(x, 1, width, width + n)
    places = arange(-width, n + width, device=x.device)
    if mode == "reflect":
        if width >= n:
            raise ShapeError(f"stft: a signal of {n} numbers cannot be reflected by {width}; use center=False or a shorter n_fft")
        places = (n - 1) - ((n - 1) - places.abs()).abs()
    elif mode == "replicate":
        places = places.clamp(0, n - 1)
    elif mode == "circular":
        places = places % n
    else:
        raise NotImplementedError(f"stft: pad_mode is reflect, constant, replicate or circular, not {mode!r}")
    return x.index_select(1, places)


def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None, center: bool = True,
    pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """The spectra of pieces of n_fft numbers, `hop_length` (default: n_fft // 4) apart, of signals (n) or (batch, n): (…, frequencies,
    pieces).

    window: what each piece is multiplied by, `win_length` numbers (default: n_fft ones), in the middle of the piece. center: pieces have
    their middles at 0, hop, 2 hop …; the signal is continued by `pad_mode` for that. normalized: divided by √n_fft. onesided: of real
    signals only the n_fft // 2 + 1 frequencies that do not mirror others (the default). return_complex: complex numbers, or pairs in one
    more dimension (False); it is required for real signals without a complex window, as in PyTorch. Signals and windows of half types are
    computed with in float32, as in `gradlab.fft`.

    >>> gl.stft(gl.ones(8), 4, return_complex=True).shape
    (3, 9)
    """
    try:
        normalized = flag("stft", "normalized", normalized)
        for what, value in (("onesided", onesided), ("return_complex", return_complex), ("align_to_window", align_to_window)):
            if value is not None:
                flag("stft", what, value)
        if not isinstance(input, Differentiable) or input._array.dtype not in INEXACT:
            kind = getattr(input, "dtype", type(input).__name__)
            raise RuntimeError(f"stft: a signal is a tensor of floating point or complex numbers, not {kind}")
        input = input.to(FLOAT32) if input._array.dtype in HALF else input
        shape = input._array.shape
        if len(shape) not in (1, 2):
            raise ShapeError(f"stft: a signal has one dimension, or a batch in front, not shape {shape}")
        two_sided = input._array.dtype in COMPLEX or (isinstance(window, Differentiable) and window._array.dtype in COMPLEX)
        if return_complex is None:
            if not two_sided:
                raise RuntimeError("stft requires the return_complex parameter be given for real inputs; True gives complex numbers")
            return_complex = True
        if two_sided and onesided:
            raise RuntimeError("stft: spectra of complex signals are not one-sided; leave onesided out")
        if align_to_window is not None and center:
            raise RuntimeError("stft: align_to_window only applies when center is False")
        n_fft, hop_length, win_length = _integers(n_fft, hop_length, win_length)
        hop = _hop("stft", hop_length, n_fft)
        x: Any = input.unsqueeze(0) if len(shape) == 1 else input
        given = _window("stft", window, n_fft, win_length, x)
        if center:
            x = _reflected(x, n_fft // 2, pad_mode)
        n = x._array.shape[-1]
        if not 0 < n_fft <= n:
            raise ShapeError(f"stft: expected 0 < n_fft <= {n}, the signal's length, got n_fft={n_fft}")
        length = n_fft if win_length is None else win_length
        if align_to_window and length < n_fft:  # the first piece begins where its window does
            x = x.new_zeros((x._array.shape[0], n + n_fft - length)).slice_scatter(x, 1, (n_fft - length) // 2, (n_fft - length) // 2 + n)
        pieces = x.unfold(1, n_fft, hop) * given
        scale = 1 / math.sqrt(n_fft) if normalized else 1.0
        if two_sided or onesided is False:
            found = _fft(pieces, dims=(2,), inverse=False, scale=scale)
        else:
            found = _rfft(pieces, dims=(2,), scale=scale)
        found = found.transpose(1, 2)
        found = found.squeeze(0) if len(shape) == 1 else found
        return found if return_complex else _pairs(found.contiguous())
    except Exception as error:
        explain(error, "stft", stft, (input, n_fft, hop_length, win_length, window, center, pad_mode))


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signals (…, n) that spectra (…, frequencies, pieces) of `stft` belong to, given the same arguments: the closest ones, where the
    spectra are nobody's. length: n, otherwise as far as the pieces reach. RuntimeError where the windows leave a number undetermined.

    >>> x = gl.arange(8.0)
    >>> gl.istft(gl.stft(x, 4, return_complex=True), 4)
    tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    if not isinstance(input, Differentiable) or input._array.dtype not in COMPLEX:
        raise RuntimeError("istft: requires a complex-valued input tensor, matching the output of stft with return_complex=True")
    shape = input._array.shape
    if len(shape) not in (2, 3) or not all(shape):
        raise ShapeError(f"istft: spectra (frequencies, pieces), or a batch of them, not shape {shape}")
    n_fft, hop_length, win_length, length = _integers(n_fft, hop_length, win_length, length)
    x: Any = input.unsqueeze(0) if len(shape) == 2 else input
    frequencies, pieces = x._array.shape[1:]
    half = n_fft // 2 + 1 == frequencies and frequencies != n_fft if onesided is None else onesided
    if frequencies != (n_fft // 2 + 1 if half else n_fft):
        raise ShapeError(f"istft: {n_fft // 2 + 1 if half else n_fft} frequencies belong to n_fft={n_fft}, not {frequencies}")
    if return_complex and half:
        raise RuntimeError("istft: complex signals have spectra of all n_fft frequencies; give onesided=False")
    hop = _hop("istft", hop_length, n_fft)
    if hop > (n_fft if win_length is None else win_length):
        raise RuntimeError(f"istft: expected hop_length <= win_length, got {hop}")
    like = x.real if not return_complex else x
    given = _window("istft", window, n_fft, win_length, like)
    scale = 1 / math.sqrt(n_fft) if normalized else 1 / n_fft
    spectra = x.transpose(1, 2)
    if half:
        parts = _irfft(spectra, dims=(2,), n=n_fft, scale=scale)
    else:
        parts = _fft(spectra, dims=(2,), inverse=True, scale=scale)
        parts = parts if return_complex else parts.real
    parts = parts * given
    reach = n_fft + hop * (pieces - 1)
    at = (arange(pieces, device=x.device).unsqueeze(1) * hop + arange(n_fft, device=x.device)).reshape((-1,))
    total = parts.new_zeros((parts._array.shape[0], reach)).index_add(1, at, parts.reshape((parts._array.shape[0], -1)))
    squares: Any = given * given
    weight = squares.new_zeros((reach,)).index_add(0, at, squares.expand((pieces, n_fft)).reshape((-1,)))
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else reach - (n_fft // 2 if center else 0)
    inner = min(stop, reach)
    total, weight = total[:, start:inner], weight[start:inner]
    known = current().tracer is None and current().vmap is None and not input.is_meta
    if known and not bool((weight.abs() > 1e-11).all()):
        raise RuntimeError("istft: window overlap add min: the windows leave numbers of the signal undetermined; use a smaller hop_length")
    found = total / weight
    if stop > reach:
        found = found.new_zeros((found._array.shape[0], stop - start)).slice_scatter(found, 1, 0, inner - start)
    return found.squeeze(0) if len(shape) == 2 else found


__all__ = ["istft", "stft"]


named_functions(__name__)
