"""cuBLASLt by ctypes: the values of its enumerations, its structs, the functions that we call.

Values and signatures are those of NVIDIA's public headers `cublasLt.h`, `cublas_api.h` and `library_types.h` (package nvidia-cublas 13.0;
the same in CUDA 12), described at https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from enum import IntEnum
from typing import Any

from gradlab.backends.cuda import nvidia_libraries
from gradlab.dtype import FLOAT32, FLOAT64, bfloat16, float16


class Status(IntEnum):
    """cublasStatus_t."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    ALLOC_FAILED = 3
    INVALID_VALUE = 7
    ARCH_MISMATCH = 8
    MAPPING_ERROR = 11
    EXECUTION_FAILED = 13
    INTERNAL_ERROR = 14
    NOT_SUPPORTED = 15
    LICENSE_ERROR = 16


_MEANINGS: dict[int, tuple[str, str]] = {
    status.value: (status.name, meaning)
    for status, meaning in {
        Status.NOT_INITIALIZED: "the library could not start: the GPU has no memory left for it, or the driver does not answer",
        Status.ALLOC_FAILED: "out of memory",
        Status.INVALID_VALUE: "arguments in conflict",
        Status.ARCH_MISMATCH: "this GPU cannot run it",
        Status.MAPPING_ERROR: "device memory could not be reached",
        Status.EXECUTION_FAILED: "the GPU failed while computing, perhaps in an earlier kernel",
        Status.INTERNAL_ERROR: "an error inside the library",
        Status.NOT_SUPPORTED: "the library has no algorithm for it",
        Status.LICENSE_ERROR: "no licence",
    }.items()
}


class DataType(IntEnum):
    """cudaDataType_t, those that gradlab has."""

    R_32F = 0
    R_64F = 1
    R_16F = 2
    R_16BF = 14


DATA_TYPES = {FLOAT32: DataType.R_32F, FLOAT64: DataType.R_64F, float16.dtype: DataType.R_16F, bfloat16.dtype: DataType.R_16BF}


class ComputeType(IntEnum):
    """cublasComputeType_t."""

    F32 = 68
    F64 = 70
    F32_FAST_TF32 = 77


class Operation(IntEnum):
    """cublasOperation_t."""

    N = 0
    T = 1


class Order(IntEnum):
    """cublasLtOrder_t."""

    COL = 0
    ROW = 1


class Epilogue(IntEnum):
    """cublasLtEpilogue_t: what is done with the product before it is written. GELU is the one by tanh."""

    DEFAULT = 1
    RELU = 2
    BIAS = 4
    RELU_BIAS = 6
    GELU = 32
    GELU_BIAS = 36
    RELU_AUX = 130  # also writes the bits of x > 0
    RELU_AUX_BIAS = 134
    DRELU = 136
    DRELU_BGRAD = 152
    GELU_AUX = 160  # also writes what GELU was taken of
    GELU_AUX_BIAS = 164
    DGELU = 192
    DGELU_BGRAD = 208
    BGRADA = 256  # also sums A over k
    BGRADB = 512


class Matrix(IntEnum):
    """cublasLtMatrixLayoutAttribute_t."""

    TYPE = 0
    ORDER = 1
    ROWS = 2
    COLS = 3
    LD = 4
    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6


class Desc(IntEnum):
    """cublasLtMatmulDescAttributes_t."""

    COMPUTE_TYPE = 0
    SCALE_TYPE = 1
    POINTER_MODE = 2
    TRANSA = 3
    TRANSB = 4
    TRANSC = 5
    EPILOGUE = 7
    BIAS_POINTER = 8
    BIAS_BATCH_STRIDE = 10
    EPILOGUE_AUX_POINTER = 11
    EPILOGUE_AUX_LD = 12
    EPILOGUE_AUX_BATCH_STRIDE = 13


class Preference(IntEnum):
    """cublasLtMatmulPreferenceAttributes_t."""

    SEARCH_MODE = 0
    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3
    MIN_ALIGNMENT_A_BYTES = 5
    MIN_ALIGNMENT_B_BYTES = 6
    MIN_ALIGNMENT_C_BYTES = 7
    MIN_ALIGNMENT_D_BYTES = 8


REDUCE_ANY = 7  # cublasLtReductionScheme_t: how parts of a sum over k are put together
REDUCE_IN_COMPUTE_TYPE = 2

