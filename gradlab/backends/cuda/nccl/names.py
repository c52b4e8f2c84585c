"""Numbers and names of NCCL's enumerations, as `cupy.cuda.nccl` and nccl.h have them (https://docs.nvidia.com/deeplearning/nccl/)."""

from __future__ import annotations

UNIQUE_ID_BYTES = 128
VERSION = 22800  # what the stand-in answers
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
REDUCTIONS = {"sum": 0, "product": 1, "max": 2, "min": 3, "mean": 4}
CONSTANTS = {
    **{f"NCCL_{name.upper()}": number for name, number in TYPES.items()}, "NCCL_CHAR": 0, "NCCL_INT": 2, "NCCL_HALF": 6, "NCCL_FLOAT": 7,
    "NCCL_DOUBLE": 8, "NCCL_SUM": 0, "NCCL_PROD": 1, "NCCL_MAX": 2, "NCCL_MIN": 3, "NCCL_AVG": 4,
}  # fmt: skip
STATUS = {
    1: "NCCL_ERROR_UNHANDLED_CUDA_ERROR", 2: "NCCL_ERROR_SYSTEM_ERROR", 3: "NCCL_ERROR_INTERNAL_ERROR", 4: "NCCL_ERROR_INVALID_ARGUMENT",
    5: "NCCL_ERROR_INVALID_USAGE", 6: "NCCL_ERROR_REMOTE_ERROR",
}  # fmt: skip
SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE = 2, 3, 4, 5, 6


class NcclError(RuntimeError):
    """A call that NCCL refused; the stand-in says why, and raises what goes wrong later where somebody waits for it."""

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(f"{STATUS.get(status, status)}: {reason}")
        self.status, self.reason = status, reason
