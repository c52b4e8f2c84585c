"""Points of float32 scalar functions with their exact values, kept in `points.npz`, so that tests need no mpmath: where errors were largest
in any form, and a dozen others."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("points.npz")
SOME = 12


@functools.cache
def _all() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


def read(name: str) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    """Arguments, exact values and slopes."""
    table = _all()[name]
    count = int(table[0, 0])
    slopes = len(table) - 2 - count
    return list(table[1 : 1 + count]), table[1 + count], list(table[2 + count : 2 + count + slopes])


def write(figures: dict[str, Any]) -> None:
    """Takes them from the references."""
    from numerics.references import references
    from numerics.scalars import SCALARS

    found = {}
    for name, entry in SCALARS.items():
        inputs, want, sides, _ = references(entry, "float32")
        worst = [part["at"] for form in figures[name]["float32"].values() for part in form.values()]
        keys = list(zip(*inputs, strict=True))
        chosen = [i for i, key in enumerate(keys) if list(map(float, key)) in worst]
        chosen += list(np.linspace(0, len(want) - 1, SOME).astype(int))
        with np.errstate(all="ignore"):
            columns = [np.asarray(v, np.float64)[sorted(set(chosen))] for v in (*inputs, want, *sides)]
        found[name] = np.stack([np.full(len(columns[0]), float(entry.count)), *columns])
    np.savez_compressed(FILE, **found)
