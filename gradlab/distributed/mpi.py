"""The carrier of arrays by MPI, through mpi4py: `mpiexec -n 4 python script.py`.

Every collective begins with a short message from each process to each: what it calls and gives, and the values themselves where they are
few. So a call that differs is an error in all of them, before anything is in flight. What is longer goes in a second round; an `all_reduce`
in two: each process gets one part of all arrays, adds them up in the order of the ranks, and gives the sums to all, which is 2 (N - 1) / N
times the array for each, as a ring's, and the same bits for everybody. Nothing waits without a limit of time: messages are begun and asked
for, and who has not come is named. A process that ends tells the others so (`last_words.py`), and those that wait for it raise at once.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from gradlab.distributed.failure import DistBackendError
from gradlab.distributed.jobs import Jobs
from gradlab.distributed.transport import REDUCTIONS, Array, Job, Transport
from gradlab.dtype import HALF
from gradlab.quiet import quietly

_HEAD = 256  # bytes that a message begins with: how many follow, and in words what is called
_INLINE = 8192  # bytes of values that travel with it
_FIRST, _SECOND, _BETWEEN = 1, 2, 16  # tags of the two rounds, and of the first message between two processes
_SPINS = 200  # times that a message is asked for before the process rests between the questions
_REST = 50e-6  # seconds


class Mpi(Transport):
    """Processes that MPI has started together. `told` holds what processes said when they ended, by their rank in the world."""

    name = "mpi"

    def __init__(self, comm: Any, ranks: Sequence[int], seconds: float, told: Callable[[], dict[int, str]]) -> None:
        super().__init__(comm.rank, ranks, seconds)
        self.comm, self._told = comm, told
        self.broken = ""  # why nothing can be carried any more
        self._peers = [r for r in range(self.size) if r != self.rank]
        self._jobs = Jobs(f"gradlab {self!r}")

    # ---------------------------------------------------------------- collectives

    def all_reduce(self, given: Array, filled: Array, op: str) -> None:
        """In two rounds: each process adds up one part, and all get all parts."""
        what = _words("all_reduce", given, op)
        flat, out = _flat(given), _room(filled)
        if flat.nbytes <= _INLINE:
            parts = [flat, *(np.empty_like(flat) for _ in self._peers)]
            self._exchange(what, dict.fromkeys(self._peers, flat), dict(zip(self._peers, parts[1:])))
            parts.insert(self.rank, parts.pop(0))
            _reduced(parts, out, op)
        else:
            bounds = [flat.size * r // self.size for r in range(self.size + 1)]
            cut = [slice(a, b) for a, b in pairwise(bounds)]
            own = flat[cut[self.rank]]
            parts = [np.empty_like(own) for _ in range(self.size)]
            parts[self.rank] = own
            self._exchange(what, {r: flat[cut[r]] for r in self._peers}, {r: parts[r] for r in self._peers})
            _reduced(parts, out[cut[self.rank]], op)
            self._second(what, dict.fromkeys(self._peers, out[cut[self.rank]]), {r: out[cut[r]] for r in self._peers})
        _leave(filled, out)

    def reduce(self, given: Array, filled: Array, op: str, root: int) -> None:
        """All give their arrays to the root."""
        flat, out = _flat(given), _room(filled)
        here = self.rank == root
        parts = [flat if r == self.rank or not here else np.empty_like(flat) for r in range(self.size)]
        self._exchange(
            _words("reduce", given, op, self.ranks[root]), {} if here else {root: flat}, {r: parts[r] for r in self._peers} if here else {}
        )
        if here:
            _reduced(parts, out, op)
        else:
            out.fill(0)
        _leave(filled, out)

    def broadcast(self, given: Array, filled: Array, root: int) -> None:
        """The root gives its array to all."""
        here = self.rank == root
        out = _flat(given) if here else _room(filled)
        what = _words("broadcast", filled, "", self.ranks[root])
        self._exchange(what, dict.fromkeys(self._peers, out) if here else {}, {} if here else {root: out})
        _leave(filled, out)

    def all_gather(self, given: Array, filled: Array) -> None:
        """All give their arrays to all."""
        flat = _flat(given)
        out = _room(filled).reshape(self.size, -1)
        out[self.rank] = flat
        self._exchange(_words("all_gather", given), dict.fromkeys(self._peers, flat), {r: out[r] for r in self._peers})
        _leave(filled, out)

    def reduce_scatter(self, given: Array, filled: Array, op: str) -> None:
        """All give each its part, which adds them up."""
        flat, out = _flat(given).reshape(self.size, -1), _room(filled)
        parts = [flat[self.rank] if r == self.rank else np.empty_like(flat[0]) for r in range(self.size)]
        self._exchange(_words("reduce_scatter", given, op), {r: flat[r] for r in self._peers}, {r: parts[r] for r in self._peers})
        _reduced(parts, out, op)
        _leave(filled, out)

    def all_to_all(self, given: Array, filled: Array, give: Sequence[int], take: Sequence[int]) -> None:
        """All give each its rows."""
        rows = np.ascontiguousarray(given)
        out = filled if filled.flags.c_contiguous and filled is not given else np.empty(filled.shape, filled.dtype)
        sent, got = _cut(rows, give), _cut(out, take)
        if sent[self.rank].shape != got[self.rank].shape:
            raise ValueError(f"all_to_all: process {self.rank} gives itself {give[self.rank]} rows, and takes {take[self.rank]}")
        got[self.rank][...] = sent[self.rank]
        what = _words("all_to_all", rows[:0])
        self._exchange(what, {r: _flat(sent[r]) for r in self._peers}, {r: got[r].reshape(-1) for r in self._peers})
        if out is not filled:
            filled[...] = out

    def barrier(self, seconds: float | None = None) -> None:
        """A message from each to each."""
        self._exchange("barrier", {}, {}, seconds)

    # ---------------------------------------------------------------- between two

    def send(self, given: Array, to: int, tag: int) -> Job:
        """One message: what it is in words, and the values."""
        self._unbroken("send")
        flat = _flat(given)
        message = np.concatenate((_head(flat.nbytes, _words("a tensor", given)), _bytes(flat)))
        request = self.comm.Isend([message, MPI.BYTE], to, _BETWEEN + tag)
        return Between(self, [request], [to], f"send to rank {self.ranks[to]}", lambda: message[:0])

    def receive(self, filled: Array, source: int | None, tag: int) -> Any:
        """The message has to be of this shape and dtype."""
        self._unbroken("recv")
        out = _room(filled)
        message = np.empty(_HEAD + out.nbytes, np.uint8)
        request = self.comm.Irecv([message, MPI.BYTE], MPI.ANY_SOURCE if source is None else source, _BETWEEN + tag)

        def finish() -> None:
            _, said = _read(message)
            if said != _words("a tensor", filled):
                room = _words("a tensor", filled)
                raise DistBackendError(f"recv: rank {self.ranks[job.source]} sends {said}, and here is room for {room}")
            _bytes(out)[...] = message[_HEAD:]
            _leave(filled, out)

        whom = "any rank" if source is None else f"rank {self.ranks[source]}"
        job = Between(self, [request], self._peers if source is None else [source], f"recv from {whom}", finish)
        return job

    # ---------------------------------------------------------------- beside the program, and groups

    def start(self, call: Callable[[], None]) -> Job:
        """In the carrier's own thread, one after another."""
        return self._jobs.start(call)

    def split(self, ranks: Sequence[int] | None, number: int, seconds: float) -> Transport | None:
        """A communicator of its own."""
        chosen = list(range(self.size)) if ranks is None else list(ranks)
        if self.rank not in chosen:
            return None
        comm = self.comm.Create_group(self.comm.group.Incl(chosen), number)
        return Mpi(comm, [self.ranks[r] for r in chosen], seconds, self._told)

    def close(self) -> None:
        """Wait for what was started."""
        self._jobs.close(not self.broken)

    # ---------------------------------------------------------------- messages

    def _exchange(self, what: str, give: dict[int, Array], take: dict[int, Array], seconds: float | None = None) -> None:
        """The first round with everybody, in which few values travel along, and the second where there are more."""
        self._jobs.before_mine()
        self._unbroken(what)
        heads, requests = [], []
        for r in self._peers:
            room = np.empty(_HEAD + _INLINE, np.uint8)
            heads.append(room)
            requests.append(self.comm.Irecv([room, MPI.BYTE], r, _FIRST))
        short = {r: values for r, values in give.items() if values.nbytes <= _INLINE}
        for r in self._peers:
            head = _head(give[r].nbytes if r in give else 0, what)
            if r in short:
                head = np.concatenate((head, _bytes(short[r])))
            requests.append(self.comm.Isend([head, MPI.BYTE], r, _FIRST))
        self.wait(requests, [*self._peers, *self._peers], what, seconds)
        said = {self.rank: what}
        sizes = {}
        for r, room in zip(self._peers, heads):
            sizes[r], said[r] = _read(room)
        _agree(said, self.ranks)
        for r, room in zip(self._peers, heads):
            here = take[r].nbytes if r in take else 0
            if sizes[r] != here:
                raise DistBackendError(
                    f"{what}: rank {self.ranks[r]} gives {sizes[r]} bytes to rank {self.ranks[self.rank]}, which has room for {here}"
                )
            if 0 < here <= _INLINE:
                _bytes(take[r])[...] = room[_HEAD : _HEAD + here]
        long = {r: values for r, values in give.items() if r not in short}
        self._second(what, long, {r: values for r, values in take.items() if values.nbytes > _INLINE}, seconds)

    def _second(self, what: str, give: dict[int, Array], take: dict[int, Array], seconds: float | None = None) -> None:
        requests = [self.comm.Irecv([_bytes(values), MPI.BYTE], r, _SECOND) for r, values in take.items() if values.size]
        sent = [r for r, values in give.items() if values.size]
        requests += [self.comm.Isend([_bytes(give[r]), MPI.BYTE], r, _SECOND) for r in sent]
        self.wait(requests, [*(r for r, v in take.items() if v.size), *sent], what, seconds)

    def wait(self, requests: list[Any], peers: Sequence[int], what: str, seconds: float | None = None) -> Any:
        """Until all messages have gone or come. DistBackendError where one does not, with the ranks that it was to come from or go to."""
        limit = self.seconds if seconds is None else seconds
        begun = time.monotonic()
        spins, state = 0, MPI.Status()
        one = requests[0] if len(requests) == 1 else None
        while not (one.Test(state) if one is not None else MPI.Request.Testall(requests)):
            spins += 1
            if spins < _SPINS:
                time.sleep(0)
                continue
            time.sleep(min(_REST * (spins // _SPINS), 1e-3))
            if spins % 16:
                continue
            waited = time.monotonic() - begun
            told = self._told()
            if told and (gone := self._missing(requests, peers, told)):
                time.sleep(0.05)  # its messages may still be on their way
                if gone := self._missing(requests, peers, told):
                    self._break(f"{what}: " + "; ".join(f"rank {self.ranks[r]} has ended: {told[self.ranks[r]]}" for r in gone))
            if waited > limit:
                missing = self._missing(requests, peers)
                names = ", ".join(str(self.ranks[r]) for r in missing)
                self._break(
                    f"{what}: rank {self.ranks[self.rank]} has waited {limit:g} s for rank{'s' * (len(missing) > 1)} {names}, which "
                    f"{'have' if len(missing) > 1 else 'has'} not come. It died or hangs, or does something else that takes longer: then "
                    f"give init_process_group(timeout=datetime.timedelta(...)) more time"
                )
        return state

    def _missing(self, requests: list[Any], peers: Sequence[int], told: dict[int, str] | None = None) -> list[int]:
        late = [r for request, r in zip(requests, peers) if not request.Test()]
        if len(requests) == 1 and late:  # from whomever it comes
            late = list(peers)
        gone = [r for r in late if self.ranks[r] in (told or ())]
        if told is None:
            return sorted(set(late))
        return sorted(set(gone)) if len(requests) > 1 or len(gone) == len(late) else []

    def _break(self, why: str) -> None:
        self.broken = why
        raise DistBackendError(why)

    def _unbroken(self, what: str) -> None:
        if self.broken:
            raise DistBackendError(f"{what.partition(' of ')[0]}: this group's messages ended before: {self.broken}")


class Between(Job):
    """A message between two processes, under way."""

    def __init__(self, by: Mpi, requests: list[Any], peers: Sequence[int], what: str, finish: Callable[[], Any]) -> None:
        self._by, self._requests, self._peers, self._what, self._finish = by, requests, list(peers), what, finish
        self._ended, self.source = False, self._peers[0]

    def done(self) -> bool:
        """Whether it has gone, or has come."""
        if not self._ended:
            state = MPI.Status()
            if self._requests[0].Test(state):
                self._end(state)
        return self._ended

    def wait(self, seconds: float | None = None) -> None:
        """Until it has gone, or has come."""
        if not self._ended:
            try:
                state = self._by.wait(self._requests, self._peers, self._what, seconds)
            except MPI.Exception as error:
                self._ended = True
                raise DistBackendError(f"{self._what}: the message is longer than the tensor that is to receive it ({error})") from None
            self._end(state)
        if self.error is not None:
            raise self.error

    def _end(self, state: Any) -> None:
        self._ended = True
        if state.source >= 0 and self._what.startswith("recv"):
            self.source = state.source
        try:
            self._finish()
        except DistBackendError as error:
            self.error = error


# ---------------------------------------------------------------- what is said, and how values lie


def _words(name: str, array: Array, op: str = "", root: int | None = None) -> str:
    """What a process calls and gives, as all of them have to."""
    extra = f", {op}" * bool(op) + (f", root {root}" if root is not None else "")
    return f"{name} of {tuple(array.shape)} {array.dtype}{extra}"


def _head(size: int, what: str) -> Array:
    text = what.encode()[: _HEAD - 8]
    return np.frombuffer(struct.pack("<q", size) + text.ljust(_HEAD - 8), np.uint8)


def _read(message: Array) -> tuple[int, str]:
    (size,) = struct.unpack_from("<q", message)
    return size, message[8:_HEAD].tobytes().decode(errors="replace").rstrip()


def _agree(said: dict[int, str], ranks: Sequence[int]) -> None:
    if len(set(said.values())) == 1:
        return
    by_text: dict[str, list[int]] = {}
    for r in sorted(said):
        by_text.setdefault(said[r], []).append(ranks[r])
    parts = [f"{'ranks' if len(rs) > 1 else 'rank'} {', '.join(map(str, rs))}: {text}" for text, rs in by_text.items()]
    raise DistBackendError(f"{said[min(said)].partition(' of ')[0]}: the processes differ in what they call or give. {'; '.join(parts)}")


def _bytes(values: Array) -> Array:
    return values.reshape(-1).view(np.uint8)


def _flat(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1)


def _room(filled: Array) -> Array:
    """Where values are received: the array itself, or a place for them if it does not lie row by row."""
    return filled.reshape(-1) if filled.flags.c_contiguous else np.empty(filled.size, filled.dtype)


def _leave(filled: Array, out: Array) -> None:
    if not np.shares_memory(filled, out):
        filled[...] = out.reshape(filled.shape)


def _cut(rows: Array, sizes: Sequence[int]) -> list[Array]:
    ends = np.cumsum(sizes)
    return [rows[end - size : end] for size, end in zip(sizes, ends)]


def _reduced(parts: Sequence[Array], out: Array, op: str) -> None:
    """Parts of all processes, in the order of their ranks."""
    dtype = out.dtype
    total = parts[0].astype(np.float32 if dtype in HALF else dtype)
    for part in parts[1:]:
        quietly(REDUCTIONS[op], total, part.astype(np.float32) if dtype in HALF else part, out=total)
    if op == "mean":
        quietly(np.floor_divide if dtype.kind in "iub" else np.divide, total, np.asarray(len(parts), total.dtype), total)
    out[...] = total