# The ctypes type of each attribute's value.
MATRIX_TYPES: dict[Matrix, Any] = {
    Matrix.TYPE: c_int, Matrix.ORDER: c_int, Matrix.ROWS: c_uint64, Matrix.COLS: c_uint64, Matrix.LD: c_int64,
    Matrix.BATCH_COUNT: c_int, Matrix.STRIDED_BATCH_OFFSET: c_int64,
}  # fmt: skip
DESC_TYPES: dict[Desc, Any] = {
    Desc.COMPUTE_TYPE: c_int, Desc.SCALE_TYPE: c_int, Desc.POINTER_MODE: c_int, Desc.TRANSA: c_int, Desc.TRANSB: c_int, Desc.TRANSC: c_int,
    Desc.EPILOGUE: c_int, Desc.BIAS_POINTER: c_void_p, Desc.BIAS_BATCH_STRIDE: c_int64, Desc.EPILOGUE_AUX_POINTER: c_void_p,
    Desc.EPILOGUE_AUX_LD: c_int64, Desc.EPILOGUE_AUX_BATCH_STRIDE: c_int64,
}  # fmt: skip
PREFERENCE_TYPES: dict[Preference, Any] = {
    Preference.SEARCH_MODE: c_int, Preference.MAX_WORKSPACE_BYTES: c_uint64, Preference.REDUCTION_SCHEME_MASK: c_int,
    Preference.MIN_ALIGNMENT_A_BYTES: c_int, Preference.MIN_ALIGNMENT_B_BYTES: c_int, Preference.MIN_ALIGNMENT_C_BYTES: c_int,
    Preference.MIN_ALIGNMENT_D_BYTES: c_int,
}  # fmt: skip


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: opaque."""

    _fields_ = (("data", c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (("algorithm", Algorithm), ("workspace", c_size_t), ("state", c_int), ("waves", c_float), ("reserved", c_int * 4))


# Pointers are c_void_p throughout: they take plain addresses, which are packed quickest.
_SET = (c_int, (c_void_p, c_int, c_void_p, c_size_t))
_GET = (c_int, (c_void_p, c_int, c_void_p, c_size_t, c_void_p))
_DROP = (c_int, (c_void_p,))
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cublasLtGetVersion": (c_size_t, ()),
    "cublasLtCreate": (c_int, (c_void_p,)),
    "cublasLtDestroy": _DROP,
    "cublasLtMatmulDescCreate": (c_int, (c_void_p, c_int, c_int)),
    "cublasLtMatmulDescDestroy": _DROP,
    "cublasLtMatmulDescSetAttribute": _SET,
    "cublasLtMatmulDescGetAttribute": _GET,
    "cublasLtMatrixLayoutCreate": (c_int, (c_void_p, c_int, c_uint64, c_uint64, c_int64)),
    "cublasLtMatrixLayoutDestroy": _DROP,
    "cublasLtMatrixLayoutSetAttribute": _SET,
    "cublasLtMatrixLayoutGetAttribute": _GET,
    "cublasLtMatmulPreferenceCreate": (c_int, (c_void_p,)),
    "cublasLtMatmulPreferenceDestroy": _DROP,
    "cublasLtMatmulPreferenceSetAttribute": _SET,
    "cublasLtMatmulPreferenceGetAttribute": _GET,
    # handle, desc, A, B, C, D, preference, number wanted, results, number found
    "cublasLtMatmulAlgoGetHeuristic": (c_int, (c_void_p, *(c_void_p,) * 6, c_int, c_void_p, c_void_p)),
    # handle, desc, alpha, A, its layout, B, its layout, beta, C, its layout, D, its layout, algorithm, workspace, its size, stream
    "cublasLtMatmul": (c_int, (*(c_void_p,) * 14, c_size_t, c_void_p)),
}


class BlasError(RuntimeError):
    """A call that the library refused."""

    def __init__(self, call: str, status: int, reason: str | None) -> None:
        known, meaning = _MEANINGS.get(status, (str(status), "a status that gradlab does not know"))
        super().__init__(f"{call}: CUBLAS_STATUS_{known} ({reason or meaning})")
        self.status, self.reason = status, reason


def check(library: Any, call: str, status: int) -> None:
    """Raise what a status means. The stand-in also says why, and keeps what the emulated GPU has raised."""
    if status:
        raised = getattr(library, "raised", None)
        if raised is not None:
            raise raised
        raise BlasError(call, status, getattr(library, "reason", None))


def load() -> Any:
    """The library with its prototypes declared. LibraryMissing says what to install."""
    return nvidia_libraries.load("cublasLt", "cuBLASLt", "nvidia-cublas", PROTOTYPES)


def version(library: Any) -> str:
    """As people write it: 13.0.2."""
    number = library.cublasLtGetVersion()
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"

