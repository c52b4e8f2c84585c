"""Hooks that average a bucket of gradients: as it is, or in half the bits while it travels. A state is a process group, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.distributed.collectives import all_reduce
from gradlab.distributed.futures import Future
from gradlab.distributed.grad_bucket import GradBucket
from gradlab.distributed.reduce_op import ReduceOp
from gradlab.dtype import DType, bfloat16, float16
from gradlab.tensor import Tensor

Hook = Callable[[Any, GradBucket], Future[Any]]


def _averaged(group: Any, tensor: Tensor) -> Future[Any]:
    work = all_reduce(tensor, ReduceOp.AVG, group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean over the processes: what happens without a hook."""
    return _averaged(process_group, bucket.buffer())


def _compressed(group: Any, bucket: GradBucket, dtype: DType) -> Future[Tensor]:
    buffer = bucket.buffer()

    def widened(done: Future[Any]) -> Tensor:
        with no_grad():
            buffer.copy_(done.value())
        return buffer

    return _averaged(group, buffer.to(dtype)).then(widened)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean of the gradients in float16, summed in float32."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean of the gradients in bfloat16, summed in float32."""
    return _compressed(process_group, bucket, bfloat16)


def _wrapper(hook: Hook, dtype: DType) -> Hook:
    def wrapped(state: Any, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))

        def widened(done: Future[Any]) -> Tensor:
            with no_grad():
                buffer.copy_(done.value())
            return buffer

        return hook(state, bucket).then(widened)

    return wrapped


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that gives another one the gradients in float16."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that gives another one the gradients in bfloat16."""
    return _wrapper(hook, bfloat16)
