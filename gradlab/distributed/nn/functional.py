"""Collectives that are recorded: each returns what it makes, and gradients go back the way values came.

Over one process that is the identity, so the results are clones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.distributed.collectives import _here, _list, _root, _tensors, _times
from gradlab.distributed.reduce_op import ReduceOp, check_reduction
from gradlab.tensor import Tensor


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or what `op` says) of all processes' tensors."""
    _tensors("all_reduce", "tensor", tensor)
    check_reduction("all_reduce", op, tensor._array.dtype)
    _here(group, "all_reduce")
    return tensor.clone()


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """In process `dst` the sum (or what `op` says) of all processes' tensors."""
    if (found := _here(group, "reduce")) is not None:
        _root("reduce", found, dst, None)
    return all_reduce(tensor, op, group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    if (found := _here(group, "broadcast")) is not None:
        _root("broadcast", found, src, None)
    return all_reduce(tensor, ReduceOp.SUM, group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    return (all_reduce(tensor, ReduceOp.SUM, group),)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """In process `dst` the tensors of all processes."""
    return (broadcast(tensor, dst, group),)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's one of the tensors that process `src` has."""
    return broadcast(_list("scatter", "tensors", tensors, 1)[0], src, group)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or what `op` says) of what all processes have for this one. `output` says its shape and dtype."""
    return all_reduce(_list("reduce_scatter", "input_list", input_list, 1, output)[0], op, group)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """What all processes have for this one. `output_tensor_list` says the shapes and dtypes."""
    (like,) = _list("all_to_all", "output_tensor_list", output_tensor_list, 1)
    return (all_reduce(_list("all_to_all", "input_tensor_list", input_tensor_list, 1, like)[0], ReduceOp.SUM, group),)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None
) -> Tensor:
    """What all processes have for this one, along the first dimension. `output` says the shape."""
    _times("all_to_all_single", "input", input, 1, "output", output)
    return all_reduce(input, ReduceOp.SUM, group).reshape(output.shape)
