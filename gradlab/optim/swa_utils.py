"""Averages of weights over training: equal (SWA: Izmailov et al., 2018) or exponential (EMA); what PyTorch has in `optim.swa_utils`."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradlab.autograd.mode import no_grad
from gradlab.dtype import INT64
from gradlab.nn.module import Module
from gradlab.nn.modules.norm import _BatchNorm
from gradlab.optim.lr_scheduler.base import LRScheduler, per_group
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def _checked(decay: float) -> float:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
    return decay


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """`avg_fn` of an exponential average: decay · average + (1 - decay) · current. ValueError for a decay outside of [0, 1].

    >>> gl.optim.swa_utils.get_ema_avg_fn(0.75)(gl.tensor(4.0), gl.tensor(0.0), 1)
    tensor(3.)
    """
    _checked(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """`avg_fn` of an equal average: average + (current - average) / (num_averaged + 1).

    >>> gl.optim.swa_utils.get_swa_avg_fn()(gl.tensor(4.0), gl.tensor(1.0), 2)
    tensor(3.)
    """

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """`multi_avg_fn` of an exponential average, written into the averages.

    >>> average = [gl.tensor([4.0])]
    >>> gl.optim.swa_utils.get_ema_multi_avg_fn(0.75)(average, [gl.tensor([0.0])], 1)
    >>> average
    [tensor([3.])]
    """
    _checked(decay)

    @no_grad()
    def ema_update(ema_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Any) -> None:
        for ema, current in zip(ema_param_list, current_param_list, strict=True):
            if ema.is_floating_point():
                ema.lerp_(current, 1 - decay)
            else:
                ema.copy_(ema * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """`multi_avg_fn` of an equal average, written into the averages.

    >>> average = [gl.tensor([4.0])]
    >>> gl.optim.swa_utils.get_swa_multi_avg_fn()(average, [gl.tensor([1.0])], 2)
    >>> average
    [tensor([3.])]
    """

    @no_grad()
    def swa_update(averaged_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Any) -> None:
        share = 1 / (float(num_averaged) + 1)
        for averaged, current in zip(averaged_param_list, current_param_list, strict=True):
            if averaged.is_floating_point():
                averaged.lerp_(current, share)
            else:
                averaged.copy_(averaged + (current - averaged) * share)

    return swa_update


class AveragedModel(Module):
    """A copy of `model` whose parameters are the average of the model's at each `update_parameters`.

    device: where the copy lives. avg_fn(average, current, num_averaged) gives one parameter's new average; multi_avg_fn(averages,
    currents, num_averaged) writes all of them; without either the average is equal. use_buffers: average buffers too, not only parameters.
    The first update copies. Keys of the state dict: `n_averaged`, and the model's under `module.`

    >>> model = gl.nn.Linear(1, 1)
    >>> average = gl.optim.swa_utils.AveragedModel(model, multi_avg_fn=gl.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    >>> for value in (0.0, 8.0):
    ...     _ = gl.nn.init.constant_(model.weight, value)
    ...     average.update_parameters(model)
    >>> average.module.weight.item(), average.n_averaged.item()
    (4.0, 2)
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Callable[..., Any] | None = None, multi_avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=INT64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's."""
        return self.module(*args, **kwargs)

    def _tensors(self, model: Module) -> list[Tensor]:
        return [t.detach() for t in itertools.chain(model.parameters(), model.buffers() if self.use_buffers else ())]

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the average."""
        averages = self._tensors(self.module)
        currents = [c.to(a.device) for a, c in zip(averages, self._tensors(model))]
        count = int(self.n_averaged.item())
        with no_grad():
            if count == 0:
                for average, current in zip(averages, currents, strict=True):
                    average.copy_(current)
            elif self.avg_fn is not None:
                for average, current in zip(averages, currents, strict=True):
                    average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
            if not self.use_buffers:  # buffers are kept as the model's last
                for theirs, own in zip(model.buffers(), self.module.buffers(), strict=True):
                    own.detach().copy_(theirs.detach().to(own.device))
            self.n_averaged.add_(1)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the statistics of batch norms anew, as equal averages over the batches of `loader`: averaged weights need their own.

    A batch is a tensor, or a tuple or list that begins with one.

    >>> model = gl.nn.BatchNorm1d(1)
    >>> gl.optim.swa_utils.update_bn([gl.tensor([[1.0], [3.0]]), gl.tensor([[5.0], [7.0]])], model)
    >>> model.running_mean
    tensor([4.])
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # equal averages
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


def _linear(t: float) -> float:
    return t


def _cosine(t: float) -> float:
    return (1 - math.cos(math.pi * t)) / 2


def _before(lr: float, swa_lr: float, share: float) -> float:
    """The rate that mixed with swa_lr gave lr."""
    return swa_lr if share == 1 else (lr - share * swa_lr) / (1 - share)


class SWALR(LRScheduler):
    """From each group's rate to `swa_lr` in `anneal_epochs` epochs, by a cosine ("cos") or a line ("linear"), and constant from there.

    >>> optimizer = gl.optim.SGD([gl.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = gl.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.75]
    [0.5]
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1
    ) -> None:
        for group, rate in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, (int, np.integer)) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        if self.resumed:
            return self._rates()
        anneal = _cosine if self.anneal_strategy == "cos" else _linear
        step = self.last_epoch
        if self.anneal_epochs == 0:
            step = max(1, step)
        length = max(1, self.anneal_epochs)
        earlier, share = (anneal(min(1.0, max(0.0, s / length))) for s in (step - 1, step))
        return [
            group["swa_lr"] * share + _before(float(group["lr"]), group["swa_lr"], earlier) * (1 - share)
            for group in self.optimizer.param_groups
        ]
