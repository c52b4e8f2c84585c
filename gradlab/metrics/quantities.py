"""Metrics of quantities: the errors of a regression, and how much of the variance it explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.metrics.metric import Metric, Totals, host


class _Errors(Totals):
    """Sums over the first dimension; further dimensions are outputs, whose values are averaged."""

    higher_is_better = False

    def pair(self, prediction: Any, target: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        name = type(self).__name__
        found, true = (host(v, f"{name}: {w}").astype(np.float64) for v, w in ((prediction, "prediction"), (target, "target")))
        if found.shape != true.shape:
            raise ValueError(f"{name}: predictions of shape {found.shape} do not fit targets of shape {true.shape}; reshape one of them")
        return (found, true) if found.ndim else (found[None], true[None])

    def mean(self, name: str) -> Any:
        if not self.totals.get("count"):
            raise self.nothing()
        return self.totals[name] / self.totals["count"]


class MeanAbsoluteError(_Errors):
    """The mean of |prediction - target|, in the target's unit.

    >>> from gradlab.metrics import MeanAbsoluteError
    >>> MeanAbsoluteError()(gl.tensor([1.0, 2.0]), gl.tensor([2.0, 4.0]))
    1.5
    """

    def update(self, prediction: Any, target: Any) -> Metric:
        found, true = self.pair(prediction, target)
        self.add(error=abs(found - true).sum(0), count=len(true))
        return self

    def compute(self) -> float:
        return float(np.mean(self.mean("error")))


class MeanAbsoluteScaledError(MeanAbsoluteError):
    """The mean of |prediction - target| in units of `scale`, the error of a naive forecast (Hyndman and Koehler, "Another look at measures
    of forecast accuracy", 2006): below 1 it is better than that. `of` finds the scale; of several outputs it has one for each.

    >>> from gradlab.metrics import MeanAbsoluteScaledError
    >>> MeanAbsoluteScaledError.of([1.0, 3.0, 5.0])(gl.tensor([6.0, 8.0]), gl.tensor([7.0, 9.0]))
    0.5
    """

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.scale = np.asarray(scale, np.float64)
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ValueError(f"MeanAbsoluteScaledError: a scale is a finite number above 0, not {scale}; a constant series has none")

    @classmethod
    def of(cls, training: Any, season: int = 1) -> MeanAbsoluteScaledError:
        """With the mean error over `training`, (steps,) or (steps, outputs), of what was there `season` steps before."""
        values = host(training, f"{cls.__name__}.of: training").astype(np.float64)
        if not 1 <= season < len(values):
            raise ValueError(f"{cls.__name__}.of: a season of {season} steps takes more than {len(values)} of training")
        return cls(abs(values[season:] - values[:-season]).mean(0))

    def compute(self) -> float:
        return float(np.mean(self.mean("error") / self.scale))


class MeanSquaredError(_Errors):
    """The mean of (prediction - target)².

    >>> from gradlab.metrics import MeanSquaredError
    >>> MeanSquaredError()(gl.tensor([1.0, 2.0]), gl.tensor([2.0, 4.0]))
    2.5
    """

    def update(self, prediction: Any, target: Any) -> Metric:
        found, true = self.pair(prediction, target)
        self.add(error=((found - true) ** 2).sum(0), count=len(true))
        return self

    def compute(self) -> float:
        return float(np.mean(self.mean("error")))


class RootMeanSquaredError(MeanSquaredError):
    """The root of the mean squared error, in the target's unit; of several outputs the mean of their roots.

    >>> from gradlab.metrics import RootMeanSquaredError
    >>> RootMeanSquaredError()(gl.tensor([1.0, 2.0]), gl.tensor([2.0, 4.0]))
    1.5811388300841898
    """

    def compute(self) -> float:
        return float(np.mean(np.sqrt(self.mean("error"))))


class R2Score(_Errors):
    """1 - Σ(target - prediction)² / Σ(target - mean)²: 1 is perfect, 0 as good as the mean. Of several outputs the mean.

    Where the targets are all alike it is 1 for perfect predictions and else 0. Sums of squares are taken about the first batch's mean.

    >>> from gradlab.metrics import R2Score
    >>> R2Score()(gl.tensor([1.0, 2.0, 3.0]), gl.tensor([1.0, 2.0, 4.0]))
    0.7857142857142857
    """

    higher_is_better = True

    def reset(self) -> None:
        super().reset()
        self.about: Any = None

    def update(self, prediction: Any, target: Any) -> Metric:
        found, true = self.pair(prediction, target)
        if self.about is None and len(true):
            self.about = true.mean(0)
        if len(true):
            away = true - self.about
            self.add(error=((found - true) ** 2).sum(0), rest=away.sum(0), squares=(away**2).sum(0), count=len(true))
        return self

    def merge(self, other: Metric) -> Metric:
        if isinstance(other, R2Score) and other.about is not None and self.about is not None:  # the other's sums, about this mean
            n, shift = other.totals["count"], other.about - self.about
            squares = other.totals["squares"] + 2 * shift * other.totals["rest"] + n * shift**2
            self.add(**{**other.totals, "rest": other.totals["rest"] + n * shift, "squares": squares})
            return self
        if isinstance(other, R2Score) and self.about is None:
            self.about = other.about
        return super().merge(other)

    def compute(self) -> float:
        if self.totals.get("count", 0) == 1:
            raise ValueError("R2Score.compute: one target has no variance; count at least two")
        error, spread = self.mean("error"), self.mean("squares") - self.mean("rest") ** 2
        value = np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1), np.where(error == 0, 1.0, 0.0))
        return float(np.mean(value))
