"""Operations among the processes of a group, on tensors that they write.

Each checks its arguments as for any number of processes. Over one, a reduction leaves a tensor as it is, and all else is a copy of what
that process gives to where it gets it, `_exchanged`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from gradlab.advice import GradlabWarning, warn
from gradlab.autograd.mode import no_grad
from gradlab.distributed.groups import ProcessGroup, get_group_rank, member
from gradlab.distributed.reduce_op import ReduceOp, check_reduction
from gradlab.distributed.work import Work
from gradlab.tensor import Tensor


def _exchanged(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """`outputs[i]` is written with what process i has for this one, `inputs[i]` goes to process i."""
    with no_grad():
        for output, given in zip(outputs, inputs, strict=True):
            if output is not given:
                output.copy_(given.reshape(output.shape))


# ---------------------------------------------------------------- checked


def _tensors(name: str, argument: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: {argument} is a tensor, not {type(value).__name__}")
    if len({value.dtype for value in values}) > 1:
        raise ValueError(f"{name}: tensors of {argument} have one dtype, not {', '.join(str(v.dtype) for v in values)}")


def _list(name: str, argument: str, values: Any, size: int, like: Tensor | None = None) -> list[Tensor]:
    """A list with one tensor for each process, of one shape where `like` is given."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name}: {argument} is a list of tensors, not {type(values).__name__}")
    if len(values) != size:
        raise ValueError(f"{name}: {argument} has one tensor for each of the {size} processes, not {len(values)}")
    _tensors(name, argument, *values)
    for value in values if like is not None else ():
        assert like is not None
        if value.shape != like.shape or value.dtype != like.dtype:
            raise ValueError(f"{name}: {argument} holds {value.shape} {value.dtype}, the tensor is {like.shape} {like.dtype}")
    return list(values)


def _here(group: Any, name: str) -> ProcessGroup | None:
    """The group; None, with a warning, for one that this process is not in."""
    found = member(group, name)
    if found is None:
        warn(GradlabWarning, f"{name}: this process is not in the group, so nothing happens")
    return found


def _root(name: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The place in the group of a process that is named by its rank in the world, or by that place; the first by default."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{name}: give the rank in the world or in the group, not both")
    if rank is not None:
        return get_group_rank(group, rank)
    if group_rank is not None and not 0 <= group_rank < group.size():
        raise ValueError(f"{name}: {group} has no member {group_rank}")
    return group_rank or 0


def _done(async_op: bool, tensors: Sequence[Tensor]) -> Work | None:
    return Work(list(tensors)) if async_op else None


# ---------------------------------------------------------------- reductions


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Write into each process's tensor the sum (or what `op` says) of all of them."""
    return all_reduce_coalesced([tensor], op, group, async_op, "all_reduce")


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False, _name: str = "all_reduce_coalesced"
) -> Work | None:
    """`all_reduce` of several tensors at once."""
    for tensor in tensors:
        _tensors(_name, "tensor", tensor)
        check_reduction(_name, op, tensor._array.dtype)
    if _here(group, _name) is None:
        return None
    return _done(async_op, tensors)


