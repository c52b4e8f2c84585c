"""A driver's cuBLASLt: the real library, or the stand-in of the emulated GPU."""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

from gradlab.backends.cuda.gemm.binding import load
from gradlab.backends.cuda.gemm.plan import Blas
from gradlab.backends.cuda.nvidia_libraries import LibraryMissing

WORKSPACE = 32 << 20  # what NVIDIA recommends for Hopper
EMULATED_WORKSPACE = 64 << 10


def blas_of(driver: Any) -> Blas | None:
    """The driver's cuBLASLt; None, with one warning, where there is none."""
    return _made(driver)


@functools.cache
def _made(driver: Any) -> Blas | None:
    if driver.name == "emulated":
        standin = importlib.import_module("gradlab.backends.cuda.gemm.standin")  # a real GPU does not need it
        guarded = importlib.import_module("gradlab.backends.cuda.emulator.guarded_memory")
        library = standin.StandIn(guarded.allocation, driver.submit)
        return Blas(driver, library, EMULATED_WORKSPACE, lambda: driver.current_stream().ptr)
    try:
        library = load()
    except LibraryMissing as error:
        warnings.warn(f"matrix products on the GPU are slow: {error}", RuntimeWarning, stacklevel=2)
        return None
    return Blas(driver, library, WORKSPACE, lambda: driver.current_stream().ptr)


def warm(driver: Any) -> None:
    """Make what products on the current device need; before a capture."""
    blas = blas_of(driver)
    if blas is not None:
        blas.warm()
