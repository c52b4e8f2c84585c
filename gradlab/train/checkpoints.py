"""Checkpoints of a run: written while it trains, the last few and the best, and read again to go on from."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradlab as gl
from gradlab.advice import GradlabWarning, warn
from gradlab.train.callbacks import Watch, length
from gradlab.train.interruption import interruption


class Checkpoint(Watch):
    """The run's state in a folder: after each epoch and, where `every` is given, after so many batches; the last `keep`, and the best.

    Files are `checkpoint-EPOCH-BATCH.safetensors`, written whole or not at all and with a checksum, and `best.safetensors`, the model's
    state dict of the epoch with the best `monitor` (None: no such file). Ctrl-C, SIGTERM and SIGHUP are waited for: the batch is finished,
    the state saved, and the loop ends with `run.stop` set. `read_checkpoint` finds the newest.

    A new run in a folder that holds another's checkpoints is a FileExistsError. A run that goes on takes away those that are after its
    place: they are damaged, or of a course that was given up.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, every: int | None = None, keep: int = 3, monitor: str | None = "validation_loss"
    ) -> None:
        super().__init__(monitor or "")
        if keep < 1:
            raise ValueError(f"Checkpoint: keeps one file at least, not {keep}")
        self.folder, self.every, self.keep = Path(folder), every, keep
        self.best_weights = self.folder / "best.safetensors"
        self.signals: Any = None
        self.asked: Any = None

    def begin(self, run: Any) -> bool:  # type: ignore[override]
        at_best = super().begin(run)
        self.folder.mkdir(parents=True, exist_ok=True)
        place = run.epoch, run.batch
        later = [path for path in _checkpoints(self.folder) if _place(path) > place]
        if later and place == (0, 0):
            raise FileExistsError(
                f"Checkpoint: {self.folder} holds checkpoints of another run, the newest {later[0].name}: go on with that one, by "
                f"resume=gl.train.read_checkpoint(folder), or name another folder"
            )
        if at_best and not run.batch:  # within an epoch the weights are those of no line of the history
            gl.save(run.trained.state_dict(), self.best_weights)
        elif self.monitor and not math.isnan(self.best):
            self._look_for_best()
        self.signals = interruption()
        self.asked = self.signals.__enter__()
        self.save(run)  # it shows now, not after an epoch, that saving works
        for path in later:
            path.unlink(missing_ok=True)
        return at_best

    def _look_for_best(self) -> None:
        """Where the best weights so far cannot be read, the best from here on are kept in their place."""
        try:
            gl.load(self.best_weights, map_location="cpu")
        except (OSError, ValueError) as error:
            what = f"the weights of epoch {self.when}, the best so far, cannot be read ({error}); the best from here on are kept"
            warn(GradlabWarning, f"Checkpoint: {what}")
            self.best = math.nan

    def batch_end(self, run: Any) -> None:
        if self.asked.requested():
            run.stop = f"signal {self.asked.signal}"
        if run.whole and run.batch != length(run.loader) and (run.stop or (self.every and run.batch % self.every == 0)):
            self.save(run)

    def epoch_end(self, run: Any) -> None:
        if self.monitor and self.better(run, run.history[-1]):
            gl.save(run.trained.state_dict(), self.best_weights)
        self.save(run)
        if self.asked.requested() and not run.finished:  # while the validation was measured
            run.stop = f"signal {self.asked.signal}"

    def end(self, run: Any) -> None:
        if self.signals is not None:
            self.signals.__exit__(None, None, None)

    def save(self, run: Any) -> None:
        """Write the state now, and take away those that are too many."""
        gl.save({"run": run.state_dict()}, self.folder / f"checkpoint-{run.epoch}-{run.batch}.safetensors")
        here = [path for path in _checkpoints(self.folder) if _place(path) <= (run.epoch, run.batch)]
        for old in here[self.keep :]:
            old.unlink(missing_ok=True)


def _place(path: Path) -> tuple[int, int]:
    """The epoch and the batch in a checkpoint's name; (-1, -1) for any other file."""
    match = re.fullmatch(r"checkpoint-(\d+)-(\d+)\.safetensors", path.name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def _checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted((path for path in folder.glob("checkpoint-*.safetensors") if _place(path) >= (0, 0)), key=_place, reverse=True)


def read_checkpoint(path: str | os.PathLike[str], say: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The run's state in a file or, of a folder, in the newest checkpoint that can be read: what `fit` takes as `resume`.

    say: is told which newer ones could not be read, and why; by default a GradlabWarning says it.
    FileNotFoundError where there is none, ValueError where none can be read, naming each and its fault.
    """
    place = Path(path)
    files = _checkpoints(place) if place.is_dir() else [place]
    if not files:
        raise FileNotFoundError(f"read_checkpoint: there is no checkpoint in {place}")
    faults = []
    for file in files:
        try:
            state: dict[str, Any] = gl.load(file, map_location="cpu")["run"]  # parts put it on their devices
        except (ValueError, KeyError, TypeError) as error:
            faults.append(str(error) if str(file) in str(error) else f"{file}: {error}")
        except OSError as error:
            if file is place:
                raise
            faults.append(f"{file}: {error.strerror}")
        else:
            if faults:
                text = f"{'; '.join(faults)}. Going on from the one before, {file.name}"
                say(text) if say is not None else warn(GradlabWarning, f"read_checkpoint: {text}")
            return state
    raise ValueError("read_checkpoint: no checkpoint can be read: " + "; ".join(faults))
