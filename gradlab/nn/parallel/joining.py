"""Processes with different numbers of batches: those that have none left take part in the others' collectives until all have ended."""

from __future__ import annotations

from typing import Any

import numpy as np


class Joining:
    """What `DistributedDataParallel.join` keeps. Each forward tells who still has batches; one that has not follows in `rest`."""

    def __init__(self, model: Any, by_all: bool, stop: bool) -> None:
        self.model, self.by_all, self.stop = model, by_all, stop
        self.carrier = model.process_group.transport
        self.source = 0  # whose buffers and parameters count: the last process with batches

    def step(self, here: bool) -> int:
        """Tell the others whether this process has a batch; how many have one."""
        found = np.empty((self.carrier.size, 1), np.int64)
        self.carrier.all_gather(np.array([int(here)]), found)
        active = np.flatnonzero(found[:, 0])
        if len(active):
            self.source = int(active[-1])
        if self.stop and len(active) < self.carrier.size:
            gone = sorted(set(range(self.carrier.size)) - set(active.tolist()))
            raise RuntimeError(f"DistributedDataParallel.join: ranks {gone} have no more batches, and throw_on_early_termination=True")
        if not self.by_all:
            self.model.reducer.op = "sum"
            self.model.reducer.scale = 1 / max(len(active), 1)
        return len(active)

    def rest(self) -> None:
        """Follow the others with zeros until all have ended, and take over the parameters of the last of them."""
        model = self.model
        while self.step(False):
            if model.will_sync_buffers():
                model.sync_buffers(self.source)
            model.reducer.follow()
        model.broadcast_from(self.source, [*model.module.parameters(), *model.module.buffers()])
