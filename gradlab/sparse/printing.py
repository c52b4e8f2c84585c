"""Sparse tensors as text, laid out as PyTorch lays them out."""

from __future__ import annotations

from typing import Any

from gradlab.dtype import from_numpy, get_default_dtype
from gradlab.layout import sparse_coo, sparse_csr
from gradlab.tensor import printing


def describe(x: Any) -> str:
    """The indices, the values, and what else is to be said."""
    array = x._array
    indices = array.pattern.indices
    if array.layout is sparse_coo:
        parts = [("indices", indices)]
    elif array.layout is sparse_csr:
        parts = [("crow_indices", x.crow_indices()), ("col_indices", indices[1])]
    else:
        parts = [("ccol_indices", x.ccol_indices()), ("row_indices", indices[0])]
    lines = [_part(name, part) for name, part in (*parts, ("values", array.values))]
    suffixes = [f"size={tuple(array.shape)}", f"nnz={array.pattern.number}"]
    if x.device.type != "cpu":
        suffixes.insert(0, f"device='{x.device}'")
    if array.dtype != get_default_dtype().dtype:
        suffixes.append(f"dtype={from_numpy(array.dtype)!r}")
    suffixes.append(f"layout={array.layout!r}")
    if x.grad_fn is not None:
        suffixes.append(f"grad_fn=<{array.values.grad_fn.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    text = "tensor(" + ",\n       ".join(lines)
    width = printing.PROFILES["default"].linewidth
    used = width if array.layout is sparse_coo else len(text) - text.rfind("\n") - 1  # of indices and values the sizes begin a line
    for suffix in suffixes:
        if used + len(suffix) + 2 > width:
            text, used = f"{text},\n       {suffix}", 7 + len(suffix)
        else:
            text, used = f"{text}, {suffix}", used + len(suffix) + 2
    return text + ")"


def _part(name: str, part: Any) -> str:
    prefix = f"{name}=tensor("
    if not part.numel():
        return f"{prefix}[], size={tuple(part.shape)})"
    return prefix + printing.elements(part, 7 + len(prefix)) + ")"
