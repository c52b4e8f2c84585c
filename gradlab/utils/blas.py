"""The number of threads of NumPy's matrix products.

OpenBLAS's threads wait by spinning. For the small products of a small model a second thread gains nothing, and on a busy machine it costs a
multiple: the digits run took 143 s of wall time with two threads beside other work and 14 to 23 s with one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np


def set_blas_threads(count: int) -> bool:
    """Let the OpenBLAS of NumPy's wheels use `count` threads from now on. False, and nothing done, where NumPy has another library."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("*openblas*")):
        try:
            set_threads = ctypes.CDLL(str(path)).scipy_openblas_set_num_threads64_
        except (OSError, AttributeError):
            continue
        set_threads.argtypes, set_threads.restype = [ctypes.c_int], None
        set_threads(count)
        return True
    return False
