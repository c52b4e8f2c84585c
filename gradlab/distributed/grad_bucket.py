"""What a communication hook of `DistributedDataParallel` is given: gradients that travel together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import Enum

from gradlab.tensor import Tensor


class GradBucket:
    """A flat tensor of gradients, one after another in the order of `parameters()`."""

    def __init__(self, index: int, buffer: Tensor, parameters: Sequence[Tensor], last: bool) -> None:
        self._index, self._buffer, self._parameters, self._last = index, buffer, list(parameters), last

    def index(self) -> int:
        """Its number: buckets are numbered in the order in which they begin to travel."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients, one dimension; a hook may write them."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Exchange them."""
        self._buffer = buffer

    def parameters(self) -> list[Tensor]:
        """Whose gradients they are."""
        return list(self._parameters)

    def gradients(self) -> list[Tensor]:
        """The same as views of the buffer, of the parameters' shapes."""
        ends = itertools.accumulate(p.numel() for p in self._parameters)
        return [self._buffer[end - p.numel() : end].reshape(p.shape) for p, end in zip(self._parameters, ends, strict=True)]

    def is_last(self) -> bool:
        """Whether it is the last of a backward pass."""
        return self._last


class BuiltinCommHookType(Enum):
    """Hooks that `DistributedDataParallel._register_builtin_comm_hook` takes."""

    ALLREDUCE = "allreduce"
    FP16_COMPRESS = "fp16_compress"
