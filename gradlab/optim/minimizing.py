"""`minimize`: a whole training step in one call, at once or as an operation of a `gl.Graph`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradlab.autograd.mode import current
from gradlab.tensor import Tensor


class Minimizing:
    """The part of Optimizer that makes steps from losses."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """See Optimizer."""
        raise NotImplementedError

    def step(self, closure: Any = None) -> Any:
        """See Optimizer."""
        raise NotImplementedError

    def minimize(self, loss: Tensor) -> Any:
        """One training step towards a smaller loss.

        While a `gl.Graph` is defined: an operation that a session runs, `session.run(train)`. It makes the step, and takes along what the
        modules behind the loss write (batch norm's statistics); the optimizer's buffers are variables of the graph. Hyper-parameters are
        read at each run. Otherwise the step is made at once: `zero_grad()`, `loss.backward()`, `step()`, and the loss is returned.
        """
        tracer = current().tracer
        if hasattr(tracer, "minimize"):
            return tracer.minimize(self, loss)
        self.zero_grad()
        loss.backward()
        self.step()
        return loss

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Tensor, Tensor]]) -> Any:
        """As `minimize`, with gradients that were computed (and clipped, say) before: an iterable of (gradient, parameter)."""
        pairs = list(grads_and_vars)
        tracer = current().tracer
        if hasattr(tracer, "apply_gradients"):
            return tracer.apply_gradients(self, pairs)
        self.zero_grad()
        for g, p in pairs:
            p.grad = g
        self.step()
        return None
