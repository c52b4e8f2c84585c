"""Fourier transforms as products with cosines and sines; complex numbers are pairs in the last dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.importing import Node, given, imports, number
from gradlab.onnx.operators.elementwise import dtype_of
from gradlab.spec import cached_sizes


@cached_sizes(32)
def _basis(n: int, length: int, inverse: bool, results: int, complex_: bool, dtype: str) -> Any:
    """What n numbers (or pairs) contribute to the first `results` of a transform of `length`: real and imaginary parts side by side."""
    angle = 2 * math.pi / length * ((np.arange(n)[:, None] * np.arange(results)) % length)
    cosine, sine = (f(angle) / (length if inverse else 1) for f in (np.cos, np.sin))
    sine = sine if inverse else -sine
    rows = [np.stack([cosine, sine], -1), *([np.stack([-sine, cosine], -1)] if complex_ else [])]
    return np.stack(rows, 1).reshape(n * len(rows), 2 * results).astype(dtype)


def _transform(x: Any, length: int, inverse: bool, results: int) -> Any:
    """Along dimension -2 of x [..., n, 1 or 2], the first `results` of `length`: one product of matrices."""
    n, parts = min(x.shape[-2], length), x.shape[-1]
    dtype = "float64" if x.dtype == gl.float64 else "float32"
    basis = gl.tensor(_basis(n, length, inverse, results, parts == 2, dtype)).to(x.dtype).to(x.device)
    flat = x[..., :n, :].reshape(*x.shape[:-2], n * parts)
    return (flat @ basis).reshape(*x.shape[:-2], results, 2)


@imports("DFT", host=(1, 2), first=17)
def dft(node: Node, x: Any, length: Any = None, axis: Any = None) -> Any:
    """`onesided`: the first half of the results, which has all of them for real input; backwards, a real result of such a half."""
    along = int(number(axis)) if given(axis) else node.get("axis", 1 if node.opset < 20 else -2)
    along %= x.dim()
    x = x.movedim(along, -2)
    n = int(number(length)) if given(length) else x.shape[-2]
    inverse, half = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    if inverse and half:
        n = int(number(length)) if given(length) else 2 * (x.shape[-2] - 1)
        kept = x[..., : n // 2 + 1, :]
        mirrored = kept[..., 1 : (n + 1) // 2, :].flip(-2) * gl.tensor([1.0, -1.0], dtype=x.dtype, device=x.device)
        return _transform(gl.cat([kept, mirrored], -2), n, True, n)[..., :1].movedim(-2, along)
    return _transform(x, n, inverse, n // 2 + 1 if half else n).movedim(-2, along)


@imports("MelWeightMatrix", host=(0, 1, 2, 3, 4), always_host=True)
def mel_weights(node: Node, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles between frequencies that are even steps on the mel scale, 2595 log10(1 + f / 700)."""
    count, size, sampled = int(number(bins)), int(number(length)), number(rate)
    first, last = (2595 * math.log10(1 + number(v) / 700) for v in (low, high))
    steps = first + np.arange(count + 2) * ((last - first) / (count + 2))
    edges = ((size + 1) * (700 * (10 ** (steps / 2595) - 1)) // sampled).astype(int)
    found = np.zeros((size // 2 + 1, count))
    for i, (a, b, c) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if a == b:
            found[b, i] = 1
        else:
            found[a : b + 1, i] = np.arange(b - a + 1) / (b - a)
        if c > b:
            found[b:c, i] = (c - np.arange(b, c)) / (c - b)
    return gl.tensor(found).to(dtype_of(node, "output_datatype", gl.float32))


@imports("STFT", host=(1, 3))
def stft(node: Node, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """Transforms of frames that begin every `step` samples."""
    n = int(number(length)) if given(length) else window.shape[0]
    hop = int(number(step))
    x = x if x.dim() == 3 else x.unsqueeze(-1)
    frames = x.unfold(1, n, hop).transpose(-1, -2)
    if given(window):
        frames = frames * window.reshape(-1, 1)
    return _transform(frames, n, False, n // 2 + 1 if node.get("onesided", 1) else n)
