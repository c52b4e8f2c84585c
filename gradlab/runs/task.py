"""What a kind of run has to say: of its data, model, loss and measures, of what simpler models reach, and of how it is used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

import gradlab as gl
from gradlab import nn
from gradlab.metrics import Metric

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun
    from gradlab.runs.interface import Interface
    from gradlab.runs.training import Settings

Baselines = dict[str, dict[str, float]]  # what simpler models reach: by their names, by the metric


def literal(text: str) -> str:
    """A text as Python's code has it, between double quotes."""
    return json.dumps(text, ensure_ascii=False)


class Task:
    """Base class; a kind of run is one subclass, which `kinds.py` lists.

    kind: its name. goal: what is learned, in a few words. score: the metric by which runs are compared, better where it is `greater`.
    defaults: the settings that suit it (epochs, batch_size, learning_rate, weight_decay). notes: what was found strange in the data.
    beginning: what the model is before its first epoch. clip: the largest norm of the gradients. validated: whether there is a validation
    part, on which epochs are compared; else they are by what the score is in training.
    """

    kind = ""
    goal = ""
    score = "loss"
    greater = False
    defaults: Mapping[str, Any] = {"epochs": 20, "batch_size": 64, "learning_rate": 3e-3, "weight_decay": 0.01}
    notes: Sequence[str] = ()
    beginning = "the model as it was made"
    clip: float | None = 1.0
    validated = True
    unfit = ""  # what else is said where the model does not take its weights

    # ------------------------------------------------------------ data

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> Self:
        """From data to learn from. DataError where that cannot be learned from; nothing is written."""
        raise NotImplementedError

    @classmethod
    def located(cls, source: Any) -> str | None:
        """Where the data is found again, to go on; None for data in memory."""
        return str(Path(source).resolve()) if isinstance(source, (str, os.PathLike)) else None

    @classmethod
    def fingerprint(cls, source: str) -> str:
        """A SHA-256 of located data, which a run that goes on has to find as it was. FileNotFoundError where it is gone."""
        path, digest = Path(source), hashlib.sha256()
        for file in cls.files_of(path):
            if path.is_dir():
                digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()

    @classmethod
    def files_of(cls, path: Path) -> Iterable[Path]:
        """The files of located data, in an order of their own: of a folder all that are read."""
        return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]

    def state(self) -> dict[str, Any]:
        """What using the model needs, for JSON: classes, vocabulary, statistics, layers. `from_state` is the inverse, but for the data."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    def variants(self) -> Mapping[str, Sequence[Any]]:
        """What of the model a search tries: entries of the settings that `of` takes, and values for each."""
        return {}

    # ------------------------------------------------------------ learning

    def summary(self) -> str:
        """What is learned from what; a line for each thing that was found in the data."""
        return "\n".join([self.facts(), *(f"note: {note}" for note in self.notes)])

    def facts(self) -> str:
        """What is learned from what, in a line or two."""
        return self.goal

    def model(self) -> nn.Module:
        raise NotImplementedError

    def step(self, model: nn.Module, batch: Any) -> Any:
        """The loss of a batch, or (loss, outputs, targets)."""
        raise NotImplementedError

    def metrics(self) -> dict[str, Metric]:
        return {}

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        """Of the training and of the validation part."""
        raise NotImplementedError

    def optimizer(self, model: nn.Module, settings: Settings) -> Any:
        return gl.optim.AdamW(model.parameters(), lr=settings.learning_rate or 1e-3, weight_decay=settings.weight_decay or 0.0)

    def scheduler(self, optimizer: Any, steps: int) -> Any:
        """Stepped after each batch: rising in a line over the first tenth of all steps, then falling along half a cosine."""
        return gl.optim.lr_scheduler.LambdaLR(optimizer, lambda step: gl.train.warm_cosine(step, steps))

    def fitting(self) -> dict[str, Any]:
        """What `gl.train.fit` is told besides: accumulate, average, callbacks, …"""
        return {"scheduler_each": "step", "clip": self.clip}

    def baselines(self, model: nn.Module) -> Baselines:
        """What simpler models reach on the validation part. They may be put into `model` as its beginning."""
        return {}

    # ------------------------------------------------------------ using

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        """The metrics on other data that holds what is to be predicted."""
        raise NotImplementedError

    def predict(self, model: nn.Module, source: Any) -> dict[str, Any]:
        """Predictions: columns by name."""
        raise NotImplementedError

    def predicted(self, model: nn.Module, sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """What `gradlab predict` writes: columns by name, and what is to be said of the data."""
        return self.predict(model, sources[0] if len(sources) == 1 else sources), []

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        """What `gradlab evaluate` says: the metrics, and what is to be said of the data."""
        return self.evaluate(model, source), []

    def interface(self, model: nn.Module) -> Interface:
        """How the model is called from elsewhere, for `gradlab export`."""
        raise NotImplementedError(f"a run of {self.kind} cannot be exported")

    # ------------------------------------------------------------ the report

    def title(self, source: str) -> str:
        return f"{self.goal} from {source.rsplit('/', 1)[-1]}"

    def sections(self, trained: TrainedRun) -> list[tuple[str, str]]:
        """What this kind shows: a heading and HTML each (see `html.py`)."""
        return []

    def usage(self, folder: str) -> list[str]:
        """How the run is used: texts to copy, from the shell and from Python."""
        return [
            f"gradlab predict {quote(folder)} new.csv --out predictions.csv\ngradlab evaluate {quote(folder)} other.csv",
            f'import gradlab as gl\n\nrun = gl.load_run({literal(folder)})\n'
            'run.predict("new.csv")["prediction"]\nrun.model  # an nn.Module',
        ]


def shuffled(samples: Any, batch_size: int, seed: int, drop_last: bool | None = None) -> Any:
    """Batches in an order that the seed decides, anew for each epoch. drop_last: None drops a last one of a single sample, which cannot be
    normalised."""
    many = len(samples)
    single = many > batch_size and many % batch_size == 1
    generator = gl.Generator().manual_seed(seed)
    last = single if drop_last is None else drop_last
    return gl.utils.data.DataLoader(samples, min(batch_size, many), shuffle=True, drop_last=last, generator=generator)
