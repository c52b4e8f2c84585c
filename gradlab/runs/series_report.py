"""What the report of a series shows: forecasts beside the truth, errors by the steps ahead, residuals, and the windows that went worst."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

import gradlab as gl
from gradlab.runs.html import charts, residuals, table
from gradlab.viz.chart import Panel, Series

if TYPE_CHECKING:
    from gradlab.runs.series import SeriesTask

SHOWN = 240  # steps of the held-out part
WORST = 8
COLUMNS = 3  # values that have pictures of their own


def sections(task: SeriesTask, model: Any) -> list[tuple[str, str]]:
    """Headings and HTML, of the held-out part."""
    dataset = task.learned()
    windows = dataset.validation
    found = task.outputs(model, windows)
    true = task.coding.in_unit(windows.arrays()[1])
    return [
        ("Forecasts and the truth", _forecasts(task, windows, found)),
        ("Errors by steps ahead", _by_step(task, model, windows, found, true)),
        ("Residuals", _residuals(task, found, true)),
        ("Farthest off", _worst(task, windows, found, true)),
    ]


def _forecasts(task: SeriesTask, windows: Any, found: np.ndarray[Any, Any]) -> str:
    """The last steps, and over them one forecast after the other, each of the whole horizon."""
    dataset, horizon = task.learned(), task.coding.horizon
    end = len(dataset.series.times)
    begin = max(dataset.first, end - SHOWN)
    starts = windows.starts + windows.window
    chosen, after = [], begin
    for i in np.argsort(starts, kind="stable"):
        if starts[i] >= after:
            chosen.append(int(i))
            after = int(starts[i]) + horizon
    pictures = []
    for place, name in list(enumerate(task.names))[:COLUMNS]:
        context = max(0, begin - horizon)
        truth = Series("truth", list(range(context - begin, end - begin)), dataset.series.values[context:end, place].tolist())
        x: list[float] = []
        y: list[float] = []
        for i in chosen:  # a gap between one forecast and the next
            steps = np.arange(horizon) + starts[i] - begin
            x, y = [*x, *steps.tolist(), float(steps[-1])], [*y, *found[i, :, place].tolist(), float("nan")]
        pictures.append(Panel(name, f"steps from {dataset.series.written()[begin]}", [truth, Series("forecast", x, y)]))
    said = f"Forecasts of {horizon} steps, one after the other, none of which saw what it forecasts."
    return charts(pictures, "the held-out part") + f'<p class="soft">{said}</p>'


def _by_step(task: SeriesTask, model: Any, windows: Any, found: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> str:
    """The mean absolute error of each step ahead, beside those of simpler forecasts."""
    simple = task.model()
    task.baselines(simple)
    x = gl.from_numpy(windows.arrays()[0])
    with gl.no_grad():
        others = {"autoregression": simple.without_network(x)}
        simple.start_from(1)
        others["last value"] = simple.naive(x)
        if task.coding.season and task.coding.season <= task.coding.window:
            simple.start_from(task.coding.season)
            others["last season"] = simple.naive(x)
    steps = list(range(1, task.coding.horizon + 1))
    panels = []
    for place, name in list(enumerate(task.names))[:COLUMNS]:
        lines = [Series("run", steps, _errors(found, true, place))]
        lines += [Series(other, steps, _errors(task.coding.in_unit(y.numpy()), true, place)) for other, y in others.items()]
        panels.append(Panel(f"{name}: mean absolute error", "steps ahead", lines, whole_x=True))
    return charts(panels, "the farther ahead, the harder")


def _errors(found: np.ndarray[Any, Any], true: np.ndarray[Any, Any], place: int) -> list[float]:
    off = abs(found[:, :, place] - true[:, :, place])
    known = ~np.isnan(off)
    return (np.where(known, off, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)).tolist()


def _residuals(task: SeriesTask, found: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> str:
    parts = []
    for place, name in list(enumerate(task.names))[:COLUMNS]:
        known = ~np.isnan(true[:, :, place])
        off = (found - true)[:, :, place][known]
        low, middle, high = np.quantile(off, [0.1, 0.5, 0.9])
        spread = f"from {low:+.4g} to {high:+.4g} in eight of ten, {middle:+.4g} in the middle"
        said = f"{escape(name)}: forecast less truth is {off.mean():+.4g} on average; {spread}."
        parts.append(residuals(found[:, :, place][known], true[:, :, place][known]) + f'<p class="soft">{said}</p>')
    return "".join(parts)


def _worst(task: SeriesTask, windows: Any, found: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> str:
    """The windows with the largest mean absolute error, the first as a picture; of several values by the mean in deviations."""
    dataset, coding = task.learned(), task.coding
    with np.errstate(invalid="ignore"):
        off = np.nanmean(abs(found - true) / np.array(coding.deviations[: len(task.names)]), axis=(1, 2))
    order = np.argsort(-off, kind="stable")
    apart: list[int] = []
    for i in order:  # windows that begin a step apart tell the same
        if len(apart) < WORST and all(abs(int(windows.starts[i] - windows.starts[j])) >= coding.horizon for j in apart):
            apart.append(int(i))
    dates = dataset.series.written()
    rows = []
    for i in apart:
        begin = int(windows.starts[i]) + windows.window
        row: list[Any] = [dates[begin]]
        for place in range(len(task.names))[:COLUMNS]:
            known = ~np.isnan(true[i, :, place])
            t, f = true[i, known, place], found[i, known, place]
            row += [float(t.mean()), float(f.mean()), float(abs(f - t).mean())] if known.any() else ["", "", ""]
        rows.append(row)
    head = ["begins"] + [f"{what} {name}" for name in task.names[:COLUMNS] for what in ("mean", "forecast mean", "error of")]
    first, name = apart[0], task.names[0]
    begin = int(windows.starts[first])
    seen = dataset.series.values[begin : begin + windows.window, 0].tolist()
    ahead = list(range(1, coding.horizon + 1))
    panel = Panel(f"{name}, the worst window", "steps ahead", [
        Series("seen", list(range(1 - len(seen), 1)), seen), Series("truth", ahead, true[first, :, 0].tolist()),
        Series("forecast", ahead, found[first, :, 0].tolist()),
    ])  # fmt: skip
    return charts([panel], f"from {dates[begin + windows.window]}") + table(head, rows)
