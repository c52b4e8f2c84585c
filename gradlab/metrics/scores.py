"""Metrics of scores: how well they order elements, how much they may be believed, and their logarithmic loss."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gradlab.metrics.metric import Kept, Metric, Totals, host


def probabilities(name: str, prediction: Any, target: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores (N,) or (N, classes) in float64, and true classes (N,)."""
    scores, true = host(prediction, f"{name}: prediction").astype(np.float64), host(target, f"{name}: target")
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    true = true.reshape(-1) if true.ndim == 2 and true.shape[1] == 1 else true
    if scores.ndim not in (1, 2) or true.ndim != 1 or len(scores) != len(true):
        raise ValueError(f"{name}: needs scores (N,) or (N, classes) and targets (N,), got {scores.shape} and {true.shape}")
    classes = 2 if scores.ndim == 1 else scores.shape[1]
    if true.size and (true.min() < 0 or true.max() >= classes or (true != np.trunc(true)).any()):
        wrong = true[(true < 0) | (true >= classes) | (true != np.trunc(true))][0]
        raise ValueError(f"{name}: a target is {wrong}, where there are classes 0 to {classes - 1}")
    return scores, true.astype(np.int64)


def checked(name: str, chances: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Probabilities, in [0, 1] and with a sum of 1."""
    if chances.size and (chances.min() < 0 or chances.max() > 1 or (chances.ndim == 2 and abs(chances.sum(1) - 1).max() > 1e-3)):
        raise ValueError(f"{name}: needs probabilities, in [0, 1] and with a sum of 1 in each row; apply softmax or sigmoid to scores")
    return chances


def ranks(scores: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The order of falling scores, and the last place of each group of equal ones in it."""
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    return order, np.append(np.flatnonzero(falling[1:] != falling[:-1]), len(scores) - 1)  # no differences: those of infinities are NaN


def roc_auc(scores: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> float:
    """The area under the curve of true over false positives: the probability that a positive scores higher than a negative."""
    order, last = ranks(scores)
    hits = np.cumsum(true[order])[last].astype(np.float64)
    misses = last + 1 - hits
    if hits[-1] == 0 or misses[-1] == 0:
        raise ValueError("ROCAUC.compute: all targets are of one class, so there is nothing to tell apart")
    hits, misses = np.append(0.0, hits), np.append(0.0, misses)
    return float((np.diff(misses) * (hits[1:] + hits[:-1])).sum() / (2 * hits[-1] * misses[-1]))


def average_precision(scores: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> float:
    """Σ (recall - recall before)·precision over falling thresholds; 0 where no element is positive."""
    order, last = ranks(scores)
    hits = np.cumsum(true[order])[last].astype(np.float64)
    return float((np.diff(hits, prepend=0.0) * hits / (last + 1)).sum() / hits[-1]) if hits[-1] else 0.0


class _Ranking(Kept):
    """Of one score for each element, or of each class's scores against those of all others."""

    higher_is_better = True

    def __init__(self, average: Literal["macro", "weighted"] | None = "macro") -> None:
        if average not in ("macro", "weighted", None):
            raise ValueError(f'{type(self).__name__}: average is "macro", "weighted" or None, not {average!r}')
        self.average = average
        super().__init__()

    def update(self, prediction: Any, target: Any) -> Metric:
        scores, true = probabilities(type(self).__name__, prediction, target)
        if self.batches and self.batches[0][0].shape[1:] != scores.shape[1:]:
            raise ValueError(f"{type(self).__name__}: scores of shape {scores.shape} after {self.batches[0][0].shape}")
        self.batches.append((scores.copy(), true.copy()))
        return self

    def of(self, scores: Any, true: Any) -> float:
        raise NotImplementedError

    def compute(self) -> Any:
        scores, true = self.joined()
        if scores.ndim == 1 or scores.shape[1] == 2:
            return self.of(scores if scores.ndim == 1 else scores[:, 1], true)
        values = [self.of(scores[:, i], (true == i).astype(np.int64)) for i in range(scores.shape[1])]
        if self.average is None:
            return np.array(values)
        return float(np.average(values, weights=np.bincount(true, minlength=len(values)) if self.average == "weighted" else None))


class ROCAUC(_Ranking):
    """The area under the receiver operating characteristic.

    Of scores (N,) or (N, 2) that of class 1, of (N, classes) that of each class against the rest, averaged. It keeps all scores.
    ValueError where a class is never or always true.

    >>> from gradlab.metrics import ROCAUC
    >>> ROCAUC()(gl.tensor([0.1, 0.4, 0.35, 0.8]), gl.tensor([0, 0, 1, 1]))
    0.75
    """

    def of(self, scores: Any, true: Any) -> float:
        return roc_auc(scores, true)


class AveragePrecision(_Ranking):
    """The area under the curve of precision over recall, as a sum over thresholds; classes as in `ROCAUC`.

    >>> from gradlab.metrics import AveragePrecision
    >>> AveragePrecision()(gl.tensor([0.1, 0.4, 0.35, 0.8]), gl.tensor([0, 0, 1, 1]))
    0.8333333333333333
    """

    def of(self, scores: Any, true: Any) -> float:
        return average_precision(scores, true)


class CalibrationError(Totals):
    """How far confidence is from accuracy (Guo and others, "On calibration of modern neural networks", 2017).

    Over `bins` equal ranges of the probability of the predicted class: the mean (norm="l1"), the root mean square ("l2") or the largest
    ("max") distance, weighted with how many elements fall in each.

    >>> from gradlab.metrics import CalibrationError
    >>> round(CalibrationError(bins=2)(gl.tensor([[0.8, 0.2], [0.4, 0.6]]), gl.tensor([0, 0])), 6)
    0.2
    """

    higher_is_better = False

    def __init__(self, *, bins: int = 15, norm: Literal["l1", "l2", "max"] = "l1") -> None:
        if norm not in ("l1", "l2", "max"):
            raise ValueError(f'CalibrationError: norm is "l1", "l2" or "max", not {norm!r}')
        if bins < 1:
            raise ValueError(f"CalibrationError: needs at least one bin, not {bins}")
        self.bins, self.norm = bins, norm
        super().__init__()

    def update(self, prediction: Any, target: Any) -> Metric:
        chances, true = probabilities("CalibrationError", prediction, target)
        checked("CalibrationError", chances)
        if chances.ndim == 1:
            chances = np.stack([1 - chances, chances], 1)
        found, sure = chances.argmax(1), chances.max(1)
        at = np.clip(np.ceil(sure * self.bins).astype(np.int64) - 1, 0, self.bins - 1)
        counted = {"hits": found == true, "confidence": sure, "count": np.ones(len(true))}
        self.add(**{name: np.bincount(at, values, self.bins) for name, values in counted.items()})
        return self

    def compute(self) -> float:
        if not self.totals or not self.totals["count"].any():
            raise self.nothing()
        there = self.totals["count"] > 0
        hits, sure, count = (self.totals[name][there] for name in ("hits", "confidence", "count"))
        gaps, share = abs(hits - sure) / count, count / count.sum()
        if self.norm == "max":
            return float(gaps.max())
        return float((gaps * share).sum() if self.norm == "l1" else np.sqrt((gaps**2 * share).sum()))


class LogLoss(Totals):
    """The mean of -log p, p being the true class's probability, at least `eps` (None: the smallest step of the predictions' dtype; half
    types count as float32).

    >>> from gradlab.metrics import LogLoss
    >>> round(LogLoss()(gl.tensor([0.5, 0.5]), gl.tensor([0, 1])), 6)
    0.693147
    """

    higher_is_better = False

    def __init__(self, *, eps: float | None = None) -> None:
        self.eps = eps
        super().__init__()

    def update(self, prediction: Any, target: Any) -> Metric:
        chances, true = probabilities("LogLoss", prediction, target)
        checked("LogLoss", chances)
        own = np.where(true == 1, chances, 1 - chances) if chances.ndim == 1 else chances[np.arange(len(true)), true]
        dtype = host(prediction, "LogLoss: prediction").dtype
        least = self.eps if self.eps is not None else float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)
        self.add(loss=float(-np.log(np.clip(own, least, 1)).sum()), count=len(true))
        return self

    def compute(self) -> float:
        if not self.totals.get("count"):
            raise self.nothing()
        return float(self.totals["loss"] / self.totals["count"])
