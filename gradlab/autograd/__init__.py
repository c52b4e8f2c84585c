"""Automatic differentiation: recording, the graph, the walk backward.

Knows rows (`gradlab.op`) and arrays, not the Tensor class above it: Tensor derives from `Differentiable` and hands itself over once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.autograd import engine, errors
from gradlab.autograd.base import Differentiable
from gradlab.autograd.errors import NonFiniteError
from gradlab.autograd.mode import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)
from gradlab.autograd.node import AccumulateGrad, Edge, Node

__all__ = [
    "AccumulateGrad",
    "Differentiable",
    "Edge",
    "Node",
    "NonFiniteError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def Variable(data: Any, requires_grad: bool = False) -> Any:
    """A leaf tensor sharing `data`'s memory. The legacy name: Tensors have recorded operations themselves since PyTorch 0.4."""
    return data.detach().requires_grad_(requires_grad)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, Differentiable) else list(value)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` (one or several) with respect to the leaves to the leaves' `.grad`.

    grad_tensors: for each tensor that is not a single number, a tensor of its shape: the vector of the vector-Jacobian product.
    retain_graph: keep what backward needs, for a second pass (default: the value of `create_graph`).
    create_graph: record the backward itself, so that gradients can be differentiated again.
    inputs: add only to these tensors' `.grad`.
    Raises RuntimeError for a freed graph, a non-scalar without gradient, a tensor with no graph, a value modified in place.
    """
    gradients = None if grad_tensors is None else _listed(grad_tensors)
    engine.backward(_listed(tensors), gradients, retain_graph, create_graph, None if inputs is None else _listed(inputs))


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` for `inputs`, as a tuple; no `.grad` changes.

    allow_unused: give None for an input that the outputs do not depend on, instead of raising RuntimeError.
    materialize_grads: give zeros instead of None. The other arguments are those of `backward`.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True gives zeros for unused inputs, so allow_unused cannot be False")
    sources: Sequence[Any] = _listed(inputs)
    gradients = None if grad_outputs is None else _listed(grad_outputs)
    targets = _listed(outputs)
    found = engine.grad(targets, sources, gradients, retain_graph, create_graph)
    for i, (x, g) in enumerate(zip(sources, found, strict=True)):
        if g is None and materialize_grads:
            found[i] = x.detach().new_zeros(x.shape, dtype=x._array.dtype)
        elif g is None and not allow_unused:
            hint = errors.MIXED_UP if any(t.is_leaf for t in targets) else ""
            raise RuntimeError(
                f"grad: input {i} (shape {x._array.shape}) was not used to compute the outputs; "
                f"pass allow_unused=True to get None for it, or materialize_grads=True to get zeros{hint}"
            )
    return tuple(found)


