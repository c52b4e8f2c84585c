"""The processes that MPI has started: how they begin together, and what each says to the others when it ends.

MPI itself does not tell that a process has ended while others wait for it. So one that ends, with an exception or without, sends its
last words to all, which a wait looks for (`Ends`); one with an exception leaves without MPI's end, in which it would wait for the rest.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

import mpi4py

mpi4py.rc.finalize = False  # the end is below
from mpi4py import MPI  # noqa: E402

from gradlab.distributed.failure import DistNetworkError  # noqa: E402
from gradlab.distributed.mpi import Mpi  # noqa: E402

_GRACE = 1.0  # seconds that others have to read the last words before whoever started them ends them
_LENGTH = 4096  # bytes of last words


class Ends:
    """What processes said when they ended, by their ranks."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.told: dict[int, str] = {}
        self.carriers: list[Mpi] = []
        self._kept: list[Any] = []

    def __call__(self) -> dict[int, str]:
        """All that was said so far."""
        state = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, 0, state):
            room = bytearray(_LENGTH)
            self.comm.Recv([room, MPI.BYTE], state.source, 0, state)
            self.told[state.source] = room[: state.Get_count(MPI.BYTE)].decode(errors="replace")
        return self.told

    def say(self, text: str) -> None:
        """Tell all others that this process ends."""
        words = text.encode()[:_LENGTH]
        with suppress(MPI.Exception):
            self._kept += [self.comm.Isend([words, MPI.BYTE], r, 0) for r in range(self.comm.size) if r != self.comm.rank]


_ends: dict[int, Ends] = {}  # by what the world's ranks are; there is one


def world(size: int, rank: int, seconds: float, said: str) -> Mpi:
    """The carrier of all processes. DistNetworkError where MPI has started another number of them than `said` says."""
    every = MPI.COMM_WORLD
    if every.size != size:
        raise DistNetworkError(
            f"init_process_group: {said} says that there are {size} processes, but MPI has started {every.size}. Processes speak by MPI "
            f"here: start them with 'gradlab launch -n {size} -- …', 'mpiexec -n {size} python …' or 'srun --mpi=pmix …', not with torchrun"
        )
    if not _ends:
        _begin(Ends(every.Split(0, rank)))
    ends = _ends[0]
    found = Mpi(ends.comm.Dup(), range(size), seconds, ends)
    ends.carriers.append(found)
    return found


def _begin(ends: Ends) -> None:
    """Take over how this process ends."""
    _ends[0] = ends
    before = sys.excepthook

    def last_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        ends.say(f"{kind.__name__}: {error}")
        sys.stdout.flush()
        sys.stderr.write(f"rank {ends.comm.rank} of {ends.comm.size} ends with this {kind.__name__}\n")
        sys.stderr.flush()
        time.sleep(_GRACE)
        os._exit(1)

    sys.excepthook = last_words
    atexit.register(_end, ends)


def _end(ends: Ends) -> None:
    for carrier in ends.carriers:
        carrier.close()
    if MPI.Is_finalized():
        return
    ends.say("its program is over")
    if not any(carrier.broken for carrier in ends.carriers):
        while len(ends()) < ends.comm.size - 1:  # MPI's own waiting would let no other thread of this process run
            time.sleep(0.005)
        MPI.Finalize()
