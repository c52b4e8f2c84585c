"""What all metrics have in common, several of them as one, and how arguments are read."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from gradlab.tensor import Tensor


class Metric:
    """A number of a whole data set, fed batch by batch. A metric of one's own writes `reset`, `update`, `compute` and, where runs are to be
    put together, `merge`.
    """

    higher_is_better: bool | None = None  # None where neither is

    def reset(self) -> None:
        """Forget every batch."""
        raise NotImplementedError(f"{type(self).__name__}.reset: a metric says what it starts from")

    def update(self, prediction: Any, target: Any) -> Metric:
        """Count a batch; the metric itself."""
        raise NotImplementedError(f"{type(self).__name__}.update: a metric says what it keeps of a batch")

    def compute(self) -> Any:
        """The value of all batches since the last reset; ValueError where there was none."""
        raise NotImplementedError(f"{type(self).__name__}.compute: a metric says what its value is")

    def merge(self, other: Metric) -> Metric:
        """Take in what another metric of the same settings has counted; the metric itself."""
        raise NotImplementedError(f"{type(self).__name__} cannot be merged; feed one metric with all batches")

    def __call__(self, prediction: Any, target: Any) -> Any:
        """The value of this batch alone, which is counted too."""
        alone = deepcopy(self)
        alone.reset()
        value = alone.update(prediction, target).compute()
        self.update(prediction, target)
        return value

    def nothing(self) -> ValueError:
        return ValueError(f"{type(self).__name__}.compute: no batch was counted; call update(prediction, target) first")


class Totals(Metric):
    """A metric that keeps sums: arrays by name, which `merge` adds."""

    totals: dict[str, Any]

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.totals = {}

    def add(self, **parts: Any) -> None:
        """Add to the sums; all of them or, where one does not fit, none."""
        sums = {}
        for name, part in parts.items():
            old = self.totals.get(name)
            if old is not None and np.shape(old) != np.shape(part):
                raise ValueError(
                    f"{type(self).__name__}.update: this batch has {np.shape(part)} values of {name} where those before had {np.shape(old)}"
                )
            sums[name] = part if old is None else old + part
        self.totals.update(sums)

    def merge(self, other: Metric) -> Metric:
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__}.merge: expected another {type(self).__name__}, not {type(other).__name__}")
        self.add(**other.totals)
        return self


class Kept(Metric):
    """A metric that needs every value again at its end: arrays, batch by batch, joined where they are asked for."""

    batches: list[tuple[Any, ...]]

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.batches = []

    def joined(self) -> tuple[Any, ...]:
        if not any(len(parts[0]) for parts in self.batches):
            raise self.nothing()
        return tuple(np.concatenate(parts) for parts in zip(*self.batches, strict=True))

    def merge(self, other: Metric) -> Metric:
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__}.merge: expected another {type(self).__name__}, not {type(other).__name__}")
        self.batches += other.batches
        return self


class MetricCollection(Metric):
    """Several metrics by name, fed with the same batches.

    >>> from gradlab.metrics import Accuracy, F1, MetricCollection
    >>> both = MetricCollection(accuracy=Accuracy(), f1=F1("macro"))
    >>> both(gl.tensor([0, 1, 1]), gl.tensor([0, 1, 0]))
    {'accuracy': 0.6666666666666666, 'f1': 0.6666666666666666}
    """

    def __init__(self, metrics: Mapping[str, Metric] | None = None, **more: Metric) -> None:
        if not isinstance(metrics, (Mapping, type(None))):
            kind = metrics.__name__ if isinstance(metrics, type) else type(metrics).__name__
            raise TypeError(f'MetricCollection: metrics have names, as in {{"accuracy": Accuracy()}}; got {kind}')
        self.metrics = {**(metrics or {}), **more}
        for name, metric in self.metrics.items():
            if not isinstance(metric, Metric):
                kind = f"the class {metric.__name__} itself" if isinstance(metric, type) else f"a {type(metric).__name__}"
                raise TypeError(f"MetricCollection: {name} is {kind}, not a Metric")

    def __getitem__(self, name: str) -> Metric:
        return self.metrics[name]

    def reset(self) -> None:
        for metric in self.metrics.values():
            metric.reset()

    def update(self, prediction: Any, target: Any) -> Metric:
        for metric in self.metrics.values():
            metric.update(prediction, target)
        return self

    def compute(self) -> dict[str, Any]:
        return {name: metric.compute() for name, metric in self.metrics.items()}

    def merge(self, other: Metric) -> Metric:
        for name, metric in self.metrics.items():
            metric.merge(other[name])  # type: ignore[index]
        return self


def host(value: Any, name: str) -> np.ndarray[Any, Any]:
    """A tensor or array as a NumPy array on the host; half types as float32. ValueError where a number is NaN."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        array: np.ndarray[Any, Any] = (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
    else:
        array = np.asarray(value)
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise ValueError(f"{name}: the value at {first} is NaN; remove such rows, or find out where they come from")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: needs numbers, not {array.dtype}")
    return array
