"""Adding into places named by an index by atomics: no sort, but sums in any order. Only where the user has allowed it."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.determinism import STATE
from gradlab.dtype import FLOAT32, FLOAT64


def allowed(y: Any, mode: int, keep: bool) -> bool:
    """Whether `segments.add` may be done by `add`: half types have no atomics that round once."""
    return not STATE.deterministic and mode == 0 and keep and y.dtype in (FLOAT32, FLOAT64)


def add(work: Work, y: Any, places: Any, source: Any, inner: int, size: int, skip: int) -> None:
    """y[outer, places[n], inner] += source[outer, n, inner], as `segments.add`."""
    number = places.size
    count = y.size // size * number
    index = "unsigned int" if max(count, y.size) < 2**31 else "long long"
    each = int(source.size != 1 or count == 1)
    function = work.kernel("scatter.cu", "atomic_add", y.dtype, index)
    work.each(function, count, places, source, y, number, size, inner, skip, each)
