"""How operands lie in memory, in cuBLAS's terms.

cuBLAS thinks in columns: a matrix is stored with its columns behind one another, `ld` elements apart. Our row-major C = A B is, read that
way, the transposed product: Cᵀ = Bᵀ Aᵀ, where Bᵀ and Aᵀ are the very memory of B and A. So cuBLAS's first factor is our second one. A
transposed view needs no copy: cuBLAS reads it with operation T.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.gemm.binding import ComputeType, Epilogue
from gradlab.backends.cuda.layout import merged
from gradlab.spec import count

MOST = 2**31 - 1  # rows, columns and matrices of a batch
MOST_CALLS = 8  # products with batches that are not one walk through memory: up to so many calls, else copies


class Problem(NamedTuple):
    """One call of cuBLASLt: D = op(A) op(B) + beta C, in its own column-major terms, strides in elements. Equal problems share what is made
    for them."""

    rows: int
    columns: int
    depth: int
    dtype: np.dtype[Any]  # of A and B
    out: np.dtype[Any]  # of C and D
    compute: ComputeType
    transpose_a: bool
    transpose_b: bool
    ld_a: int
    ld_b: int
    ld_d: int
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_d: int = 0
    beta: int = 0
    epilogue: Epilogue = Epilogue.DEFAULT
    ld_aux: int = 0
    stride_aux: int = 0
    stride_bias: int = 0


class Side(NamedTuple):
    """How cuBLAS reads a matrix of ours: as it lies, or transposed; and how far its rows (columns) are apart."""

    transposed: bool
    ld: int


def side(rows: int, columns: int, row_stride: int, column_stride: int) -> Side | None:
    """A matrix by its sizes and strides in elements. None: neither its rows nor its columns lie in one piece."""
    if (column_stride == 1 or columns == 1) and (rows == 1 or row_stride >= max(columns, 1)):
        return Side(False, row_stride if rows > 1 else max(columns, 1))
    if (row_stride == 1 or rows == 1) and (columns == 1 or column_stride >= max(rows, 1)):
        return Side(True, column_stride if columns > 1 else max(rows, 1))
    return None


class Copy(IntEnum):
    """Whether an operand is copied first."""

    NONE = 0
    OWN = 1  # to row-major order
    WHOLE = 2  # to row-major order in the result's batch


class Arrangement(NamedTuple):
    """A product of ours as calls of cuBLASLt: which operands to copy first, the problem, and where each call's matrices begin (bytes from
    a, b and c)."""

    copy_a: Copy
    copy_b: Copy
    problem: Problem
    offsets: tuple[tuple[int, int, int], ...]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


class Operand:
    """One of our factors while it is decided how to read it."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], batch: tuple[int, ...]) -> None:
        self.shape, self.batch, self.copy = shape, batch, Copy.NONE
        self._lie(shape, strides)
        if self.side is None:
            self.copied(Copy.OWN)

    def _lie(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """Strides in elements; a batch dimension that is broadcast has stride 0."""
        own = tuple(0 if size == 1 else stride for size, stride in zip(shape[:-2], strides[:-2], strict=True))
        self.strides = (0,) * (len(self.batch) - len(own)) + own
        self.row = strides[-2]
        self.side = side(*shape[-2:], *strides[-2:])

    def copied(self, copy: Copy) -> None:
        """Read a copy instead."""
        self.copy = copy
        shape = self.shape if copy is Copy.OWN else (*self.batch, *self.shape[-2:])
        self._lie(shape, row_major(shape))

    def shared(self) -> bool:
        """Whether it is the same matrix for the whole batch."""
        return not any(stride for stride, size in zip(self.strides, self.batch, strict=True) if size > 1)


def arrange(
    a_shape: tuple[int, ...], a_strides: tuple[int, ...], b_shape: tuple[int, ...], b_strides: tuple[int, ...], batch: tuple[int, ...],
    dtype: np.dtype[Any], out: np.dtype[Any], compute: ComputeType,
) -> Arrangement | None:  # fmt: skip
    """The product of a (..., m, k) and b (..., k, n), strides in elements, into a contiguous c (*batch, m, n), to which the two broadcast.
    None where sizes are beyond cuBLAS's. No size may be 0."""
    m, k, n = *a_shape[-2:], b_shape[-1]
    a, b = Operand(a_shape, a_strides, batch), Operand(b_shape, b_strides, batch)
    c_batch = row_major((*batch, m, n))[:-2]
    while True:
        assert a.side is not None and b.side is not None
        if batch and b.shared() and not a.side.transposed:  # one b for all: the batch is more rows of a, if they lie evenly
            sizes, steps = merged((*batch, m), [(*a.strides, a.row), (*c_batch, n)])
            if not sizes or (len(sizes) == 1 and steps[0][0] >= k):
                rows, ld = (sizes[0], steps[0][0]) if sizes else (1, k)
                return _fitting(a, b, _problem((rows, n, k), Side(False, ld), b.side, dtype, out, compute))
        sizes, steps = merged(batch, [a.strides, b.strides, c_batch])
        problem = _problem((m, n, k), a.side, b.side, dtype, out, compute)
        if not sizes:
            return _fitting(a, b, problem)
        widest = max(range(len(sizes)), key=sizes.__getitem__)
        outer = [i for i in range(len(sizes)) if i != widest]
        if count([sizes[i] for i in outer]) <= MOST_CALLS:
            problem = problem._replace(batch=sizes[widest], stride_a=steps[1][widest], stride_b=steps[0][widest], stride_d=steps[2][widest])
            places = [(0, 0, 0)]
            for i in outer:
                far = (steps[0][i] * dtype.itemsize, steps[1][i] * dtype.itemsize, steps[2][i] * out.itemsize)
                places = [(x + j * far[0], y + j * far[1], z + j * far[2]) for j in range(sizes[i]) for x, y, z in places]
            return _fitting(a, b, problem, tuple(places))
        for operand in (a, b):
            if len(merged(batch, [operand.strides, c_batch])[0]) > 1:
                operand.copied(Copy.WHOLE)


def _problem(sizes: tuple[int, int, int], a: Side, b: Side, dtype: np.dtype[Any], out: np.dtype[Any], compute: ComputeType) -> Problem:
    """cuBLAS's first factor is our b."""
    m, n, k = sizes
    return Problem(n, m, k, dtype, out, compute, b.transposed, a.transposed, b.ld, a.ld, n)


def _fitting(a: Operand, b: Operand, problem: Problem, offsets: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)) -> Arrangement | None:
    if max(problem.rows, problem.columns, problem.depth, problem.batch) > MOST:
        return None
    return Arrangement(a.copy, b.copy, problem, offsets)
