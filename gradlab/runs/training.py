"""From a table to a run in its folder, and from a run that was stopped to its end."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import gradlab as gl
from gradlab._version import __version__
from gradlab.runs.folder import FORMAT, VERSION, Files, RunError, TrainedRun, load_run
from gradlab.runs.report import write_report
from gradlab.runs.table import TableTask
from gradlab.train import Bar, Callback, Checkpoint, EarlyStop, TableOfEpochs, evaluate, fit, read_checkpoint
from gradlab.utils.atomic import write_text

WARM_UP = 0.1  # part of all steps
WORDS = {"number": "columns of numbers", "category": "of categories", "date": "of dates"}


@dataclass(frozen=True)
class Settings:
    """How a run is trained. `data` is what the task is told of its table (target, exclude, seed of the split, …)."""

    epochs: int = 60
    batch_size: int | None = None
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    amp: str | None = None
    early_stop: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Measured(Callback):
    """A line of the history for the state before the first epoch."""

    def begin(self, run: Any) -> None:
        if not run.history:
            found = evaluate(run.model, run.validation, run.step, run.metrics, run.device)
            run.history.append({"epoch": 0.0, "loss": math.nan, **{f"validation_{name}": value for name, value in found.items()}})


def start(source: Any, folder: str | os.PathLike[str], settings: Settings, say: Callable[[str], None] = print) -> TrainedRun:
    """Train a model of a table in a new folder. TableError where the table cannot be learned from: then nothing is written."""
    if settings.batch_size == 1:
        raise RunError("a batch of one row cannot be normalised; take two rows at least (--batch-size, batch_size)")
    task = TableTask.of(source, settings.data)
    say(_summary(task))
    files = Files(folder)
    gl.manual_seed(settings.seed)
    model = task.model()
    baselines = task.baselines(model)
    path = Path(source).resolve() if isinstance(source, (str, os.PathLike)) else None
    description = {
        "format": FORMAT, "version": VERSION, "gradlab": __version__, "kind": task.kind, "source": str(path or "memory"),
        "sha256": None if path is None else _digest(path), "settings": asdict(settings), "task": task.state(), "score": task.score,
        "baselines": baselines, "notes": task.dataset.notes if task.dataset is not None else [], "environment": _environment(),
    }  # fmt: skip
    files.folder.mkdir(parents=True, exist_ok=True)
    _write(files, description)
    return _train(files, description, task, model, settings, None, say)


def resume(
    folder: str | os.PathLike[str], epochs: int | None = None, device: str | None = None, say: Callable[[str], None] = print
) -> TrainedRun:
    """Go on with a run where it was stopped, or for more epochs than it had. RunError where its data has changed, or it is finished."""
    files = Files(folder)
    description = files.read()
    settings = Settings(**description["settings"])
    settings = replace(settings, epochs=epochs or settings.epochs, device=device or settings.device)
    try:
        state = read_checkpoint(files.checkpoints)
    except (FileNotFoundError, ValueError) as error:
        raise RunError(f"{folder} cannot be gone on with: {error}") from error
    stopped = description.get("result", {}).get("stopped", "")
    if stopped and not stopped.startswith("signal") and epochs is None:
        raise RunError(f"{folder} is finished: {stopped}; ask for more with a larger number of epochs")
    if state["counts"]["epoch"] >= settings.epochs:
        raise RunError(f"{folder} is finished: it has {state['counts']['epoch']} epochs; ask for more with a larger number of epochs")
    if description["sha256"] is None:
        raise RunError(f"{folder} was trained on a table in memory; only a run of a file can be resumed")
    path = Path(description["source"])
    if not path.exists() or _digest(path) != description["sha256"]:
        raise RunError(f"{path} {'has changed' if path.exists() else 'is gone'} since the run was started; put it back, or start a new run")
    task = TableTask.of(path, settings.data)
    gl.manual_seed(settings.seed)
    description["settings"] = asdict(settings)
    _write(files, description)
    return _train(files, description, task, task.model(), settings, state, say)


def _train(
    files: Files, description: dict[str, Any], task: TableTask, model: Any, settings: Settings, state: Any, say: Callable[[str], None]
) -> TrainedRun:
    training, validation = task.loaders(settings.batch_size, settings.seed)
    model = model.to(settings.device)
    optimizer = gl.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    steps = settings.epochs * len(training)
    scheduler = gl.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    callbacks: list[Any] = [Measured(), Bar(lines=False), Checkpoint(files.checkpoints, monitor=f"validation_{task.score}")]
    callbacks += [TableOfEpochs(files.epochs), lambda run: say(_line(run, task))]
    callbacks += [EarlyStop(settings.early_stop, f"validation_{task.score}")] if settings.early_stop else []
    begin = time.perf_counter()
    run = fit(
        model, training, None, optimizer, epochs=settings.epochs, validation=validation, metrics=task.metrics(), scheduler=scheduler,
        scheduler_each="step", clip=1.0, amp=settings.amp, compile=settings.compile, device=settings.device, step=task.step,
        callbacks=callbacks, resume=state,
    )  # fmt: skip
    model.load_state_dict(gl.load(files.checkpoints / "best.safetensors"))
    gl.save(model.state_dict(), files.weights)
    best = max(line[f"validation_{task.score}"] for line in run.history)
    seconds = round(description.get("result", {}).get("seconds", 0.0) + time.perf_counter() - begin, 1)
    measured = evaluate(model, validation, task.step, run.metrics, settings.device)
    description["result"] = {"epochs": run.epoch, "best": best, "seconds": seconds, "stopped": run.stop, "validation": measured}
    _write(files, description)
    trained = load_run(files.folder, settings.device)
    trained.task.dataset = task.dataset
    write_report(files, trained, run.history)
    return trained


def _summary(task: TableTask) -> str:
    """What is learned from what; a line for each thing found in the table."""
    dataset, target = task.learned(), task.target
    kinds = list(task.coding.kinds.values())
    columns = ", ".join(f"{kinds.count(kind)} {word}" for kind, word in WORDS.items() if kind in kinds)
    what = f"one of {len(target.classes)} classes" if target.classes else "a number"
    weighed = "" if task.weights is None else "; rare classes weigh as much as common ones"
    head = f"{len(dataset.training_rows):,} rows to train on, {len(dataset.validation_rows):,} held out; {columns}"
    return "\n".join([f"{head}; {target.name} is {what}{weighed}", *(f"note: {note}" for note in dataset.notes)])


def _rate(step: int, steps: int) -> float:
    """Of the peak: rising in a line over the first tenth, then falling along half a cosine."""
    rise = max(1, round(WARM_UP * steps))
    return (step + 1) / rise if step < rise else 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise))))


def _line(run: Any, task: TableTask) -> str:
    line = run.history[-1]
    shown = {name: line[f"validation_{name}"] for name in dict.fromkeys(("loss", task.score, *run.metrics.metrics))}
    values = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
    return f"epoch {run.epoch:>{len(str(run.epochs))}}/{run.epochs}  training loss {line['loss']:.4g}  validation: {values}"


def _write(files: Files, description: dict[str, Any]) -> None:
    write_text(files.description, json.dumps(description, indent=1) + "\n")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(), "numpy": np.__version__, "gradlab": __version__, "machine": platform.machine(),
        "system": platform.system(), "processors": os.cpu_count(),
    }  # fmt: skip
