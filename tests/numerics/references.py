"""The exact values and slopes of an entry at its points, by mpmath; kept in the system's temporary folder, since some take minutes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from numerics import exact
from numerics.inputs import points
from numerics.scalars import Scalar


def folder() -> Path:
    """Where they are kept."""
    found = Path(tempfile.gettempdir()) / f"gradlab-numerics-{os.getuid() if hasattr(os, 'getuid') else 0}"
    found.mkdir(mode=0o700, exist_ok=True)
    return found


def at_edges(entry: Scalar, inputs: list[np.ndarray]) -> np.ndarray:
    """What the table says of zeros, infinities and NaN."""
    if entry.edges is None:
        return np.full(len(inputs[0]), np.nan)
    if entry.count == 1:
        low, below, above, high = entry.edges
        x = inputs[0]
        return np.select([x == -np.inf, x == np.inf, (x == 0) & np.signbit(x), x == 0], [low, high, below, above], np.nan)
    edges: Any = entry.edges
    if isinstance(edges, str):
        import scipy.special

        edges = getattr(scipy.special, edges)
    with np.errstate(all="ignore"):
        found = edges(*inputs)
    return np.where(np.isnan(inputs[0]) | np.isnan(inputs[1]), np.nan, found) if isinstance(entry.edges, str) else found


def references(entry: Scalar, dtype: str) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    """Arguments, exact values, slopes (NaN where they are not measured), and which values stand on an edge."""
    inputs = points(entry, dtype)
    said = (entry.exact, entry.slope, entry.edges if entry.count == 1 or isinstance(entry.edges, str) else 0)
    key = hashlib.sha256(repr(said).encode() + b"".join(v.tobytes() for v in inputs))
    place = folder() / f"{key.hexdigest()[:24]}.npz"
    if not place.exists():
        want, sides = computed(entry, inputs)
        parts = {f"{name}{i}": part.astype(np.longdouble) for name, group in (("w", [want]), ("s", sides)) for i, part in enumerate(group)}
        np.savez(place, **parts)
    with np.load(place) as file:
        want, sides = file["w0"], [file[f"s{i}"] for i in range(entry.count if entry.slope else 0)]
    if entry.edges is None:  # where nobody says what the result is to be, some functions refuse
        kept = np.all([np.isfinite(v) for v in inputs], axis=0) & ~np.isnan(want)
        inputs, want, sides = [v[kept] for v in inputs], want[kept], [v[kept] for v in sides]
    edge = np.any([(v == 0) | ~np.isfinite(v) for v in inputs], axis=0)
    return inputs, want, sides, edge


def computed(entry: Scalar, inputs: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The exact values and slopes."""
    function = exact.function(entry.exact, entry.count)
    want = at_edges(entry, inputs).astype(np.longdouble)
    finite = np.all([np.isfinite(v) for v in inputs], axis=0)
    zero = np.any([v == 0 for v in inputs], axis=0)
    found = exact.values(function, [v[finite & ~zero] for v in inputs])
    want[finite & ~zero] = found
    if (entry.count == 2 or entry.edges is None) and (finite & zero).any():
        some = finite & zero
        found = exact.values(function, [v[some] for v in inputs])
        good = np.isfinite(found) & ((found != 0) | (entry.edges is None))
        want[some] = np.where(good, found, want[some])
    sides = []
    for which in range(entry.count if entry.slope else 0):
        slope = np.full(len(want), np.nan, np.longdouble)
        inner = finite & ~zero & np.isfinite(want)
        slope[inner] = exact.slopes(function, [v[inner] for v in inputs], which)
        sides.append(slope)
    return want, sides
