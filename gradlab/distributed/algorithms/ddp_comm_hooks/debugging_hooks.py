"""Hooks to look for what takes time."""

from __future__ import annotations

from typing import Any

from gradlab.distributed.futures import Future
from gradlab.distributed.grad_bucket import GradBucket
from gradlab.tensor import Tensor


def noop_hook(_: Any, bucket: GradBucket) -> Future[Tensor]:
    """Each process keeps its own gradients: a step without communication."""
    future: Future[Tensor] = Future()
    future.set_result(bucket.buffer())
    return future
