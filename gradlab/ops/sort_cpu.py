"""The stable order of numbers, in NumPy: NaN counts as the largest value, and equal elements keep their places, also downwards.

A number of at most 32 bits and its place make one 64 bit number each: these are all different, so any sort of theirs is the stable one,
and NumPy sorts them with vectors, several times as fast as it finds a stable order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, HALF
from gradlab.spec import count

_PLACE = 32  # bits for the place
_MASK = (1 << _PLACE) - 1


def wide(x: Any) -> Any:
    """Half types as float32, which holds them exactly: NumPy sorts those faster."""
    return x.astype(FLOAT32) if x.dtype in HALF else x


def keys(x: Any, descending: bool) -> Any:
    """Along the last dimension: numbers and places as int64 numbers, in whose order they are to come; None where they do not fit."""
    size = x.shape[-1]
    if size > _MASK or x.dtype.kind not in "iufb":
        return None
    if x.dtype == FLOAT32:
        plain = x + FLOAT32.type(0)  # -0 equals 0
        nan = np.isnan(plain)
        if nan.any():
            plain[nan] = np.nan
        bits = plain.view(np.int32)
        number = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    elif x.dtype.kind == "f":
        return None
    else:
        number = x
    if number.dtype.itemsize == 8:
        low = int(number.min(initial=0))
        if int(number.max(initial=0)) - low >= 1 << (63 - _PLACE):
            return None
        number = number - low
    found = number.astype(np.int64, order="C")
    if descending:
        np.invert(found, found)
    found <<= _PLACE
    found |= np.arange(size)
    return found


def order_of(x: Any, dim: int, descending: bool) -> Any:
    """Where the elements come from in the stable order along `dim`."""
    x = np.moveaxis(wide(x), dim, -1)
    found = keys(x, descending)
    if found is None:
        found = _distinct_or_stable(x, descending)
    else:
        found.sort(-1)
        found &= _MASK
    return np.moveaxis(found, -1, dim)


def first_of(x: Any, dim: int, k: int, descending: bool) -> Any:
    """The first `k` of the order."""
    x = np.moveaxis(wide(x), dim, -1)
    found = keys(x, descending)
    if found is None:
        return np.moveaxis(_distinct_or_stable(x, descending)[..., :k], -1, dim)
    if 0 < k < x.shape[-1]:
        found.partition(k - 1, -1)
    found = found[..., :k]
    found.sort(-1)
    return np.moveaxis(found & _MASK, -1, dim)


def place_of(x: Any, place: int) -> Any:
    """Along the last dimension (kept with size 1): which element comes at a place of the ascending order."""
    x = wide(x)
    found = keys(x, False)
    if found is None:
        return _distinct_or_stable(x, False)[..., place, None]
    found.partition(place, -1)
    return found[..., place, None] & _MASK


def pick(x: Any, found: Any, dim: int, y: Any) -> None:
    """y is the elements of x at these places along `dim`."""
    if dim == x.ndim - 1 and x.flags.c_contiguous and y.flags.c_contiguous:
        rows = found + (np.arange(count(x.shape[:-1])) * x.shape[-1]).reshape((*x.shape[:-1], 1)) if x.ndim > 1 else found
        np.take(x.reshape(-1), rows, out=y, mode="clip")
    else:
        y[...] = np.take_along_axis(x, found, dim)


def _distinct_or_stable(x: Any, descending: bool) -> Any:
    """The order along the last dimension of numbers that are mostly all different: then every sort finds it."""
    found = np.argsort(x, axis=-1)
    ordered = np.take_along_axis(x, found, -1)
    if not (ordered[..., 1:] > ordered[..., :-1]).all():  # also where there is NaN
        if not descending:
            return np.argsort(x, axis=-1, kind="stable")
        return x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)
    return np.ascontiguousarray(np.flip(found, -1)) if descending else found
