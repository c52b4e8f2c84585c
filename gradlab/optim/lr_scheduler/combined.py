"""Schedulers made of others, and the one that follows a measured value."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from gradlab.optim.lr_scheduler.base import LRScheduler, check_optimizer, rate, set_rate
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor.common_arguments import few_enough


class _OfOthers(LRScheduler):
    """Saves the schedulers that it is made of with itself."""

    _schedulers: list[LRScheduler]

    def _check(self, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ValueError(f"{name} expects at least one scheduler to be chained, but got no scheduler")
        for i, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"{name}: scheduler {i} should be a scheduler, not {type(scheduler).__name__}")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau` (scheduler {i}), whose step() needs a metric")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but scheduler {i} has another one")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_OfOthers):
    """One scheduler after another: the next one starts, at its own epoch 0, at each milestone.

    last_epoch: with another than -1 the schedulers, made for epoch 0, are taken to the epoch after it.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1) -> None:
        self._check(optimizer, schedulers)
        few_enough("SequentialLR", "epochs to go through (last_epoch)", last_epoch)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = 0
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_rate(group, rate(group["initial_lr"]))
        _take_back(self)  # all of them have set the rates of their first epoch; only the first one shall
        self.initial_step()
        for _ in range(last_epoch + 1):
            optimizer._stepped = True  # in the run that goes on
            self.step()

    def initial_step(self) -> None:
        """Set the rates of the first epoch: those of the scheduler that runs then."""
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first.initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch."""
        if epoch is not None:
            raise ValueError("SequentialLR.step takes no epoch")
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index and self._milestones[index - 1] == self.last_epoch:
            scheduler.go_to(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _take_back(scheduler: LRScheduler) -> None:
    if isinstance(scheduler, _OfOthers):
        for inner in scheduler._schedulers:
            _take_back(inner)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_OfOthers):
    """Several schedulers at once, each changing the rates that those before it set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        first = schedulers[0] if schedulers else None
        self._check(optimizer or getattr(first, "optimizer", None), schedulers)
        assert first is not None
        self._schedulers = list(schedulers)
        self.optimizer = first.optimizer
        self._last_lr = self._rates()

    def initial_step(self) -> None:
        """Set the rates of the first epoch, one scheduler after another."""
        for scheduler in self._schedulers:
            scheduler.initial_step()
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch."""
        if epoch is not None:
            raise ValueError("ChainedScheduler.step takes no epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric, given to `step(metric)`, has not improved for more than `patience` epochs.

    mode: "min" or "max", which is better. threshold: how much better counts, as a part of the best ("rel") or by itself ("abs").
    cooldown: epochs to wait after a change. min_lr: where to stop, one number or one for each group. eps: smaller changes are not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown! It is 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown! It is 'rel' or 'abs'")
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != len(optimizer.param_groups):
            raise ValueError(f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}")
        self.optimizer = optimizer
        self.factor, self.mode, self.threshold, self.threshold_mode = factor, mode, threshold, threshold_mode
        self.patience, self.cooldown, self.eps, self.last_epoch = patience, cooldown, eps, 0
        several = isinstance(min_lr, (list, tuple))
        self.default_min_lr = None if several else min_lr
        self.min_lrs: list[Any] = list(min_lr) if several else [min_lr] * len(optimizer.param_groups)
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()
        self._last_lr = self._rates()

    def _reset(self) -> None:
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of an epoch's metric (a number or a one-element tensor)."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    @property
    def in_cooldown(self) -> bool:
        """Whether the last change was less than `cooldown` epochs ago."""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * a > sign * best * (1 + sign * self.threshold)
        return sign * a > sign * best + self.threshold

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(self.min_lrs) != len(groups):
            if self.default_min_lr is None:
                raise RuntimeError(f"ReduceLROnPlateau: {len(self.min_lrs)} min_lr, but {len(groups)} parameter groups; extend `min_lrs`")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs, strict=True):
            old = rate(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                set_rate(group, new)
