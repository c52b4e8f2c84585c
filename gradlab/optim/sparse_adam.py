"""Adam for sparse gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.layout import strided
from gradlab.optim.hyper import check, check_common
from gradlab.optim.optimizer import Group
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat


class SparseAdam(RowOptimizer):
    """Adam that looks at, and changes, only the parts of a parameter that have a gradient: those of embeddings with `sparse=True`.

    The running means of the other parts stay as they are, and their steps are left out; so it is Adam, but for rows that were not used.
    `eps` is added before the correction of the second mean, not after it, as in PyTorch. RuntimeError for a dense gradient: use Adam.
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False
    ) -> None:
        check_common(lr, 0, betas)
        check("epsilon", eps)
        if not lr > 0 or not eps > 0:
            raise ValueError(f"Invalid learning rate or epsilon value: {lr}, {eps}; both are above 0")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    sparse = True
    live = ("lr", ("betas", 0), ("betas", 1), "eps")

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        if g.layout is strided:
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead; in compiled functions and under vmap those of "
                "embeddings are dense"
            )
        done = self.state[p].get("step")
        corrected = 1 - group["betas"][1] ** ((0 if done is None else done.item()) + 1)
        numbers = h.clone()
        numbers[3] /= corrected**0.5
        h = cat([numbers, numbers.new_zeros((1,))])  # no weight decay
        names = ("exp_avg", "exp_avg_sq", "step")
        self.run(ops.optim.adam_update, group, p, g, names, h, decoupled=False, maximize=group["maximize"])
