"""The settings of a run: what the user asked for, with defaults filled in, and the same settings read back."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from gradlab.cli.arguments import SEEDS
from gradlab.cli.devices import best_device, usable_device
from gradlab.cli.failure import Failure, chosen
from gradlab.cli.tasks import TASKS, Recipe, Task


@dataclass(frozen=True)
class Config:
    """Everything that decides the numbers of a run, and the device it runs on."""

    dataset: str
    model: str
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    device: str

    @property
    def task(self) -> Task:
        return TASKS[self.dataset]

    @property
    def recipe(self) -> Recipe:
        return self.task.recipes[self.model]

    def saved(self) -> dict[str, str | int | float]:
        return asdict(self)


def requested_config(options: argparse.Namespace) -> Config:
    """The settings of a new run; what was not given comes from the model's recipe."""
    task = TASKS[options.dataset]
    model = chosen("model", options.model or next(iter(task.recipes)), task.recipes)
    recipe = task.recipes[model]
    return Config(
        dataset=task.name,
        model=model,
        epochs=options.epochs or recipe.epochs,
        batch_size=options.batch_size or recipe.batch_size,
        learning_rate=options.lr or recipe.learning_rate,
        seed=options.seed or 0,
        device=usable_device(options.device or best_device()),
    )


def saved_config(saved: object) -> Config | None:
    """The settings read back from a checkpoint or a config.json, or None if they are not such settings."""
    if not isinstance(saved, Mapping):
        return None
    values: dict[str, Any] = {field.name: saved.get(field.name) for field in fields(Config)}
    if not all(isinstance(values[name], str) for name in ("dataset", "model", "device")):
        return None
    if not all(type(values[name]) is int for name in ("epochs", "batch_size", "seed")):
        return None
    rate = values["learning_rate"]
    if not isinstance(rate, float) or not 0 < rate < math.inf:
        return None
    if values["epochs"] < 1 or values["batch_size"] < 1 or not 0 <= values["seed"] < SEEDS:
        return None
    if values["dataset"] not in TASKS or values["model"] not in TASKS[values["dataset"]].recipes:
        return None
    return Config(**values)


def resumed_config(started: Config, options: argparse.Namespace) -> Config:
    """The settings to go on with: those the run was started with. Only the device may be another one.

    A resumed run that quietly changed its settings would be a third run, neither the old one nor a new one.
    """
    given = {
        "dataset": ("the data set", options.dataset),
        "model": ("--model", options.model),
        "epochs": ("--epochs", options.epochs),
        "batch_size": ("--batch-size", options.batch_size),
        "learning_rate": ("--lr", options.lr),
        "seed": ("--seed", options.seed),
    }
    changed = [
        f"{option} {getattr(started, name)}, not {value}"
        for name, (option, value) in given.items()
        if value is not None and value != getattr(started, name)
    ]
    if changed:
        raise Failure(
            f"the run to resume was started with {' and '.join(changed)}; a resumed run keeps its settings: "
            f"leave that out, or start a new run without --resume"
        )
    return replace(started, device=usable_device(options.device or started.device))
