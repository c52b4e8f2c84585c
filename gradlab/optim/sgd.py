"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab import ops
from gradlab.layout import strided
from gradlab.op import Op
from gradlab.optim.hyper import check, check_common
from gradlab.optim.optimizer import Group
from gradlab.optim.row_optimizer import RowOptimizer, parts_of
from gradlab.tensor import Tensor

_row, _momentum_row = ops.optim.sgd_update, ops.optim.sgd_momentum_update


class SGD(RowOptimizer):
    """Stochastic gradient descent, optionally with momentum (and Nesterov's form of it).

    The buffer is momentum · buffer + (1 - dampening) · gradient, at first the gradient itself. `weight_decay` adds weight_decay · parameter
    to the gradient; `maximize` climbs instead. `foreach`, `fused` are accepted: there is one implementation.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_common(lr, weight_decay, foreach=foreach, differentiable=differentiable)
        check("momentum", momentum)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
                "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip

    sparse = True
    live = ("lr", "weight_decay", "momentum", "dampening")
    decisive = ("momentum",)

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        return None  # the first step's gradient

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        if group["momentum"] != 0:
            nesterov, maximize = group["nesterov"], group["maximize"]
            self.run(_momentum_row, group, p, g, ("momentum_buffer",), h, nesterov=nesterov, maximize=maximize)
        else:
            self.run(_row, group, p, g, (), h, maximize=group["maximize"])

    def run_on_parts(self, row: Op, group: Group, p: Tensor, g: Tensor, names: tuple[str, ...], h: Tensor, **params: Any) -> None:
        """With momentum: the buffer is sparse, too, and has all parts that had a gradient so far."""
        if row is _row or group["weight_decay"]:
            super().run_on_parts(row, group, p, g, names, h, **params)
            return
        state, momentum = self.state[p], group["momentum"]
        g = -g if params["maximize"] else g
        old = state.get("momentum_buffer")
        buffer = g.clone() if old is None else momentum * old + (1 - group["dampening"]) * g
        state["momentum_buffer"] = buffer = buffer if buffer.layout is strided else buffer.coalesce()
        step = group["lr"] * (g + momentum * buffer if params["nesterov"] else buffer)
        if step.layout is strided:
            p.sub_(step)
        else:
            at, values = parts_of(step)
            p.view((-1, *values.shape[1:])).index_add_(0, at, -values)
