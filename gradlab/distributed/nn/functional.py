"""Collectives that are recorded: each returns what it makes, and gradients go back the way values came.

So a backward runs collectives too: all processes of the group run it, each from a loss of its own, whose sum is what is differentiated.
Within `gradlab.compile` they are calls of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.distributed.collectives import _here, _list, _root, _tensors, carried, from_root, parts_of, to_root
from gradlab.distributed.groups import ProcessGroup, member
from gradlab.distributed.reduce_op import ReduceOp, check_reduction
from gradlab.ops import collective as rows
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat, stack


def _group(group: Any, name: str) -> ProcessGroup | None:
    found = member(group, name)
    return found if found is not None else _here(group, name)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or what `op` says) of all processes' tensors.

    >>> import gradlab as gl
    >>> gl.distributed.init()
    <ProcessGroup '0' of ranks [0]>
    >>> x = gl.tensor([1.0, 2.0], requires_grad=True)
    >>> gl.distributed.nn.all_reduce(x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    >>> gl.distributed.destroy_process_group()
    """
    _tensors("all_reduce", "tensor", tensor)
    check_reduction("all_reduce", op, tensor._array.dtype)
    if (found := _group(group, "all_reduce")) is None:
        return tensor.clone()
    if op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX) and tensor.requires_grad:  # whose gradient depends on all values
        every = carried(rows.all_gather, found, tensor)
        return every.prod(0) if op is ReduceOp.PRODUCT else every.amin(0) if op is ReduceOp.MIN else every.amax(0)
    return carried(rows.all_reduce, found, tensor, op=op.value)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """In process `dst` the sum (or what `op` says) of all processes' tensors; zeros in the others."""
    _tensors("reduce", "tensor", tensor)
    check_reduction("reduce", op, tensor._array.dtype)
    if (found := _group(group, "reduce")) is None:
        return tensor.clone()
    return carried(rows.reduce, found, tensor, op=op.value, root=_root("reduce", found, dst, None))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    _tensors("broadcast", "tensor", tensor)
    if (found := _group(group, "broadcast")) is None:
        return tensor.clone()
    return carried(rows.broadcast, found, tensor, root=_root("broadcast", found, src, None))


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    _tensors("all_gather", "tensor", tensor)
    if (found := _group(group, "all_gather")) is None:
        return (tensor.clone(),)
    return tuple(carried(rows.all_gather, found, tensor).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """In process `dst` the tensors of all processes; in the others zeros."""
    _tensors("gather", "tensor", tensor)
    if (found := _group(group, "gather")) is None:
        return (tensor.clone(),)
    root = _root("gather", found, dst, None)
    parts = carried(rows.all_to_all, found, tensor.reshape(-1), **to_root(found, root, tensor.numel()))
    if found.rank() != root:  # nothing came; it is added so that a backward goes through it in every process
        return tuple(tensor.new_zeros(tensor.shape) + parts.sum() for _ in range(found.size()))
    return tuple(parts.reshape(found.size(), *tensor.shape).unbind(0))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's one of the tensors that process `src` has. In the others `tensors` say the shape and dtype."""
    if (found := _group(group, "scatter")) is None:
        return tensors[0].clone()
    root = _root("scatter", found, src, None)
    given = _list("scatter", "tensors", tensors, found.size())
    like = given[found.rank()]
    flat = cat([x.reshape(-1) for x in given])
    if found.rank() != root:
        flat = flat[:0]
    return carried(rows.all_to_all, found, flat, **from_root(found, root, like.numel())).reshape(like.shape)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or what `op` says) of what all processes have for this one. `output` says its shape and dtype."""
    check_reduction("reduce_scatter", op, output._array.dtype)
    if (found := _group(group, "reduce_scatter")) is None:
        return input_list[0].clone()
    given = stack(_list("reduce_scatter", "input_list", input_list, found.size(), output))
    return carried(rows.reduce_scatter, found, given, op=op.value)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """What all processes have for this one. `output_tensor_list` says the shapes and dtypes."""
    if (found := _group(group, "all_to_all")) is None:
        return tuple(x.clone() for x in input_tensor_list)
    outputs = _list("all_to_all", "output_tensor_list", output_tensor_list, found.size())
    given = _list("all_to_all", "input_tensor_list", input_tensor_list, found.size())
    sizes = {"give": tuple(x.numel() for x in given), "take": tuple(x.numel() for x in outputs)}
    flat = carried(rows.all_to_all, found, cat([x.reshape(-1) for x in given]), **sizes)
    return tuple(part.reshape(x.shape) for part, x in zip(flat.split(list(sizes["take"])), outputs, strict=True))


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None
) -> Tensor:
    """What all processes have for this one, along the first dimension. `output` says the shape."""
    _tensors("all_to_all_single", "output and input", output, input)
    if (found := _group(group, "all_to_all_single")) is None:
        return input.clone()
    sizes = parts_of("all_to_all_single", found, output.shape, input.shape, output_split_sizes, input_split_sizes)
    given = input if input.shape else input.reshape(1)
    return carried(rows.all_to_all, found, given, **sizes).reshape(output.shape)
