"""The random numbers of others: Python's `random` and NumPy's, which data sets and transforms of one's own often draw from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def random_of_others() -> dict[str, Any]:
    """The states of both, of plain values and arrays that a checkpoint holds."""
    version, words, gauss = random.getstate()
    found: dict[str, Any] = {"python": [version, np.array(words, np.int64), gauss]}
    kind, *state = np.random.get_state()  # noqa: NPY002
    if kind == "MT19937":  # NumPy's own, unless somebody has put another in its place
        keys, *rest = state
        found["numpy"] = [np.asarray(keys, np.int64), *rest]
    return found


def set_random_of_others(state: dict[str, Any]) -> None:
    """Put them where `random_of_others` found them."""
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
    if "numpy" in state:
        keys, *rest = state["numpy"]
        np.random.set_state(("MT19937", keys.astype(np.uint32), *rest))  # noqa: NPY002
