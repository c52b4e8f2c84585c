"""Statuses of CUDA's functions, the same for the driver and the runtime, and what errors of the emulator are among them."""

from __future__ import annotations

from gradlab.backends.cuda.driver import OutOfMemoryError
from gradlab.backends.cuda.emulator import KernelFault

INVALID_VALUE, OUT_OF_MEMORY, DEINITIALIZED, INVALID_DEVICE, INVALID_IMAGE, INVALID_CONTEXT = 1, 2, 4, 101, 200, 201
INVALID_HANDLE, NOT_FOUND, NOT_READY, LAUNCH_FAILED, NOT_SUPPORTED = 400, 500, 600, 719, 801
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNJOINED, CAPTURE_ISOLATION = 900, 901, 903, 904, 905
CAPTURE_IMPLICIT, CAPTURED_EVENT = 906, 907


class Refused(Exception):
    """A status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class AsItIs(RuntimeError):
    """What CuPy's module says in words of its own, as a RuntimeError without a status."""


def refusal(error: Exception) -> Refused:
    """What an error of the emulator is to a caller of CUDA."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, OutOfMemoryError):
        return Refused(OUT_OF_MEMORY, str(error))
    if isinstance(error, KernelFault):
        return Refused(LAUNCH_FAILED, str(error))
    if isinstance(error, NotImplementedError):
        return Refused(NOT_SUPPORTED, str(error))
    return Refused(INVALID_VALUE, f"{type(error).__name__}: {error}")
