"""The C++ types of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import HALF

STORAGE = {
    "float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "bool": "bool", "uint64": "unsigned long long",
    "uint32": "unsigned int", "complex64": "gradlab::Complex<float>", "complex128": "gradlab::Complex<double>",
}  # fmt: skip


def compute_type(dtype: np.dtype[Any]) -> str:
    """The C++ type that values of a dtype are computed in."""
    return "float" if dtype in HALF else STORAGE[dtype.name]
