"""Points of scalar functions with their exact values, kept in `points.npz`, so that tests need no mpmath: of float32 where errors were
largest in any form, and a dozen others; of float64 some of usual size, since a wrong coefficient of 1e-9 is nothing in float32."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gradlab as gl

from numerics.inputs import errors, points
from numerics.scalars import Scalar

FILE = Path(__file__).with_name("points.npz")
SOME, WIDE = 12, 28
CLOSE = 6.0  # units of the last place


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


def read_wide(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments and exact values in float64."""
    table = _all()[f"{name} float64"]
    return list(table[:-1]), table[-1]


def spread(count: int, columns: np.ndarray) -> np.ndarray:
    """At most so many of the columns, evenly."""
    return columns[:, np.linspace(0, columns.shape[1] - 1, min(count, columns.shape[1])).astype(int)]


def wide(entry: Scalar) -> np.ndarray:
    """Arguments of usual size, in order, and their exact values; not where the result is ill conditioned (the page has such points)."""
    from numerics.references import computed

    inputs = np.stack(points(entry, "float64"))
    inputs = inputs[:, np.all((np.abs(inputs) > 2.0**-7) & (np.abs(inputs) < 2.0**9), axis=0)]
    inputs = spread(4 * WIDE, inputs[:, np.argsort(inputs[0], kind="stable")])
    with np.errstate(all="ignore"):
        table = np.stack([*inputs, np.asarray(computed(replace(entry, slope=False), list(inputs))[0], np.float64)])
        table = table[:, np.isfinite(table[-1])]
        result = entry.call(gl, *map(gl.tensor, table[:-1])).numpy()
        return spread(WIDE, table[:, errors(result, table[-1]) <= CLOSE])


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
        found |= {name: np.stack([np.full(len(columns[0]), float(entry.count)), *columns]), f"{name} float64": wide(entry)}
    np.savez_compressed(FILE, **found)
