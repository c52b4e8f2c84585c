"""Operations among the processes of a group, on tensors that they write.

Each checks its arguments, runs a row of `gradlab/ops/collective.py` with the group's carrier, and writes what comes of it; over one process
a reduction leaves a tensor as it is, and all else is a copy. What differs from process to process the carrier finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from gradlab.advice import GradlabWarning, warn
from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import bind, wrap
from gradlab.distributed import work
from gradlab.distributed.groups import ProcessGroup, get_group_rank, member
from gradlab.distributed.reduce_op import ReduceOp, check_reduction
from gradlab.distributed.work import Work
from gradlab.op import Op
from gradlab.ops import collective as rows
from gradlab.spec import Spec
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat, stack


def carried(row: Op, group: ProcessGroup, tensor: Tensor, **params: Any) -> Tensor:
    """A row's result on a tensor, recorded where the tensor needs a gradient."""
    return bind(row)(tensor, by=group.transport, **params)


def _written(
    async_op: bool, outputs: Sequence[Tensor], row: Op, group: ProcessGroup, given: Tensor, leave: Callable[[Tensor], None], **params: Any
) -> Work | None:
    """Run a row, and let `leave` put its result into the outputs: at once, or when somebody waits for it."""
    array = given._array
    if async_op and type(array) is np.ndarray:
        spec = row.infer(Spec(array.shape, array.dtype), by=group.transport, **params)
        given = given.detach()
        filled = np.empty(spec.shape, spec.dtype)
        job = group.transport.start(lambda: row.quietly(array, filled, by=group.transport, **params))
        return Work(list(outputs), job, lambda: _unrecorded(leave, wrap(filled)), given)
    with no_grad():
        leave(carried(row, group, given.detach(), **params))
    return Work(list(outputs)) if async_op else None


def _unrecorded(leave: Callable[[Tensor], None], found: Tensor) -> None:
    with no_grad():
        leave(found)


def _into(output: Tensor) -> Callable[[Tensor], None]:
    def leave(found: Tensor) -> None:
        output.copy_(found.reshape(output.shape))

    return leave


def _into_each(outputs: Sequence[Tensor]) -> Callable[[Tensor], None]:
    """Parts along the first dimension into several tensors."""

    def leave(found: Tensor) -> None:
        for output, part in zip(outputs, found.unbind(0), strict=True):
            output.copy_(part)

    return leave


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return cat([tensor.detach().reshape(-1) for tensor in tensors])


def _into_parts(outputs: Sequence[Tensor]) -> Callable[[Tensor], None]:
    """Pieces of a flat tensor into tensors of any shapes."""

    def leave(found: Tensor) -> None:
        at = 0
        for output in outputs:
            output.copy_(found[at : at + output.numel()].reshape(output.shape))
            at += output.numel()

    return leave


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
    if work.kept and not name.startswith(("isend", "irecv")):
        work.flush()
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
    if (found := _here(group, _name)) is None:
        return None
    works = [_written(async_op, [x], rows.all_reduce, found, x, _into(x), op=op.value) for x in tensors]
    return Work.of_all(list(tensors), works) if async_op else None


