"""Tensors as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import dispatch


def describe(tensor: Any) -> str:
    """A tensor's repr."""
    array = dispatch.backend_of(tensor._array).to_numpy(tensor._array)
    text = np.array2string(array, separator=", ", precision=4, prefix="tensor(")
    return f"tensor({text})"
