"""The learning-rate range test: which rates a model learns at, found by trying all of them on the way up.

L. N. Smith, Cyclical Learning Rates for Training Neural Networks, WACV 2017, section 3.3. The loss is smoothed as in fastai's finder.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.device import Device
from gradlab.train.arguments import lowered
from gradlab.train.fit import Step, moved, supervised
from gradlab.viz.chart import Panel, Series, line_chart

SMOOTH = 0.9  # what stays of the mean of losses in each step
RISEN = 4.0  # a loss so many times as high as the least is the end
SKIPPED = 0.1  # of the steps, whose losses are means of too few


@dataclass(frozen=True)
class RangeTest:
    """What a range test found: of each step the rate and the loss, smoothed; and the rate to train with.

    `suggestion` is the rate at which the loss fell fastest (over the logarithm of the rate); None where it did not fall.
    """

    rates: list[float]
    losses: list[float]
    suggestion: float | None

    def picture(self) -> str:
        """Loss over rate as an SVG document."""
        found = [Series("loss", self.rates, self.losses)]
        said = "the loss did not fall" if self.suggestion is None else f"it falls fastest at {self.suggestion:.3g}"
        return line_chart([Panel("Loss, smoothed", "learning rate", found, log_x=True)], "Learning-rate range test", said)


def find_learning_rate(
    model: nn.Module, loader: Iterable[Any], loss: Callable[..., Tensor] | None, optimizer: Any, *, lowest: float = 1e-6,
    highest: float = 1.0, steps: int = 100, clip: float | None = None, amp: Any = None, device: Any = None, step: Step | None = None,
) -> RangeTest:  # fmt: skip
    """Train for at most `steps` batches while the rate rises by a constant factor from `lowest` to `highest`, and put all back as it was.

    It ends early where the loss has risen to four times its least. Batches, loss, clip, amp, device and step are as `fit` takes them; of
    several groups of parameters the rates keep their proportions. ValueError for rates that do not rise, fewer than 10 steps, and a
    loader without a batch.

    >>> _ = gl.manual_seed(0)
    >>> model, x = gl.nn.Linear(1, 1), gl.linspace(-1, 1, 32)[:, None]
    >>> loader = gl.utils.data.DataLoader(gl.utils.data.TensorDataset(x, 3 * x + 1), batch_size=8)
    >>> optimizer = gl.optim.SGD(model.parameters(), lr=0.1)
    >>> found = gl.train.find_learning_rate(model, loader, gl.nn.functional.mse_loss, optimizer)
    >>> 0.001 < found.suggestion < 0.5, optimizer.param_groups[0]["lr"]
    (True, 0.1)
    """
    if not 0 < lowest < highest or steps < 10:
        raise ValueError(f"find_learning_rate: rates rise from above 0, in 10 steps or more; got {lowest} to {highest} in {steps}")
    place = device if device is not None else next((p.device for p in model.parameters()), "cpu")
    advance = step or supervised(loss)
    half = lowered(amp, "find_learning_rate")
    casting = nullcontext() if half is None else gl.autocast(Device(place).type, half)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, **({"loader": loader} if hasattr(loader, "state_dict") else {})}
    before: dict[str, Any] = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    modes, random, known = [(m, m.training) for m in model.modules()], gl.get_rng_state(), bool(optimizer.state)
    first = [group["lr"] for group in optimizer.param_groups]
    rates, losses, mean = list[float](), list[float](), 0.0
    model.train()
    try:
        for i, batch in enumerate(_endless(loader, steps)):
            rate = lowest * (highest / lowest) ** (i / (steps - 1))
            for group, given in zip(optimizer.param_groups, first, strict=True):
                group["lr"] = rate * (given / max(first) if max(first) > 0 else 1.0)
            with casting:
                found = advance(model, moved(batch, place))
                value = found[0] if isinstance(found, tuple) else found
            mean = SMOOTH * mean + (1 - SMOOTH) * float(value)
            smoothed = mean / (1 - SMOOTH ** (i + 1))
            if not math.isfinite(smoothed) or (losses and smoothed > RISEN * min(losses) > 0):
                break
            rates.append(rate)
            losses.append(smoothed)
            optimizer.zero_grad()
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    finally:
        optimizer.zero_grad()
        for name, part in parts.items():
            part.load_state_dict(before[name])
        if not known:
            optimizer.state.clear()
        for module, training in modes:
            module.training = training
        gl.set_rng_state(random)
    if not rates:
        raise ValueError("find_learning_rate: the loss is not finite at the lowest rate, or there is no batch")
    return RangeTest(rates, losses, _steepest(rates, losses))


def _endless(loader: Iterable[Any], steps: int) -> Iterator[Any]:
    """So many batches, of as many passes as it takes."""
    left = steps
    while left:
        before = left
        for batch in loader:
            yield batch
            left -= 1
            if not left:
                return
        if left == before:
            return


def _steepest(rates: list[float], losses: list[float]) -> float | None:
    """The rate at which the loss falls fastest, before its least; a third of where it is least, at most."""
    begin, end = int(SKIPPED * len(rates)), losses.index(min(losses))
    slopes = [(losses[i + 1] - losses[i - 1], i) for i in range(max(begin, 1), min(end, len(losses) - 1))]
    if not slopes or min(slopes)[0] >= 0:
        return None
    return min(rates[min(slopes)[1]], rates[end] / 3)
