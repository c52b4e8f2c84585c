"""Metrics of classes: accuracy, precision, recall, F-measures and the table of confusions, all of them from that table or from counts.

Predictions are class indices, or scores with the classes in dimension 1 (or one score for each element, which is compared with
`threshold`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gradlab.metrics.metric import Metric, Totals, host

Average = Literal["micro", "macro", "weighted", "binary"] | None


def classes_of(name: str, prediction: Any, target: Any, threshold: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Predicted and true classes as flat integer arrays."""
    found, true = host(prediction, f"{name}: prediction"), host(target, f"{name}: target")
    true = _whole(name, true)
    if found.ndim == true.ndim + 1 == 2 and found.shape[1] == 1:  # one score for each element, as a model of one output gives them
        found = found[:, 0]
    if found.ndim == true.ndim + 1:
        found = _of_each_class(name, found, true).argmax(1)
    elif found.shape != true.shape:
        raise ValueError(f"{name}: predictions of shape {found.shape} do not fit targets of shape {true.shape}")
    elif found.dtype.kind == "f":
        if true.size and true.max() > 1:
            more = f"a target is {true.max()}, where predictions are one score for each element, which tells two classes apart"
            raise ValueError(f"{name}: {more}; give scores (N, classes), or predicted classes as integers")
        found = found > threshold
    found, true = found.reshape(-1).astype(np.int64), true.reshape(-1).astype(np.int64)
    if found.size and min(found.min(), true.min()) < 0:
        raise ValueError(f"{name}: classes are counted from 0; got {min(found.min(), true.min())}. Leave out what is to be ignored")
    return found, true


