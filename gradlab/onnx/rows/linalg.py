"""Linear algebra: ONNX has the determinant alone, so elimination, Cholesky's and Householder's methods are Loops over the columns.

Matrices are put into one batch (B, m, n); their sizes are known, the number of them need not be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.movement import filled
from gradlab.ops.solve import PADE
from gradlab.spec import count

NORM = 2.0  # below this Padé's approximant of the exponential is accurate in float32 and float64


@exports("det")
def det(e: Emitter, x: Wire) -> Any:
    """Det."""
    return e("Det", x)


@exports("cofactor")
def cofactor(e: Emitter, x: Wire) -> Any:
    """The determinants of all minors, with alternating signs."""
    a, n, _ = batch(e, x)
    if n > 16:
        raise Unsupported("the cofactors of matrices above 16 rows: one determinant for each element")
    if n < 2:
        return e.expand(e.number(1.0, x.dtype), x.shape or ())
    kept = np.array([[j for j in range(n) if j != i] for i in range(n)])
    places = kept[:, None, :, None] * n + kept[None, :, None, :]  # (n, n, n - 1, n - 1)
    minors = e("Gather", e.reshape(a, (count((x.shape or ())[:-2]), n * n)), e.constant(places, INT64), axis=1)
    signs = 1.0 - 2.0 * (np.add.outer(np.arange(n), np.arange(n)) % 2)
    found = e("Det", minors) * e.constant(signs, x.dtype)
    return e.reshape(found, x.shape or ())


def batch(e: Emitter, x: Wire) -> tuple[Wire, int, int]:
    """Matrices as (B, m, n), and m and n."""
    assert x.shape is not None
    m, n = x.shape[-2:]
    if is_dynamic(m) or is_dynamic(n):
        raise Unsupported("linear algebra on matrices of dynamic size")
    return e.reshape(x, (count(x.shape[:-2]), m, n)), m, n


def loop(e: Emitter, times: int | Wire, state: Sequence[Any], step: Callable[..., Sequence[Any]]) -> list[Wire]:
    """`state = step(emitter, number, *state)`, so many times."""
    with e.inside() as inner:
        number, going = inner.entry(INT64, ()), inner.entry(np.dtype(bool), ())
        entries = [inner.entry(s.dtype) for s in state]
        body = inner.graph([number, going, *entries], [inner("Identity", going), *step(inner, number, *entries)])
    number = times if isinstance(times, Wire) else e.number(times, INT64)
    found = e("Loop", number, e.constant(True), *state, outputs=len(state), dtype=state[0].dtype, body=body)
    wires = list(found) if isinstance(found, tuple) else [found]
    for wire, start in zip(wires, state, strict=True):
        wire.dtype = start.dtype
    return wires


def column(e: Emitter, a: Any, k: Any) -> Any:
    """(B, m): column k."""
    return e("Gather", a, k, axis=2)


def pivoted(e: Emitter, k: Any, a: Any, m: int) -> tuple[Any, Any, Any]:
    """The matrices with the row that has the largest number in column k, from row k on, exchanged with row k; the order of rows, (B, m),
    and whether they were exchanged, (B, 1)."""
    numbers = e.constant(np.arange(m), INT64)
    size = e.where(e("GreaterOrEqual", numbers, k), e("Abs", column(e, a, k)), -1.0)
    best = e("ArgMax", size, axis=1, keepdims=1)
    order = e.where(e("Equal", numbers, k), best, e.where(e("Equal", numbers, best), k, numbers))
    return taken(e, a, order), order, e("Not", e("Equal", best, k))


def taken(e: Emitter, a: Any, order: Any) -> Any:
    """Rows in another order."""
    return e("GatherElements", a, e("Expand", e.unsqueeze(order, 2), e("Shape", a)), axis=1)


def eliminated(e: Emitter, a: Wire, n: int) -> Any:
    """Gauss and Jordan's elimination of the first n columns of (B, n, n + m): those become the unit matrix."""
    numbers = np.arange(n).reshape(1, n, 1)

    def step(at: Emitter, k: Any, table: Any) -> Sequence[Any]:
        table, _, _ = pivoted(at, k, table, n)
        top = at.unsqueeze(at("Gather", table, k, axis=1), 1)
        top = top / at.unsqueeze(at("Gather", top, k, axis=2), 2)
        rest = table - at.unsqueeze(column(at, table, k), 2) * top
        return [at.where(at("Equal", at.constant(numbers, INT64), k), top, rest)]

    return loop(e, n, [a], step)[0]


def solved(e: Emitter, a: Wire, b: Wire, n: int, m: int) -> Any:
    """x of a @ x = b for (B, n, n) and (B, n, m)."""
    return e.cut(eliminated(e, e("Concat", a, b, axis=2), n), n, n + m, 2)


