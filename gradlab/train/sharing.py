"""A training step that the processes of a group share: each computes a part of the batch, and all have the step of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradlab import nn
from gradlab.distributed import ReduceOp, get_world_size, is_initialized
from gradlab.distributed.groups import ProcessGroup, member
from gradlab.distributed.nn import all_reduce
from gradlab.nn.functional.sync_norm import same_batch
from gradlab.nn.parallel import DistributedDataParallel
from gradlab.tensor import Tensor
from gradlab.tensor.generator import part_of_batch


def shared(step: Callable[[nn.Module, Any], Any], model: nn.Module, group: Any = None) -> Callable[[nn.Module, Any], Any]:
    """`step(model, batch)`, which in training takes this process's part of the batch; gradients and the loss are the means of all parts.

    All processes are given the same batches. One that they cannot share equally is computed by each as a whole, so that the mean is that of
    the batch in any case. Batch norms are exchanged for SyncBatchNorm in `model`, in place, and what is drawn for the rows of a batch, as
    dropout does, is what one process draws for them (processes begin with one seed): so training is that of one process but for the order
    of sums. With one process it is `step` itself.

    >>> import gradlab as gl
    >>> model = gl.nn.Linear(2, 1)
    >>> step = gl.train.shared(lambda model, batch: model(batch).mean(), model)
    """
    if not is_initialized() or get_world_size(group) < 2:
        return step
    found = member(group, "shared")
    assert found is not None
    nn.SyncBatchNorm.convert_sync_batchnorm(model, found)
    wrapped = DistributedDataParallel(model, process_group=found, find_unused_parameters=True)

    def parallel(model: nn.Module, batch: Any) -> Any:
        if not model.training:
            return step(model, batch)
        assert wrapped.reducer is not None  # which averages the gradients of `model` as long as this function lives
        share = part(batch, found)
        with _alone() if share is batch else part_of_batch(found.rank(), found.size()):
            result = step(model, share)
        loss, *others = result if isinstance(result, tuple) else (result,)
        loss = all_reduce(loss, ReduceOp.AVG, found)
        return (loss, *others) if isinstance(result, tuple) else loss

    return parallel


@contextmanager
def _alone() -> Iterator[None]:
    token = same_batch.set(True)
    try:
        yield
    finally:
        same_batch.reset(token)


def part(batch: Any, group: ProcessGroup) -> Any:
    """This process's rows of every tensor in a batch; the batch where its tensors differ in length or cannot be shared equally."""
    lengths = {tensor.shape[0] if tensor.shape else 0 for tensor in _tensors(batch)}
    length = lengths.pop() if len(lengths) == 1 else 0
    if not length or length % group.size():
        return batch
    share = length // group.size()
    return _cut(batch, slice(group.rank() * share, (group.rank() + 1) * share))


def _tensors(batch: Any) -> list[Tensor]:
    if isinstance(batch, Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (tuple, list)) else ()
    return [tensor for each in parts for tensor in _tensors(each)]


def _cut(batch: Any, rows: slice) -> Any:
    if isinstance(batch, Tensor):
        return batch[rows]
    if isinstance(batch, dict):
        return {key: _cut(value, rows) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(value, rows) for value in batch))
    return type(batch)(_cut(value, rows) for value in batch) if isinstance(batch, (tuple, list)) else batch