def reduce(
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Write into the tensor of process `dst` the sum (or what `op` says) of all of them."""
    _tensors("reduce", "tensor", tensor)
    check_reduction("reduce", op, tensor._array.dtype)
    if (found := _here(group, "reduce")) is None:
        return None
    _root("reduce", found, dst, group_dst)
    return _done(async_op, [tensor])


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write into process i's `output` the sum (or what `op` says) of the i-th tensors of all lists."""
    _tensors("reduce_scatter", "output", output)
    check_reduction("reduce_scatter", op, output._array.dtype)
    if (found := _here(group, "reduce_scatter")) is None:
        return None
    _exchanged([output], _list("reduce_scatter", "input_list", input_list, found.size(), output))
    return _done(async_op, [output])


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`reduce_scatter` of one tensor, whose parts along the first dimension are for the processes."""
    _tensors("reduce_scatter_tensor", "output and input", output, input)
    check_reduction("reduce_scatter_tensor", op, output._array.dtype)
    if (found := _here(group, "reduce_scatter_tensor")) is None:
        return None
    _times("reduce_scatter_tensor", "input", input, found.size(), "output", output)
    _exchanged([output], [input])
    return _done(async_op, [output])


def _times(name: str, large: str, all_parts: Tensor, size: int, small: str, part: Tensor) -> None:
    if all_parts.numel() != size * part.numel():
        raise ValueError(f"{name}: {large} has {size} times the elements of {small}: {all_parts.shape} for {part.shape}")


# ---------------------------------------------------------------- to and from all


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Write the tensor of process `src` into that of every other."""
    _tensors("broadcast", "tensor", tensor)
    if (found := _here(group, "broadcast")) is None:
        return None
    _root("broadcast", found, src, group_src)
    return _done(async_op, [tensor])


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Write every process's tensor into the list of each, in the order of their ranks."""
    _tensors("all_gather", "tensor", tensor)
    if (found := _here(group, "all_gather")) is None:
        return None
    outputs = _list("all_gather", "tensor_list", tensor_list, found.size(), tensor)
    _exchanged(outputs, [tensor])
    return _done(async_op, outputs)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_gather` of several tensors, each into a list of its own."""
    if _here(group, "all_gather_coalesced") is None:
        return None
    if len(output_tensor_lists) != len(input_tensor_list):
        raise ValueError(f"all_gather_coalesced: {len(input_tensor_list)} tensors need as many lists, not {len(output_tensor_lists)}")
    for outputs, tensor in zip(output_tensor_lists, input_tensor_list, strict=True):
        all_gather(outputs, tensor, group)
    return _done(async_op, [tensor for outputs in output_tensor_lists for tensor in outputs])


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`all_gather` into one tensor: the processes' tensors one after another, or along a new first dimension."""
    _tensors("all_gather_into_tensor", "output_tensor and input_tensor", output_tensor, input_tensor)
    if (found := _here(group, "all_gather_into_tensor")) is None:
        return None
    _times("all_gather_into_tensor", "output_tensor", output_tensor, found.size(), "input_tensor", input_tensor)
    _exchanged([output_tensor], [input_tensor])
    return _done(async_op, [output_tensor])


def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Write every process's tensor into the list of process `dst`; the others give None for it."""
    _tensors("gather", "tensor", tensor)
    if (found := _here(group, "gather")) is None:
        return None
    outputs: list[Tensor] = []
    if found.rank() == _root("gather", found, dst, group_dst):
        outputs = _list("gather", "gather_list", gather_list, found.size(), tensor)
        _exchanged(outputs, [tensor])
    return _done(async_op, outputs)


def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Write the i-th tensor of process `src`'s list into process i's tensor; the others give None for the list."""
    _tensors("scatter", "tensor", tensor)
    if (found := _here(group, "scatter")) is None:
        return None
    if found.rank() == _root("scatter", found, src, group_src):
        _exchanged([tensor], _list("scatter", "scatter_list", scatter_list, found.size(), tensor))
    return _done(async_op, [tensor])


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Send the i-th tensor of the second list to process i, and write what process i sends into the i-th of the first."""
    if (found := _here(group, "all_to_all")) is None:
        return None
    outputs = _list("all_to_all", "output_tensor_list", output_tensor_list, found.size())
    inputs = _list("all_to_all", "input_tensor_list", input_tensor_list, found.size())
    own = found.rank()
    if outputs[own].shape != inputs[own].shape:
        raise ValueError(f"all_to_all: what goes to process {own} has shape {inputs[own].shape}, its place {outputs[own].shape}")
    _exchanged(outputs, inputs)
    return _done(async_op, outputs)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None,
    group: Any = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """`all_to_all` of one tensor's parts along the first dimension, equal ones or of the given sizes."""
    _tensors("all_to_all_single", "output and input", output, input)
    if (found := _here(group, "all_to_all_single")) is None:
        return None
    for what, tensor, sizes in (("output", output, output_split_sizes), ("input", input, input_split_sizes)):
        length = tensor.shape[0] if tensor.shape else 1
        if sizes and (len(sizes) != found.size() or sum(sizes) != length):
            raise ValueError(f"all_to_all_single: {what}_split_sizes are {found.size()} sizes whose sum is {length}, not {list(sizes)}")
    if output.numel() != input.numel():
        raise ValueError(f"all_to_all_single: one process gets what it sends: {input.shape} into {output.shape}")
    _exchanged([output], [input])
    return _done(async_op, [output])


# ---------------------------------------------------------------- between two


def _peer(name: str, rank: int | None, group: Any, group_rank: int | None) -> None:
    found = _here(group, name)
    if found is None:
        return
    if rank is None and group_rank is None:
        raise RuntimeError(f"{name}: there is no other process to wait for")
    if _root(name, found, rank, group_rank) == found.rank():
        raise ValueError(f"{name}: process {found.rank()} is this one; it sends nothing to itself")


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Begin to send a tensor to process `dst`. ValueError where that is this one."""
    _tensors("isend", "tensor", tensor)
    _peer("isend", dst, group, group_dst)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> None:
    """Begin to receive a tensor from process `src`. ValueError where that is this one."""
    _tensors("irecv", "tensor", tensor)
    _peer("irecv", src, group, group_src)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to process `dst`. ValueError where that is this one."""
    _tensors("send", "tensor", tensor)
    _peer("send", dst, group, group_dst)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor from process `src`, or from any. Returns the sender's rank. ValueError where that is this one."""
    _tensors("recv", "tensor", tensor)
    _peer("recv", src, group, group_src)
    return -1


class P2POp(NamedTuple):
    """One sending or receiving for `batch_isend_irecv`: `P2POp(isend, tensor, peer)`."""

    op: Callable[..., Any]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Any]:
    """Begin all of them."""
    return [each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer) for each in p2p_op_list]


# ---------------------------------------------------------------- waiting


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until every process of the group is here."""
    return None if _here(group, "barrier") is None else _done(async_op, [])


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """`barrier`, which names those that do not come within `timeout`."""
    _here(group, "monitored_barrier")
