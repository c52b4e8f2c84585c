"""From data to a run in its folder, and from a run that was stopped to its end."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import gradlab as gl
from gradlab._version import __version__
from gradlab.runs.environment import environment, most_memory
from gradlab.runs.folder import FORMAT, VERSION, Files, RunError, TrainedRun
from gradlab.runs.kinds import task_of
from gradlab.runs.profiled import Profiled
from gradlab.runs.report import write_report
from gradlab.runs.task import Task
from gradlab.train import Bar, Callback, Checkpoint, EarlyStop, StateError, TableOfEpochs, evaluate, fit, read_checkpoint, shared
from gradlab.train.callbacks import length
from gradlab.utils.atomic import write_text

UNTIL = "left off after"  # how the reason begins with which a run stops that is to be gone on with


@dataclass(frozen=True)
class Settings:
    """How a run is trained; what is None is chosen by the task. `data` is what the task is told (target, model, seed of the split, …)."""

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    amp: str | None = None
    early_stop: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def filled(self, task: Task) -> Settings:
        """With the task's defaults where nothing was asked for."""
        return replace(self, **{name: value for name, value in task.defaults.items() if getattr(self, name) is None})


class Measured(Callback):
    """A line of the history for the state before the first epoch."""

    def begin(self, run: Any) -> None:
        if not run.history and run.validation is not None:
            found = evaluate(run.model, run.validation, run.step, run.metrics, run.device)
            run.history.append({"epoch": 0.0, "loss": math.nan, **{f"validation_{name}": value for name, value in found.items()}})


def start(
    source: Any, folder: str | os.PathLike[str], settings: Settings, say: Callable[[str], None] = print, kind: str = "table",
    *, profile: bool = False, until: int | None = None,
) -> TrainedRun:  # fmt: skip
    """Train a model of a kind's data in a new folder. DataError where that cannot be learned from: then nothing is written.

    profile: look at some steps, for the report. until: stop after that many epochs of those that the settings plan, to go on later.
    """
    which = task_of(kind)
    gl.manual_seed(settings.seed)
    task = which.of(source, settings.data)
    say(task.summary())
    settings = settings.filled(task)
    files = Files(folder)
    gl.manual_seed(settings.seed)
    model, loaders = task.model(), task.loaders(settings.batch_size or 1, settings.seed)
    place = which.located(source)
    description = {
        "format": FORMAT, "version": VERSION, "gradlab": __version__, "kind": kind, "goal": task.goal, "source": place or "memory",
        "sha256": None if place is None else which.fingerprint(place), "settings": asdict(settings), "task": task.state(),
        "score": task.score, "greater": task.greater, "parameters": sum(p.numel() for p in model.parameters()),
        "baselines": task.baselines(model), "notes": list(task.notes), "environment": environment(),
    }  # fmt: skip
    files.folder.mkdir(parents=True, exist_ok=True)
    write_description(files, description)
    return _train(files, description, task, model, loaders, settings, None, say, profile, until)


def resume(
    folder: str | os.PathLike[str], epochs: int | None = None, device: str | None = None, say: Callable[[str], None] = print,
    *, profile: bool = False, until: int | None = None,
) -> TrainedRun:  # fmt: skip
    """Go on with a run where it was stopped, or for more epochs than it had. RunError where its data has changed, or it is finished.

    profile, until: as for `start`.
    """
    files = Files(folder)
    description = files.read()
    settings = saved_settings(files, description)
    settings = replace(settings, epochs=epochs or settings.epochs, device=device or settings.device)
    try:
        state = read_checkpoint(files.checkpoints, say)
        done = state["counts"]["epoch"]
    except (FileNotFoundError, ValueError) as error:
        raise RunError(f"{folder} cannot be gone on with: {error}") from error
    except (KeyError, TypeError) as error:
        raise RunError(f"{folder} cannot be gone on with: its checkpoint does not fit: it lacks {error}") from error
    stopped = description.get("result", {}).get("stopped", "")
    if stopped and not stopped.startswith(("signal", UNTIL)) and epochs is None:
        raise RunError(f"{folder} is finished: {stopped}; ask for more with a larger number of epochs")
    if done >= (settings.epochs or 0) and description.get("result", {}).get("epochs") == done:  # or killed before its end was written
        raise RunError(f"{folder} is finished: it has {done} epochs; ask for more with a larger number of epochs")
    if description["sha256"] is None:
        raise RunError(f"{folder} was trained on data in memory; only a run of a file can be resumed")
    source, which = description["source"], task_of(description["kind"])
    try:
        changed = which.fingerprint(source) != description["sha256"]
    except OSError:
        raise RunError(f"{source} is gone since the run was started; put it back, or start a new run") from None
    if changed:
        raise RunError(f"{source} has changed since the run was started; put it back, or start a new run")
    gl.manual_seed(settings.seed)
    task = which.of(source, settings.data)
    gl.manual_seed(settings.seed)
    description["settings"] = asdict(settings)
    write_description(files, description)
    model, loaders = task.model(), task.loaders(settings.batch_size or 1, settings.seed)
    return _train(files, description, task, model, loaders, settings, state, say, profile, until)


