"""Hyper-parameters: the one place where their values are read.

An eager step reads numbers. In a trace the tracer may hand out live inputs instead, so that one static program serves a whole learning rate
schedule: its `hypers(group, names)` a whole vector (`values` gives the numbers to put there before each run).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.mode import current
from gradlab.autograd.record import wrap
from gradlab.dtype import FLOAT64
from gradlab.tensor import Tensor
from gradlab.tensor.shape import stack


def hyper(group: dict[str, Any], name: str, index: int | None = None) -> Any:
    """A hyper-parameter of a group (one entry of it, for a pair such as betas) as it stands there."""
    value = group[name]
    return value if index is None else value[index]


def values(group: dict[str, Any], names: tuple[Any, ...]) -> list[Any]:
    """Several hyper-parameters as they stand in the group: numbers, or tensors where the user gave tensors."""
    return [group[name] if type(name) is str else group[name[0]][name[1]] for name in names]


def hypers(group: dict[str, Any], names: tuple[Any, ...]) -> Tensor:
    """Several hyper-parameters as a float64 vector: what the update rows take."""
    tracer = current().tracer
    if tracer is None:
        found = values(group, names)
    else:
        live = getattr(tracer, "hypers", None)
        ready = live(group, names) if live is not None else None
        if ready is not None:
            return ready
        found = [hyper(group, name) if type(name) is str else hyper(group, *name) for name in names]
    for value in found:
        if isinstance(value, Tensor):
            break
    else:
        return wrap(np.array(found, FLOAT64))
    place = next(v.device for v in found if isinstance(v, Tensor))
    parts = [v.detach().to(FLOAT64).reshape(()) if isinstance(v, Tensor) else wrap(np.array(v, FLOAT64)).to(place) for v in found]
    return stack(parts)


def each(group: dict[str, Any], names: tuple[Any, ...]) -> list[Any]:
    """Several hyper-parameters for an update made of operations: as they stand in the group, or, in a trace, live 0-d tensors."""
    if current().tracer is None or not group["params"]:
        return values(group, names)
    place = group["params"][0].device
    return list(hypers(group, names).to(place).unbind(0))


def check(name: str, value: Any, low: float = 0.0, high: float = float("inf"), *, below: bool = False) -> None:
    """Raise ValueError unless low <= value <= high (value < high with `below`). A tensor must hold one number."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element, not of shape {value.shape}")
        if dispatch.backend_of(value._array).staged:  # a node of a graph, such as a placeholder
            return
        value = value.item()
    if not (low <= value and (value < high if below else value <= high)):
        limits = f"from {low} up" if high == float("inf") else f"from {low} to {high}{' (not included)' if below else ''}"
        raise ValueError(f"Invalid {name} value: {value}; it must be {limits}")


def refuse_differentiable() -> None:
    """Raise NotImplementedError: no optimizer's update is recorded."""
    raise NotImplementedError(
        "differentiable=True: a step updates parameters in place and is not recorded; to differentiate through an update, "
        "write it as a formula, p = p - lr * gl.autograd.grad(loss, p, create_graph=True)[0]"
    )


def check_common(
    lr: Any, weight_decay: Any = 0, betas: Any = None, foreach: bool | None = None, capturable: bool = False,
    differentiable: bool = False,
) -> None:  # fmt: skip
    """The checks that most optimizers share."""
    if differentiable:
        refuse_differentiable()
    if isinstance(lr, Tensor) and foreach and not capturable:
        raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
    check("lr", lr)
    check("weight_decay", weight_decay)
    if betas is None:
        return
    if len({isinstance(b, Tensor) for b in betas}) > 1:
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor) and foreach and not capturable:
            raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
        check(f"betas[{i}]", beta, high=1.0, below=True)
