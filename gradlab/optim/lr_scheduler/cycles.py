"""Schedulers that move the learning rate and, the other way, the momentum in cycles; `step()` after every batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group, restore_functions, saved_functions, set_rate
from gradlab.optim.optimizer import Optimizer


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Give a group its momentum: `momentum`, or the first of `betas`."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def check_momentum(optimizer: Optimizer) -> None:
    """ValueError for an optimizer without momentum."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled; pass cycle_momentum=False")


class CyclicLR(LRScheduler):
    """Up and down between `base_lr` and `max_lr` in a line (Smith, 2017).

    mode: "triangular"; "triangular2": each cycle's height is half the one before; "exp_range": the height is gamma^iteration.
    scale_fn: a height of one's own, of the cycle's number or (scale_mode="iterations") of the iteration.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None; modes are 'triangular', 'triangular2' and 'exp_range'")
        lows = per_group("base_lr", optimizer, base_lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        self.total_size = float(step_size_up) + float(step_size_up if step_size_down is None else step_size_down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.cycle_momentum = mode, gamma, cycle_momentum
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self._scale_fn_custom = scale_fn
        if cycle_momentum:
            check_momentum(optimizer)
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                set_rate(group, lows[i])
                if cycle_momentum:
                    set_momentum(group, self.max_momentums[i])
                    group["max_momentum"], group["base_momentum"] = self.max_momentums[i], self.base_momentums[i]
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """The height of cycle (or iteration) `x`, as a part of the whole."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 2.0 ** (1 - x), "exp_range": self.gamma**x}[self.mode]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True):
                set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_scale_fn_custom": saved_functions([self._scale_fn_custom])[0]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        restore_functions([self._scale_fn_custom], [state_dict["_scale_fn_custom"]])


class OneCycleLR(LRScheduler):
    """Once up from max_lr / div_factor to max_lr, and down to a final_div_factor-th of the start (Smith and Topin, 2018).

    total_steps, or epochs and steps_per_epoch: the length. pct_start: the part of it that rises. anneal_strategy: "cos" or "linear".
    three_phase: down to the start as fast as up, and only then to the end. ValueError for a step beyond the end.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.total_steps = _length(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.anneal_strategy, self.cycle_momentum = anneal_strategy, cycle_momentum
        top = float(pct_start * self.total_steps) - 1
        # The last step of each phase, and the names of the rates and momenta where the phases meet.
        self.ends = [top, 2 * top, self.total_steps - 1] if three_phase else [top, self.total_steps - 1]
        self.rates = ["initial_lr", "max_lr", "initial_lr", "min_lr"] if three_phase else ["initial_lr", "max_lr", "min_lr"]
        self.momenta = ["max_momentum", "base_momentum", "max_momentum", "max_momentum"][: len(self.rates)]
        highs = per_group("max_lr", optimizer, max_lr)
        if cycle_momentum:
            check_momentum(optimizer)
            low_momenta = per_group("base_momentum", optimizer, base_momentum)
            high_momenta = per_group("max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                group["initial_lr"], group["max_lr"] = highs[i] / div_factor, highs[i]
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    set_momentum(group, high_momenta[i])
                    group["max_momentum"], group["base_momentum"] = high_momenta[i], low_momenta[i]
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        phase = next((i for i, end in enumerate(self.ends) if step <= end), len(self.ends) - 1)
        start = self.ends[phase - 1] if phase else 0.0
        part = (step - start) / (self.ends[phase] - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                set_momentum(group, self._between(group[self.momenta[phase]], group[self.momenta[phase + 1]], part))
        return [self._between(g[self.rates[phase]], g[self.rates[phase + 1]], part) for g in self.optimizer.param_groups]


def _length(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    given = {"total_steps": total_steps} if total_steps is not None else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    length = 1
    for name, value in given.items():
        if not isinstance(value, (int, np.integer)) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
        length *= value
    return length
