"""Optimizers that scale steps by past gradients: RMSprop, Adagrad, Adadelta, Rprop; and averaged SGD."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.optim.hyper import check, check_common
from gradlab.optim.optimizer import Group, counter
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor

_rows = ops.optim_variants
_RMSPROP = {  # whether it is centered, and has momentum: the row and its buffers
    (False, False): (_rows.rmsprop_update, ("square_avg", "step")),
    (True, False): (_rows.rmsprop_centered_update, ("square_avg", "grad_avg", "step")),
    (False, True): (_rows.rmsprop_momentum_update, ("square_avg", "momentum_buffer", "step")),
    (True, True): (_rows.rmsprop_centered_momentum_update, ("square_avg", "grad_avg", "momentum_buffer", "step")),
}


class RMSprop(RowOptimizer):
    """Steps divided by the root of a running mean of squared gradients (Hinton, 2012).

    `centered`: of the variance instead (Graves, 2013). `momentum` adds the scaled gradients up in a buffer.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, None, foreach, capturable, differentiable)
        check("epsilon", eps)
        check("momentum", momentum)
        check("alpha", alpha)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
                "capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            },
        )  # fmt: skip

    live = ("lr", "alpha", "eps", "weight_decay", "momentum")
    decisive = ("momentum",)

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        row, names = _RMSPROP[bool(group["centered"]), group["momentum"] > 0]
        self.run(row, group, p, g, names, h, maximize=group["maximize"])


class Adagrad(RowOptimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi, Hazan and Singer, 2011)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_common(lr, weight_decay, None, foreach, False, differentiable)
        check("lr_decay", lr_decay)
        check("initial_accumulator_value", initial_accumulator_value)
        check("epsilon", eps)
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach, "maximize": maximize, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip

    sparse = True
    live = ("lr", "lr_decay", "weight_decay", "eps")
    unread = (*RowOptimizer.unread, "initial_accumulator_value")

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        return p.new_full(p.shape, group["initial_accumulator_value"]) if name == "sum" else super().fresh(group, p, name)

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(_rows.adagrad_update, group, p, g, ("sum", "step"), h, maximize=group["maximize"])


class Adadelta(RowOptimizer):
    """Steps scaled by the ratio of the running means of squared changes and squared gradients (Zeiler, 2012)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, None, foreach, capturable, differentiable)
        check("rho", rho, high=1.0)
        check("epsilon", eps)
        super().__init__(
            params,
            {
                "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable,
                "foreach": foreach, "differentiable": differentiable,
            },
        )  # fmt: skip

    live = ("lr", "rho", "eps", "weight_decay")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(_rows.adadelta_update, group, p, g, ("square_avg", "acc_delta", "step"), h, maximize=group["maximize"])


class Rprop(RowOptimizer):
    """Only signs of gradients count: an element's step grows while its sign stays and shrinks where it turns (Riedmiller, Braun, 1993).

    etas: the factors to shrink and to grow. step_sizes: the smallest and the largest step. lr: the first step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, 0, None, foreach, capturable, differentiable)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}; they must be below and above 1")
        super().__init__(
            params,
            {
                "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
                "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    live = (("etas", 0), ("etas", 1), ("step_sizes", 0), ("step_sizes", 1))
    unread = (*RowOptimizer.unread, "lr")

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        return p.new_full(p.shape, float(group["lr"])) if name == "step_size" else super().fresh(group, p, name)

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(_rows.rprop_update, group, p, g, ("prev", "step_size", "step"), h, maximize=group["maximize"])


class ASGD(RowOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992): `state[p]["ax"]` is the average of the parameter from step t0 on.

    lambd: decay term. alpha: power by which the step size falls.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, None, foreach, capturable, differentiable)
        super().__init__(
            params,
            {
                "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
                "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    live = ("lr", "lambd", "alpha", "t0", "weight_decay")

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        if name in ("eta", "mu"):
            return counter(p, float(group["lr"]) if name == "eta" else 1.0)
        return super().fresh(group, p, name)

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(_rows.asgd_update, group, p, g, ("ax", "eta", "mu", "step"), h, maximize=group["maximize"])
