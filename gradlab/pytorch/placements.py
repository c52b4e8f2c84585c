"""Where the parts of a distributed tensor lie, as `torch.distributed.tensor` writes it: programs make such values at their top."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """The base of them."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is a part along a dimension, or along that one."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """Whether the processes' values are to be reduced."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Shard(Placement):
    """Parts along a dimension."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """The whole, everywhere."""


@dataclass(frozen=True)
class Partial(Placement):
    """Values that are to be reduced."""

    reduce_op: str = "sum"
