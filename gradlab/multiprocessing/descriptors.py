"""File descriptors on their way to other processes, by queues and pipes.

What is sent is where to fetch one; a thread of the sender hands it out. `multiprocessing.resource_sharer` does the same, but takes its
address away before the last messages of a process that ends have left it, and that process does not wait for them to be read.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from multiprocessing import AuthenticationError, connection, context, current_process, parent_process, reduction, util
from typing import Any

PATIENCE = 10.0  # seconds that a process which ends waits for others to fetch what it has sent


class Offered:
    """A descriptor that this process has sent: as a pickle, the place to fetch it from."""

    def __init__(self, descriptor: int) -> None:
        global _counter
        if _counter is None:
            _counter = _Counter()
        self.place = _counter.offer(descriptor)

    def detach(self) -> int:
        """A descriptor of one's own. OSError or EOFError where the sender is gone."""
        address, key = self.place
        with connection.Client(address, authkey=bytes(current_process().authkey)) as server:
            server.send(key)
            return reduction.recv_handle(server)


def sent(descriptor: int) -> Any:
    """What a descriptor is pickled as; a process that is being started inherits it."""
    return Offered(descriptor) if context.get_spawning_popen() is None else reduction.DupFd(descriptor)


class _Counter:
    """Where other processes of this program fetch what was sent to them: each thing once."""

    def __init__(self) -> None:
        name = f"\0gradlab-{os.getpid()}-{os.urandom(8).hex()}" if sys.platform == "linux" else None  # which is no file there
        self._listener = connection.Listener(name, "AF_UNIX", authkey=bytes(current_process().authkey))
        self.address = self._listener.address if name is None else name
        self.waiting: dict[int, int] = {}
        self._keys = itertools.count()
        threading.Thread(target=self._serve, daemon=True).start()

    def offer(self, descriptor: int) -> tuple[Any, int]:
        key = next(self._keys)
        self.waiting[key] = os.dup(descriptor)
        return self.address, key

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as caller:
                    key = caller.recv()
                    try:
                        reduction.send_handle(caller, self.waiting[key], 0)
                    finally:
                        os.close(self.waiting.pop(key))
            except (OSError, EOFError, KeyError, AuthenticationError):
                time.sleep(0.01)


def _until_fetched() -> None:
    """At the end of a process: stay until what it has sent is fetched, or nobody seems to want it."""
    parent, last = parent_process(), time.monotonic() + PATIENCE
    while _counter is not None and _counter.waiting and parent is not None and parent.is_alive() and time.monotonic() < last:
        time.sleep(0.005)


def _at_start(_: Any) -> None:
    """Of a process that was forked, which has its parent's descriptors, but not its thread and its plans for the end."""
    global _counter
    if _counter is not None:
        for descriptor in _counter.waiting.values():
            os.close(descriptor)
    _counter = None
    util.Finalize(None, _until_fetched, exitpriority=-90)  # after the threads that empty queues


_counter: _Counter | None = None
util.register_after_fork(Offered, _at_start)
util.Finalize(None, _until_fetched, exitpriority=-90)
