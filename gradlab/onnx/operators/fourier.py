"""Fourier transforms as products with cosines and sines; complex numbers are pairs in the last dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.importing import Node, given, imports, number


def _transform(x: Any, length: int, inverse: bool, results: int) -> Any:
    """Along dimension -2 of x [..., n, 1 or 2], the first `results` of `length`."""
    n = min(x.shape[-2], length)
    angle = 2 * math.pi / length * ((np.arange(n)[:, None] * np.arange(results)) % length)
    cosine, sine = (gl.tensor(f(angle) / (length if inverse else 1)).to(x.dtype).to(x.device) for f in (np.cos, np.sin))
    real = x[..., :n, 0]
    imaginary = x[..., :n, 1] if x.shape[-1] == 2 else gl.zeros_like(real)
    sign = -1 if inverse else 1
    return gl.stack([real @ cosine + imaginary @ sine * sign, imaginary @ cosine - real @ sine * sign], -1)


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
