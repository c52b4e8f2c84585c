"""Windows over up to three spatial dimensions, as kernels take them (`Windows` in `window.cuh`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gradlab.spec import count

MAX_RANK = 3
LARGEST = 2**31 - 1


def fits(*shapes: Sequence[int]) -> bool:
    """Whether kernels take arrays of these shapes (N, C, *sizes): at most three spatial dimensions, each plane counted in 32 bits."""
    return all(len(s) - 2 <= MAX_RANK and count(s[2:]) <= LARGEST for s in shapes)


def pack_windows(
    size: Sequence[int], outputs: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bytes:
    """The bytes of `Windows`."""
    lead = MAX_RANK - len(size)
    parts = ((size, 1), (outputs, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
    return struct.pack("18i", *(n for values, fill in parts for n in (*(fill,) * lead, *values)))


def index_type(*sizes: int) -> str:
    """The C++ type that counts so many elements."""
    return "unsigned int" if max(sizes) <= LARGEST else "long long"
