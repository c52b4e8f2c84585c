"""Where the stand-in's processes meet: it matches what they call, computes, and says to all what does not fit.

It lives in the process that made the unique id. A collective is the n-th of each rank, and has to be the same everywhere; a send meets the
n-th receive of its pair. When every process that it knows of waits, and nothing fits, that is a deadlock, across communicators too; when a
rank does not come for long, its name is said to the others.
"""

from __future__ import annotations

import secrets
import socket
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.nccl.names import INTERNAL, REDUCTIONS, REMOTE, TYPES, USAGE
from gradlab.backends.cuda.nccl.wire import Line
from gradlab.dtype import HALF, bfloat16
from gradlab.quiet import quietly

DTYPES = {number: bfloat16.dtype if name == "bfloat16" else np.dtype(name) for name, number in TYPES.items()}
_UFUNCS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}
_OPS = {number: name for name, number in REDUCTIONS.items()}
_all: weakref.WeakSet[Hub] = weakref.WeakSet()  # those of this process, for deadlocks across them
_lock = threading.RLock()  # one for all hubs: they look into each other


class Call(NamedTuple):
    """What a rank has called, and not got yet."""

    number: int  # its own, in the order of its calls
    said: dict[str, Any]
    payload: bytes

    def __str__(self) -> str:
        said = self.said
        extra = [f"op {_OPS[said['op']]}"] if "op" in said else []
        extra += [f"{key} {said[key]}" for key in ("root", "peer") if key in said]
        extra += ["captured"] * said["captured"]
        return f"{said['name']} of {said['count']} {DTYPES[said['dtype']].name}{''.join(f', {x}' for x in extra)}"


class Member:
    """A rank that has come."""

    def __init__(self, line: Line, rank: int, device: list[Any], process: list[Any]) -> None:
        self.line, self.rank, self.device, self.process = line, rank, device, tuple(process)
        self.collectives: deque[Call] = deque()
        self.sends: dict[int, deque[Call]] = {}
        self.receives: dict[int, deque[Call]] = {}
        self.done = 0  # collectives
        self.waiting = False
        self.gone = False

    def open(self) -> list[Call]:
        """What it waits for."""
        pairs = [call for table in (self.sends, self.receives) for calls in table.values() for call in calls]
        return sorted([*self.collectives, *pairs])


