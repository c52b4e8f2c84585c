"""Nodes made by hand, whose outputs' gradients come back together: for hooks on whole modules, and for parts of a tensor.

Parts taken one by one would each make a gradient of the whole tensor's size, which costs recurrent layers the square of their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from sys import _getframe as getframe
from typing import Any

import numpy as np

from gradlab.autograd.base import Version, meta_of, version_of
from gradlab.autograd.mode import current
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.autograd.record import wrap
from gradlab.call_site import user_frame
from gradlab.spec import spec_of
from gradlab.tensor.shape import cat


class Joint(Node):
    """`function` gets the list of all outputs' gradients (None for an unused output) and returns the inputs' gradients."""

    __slots__ = ("function", "title", "width")
    function: Callable[[list[Any]], list[Any]]
    title: str
    width: int
    targets = frozenset(range(4096))

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.width

    def name(self) -> str:
        return self.title

    def watch(self, index: int, version: Version) -> None:
        """Nothing to watch: this node keeps no output."""

    def back(self, g: Any) -> Any:
        return self.function(list(g) if self.width > 1 else [g])


def joined(title: str, inputs: Sequence[Any], arrays: Sequence[Any], function: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Tensors of these arrays, recorded as the outputs of one node with that backward."""
    node = object.__new__(Joint)
    node.edges = tuple(map(edge_to, inputs))
    node.saved, node.params = (), {}
    node.specs = node.versions = node.hooks = None
    node.output_specs = tuple(map(spec_of, arrays))
    node.seq, node.scope = next_sequence(), current().scope
    node.code, node.lasti = user_frame(getframe(1))
    node.title, node.width, node.function = title, len(arrays), function
    found = [wrap(a) for a in arrays]
    for i, t in enumerate(found):
        t._edge = node if len(found) == 1 else Edge(node, i)
    return found


def parts(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    """`x.split(sizes, dim)`, whose gradients are joined by one `cat`. For parts that nobody writes; of a write to x they know."""
    mode, array = current(), x._array
    if mode.special or not isinstance(array, np.ndarray):  # a trace wants rows
        return list(x.split(list(sizes), dim))
    lead = (slice(None),) * (dim % array.ndim)
    arrays = [array[(*lead, slice(end - size, end))] for size, end in zip(sizes, accumulate(sizes))]
    if x._edge is None or not mode.recording:
        return _of_memory([wrap(a) for a in arrays], x)

    def back(gradients: list[Any]) -> list[Any]:
        like = next(g for g in gradients if g is not None)
        return [cat([like.new_zeros(a.shape) if g is None else g for g, a in zip(gradients, arrays)], dim)]

    return _of_memory(joined("SplitBackward0", [x], arrays, back), x)


def _of_memory(found: list[Any], x: Any) -> list[Any]:
    version = version_of(x)
    for t in found:
        meta_of(t).version = version
    return found
