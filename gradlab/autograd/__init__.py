"""Automatic differentiation: recording, the graph, the walk backward.

Knows rows (`gradlab.op`) and arrays, not the Tensor class above it: Tensor derives from `Differentiable` and hands itself over once.
"""

from __future__ import annotations

from typing import Any

from gradlab.advice import warn
from gradlab.autograd import (
    engine,
    errors,
    forward_ad as forward_ad,
    function as function,
    functional as functional,
    graph as graph,
    graph_cuts,
)
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.errors import NonFiniteError
from gradlab.autograd.function import Function
from gradlab.autograd.gradcheck import gradcheck, gradgradcheck
from gradlab.autograd.graph import GradientEdge, Point, tensor_of
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
from gradlab.named_errors import named_functions

__all__ = [
    "AccumulateGrad",
    "Differentiable",
    "Edge",
    "Function",
    "Node",
    "NonFiniteError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


class _Variables(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Differentiable)


class Variable(metaclass=_Variables):
    """The legacy name of a tensor: Tensors have recorded operations themselves since PyTorch 0.4, and are instances of it.

    `Variable(data)` is a leaf tensor sharing the memory of `data`. volatile: without effect, with a UserWarning; use `no_grad`.
    """

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        if volatile is not None:
            warn(UserWarning, "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        if not isinstance(data, Differentiable):
            raise TypeError(f"Variable: data is a tensor, not {type(data).__name__}; use gl.tensor(...)")
        leaf: Any = data
        return leaf.detach().requires_grad_(requires_grad)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, (Differentiable, GradientEdge)) else list(value)


def _roots(outputs: Any, gradients: Any) -> tuple[list[Any], list[Any] | None]:
    """Outputs and the gradients given for them, as lists; GradientEdges as what the engine takes."""
    targets, given = _listed(outputs), None if gradients is None else _listed(gradients)
    for i, x in enumerate(targets):
        if isinstance(x, GradientEdge):
            targets[i] = tensor_of(x, given[i] if given is not None and i < len(given) else None)
            if targets[i]._array.shape == "unknown":
                raise RuntimeError("a GradientEdge among the outputs needs its gradient given: the shape of its values is not known")
    return targets, given


def _bearers(tensors: list[Any]) -> list[Any]:
    """The tensors that bear these tensors' gradients: themselves, or a sparse tensor's values."""
    return [x if getattr(x, "_bearer", None) is None else x._bearer for x in tensors]


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` (one or several; a `graph.GradientEdge` may stand for one) for the leaves to the leaves' `.grad`.

    grad_tensors: for each tensor that is not a single number, a tensor of its shape: the vector of the vector-Jacobian product.
    retain_graph: keep what backward needs, for a second pass (default: the value of `create_graph`).
    create_graph: record the backward itself, so that gradients can be differentiated again.
    grad_variables: the older name of grad_tensors.
    inputs: add only to these tensors' `.grad`.
    Raises RuntimeError for a freed graph, a non-scalar without gradient, a tensor with no graph, a value modified in place.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("backward: grad_tensors and grad_variables are one argument; give grad_tensors")
        warn(FutureWarning, "backward: grad_variables is deprecated; it is grad_tensors")
        grad_tensors = grad_variables
    targets, gradients = _roots(tensors, grad_tensors)
    chosen = None if inputs is None else _bearers([tensor_of(x) for x in _listed(inputs)])
    if chosen is not None and any(isinstance(x, Point) for x in chosen):
        raise RuntimeError("backward: a GradientEdge among the inputs has to be a leaf's: there is no .grad elsewhere; use autograd.grad")
    engine.backward(targets, gradients, retain_graph, create_graph, chosen)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` for `inputs`, as a tuple; no `.grad` changes.

    allow_unused: give None for an input that the outputs do not depend on, instead of raising RuntimeError.
    is_grads_batched: each of grad_outputs has one more dimension in front, for several vectors; so have the gradients.
    materialize_grads: give zeros instead of None. only_inputs: as in PyTorch, without effect. The other arguments are those of
    `backward`; a `graph.GradientEdge` may stand for a tensor among outputs and inputs.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True gives zeros for unused inputs, so allow_unused cannot be False")
    sources = [tensor_of(x) for x in _listed(inputs)]
    targets, gradients = _roots(outputs, grad_outputs)
    if is_grads_batched:
        found = engine.batched(targets, sources, gradients, retain_graph, create_graph)
    else:
        found = engine.grad(targets, _bearers(sources), gradients, retain_graph, create_graph)
        found = [g if g is None or getattr(x, "_bearer", None) is None else x.shown(g) for x, g in zip(sources, found, strict=True)]
    for i, (x, g) in enumerate(zip(sources, found, strict=True)):
        if g is None and materialize_grads:
            if isinstance(x, Point):
                raise RuntimeError(f"grad: input {i} is an unused GradientEdge: the shape of the zeros of materialize_grads is not known")
            shape = (*engine.batch_of(gradients), *x._array.shape) if is_grads_batched else x._array.shape
            found[i] = x.detach().new_zeros(shape, dtype=x._array.dtype)
        elif g is None and not allow_unused:
            hint = errors.MIXED_UP if any(t._edge is LEAF for t in targets) else ""
            raise RuntimeError(
                f"grad: input {i} (shape {x._array.shape}) was not used to compute the outputs; "
                f"pass allow_unused=True to get None for it, or materialize_grads=True to get zeros{hint}{graph_cuts.because(x)}"
            )
    return tuple(found)


named_functions(__name__)