@exports("inverse")
def inverse(e: Emitter, x: Wire) -> Any:
    """The solutions for the unit matrix."""
    a, n, _ = batch(e, x)
    one = e.expand(e.constant(np.eye(n)[None], x.dtype), (count((x.shape or ())[:-2]), n, n))
    return e.reshape(solved(e, a, one, n, n), x.shape or ())


@exports("solve")
def solve(e: Emitter, a: Wire, b: Wire) -> Any:
    """Elimination beside the right sides."""
    shape = e.outputs[0].shape
    n, m = shape[-2:]
    if is_dynamic(m):
        raise Unsupported("linear systems with a dynamic number of right sides")
    if n == 0:
        return filled(e, 0, shape, b.dtype)
    many = shape[:-2]
    left, right = batch(e, e.expand(a, (*many, n, n)))[0], batch(e, e.expand(b, shape))[0]
    return e.reshape(solved(e, left, right, n, m), shape)


@exports("solve_triangular")
def solve_triangular(e: Emitter, a: Wire, b: Wire, *, upper: bool, unitriangular: bool) -> Any:
    """As solve, of one triangle."""
    n = (a.shape or ())[-1]
    if is_dynamic(n):
        raise Unsupported("linear algebra on matrices of dynamic size")
    mask = np.triu(np.ones((n, n), bool), 1 if unitriangular else 0)
    part = e.where(e.constant(mask if upper else mask.T), a, 0.0)
    if unitriangular:
        part = part + e.constant(np.eye(n), a.dtype)
    part.shape = a.shape
    return solve(e, part, b)


@exports("slogdet")
def slogdet(e: Emitter, x: Wire) -> Any:
    """Elimination: the pivots' signs and logarithms, a change of sign for each exchange."""
    a, n, _ = batch(e, x)
    shape = (x.shape or ())[:-2]
    many = count(shape)
    below = np.arange(n).reshape(1, n, 1)

    def step(at: Emitter, k: Any, table: Any, sign: Any, total: Any) -> Sequence[Any]:
        table, _, moved = pivoted(at, k, table, n)
        top = at.unsqueeze(at("Gather", table, k, axis=1), 1)
        pivot = at("Gather", top, k, axis=2)  # (B, 1)
        safe = at.unsqueeze(at.where(at("Equal", pivot, 0.0), 1.0, pivot), 2)
        factor = at.unsqueeze(column(at, table, k), 2) / safe
        factor = at.where(at("Greater", at.constant(below, INT64), k), factor, 0.0)
        turned = at.where(moved, -sign, sign)
        return [table - factor * top, turned * at("Sign", pivot), total + at("Log", at("Abs", pivot))]

    start = [a, filled(e, 1.0, (many, 1), x.dtype), filled(e, 0.0, (many, 1), x.dtype)]
    found = loop(e, n, start, step)[1:] if n else start[1:]
    return tuple(e.reshape(v, shape) for v in found)


@exports("lu")
def lu(e: Emitter, x: Wire) -> Any:
    """Elimination with the factors kept below the diagonal, and the order of the rows."""
    a, m, n = batch(e, x)
    k = min(m, n)
    orders, lower, upper = e.outputs
    rows, columns = np.arange(m).reshape(1, m, 1), np.arange(n).reshape(1, 1, n)

    def step(at: Emitter, j: Any, table: Any, order: Any) -> Sequence[Any]:
        table, turn, _ = pivoted(at, j, table, m)
        order = at("GatherElements", order, turn, axis=1)
        top = at.unsqueeze(at("Gather", table, j, axis=1), 1)
        pivot = at.unsqueeze(at("Gather", top, j, axis=2), 2)
        factor = at.unsqueeze(column(at, table, j), 2) / at.where(at("Equal", pivot, 0.0), math.inf, pivot)
        below = at("Greater", at.constant(rows, INT64), j)
        right, here = at("Greater", at.constant(columns, INT64), j), at("Equal", at.constant(columns, INT64), j)
        rest = at.where(at("And", below, right), table - factor * top, table)
        return [at.where(at("And", below, here), factor, rest), order]

    order = e.expand(e.constant(np.arange(m)[None], INT64), (count((x.shape or ())[:-2]), m))
    table, order = loop(e, k, [a, order], step) if k else [a, order]
    left = e.where(e.constant(np.tri(m, k, -1, dtype=bool)), e.cut(table, 0, k, 2), 0.0) + e.constant(np.eye(m, k), x.dtype)
    right = e.where(e.constant(~np.tri(k, n, -1, dtype=bool)), e.cut(table, 0, k, 1), 0.0)
    return e.reshape(order, orders.shape), e.reshape(left, lower.shape), e.reshape(right, upper.shape)


