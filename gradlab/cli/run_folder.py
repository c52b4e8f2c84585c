"""The folder of a run: which files it holds, and how they are written so that none is ever half there."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import gradlab as gl
from gradlab.cli.failure import FAILED, USAGE, Failure
from gradlab.utils.atomic import write_text
from gradlab.viz.chart import Panel, Series, line_chart

RUNS = Path("runs")
ATTEMPTS = 1000


@dataclass(frozen=True)
class EpochResult:
    """One line of metrics.csv. Losses are means over images, accuracies fractions from 0 to 1."""

    epoch: int
    loss: float
    accuracy: float
    held_out_loss: float
    held_out_accuracy: float
    learning_rate: float
    seconds: float
    samples_per_second: float


class RunFolder:
    """Where a run keeps its files; see the properties for which."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.safetensors"  # everything needed to resume
        self.weights = path / "model.safetensors"  # the model's state_dict alone
        self.metrics = path / "metrics.csv"
        self.curves = path / "curves.svg"
        self.config = path / "config.json"

    def discard(self) -> None:
        """Takes a new run's files away again, and the folder if nothing else is in it."""
        for path in (self.checkpoint, self.weights, self.metrics, self.curves, self.config):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Turns a full disk or a lost permission into one line that says what is still good."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            kept = f"; the last checkpoint, {self.checkpoint}, is intact" if self.checkpoint.exists() else ""
            raise Failure(f"cannot write {path}: {reason}{kept}", FAILED) from error

    def save(self, path: Path, values: dict[str, Any]) -> None:
        with self.writing(path):
            gl.save(values, path)

    def write(self, path: Path, content: str) -> None:
        with self.writing(path):
            write_text(path, content)

    def write_config(self, settings: dict[str, Any]) -> None:
        self.write(self.config, json.dumps(settings, indent=2) + "\n")

    def read_config(self) -> object:
        """What config.json holds, or None where there is none or it cannot be understood."""
        try:
            return json.loads(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write_history(self, history: Sequence[EpochResult], title: str, subtitle: str) -> None:
        """metrics.csv and curves.svg, anew from all epochs so far."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(field.name for field in fields(EpochResult))
        # Six digits are enough to plot and compare; the checkpoint keeps every bit.
        writer.writerows([f"{value:.6g}" for value in asdict(result).values()] for result in history)
        self.write(self.metrics, table.getvalue())
        self.write(self.curves, curves(history, title, subtitle))


def curves(history: Sequence[EpochResult], title: str, subtitle: str) -> str:
    """Loss and accuracy over the epochs as an SVG document."""
    epochs = [result.epoch for result in history]

    def lines(training: Callable[[EpochResult], float], held_out: Callable[[EpochResult], float]) -> list[Series]:
        return [
            Series("held-out", epochs, [held_out(result) for result in history]),
            Series("training", epochs, [training(result) for result in history]),
        ]

    loss = lines(lambda result: result.loss, lambda result: result.held_out_loss)
    accuracy = lines(lambda result: 100 * result.accuracy, lambda result: 100 * result.held_out_accuracy)
    panels = [
        Panel("Loss (log scale)", "epoch", loss, log=True, whole_x=True),
        Panel("Accuracy, %", "epoch", accuracy, whole_x=True),
    ]
    return line_chart(panels, title, subtitle)


def new_folder(requested: Path | None, prefix: str) -> RunFolder:
    """A fresh folder for a run: the one asked for, or the next free runs/PREFIX-N."""
    if requested is not None:
        if (requested / "checkpoint.safetensors").exists():
            raise Failure(f"{requested} already holds a run: --resume {requested} continues it, another --out starts anew")
        if requested.is_dir() and any(requested.iterdir()):
            raise Failure(f"--out: {requested} is not empty; name a new or an empty folder")
        make(requested, exist_ok=True)
        return RunFolder(requested)
    number = 1 + max((run_number(path, prefix) for path in RUNS.glob(f"{prefix}-*")), default=0)
    for candidate in range(number, number + ATTEMPTS):
        try:
            path = RUNS / f"{prefix}-{candidate}"
            make(path, exist_ok=False)
            return RunFolder(path)
        except FileExistsError:  # another run was started in the same moment
            continue
    raise Failure(f"no free folder under {RUNS}; name one with --out", FAILED)


def run_number(path: Path, prefix: str) -> int:
    number = path.name.removeprefix(f"{prefix}-")
    return int(number) if number.isdecimal() else 0


def make(path: Path, *, exist_ok: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok:
            raise
        raise Failure(f"--out: {path} is a file, not a folder") from None
    except OSError as error:
        raise Failure(f"cannot create the run folder {path}: {error.strerror}", FAILED) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Failure(f"the run folder {path} is not writable", FAILED)


def existing_folder(requested: Path) -> tuple[RunFolder, Path]:
    """The run folder and the checkpoint in it that --resume names: a folder, or a checkpoint file in one."""
    checkpoint = requested / "checkpoint.safetensors" if requested.is_dir() else requested
    if not checkpoint.exists():
        where = "no run folder or checkpoint" if checkpoint is requested else "no checkpoint in the folder"
        raise Failure(f"--resume: {where} {requested}", USAGE)
    return RunFolder(checkpoint.parent), checkpoint
