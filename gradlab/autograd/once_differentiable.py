"""`once_differentiable`: for a Function's backward that cannot be differentiated itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from sys import _getframe as getframe
from typing import Any

from gradlab.autograd.base import Differentiable, Version
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.autograd.saved import without_graph
from gradlab.call_site import user_frame
from gradlab.spec import spec_of


class _Twice(Node):
    """Stands behind the gradients of a backward that cannot be differentiated."""

    __slots__ = ("width",)
    width: int

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.width

    def name(self) -> str:
        return "Error"

    def watch(self, index: int, version: Version) -> None:
        """Nothing is kept."""

    def back(self, g: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a Function's backward that cannot be differentiated itself, say because it computes with NumPy.

    It runs without recording, and a second derivative through it raises RuntimeError instead of being silently wrong.
    """

    @functools.wraps(fn)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        mode = current()
        token = enter(mode.replace(recording=False))
        try:
            found = fn(ctx, *grads)
        finally:
            leave(token)
        if not mode.recording:
            return found
        kept = [x for x in (*grads, *ctx.saved_tensors) if isinstance(x, Differentiable)]
        if all(x._edge is None for x in kept):
            return found
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        node = object.__new__(_Twice)
        node.edges, node.width = tuple(map(edge_to, kept)), len(parts)
        node.saved, node.params = (), {}
        node.specs = node.versions = node.hooks = None
        node.output_specs = tuple(spec_of(x._array) if isinstance(x, Differentiable) else None for x in parts)
        node.seq, node.scope = next_sequence(), mode.scope
        node.code, node.lasti = user_frame(getframe(1))
        for i, x in enumerate(parts):
            if isinstance(x, Differentiable):
                parts[i] = without_graph(x)
                parts[i]._edge = node if node.width == 1 else Edge(node, i)
        return tuple(parts) if isinstance(found, (tuple, list)) else parts[0]

    return wrapper
