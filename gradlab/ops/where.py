"""Selection by a mask on the CPU, as bits.

NumPy's masked copies branch on every element: with a random mask 5 to 8 ns each, because nothing can predict the branch. An "and" with a
mask of all ones or no ones takes 1 ns and gives the same bits, also for inf and NaN. Small arrays are copied, which needs fewer calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL = 1024  # elements
_WHOLE = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_ONE = {size: np.array(1, whole) for size, whole in _WHOLE.items()}
_ALL = {size: np.array(-1, whole) for size, whole in _WHOLE.items()}


def choose(mask: Any, a: Any, b: Any, y: Any) -> None:
    """y = a where the mask is true, else b; everything broadcasts to y's shape."""
    size = y.itemsize
    if y.size < SMALL or size not in _WHOLE:
        y[...] = b
        np.copyto(y, a, where=mask)
        return
    whole = _WHOLE[size]
    other, bits = b.view(whole), y.view(whole)
    np.bitwise_xor(a.view(whole), other, bits)
    bits &= np.multiply(mask, _ALL[size])
    bits ^= other


def keep(mask: Any, x: Any, y: Any) -> None:
    """y = x where the mask is true, else 0."""
    size = y.itemsize
    if y.size < SMALL or size not in _WHOLE:
        y.fill(0)
        np.copyto(y, x, where=mask)
        return
    np.bitwise_and(x.view(_WHOLE[size]), np.multiply(mask, _ALL[size]), y.view(_WHOLE[size]))


def drop(mask: Any, x: Any, y: Any) -> None:
    """y = 0 where the mask is true, else x."""
    size = y.itemsize
    if y.size < SMALL or size not in _WHOLE:
        y[...] = x
        np.copyto(y, False, where=mask)
        return
    np.bitwise_and(x.view(_WHOLE[size]), np.subtract(mask, _ONE[size]), y.view(_WHOLE[size]))
