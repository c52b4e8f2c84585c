"""What a training loop calls on its way: a bar, a table, TensorBoard, checkpoints, and reasons to stop."""

from __future__ import annotations

import copy
import csv
import io
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gradlab.utils.atomic import write_text
from gradlab.utils.tensorboard import SummaryWriter
from gradlab.viz.chart import Panel, Series, line_chart


class Callback:
    """Base class: methods that get the Run when training begins, after each batch, after each epoch, and at the end, however it comes.

    Whoever wants the loop to end sets `run.stop` to the reason; it ends after the optimizer's step, or the epoch.
    """

    def begin(self, run: Any) -> None: ...

    def batch_end(self, run: Any) -> None: ...

    def epoch_end(self, run: Any) -> None: ...

    def end(self, run: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on needs of it besides the history: part of the Run's state, and so of checkpoints."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called before `begin`, where there is such a state."""


def named(callbacks: Sequence[Any]) -> dict[str, Callback]:
    """The callbacks by the names of their classes, with a number behind the second and further ones of a class."""
    found: dict[str, Callback] = {}
    for callback in callbacks:
        if isinstance(callback, Callback):
            name = type(callback).__name__
            number = sum(key.partition(" ")[0] == name for key in found)
            found[f"{name} {number + 1}" if number else name] = callback
    return found


def each(callbacks: Sequence[Any]) -> Callable[[str, Any], None]:
    """A function that calls a method of every callback, in their order. A plain function is one that is called after each epoch."""
    if not isinstance(callbacks, (list, tuple)):
        raise TypeError(f"fit: callbacks is a list of them, not a {type(callbacks).__name__} alone")
    for callback in callbacks:
        if not isinstance(callback, Callback) and (isinstance(callback, type) or not callable(callback)):
            kind = f"the class {callback.__name__}" if isinstance(callback, type) else type(callback).__name__
            raise TypeError(f"fit: a callback is a Callback or a function of the run, not {kind}")

    def calls(name: str, run: Any) -> None:
        for callback in callbacks:
            if isinstance(callback, Callback):
                getattr(callback, name)(run)
            elif name == "epoch_end":
                callback(run)

    return calls


def length(loader: Any) -> int:
    """How many batches a loader has; 0 where it cannot say, as over an IterableDataset."""
    try:
        return len(loader)
    except TypeError:
        return 0


class Bar(Callback):
    """A progress bar with loss and samples per second on stderr, and a line on stdout after each epoch (lines: whether)."""

    def __init__(self, *, lines: bool = True) -> None:
        self.lines = lines
        self.bar: Any = None

    def batch_end(self, run: Any) -> None:
        if self.bar is None:
            many = length(run.loader) or None
            self.bar = tqdm(desc=f"epoch {run.epoch + 1}/{run.epochs}", total=many, initial=run.batch - 1, unit="batch", leave=False,
                            disable=True if sys.stderr is None else None, file=sys.stderr)  # fmt: skip
        self.bar.update()
        self.bar.set_postfix(loss=f"{run.loss / run.samples:.4f}", rate=f"{run.samples / max(run.seconds, 1e-9):,.0f}/s", refresh=False)

    def epoch_end(self, run: Any) -> None:
        self.end(run)
        if self.lines:
            line = run.history[-1]
            values = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in line.items() if isinstance(value, float))
            print(values, flush=True)

    def end(self, run: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class TableOfEpochs(Callback):
    """The history as a CSV file, whole after each epoch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def epoch_end(self, run: Any) -> None:
        table, names = io.StringIO(), list(dict.fromkeys(name for line in run.history for name in line))
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(names)
        values = [[line.get(name, "") for name in names] for line in run.history]
        writer.writerows([[v.tolist() if hasattr(v, "tolist") else v for v in line] for line in values])  # a matrix is one cell of one line
        write_text(self.path, table.getvalue())


class Curves(Callback):
    """The history as a picture, drawn anew after each epoch: losses, and a plot for each metric of the validation (SVG)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix != ".svg":
            raise ValueError(f"Curves: the picture is an SVG file, so its name ends in .svg, not {self.path.suffix!r}")

    def epoch_end(self, run: Any) -> None:
        write_text(self.path, curves(run.history))


def curves(history: Sequence[dict[str, float]]) -> str:
    """A history as a run has it, as an SVG document."""
    epochs = [line["epoch"] for line in history]

    def series(shown: str, name: str) -> Series:
        return Series(shown, epochs, [float(line.get(name, math.nan)) for line in history])

    names = list(dict.fromkeys(name for line in history for name in line if name.startswith("validation_")))
    losses = [series("validation", "validation_loss")] if "validation_loss" in names else []
    panels = [Panel("loss", "epoch", [*losses, series("training", "loss")], whole_x=True)]
    numbers = [n for n in names if n != "validation_loss" and all(isinstance(line.get(n, 0.0), (int, float)) for line in history)]
    panels += [Panel(n.removeprefix("validation_").replace("_", " "), "epoch", [series("validation", n)], whole_x=True) for n in numbers]
    return line_chart(panels, f"{len(history)} epochs" if len(history) != 1 else "1 epoch")


class TensorBoard(Callback):
    """Every number of the history as a scalar for TensorBoard, in an event file of the folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.writer = SummaryWriter(folder)

    def epoch_end(self, run: Any) -> None:
        for name, value in run.history[-1].items():
            if isinstance(value, (int, float)):
                self.writer.add_scalar(name, value, run.epoch)
        self.writer.flush()

    def end(self, run: Any) -> None:
        self.writer.close()


class Watch(Callback):
    """Whether a number of the history became better. It falls to become better, unless a metric of that name says it rises."""

    def __init__(self, monitor: str = "validation_loss", least: float = 0.0) -> None:
        self.monitor, self.least, self.best, self.when = monitor, least, math.nan, 0

    def begin(self, run: Any) -> bool:  # type: ignore[override]
        """A run that goes on, or that was measured before its first epoch, has a history already. Whether it is at its best now."""
        self.best, self.when, at_best = math.nan, 0, False
        for line in run.history if self.monitor else ():
            at_best = self.better(run, line)
        return at_best

    def better(self, run: Any, line: dict[str, float]) -> bool:
        if self.monitor not in line:
            raise KeyError(f"{type(self).__name__}: there is no {self.monitor!r} in the history, which has {', '.join(line)}")
        metric = None if run.metrics is None else run.metrics.metrics.get(self.monitor.removeprefix("validation_"))
        sign = -1.0 if metric is not None and metric.higher_is_better else 1.0
        value = float(line[self.monitor])
        if math.isnan(self.best) or sign * value < sign * self.best - self.least:
            self.best, self.when = value, int(line["epoch"])
            return True
        return False


class EarlyStop(Watch):
    """End where `monitor` has not become better, by `least` at least, for `patience` epochs."""

    def __init__(self, patience: int = 5, monitor: str = "validation_loss", *, least: float = 0.0) -> None:
        super().__init__(monitor, least)
        self.patience = patience

    def epoch_end(self, run: Any) -> None:
        if not self.better(run, run.history[-1]) and run.epoch - self.when >= self.patience:
            run.stop = f"{self.monitor} has not become better than {self.best:.6g} of epoch {self.when} for {self.patience} epochs"


class BestWeights(Watch):
    """At the end the model is given back the weights of its best epoch. Checkpoints hold them; else the best of a run that goes on."""

    state: dict[str, Any] | None = None
    loaded = False

    def begin(self, run: Any) -> bool:  # type: ignore[override]
        at_best = super().begin(run)
        self.state, self.loaded = self.state if self.loaded else None, False
        if self.state is None and at_best and not run.batch:  # within an epoch the weights are those of no line of the history
            self.state = copy.deepcopy(run.trained.state_dict())
        elif self.state is None:
            self.best = math.nan
        return at_best

    def state_dict(self) -> dict[str, Any]:
        return {} if self.state is None else {"weights": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.loaded = state["weights"], True

    def epoch_end(self, run: Any) -> None:
        if self.better(run, run.history[-1]):
            self.state = copy.deepcopy(run.trained.state_dict())

    def end(self, run: Any) -> None:
        if self.state is not None:
            run.trained.load_state_dict(self.state)
