"""Large products on the CPU: by a kernel of gradlab's own where there is a C++ compiler, by SciPy where that is in use, else by NumPy."""

from __future__ import annotations

import sys
from typing import Any

from gradlab import ops
from gradlab.backends.native import sparse as native
from gradlab.dtype import FLOAT32, FLOAT64


def product(name: str, arrays: list[Any], numbers: tuple[int, int], work: int) -> bool:
    """Compute a product into the first of the arrays; False where NumPy has to."""
    if native.product(name, arrays, numbers, work):
        return True
    scipy = sys.modules.get("scipy.sparse")
    if name != "spmm" or scipy is None or arrays[0].dtype not in (FLOAT32, FLOAT64):
        return False
    y, values, dense, col, starts, order = arrays
    if order is not None:
        values, col = values[order], col[order]
    y[...] = scipy.csr_matrix((values, col, starts), (y.shape[0], dense.shape[0])) @ dense
    return True


ops.sparse.compiled = product
