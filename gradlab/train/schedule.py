"""The learning rate over a run whose length is known."""

from __future__ import annotations

import math

WARM_UP = 0.1  # part of all steps


def warm_cosine(step: int, steps: int) -> float:
    """The part of the peak rate at a step: rising in a line over the first tenth of all `steps`, then falling along half a cosine.

    >>> [round(warm_cosine(step, 20), 2) for step in (0, 1, 2, 11, 19)]
    [0.5, 1.0, 1.0, 0.5, 0.01]
    """
    rise = max(1, round(WARM_UP * steps))
    return (step + 1) / rise if step < rise else 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise))))
