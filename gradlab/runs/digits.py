"""The task of the digits that come with gradlab: images that need no folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

import gradlab as gl
from gradlab import models, nn
from gradlab.data import digits, digits_split
from gradlab.runs.images import ImagesTask


class DigitsTask(ImagesTask):
    """The 1,797 handwritten digits that come with gradlab: bright ink on black, 8x8."""

    kind = "digits"
    goal = "a handwritten digit"
    clip = None
    networks: ClassVar = {"cnn": lambda *shape: models.DigitsCNN(), "mlp": lambda *shape: models.DigitsMLP()}

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> Self:
        """source: "digits". settings: model ("cnn", "mlp")."""
        pixels, labels = digits()
        task = cls([str(i) for i in range(10)], (8, 8), 1, settings.get("model") or "cnn")
        task.learning(np.rint(pixels[..., None] * (255 / 16)).astype(np.uint8), labels, digits_split())
        epochs, rate = {"cnn": (15, 4e-3), "mlp": (30, 3e-3)}[task.network]  # accuracy for every seed tried: see tests/test_image_runs.py
        task.defaults = {"epochs": epochs, "batch_size": 64, "learning_rate": rate, "weight_decay": 0.01}
        return task

    @classmethod
    def located(cls, source: Any) -> str:
        return "digits"

    @classmethod
    def fingerprint(cls, source: str) -> str:
        return "the package's"

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        """On a folder with a folder for each digit, or on the held-out digits themselves ("digits")."""
        if source != "digits":
            return super().evaluated(model, source)
        task = self.of(source, {"model": self.network})
        images, labels = task.tensors(task.rows[1])
        return self.measured(gl.train.predict(model, [images], next(model.parameters()).device), labels), []
