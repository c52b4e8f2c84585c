"""The NumPy side of padding, resampling and im2col.

Resampling (interpolation, adaptive averages, reflecting and circular padding) works on one dimension at a time: every output is a
weighted sum of a few inputs, its taps (gradlab/taps.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradlab.dtype import by_float32
from gradlab.ops.conv_cpu import interior, strided_part, symmetric
from gradlab.taps import Table, Taps, adjoint_taps, taps

Sizes = tuple[int, ...]


def _gather(x: Any, y: Any, dim: int, found: Taps) -> None:
    if not y.size:
        return
    if found.weight is None:
        np.take(x, found.index[:, 0], axis=dim, out=y, mode="clip")
    else:
        shape = (-1, *(1,) * (x.ndim - 1 - dim))
        weight = found.weight.astype(x.dtype)
        np.take(x, found.index[:, 0], axis=dim, out=y, mode="clip")
        y *= weight[:, 0].reshape(shape)
        part = np.empty_like(y)
        for t in range(1, weight.shape[1]):
            np.take(x, found.index[:, t], axis=dim, out=part, mode="clip")
            part *= weight[:, t].reshape(shape)
            y += part
    if found.none is not None:
        y[(slice(None),) * dim + (found.none,)] = 0


def resample_cpu(x: Any, y: Any, *, dim: int, table: Table) -> None:
    _gather(x, y, dim, taps(table))


def resample_backward_cpu(dy: Any, y: Any, *, dim: int, table: Table) -> None:
    if not dy.size:
        y.fill(0)
    else:
        _gather(dy, y, dim, adjoint_taps(table))


def pad_cpu(x: Any, y: Any, *, pads: tuple[tuple[int, int], ...], value: float) -> None:
    inside, source = interior(pads, x.shape)
    y.fill(by_float32(value, y.dtype))
    y[(*inside, Ellipsis)] = x[(*source, Ellipsis)]


# ---------------------------------------------------------------- im2col


def im2col_cpu(x: Any, y: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes) -> None:
    """(N, C, *sizes) to (N, C · kernel, windows)."""
    if not y.size:
        return
    wide: Any = np.zeros((*x.shape[:2], *(s + 2 * p for s, p in zip(x.shape[2:], padding, strict=True))), x.dtype)
    inside, source = interior(symmetric(padding), x.shape[2:])
    wide[(..., *inside)] = x[(..., *source)]
    steps = wide.strides
    within = tuple(s * d for s, d in zip(steps[2:], dilation, strict=True))
    along = tuple(s * st for s, st in zip(steps[2:], stride, strict=True))
    view = as_strided(wide, (*x.shape[:2], *kernel, *outputs), (*steps[:2], *within, *along), writeable=False)
    np.copyto(y.reshape(view.shape), view)


def col2im_cpu(
    x: Any, y: Any, *, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes
) -> None:
    """(N, C · kernel, windows) added up to (N, C, *size)."""
    parts = x.reshape(len(x), y.shape[1], *kernel, *outputs)
    wide: Any = np.zeros((*y.shape[:2], *(s + 2 * p for s, p in zip(size, padding, strict=True))), y.dtype)
    for place in np.ndindex(*kernel):
        there = strided_part(wide, [i * d for i, d in zip(place, dilation, strict=True)], stride, outputs)
        there += parts[(slice(None), slice(None), *place)]
    np.copyto(y, wide[(..., *(slice(p, p + s) for p, s in zip(padding, size, strict=True)))])
