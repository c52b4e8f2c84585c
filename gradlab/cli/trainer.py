"""The training loop: one epoch after another, stoppable after any batch and resumable there, bit for bit.

Resuming is exact because the checkpoint holds the random state as it was after the last batch (for dropout), the
loader's place in its order, and the sums over the epoch so far; and because the learning rate is a function of the
step's number alone.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.cli.config import Config
from gradlab.cli.run_folder import EpochResult
from gradlab.cli.tasks import Examples
from gradlab.train.divergence import ADVICE, Diverged, broken_value, origin
from gradlab.utils.data import DataLoader, TensorDataset

WARM_UP = 0.1  # part of all steps
WEIGHT_DECAY = 0.01
EVALUATION_BATCH = 512


def learning_rate(step: int, steps: int, peak: float) -> float:
    """The rate of step 0 … steps-1: rising in a line over the first tenth, then falling to 0 along half a cosine."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return peak * (step + 1) / rise
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


@dataclass
class Progress:
    """How far the current epoch (counted from 0) is, and the sums over the images it has seen."""

    epoch: int = 0
    batch: int = 0
    seen: int = 0
    correct: int = 0
    loss: float = 0.0
    seconds: float = 0.0


@dataclass
class Trainer:
    """A model with its optimizer, its data and its place in the run."""

    config: Config
    training: Examples
    held_out: Examples
    model: nn.Module = field(init=False)
    progress: Progress = field(init=False, default_factory=Progress)
    history: list[EpochResult] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        gl.manual_seed(config.seed)
        self.model = config.recipe.build().to(config.device)
        self.optimizer = gl.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=WEIGHT_DECAY
        )
        # The order of the images has a stream of its own: a model with more dropout sees the same order.
        self.generator = gl.Generator()
        self.generator.manual_seed(config.seed)
        examples = TensorDataset(gl.from_numpy(self.training.images), gl.from_numpy(self.training.labels))
        self.loader: DataLoader[Any] = DataLoader(examples, config.batch_size, shuffle=True, generator=self.generator)

    @property
    def finished(self) -> bool:
        return self.progress.epoch == self.config.epochs

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def run_epoch(self, stop: Callable[[], bool]) -> bool:
        """The rest of the current epoch. True when it is complete, False when `stop()` became true before."""
        progress = self.progress
        self.model.train()
        with tqdm(
            desc=f"epoch {progress.epoch + 1}/{self.config.epochs}",
            total=len(self.loader),
            initial=progress.batch,
            unit="batch",
            leave=False,
            disable=None,  # no bar where stderr is not a terminal
            file=sys.stderr,
        ) as bar:
            for images, labels in self.loader:
                start = time.perf_counter()
                self.train_batch(images, labels)
                progress.seconds += time.perf_counter() - start
                bar.update()
                bar.set_postfix(loss=f"{progress.loss / progress.seen:.4f}", refresh=False)
                if stop() and progress.batch < len(self.loader):
                    return False
        self.close_epoch()
        return True

    def train_batch(self, images: Tensor, labels: Tensor) -> None:
        progress, config = self.progress, self.config
        step = progress.epoch * len(self.loader) + progress.batch
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, config.epochs * len(self.loader), config.learning_rate)
        images, labels = images.to(config.device), labels.to(config.device)
        random_state = gl.get_rng_state()
        self.optimizer.zero_grad()
        logits = self.model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        value = float(loss.item())
        if not math.isfinite(value):
            gl.set_rng_state(random_state)
            place = f"epoch {progress.epoch + 1}, batch {progress.batch + 1}"
            where = origin(self.model, lambda: nn.functional.cross_entropy(self.model(images), labels))
            raise Diverged(f"the loss became {value} in {place}: {where}")
        loss.backward()
        self.optimizer.step()
        progress.batch += 1
        progress.seen += len(labels)
        progress.correct += int((logits.argmax(1) == labels).sum().item())
        progress.loss += value * len(labels)

    def close_epoch(self) -> None:
        """Measures the held-out part, notes the epoch's results, and stands at the start of the next one."""
        progress = self.progress
        held_out_loss, held_out_accuracy = self.evaluate()
        if not math.isfinite(held_out_loss):
            place = broken_value(self.model.state_dict().items()) or "the model"
            raise Diverged(
                f"the held-out loss became {held_out_loss} in epoch {progress.epoch + 1}: it began in {place}; {ADVICE}"
            )
        self.history.append(
            EpochResult(
                epoch=progress.epoch + 1,
                loss=progress.loss / progress.seen,
                accuracy=progress.correct / progress.seen,
                held_out_loss=held_out_loss,
                held_out_accuracy=held_out_accuracy,
                learning_rate=float(self.optimizer.param_groups[0]["lr"]),
                seconds=round(progress.seconds, 3),
                samples_per_second=round(progress.seen / max(progress.seconds, 1e-9), 1),
            )
        )
        self.progress = Progress(epoch=progress.epoch + 1)

    def evaluate(self) -> tuple[float, float]:
        """Mean loss and accuracy on the held-out part, without dropout and without recording a graph."""
        self.model.eval()
        loss, correct = 0.0, 0
        count = len(self.held_out.labels)
        with gl.no_grad():
            for start in range(0, count, EVALUATION_BATCH):
                part = slice(start, start + EVALUATION_BATCH)
                images = gl.from_numpy(self.held_out.images[part]).to(self.config.device)
                labels = gl.from_numpy(self.held_out.labels[part]).to(self.config.device)
                logits = self.model(images)
                loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum").item())
                correct += int((logits.argmax(1) == labels).sum().item())
        return loss / count, correct / count

    def state(self) -> dict[str, Any]:
        """All that decides how the run goes on. Raises Diverged rather than let a broken model replace a good one."""
        broken = broken_value(self.model.state_dict().items())
        if broken:
            raise Diverged(f"{broken} is no longer finite; {ADVICE}")
        return {
            "config": self.config.saved(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": gl.get_rng_state(),
            "loader": self.loader.state_dict(),
            "progress": asdict(self.progress),
            "history": [asdict(result) for result in self.history],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. A state that does not fit raises KeyError, TypeError, ValueError or RuntimeError."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.generator.set_state(state["loader"]["generator"])  # the loader would find out too late if it does not fit
        self.progress = Progress(**state["progress"])
        self.history = [EpochResult(**result) for result in state["history"]]
        if not 0 <= self.progress.epoch == len(self.history) <= self.config.epochs:
            raise ValueError(f"{len(self.history)} results, but epoch {self.progress.epoch} of {self.config.epochs}")
        if not 0 <= self.progress.batch == state["loader"]["batch"] < len(self.loader):
            raise ValueError(f"batch {self.progress.batch}, but the loader is at {state['loader']['batch']}")
        # Last, because building and loading may have drawn numbers.
        gl.set_rng_state(state["random"])
