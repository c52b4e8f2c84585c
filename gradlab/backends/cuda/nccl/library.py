"""A driver's NCCL: CuPy's module, or the stand-in of the emulated GPU; and which GPU a device is, whoever asks."""

from __future__ import annotations

import functools
import importlib
import os
import socket
from typing import Any

from gradlab.backends.cuda.cupy_module import installed
from gradlab.backends.cuda.nvidia_libraries import LibraryMissing


@functools.cache
def nccl_of(driver: Any) -> Any:
    """What has the names of `cupy.cuda.nccl`. LibraryMissing says what to install."""
    if driver.name == "emulated":
        standin = importlib.import_module("gradlab.backends.cuda.nccl.standin")  # a real GPU does not need it
        guarded = importlib.import_module("gradlab.backends.cuda.emulator.guarded_memory")
        return standin.StandIn(driver, guarded.allocation)
    installed()
    try:
        found = importlib.import_module("cupy.cuda.nccl")
    except ImportError as error:
        raise LibraryMissing(f"this CuPy was built without NCCL, or NCCL is not installed ({error}): {_INSTALL}") from None
    if not getattr(found, "available", False):
        raise LibraryMissing(f"NCCL is not installed: {_INSTALL}")
    return found


_INSTALL = "pip install nvidia-nccl-cu13 (CUDA 13) or nvidia-nccl-cu12; NCCL is there for Linux alone"


def place_of(driver: Any, index: int) -> str:
    """Which GPU that is, of all machines': no two processes may use the same."""
    if driver.name == "emulated":
        return f"{os.environ.get('GRADLAB_EMULATED_HOST', socket.gethostname())} cuda:{index}"
    runtime = installed().cuda.runtime
    return f"{socket.gethostname()} {runtime.deviceGetPCIBusId(index)}"