class Hub:
    """One communicator's."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.members: dict[int, Member] = {}
        self.size = 0
        self.broken = ""
        _all.add(self)
        threading.Thread(target=self._accept, name="emulated NCCL", daemon=True).start()

    # ------------------------------------------------------------ who comes

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Line(connection),), name="emulated NCCL", daemon=True).start()

    def _serve(self, line: Line) -> None:
        try:
            header, _ = line.receive()
            member = self._join(line, header)
            while member is not None:
                header, payload = line.receive()
                with _lock:
                    self._take(member, header, payload)
        except OSError:
            with _lock:
                self._left(line)
        except Exception as error:  # nobody is to wait for what has failed
            with _lock:
                self._break(INTERNAL, f"{type(error).__name__}: {error}", all_of_them=True)

    def _join(self, line: Line, header: dict[str, Any]) -> Member | None:
        with _lock:
            if header.get("token") != self.token:
                line.close()
                return None
            rank, size, device = header["rank"], header["size"], header["device"]
            why = ""
            if self.members and size != self.size:
                why = f"rank {rank} says that there are {size} ranks, the others {self.size}"
            elif rank in self.members:
                why = f"rank {rank} came twice"
            elif other := next((m for m in self.members.values() if m.device == device), None):
                why = f"duplicate GPU: ranks {other.rank} and {rank} are both on cuda:{device[1]} of {device[0]}; each needs one of its own"
            self.size = size
            member = self.members.setdefault(rank, Member(line, rank, device, header["process"]))
            if why:
                self.broken = why
                line.send({"error": USAGE, "reason": why})
                for m in self.members.values():
                    m.line.send({"error": USAGE, "reason": why})
            elif len(self.members) == size:
                for m in self.members.values():
                    m.line.send({"ready": True})
            return member

    def _left(self, line: Line) -> None:
        member = next((m for m in self.members.values() if m.line is line), None)
        if member is None:
            return
        member.gone = True
        if any(m.waiting for m in self.members.values() if m is not member):
            self._break(REMOTE, f"rank {member.rank} has ended")
        if all(m.gone for m in self.members.values()) and len(self.members) == self.size:
            self._listener.close()
            _all.discard(self)

    # ------------------------------------------------------------ what they call

    def _take(self, member: Member, header: dict[str, Any], payload: bytes) -> None:
        if "late" in header:
            self._late(member, header["late"])
        elif header.get("waiting"):
            member.waiting = bool(member.open())  # others may have come meanwhile, and it has its answers
            if self.broken:
                member.line.send({"error": USAGE, "reason": self.broken})
            self._match()
            self._stuck()
        else:
            call = Call(header["number"], header, payload)
            if header["name"] == "send":
                member.sends.setdefault(header["peer"], deque()).append(call)
            elif header["name"] == "recv":
                member.receives.setdefault(header["peer"], deque()).append(call)
            else:
                member.collectives.append(call)

    def _match(self) -> None:
        members = [self.members[rank] for rank in sorted(self.members)]
        while len(members) == self.size and all(m.collectives for m in members):
            calls = [m.collectives[0] for m in members]
            said = {self._shown(call) for call in calls}
            if len(said) > 1:
                parts = "; ".join(f"rank {m.rank}: {call}" for m, call in zip(members, calls, strict=True))
                self._break(USAGE, f"the ranks differ in their collective number {members[0].done + 1}. {parts}")
                return
            for m, result in zip(members, collective(calls, self.size), strict=True):
                self._answer(m, m.collectives.popleft(), result)
                m.done += 1
        for m in members:
            for peer, waiting in m.sends.items():
                other = self.members.get(peer)
                while waiting and other is not None and other.receives.get(m.rank):
                    sent, taken = waiting[0], other.receives[m.rank][0]
                    if [sent.said[k] for k in ("count", "dtype")] != [taken.said[k] for k in ("count", "dtype")]:
                        self._break(USAGE, f"rank {m.rank} calls {sent}, and rank {peer} {taken}: counts and types have to be the same")
                        return
                    self._answer(m, waiting.popleft(), b"")
                    self._answer(other, other.receives[m.rank].popleft(), sent.payload)

    @staticmethod
    def _shown(call: Call) -> str:
        return str(call)

    def _answer(self, member: Member, call: Call, result: Any) -> None:
        member.line.send({"number": call.number}, result)
        if not member.open():
            member.waiting = False

    # ------------------------------------------------------------ what does not fit

    def _stuck(self) -> None:
        """Ask those that are waited for to go on; a deadlock where all of them wait, too."""
        if not any(m.waiting for m in self.members.values()):
            return
        hubs, processes, seen = [self], [], {self}
        while hubs:
            hub = hubs.pop()
            for m in hub.members.values():
                if m.waiting:
                    continue
                elsewhere = next((h for h in _all if any(o.waiting and o.process == m.process for o in h.members.values())), None)
                if elsewhere is None:
                    processes.append(m)
                elif elsewhere not in seen:
                    seen.add(elsewhere)
                    hubs.append(elsewhere)
        if processes or len(self.members) < self.size:
            for m in processes:
                if not m.gone:
                    m.line.send({"wanted": True})
                elif m.rank in self.members:
                    self._break(REMOTE, f"rank {m.rank} has ended")
            return
        text = "; ".join(
            f"rank {m.rank} waits in {m.open()[0]}" + (f" of communicator {number}" if len(seen) > 1 else "")
            for number, hub in enumerate(sorted(seen, key=lambda h: h.port))
            for _, m in sorted(hub.members.items())
            if m.waiting
        )
        for hub in seen:
            hub._break(USAGE, f"a deadlock: {text}, and none of it can go on. {_ADVICE}")

    def _late(self, member: Member, seconds: float) -> None:
        if member.waiting:
            missing = [m for m in self.members.values() if not m.waiting]
            names = ", ".join(f"rank {m.rank} (which has done {m.done} collectives)" for m in missing)
            self._break(REMOTE, f"rank {member.rank} has waited {seconds:g} s in {member.open()[0]} for {names}, which did not come")

    def _break(self, status: int, reason: str, all_of_them: bool = False) -> None:
        """Nothing goes on after an error. all_of_them: those that do not wait hear of it at once, too."""
        self.broken = self.broken or reason
        for m in self.members.values():
            if (m.waiting or all_of_them) and not m.gone:
                m.waiting = False
                try:
                    m.line.send({"error": status, "reason": reason})
                except OSError:
                    m.gone = True


_ADVICE = "Let all ranks call in one order, and put sends and receives of both sides between groupStart() and groupEnd()"


def collective(calls: list[Call], size: int) -> list[Any]:
    """What each rank gets: reductions in the order of the ranks, in float32 for half types."""
    said = calls[0].said
    dtype = DTYPES[said["dtype"]]
    name = said["name"]
    if name in ("broadcast", "bcast"):
        return [calls[said["root"]].payload] * size
    if name == "allGather":
        return [b"".join(call.payload for call in calls)] * size
    arrays = [np.frombuffer(call.payload, dtype) for call in calls]
    wide = np.dtype(np.float32) if dtype in HALF else dtype
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        quietly(_UFUNCS[said["op"]], total, array.astype(wide), out=total)
    if said["op"] == REDUCTIONS["mean"]:
        quietly(np.floor_divide if wide.kind in "iu" else np.divide, total, np.asarray(size, wide), total)
    whole = np.ascontiguousarray(total.astype(dtype)).view(np.uint8)
    if name == "reduce":
        return [whole if rank == said["root"] else b"" for rank in range(size)]
    if name == "reduceScatter":
        return list(whole.reshape(size, -1))
    return [whole] * size
