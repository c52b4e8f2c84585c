"""The sampler for several processes, each of which loads a part of the samples."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from gradlab.distributed import get_rank, get_world_size
from gradlab.tensor.generator import Generator
from gradlab.tensor.random import randperm
from gradlab.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, beginning with the `rank`-th, of an order that all processes know.

    num_replicas, rank: default those of `gradlab.distributed` (ValueError before `init_process_group`).
    shuffle: an order that depends on `seed` and the epoch, which `set_epoch` sets: without it every epoch has the same.
    drop_last: leave samples out at the end so that all processes have equally many; otherwise the first samples come again for that.

    `state_dict(seen=…)` and `load_state_dict` continue an epoch after so many samples of it, with any number of processes.

    >>> import gradlab as gl
    >>> sampler = gl.utils.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
    >>> list(sampler), len(sampler)
    ([1, 3, 0], 3)
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: rank {self.rank} is none of {self.num_replicas} processes")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        self._start = 0  # samples of all processes that the next iteration leaves out
        count = len(dataset)
        self.num_samples = count // self.num_replicas if drop_last else -(-count // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = range(count)
        if self.shuffle:
            order = randperm(count, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        start, self._start = self._start, 0
        left = count - start
        each = left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)
        return (order[i % count] for i in range(start + self.rank, start + each * self.num_replicas, self.num_replicas))

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes, for another order."""
        self.epoch = epoch

    def state_dict(self, seen: int = 0) -> dict[str, int]:
        """Where an epoch is, the same in all processes. seen: how many of its samples all of them together have used."""
        if not 0 <= seen <= len(self.dataset):
            raise ValueError(f"DistributedSampler.state_dict: seen is a number of the epoch's {len(self.dataset)} samples, not {seen}")
        return {"epoch": self.epoch, "seed": self.seed, "seen": seen, "samples": len(self.dataset)}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Let the next iteration give what is left of that epoch, and those after it whole ones. ValueError for another dataset's state."""
        if state_dict["samples"] != len(self.dataset):
            raise ValueError(f"DistributedSampler: the state is of {state_dict['samples']} samples, not of {len(self.dataset)}")
        self.epoch, self.seed, self._start = state_dict["epoch"], state_dict["seed"], state_dict["seen"]
