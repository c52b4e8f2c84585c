"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.optim.hyper import check, check_common
from gradlab.optim.optimizer import Group
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor

_NAMES = ("exp_avg", "exp_avg_sq", "step")
_AMSGRAD_NAMES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")


class Adam(RowOptimizer):
    """Adam: steps scaled by running means of the gradient and of its square (Kingma and Ba, 2015).

    `weight_decay` adds weight_decay · parameter to the gradient; with `decoupled_weight_decay` the parameter shrinks by lr · weight_decay
    instead, as in AdamW. `amsgrad`: divide by the largest mean square so far (Reddi, Kale and Kumar, 2018). `foreach`, `capturable`,
    `fused` are accepted: there is one implementation, and every step can be traced.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_common(lr, weight_decay, betas, foreach, capturable, differentiable)
        check("epsilon", eps)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
                "foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )  # fmt: skip

    live = ("lr", ("betas", 0), ("betas", 1), "eps", "weight_decay")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        row, names = (ops.optim.amsgrad_update, _AMSGRAD_NAMES) if group["amsgrad"] else (ops.optim.adam_update, _NAMES)
        self.run(row, group, p, g, names, h, decoupled=group["decoupled_weight_decay"], maximize=group["maximize"])


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameter shrinks by lr · weight_decay in each step (Loshchilov and Hutter, 2019)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
