"""The rows: one file per family. `ROWS` lists them by name."""

from __future__ import annotations

from types import ModuleType

from gradlab.op import Op
from gradlab.ops import (
    activation,
    airy,
    attention,
    bessel,
    collective,
    complex,
    conv,
    creation,
    ctc,
    cylinder,
    eigen,
    elementwise,
    factorization,
    fourier,
    fused,
    gamma,
    gather,
    grid,
    incomplete,
    indexing,
    layout,
    ldl,
    linalg,
    linear,
    loss,
    math,
    memory,
    movement,
    norm,
    optim,
    optim_variants,
    polynomial,
    pool,
    quantized,
    random,
    recurrent,
    reduction,
    residual,
    result_layout,
    scan,
    sequences,
    softmax,
    solve,
    sort,
    sparse,
    special,
    vision,
    zeta,
)

FAMILIES: tuple[ModuleType, ...] = (
    activation, airy, attention, bessel, collective, complex, conv, creation, ctc, cylinder, eigen, elementwise, factorization, fourier,
    fused, gamma, gather, grid, incomplete, indexing, layout, ldl, linalg, linear, loss, math, memory, movement, norm, optim,
    optim_variants, polynomial, pool, quantized, random, recurrent, reduction, residual, scan, sequences, softmax, solve, sort, sparse,
    special, vision, zeta,
)  # fmt: skip


def _collect() -> dict[str, Op]:
    rows: dict[str, Op] = {}
    for family in FAMILIES:
        for value in vars(family).values():
            if isinstance(value, Op) and rows.setdefault(value.name, value) is not value:
                raise ValueError(f"two rows are named {value.name}")
    return rows


ROWS: dict[str, Op] = _collect()
result_layout.attach(ROWS)
complex.attach(ROWS)
