"""The emulated GPU's NCCL: the names of `cupy.cuda.nccl`, for several processes with a device each, which meet in `hub.py`.

Calls go into a stream, where they run late as kernels do, and read and write memory by the emulated device's rules: work in another stream
that no event orders is a KernelFault, calls of one communicator in several streams among it. Refused as well: memory that reaches beyond
an array, buffers that overlap in part, a communicator of another device, a communicator made in a capture, groups left open. What ranks
differ in, deadlocks and ranks that do not come are errors where somebody waits for the result, within GRADLAB_EMULATED_NCCL_SECONDS.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.cuda.nccl.hub import DTYPES, Hub
from gradlab.backends.cuda.nccl.names import ARGUMENT, CONSTANTS, REDUCTIONS, REMOTE, SYSTEM, UNIQUE_ID_BYTES, USAGE, VERSION, NcclError
from gradlab.backends.cuda.nccl.wire import Line

SECONDS = 60.0  # that a rank waits for the others
_REST = 0.02  # seconds between two looks at whether a stream has work that others wait for


class Post:
    """A call, submitted. gives, gets: bytes at an address."""

    def __init__(self, said: dict[str, Any], gives: tuple[int, int], gets: tuple[int, int]) -> None:
        self.said, self.gives, self.gets = said, gives, gets


class StandIn:
    """What stands for the module `cupy.cuda.nccl`, of one driver."""

    available = True
    NcclError = NcclError

    def __init__(self, driver: Any, allocation: Callable[[int], tuple[int, int] | None]) -> None:
        self.driver, self.allocation = driver, allocation
        self._local = threading.local()
        self.hubs: list[Hub] = []
        for name, number in CONSTANTS.items():
            setattr(self, name, number)
        standin = self

        class NcclCommunicator(Communicator):
            """A communicator of this driver's current device."""

            def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:
                super().__init__(standin, ndev, commId, rank)

            @staticmethod
            def initAll(devices: Any) -> Any:
                """Several devices of one process."""
                raise NotImplementedError(
                    "initAll: the emulated GPU's NCCL has one device in each process; start one process for each device (mpiexec, "
                    "gradlab launch) and make NcclCommunicator(ndev, commId, rank) in each"
                )

        self.NcclCommunicator = NcclCommunicator

    def get_version(self) -> int:
        """As NCCL writes it: 22800 is 2.28."""
        return VERSION

    get_build_version = get_version

    def get_unique_id(self) -> tuple[int, ...]:
        """Where the ranks of a communicator meet, in 128 numbers: this process."""
        hub = Hub()
        self.hubs.append(hub)
        return tuple(f"{hub.port}:{hub.token}".encode().ljust(UNIQUE_ID_BYTES, b"\0"))

    def groupStart(self) -> None:
        """What is called from here to `groupEnd` is one piece of work."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        if self._local.depth == 1:
            self._local.posts = []

    def groupEnd(self) -> None:
        """Submit the group."""
        depth = getattr(self._local, "depth", 0)
        if depth == 0:
            raise NcclError(USAGE, "groupEnd without groupStart")
        self._local.depth = depth - 1
        if depth == 1:
            posts, self._local.posts = self._local.posts, []
            by: dict[tuple[int, int], tuple[Communicator, int, list[Post]]] = {}
            for communicator, post, stream in posts:
                by.setdefault((id(communicator), stream), (communicator, stream, []))[2].append(post)
            if len({place[0] for place in by}) < len(by):
                raise NcclError(USAGE, "a group calls one communicator in several streams; the stand-in takes one stream in a group")
            for communicator, stream, some in by.values():
                communicator.submit(some, stream)

    def grouped(self) -> list[Any] | None:
        """The calls of the group that is open in this thread; None where none is."""
        return self._local.posts if getattr(self._local, "depth", 0) else None


class Communicator:
    """The ranks that meet at a unique id. Making one waits for all of them."""

    def __init__(self, standin: StandIn, ndev: int, commId: tuple[int, ...], rank: int) -> None:
        driver = standin.driver
        if not 0 <= rank < ndev:
            raise NcclError(ARGUMENT, f"rank {rank} of {ndev}")
        if len(commId) != UNIQUE_ID_BYTES or b":" not in bytes(commId):
            raise NcclError(ARGUMENT, "commId is what get_unique_id() gave to one of the ranks, who gives it to the others")
        if driver.capturing():
            raise NcclError(USAGE, "a communicator is made before a capture")
        self.standin, self._rank, self._size, self._device = standin, rank, ndev, driver.current_device()
        self.seconds = float(os.environ.get("GRADLAB_EMULATED_NCCL_SECONDS", SECONDS))
        self._order = driver.empty((1,), np.dtype(np.int32))  # written by every call, so that those in several streams need an event
        self._number = 0
        self._wanted = False
        self._answers: dict[int, bytes] = {}
        self._error: NcclError | None = None
        self._ready, self._closed = False, False
        self._changed = threading.Condition()
        port, _, token = bytes(commId).rstrip(b"\0").decode().partition(":")
        try:
            self._line = Line(socket.create_connection(("127.0.0.1", int(port)), self.seconds))
        except OSError as error:
            raise NcclError(SYSTEM, f"nobody is where the unique id leads ({error}); its process has ended") from None
        self._line._connection.settimeout(None)
        device = [os.environ.get("GRADLAB_EMULATED_HOST", socket.gethostname()), self._device]
        self._line.send({"token": token, "rank": rank, "size": ndev, "device": device, "process": [socket.gethostname(), os.getpid()]})
        threading.Thread(target=self._read, name="emulated NCCL", daemon=True).start()
        threading.Thread(target=self._go_on, name="emulated NCCL", daemon=True).start()
        with self._changed:
            most = max(self.seconds, SECONDS)  # processes begin one after the other
            if not self._changed.wait_for(lambda: self._ready or self._error, most):
                self._error = NcclError(REMOTE, f"rank {rank} of {ndev} has waited {most:g} s for the others to make communicators")
            if self._error is not None:
                raise self._error

    def __del__(self) -> None:
        if getattr(self, "_line", None) is None:
            return
        if sys.is_finalizing():  # its threads are stopped wherever they were, one perhaps with the lock
            self._closed = True
            self._line.close()
        else:
            self.destroy()

    # ------------------------------------------------------------ what it is

    comm = property(lambda self: id(self))

    def rank_id(self) -> int:
        """This process's place."""
        return self._rank

    def size(self) -> int:
        """How many there are."""
        return self._size

    def device_id(self) -> int:
        """The device that was current when it was made."""
        return self._device

    def check_async_error(self) -> None:
        """Raise what went wrong in a call that was submitted before."""
        if self._error is not None:
            raise self._error

    def destroy(self) -> None:
        """End it."""
        self._closed = True
        self._line.close()
        with self._changed:
            self._changed.notify_all()

    abort = destroy

    # ------------------------------------------------------------ calls

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of all ranks' numbers, in all."""
        self._call("allReduce", sendbuf, count, recvbuf, count, count, datatype, stream, op=op)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        """The same in one."""
        self._call("reduce", sendbuf, count, recvbuf, count if root == self._rank else 0, count, datatype, stream, op=op, root=root)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """The numbers of one rank, in all."""
        self._call("broadcast", sendbuff, count if root == self._rank else 0, recvbuff, count, count, datatype, stream, root=root)

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """The same in place."""
        self._call("bcast", buff, count if root == self._rank else 0, buff, count, count, datatype, stream, root=root)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of each rank's part."""
        self._call("reduceScatter", sendbuf, recvcount * self._size, recvbuf, recvcount, recvcount, datatype, stream, op=op)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """All ranks' numbers, one after the other, in all."""
        self._call("allGather", sendbuf, count, recvbuf, count * self._size, count, datatype, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Numbers for another rank, which calls recv."""
        self._call("send", sendbuf, count, 0, 0, count, datatype, stream, peer=peer)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Numbers from another rank, which calls send."""
        self._call("recv", 0, 0, recvbuf, count, count, datatype, stream, peer=peer)

    def _call(
        self, name: str, source: int, gives: int, target: int, gets: int, count: int, datatype: int, stream: int, **more: int
    ) -> None:
        driver = self.standin.driver
        self.check_async_error()
        if self._closed:
            raise NcclError(ARGUMENT, f"{name}: the communicator was destroyed")
        if datatype not in DTYPES:
            raise NcclError(ARGUMENT, f"{name}: {datatype} is no datatype")
        if more.get("op", 0) not in REDUCTIONS.values():
            raise NcclError(ARGUMENT, f"{name}: {more['op']} is no reduction")
        for what in ("root", "peer"):
            if not 0 <= more.get(what, 0) < self._size:
                raise NcclError(ARGUMENT, f"{name}: {what} {more[what]} of {self._size} ranks")
        if driver.current_device() != self._device:
            raise NcclError(USAGE, f"{name}: the communicator is of cuda:{self._device}, and cuda:{driver.current_device()} is current")
        width = DTYPES[datatype].itemsize
        given, got = (source, gives * width), (target, gets * width)
        for what, (address, size) in (("sendbuf", given), ("recvbuf", got)):
            found = self.standin.allocation(address) if size else (0, 0)
            if found is None:
                raise NcclError(ARGUMENT, f"{name}: {what} at {address:#x} is no memory of the device")
            if size and (beyond := address + size - sum(found)) > 0:
                raise NcclError(ARGUMENT, f"{name}: {what} reaches {beyond} bytes beyond an array of {found[1]} bytes")
        starts = {"allGather": (source, target + self._rank * given[1]), "reduceScatter": (source + self._rank * got[1], target)}
        here, there = starts.get(name, (source, target))
        if given[1] and got[1] and here != there and source < target + got[1] and target < source + given[1]:
            raise NcclError(ARGUMENT, f"{name}: sendbuf and recvbuf overlap in part; they are apart, or the same place")
        said = {"name": name, "count": count, "dtype": datatype, **more}
        posts = self.standin.grouped()
        post = Post(said, given, got)
        if posts is None:
            self.submit([post], stream)
        else:
            posts.append((self, post, stream))

    def submit(self, posts: list[Post], stream: int) -> None:
        """Put calls into a stream, as one piece of work."""
        driver = self.standin.driver
        found = driver.engine.find(self._device, stream)
        captured = found is not None and found.capture is not None
        reads = [post.gives[0] for post in posts if post.gives[1]]
        writes = [post.gets[0] for post in posts if post.gets[1]]
        label = f"nccl {posts[0].said['name']}"
        driver.submit(label, reads, [*writes, driver.pointer(self._order)], lambda: self._run(posts, captured), stream)

    # ------------------------------------------------------------ when they run

    def _run(self, posts: list[Post], captured: bool) -> None:
        self.check_async_error()
        numbers = []
        try:
            for post in posts:
                self._number += 1
                numbers.append(self._number)
                address, size = post.gives
                payload = ctypes.string_at(address, size) if size else b""
                self._line.send({"number": self._number, "captured": captured, **post.said}, payload)
            self._line.send({"waiting": True})
        except OSError:
            self._error = self._error or NcclError(REMOTE, "the process that made the unique id has ended")
        begun = time.monotonic()
        with self._changed:
            late = False
            while not (self._error or all(number in self._answers for number in numbers)):
                if not self._changed.wait(0.5) and time.monotonic() - begun > self.seconds and not late:
                    late = True
                    self._line.send({"late": self.seconds})
            self._wanted = False
            if self._error is not None:
                raise self._error
            results = [self._answers.pop(number) for number in numbers]
        for post, result in zip(posts, results, strict=True):
            if post.gets[1]:
                ctypes.memmove(post.gets[0], result, post.gets[1])

    def _read(self) -> None:
        try:
            while True:
                header, payload = self._line.receive()
                with self._changed:
                    if "error" in header:
                        self._error = self._error or NcclError(header["error"], header["reason"])
                    elif "ready" in header:
                        self._ready = True
                    elif "wanted" in header:
                        self._wanted = True
                    else:
                        self._answers[header["number"]] = payload
                    self._changed.notify_all()
        except (ConnectionError, OSError):
            with self._changed:
                if not self._closed:
                    self._error = self._error or NcclError(REMOTE, "the process that made the unique id has ended")
                self._changed.notify_all()

    def _go_on(self) -> None:
        """Run what others wait for: a GPU needs nobody who waits for its streams."""
        engine = self.standin.driver.engine
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
            if self._closed or self._error:
                return
            try:
                engine.advance(self._device)
            except Exception as error:  # as on a GPU: it is said by the next call
                self._error = self._error or NcclError(SYSTEM, f"{type(error).__name__}: {error}")
            time.sleep(_REST)
