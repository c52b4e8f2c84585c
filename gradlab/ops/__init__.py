"""The rows: one file per family. `ROWS` lists them by name."""

from __future__ import annotations

from types import ModuleType

from gradlab.op import Op
from gradlab.ops import (
    activation,
    attention,
    bessel,
    complex,
    conv,
    create,
    elementwise,
    factor,
    fused,
    gamma,
    incomplete,
    index,
    layout,
    linalg,
    linear,
    loss,
    lying,
    math,
    memory,
    movement,
    norm,
    optim,
    optim_variants,
    pool,
    random,
    recurrent,
    reduce,
    residual,
    scan,
    scatter,
    softmax,
    solve,
    sort,
    sparse,
    special,
    vision,
)

FAMILIES: tuple[ModuleType, ...] = (
    activation, attention, bessel, complex, conv, create, elementwise, factor, fused, gamma, incomplete, index, layout, linalg, linear,
    loss, math, memory, movement, norm, optim, optim_variants, pool, random, recurrent, reduce, residual, scan, scatter, softmax, solve,
    sort, sparse, special, vision,
)  # fmt: skip


def _collect() -> dict[str, Op]:
    rows: dict[str, Op] = {}
    for family in FAMILIES:
        for value in vars(family).values():
            if isinstance(value, Op) and rows.setdefault(value.name, value) is not value:
                raise ValueError(f"two rows are named {value.name}")
    return rows


ROWS: dict[str, Op] = _collect()
lying.attach(ROWS)
complex.attach(ROWS)
