"""Muon: momentum whose matrix is made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from gradlab.autograd.mode import enable_grad, no_grad
from gradlab.dtype import wide
from gradlab.optim.hyper import check, each
from gradlab.optim.optimizer import Optimizer, follow
from gradlab.tensor import Tensor
from gradlab.tensor.product_sums import addmm, baddbmm
from gradlab.tensor.shape import stack

COEFFICIENTS = (3.4445, -4.775, 2.0315)


def orthogonal(update: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """A matrix (or a batch of them) with the singular vectors of `update` and all singular values near 1, in bfloat16.

    A Newton-Schulz iteration, x = a·x + (b·xxᵀ + c·(xxᵀ)²)·x, whose coefficients are chosen for a steep start: the singular values end up
    between 0.5 and 1.5 (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks").
    """
    a, b, c = coefficients
    x = update.bfloat16()
    tall = update.shape[-2] > update.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    add = addmm if x.ndim == 2 else baddbmm
    for _ in range(steps):
        gram = x @ x.mT
        x = add(x, add(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(Optimizer):
    """Nesterov's momentum, made orthogonal, for the matrices of hidden layers; vectors, embeddings and the head belong to AdamW.

    lr, weight_decay (decoupled), momentum, nesterov: as in SGD. ns_coefficients, ns_steps, eps: of the iteration, see `orthogonal`.
    adjust_lr_fn: None or "original" multiplies lr by sqrt(max(1, rows / columns)), "match_rms_adamw" by 0.2 · sqrt(max(rows, columns)),
    with which AdamW's rates and decays can be kept. ValueError for parameters that are not matrices.

    >>> p = gl.eye(2).requires_grad_()
    >>> optimizer = gl.optim.Muon([p], lr=0.1, weight_decay=0.0)
    >>> (p * gl.tensor([[0.0, 2.0], [1.0, 0.0]])).sum().backward()
    >>> optimizer.step()
    >>> bool((p.detach().diagonal() == 1).all()), bool((p.detach().fliplr().diagonal() < -0.05).all())
    (True, True)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check("learning rate", lr)
        check("momentum", momentum)
        check("weight decay", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f'Adjust learning rate function {adjust_lr_fn} is not supported; it is "original" or "match_rms_adamw"')
        super().__init__(
            params,
            {
                "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients,
                "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
            },
        )  # fmt: skip

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with hyper-parameters of their own. ValueError for parameters that are not matrices."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                self.param_groups.pop()
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}; give that one to AdamW"
                )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient. closure: recomputes the loss and returns it; its result is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                if len(group["ns_coefficients"]) != 3:
                    raise ValueError("Coefficients must be a tuple of exactly 3 values")
                if group["ns_steps"] >= 100:
                    raise ValueError("Number of steps must be less than 100 for computational efficiency")
                self._advance(group)
        return loss

    def _advance(self, group: dict[str, Any]) -> None:
        """One step of a group: matrices of one shape are made orthogonal together, in one batch of products."""
        lr, decay, momentum = each(group, ("lr", "weight_decay", "momentum"))
        alike: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for p in group["params"]:
            if p.grad is not None:
                update = self._momentum(p, p.grad, momentum, group["nesterov"])
                alike.setdefault((p.shape, update.dtype, p.device), []).append((p, update))
        for ((rows, columns), _, _), pairs in alike.items():
            if group["adjust_lr_fn"] == "match_rms_adamw":
                ratio = 0.2 * math.sqrt(max(rows, columns))
            else:
                ratio = math.sqrt(max(1.0, rows / columns)) if columns else 1.0
            how = group["ns_coefficients"], group["ns_steps"], group["eps"]
            if len(pairs) == 1:
                found: Iterable[Tensor] = (orthogonal(pairs[0][1], *how),)
            else:
                found = orthogonal(stack([update for _, update in pairs]), *how).unbind(0)
            for (p, _), direction in zip(pairs, found, strict=True):
                computed = wide(p._array.dtype)  # half parameters are rounded once
                p.copy_(p.to(computed) * (1 - lr * decay) - direction.to(computed) * (lr * ratio))

    def _momentum(self, p: Tensor, g: Tensor, momentum: Any, nesterov: bool) -> Tensor:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = g.zeros_like()
        follow(state, ("momentum_buffer",), g._array.dtype)
        buffer: Tensor = state["momentum_buffer"]
        buffer.lerp_(g, 1 - momentum)
        if not nesterov:
            return buffer
        computed = wide(g._array.dtype)
        return g.to(computed).lerp(buffer.to(computed), momentum)
