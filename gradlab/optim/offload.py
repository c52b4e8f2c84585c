"""An optimizer's state in the host's memory: on the GPU only while its parameters are updated, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gradlab.autograd.mode import current, enable_grad, no_grad
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor import Tensor

AT_ONCE = 32 << 20  # bytes of parameters whose state is on the GPU together


@dataclass
class _Offload:
    """Runs an optimizer's step for some parameters at a time, between bringing their state and taking it back."""

    at_once: int
    running: bool = False

    def __call__(self, step: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self.running:  # a step within a step: of a subclass that calls its base's
            return step(optimizer, *args, **kwargs)
        if current().tracer is not None:
            raise NotImplementedError(
                f"{type(optimizer).__name__}: its state is on the host (offload_state), where a compiled program does not reach; call "
                f"step() outside of the compiled function"
            )
        found = None
        self.running = True
        groups = optimizer.param_groups
        given = [group["params"] for group in groups]
        by_parts = optimizer.by_parameter  # another optimizer's update may need all parameters at once
        closure = args[0] if args else kwargs.get("closure")
        try:
            if by_parts and closure is not None:
                with enable_grad():
                    found = closure()
            for parts in self._parts(given) if by_parts else [given]:
                for group, params in zip(groups, parts, strict=True):
                    group["params"] = params
                chosen = [p for params in parts for p in params]
                bring(optimizer, chosen)
                try:
                    if by_parts:
                        step(optimizer)
                    else:
                        found = step(optimizer, *args, **kwargs)
                finally:
                    take(optimizer, chosen)
        finally:
            self.running = False
            for group, params in zip(groups, given, strict=True):
                group["params"] = params
        return found

    def _parts(self, given: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
        """Lists of parameters for each group, of about `at_once` bytes together: those that have a gradient."""
        for i, params in enumerate(given):
            part: list[Tensor] = []
            size = 0
            for p in params:
                if p.grad is None:
                    continue
                more = p.numel() * p.element_size()
                if part and size + more > self.at_once:
                    yield [part if j == i else [] for j in range(len(given))]
                    part, size = [], 0
                part.append(p)
                size += more
            if part:
                yield [part if j == i else [] for j in range(len(given))]


def bring(optimizer: Optimizer, params: list[Tensor]) -> None:
    """Move the state of some parameters to where they are."""
    for p in params:
        state = optimizer.state.get(p, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and value.device != p.device:
                state[name] = value.to(p.device)


def take(optimizer: Optimizer, params: list[Tensor]) -> None:
    """Move the state of some parameters to the host, but for 0-d counters."""
    with no_grad():
        for p in params:
            state = optimizer.state.get(p, {})
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape and value.device.type != "cpu":
                    state[name] = value.cpu()


def offload_state(optimizer: Any, at_once: int = AT_ONCE) -> Any:
    """Keep an optimizer's state (Adam's two moments, say) in the host's memory; returns the optimizer, whose use stays the same.

    In `step()` the state of some parameters at a time, of about `at_once` bytes of parameters, is moved to the GPU and back. So between
    steps, and in forward and backward, none of it takes memory there; a step costs copying it twice. Values are bit for bit the same.
    `state_dict` has tensors of the CPU, and `load_state_dict` leaves them there. An optimizer whose update is not parameter by parameter
    (LBFGS, one of your own) has all its state on the GPU during a step. On the CPU nothing changes.

    Raises TypeError for what is no optimizer; a step in a compiled function raises NotImplementedError.

    >>> import gradlab as gl
    >>> model = gl.nn.Linear(2, 1)
    >>> optimizer = gl.optim.offload_state(gl.optim.Adam(model.parameters()))
    >>> model(gl.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> {value.device.type for state in optimizer.state.values() for value in state.values()}
    {'cpu'}
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"offload_state: expected an optimizer, not {type(optimizer).__name__}")
    if at_once <= 0:
        raise ValueError(f"offload_state: at_once is a number of bytes above 0, not {at_once}")
    optimizer._offload = _Offload(int(at_once))
    take(optimizer, [p for group in optimizer.param_groups for p in group["params"]])
    return optimizer
