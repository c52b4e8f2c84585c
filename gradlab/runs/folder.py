"""The folder of a run, which holds all that belongs to it, and the run that is found in one."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import gradlab as gl
from gradlab import nn
from gradlab.data import DataError
from gradlab.device import Device
from gradlab.runs.kinds import KINDS, task_of
from gradlab.runs.task import Task
from gradlab.train.callbacks import curves
from gradlab.utils.serialization.errors import brief
from gradlab.viz.html_table import html_table

FORMAT, VERSION = "gradlab run", 2
# What a damaged description ends in:
DAMAGED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, RecursionError)


class RunError(RuntimeError):
    """A folder that is no run, or a run that cannot be used as was asked."""


class Files:
    """What lies in a run's folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.description = self.folder / "run.json"  # the task, the settings, what simpler models reach
        self.checkpoints = self.folder / "checkpoints"  # to go on from, and the best
        self.weights = self.folder / "model.safetensors"  # the best epoch's
        self.epochs = self.folder / "epochs.csv"
        self.report = self.folder / "report.html"

    def read(self) -> dict[str, Any]:
        """The description; RunError where there is none that this gradlab can read."""
        try:
            found = json.loads(self.description.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunError(f"{self.folder} is no folder of a run: {self.description.name} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{self.description} is damaged: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise RunError(f"{self.description} describes no run")
        if found.get("version") != VERSION:
            raise RunError(f"{self.folder} was written by gradlab {found.get('gradlab')}, in a way that this one cannot read")
        if lacking := {"kind", "goal", "source", "sha256", "settings", "task", "score", "greater", "baselines"} - set(found):
            raise RunError(f"{self.description} is damaged: it lacks {', '.join(sorted(lacking))}")
        if not isinstance(found["kind"], str) or found["kind"] not in KINDS:
            raise RunError(f"{self.description} is damaged: {str(found['kind'])[:80]!r} is no kind of run; those are {', '.join(KINDS)}")
        return found


@dataclass
class TrainedRun:
    """A run read back: `model` is the best epoch's, in evaluation mode; `task` knows how its data is coded."""

    folder: Path
    description: dict[str, Any]
    task: Task
    model: nn.Module

    def _repr_html_(self) -> str:
        """The result beside the simpler models', and the curves."""
        score, result = self.description["score"], self.description["result"]
        rows = [("this run", result["best"])] + [(name, values.get(score)) for name, values in self.description["baselines"].items()]
        note = f"{result['epochs']} epochs in {result['seconds']:g} s; {self.folder}"
        return html_table(f"A run of kind {self.task.kind}", ("", score.replace("_", " ")), rows, note) + curves(self.history)

    @property
    def history(self) -> list[dict[str, float]]:
        """A line for each epoch, as in epochs.csv."""
        found: list[dict[str, float]] = gl.train.read_checkpoint(Files(self.folder).checkpoints)["counts"]["history"]
        return found

    def predict(self, source: Any) -> dict[str, Any]:
        """Predictions for data as it was trained on: columns by name (see the task's `predict`)."""
        return self.task.predict(self.model, source)

    def export(self, path: str | os.PathLike[str]) -> Any:
        """Write the model as path.onnx, .glp, .c or .html (a page), checked; with what its numbers mean (see `exporting.export_run`)."""
        return import_module("gradlab.runs.exporting").export_run(self, path)

    def evaluate(self, source: Any) -> dict[str, float]:
        """The metrics of data that holds what is to be predicted."""
        return self.task.evaluate(self.model, source)

    def sample(
        self, prompt: str = "", length: int = 500, *, temperature: float = 0.8, top_k: int | None = None, seed: int = 0
    ) -> str:
        """A prompt and the `length` characters that a language model writes after it; `task.sample` gives them piece by piece.

        RunError where the run is of no text. A warning where the prompt has characters that the training text has not.
        """
        task: Any = self.task
        if task.kind != "text":
            raise RunError(f"{self.folder} is a run of kind {task.kind}; only runs of texts write")
        for note in task.begun(prompt)[1]:
            warnings.warn(note, stacklevel=2)
        return prompt + "".join(task.sample(self.model, prompt, length, temperature=temperature, top_k=top_k, seed=seed))


def load_run(path: str | os.PathLike[str], device: Any = "cpu") -> TrainedRun:
    """The run in a folder: its model, with the coding of the data it was trained on. RunError where there is none.

        run = gl.load_run("runs/table-1")
        run.predict("new.csv")["prediction"]
    """
    files = Files(path)
    description = files.read()
    try:
        task = task_of(description["kind"]).from_state(description["task"])
    except DAMAGED as error:
        raise RunError(f"{files.description} is damaged: the task cannot be read ({type(error).__name__}: {brief(error)})") from error
    weights = next((p for p in (files.weights, files.checkpoints / "best.safetensors") if p.exists()), None)
    if weights is None:
        raise RunError(f"{files.folder} has no weights yet: the run was stopped before its first epoch; resume it")
    try:
        _expect_room(task, weights)
        model = task.model()
    except DataError as error:  # as where a function is gone that made it
        raise RunError(f"{files.folder} cannot be read back: {error}") from error
    except DAMAGED as error:
        if task.kind == "function":  # the user's own, which fails for reasons of its own
            raise
        raise RunError(f"{files.description} is damaged: no model can be made of it ({type(error).__name__}: {brief(error)})") from error
    try:
        model.load_state_dict(gl.load(weights, map_location="cpu"))
    except (ValueError, RuntimeError, KeyError) as error:
        raise RunError(f"{weights} does not hold this run's weights{task.unfit}: {error}") from error
    return TrainedRun(files.folder, description, task, model.to(device).eval())


def _expect_room(task: Task, weights: Path) -> None:
    """ValueError where the description asks for a model whose weights are larger than the file of them, which memory might not hold."""
    if task.kind == "function":
        return
    with Device("meta"):
        size = sum(tensor.nbytes for tensor in task.model().state_dict().values())
    if size > weights.stat().st_size:
        raise ValueError(f"its model has {size:,} bytes of weights, and {weights.name} {weights.stat().st_size:,} bytes")


def runs_in(folder: str | os.PathLike[str] = "runs") -> list[dict[str, Any]]:
    """The runs in a folder, a line for each: folder, kind, data, goal, epochs, its score and a simpler model's, seconds, device."""
    lines = []
    for path in sorted(Path(folder).glob("*/run.json"), key=lambda p: p.stat().st_mtime):
        try:
            found = Files(path.parent).read()
        except RunError:
            continue
        result = found.get("result", {})
        lines.append({
            "run": str(path.parent), "kind": found["kind"], "data": found["source"], "goal": found["goal"],
            "epochs": f"{result.get('epochs', 0)}/{found['settings']['epochs']}", "score": found["score"], "best": result.get("best"),
            "simpler": best_simpler(found), "seconds": result.get("seconds"),
            "device": found["settings"]["device"],
        })  # fmt: skip
    return lines


def best_simpler(description: dict[str, Any]) -> float | None:
    """The best score of the simpler models; None where there are none."""
    found = [values[description["score"]] for values in description["baselines"].values()]
    return (max if description["greater"] else min)(found, default=None)


def beaten(description: dict[str, Any]) -> bool:
    """Whether the run is better than every simpler model by its score."""
    best, simpler = description["result"]["best"], best_simpler(description)
    return simpler is None or (best > simpler + 1e-9 if description["greater"] else best < simpler - 1e-9)
