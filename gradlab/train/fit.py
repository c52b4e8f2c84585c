"""The loop: epochs over batches, a validation after each, and a place to stop and to go on from after any batch, bit for bit.

What the loop needs is in one object, the Run, which callbacks get and may change. Going on is exact because its state holds the model, the
optimizer, the scheduler, the scaler, the average, the random states, the loader's place in its order, and the sums of the epoch so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numpy import copyto

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.advice import GradlabWarning, warn
from gradlab.backends.native import ready
from gradlab.device import Device
from gradlab.func.tree import flatten, mapped, unflatten
from gradlab.metrics import Metric, MetricCollection
from gradlab.train.arguments import check_numbers, check_parts, collected, evaluating, lowered, measured
from gradlab.train.callbacks import each, length, named
from gradlab.train.divergence import Diverged, broken_value, origin
from gradlab.train.randomness import random_of_others, set_random_of_others

Step = Callable[[nn.Module, Any], Any]  # of a model and a batch: the loss, or (loss, outputs, targets)


class StateError(ValueError):
    """A state to go on from that is not one of this run's parts."""


@dataclass
class Run:
    """A training under way. `epoch` counts those that are complete, `batch` those of the current one, `steps` the optimizer's in all."""

    model: nn.Module
    loader: Any
    optimizer: Any
    step: Step
    epochs: int
    validation: Any = None
    metrics: MetricCollection | None = None
    scheduler: Any = None
    scheduler_each: str = "epoch"
    scaler: Any = None
    average: Any = None
    device: Any = None
    callbacks: Sequence[Any] = ()
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    samples: int = 0  # of the current epoch, as the three below
    loss: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    whole: bool = True  # whether no gradients wait for the rest of their step: only then the state can be taken
    stop: str = ""  # why the loop is to end after this step, once somebody wants it to

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs

    @property
    def trained(self) -> nn.Module:
        """The model that is validated and used: the averaged one where there is an average."""
        return self.model if self.average is None or not int(self.average.n_averaged) else self.average

    def state_dict(self) -> dict[str, Any]:
        """All that decides how the run goes on, of plain values and tensors."""
        parts = {name: getattr(self, name) for name in ("model", "optimizer", "scheduler", "scaler", "average", "loader")}
        counts = {name: getattr(self, name) for name in ("epoch", "batch", "steps", "samples", "loss", "seconds", "history")}
        states = {name: part.state_dict() for name, part in parts.items() if hasattr(part, "state_dict")}
        called = {name: state for name, callback in named(self.callbacks).items() if (state := callback.state_dict())}
        random = {"random": gl.get_rng_state(), "random_of_others": random_of_others()}
        return {**states, "counts": counts, "callbacks": called, **random, "kernels": ready.in_use()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put everything where `state_dict` was taken. StateError where the state is of another run's parts."""
        here = {n for n in ("model", "optimizer", "scheduler", "scaler", "average", "loader") if hasattr(getattr(self, n), "state_dict")}
        there = set(state) - {"counts", "callbacks", "random", "random_of_others", "kernels"}
        if here != there:
            raise StateError(f"Run.load_state_dict: the state has {sorted(there)}, this run has {sorted(here)}; build it as it was built")
        try:
            for name in here:
                getattr(self, name).load_state_dict(state[name])
            for name, value in state["counts"].items():
                setattr(self, name, value)
            for name, callback in named(self.callbacks).items():
                if name in state.get("callbacks", {}):
                    callback.load_state_dict(state["callbacks"][name])
            gl.set_rng_state(state["random"])  # last, since building and loading may have drawn numbers
            set_random_of_others(state.get("random_of_others", {}))
            if not ready.go_on_with(state.get("kernels", ready.in_use())):
                warn(GradlabWarning, "fit: the run began with the CPU's kernels of another build: its last bits may differ from here on")
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise StateError(f"Run.load_state_dict: the state does not fit this run: {error}") from error


def fit(
    model: nn.Module,
    loader: Iterable[Any],
    loss: Callable[..., Tensor] | None,
    optimizer: Any,
    *,
    epochs: int = 1,
    validation: Iterable[Any] | None = None,
    metrics: dict[str, Metric] | Metric | None = None,
    scheduler: Any = None,
    scheduler_each: str = "epoch",
    accumulate: int = 1,
    clip: float | None = None,
    amp: Any = None,
    average: Any = None,
    compile: bool = False,
    device: Any = None,
    step: Step | None = None,
    callbacks: Sequence[Any] = (),
    resume: dict[str, Any] | None = None,
) -> Run:
    """Train `model` for `epochs` passes over `loader` and return the Run, whose `history` has a line for each epoch.

    A batch is (inputs…, target), and the loss `loss(model(inputs…), target)`; anything else is for `step(model, batch)`, which gives the
    loss or (loss, outputs, targets). Batches are moved to `device` (the model's, unless it is given).

    validation: batches on which loss and `metrics` are measured after each epoch, without gradients, in evaluation mode; their names in the
    history start with "validation_". scheduler: stepped after each "epoch" (with the validation loss, where its `step` takes metrics) or
    each "step". accumulate: batches whose gradients make one step (of a loader that has no length, those that are left at an epoch's end
    make none). clip: the largest norm of all gradients together. amp: gl.bfloat16 or gl.float16 for mixed precision, the latter with a
    GradScaler. average: an `optim.swa_utils.AveragedModel`, updated after each step and validated in the model's place. compile: forward,
    loss, backward, clipping and the optimizer's step become one static program. callbacks: see `Callback`; a function is called with the
    Run after each epoch. resume: a Run's `state_dict`, to go on from.

    Raises Diverged where the loss is no longer finite, saying in which operation that began. KeyboardInterrupt passes through after the
    callbacks' `end`.

    >>> _ = gl.manual_seed(0)
    >>> model, x = gl.nn.Linear(1, 1), gl.linspace(-1, 1, 32)[:, None]
    >>> loader = gl.utils.data.DataLoader(gl.utils.data.TensorDataset(x, 3 * x + 1), batch_size=8)
    >>> run = gl.train.fit(model, loader, gl.nn.functional.mse_loss, gl.optim.SGD(model.parameters(), lr=0.5), epochs=20)
    >>> run.epoch, run.history[-1]["loss"] < 1e-6
    (20, True)
    """
    check_numbers(epochs, accumulate, clip)
    check_parts(model, optimizer, step, {"loss": loss, "scheduler": scheduler, "average": average})
    if scheduler_each not in ("epoch", "step"):
        raise ValueError(f'fit: scheduler_each is "epoch" or "step", not {scheduler_each!r}')
    if scheduler_each == "step" and isinstance(scheduler, gl.optim.lr_scheduler.ReduceLROnPlateau):
        raise ValueError('fit: ReduceLROnPlateau looks at the validation loss, which there is after an epoch; leave scheduler_each="epoch"')
    place = device if device is not None else next((p.device for p in model.parameters()), "cpu")
    half = lowered(amp)
    scaler = gl.amp.GradScaler(Device(place).type) if half is gl.float16 else None
    loader = ahead(loader, place)
    run = Run(
        model, loader, optimizer, step or supervised(loss), epochs, validation, collected(metrics, validation), scheduler,
        scheduler_each, scaler, average, place, callbacks,
    )  # fmt: skip
    if resume is not None:
        run.load_state_dict(resume)
    casting = nullcontext() if half is None else gl.autocast(Device(place).type, half)
    advance: Any = _advance(run, casting, accumulate, clip, eager=not compile)
    if compile:
        advance = gl.compile(advance)
        advance.eager_first = False  # so that a run that goes on takes the same way from its first step
    calls = each(callbacks)
    calls("begin", run)
    try:
        while not run.finished and not run.stop:
            if _epoch(run, advance, accumulate, calls, compile):
                calls("epoch_end", run)
    finally:
        calls("end", run)
    return run


def supervised(loss: Callable[..., Tensor] | None) -> Step:
    """The step of batches (inputs…, target)."""
    if loss is None:
        raise ValueError("fit: give a loss, or step=, a function of the model and a batch that returns the loss")

    def step(model: nn.Module, batch: Any) -> Any:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            kind = type(batch).__name__
            raise TypeError(f"fit: a batch is (inputs…, target), not a {kind}; pass step=, a function of the model and a batch")
        *inputs, target = batch
        outputs = model(*inputs)
        return loss(outputs, target), outputs, target

    return step


def _advance(run: Run, casting: Any, accumulate: int, clip: float | None, eager: bool) -> Callable[[Any, bool], Tensor]:
    """What one batch does: forward and backward and, where `last` of those that accumulate, the optimizer's step. It gives the loss.

    A loss that is not finite goes no further, where it can be looked at.
    """
    model, optimizer, scaler = run.model, run.optimizer, run.scaler

    def advance(batch: Any, last: bool) -> Tensor:
        with casting:
            found = run.step(model, batch)
            loss: Tensor = found[0] if isinstance(found, tuple) else found
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise TypeError(f"fit: a loss is a tensor of one number, not {got}; take its mean, and keep it a tensor")
        if eager and not math.isfinite(loss.item()):
            return loss.detach()
        part = loss / accumulate if accumulate > 1 else loss
        (part if scaler is None else scaler.scale(part)).backward()
        if last:
            if clip is not None:
                if scaler is not None:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step() if scaler is None else (scaler.step(optimizer), scaler.update())
            optimizer.zero_grad()
        return loss.detach()

    return advance


def _epoch(run: Run, advance: Callable[[Any, bool], Tensor], accumulate: int, calls: Any, compiled: bool) -> bool:
    """The rest of the current epoch; False where somebody wanted to stop before its end."""
    model, many = run.model, length(run.loader)
    before = _Before(model, compiled)
    model.train()
    if not run.batch:
        run.optimizer.zero_grad()
    for batch in _rest(run):
        begin = time.perf_counter()
        batch, random = moved(batch, run.device), gl.get_rng_state()
        run.whole = (run.batch + 1) % accumulate == 0 or run.batch + 1 == many
        before.keep()
        loss = float(advance(batch, run.whole))
        if not math.isfinite(loss):
            gl.set_rng_state(random)
            before.restore()
            inputs = ((f"entry {i} of the batch", x) for i, x in enumerate(flatten(batch)[0]) if isinstance(x, Tensor))
            lost = broken_value(inputs)
            where = f"{lost} holds such values already" if lost else origin(model, partial(run.step, model, batch))
            raise Diverged(f"the loss became {loss} in epoch {run.epoch + 1}, batch {run.batch + 1}: {where}")
        size = batch_size(batch)
        run.batch, run.steps, run.samples, run.loss = run.batch + 1, run.steps + run.whole, run.samples + size, run.loss + loss * size
        if run.whole and run.average is not None:
            run.average.update_parameters(model)
        if run.whole and run.scheduler is not None and run.scheduler_each == "step":
            run.scheduler.step()
        run.seconds += time.perf_counter() - begin
        calls("batch_end", run)
        if run.stop and run.whole and run.batch != many:
            return False
    if not run.batch:
        away = "an iterator gives its batches once: pass a list or a DataLoader" if run.epoch else "is it empty, or smaller than a batch?"
        raise ValueError(f"fit: the loader gave no batch in epoch {run.epoch + 1}; {away}")
    _close(run)
    return True


def _rest(run: Run) -> Iterable[Any]:
    """The batches of the epoch that are to come: a loader that can tell its place has been put there, of others some are passed by."""
    if not run.batch or hasattr(run.loader, "state_dict"):
        return run.loader
    random, others = gl.get_rng_state(), random_of_others()
    rest = iter(run.loader)
    for _ in zip(range(run.batch), rest):
        pass
    gl.set_rng_state(random)  # passing them by may have drawn what was drawn before
    set_random_of_others(others)
    return rest


class _Before:
    """The parameters before a compiled step, which has changed them by the time its loss can be looked at. On the CPU: it costs little."""

    def __init__(self, model: nn.Module, compiled: bool) -> None:
        parameters = list(model.parameters()) if compiled else []
        arrays = [p.detach().numpy() for p in parameters if p.device.type == "cpu"]
        self.pairs = [(array.copy(), array) for array in arrays]

    def keep(self) -> None:
        for kept, array in self.pairs:
            copyto(kept, array)

    def restore(self) -> None:
        for kept, array in self.pairs:
            copyto(array, kept)


def _close(run: Run) -> None:
    """Validate, note the epoch's line, and stand at the start of the next one."""
    line = {"epoch": run.epoch + 1.0, "loss": run.loss / max(run.samples, 1), "learning_rate": float(run.optimizer.param_groups[0]["lr"])}
    if run.validation is not None:
        found = evaluate(run.trained, run.validation, run.step, run.metrics, run.device)
        if not math.isfinite(found["loss"]):
            broken = broken_value(run.trained.state_dict().items()) or "the model"
            raise Diverged(f"the validation loss became {found['loss']} in epoch {run.epoch + 1}: it began in {broken}")
        line |= {f"validation_{name}": value for name, value in found.items()}
    line |= {"seconds": round(run.seconds, 3), "samples_per_second": round(run.samples / max(run.seconds, 1e-9), 1)}
    if run.scheduler is not None and run.scheduler_each == "epoch":
        takes_metrics = isinstance(run.scheduler, gl.optim.lr_scheduler.ReduceLROnPlateau)
        run.scheduler.step(*([line.get("validation_loss", line["loss"])] if takes_metrics else []))
    run.history.append(line)
    run.epoch, run.batch, run.samples, run.loss, run.seconds = run.epoch + 1, 0, 0, 0.0, 0.0


def evaluate(
    model: nn.Module, loader: Iterable[Any], step: Step | Callable[..., Tensor], metrics: Any = None, device: Any = None
) -> dict[str, Any]:
    """The mean loss over batches, and what metrics say of them: without gradients, in evaluation mode, which is put back afterwards.
    Of a loss that is not finite there is that alone.

    step: as in `fit`, of a model and a batch. metrics: a MetricCollection, which needs a step that gives (loss, outputs, targets).
    ValueError where there are no batches.
    """
    total, samples = 0.0, 0
    if metrics is not None:
        metrics.reset()
    with evaluating(model):
        for batch in ahead(loader, device):
            batch = moved(batch, device)
            found = step(model, batch)
            loss = float(found[0] if isinstance(found, tuple) else found)
            if not math.isfinite(loss):
                return {"loss": loss}
            if metrics is not None:
                metrics.update(*measured(found))
            size = batch_size(batch)
            total, samples = total + loss * size, samples + size
    if not samples:
        raise ValueError("evaluate: there are no batches to measure; an iterator gives its batches once")
    return {"loss": total / samples, **(metrics.compute() if metrics is not None else {})}


def predict(model: nn.Module, loader: Iterable[Any], device: Any = None, *, targets: bool = True) -> Any:
    """The model's outputs for all batches, joined along dimension 0: without gradients, in evaluation mode, on the CPU. Where the model
    gives several tensors, in tuples, lists or dictionaries, each of them is joined.

    targets: whether the last entry of a batch of several is a target, which the model does not get.
    """
    if isinstance(loader, Tensor):
        raise TypeError("predict: a tensor is one batch, and its rows are none; pass [tensor], or a DataLoader")
    found, structure = [], None
    with evaluating(model):
        for batch in ahead(loader, device):
            batch = moved(batch, device)
            several = isinstance(batch, (tuple, list))
            inputs = batch[:-1] if several and targets and len(batch) > 1 else batch if several else [batch]
            parts, structure = flatten(model(*inputs))
            if not all(isinstance(part, Tensor) and part.ndim for part in parts):
                raise TypeError(f"predict: the outputs of batches are joined, which are tensors with a row for each sample, not {parts}")
            found.append([part.cpu() for part in parts])
    if not found:
        raise ValueError("predict: there are no batches")
    return unflatten(structure, [gl.cat(parts) for parts in zip(*found, strict=True)])


def ahead(loader: Iterable[Any], device: Any) -> Any:
    """The loader; where its batches go to a GPU, they are copied there while others are worked with."""
    there = isinstance(loader, gl.utils.data.DataLoader) and device is not None and Device(device).type == "cuda"
    return gl.utils.data.Prefetcher(loader, device) if there else loader


def moved(value: Any, device: Any) -> Any:
    """A batch with its tensors on a device, in whatever lists, tuples and dictionaries they are."""
    if device is None:
        return value

    def there(x: Any) -> Any:
        return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x

    return mapped(there, value)


def batch_size(batch: Any) -> int:
    """How many samples a batch has: the first size of its first tensor."""
    tensors = [x for x in flatten(batch)[0] if isinstance(x, Tensor) and x.ndim]
    return len(tensors[0]) if tensors else 1
