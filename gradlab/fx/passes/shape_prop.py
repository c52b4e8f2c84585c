"""Shapes and dtypes of a graph's values, noted at its nodes while it runs on an example."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradlab.dtype import DType
from gradlab.fx.interpreter import Interpreter
from gradlab.fx.node import Node, map_aggregate
from gradlab.tensor import Tensor


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: tuple[int, ...]
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]


class ShapeProp(Interpreter):
    """`ShapeProp(gm).propagate(*args)` runs the graph, and notes in `node.meta` the "type" of each value and, where it is a tensor or holds
    some, as "tensor_meta" their TensorMetadata. Returns the result.
    """

    def run_node(self, n: Node) -> Any:
        """The value of one node, which is noted."""
        found = super().run_node(n)
        tensors: list[Tensor] = []

        def known(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            tensors.append(value)
            return TensorMetadata(value.shape, value.dtype, value.requires_grad, value.stride())

        noted = map_aggregate(found, known)
        if tensors:
            n.meta["tensor_meta"] = noted
        n.meta["type"] = type(found)
        return found

    def propagate(self, *args: Any) -> Any:
        """Run on these arguments."""
        return self.run(*args)
