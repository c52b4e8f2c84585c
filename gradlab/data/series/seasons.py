"""The season of a series: after how many steps it repeats itself most alike."""

from __future__ import annotations

from typing import Any

import numpy as np

LEAST = 0.3  # correlation of a series with itself, a season before
ALIKE = 0.9  # share of the best, for which a shorter season is taken


def season_of(values: np.ndarray[Any, Any]) -> int | None:
    """The lag in steps, 2 or more, of the highest peak of the autocorrelation of (steps,) or (steps, columns) without their straight trend,
    or None where it does not stand out. NaN is left out; of several columns the mean.

    >>> import numpy as np
    >>> season_of(np.sin(np.arange(100) * 2 * np.pi / 12) + np.arange(100))
    12
    """
    found = [c for c in (_correlations(column) for column in np.atleast_2d(values.T)) if c is not None]
    if not found:
        return None
    mean = np.mean(found, 0)
    peaks = [i for i in range(2, len(mean) - 1) if mean[i - 1] < mean[i] >= mean[i + 1] and mean[2 : i + 1].min() < mean[i] - 0.1]
    good = [i for i in peaks if mean[i] >= LEAST]
    best = max((mean[i] for i in good), default=0.0)
    return next((i for i in good if mean[i] >= ALIKE * best), None)


def _correlations(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Of a column with itself, for lags from 0 to a third of its steps."""
    there = ~np.isnan(values)
    steps = np.arange(len(values))
    if there.sum() < 8:
        return None
    known = values[there] / (abs(values[there]).max() or 1.0)
    known = known - known.mean()
    known = known / (abs(known).max() or 1.0)
    slope, level = np.polyfit(steps[there] / len(values), known, 1)
    rest = np.zeros(len(values))
    rest[there] = known - slope * steps[there] / len(values) - level
    size = 2 ** int(np.ceil(np.log2(2 * len(values))))  # a transform that long does not meet its own end
    most = len(values) // 3 + 1
    sums = np.fft.irfft(abs(np.fft.rfft(rest, size)) ** 2, size)[:most]
    pairs = np.fft.irfft(abs(np.fft.rfft(there * 1.0, size)) ** 2, size)[:most]
    variance = sums[0] / pairs[0]
    return sums / np.maximum(pairs, 1.0) / variance if variance > 1e-12 else None
