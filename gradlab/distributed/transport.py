"""What carries arrays among the processes of a group: the interface, and the carrier of a group of one.

`mpi.py` has the one that goes by MPI. A carrier's collectives take the array that is given and the one that is filled, which may be the
same where their shapes are, and return when it is filled. All processes call them in the same order. Reductions are taken in the order of
the ranks, in float32 for half types, so they are the same bits in every run and in every process.

`start` runs such a call beside the program, in the order of the starts: a carrier for a GPU uses a stream for it, the others a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

Array = Any
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add, "mean": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
    "bitwise and": np.bitwise_and, "bitwise or": np.bitwise_or, "bitwise xor": np.bitwise_xor,
}  # fmt: skip


class Job:
    """A call that was started: whether it has ended, and how."""

    error: BaseException | None = None

    def done(self) -> bool:
        """Whether it has ended."""
        return True

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended; raises what it raised. TimeoutError after `seconds`."""


class Transport(ABC):
    """How arrays get from process to process. `rank` is this one's place among `size`; `ranks` are their ranks in the world."""

    name = "none"

    def __init__(self, rank: int, ranks: Sequence[int], seconds: float) -> None:
        self.rank, self.size, self.ranks, self.seconds = rank, len(ranks), tuple(ranks), seconds
        self._begun: dict[int, Job] = {}

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"

    @abstractmethod
    def all_reduce(self, given: Array, filled: Array, op: str) -> None:
        """The reduction of all processes' arrays, in each. op: one of `REDUCTIONS`."""

    @abstractmethod
    def reduce(self, given: Array, filled: Array, op: str, root: int) -> None:
        """The same in `root`; zeros in the others."""

    @abstractmethod
    def broadcast(self, given: Array, filled: Array, root: int) -> None:
        """The array of `root`, in each."""

    @abstractmethod
    def all_gather(self, given: Array, filled: Array) -> None:
        """All arrays, along a new first dimension of `filled`."""

    @abstractmethod
    def reduce_scatter(self, given: Array, filled: Array, op: str) -> None:
        """The reduction of the parts given[rank] of all."""

    @abstractmethod
    def all_to_all(self, given: Array, filled: Array, give: Sequence[int], take: Sequence[int]) -> None:
        """give[i] rows of `given` go to process i, take[i] rows of `filled` come from it, in the order of the ranks."""

    @abstractmethod
    def send(self, given: Array, to: int, tag: int) -> Job:
        """Begin to send an array to another process."""

    @abstractmethod
    def receive(self, filled: Array, source: int | None, tag: int) -> Any:
        """Begin to receive an array from another process, None: from any. The job's `source` is the sender, once it has ended."""

    @abstractmethod
    def barrier(self, seconds: float | None = None) -> None:
        """Return when all have come."""

    @abstractmethod
    def split(self, ranks: Sequence[int] | None, number: int, seconds: float) -> Transport | None:
        """A carrier of some of the world's ranks; None where this process is not one of them. Only those call it; `number` tells it apart
        from the other groups."""

    @abstractmethod
    def start(self, call: Callable[[], None]) -> Job:
        """Run a call beside the program, after those that were started before."""

    def begin_all_reduce(self, given: Array, filled: Array, op: str, slot: int) -> None:
        """Start an `all_reduce` in `filled`, which is nobody's until `end_all_reduce`."""
        filled[...] = given
        self._begun[slot] = self.start(lambda: self.all_reduce(filled, filled, op))

    def end_all_reduce(self, begun: Array, filled: Array, slot: int) -> None:
        """Wait for what `begin_all_reduce` started in `begun`, and copy it."""
        self._begun.pop(slot).wait()
        if begun is not filled:
            filled[...] = begun

    def forget(self, slot: int) -> None:
        """Wait for what `begin_all_reduce` started, and drop it."""
        if (job := self._begun.pop(slot, None)) is not None:
            with suppress(Exception):
                job.wait()

    def __deepcopy__(self, memo: object) -> Transport:
        """Itself: what copies of a model speak by."""
        return self

    def close(self) -> None:  # noqa: B027 - not every carrier has something to end
        """Wait for what is under way, and end."""


class Alone(Transport):
    """The carrier of a group of one."""

    name = "alone"

    def __init__(self, rank: int = 0) -> None:
        super().__init__(0, (rank,), 0.0)

    def all_reduce(self, given: Array, filled: Array, op: str) -> None:
        """Its own array."""
        if filled is not given:
            filled[...] = given

    def reduce(self, given: Array, filled: Array, op: str, root: int) -> None:
        """Its own array."""
        self.all_reduce(given, filled, op)

    def broadcast(self, given: Array, filled: Array, root: int) -> None:
        """Its own array."""
        self.all_reduce(given, filled, "sum")

    def all_gather(self, given: Array, filled: Array) -> None:
        """Its own array."""
        filled[0] = given

    def reduce_scatter(self, given: Array, filled: Array, op: str) -> None:
        """Its own part."""
        filled[...] = given[0]

    def all_to_all(self, given: Array, filled: Array, give: Sequence[int], take: Sequence[int]) -> None:
        """Its own rows."""
        self.all_reduce(given, filled, "sum")

    def send(self, given: Array, to: int, tag: int) -> Job:
        """There is nobody."""
        raise RuntimeError("send: there is no other process to send to")

    def receive(self, filled: Array, source: int | None, tag: int) -> Any:
        """There is nobody."""
        raise RuntimeError("recv: there is no other process to wait for")

    def barrier(self, seconds: float | None = None) -> None:
        """Everybody is here."""

    def split(self, ranks: Sequence[int] | None, number: int, seconds: float) -> Transport | None:
        """Itself again."""
        return Alone(self.ranks[0]) if ranks is None or self.ranks[0] in ranks else None

    def start(self, call: Callable[[], None]) -> Job:
        """Done at once."""
        call()
        return Job()

    def begin_all_reduce(self, given: Array, filled: Array, op: str, slot: int) -> None:
        """Done at once."""
        filled[...] = given

    def end_all_reduce(self, begun: Array, filled: Array, slot: int) -> None:
        """It has ended."""
        if begun is not filled:
            filled[...] = begun