@exports("cholesky")
def cholesky(e: Emitter, x: Wire) -> Any:
    """A column at a time: what the earlier ones leave of it, over the root of its diagonal element."""
    a, n, _ = batch(e, x)
    if n == 0:
        return x
    numbers = np.arange(n)

    def step(at: Emitter, k: Any, whole: Any, lower: Any) -> Sequence[Any]:
        known = at("MatMul", lower, at.unsqueeze(at("Gather", lower, k, axis=1), 2))
        left = column(at, whole, k) - at.squeeze(known, 2)
        root = at("Sqrt", at.unsqueeze(at("Gather", left, k, axis=1), 1))
        new = at.where(at("GreaterOrEqual", at.constant(numbers[None], INT64), k), left / root, 0.0)
        here = at("Equal", at.constant(numbers.reshape(1, 1, n), INT64), k)
        return [at("Identity", whole), at.where(here, at.unsqueeze(new, 2), lower)]

    return e.reshape(loop(e, n, [a, filled(e, 0.0, a.shape or (), x.dtype)], step)[1], x.shape or ())


@exports("qr")
def qr(e: Emitter, x: Wire, *, mode: str) -> Any:
    """Householder's reflections with LAPACK's choice of sign: none where a column is 0 below the diagonal already."""
    a, m, n = batch(e, x)
    q_spec, r_spec = e.outputs
    rows = np.arange(m).reshape(1, m, 1)
    many = count((x.shape or ())[:-2])
    if not m or not n:
        unit = e.expand(e.constant(np.eye(int(q_spec.shape[-2]), int(q_spec.shape[-1])), x.dtype), q_spec.shape)
        return unit, filled(e, 0.0, r_spec.shape, x.dtype)

    def step(at: Emitter, k: Any, table: Any, turned: Any) -> Sequence[Any]:
        line = at.unsqueeze(column(at, table, k), 2)
        numbers = at.constant(rows, INT64)
        below = at.where(at("Greater", numbers, k), line, 0.0)
        first = at.unsqueeze(at("Gather", line, k, axis=1), 1)  # (B, 1, 1)
        rest = at.reduce("ReduceSum", below * below, (1,), True)
        flat = at("Equal", rest, 0.0)
        length = at("Sqrt", rest + first * first)
        head = first + at.where(at("Less", first, 0.0), -length, length)
        v = at.where(at("Equal", numbers, k), head, below)
        share = at.where(flat, 0.0, 2.0 / at.where(flat, 1.0, at.reduce("ReduceSum", v * v, (1,), True)))
        across = at.transpose(v, (0, 2, 1))
        new = table - v * (at("MatMul", across, table) * share)
        here = at("Equal", at.constant(np.arange(n).reshape(1, 1, n), INT64), k)
        cleared = at.where(at("And", at("Greater", numbers, k), here), 0.0, new)
        return [cleared, turned - (at("MatMul", turned, v) * share) * across]

    unit = e.expand(e.constant(np.eye(m)[None], x.dtype), (many, m, m))
    r, q = loop(e, min(m, n), [a, unit], step)
    kept = q_spec.shape[-1]
    return e.reshape(e.cut(q, 0, kept, 2), q_spec.shape), e.reshape(e.cut(r, 0, kept, 1), r_spec.shape)


@exports("matrix_exp")
def matrix_exp(e: Emitter, x: Wire) -> Any:
    """Scaled by a power of 2 (the same for all matrices), Padé's approximant, squared as often."""
    a, n, _ = batch(e, x)
    if n == 0:
        return x
    norm = e.reduce("ReduceMax", e.reduce("ReduceSum", e("Abs", a), (1,), False), (0, 1), False)
    times = e("Max", e("Ceil", e("Log", e("Max", norm, 1e-30) * (1 / NORM)) * (1 / math.log(2))), 0.0)
    a = a / e("Pow", e.number(2.0, x.dtype), times)
    weights = [c / PADE[0] for c in PADE]
    one = e.constant(np.eye(n), x.dtype)
    square = e("MatMul", a, a)
    even, odd, power = one * weights[0], one * weights[1], one
    for k in range(2, len(weights), 2):
        power = e("MatMul", power, square) if k > 2 else square
        even = even + power * weights[k]
        odd = odd + power * weights[k + 1]
    odd = e("MatMul", a, odd)
    shape = (count((x.shape or ())[:-2]), n, n)
    start = solved(e, e.expand(even - odd, shape), e.expand(even + odd, shape), n, n)
    with e.inside() as inner:
        number, going, carried = inner.entry(INT64, ()), inner.entry(np.dtype(bool), ()), inner.entry(x.dtype)
        body = inner.graph([number, going, carried], [inner("Identity", going), inner("MatMul", carried, carried)])
    found = e("Loop", e.cast(times, INT64), e.constant(True), start, dtype=x.dtype, body=body)
    return e.reshape(found, x.shape or ())