def saved_settings(files: Files, description: dict[str, Any]) -> Settings:
    """The settings in a run's description; RunError where they are none."""
    found = description["settings"]
    if not isinstance(found, dict) or set(found) != {f.name for f in fields(Settings)} or not isinstance(found["data"], dict):
        raise RunError(f"{files.description} is damaged: its settings cannot be read")
    return Settings(**found)


def _train(
    files: Files, description: dict[str, Any], task: Task, model: Any, loaders: tuple[Any, Any], settings: Settings, state: Any,
    say: Callable[[str], None], profile: bool = False, until: int | None = None,
) -> TrainedRun:  # fmt: skip
    epochs, (training, validation), extra = settings.epochs or 1, loaders, task.fitting()
    monitor = f"validation_{task.score}" if task.validated else task.score
    model = model.to(settings.device)
    optimizer = task.optimizer(model, settings)
    scheduler = task.scheduler(optimizer, epochs * length(training))
    callbacks: list[Any] = [Measured(), Bar(lines=False), Checkpoint(files.checkpoints, monitor=monitor)]
    callbacks += [TableOfEpochs(files.epochs), lambda run: say(_line(run, task))]
    callbacks += [EarlyStop(settings.early_stop, monitor)] if settings.early_stop else []
    callbacks += extra.pop("callbacks", [])
    callbacks += [Profiled(files.folder)] if profile else []
    callbacks += [lambda run: _stop_after(run, until)] if until is not None else []
    begin = time.perf_counter()
    step = shared(task.step, model)
    try:
        run = fit(
            model, training, None, optimizer, epochs=epochs, validation=validation, metrics=task.metrics() or None, scheduler=scheduler,
            amp=settings.amp, compile=settings.compile, device=settings.device, step=step, callbacks=callbacks, resume=state, **extra,
        )  # fmt: skip
    except StateError as error:
        raise RunError(f"{files.folder} cannot be gone on with: its checkpoint does not fit{task.unfit}: {error}") from error
    best_state = gl.load(files.checkpoints / "best.safetensors", map_location="cpu")
    if run.average is not None:  # whose state is the model's, but for its count
        best_state = {name.removeprefix("module."): value for name, value in best_state.items() if name != "n_averaged"}
    model.load_state_dict(best_state)
    gl.save(model.state_dict(), files.weights)
    best = (max if task.greater else min)(line[monitor] for line in run.history)
    seconds = round(description.get("result", {}).get("seconds", 0.0) + time.perf_counter() - begin, 1)
    measured = evaluate(model, validation, task.step, run.metrics, settings.device) if task.validated else {}
    result = {"epochs": run.epoch, "best": best, "seconds": seconds, "stopped": run.stop, "validation": measured}
    description["result"] = result | {"memory": most_memory()}
    trained = TrainedRun(files.folder, description, task, model.eval())
    write_report(files, trained, run.history)
    write_description(files, description)  # last: a run that has a result is finished
    return trained


def _stop_after(run: Any, epochs: int) -> None:
    if run.epoch >= epochs and not run.finished and not run.stop:
        run.stop = f"{UNTIL} {epochs} of {run.epochs} epochs"


def _line(run: Any, task: Task) -> str:
    line = run.history[-1]
    names = list(dict.fromkeys(("loss", task.score, *task.metrics())))[:4] if task.validated else []
    shown = {name: line[f"validation_{name}"] for name in names}
    values = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
    head = f"epoch {run.epoch:>{len(str(run.epochs))}}/{run.epochs}  training loss {line['loss']:.4g}"
    return f"{head}  validation: {values}" if names else head


def write_description(files: Files, description: dict[str, Any]) -> None:
    """run.json, whole or not at all."""
    write_text(files.description, json.dumps(description, indent=1) + "\n")
