"""The base of learning rate schedulers."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.named_errors import name_classes
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor import Tensor


def rate(value: Any) -> float:
    """A learning rate as a Python number; it may be a tensor."""
    return float(value)


def set_rate(group: dict[str, Any], value: float) -> None:
    """Give a group a learning rate; a tensor keeps its identity and gets the value."""
    if isinstance(group["lr"], Tensor):
        group["lr"].detach().fill_(value)
    else:
        group["lr"] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[float]:
    """One number for each parameter group. ValueError for a list of another length."""
    count = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ValueError(f"{name}: expected {count} values, one for each parameter group, got {len(value)}")
        return [float(v) for v in value]
    return [float(value)] * count


def check_optimizer(optimizer: Any) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """Sets the learning rates of an optimizer's groups; call `step()` after the optimizer's, once in an epoch (or once in a batch).

    A subclass gives `get_lr`, the rates at `self.last_epoch` from the groups' rates before; and `closed_form`, the rate at an epoch from
    the initial one, where there is such a formula. `initial_lr` is kept in each group.
    last_epoch: -1 starts; any other is the last epoch of a run that goes on, whose state the optimizer has loaded: with `initial_lr`, and
    with the rates of the epoch after it, which stay as they are unless a formula gives them anew.
    """

    optimizer: Optimizer
    _is_initial = False  # while the constructor sets the first rates
    _get_lr_called_within_step = False  # which `get_lr` of subclasses in PyTorch's manner asks

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_classes(cls, "__init__ step")

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", rate(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming at last_epoch={last_epoch}; "
                    f"load the optimizer's state first"
                )
        self.base_lrs: list[float] = [rate(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[float] = []
        self.initial_step()

    def initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, as plain values."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`. Load the optimizer's state too: the rates are there."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rates set last, one for each group."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates at `self.last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def closed_form(self, base: float, epoch: int) -> float | None:
        """The rate at an epoch from the initial rate; None where there is no such formula."""
        return None

    @property
    def resumed(self) -> bool:
        """Whether these are the scheduler's first rates, but not those of epoch 0: the groups have them from the run that goes on."""
        return self._is_initial and self.last_epoch > 0

    def has_turned(self, lr: Any, base: Any) -> bool:
        """Whether a rate has this epoch's factor from the run that goes on; one that is still the initial rate has none."""
        return self.resumed and lr != base

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to a given one, and set the rates."""
        if self._step_count == 1 and not self.optimizer._stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`; call them the other way round, "
                "or the first learning rate is skipped",
                stacklevel=2,
            )
        self._step_count += 1
        self.go_to(epoch)

    def go_to(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch, or of a given one."""
        self._get_lr_called_within_step = True
        try:
            values = self._values(epoch)
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, value)
        self._last_lr = [rate(group["lr"]) for group in self.optimizer.param_groups]

    def _values(self, epoch: int | None) -> list[float]:
        if epoch is None:
            self.last_epoch += 1
            return self.get_lr()
        self.last_epoch = epoch
        if (own := getattr(self, "_get_closed_form_lr", None)) is not None:  # of a subclass in PyTorch's manner
            return own()
        closed = [self.closed_form(base, epoch) for base in self.base_lrs]
        return self.get_lr() if None in closed else closed  # type: ignore[return-value]

    def _rates(self) -> list[float]:
        return [rate(group["lr"]) for group in self.optimizer.param_groups]


name_classes(LRScheduler, "__init__ step load_state_dict")


def saved_functions(functions: Sequence[Callable[..., Any] | None]) -> list[Any]:
    """Of callable objects their attributes; functions and lambdas are not saved (None)."""
    return [None if f is None or isinstance(f, types.FunctionType) else dict(f.__dict__) for f in functions]


def restore_functions(functions: Sequence[Any], saved: Sequence[Any]) -> None:
    """The inverse of `saved_functions`."""
    for function, attributes in zip(functions, saved, strict=True):
        if attributes is not None:
            function.__dict__.update(attributes)
