"""The task of a series: its model and loss, what naive and linear forecasts reach, and forecasts in the series' own unit and dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Self

import numpy as np

import gradlab as gl
from gradlab import Tensor, metrics, nn
from gradlab.data.series import Observations, SeriesCoding, SeriesError, TimeSeriesDataset, Windows
from gradlab.models.series import SeriesModel
from gradlab.runs.interface import Interface
from gradlab.runs.series_report import sections
from gradlab.runs.task import Baselines, Task, literal, shuffled

PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 10.0, 1e3)  # of the linear forecast, as shares of a feature's mean square
INNER = 0.25  # of the windows to learn from, the last, decide which is taken
AT_ONCE = 2048  # windows
CHOSEN_BY = 10_000  # windows, spread evenly, by which penalties are chosen where there are more


class OfColumn(metrics.Metric):
    """A metric of one column's forecasts, times `unit`; what is not known is left out."""

    higher_is_better = False

    def __init__(self, metric: metrics.Metric, place: int, unit: float = 1.0) -> None:
        self.metric, self.place, self.unit = metric, place, unit

    def reset(self) -> None:
        self.metric.reset()

    def update(self, prediction: Any, target: Any) -> metrics.Metric:
        found, true = (t.detach().cpu().double().numpy()[..., self.place] for t in (prediction, target))
        known = ~np.isnan(true)
        if known.any():
            self.metric.update(found[known], true[known])
        return self

    def compute(self) -> float:
        return float(self.metric.compute()) * self.unit


class MeanOf(metrics.Metric):
    """The mean of several metrics."""

    higher_is_better = False

    def __init__(self, several: Sequence[metrics.Metric]) -> None:
        self.several = several

    def reset(self) -> None:
        for metric in self.several:
            metric.reset()

    def update(self, prediction: Any, target: Any) -> metrics.Metric:
        for metric in self.several:
            metric.update(prediction, target)
        return self

    def compute(self) -> float:
        return float(np.mean([metric.compute() for metric in self.several]))


