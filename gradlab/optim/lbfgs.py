"""L-BFGS: a quasi-Newton method for few parameters and a loss without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradlab.autograd.mode import enable_grad, no_grad
from gradlab.optim.hyper import check, check_common
from gradlab.optim.lbfgs_history import History
from gradlab.optim.line_search import Point, strong_wolfe
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor import Tensor
from gradlab.tensor.complex import view_as_real
from gradlab.tensor.shape import cat


def _real(x: Any) -> Any:
    """Real and imaginary parts of a complex tensor, each a number; a real one itself."""
    return view_as_real(x) if x.is_complex() else x


class LBFGS(Optimizer):
    """Limited-memory BFGS. `step` needs a closure that clears the gradients, computes the loss, calls backward and returns the loss.

    A step makes up to `max_iter` iterations and `max_eval` evaluations (default 1.25 · max_iter), never more. It ends where no gradient
    exceeds tolerance_grad, or where the parameters or the loss change by less than tolerance_change. `history_size` pairs of changes
    approximate the Hessian. line_search_fn: None (the step length is lr) or "strong_wolfe". One parameter group only (ValueError).

    Source: J. Nocedal and S. J. Wright, "Numerical Optimization" (2nd ed. 2006), algorithms 7.4 and 7.5.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_common(lr, 0)
        check("tolerance_grad", tolerance_grad)
        check("tolerance_change", tolerance_change)
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError(f'LBFGS: line_search_fn is None or "strong_wolfe", not {line_search_fn!r}')
        super().__init__(
            params,
            {
                "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    # ------------------------------------------------------------ parameters as one vector

    def _gradient(self) -> Tensor:
        """All gradients as one vector; parameters without one count as 0."""
        parts: list[Any] = [p.zeros_like() if p.grad is None else p.grad.detach().to_dense() for p in self.param_groups[0]["params"]]
        return cat([_real(part).reshape(-1) for part in parts])

    def _move(self, start: list[Tensor], t: float, direction: Tensor) -> None:
        """Parameters = start + t · direction."""
        offset = 0
        for p, old in zip(self.param_groups[0]["params"], start, strict=True):
            target = _real(p.detach())
            part: Any = direction.narrow(0, offset, target.numel())
            target.copy_(_real(old) + t * part.reshape(target.shape))
            offset += target.numel()

    # ------------------------------------------------------------ the direction

    @staticmethod
    def _remember(state: dict[str, Any], change: Tensor, step: Tensor, size: int) -> None:
        """Keep a pair of changes, of the gradient and of the parameters, if the curvature along them is positive."""
        curvature = float(change.dot(step))
        if curvature > 1e-10:
            for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
                kept = state[name]
                kept.append(value)
                del kept[:-size]
            state["H_diag"] = curvature / float(change.dot(change))

    def _direction(self, state: dict[str, Any], gradient: Tensor) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient: algorithm 7.4, the two loops."""
        if History.serves(state["old_dirs"], gradient):
            history = self.__dict__.setdefault("_history", History())
            return history.direction(state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"], gradient)
        found: Any = -gradient
        pairs = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        shares = []
        for change, step, scale in reversed(pairs):
            shares.append(float(step.dot(found)) * scale)
            found = found - shares[-1] * change
        found = found * state["H_diag"]
        for (change, step, scale), share in zip(pairs, reversed(shares), strict=True):
            found = found + (share - float(change.dot(found)) * scale) * step
        return found

    # ------------------------------------------------------------ a step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterations as described in the class; returns the loss before them. TypeError without a closure."""
        if closure is None:
            raise TypeError("LBFGS: step needs a closure that computes the loss and its gradients, since a step evaluates it several times")
        with no_grad():
            return self._step(closure)

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        params, tolerance = group["params"], group["tolerance_change"]
        state = self.state[params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluated() -> tuple[Any, float, Tensor]:
            with enable_grad():
                found = closure()
            state["func_evals"] += 1
            return found, float(found), self._gradient()

        first_evals = state["func_evals"]
        result, loss, gradient = evaluated()
        if float(gradient.abs().max()) <= group["tolerance_grad"]:
            return result
        direction: Any = state.get("d")
        length: Any = state.get("t")
        before, loss_before = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            rate = float(group["lr"])
            if state["n_iter"] == 1:
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
                direction = -gradient
                length = min(1.0, 1.0 / float(gradient.abs().sum())) * rate
            else:
                self._remember(state, gradient - before, direction * length, group["history_size"])
                direction = self._direction(state, gradient)
                length = rate
            before, loss_before = gradient, loss
            slope = float(gradient.dot(direction))
            left = group["max_eval"] + first_evals - state["func_evals"]
            if slope > -tolerance or (left < 1 and group["line_search_fn"] is not None):
                break
            start = [p.detach().clone() for p in params]
            if group["line_search_fn"] is not None:

                def at(t: float, start: Any = start, direction: Any = direction) -> Point:
                    self._move(start, t, direction)
                    _, found, g = evaluated()
                    return Point(t, found, g, float(g.dot(direction)))

                size = float(direction.abs().max())
                length, loss, gradient, _ = strong_wolfe(at, Point(0.0, loss, gradient, slope), length, size, 1e-9, left)
                self._move(start, length, direction)
            else:
                self._move(start, length, direction)
                if iteration < group["max_iter"] and left > 0:  # an evaluation after the last iteration would have no use
                    _, loss, gradient = evaluated()
            if state["func_evals"] - first_evals >= group["max_eval"] or float(gradient.abs().max()) <= group["tolerance_grad"]:
                break
            if float((direction * length).abs().max()) <= tolerance or abs(loss - loss_before) < tolerance:
                break
        state.update(d=direction, t=length, prev_flat_grad=before, prev_loss=loss_before)
        return result
