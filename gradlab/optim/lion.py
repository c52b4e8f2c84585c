"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.optim.hyper import check_common
from gradlab.optim.optimizer import Group
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor


class Lion(RowOptimizer):
    """Every element moves by lr, in the direction of the sign of betas[0] · momentum + (1 - betas[0]) · gradient; then the momentum
    takes in the gradient with 1 - betas[1]. Weight decay is decoupled (Chen et al., 2023, "Symbolic Discovery of Optimization
    Algorithms"). Rates are three to ten times smaller than AdamW's, weight decays as much larger.

    >>> p = gl.ones(2, requires_grad=True)
    >>> optimizer = gl.optim.Lion([p], lr=0.25)
    >>> (p * gl.tensor([3.0, -0.1])).sum().backward()
    >>> optimizer.step()
    >>> p.detach()
    tensor([0.7500, 1.2500])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-4,
        betas: tuple[Any, Any] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, betas, foreach, capturable, differentiable)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize, "capturable": capturable,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    live = ("lr", ("betas", 0), ("betas", 1), "weight_decay")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        self.run(ops.optim.lion_update, group, p, g, ("exp_avg",), h, maximize=group["maximize"])