def _whole(name: str, true: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if true.dtype.kind == "f" and (true != np.trunc(true)).any():
        raise ValueError(f"{name}: targets are classes, which are whole numbers; got {true[true != np.trunc(true)].flat[0]}")
    return true.astype(np.int64)


def _of_each_class(name: str, scores: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scores with the classes in dimension 1, once it is sure that the targets are some of those classes."""
    if scores.shape[:1] + scores.shape[2:] != true.shape:
        fits = f"targets of shape {true.shape} do not fit"
        raise ValueError(f"{name}: scores of shape {scores.shape} have their classes in dimension 1; {fits}")
    wrong = true[(true < 0) | (true >= scores.shape[1])]
    if wrong.size:
        raise ValueError(f"{name}: a target is {wrong[0]}, where scores are of classes 0 to {scores.shape[1] - 1}; leave such elements out")
    return scores


class ConfusionMatrix(Metric):
    """How often class i was taken for class j: rows are true classes, columns predictions.

    normalize: "true" divides by each row's sum, "pred" by each column's, "all" by the number of elements; None gives counts (int64).
    num_classes: at least so many; more are added as they are met, up to 10,000.

    >>> from gradlab.metrics import ConfusionMatrix
    >>> ConfusionMatrix().update(gl.tensor([0, 1, 1, 1]), gl.tensor([0, 1, 1, 0])).compute()
    array([[1, 1],
           [0, 2]])
    """

    counts: np.ndarray[Any, Any]

    def __init__(
        self, num_classes: int = 0, *, normalize: Literal["true", "pred", "all"] | None = None, threshold: float = 0.5
    ) -> None:
        if normalize not in (None, "true", "pred", "all"):
            raise ValueError(f'ConfusionMatrix: normalize is "true", "pred", "all" or None, not {normalize!r}')
        if num_classes < 0:
            raise ValueError(f"{type(self).__name__}: num_classes is at least 0, not {num_classes}")
        self.num_classes, self.normalize, self.threshold = num_classes, normalize, threshold
        self.reset()

    def reset(self) -> None:
        self.counts = np.zeros((self.num_classes, self.num_classes), np.int64)

    def update(self, prediction: Any, target: Any) -> Metric:
        found, true = classes_of(type(self).__name__, prediction, target, self.threshold)
        if found.size:
            size = int(max(found.max(), true.max())) + 1
            if size > 10_000:
                raise ValueError(f"{type(self).__name__}: class {size - 1} is beyond 9999; are the targets numbers rather than classes?")
            self._take(np.bincount(true * size + found, minlength=size * size).reshape(size, size))
        return self

    def _take(self, counts: np.ndarray[Any, Any]) -> None:
        if len(counts) > len(self.counts):
            counts, self.counts = self.counts, counts.astype(np.int64)
        else:
            self.counts = self.counts.copy()
        self.counts[: len(counts), : len(counts)] += counts

    def merge(self, other: Metric) -> Metric:
        if not isinstance(other, ConfusionMatrix):
            raise TypeError(f"{type(self).__name__}.merge: expected another {type(self).__name__}, not {type(other).__name__}")
        self._take(other.counts)
        return self

    def table(self) -> np.ndarray[Any, Any]:
        if not self.counts.any():
            raise self.nothing()
        return self.counts

    def compute(self) -> Any:
        counts = self.table()
        if self.normalize is None:
            return counts.copy()
        total = {"true": counts.sum(1, keepdims=True), "pred": counts.sum(0, keepdims=True), "all": counts.sum()}[self.normalize]
        return counts / np.maximum(total, 1)


class Accuracy(Totals):
    """The share of elements whose class was found; average="macro" gives each class the same weight (balanced accuracy).

    top_k: the class is among the k with the largest scores; of equal scores the first count.

    >>> from gradlab.metrics import Accuracy
    >>> Accuracy(top_k=2)(gl.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), gl.tensor([1, 2]))
    0.5
    """

    higher_is_better = True

    def __init__(self, *, top_k: int = 1, average: Literal["micro", "macro"] = "micro", threshold: float = 0.5) -> None:
        if average not in ("micro", "macro"):
            raise ValueError(f'Accuracy: average is "micro" or "macro", not {average!r}')
        if top_k < 1:
            raise ValueError(f"Accuracy: top_k is at least 1, not {top_k}")
        self.top_k, self.average, self.threshold = top_k, average, threshold
        super().__init__()

    def update(self, prediction: Any, target: Any) -> Metric:
        if self.top_k > 1:
            scores, true = host(prediction, "Accuracy: prediction"), _whole("Accuracy", host(target, "Accuracy: target"))
            if scores.ndim != true.ndim + 1 or scores.shape[:1] + scores.shape[2:] != true.shape:
                raise ValueError(f"Accuracy: top_k needs scores (N, classes) for targets (N,), got {scores.shape} and {true.shape}")
            if self.top_k > scores.shape[1]:
                raise ValueError(f"Accuracy: top_k={self.top_k} of {scores.shape[1]} classes")
            scores = _of_each_class("Accuracy", scores, true)
            best = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, : self.top_k]
            hits, true = (best == np.expand_dims(true, 1)).any(1).reshape(-1), true.reshape(-1)
        else:
            found, true = classes_of("Accuracy", prediction, target, self.threshold)
            hits = found == true
        if self.average == "micro":
            self.add(hits=int(hits.sum()), count=hits.size)
            return self
        size = max(int(true.max(initial=-1)) + 1, len(self.totals.get("count", ())))
        for name in self.totals:
            self.totals[name] = np.concatenate([self.totals[name], np.zeros(size - len(self.totals[name]))])
        self.add(hits=np.bincount(true, hits, size), count=np.bincount(true, minlength=size) * 1.0)
        return self

    def merge(self, other: Metric) -> Metric:
        if isinstance(other, Accuracy) and self.average != other.average:
            raise ValueError(f"Accuracy.merge: averages {self.average!r} and {other.average!r} do not add up")
        if isinstance(other, Accuracy) and self.average == "macro":
            for own, more in ((self, other), (other, self)):
                for name, value in own.totals.items():
                    own.totals[name] = np.concatenate([value, np.zeros(max(len(more.totals.get(name, ())) - len(value), 0))])
        return super().merge(other)

    def compute(self) -> float:
        count = np.asarray(self.totals.get("count", 0))
        if not count.any():
            raise self.nothing()
        there = count > 0
        return float(np.mean(np.asarray(self.totals["hits"])[there] / count[there]))


class FBeta(ConfusionMatrix):
    """(1 + β²)·precision·recall / (β²·precision + recall) (van Rijsbergen, "Information retrieval", 1979).

    average: "macro" is the mean over classes that were met (true or predicted), "weighted" that weighted with how often each is true,
    "micro" counts all elements alike, "binary" is class 1's, None an array of all classes'. Where nothing counts, the value is
    `zero_division`.

    >>> from gradlab.metrics import FBeta
    >>> FBeta(2.0, "binary")(gl.tensor([0, 1, 1]), gl.tensor([0, 1, 0]))
    0.8333333333333334
    """

    higher_is_better = True

    def __init__(
        self, beta: float, average: Average = "macro", *, num_classes: int = 0, threshold: float = 0.5, zero_division: float = 0.0
    ) -> None:
        if average not in ("micro", "macro", "weighted", "binary", None):
            raise ValueError(f'{type(self).__name__}: average is "micro", "macro", "weighted", "binary" or None, not {average!r}')
        if not beta >= 0:
            raise ValueError(f"{type(self).__name__}: beta is at least 0, not {beta}")
        self.beta, self.average, self.zero_division = beta, average, zero_division
        super().__init__(num_classes, threshold=threshold)

    def of(self, hits: Any, predicted: Any, true: Any) -> Any:
        """The value of given counts."""
        if self.beta == float("inf"):
            return self._divided(hits, true)  # recall, which is what it tends to
        square = self.beta**2
        return self._divided((1 + square) * hits, square * true + predicted)

    def _divided(self, part: Any, whole: Any) -> Any:
        return np.where(whole > 0, part / np.where(whole > 0, whole, 1), self.zero_division)

    def compute(self) -> Any:
        counts = self.table()
        if self.average == "binary":
            if len(counts) > 2:
                raise ValueError(f'{type(self).__name__}: average="binary" of {len(counts)} classes; choose "macro", "micro" or "weighted"')
            counts = np.pad(counts, (0, 2 - len(counts)))
        hits, predicted, true = np.diag(counts), counts.sum(0), counts.sum(1)
        if self.average == "micro":
            return float(self.of(hits.sum(), predicted.sum(), true.sum()))
        values = self.of(hits, predicted, true)
        if self.average is None:
            return values
        if self.average == "binary":
            return float(values[1])
        if self.average == "weighted":
            return float(np.average(values, weights=true))
        return float(values[(true > 0) | (predicted > 0)].mean())


class F1(FBeta):
    """The harmonic mean of precision and recall; see `FBeta` for `average`.

    >>> from gradlab.metrics import F1
    >>> F1("binary")(gl.tensor([0, 1, 1]), gl.tensor([0, 1, 0]))
    0.6666666666666666
    """

    def __init__(self, average: Average = "macro", **options: Any) -> None:
        super().__init__(1.0, average, **options)


class Precision(FBeta):
    """The share of a class's predictions that are right; see `FBeta` for `average`.

    >>> from gradlab.metrics import Precision
    >>> Precision("binary")(gl.tensor([0, 1, 1]), gl.tensor([0, 1, 0]))
    0.5
    """

    def __init__(self, average: Average = "macro", **options: Any) -> None:
        super().__init__(0.0, average, **options)


class Recall(FBeta):
    """The share of a class's elements that are found; see `FBeta` for `average`.

    >>> from gradlab.metrics import Recall
    >>> Recall("binary")(gl.tensor([0, 1, 1]), gl.tensor([0, 1, 0]))
    1.0
    """

    def __init__(self, average: Average = "macro", **options: Any) -> None:
        super().__init__(float("inf"), average, **options)
