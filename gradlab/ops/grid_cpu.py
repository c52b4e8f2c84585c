"""The NumPy side of sampling at the points of a grid.

Along each dimension a point has taps, pixels with shares (one, two or four); the image there is the sum over the corners, one tap of each
dimension, of pixel times the shares' product. The steps, and so the roundings, are those of kernels/cpu/grid.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gradlab.dtype import INT64
from gradlab.spec import count


class Axis(NamedTuple):
    """Of the points (N, P) along one dimension: each tap's pixel, whether it lies outside (None: never), its share (None: 1) and the
    derivative of the share by the grid's coordinate (None: 0)."""

    pixels: list[Any]
    outside: list[Any]
    shares: list[Any]
    slopes: list[Any]


def axis(points: Any, n: int, mode: str, padding: str, aligned: bool) -> Axis:
    """The taps along a dimension of n pixels, of coordinates from -1 to 1."""
    own = points.dtype.type
    if aligned:
        place = (points + own(1)) * own((n - 1) / 2)
    else:
        place = ((points + own(1)).astype(np.float64) * (n / 2) - 0.5).astype(points.dtype)
    slope = own((n - 1) / 2 if aligned else n / 2)
    if mode != "bicubic":
        place, bent = inside(place, n, padding, aligned)
        slope = slope if bent is None else slope * bent
    if mode == "nearest":
        whole, shares, slopes = [np.rint(place)], [None], [None]
    else:
        floor = np.floor(place)
        t = place - floor
        if mode == "bilinear":
            whole, shares, slopes = [floor, floor + own(1)], [own(1) - t, t], [-slope, slope]
        else:
            whole = [inside(floor + own(k - 1), n, padding, aligned)[0] for k in range(4)]
            shares, slopes = [_cubic(t, k) for k in range(4)], [_cubic_slope(t, k) * slope for k in range(4)]
    outside = [(w < 0) | (w > n - 1) if padding == "zeros" else None for w in whole]
    pixels = [np.where(w > 0, np.minimum(w, own(n - 1)), own(0)).astype(INT64) for w in whole]  # 0 of NaN
    return Axis(pixels, outside, shares, slopes)


def inside(place: Any, n: int, padding: str, aligned: bool) -> tuple[Any, Any]:
    """Coordinates brought into the image, and the slope of that; None where it is 1 everywhere."""
    own = place.dtype.type
    if padding == "zeros":
        return place, None
    slope = own(1)
    if padding == "reflection":
        low, span = (own(0), own(n - 1)) if aligned else (own(-0.5), own(n))
        if span == 0:
            return place * own(0), own(0)
        shifted = place - low
        distance = np.abs(shifted)
        turns = np.floor(distance / span)
        rest = distance - turns * span
        odd = turns - np.floor(turns / own(2)) * own(2) == 1
        place = np.where(odd, span - rest, rest) + low
        slope = np.where(odd, -np.sign(shifted), np.sign(shifted))
    slope = np.where((place >= 0) & (place <= n - 1), slope, own(0))
    return np.clip(place, own(0), own(n - 1)), slope


def _cubic(t: Any, tap: int) -> Any:
    """Keys' cubic convolution kernel (R. Keys, 1981; a = -0.75) at the distance of tap 0 to 3 from t, which lies between taps 1 and 2."""
    own = t.dtype.type
    d = (t + own(1), t, own(1) - t, own(2) - t)[tap]
    if tap in (1, 2):
        return (own(1.25) * d - own(2.25)) * d * d + own(1)
    return ((own(-0.75) * d - own(-3.75)) * d + own(-6)) * d - own(-3)


def _cubic_slope(t: Any, tap: int) -> Any:
    own = t.dtype.type
    d = (t + own(1), t, own(1) - t, own(2) - t)[tap]
    found = (own(3.75) * d - own(4.5)) * d if tap in (1, 2) else (own(-2.25) * d + own(7.5)) * d - own(6)
    return found if tap < 2 else -found


def axes(x: Any, grid: Any, mode: str, padding: str, aligned: bool) -> list[Axis]:
    """Those of all dimensions, the first one's first: a grid's coordinates stand the other way round."""
    sizes = x.shape[2:]
    flat = grid.reshape(grid.shape[0], count(grid.shape[1:-1]), len(sizes))
    return [axis(np.ascontiguousarray(flat[..., -1 - d]), n, mode, padding, aligned) for d, n in enumerate(sizes)]


def corners(found: list[Axis], sizes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any, Any, Any]]:
    """Of each corner its taps, the pixels' places in the flat image, which of them are outside (or None), and the weights (or None)."""
    for taps in product(*(range(len(a.pixels)) for a in found)):
        at: Any = 0
        beyond: Any = None
        weight: Any = None
        for a, k, n in zip(found, taps, sizes, strict=True):
            at = at * n + a.pixels[k]
            if a.outside[k] is not None:
                beyond = a.outside[k] if beyond is None else beyond | a.outside[k]
            if a.shares[k] is not None:
                weight = a.shares[k] if weight is None else weight * a.shares[k]
        yield taps, at, beyond, weight


def _read(x: Any, at: Any, beyond: Any) -> Any:
    """The pixels (N, C, P) at those places; 0 outside."""
    found = np.stack([image.take(where, axis=1) for image, where in zip(x, at, strict=True)])
    if beyond is not None:
        np.copyto(found, 0, where=beyond[:, None])
    return found


def grid_sample_cpu(x: Any, grid: Any, y: Any, *, mode: str, padding: str, aligned: bool) -> None:
    if not y.size:
        return
    images = x.reshape(*x.shape[:2], count(x.shape[2:]))
    total: Any = None
    for _, at, beyond, weight in corners(axes(x, grid, mode, padding, aligned), x.shape[2:]):
        part = _read(images, at, beyond)
        if weight is not None:
            part *= weight[:, None]
        total = part if total is None else np.add(total, part, total)
    y[...] = total.reshape(y.shape)


def grid_sample_backward_cpu(g: Any, x: Any, grid: Any, dx: Any, dgrid: Any, *, mode: str, padding: str, aligned: bool) -> None:
    dx.fill(0)
    dgrid.fill(0)
    if not g.size:
        return
    found, sizes = axes(x, grid, mode, padding, aligned), x.shape[2:]
    pixels = count(sizes)
    images, above = x.reshape(*x.shape[:2], pixels), g.reshape(*g.shape[:2], count(g.shape[2:]))
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1) * pixels
    sums = np.zeros(dx.size, np.float64)
    slopes = [np.zeros(found[0].pixels[0].shape, x.dtype) for _ in sizes]
    for taps, at, beyond, weight in corners(found, sizes):
        share = above if weight is None else above * weight[:, None]
        if beyond is not None:
            share = np.where(beyond[:, None], x.dtype.type(0), share)
        sums += np.bincount((planes + at[:, None]).reshape(-1), share.reshape(-1).astype(np.float64), sums.size)
        if weight is None:
            continue
        dot = np.add.reduce(above * _read(images, at, beyond), axis=1)
        for d, slope in enumerate(slopes):
            part = dot * found[d].slopes[taps[d]]
            for other, k in enumerate(taps):
                if other != d:
                    part *= found[other].shares[k]
            slope += part
    dx[...] = sums.reshape(dx.shape)
    dgrid[...] = np.stack(slopes[::-1], -1).reshape(dgrid.shape)
