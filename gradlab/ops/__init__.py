"""The rows: one file per family. `ROWS` lists them by name."""

from __future__ import annotations

from types import ModuleType

from gradlab.op import Op
from gradlab.ops import create, elementwise, linalg, movement, reduce

FAMILIES: tuple[ModuleType, ...] = (create, elementwise, linalg, movement, reduce)


def _collect() -> dict[str, Op]:
    rows: dict[str, Op] = {}
    for family in FAMILIES:
        for value in vars(family).values():
            if isinstance(value, Op):
                if rows.setdefault(value.name, value) is not value:
                    raise ValueError(f"two rows are named {value.name}")
    return rows


ROWS: dict[str, Op] = _collect()
