"""What can be trained: one row per data set, with its models and the settings that suit each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradlab import nn
from gradlab.data import digits, digits_split
from gradlab.models.digits import DigitsCNN, DigitsMLP


@dataclass(frozen=True)
class Examples:
    """Images, float32 [n, channels, height, width], and labels, int64 [n]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """A model and the settings it is trained with unless the user says otherwise."""

    build: Callable[[], nn.Module]
    epochs: int
    learning_rate: float
    batch_size: int = 64


@dataclass(frozen=True)
class Task:
    """A data set, as a training and a held-out part, and the models made for it; the first one is the default."""

    name: str
    load: Callable[[], tuple[Examples, Examples]]
    recipes: Mapping[str, Recipe]


def load_digits() -> tuple[Examples, Examples]:
    """The digits with ink scaled to 0 … 1."""
    pixels, labels = digits()
    images = (pixels[:, np.newaxis] / 16).astype(np.float32)

    def part(index: NDArray[Any]) -> Examples:
        return Examples(images[index], labels[index])

    training, held_out = digits_split()
    return part(training), part(held_out)


TASKS = {
    task.name: task
    for task in (
        Task(
            "digits",
            load_digits,
            {
                # Each reaches its accuracy for every seed tried: see tests/test_train.py.
                "cnn": Recipe(DigitsCNN, epochs=15, learning_rate=4e-3),
                "mlp": Recipe(DigitsMLP, epochs=30, learning_rate=3e-3),
            },
        ),
    )
}
