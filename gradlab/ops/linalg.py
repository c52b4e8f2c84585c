"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab.dtype import FLOATING, wide
from gradlab.kernel import Gemm, Kernel
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, order_of_ends, product


def wide_product(a: Spec, b: Spec) -> Spec:
    """Rule: as `product`; of half types in float32."""
    found = product(a, b)
    return Spec(found.shape, wide(found.dtype))


matmul = Op("matmul", product, cpu=np.matmul, cuda=Gemm(), promote="same", autocast="lower",
            grad={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g})  # fmt: skip
# Not rounded to a half type: a product that is only a part of the result.
wide_matmul = Op("wide_matmul", wide_product, cpu=np.matmul, cuda=Gemm(), promote="same", autocast="lower",
                 grad={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g})  # fmt: skip


def grouped_product(a: Spec, b: Spec, ends: Spec) -> Spec:
    """Rule: the groups divide the rows of a (b holds a matrix for each), the columns of b (a does), or the dimension between them."""
    if a.dtype not in FLOATING or a.dtype != b.dtype:
        raise TypeError(f"takes two matrices of one floating dtype, not {a.dtype} and {b.dtype}; convert one of them")
    if ends.dtype != np.int32 or len(ends.shape) != 1:
        raise TypeError(f"the ends of the groups (offs) are int32 in one dimension, not {ends.dtype} of shape {ends.shape}")
    if {len(a.shape), len(b.shape)} not in ({2}, {2, 3}) or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"shapes {a.shape} and {b.shape} do not fit: (m, k) and (k, n), or groups in front of one of them")
    for x in (a, b):
        if len(x.shape) == 3 and x.shape[0] != ends.shape[0]:
            raise ShapeError(f"{x.shape[0]} matrices (shape {x.shape}) for {ends.shape[0]} groups")
    rows, columns = a.shape[-2], b.shape[-1]
    return Spec((rows, columns) if len(a.shape) != len(b.shape) else (ends.shape[0], rows, columns), a.dtype)


def groups(ends: Any, size: int) -> Iterator[slice]:
    """Where each group lies in a dimension of that size."""
    start = 0
    for end in ends.tolist():
        if not start <= end <= size:
            raise RuntimeError(order_of_ends(size))
        yield slice(start, end)
        start = end


def grouped_mm_cpu(a: Any, b: Any, ends: Any, y: Any) -> None:
    if y.ndim == 3:
        for i, part in enumerate(groups(ends, a.shape[1])):
            np.matmul(a[:, part], b[part], out=y[i])
        return
    along_rows = a.ndim == 2
    size, part = y.shape[0 if along_rows else 1], slice(0, 0)
    for i, part in enumerate(groups(ends, size)):
        if along_rows:
            np.matmul(a[part], b[i], out=y[part])
        else:
            np.matmul(a[i], b[:, part], out=y[:, part])
    (y if along_rows else y.T)[part.stop :] = 0


# Products of parts of matrices. ends: where each group ends; it begins where the one before does. Zeros beyond the last.
grouped_mm: Op = Op("grouped_mm", grouped_product, cpu=grouped_mm_cpu, cuda=Kernel("gemm.cu", "grouped_gemm", "gemm"),
                    grad={"a": lambda g, b, ends: grouped_mm(g, b.mT, ends),
                          "b": lambda g, a, ends: grouped_mm(a.mT, g, ends)})  # fmt: skip