class SeriesTask(Task):
    """What is known of a series' columns, dates and sizes; with `dataset`, the series it is learned from."""

    kind = "series"
    greater = False
    defaults: Mapping[str, Any] = {"epochs": 30, "batch_size": 32, "learning_rate": 1e-3, "weight_decay": 0.01}
    beginning = "the autoregression"

    def __init__(self, coding: SeriesCoding, layers: Mapping[str, Any], dataset: TimeSeriesDataset | None = None) -> None:
        self.coding, self.layers, self.dataset = coding, layers, dataset
        self.names = coding.layout.values
        self.score = "mae" if len(self.names) == 1 else "mase"
        self.goal = f"{', '.join(self.names)}, {coding.horizon} step{'s' * (coding.horizon > 1)} ahead"
        self.notes = dataset.notes if dataset is not None else []

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> Self:
        """From a table; settings: what TimeSeriesDataset takes, `network` ("gru", "convolutions"), width, dropout. SeriesError as of it."""
        chosen = dict(settings)
        network, width, dropout = chosen.pop("network", "gru"), chosen.pop("width", None), chosen.pop("dropout", None)
        dataset = TimeSeriesDataset(source, **chosen)
        windows = len(dataset.training)
        width = width or (16 if windows < 500 else 32 if windows < 5000 else 64)
        layers = {"network": network, "width": width, "dropout": (0.2 if windows < 2000 else 0.1) if dropout is None else dropout}
        return cls(dataset.coding, layers, dataset)

    def variants(self) -> Mapping[str, Sequence[Any]]:
        return {"width": (16, 32, 64), "dropout": (0.0, 0.1, 0.2, 0.4)}

    def state(self) -> dict[str, Any]:
        return {"coding": self.coding.state(), "layers": dict(self.layers)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(SeriesCoding.from_state(state["coding"]), state["layers"])

    # ------------------------------------------------------------ learning

    def learned(self) -> TimeSeriesDataset:
        """The series that is learned from."""
        if self.dataset is None:
            raise ValueError("SeriesTask: only a task made of a series can be learned; this one was read back for forecasting")
        return self.dataset

    def facts(self) -> str:
        dataset, coding = self.learned(), self.coding
        steps, held_out = dataset.first, dataset.held_out
        begin, end = (dataset.series.written()[i] for i in (dataset.first, -1))
        season = f"a season of {coding.season} steps" if coding.season else "no season was found"
        head = f"{steps:,} steps to learn from, the last {held_out:,} held out ({begin} to {end}); {coding.calendar}, {season}"
        what = f"{self.goal}, from the last {coding.window} steps" + (
            f" of it and of {', '.join(coding.layout.covariates)}" if coding.layout.covariates else ""
        )
        windows = f"{len(dataset.training):,} windows to learn from, {len(dataset.validation):,} held out"
        return f"{head}\n{what}; {windows}"

    def model(self) -> SeriesModel:
        coding = self.coding
        return SeriesModel(coding.window, len(coding.layout.columns), coding.horizon, len(self.names), **self.layers)

    def loss(self, outputs: Tensor, future: Tensor) -> Tensor:
        """Huber's, over what is known."""
        known = future == future  # noqa: PLR0124 -- NaN is no number
        zero = gl.zeros_like(outputs)
        total = nn.functional.huber_loss(gl.where(known, outputs, zero), gl.where(known, future, zero), reduction="sum")
        return total / known.sum()

    def step(self, model: nn.Module, batch: Any) -> Any:
        window, future = batch
        outputs = model(window)
        return self.loss(outputs, future), outputs, future

    def metrics(self) -> dict[str, metrics.Metric]:
        def of(place: int, metric: metrics.Metric) -> OfColumn:
            return OfColumn(metric, place, self.coding.deviations[place])

        units = zip(self.coding.errors, self.coding.deviations, strict=False)
        scaled = [OfColumn(metrics.MeanAbsoluteScaledError(error / unit), i) for i, (error, unit) in enumerate(units)]
        if len(self.names) == 1:
            return {"mae": of(0, metrics.MeanAbsoluteError()), "rmse": of(0, metrics.RootMeanSquaredError()), "mase": scaled[0]}
        each = {f"mae of {name}": of(i, metrics.MeanAbsoluteError()) for i, name in enumerate(self.names)}
        return {"mase": MeanOf(scaled), **each}

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        dataset = self.learned()
        return shuffled(dataset.training, batch_size, seed, drop_last=False), gl.utils.data.DataLoader(dataset.validation, AT_ONCE)

    def baselines(self, model: nn.Module) -> Baselines:
        """What the last value, the last season and an autoregression on the same window reach on the held-out part.

        The autoregression is a ridge regression of all steps ahead on the whole window, relative to its last value, to the last season, or
        to neither. That and the penalty are those that are best on the last quarter of the training windows. It is put into `model`.
        """
        assert isinstance(model, SeriesModel)
        dataset, season = self.learned(), self.coding.season
        found, tries = {}, []
        for back in (1, *([season] if season and season <= self.coding.window else []), 0):
            model.start_from(back)
            if back:
                name = "last value" if back == 1 else f"last season ({back} steps)"
                found[name] = self.measured(model.naive, dataset.validation)
            tries += [(error, back, penalty) for penalty, error in _inner_errors(model, dataset.training)]
        _, back, penalty = min(tries, key=lambda entry: entry[0])
        model.start_from(back)
        _put(model, _ridge(model, dataset.training, [penalty])[0])
        found["autoregression"] = self.measured(model.without_network, dataset.validation)
        return found

    def measured(self, forecast: Any, windows: Windows) -> dict[str, float]:
        """What the metrics say of a function of windows."""
        collection = metrics.MetricCollection(self.metrics())
        for begin in range(0, len(windows), AT_ONCE):
            x, future = windows[begin : begin + AT_ONCE]
            with gl.no_grad():
                collection.update(forecast(x), future)
        return {name: float(value) for name, value in collection.compute().items()}

    # ------------------------------------------------------------ using

    def outputs(self, model: nn.Module, windows: Windows) -> np.ndarray[Any, Any]:
        """Forecasts in the series' unit, float64 (windows, horizon, values)."""
        batches: Any = gl.utils.data.DataLoader(windows, AT_ONCE)
        return self.coding.in_unit(gl.train.predict(model, batches, next(model.parameters()).device).numpy())

    def forecast(self, model: nn.Module, series: Observations) -> dict[str, Any]:
        """The steps after a series: a column of dates and one for each value."""
        window = gl.from_numpy(self.coding.newest(series))[None].to(next(model.parameters()).device)
        with gl.no_grad():
            outputs = self.coding.in_unit(model.eval()(window).cpu().numpy())[0]
        dates = np.array(series.later(self.coding.horizon), object)
        return {self.coding.layout.date_name: dates} | {name: outputs[:, i] for i, name in enumerate(self.names)}

    def predict(self, model: nn.Module, source: Any) -> dict[str, Any]:
        """The steps after a table's last: columns by name, of dates (as text) and of each value. SeriesError where it is too short."""
        return self.forecast(model, self.ended(source))

    def predicted(self, model: nn.Module, sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        if len(sources) > 1:
            raise SeriesError(f"a forecast goes on from one table, not from {len(sources)}; put {', '.join(sources)} together")
        series = self.ended(sources[0])
        return self.forecast(model, series), series.notes

    def ended(self, source: Any) -> Observations:
        """A table's series up to the last step in which a value is known."""
        series = self.coding.read(source)
        known = ~np.isnan(series.values[:, : len(self.names)]).any(1)
        if not known.any():
            raise SeriesError(f"{series.source}: {', '.join(self.names)} are nowhere known together")
        end = len(known) - int(known[::-1].argmax())
        if end < len(known):
            after, last = len(known) - end, series.written(series.times[end - 1 : end])[0]
            series.notes.append(f"the last {after} steps have no value: the forecast begins after {last}")
        series.times, series.values = series.times[:end], series.values[:end]
        return series

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        """The metrics of all forecasts that a table has the truth of."""
        return self._evaluated(model, self.coding.read(source))

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        series = self.coding.read(source)
        return self._evaluated(model, series), series.notes

    def _evaluated(self, model: nn.Module, series: Observations) -> dict[str, float]:
        windows = self.coding.windows(series)
        if not len(windows):
            least = self.coding.window + self.coding.horizon
            few = f"{len(series.times)} steps hold no forecast and its truth"
            raise SeriesError(f"{series.source}: {few}, which take {least} without a long gap")
        place = next(model.parameters()).device
        return self.measured(lambda x: model.eval()(x.to(place)).cpu(), windows)

    def interface(self, model: nn.Module) -> Interface:
        coding = self.coding
        scales = zip(coding.layout.columns, coding.means, coding.deviations, strict=True)
        columns = ", ".join(f"{name} ({mean:.6g}, {deviation:.6g})" for name, mean, deviation in scales)
        return Interface(
            {"window": gl.randn(2, coding.window, len(coding.layout.columns))}, ["forecast"],
            {
                "window": f"the last {coding.window} steps, the oldest first; columns (value - mean) / deviation of {columns}",
                "forecast": f"the {coding.horizon} steps after them, of {', '.join(self.names)}: times the deviation, plus the mean",
            },
        )  # fmt: skip

    # ------------------------------------------------------------ the report

    def sections(self, trained: Any) -> list[tuple[str, str]]:
        return sections(self, trained.model) if self.dataset is not None else []

    def usage(self, folder: str) -> list[str]:
        return [
            f"gradlab predict {quote(folder)} newest.csv --out forecast.csv\n"
            f"gradlab evaluate {quote(folder)} other.csv",
            f'import gradlab as gl\n\nrun = gl.load_run({literal(folder)})\n'
            f'run.predict("newest.csv")[{literal(self.names[0])}]\nrun.model  # a Module',
        ]


# ---------------------------------------------------------------- the linear part

Part = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # two arrays: factors (outputs, features) and summands (outputs,)


def _sums(model: SeriesModel, windows: Windows, indices: np.ndarray[Any, Any]) -> Part:
    """Means of features and changes, and the products of both about them: all that a least-squares fit needs, in one pass."""
    total: Any = 0
    for begin in range(0, len(indices), AT_ONCE):
        some = indices[begin : begin + AT_ONCE]
        both = np.concatenate([np.ones((len(some), 1)), *_rows(model, windows, some)], 1)
        total = total + both.T @ both
    mean = total[0, 1:] / total[0, 0]
    return mean, total[1:, 1:] / total[0, 0] - np.outer(mean, mean)


def _rows(model: SeriesModel, windows: Windows, indices: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Features, and the futures' changes from the part that is carried on; an unknown one counts as none."""
    x, future = windows.take_batch(indices.tolist())
    change = (future - model.naive(x)).flatten(1).double().numpy()
    return [model.features(x).double().numpy(), np.where(np.isnan(change), 0.0, change)]


def _ridge(model: SeriesModel, windows: Windows, penalties: Sequence[float], indices: np.ndarray[Any, Any] | None = None) -> list[Part]:
    """A linear part for each penalty: the solution of ridge regression, of all outputs at once."""
    mean, spread = _sums(model, windows, np.arange(len(windows)) if indices is None else indices)
    many = model.window * model.columns
    sizes, axes = np.linalg.eigh(spread[:many, :many])
    along = axes.T @ spread[:many, many:]
    unit = float(sizes.sum()) / many or 1.0
    found = []
    for penalty in penalties:
        factors = (axes @ (along / (np.maximum(sizes, 0) + penalty * unit)[:, None])).T
        found.append((factors, mean[many:] - factors @ mean[:many]))
    return found


def _inner_errors(model: SeriesModel, windows: Windows) -> list[tuple[float, float]]:
    """Each penalty with its mean absolute error on the last windows to learn from, of a fit to those before whose futures end earlier."""
    begin = round((1 - INNER) * len(windows))
    later = np.arange(begin, len(windows))
    before = np.flatnonzero(windows.starts[:begin] + windows.horizon <= windows.starts[begin])
    later, before = (some[:: max(1, len(some) // CHOSEN_BY)] for some in (later, before))
    if len(before) < 2:
        return [(penalty, -penalty) for penalty in PENALTIES[-1:]]  # too few to choose by
    parts = _ridge(model, windows, PENALTIES, before)
    errors = np.zeros(len(parts))
    for first in range(0, len(later), AT_ONCE):
        features, change = _rows(model, windows, later[first : first + AT_ONCE])
        errors += [abs(features @ factors.T + summands - change).sum() for factors, summands in parts]
    return list(zip(PENALTIES, errors.tolist(), strict=True))


def _put(model: SeriesModel, part: Part) -> None:
    with gl.no_grad():
        for parameter, value in zip(model.linear.parameters(), part, strict=True):
            parameter.copy_(gl.from_numpy(np.ascontiguousarray(value, np.float32)))
