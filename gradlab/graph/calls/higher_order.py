"""Gradients of a compiled function that have gradients themselves (`create_graph=True`): its backward as a function, to be compiled too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd import engine
from gradlab.autograd.base import LEAF
from gradlab.autograd.mode import current
from gradlab.graph.staging.effects import taken_apart
from gradlab.graph.staging.results import results_of
from gradlab.graph.staging.tree import flatten


def stops_of(inputs: Sequence[Any]) -> frozenset[Any]:
    """The nodes of inputs that are no leaves: behind them lie graphs of outside, which get their gradients from there."""
    return frozenset(t._edge.node for t in inputs if t._edge is not None and t._edge is not LEAF)


class Gradients:
    """From a call's arguments and the gradients of its results to the gradients of its inputs: runs the function and its backward anew.

    function  the user's
    roots     positions of the results that have gradients, among the tensors that the function makes
    leaves    ("argument", position) or ("tensor", tensor): what the gradients are of
    """

    def __init__(self, function: Callable[..., Any], roots: Sequence[int], leaves: Sequence[tuple[str, Any]]) -> None:
        self.function, self.roots, self.leaves = function, roots, leaves
        self.__qualname__ = f"the gradient of {getattr(function, '__qualname__', None) or type(function).__name__}"

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], gradients: list[Any]) -> list[Any]:
        tracer = current().tracer
        given = flatten([list(args), kwargs])[0]
        found = taken_apart(self.function(*args, **kwargs), tracer)[0]
        values = results_of(found, given, tracer.before(), tracer.graded()).values
        pairs = [(values[i], g) for i, g in zip(self.roots, gradients, strict=True) if g is not None]
        inputs = [given[place] if kind == "argument" else place for kind, place in self.leaves]
        return engine.grad([y for y, _ in pairs], inputs, [g for _, g in pairs], True, True, False, stops_of(inputs))
