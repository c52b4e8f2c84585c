"""Schedulers that follow a formula. Each multiplies or moves the rate that it finds, so that several can be chained."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.optim.lr_scheduler.base import LRScheduler, restore_functions, saved_functions, set_rate
from gradlab.optim.optimizer import Optimizer

Function = Callable[[int], float]


class _ByFunction(LRScheduler):
    """One function of the epoch for each group, or one for all."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Function | Sequence[Function], last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas: list[Any] = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": saved_functions(self.lr_lambdas)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        restore_functions(self.lr_lambdas, state_dict["lr_lambdas"])


class LambdaLR(_ByFunction):
    """The initial rate times a function of the epoch. Functions and lambdas are not saved in the state, callable objects are."""

    def get_lr(self) -> list[float]:
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """The rate before times a function of the epoch."""

    def initial_step(self) -> None:
        """The first rates are the groups' own; every other step has its factor, also that to epoch 0 (in SequentialLR)."""
        self._step_count, self.last_epoch, self._last_lr = 1, self.last_epoch + 1, self._rates()

    def get_lr(self) -> list[float]:
        return [lr * function(self.last_epoch) for lr, function in zip(self._rates(), self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        turn, rates = self.last_epoch != 0 and self.last_epoch % self.step_size == 0, zip(self._rates(), self.base_lrs, strict=True)
        return [lr * self.gamma if turn and not self.has_turned(lr, base) else lr for lr, base in rates]

    def closed_form(self, base: float, epoch: int) -> float:
        return base * self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the milestones."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = dict(Counter(milestones)), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        times = self.milestones.get(self.last_epoch, 0)
        turned = [times == 0 or self.has_turned(lr, base) for lr, base in zip(self._rates(), self.base_lrs, strict=True)]
        return [lr if done else lr * self.gamma**times for lr, done in zip(self._rates(), turned, strict=True)]

    def closed_form(self, base: float, epoch: int) -> float:
        return base * self.gamma ** sum(times for at, times in self.milestones.items() if at <= epoch)


class ConstantLR(LRScheduler):
    """Times `factor` until epoch `total_iters`, then the initial rate."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, not {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            change = self.factor
        elif self.last_epoch == self.total_iters and not self.resumed:
            change = 1.0 / self.factor
        else:
            change = 1.0
        return [lr * change for lr in self._rates()]

    def closed_form(self, base: float, epoch: int) -> float:
        return base * (1 if epoch >= self.total_iters else self.factor)


class LinearLR(LRScheduler):
    """From `start_factor` to `end_factor` times the initial rate in a line, over `total_iters` epochs."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(f"Starting multiplicative factor expected to be greater than 0 and at most 1, not {start_factor}")
        if not 0 <= end_factor <= 1.0:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1, not {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        epoch, rise = self.last_epoch, self.end_factor - self.start_factor
        if epoch == 0:
            change = self.start_factor
        elif epoch > self.total_iters or self.resumed:
            change = 1.0
        else:
            change = 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)
        return [lr * change for lr in self._rates()]

    def closed_form(self, base: float, epoch: int) -> float:
        done = min(self.total_iters, epoch) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class ExponentialLR(LRScheduler):
    """Times `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [lr if self._is_initial else lr * self.gamma for lr in self._rates()]

    def closed_form(self, base: float, epoch: int) -> float:
        return base * self.gamma**epoch


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - epoch / total_iters)^power, 0 from then on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        epoch, total = self.last_epoch, self.total_iters
        if self._is_initial or epoch > total:
            return self._rates()
        change = ((1.0 - epoch / total) / (1.0 - (epoch - 1) / total)) ** self.power
        return [lr * change for lr in self._rates()]

    def closed_form(self, base: float, epoch: int) -> float:
        return float(base * (1.0 - min(self.total_iters, epoch) / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` along half a cosine of `T_max` epochs, and back again (Loshchilov and Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        epoch, period, low = self.last_epoch, self.T_max, self.eta_min
        if epoch == 0:
            return self._rates()
        if self.resumed:
            return [self.closed_form(base, epoch) for base in self.base_lrs]
        if (epoch - 1 - period) % (2 * period) == 0:  # at the lowest point the recursion would divide by 0
            return [
                lr + (base - low) * (1 - math.cos(math.pi / period)) / 2 for lr, base in zip(self._rates(), self.base_lrs, strict=True)
            ]
        change = (1 + math.cos(math.pi * epoch / period)) / (1 + math.cos(math.pi * (epoch - 1) / period))
        return [change * (lr - low) + low for lr in self._rates()]

    def closed_form(self, base: float, epoch: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to `eta_min`, again and again: over T_0 epochs, then each time T_mult times as many.

    `step(epoch)` takes fractions, for schedules within an epoch.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise TypeError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min).__name__}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self._place(last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def _place(self, epoch: float) -> None:
        """Find the period that an epoch lies in, T_i long, and where in it: T_cur."""
        self.T_i, start = self.T_0, 0.0
        if self.T_mult == 1:
            start = epoch // self.T_0 * self.T_0 if epoch > 0 else 0
        while self.T_mult > 1 and epoch - start >= self.T_i:
            start += self.T_i
            self.T_i *= self.T_mult
        self.T_cur = epoch - start

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._place(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        for group, value in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            set_rate(group, value)
        self._last_lr = self._rates()
