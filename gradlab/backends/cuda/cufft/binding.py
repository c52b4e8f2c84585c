"""cuFFT by ctypes: the values of its enumerations, the functions that we call.

Values and signatures are those of NVIDIA's public header `cufft.h` (package nvidia-cufft 12.5, CUDA 13; the same in CUDA 12), described at
https://docs.nvidia.com/cuda/cufft/.
"""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from enum import IntEnum
from typing import Any

from gradlab.backends.cuda import nvidia_libraries


class Status(IntEnum):
    """cufftResult."""

    SUCCESS = 0
    INVALID_PLAN = 1
    ALLOC_FAILED = 2
    INVALID_TYPE = 3
    INVALID_VALUE = 4
    INTERNAL_ERROR = 5
    EXEC_FAILED = 6
    SETUP_FAILED = 7
    INVALID_SIZE = 8
    UNALIGNED_DATA = 9
    INVALID_DEVICE = 11
    NO_WORKSPACE = 13
    NOT_IMPLEMENTED = 14
    NOT_SUPPORTED = 16
    MISSING_DEPENDENCY = 17
    NVRTC_FAILURE = 18
    NVJITLINK_FAILURE = 19


class Type(IntEnum):
    """cufftType: from what to what, in single (R, C) or double (D, Z) precision."""

    C2C = 0x29
    R2C = 0x2A
    C2R = 0x2C
    Z2Z = 0x69
    D2Z = 0x6A
    Z2D = 0x6C


FORWARD, INVERSE = -1, 1
MOST_DIMENSIONS = 3  # of one plan

# Pointers are c_void_p throughout: they take plain addresses, which are packed quickest.
_COMPLEX, _HALF = (c_int, (c_int, c_void_p, c_void_p, c_int)), (c_int, (c_int, c_void_p, c_void_p))
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cufftGetVersion": (c_int, (c_void_p,)),
    "cufftCreate": (c_int, (c_void_p,)),
    "cufftDestroy": (c_int, (c_int,)),
    "cufftSetAutoAllocation": (c_int, (c_int, c_int)),
    # plan, rank, sizes, layout of the input (sizes with padding, stride, distance of batches), of the output, type, batch, bytes needed
    "cufftMakePlanMany64": (
        c_int, (c_int, c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_int, c_int64, c_void_p),
    ),
    "cufftSetStream": (c_int, (c_int, c_void_p)),
    "cufftSetWorkArea": (c_int, (c_int, c_void_p)),
    **{f"cufftExec{kind.name}": _COMPLEX if kind in (Type.C2C, Type.Z2Z) else _HALF for kind in Type},
}  # fmt: skip


class TransformError(RuntimeError):
    """A call that the library refused."""

    def __init__(self, call: str, status: int, reason: str | None) -> None:
        known = Status(status).name if status in set(Status) else f"{status}, which gradlab does not know"
        super().__init__(f"{call}: CUFFT_{known}" + (f" ({reason})" if reason else ""))
        self.status, self.reason = status, reason


def check(library: Any, call: str, *arguments: int) -> None:
    """Call a function; TransformError where it refuses. The stand-in also says why, and keeps what the emulated GPU has raised."""
    status = getattr(library, call)(*arguments)
    if status:
        raised = getattr(library, "raised", None)
        if raised is not None:
            raise raised
        raise TransformError(call, status, getattr(library, "reason", None))


def load() -> Any:
    """The library with its prototypes declared. LibraryMissing says what to install."""
    return nvidia_libraries.load("cufft", "cuFFT", "nvidia-cufft", PROTOTYPES)
