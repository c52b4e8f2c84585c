"""Relatives of Adam: Adamax, NAdam, RAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.optim.hyper import check, check_common
from gradlab.optim.optimizer import Group, counter
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor

_rows = ops.optim_variants


class Adamax(RowOptimizer):
    """Adam with a decaying maximum of the gradient in place of its mean square (Kingma and Ba, 2015)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, betas, foreach, capturable, differentiable)
        check("epsilon", eps)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
                "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    live = ("lr", ("betas", 0), ("betas", 1), "eps", "weight_decay")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(_rows.adamax_update, group, p, g, ("exp_avg", "exp_inf", "step"), h, maximize=group["maximize"])


class NAdam(RowOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016). `momentum_decay` sets how slowly the momentum rises to betas[0]."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, betas, foreach, capturable, differentiable)
        check("epsilon", eps)
        check("momentum_decay", momentum_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    live = ("lr", ("betas", 0), ("betas", 1), "eps", "weight_decay", "momentum_decay")

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        return counter(p, 1.0) if name == "mu_product" else super().fresh(group, p, name)

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        flags = {"decoupled": group["decoupled_weight_decay"], "maximize": group["maximize"]}
        self.run(_rows.nadam_update, group, p, g, ("exp_avg", "exp_avg_sq", "mu_product", "step"), h, **flags)


class RAdam(RowOptimizer):
    """Adam without its adaptive step while too few gradients are known, then with its variance rectified (Liu et al., 2020)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, betas, foreach, capturable, differentiable)
        check("epsilon", eps)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            },
        )  # fmt: skip

    live = ("lr", ("betas", 0), ("betas", 1), "eps", "weight_decay")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        flags = {"decoupled": group["decoupled_weight_decay"], "maximize": group["maximize"]}
        self.run(_rows.radam_update, group, p, g, ("exp_avg", "exp_avg_sq", "step"), h, **flags)
