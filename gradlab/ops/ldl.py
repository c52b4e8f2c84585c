"""Rows of the factors L D Lᵀ of symmetric matrices that need not be definite, and of systems solved with them; D has blocks of one and two.

Source: J. R. Bunch and L. Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", Math. Comp. 31
(1977), diagonal pivoting on the lower half; pivots are written as LAPACK's sytrf writes them. NumPy on the host: sizes are small where it
is used. """

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.op import Op
from gradlab.ops.solve import matrices, square
from gradlab.spec import ShapeError, Spec, broadcast_shapes, count

ALPHA = (1 + math.sqrt(17)) / 8
INT32 = np.dtype(np.int32)


def ldl_rule(x: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: L and D in one matrix, pivots (n), and a number for each matrix."""
    square(x)
    return x, Spec(x.shape[:-1], INT32), Spec(x.shape[:-2], INT32)


def _exchange(a: Any, kk: int, kp: int, k: int) -> None:
    """Rows and columns kk and kp of the lower half from k on."""
    n = len(a)
    a[kp + 1 :, [kk, kp]] = a[kp + 1 :, [kp, kk]]
    column, row = a[kk + 1 : kp, kk].copy(), a[kp, kk + 1 : kp].copy()
    a[kk + 1 : kp, kk], a[kp, kk + 1 : kp] = row, column
    a[kk, kk], a[kp, kp] = a[kp, kp], a[kk, kk]
    if kk != k and n:
        a[kk, k], a[kp, k] = a[kp, k], a[kk, k]


def _size(x: Any) -> Any:
    """LAPACK's size of complex numbers for the choice of pivots."""
    return np.abs(x.real) + np.abs(x.imag)


def _pivot(a: Any, k: int) -> tuple[int, int]:
    """Which row comes to k (or to k + 1 in a block of two), and the block's size."""
    n, here = len(a), _size(a[k, k])
    if k == n - 1:
        return k, 1
    largest = k + 1 + int(np.argmax(_size(a[k + 1 :, k])))
    column = _size(a[largest, k])
    if max(here, column) == 0 or here >= ALPHA * column:
        return k, 1
    row = max(_size(a[largest, k:largest]).max(), _size(a[largest + 1 :, largest]).max(initial=0))
    if here >= ALPHA * column * (column / row):
        return k, 1
    return (largest, 1) if _size(a[largest, largest]) >= ALPHA * row else (largest, 2)


def factor(a: Any, pivots: Any) -> int:
    """The lower half of `a` becomes L and D. Returns where the first 0 stands in D, from 1, or 0."""
    n, k, info = len(a), 0, 0
    while k < n:
        kp, size = _pivot(a, k)
        if a[k:, k].any() or size == 2:
            kk = k + size - 1
            if kp != kk:
                _exchange(a, kk, kp, k)
            rest = slice(k + size, n)
            if size == 1 and a[k, k] != 0:
                column = a[rest, k].copy()
                a[rest, rest] -= np.tril(np.outer(column, column) / a[k, k])
                a[rest, k] /= a[k, k]
            elif size == 2 and k + 2 < n:
                block, columns = np.array([[a[k, k], a[k + 1, k]], [a[k + 1, k], a[k + 1, k + 1]]]), a[rest, k : k + 2].copy()
                off = block[1, 0]
                d11, d22 = block[1, 1] / off, block[0, 0] / off
                scale = 1 / (d11 * d22 - 1) / off
                first = scale * (d11 * columns[:, 0] - columns[:, 1])
                second = scale * (d22 * columns[:, 1] - columns[:, 0])
                a[rest, rest] -= np.tril(np.outer(columns[:, 0], first) + np.outer(columns[:, 1], second))
                a[rest, k], a[rest, k + 1] = first, second
        elif not info:
            info = k + 1
        pivots[k : k + size] = kp + 1 if size == 1 else -(kp + 1)
        k += size
    return info


def ldl_cpu(x: Any, LD: Any, pivots: Any, info: Any) -> None:
    LD[...] = np.tril(x)
    n = x.shape[-1]
    for i in np.ndindex(x.shape[:-2]):
        info[i] = factor(LD[i], pivots[i]) if n else 0


def ldl_solve_rule(LD: Spec, pivots: Spec, b: Spec) -> Spec:
    """Rule: right sides (…, n, k) of factors (…, n, n) and pivots (…, n)."""
    square(LD)
    matrices(b)
    if pivots.shape != LD.shape[:-1] or b.shape[-2] != LD.shape[-1]:
        raise ShapeError(f"factors of shape {LD.shape} take pivots of shape {LD.shape[:-1]} and right sides of {LD.shape[-1]} rows, "
                         f"got {pivots.shape} and {b.shape}")  # fmt: skip
    return Spec((*broadcast_shapes(LD.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)


def substitute(a: Any, pivots: Any, b: Any) -> None:
    """b becomes the solution."""
    n, k = len(a), 0
    while k < n:
        one = pivots[k] > 0
        at, other = (k, pivots[k] - 1) if one else (k + 1, -pivots[k] - 1)
        if at != other:
            b[[at, other]] = b[[other, at]]
        if one:
            b[k + 1 :] -= np.outer(a[k + 1 :, k], b[k])
            b[k] /= a[k, k]
            k += 1
            continue
        b[k + 2 :] -= a[k + 2 :, k : k + 2] @ b[k : k + 2]
        off = a[k + 1, k]
        upper, lower = a[k, k] / off, a[k + 1, k + 1] / off
        first, second = b[k] / off, b[k + 1] / off
        b[k], b[k + 1] = (lower * first - second) / (upper * lower - 1), (upper * second - first) / (upper * lower - 1)
        k += 2
    k = n - 1
    while k >= 0:
        size = 1 if pivots[k] > 0 else 2
        start = k - size + 1
        b[start : k + 1] -= a[k + 1 :, start : k + 1].T @ b[k + 1 :]
        other = abs(int(pivots[k])) - 1
        if k != other:
            b[[k, other]] = b[[other, k]]
        k -= size


def ldl_solve_cpu(LD: Any, pivots: Any, b: Any, y: Any) -> None:
    y[...] = b
    batch = y.shape[:-2]
    factors, exchanges = np.broadcast_to(LD, (*batch, *LD.shape[-2:])), np.broadcast_to(pivots, (*batch, pivots.shape[-1]))
    if count(y.shape):
        for i in np.ndindex(batch):
            substitute(factors[i], exchanges[i], y[i])


ldl = Op("ldl", ldl_rule, outputs=("LD", "pivots", "info"), cpu=ldl_cpu)
ldl_solve: Op = Op("ldl_solve", ldl_solve_rule, cpu=ldl_solve_cpu, grad={"b": lambda g, LD, pivots: ldl_solve(LD, pivots, g)})
