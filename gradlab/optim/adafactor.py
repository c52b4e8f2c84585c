"""Adafactor: the mean squares of a matrix's gradient kept by rows and columns alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradlab.autograd.mode import enable_grad, no_grad
from gradlab.dtype import finfo, float64, wide
from gradlab.optim.hyper import check, check_common, each
from gradlab.optim.optimizer import Optimizer, counter, follow
from gradlab.tensor import Tensor


class Adafactor(Optimizer):
    """As RMSprop, where of a matrix's squared gradients only the means of rows and of columns are kept: their product takes their place
    (N. Shazeer and M. Stern, "Adafactor: Adaptive learning rates with sublinear memory cost", 2018). With more dimensions, the last two.

    lr: the relative step is min(lr, 1/√t), times the root mean square of the parameter or eps[1], whichever is more. weight_decay is
    decoupled and takes lr itself. beta2_decay: the means keep 1 - t^beta2_decay of what they were. eps[0]: its square is the least mean
    square (None: the dtype's own). d: an update whose root mean square is larger is scaled down to it. Arithmetic as in PyTorch.

    >>> p = gl.ones(2, 3, requires_grad=True)
    >>> optimizer = gl.optim.Adafactor([p], lr=0.5)
    >>> p.square().sum().backward()
    >>> optimizer.step()
    >>> p.detach()[0], {name: s.shape for name, s in optimizer.state[p].items()}
    (tensor([0.5000, 0.5000, 0.5000]), {'step': (), 'row_var': (2, 1), 'col_var': (1, 3)})
    """

    decisive = ("weight_decay",)
    by_parameter = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_common(lr, weight_decay)
        check("beta2_decay", beta2_decay, -float("inf"), 0.0)
        if eps[0] is not None:
            check("epsilon1", eps[0])
        check("epsilon2", eps[1])
        check("clipping threshold d", d, 1.0)
        super().__init__(
            params,
            {
                "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
                "maximize": maximize,
            },
        )  # fmt: skip

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient. closure: recomputes the loss and returns it; its result is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                numbers = each(group, ("lr", "beta2_decay", ("eps", 1), "d", "weight_decay"))
                for p in group["params"]:
                    if p.grad is not None:
                        self._advance(group, p, -p.grad if group["maximize"] else p.grad, numbers)
        return loss

    def _advance(self, group: dict[str, Any], p: Tensor, g: Tensor, numbers: list[Any]) -> None:
        """One parameter. What is one number is computed in float64, half types in float32: they are rounded where they are stored."""
        lr, beta2_decay, least, threshold, decay = numbers
        floor = finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        size = max(p.numel(), 1)
        state = self.state[p]
        if "step" not in state:
            state["step"] = counter(p)
            if g.ndim > 1:
                state["row_var"] = g.new_zeros((*g.shape[:-1], 1))
                state["col_var"] = g.new_zeros((*g.shape[:-2], 1, g.shape[-1]))
            else:
                state["variance"] = g.zeros_like()
        follow(state, ("row_var", "col_var", "variance"), g._array.dtype)
        t = state["step"].add_(1).to(float64)
        g = g.to(wide(g._array.dtype))
        own = p.to(g.dtype)
        fresh = (t**beta2_decay).to(g.dtype)
        alpha = _rms(own, size).clamp(min=least) * t.rsqrt().clamp(max=lr)
        if group["weight_decay"] != 0:
            own = own * (1 - lr * decay)
        if g.ndim > 1:
            row, column = state["row_var"], state["col_var"]
            row = _moved(row, g.norm(dim=-1, keepdim=True).square() / g.shape[-1], fresh)
            column = _moved(column, g.norm(dim=-2, keepdim=True).square() / g.shape[-2], fresh)
            squares = (row @ column) / row.mean(dim=-2, keepdim=True).clamp(min=floor)
        else:
            squares = _moved(state["variance"], g * g, fresh)
        update = squares.clamp(min=floor * floor).rsqrt() * g
        p.copy_(own - update * (alpha / (_rms(update, size) / threshold).clamp(min=1)).to(g.dtype))


def _moved(mean: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """A mean moved towards a value, in place; as it is stored, in the value's type."""
    if mean.dtype == value.dtype:
        return mean.lerp_(value, weight)
    return mean.copy_(mean.to(value.dtype).lerp(value, weight)).to(value.dtype)


def _rms(x: Tensor, size: int) -> Tensor:
    """The root of the mean square, in float64."""
    return x.norm().to(float64) / size**0.5