def reduce(
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Write into the tensor of process `dst` the sum (or what `op` says) of all of them."""
    _tensors("reduce", "tensor", tensor)
    check_reduction("reduce", op, tensor._array.dtype)
    if (found := _here(group, "reduce")) is None:
        return None
    root = _root("reduce", found, dst, group_dst)
    leave = _into(tensor) if found.rank() == root else _nowhere
    return _written(async_op, [tensor], rows.reduce, found, tensor, leave, op=op.value, root=root)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write into process i's `output` the sum (or what `op` says) of the i-th tensors of all lists."""
    _tensors("reduce_scatter", "output", output)
    check_reduction("reduce_scatter", op, output._array.dtype)
    if (found := _here(group, "reduce_scatter")) is None:
        return None
    given = stack([x.detach() for x in _list("reduce_scatter", "input_list", input_list, found.size(), output)])
    return _written(async_op, [output], rows.reduce_scatter, found, given, _into(output), op=op.value)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`reduce_scatter` of one tensor, whose parts along the first dimension are for the processes."""
    _tensors("reduce_scatter_tensor", "output and input", output, input)
    check_reduction("reduce_scatter_tensor", op, output._array.dtype)
    if (found := _here(group, "reduce_scatter_tensor")) is None:
        return None
    _times("reduce_scatter_tensor", "input", input, found.size(), "output", output)
    given = input.detach().reshape(found.size(), *output.shape)
    return _written(async_op, [output], rows.reduce_scatter, found, given, _into(output), op=op.value)


def _nowhere(found: Tensor) -> None:
    pass


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
    root = _root("broadcast", found, src, group_src)
    leave = _nowhere if found.rank() == root else _into(tensor)
    return _written(async_op, [tensor], rows.broadcast, found, tensor, leave, root=root)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Write every process's tensor into the list of each, in the order of their ranks."""
    _tensors("all_gather", "tensor", tensor)
    if (found := _here(group, "all_gather")) is None:
        return None
    outputs = _list("all_gather", "tensor_list", tensor_list, found.size(), tensor)
    return _written(async_op, outputs, rows.all_gather, found, tensor, _into_each(outputs))


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_gather` of several tensors, each into a list of its own."""
    if _here(group, "all_gather_coalesced") is None:
        return None
    if len(output_tensor_lists) != len(input_tensor_list):
        raise ValueError(f"all_gather_coalesced: {len(input_tensor_list)} tensors need as many lists, not {len(output_tensor_lists)}")
    works = [all_gather(outputs, tensor, group, async_op) for outputs, tensor in zip(output_tensor_lists, input_tensor_list, strict=True)]
    return Work.of_all([tensor for outputs in output_tensor_lists for tensor in outputs], works) if async_op else None


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`all_gather` into one tensor: the processes' tensors one after another, or along a new first dimension."""
    _tensors("all_gather_into_tensor", "output_tensor and input_tensor", output_tensor, input_tensor)
    if (found := _here(group, "all_gather_into_tensor")) is None:
        return None
    _times("all_gather_into_tensor", "output_tensor", output_tensor, found.size(), "input_tensor", input_tensor)
    return _written(async_op, [output_tensor], rows.all_gather, found, input_tensor, _into(output_tensor))


def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Write every process's tensor into the list of process `dst`; the others give None for it."""
    _tensors("gather", "tensor", tensor)
    if (found := _here(group, "gather")) is None:
        return None
    outputs: list[Tensor] = []
    root = _root("gather", found, dst, group_dst)
    if found.rank() == root:
        outputs = _list("gather", "gather_list", gather_list, found.size(), tensor)
    leave = _into_parts(outputs) if outputs else _nowhere
    return _written(async_op, outputs, rows.all_to_all, found, tensor.detach().reshape(-1), leave, **to_root(found, root, tensor.numel()))


def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Write the i-th tensor of process `src`'s list into process i's tensor; the others give None for the list."""
    _tensors("scatter", "tensor", tensor)
    if (found := _here(group, "scatter")) is None:
        return None
    root = _root("scatter", found, src, group_src)
    given = tensor.detach().reshape(-1)[:0]
    if found.rank() == root:
        given = _flat(_list("scatter", "scatter_list", scatter_list, found.size(), tensor))
    return _written(async_op, [tensor], rows.all_to_all, found, given, _into(tensor), **from_root(found, root, tensor.numel()))


def to_root(group: ProcessGroup, root: int, count: int) -> dict[str, tuple[int, ...]]:
    """How much each process gives to and takes from each other in a gathering: parameters of `all_to_all`."""
    return {
        "give": tuple(count if r == root else 0 for r in range(group.size())),
        "take": tuple([count if group.rank() == root else 0] * group.size()),
    }


def from_root(group: ProcessGroup, root: int, count: int) -> dict[str, tuple[int, ...]]:
    """The same in a scattering."""
    back = to_root(group, root, count)
    return {"give": back["take"], "take": back["give"]}


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
    counts = {"give": tuple(x.numel() for x in inputs), "take": tuple(x.numel() for x in outputs)}
    return _written(async_op, outputs, rows.all_to_all, found, _flat(inputs), _into_parts(outputs), **counts)


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
    counts = parts_of("all_to_all_single", found, output.shape, input.shape, output_split_sizes, input_split_sizes)
    return _written(async_op, [output], rows.all_to_all, found, input if input.shape else input.reshape(1), _into(output), **counts)


def parts_of(
    name: str, group: ProcessGroup, output: Sequence[int], given: Sequence[int], take: Sequence[int] | None, give: Sequence[int] | None
) -> dict[str, tuple[int, ...]]:
    """How many rows go to and come from each process, equally many unless they are given."""
    found = {}
    for key, what, shape, sizes in (("take", "output", output, take), ("give", "input", given, give)):
        length = shape[0] if shape else 1
        if sizes:
            found[key] = tuple(int(size) for size in sizes)
        elif length % group.size():
            raise ValueError(f"{name}: {what} has {length} rows, no multiple of {group.size()} processes; give {what}_split_sizes")
        else:
            found[key] = (length // group.size(),) * group.size()
    if group.size() == 1 and found["take"] != found["give"]:
        raise ValueError(f"{name}: one process gets what it sends: {tuple(given)} into {tuple(output)}")
    return found


# ---------------------------------------------------------------- waiting


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until every process of the group is here."""
    if (found := _here(group, "barrier")) is None:
        return None
    if async_op:
        return Work([], found.transport.start(found.transport.barrier))
    found.transport.barrier()
    return None


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """`barrier`, which names those that do not come within `timeout`."""
    if (found := _here(group, "monitored_barrier")) is not None:
        found.transport.barrier(None if timeout is None else timeout.total_seconds())
