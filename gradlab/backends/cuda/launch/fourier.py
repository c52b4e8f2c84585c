"""Fourier transforms: cuFFT's, else, and where they are small, a launch of fft.cu for each prime factor of each dimension.

Two arrays take turns.
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.cufft import rows as cufft
from gradlab.backends.cuda.launch.row_forms import split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import real_of
from gradlab.spec import count


def factors(n: int) -> list[int]:
    """The prime factors of n, fours in place of pairs of twos; [1] of 1."""
    found, d = [], 2
    while n % 4 == 0:
        found.append(4)
        n //= 4
    while d * d <= n:
        while n % d == 0:
            found.append(d)
            n //= d
        d += 1
    return [*found, n] if n > 1 or not found else found


def pairs(x: Any) -> Any:
    """Complex numbers in contiguous memory as the real ones that the kernels take."""
    return x.view(real_of(x.dtype)) if x.dtype.kind == "c" else x


def transform(work: Work, source: Any, dims: tuple[int, ...], inverse: bool, scale: float, target: Any) -> None:
    """All of `dims` of the complex `source`, into `target`."""
    real = real_of(target.dtype)
    steps = [(d, radix, k) for d in dims for k, radix in enumerate(factors(target.shape[d]))]
    spare = work.empty(target.shape, target.dtype) if len(steps) > 1 else None
    done = 1
    for number, (d, radix, k) in enumerate(steps):
        outer, n, inner = split(target.shape, d)
        done = 1 if k == 0 else done
        to = target if (len(steps) - number) % 2 else spare  # so that the last step writes to the target
        last = number == len(steps) - 1
        function = work.kernel("fft.cu", "fft_pass", real)
        numbers = n, inner, done, radix, 1.0 if inverse else -1.0, scale if last else 1.0
        work.each(function, outer * n * inner, pairs(source), pairs(to), *numbers)
        source, done = to, done * radix


def _complex(work: Work, x: Any, dtype: Any) -> Any:
    """Real numbers as complex ones."""
    made = work.empty(x.shape, dtype)
    work.each(work.kernel("fft.cu", "fft_complex", x.dtype), count(x.shape), work.contiguous(x), pairs(made))
    return made


def fft(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    if y.size:
        x = work.contiguous(x) if x.dtype == y.dtype else _complex(work, x, y.dtype)
        numbers = params["dims"], params["inverse"], params["scale"]
        if not (params["dims"] and cufft.fft(work, x, *numbers, y)):
            transform(work, x, *numbers, y)


def rfft(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    if y.size and not cufft.rfft(work, x, params["dims"], params["scale"], y):
        dims = params["dims"]
        whole = work.empty(x.shape, y.dtype)
        transform(work, _complex(work, x, y.dtype), dims[-1:], False, params["scale"], whole)
        _, n, inner = split(x.shape, dims[-1])
        half = y if not dims[1:] else work.empty(y.shape, y.dtype)
        work.each(work.kernel("fft.cu", "fft_half", x.dtype), count(y.shape), pairs(whole), pairs(half), n, inner)
        if dims[1:]:
            transform(work, half, dims[:-1], False, 1.0, y)


def irfft(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    if y.size and not cufft.irfft(work, x, params["dims"], params["scale"], y):
        dims, source = params["dims"], work.contiguous(x)
        if dims[1:]:
            made = work.empty(x.shape, x.dtype)
            transform(work, source, dims[:-1], True, 1.0, made)
            source = made
        _, n, inner = split(y.shape, dims[-1])
        whole, found = work.empty(y.shape, x.dtype), work.empty(y.shape, x.dtype)
        work.each(work.kernel("fft.cu", "fft_mirror", y.dtype), count(y.shape), pairs(source), pairs(whole), n, inner)
        transform(work, whole, dims[-1:], True, params["scale"], found)
        work.each(work.kernel("fft.cu", "fft_real", y.dtype), count(y.shape), pairs(found), y)


RULES = {("fft.cu", "fft"): Rule(fft), ("fft.cu", "rfft"): Rule(rfft), ("fft.cu", "irfft"): Rule(irfft)}
