"""Worker processes, from the user's side: starting them, giving them tasks, taking their batches in order, ending them.

Batch number i goes to worker i modulo their number, so what a worker does does not depend on timing. Large arrays come through memory
that a worker made, filled and handed over as a file descriptor: it has no name, so nothing of it can be left behind. `multiprocessing` is
imported when the first pool starts.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.tensor import Tensor
from gradlab.utils.data.fetch import Recipe, shortened
from gradlab.utils.data.worker import (
    Failed,
    WorkerInfo as WorkerInfo,
    get_worker_info as get_worker_info,
    receive_batch,
    worker_main,
)

if TYPE_CHECKING:
    from gradlab.utils.data.loader import Epoch

PATIENCE = 1.0  # seconds that workers get to finish what they are at when they are no longer needed

_epochs = itertools.count(1)
_connections: weakref.WeakSet[Any] = weakref.WeakSet()  # our ends, of all pools: a forked worker closes its copies of them


def base_seed(state: Tensor) -> int:
    """A 62-bit number for the workers' random streams, from a generator's state."""
    words = state.numpy().view("<u8").tolist()
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) >> 2


class Worker:
    """One process, our end of the connection to it, and the tasks that it has not answered yet."""

    def __init__(self, process: Any, connection: Any) -> None:
        self.process, self.connection = process, connection
        self.waiting: deque[tuple[int, Any]] = deque()
        self.exhausted = False  # its part of a stream is at its end


class Pool:
    """The worker processes of a loader. They end with the pool: when it is closed or collected, or this process ends in any way."""

    def __init__(
        self, recipe: Recipe, count: int, init: Callable[[int], None] | None, context: Any, timeout: float
    ) -> None:
        multiprocessing = importlib.import_module("multiprocessing")
        self.wait = importlib.import_module("multiprocessing.connection").wait
        if context is None:
            context = "fork" if sys.platform == "linux" else "spawn"
        chosen = multiprocessing.get_context(context) if isinstance(context, str) else context
        self.timeout = timeout
        self.workers: list[Worker] = []
        self._end = weakref.finalize(self, end_workers, self.workers, os.getpid())
        try:
            for number in range(count):
                self.workers.append(self._start(chosen, recipe, count, number, init))
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, recipe: Recipe, count: int, number: int, init: Any) -> Worker:
        ours, theirs = context.Pipe()
        forked = context.get_start_method() == "fork"
        _connections.add(ours)
        arguments = (theirs, tuple(_connections) if forked else (), recipe, count, number, init, os.getpid())
        process = context.Process(target=worker_main, args=arguments, daemon=True, name=f"gradlab-loader-{number}")
        with warnings.catch_warnings():
            # Python 3.12 warns of forking beside threads (NumPy's own count); a worker runs only the dataset's code.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return Worker(process, ours)

    @property
    def alive(self) -> bool:
        """Whether all workers can take tasks."""
        return self._end.alive and all(w.process.is_alive() for w in self.workers)

    def close(self) -> None:
        """End the workers, now."""
        self._end()


def end_workers(workers: list[Worker], owner: int) -> None:
    """Ask the workers to end; after a second end them."""
    if os.getpid() != owner:  # a forked child holds a copy of the pool
        return
    for worker in workers:
        try:
            worker.connection.send(None)
        except (OSError, ValueError):
            pass
        worker.connection.close()
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        for end in (worker.process.terminate, worker.process.kill):
            if worker.process.is_alive():
                end()
                worker.process.join(PATIENCE)
        if not worker.process.is_alive():
            worker.process.close()
    workers.clear()


class PoolIterator(Iterator[Any]):
    """One epoch by the workers of a pool."""

    def __init__(self, pool: Pool, epoch: Epoch, prefetch: int, keep: bool) -> None:
        self.pool, self.epoch, self.keep = pool, epoch, keep
        self.number = next(_epochs)
        self.sent = self.next = epoch.skip if not epoch.streaming else 0  # numbers of tasks
        self.ready: dict[int, Any] = {}
        self.done = False
        for worker in pool.workers:
            worker.waiting.clear()
            worker.exhausted = False
            self._send(worker, ("epoch", epoch.seed, self.number))
        try:
            for _ in range(prefetch * len(pool.workers)):
                self._assign()
            if epoch.streaming:
                for _ in range(epoch.skip):
                    self._take()
        except BaseException:
            self._finish(broken=True)
            raise

    def __next__(self) -> Any:
        if self.done:
            raise StopIteration
        try:
            found = self._take()
        except StopIteration:
            self.epoch.finished = True
            self._finish()
            raise
        except BaseException:
            self._finish(broken=True)
            raise
        self.epoch.delivered += 1
        if isinstance(found, Failed):
            raise found.rebuilt()
        return found

    def _take(self) -> Any:
        """The next batch in order."""
        workers = self.pool.workers
        while self.next < self.sent:
            number = self.next
            worker = workers[number % len(workers)]
            if number not in self.ready and worker.exhausted:
                self.next += 1
                continue
            if number not in self.ready:
                self._receive(worker)
                continue
            self.next += 1
            found = self.ready.pop(number)
            self._assign()
            return found
        raise StopIteration

    def _assign(self) -> None:
        """Give the next task to the worker whose turn it is; of a stream, to the next worker that has not come to its end."""
        workers = self.pool.workers
        for _ in workers:
            worker = workers[self.sent % len(workers)]
            if not worker.exhausted:
                try:
                    indices = next(self.epoch.order)
                except StopIteration:
                    return
                worker.waiting.append((self.sent, indices))
                self._send(worker, ("batch", self.sent, indices))
                self.sent += 1
                return
            self.sent += 1

    def _send(self, worker: Worker, message: Any) -> None:
        try:
            worker.connection.send(message)
        except (OSError, ValueError):
            raise self._died(worker) from None

    def _receive(self, wanted: Worker) -> None:
        """Wait for messages until the wanted worker has sent one; keep what others send meanwhile."""
        timeout = self.pool.timeout or None
        by_connection = {w.connection: w for w in self.pool.workers if w.waiting}
        arrived = self.pool.wait(list(by_connection), timeout)
        if not arrived:
            raise RuntimeError(
                f"DataLoader timed out after {timeout} seconds: worker {self.pool.workers.index(wanted)} has not loaded "
                f"{shortened(wanted.waiting[0][1])} yet; raise timeout=, or find out what its dataset waits for"
            )
        for connection in arrived:
            worker = by_connection[connection]
            try:
                number, epoch, found = receive_batch(connection)
            except (EOFError, OSError):
                raise self._died(worker) from None
            if epoch != self.number:  # left over from an epoch that was broken off
                continue
            worker.waiting.popleft()
            if found is StopIteration:
                worker.exhausted = True
                worker.waiting.clear()
                self._assign()
            else:
                self.ready[number] = found

    def _died(self, worker: Worker) -> RuntimeError:
        process = worker.process
        process.join(PATIENCE)
        code = process.exitcode
        how = "ended without an answer" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {signal.Signals(-code).name}"
            how += " (out of memory?)" if -code == getattr(signal, "SIGKILL", None) else ""
        at = f" while loading {shortened(worker.waiting[0][1])}" if worker.waiting else ""
        return RuntimeError(f"DataLoader worker {self.pool.workers.index(worker)} (pid {process.pid}) {how}{at}")

    def _finish(self, broken: bool = False) -> None:
        self.done = True
        if broken or not self.keep:
            self.pool.close()
