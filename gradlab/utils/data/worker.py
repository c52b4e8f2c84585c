"""A worker process, from its own side: it takes tasks, loads batches and sends them.

One thread does nothing but read: so the user's process is never kept waiting when it hands out tasks, and a worker notices at once when
that process is gone, whatever the dataset is doing.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradlab.tensor.generator import manual_seed
from gradlab.utils.data.fetch import Fetcher, Recipe

SHARED_FROM = 1 << 15  # bytes from which arrays come through shared memory
ALIGNMENT = 64
WATCH = 1.0  # seconds between two looks at whether the user's process is still there


class WorkerInfo(NamedTuple):
    """What `get_worker_info` tells: this worker's number, how many there are, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: who it is, so that a stream can give each worker its own part. None in the user's process."""
    return _info


class Failed:
    """An exception of a worker, on its way to the user's process."""

    def __init__(self, error: BaseException, worker: int) -> None:
        kind = type(error)
        self.kind = kind if _importable(kind) else RuntimeError
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        text = "".join(traceback.format_exception(error))
        self.message = f"{kind.__name__} in DataLoader worker {worker}: {error}{notes}\n\nThe worker's traceback:\n{text}"

    def rebuilt(self) -> Exception:
        """An exception of the same class where that takes a message, else a RuntimeError."""
        if issubclass(self.kind, KeyError):
            return _KeyError(self.message)
        try:
            made = self.kind(self.message)
        except Exception:
            return RuntimeError(self.message)
        return made if isinstance(made, Exception) and self.message in str(made) else RuntimeError(self.message)


class _KeyError(KeyError):
    """A KeyError that shows its message as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


def _importable(kind: type) -> bool:
    try:
        return pickle.loads(pickle.dumps(kind)) is kind
    except Exception:
        return False


# ---------------------------------------------------------------- batches on their way


def send_batch(connection: Any, number: int, epoch: int, found: Any) -> None:
    """Send a batch; large arrays through shared memory where the system has it without names."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(found, protocol=5, buffer_callback=buffers.append)
    views = [b.raw() for b in buffers]
    sizes = [v.nbytes for v in views]
    if sum(sizes) < SHARED_FROM or not hasattr(os, "memfd_create"):
        connection.send((number, epoch, content, [bytearray(v) for v in views], None))
        return
    places, total = [], 0
    for size in sizes:
        places.append(total)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    descriptor = os.memfd_create("gradlab-batch")
    try:
        os.ftruncate(descriptor, total)
        with mmap.mmap(descriptor, total) as memory:
            for view, place, size in zip(views, places, sizes, strict=True):
                memory[place : place + size] = view
        connection.send((number, epoch, content, list(zip(places, sizes, strict=True)), total))
        importlib.import_module("multiprocessing.reduction").send_handle(connection, descriptor, None)
    finally:
        os.close(descriptor)


def receive_batch(connection: Any) -> tuple[int, int, Any]:
    """The task's number, the epoch it belongs to, and the batch (or a Failed, or StopIteration). EOFError where the worker is gone."""
    number, epoch, content, buffers, total = connection.recv()
    if total is not None:
        descriptor = importlib.import_module("multiprocessing.reduction").recv_handle(connection)
        try:
            memory = memoryview(mmap.mmap(descriptor, total))  # lives as long as the arrays in it
        finally:
            os.close(descriptor)
        buffers = [memory[place : place + size] for place, size in buffers]
    return number, epoch, pickle.loads(content, buffers=buffers)


# ---------------------------------------------------------------- the process


def seed_streams(seed: int, number: int) -> None:
    """Start the random streams (gradlab's, NumPy's, Python's) for batch `number`: so a batch does not depend on those before it."""
    words = np.random.SeedSequence([seed, number]).generate_state(6, np.uint32)
    manual_seed(int.from_bytes(words[:2].tobytes(), "little"))
    np.random.seed(words[2:4])  # noqa: NPY002 - the stream that datasets use
    random.seed(int.from_bytes(words[4:].tobytes(), "little"))


def read_tasks(connection: Any, tasks: queue.SimpleQueue[Any], parent: int) -> None:
    """Put what comes into the queue. The user's process is gone: end at once."""
    wait = importlib.import_module("multiprocessing.connection").wait
    while True:
        try:
            while not wait([connection], WATCH):
                if os.getppid() != parent:
                    os._exit(1)
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(1)
        tasks.put(message)
        if message is None:
            return


def worker_main(
    connection: Any, inherited: tuple[Any, ...], recipe: Recipe, count: int, number: int, init: Callable[[int], None] | None, parent: int
) -> None:
    """What a worker process runs. `inherited`: copies of the user's ends of connections, which would keep them open."""
    for other in inherited:
        other.close()
    # Ctrl-C reaches the whole terminal; the user's process decides, and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=read_tasks, args=(connection, tasks, parent), daemon=True).start()
    try:
        work(connection, tasks, recipe, count, number, init)
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody wants the batch any more


def work(
    connection: Any, tasks: queue.SimpleQueue[Any], recipe: Recipe, count: int, number: int, init: Callable[[int], None] | None
) -> None:
    """Answer tasks until told to end. An exception is an answer too; it does not end the worker."""
    global _info
    fetcher: Fetcher | None = None
    broken: Failed | None = None
    started = False
    seed = epoch = 0
    while (task := tasks.get()) is not None:
        if task[0] == "epoch":
            _, base, epoch = task
            seed = base + number
            _info = WorkerInfo(number, count, seed, recipe.dataset)
            seed_streams(seed, 0)
            try:
                if init is not None and not started:
                    init(number)
                started, broken = True, None
                fetcher = Fetcher(recipe, base, number)
            except Exception as error:
                broken = Failed(error, number)
            continue
        _, place, indices = task
        found: Any = broken
        if broken is None:
            assert fetcher is not None
            seed_streams(seed, place)
            try:
                found = fetcher.fetch(place, indices)
            except StopIteration:
                found = StopIteration
            except Exception as error:
                found = Failed(error, number)
        try:
            send_batch(connection, place, epoch, found)
        except (OSError, ValueError) as error:
            if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                raise
            send_batch(connection, place, epoch, Failed(error, number))
        except Exception as error:  # a batch that cannot be pickled
            send_batch(connection, place, epoch, Failed(error, number))
