"""Large rows on several threads: each computes a share of the images, heads, channels or elements with the row's own NumPy function.

NumPy lets go of the interpreter's lock while it computes. In a program that does so matrix products are shared in the same way, and
OpenBLAS runs on one thread: its own threads wait by spinning, and two kinds of threads on the same processors cost a multiple of what
they save.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.openblas import thread_count
from gradlab.backends.threads import threads
from gradlab.graph.executables.numpy.optimizer_updates import update_of
from gradlab.graph.ir.graph import Call, Value
from gradlab.spec import count

LEAST = 1 << 18  # elements of the largest operand that are worth a second thread


class Cut(NamedTuple):
    """Along which dimension a row's operands are cut; None for those that every thread is given whole.

    shaped: whether the parameter `shape` is that of the result, which is cut
    summed: whether each thread makes a summand of the whole result
    least: elements of the largest operand that are worth a second thread in a program that uses some
    asks: those that are worth that the program uses threads; 0 where none are
    block: elements of a piece, for rows that read their operands several times: also one thread works piece by piece then, in the cache
    """

    inputs: Sequence[int | None]
    outputs: Sequence[int | None]
    shaped: bool = False
    summed: bool = False
    least: int = 1 << 17
    asks: int = 1 << 19
    block: int = 0


CUTS = {
    "linear": Cut((0, None, None), (0,)),
    "convolution": Cut((0, None, None), (0,)),
    "convolution_relu": Cut((0, None, None), (0,)),
    "convolution_dx": Cut((0, None), (0,), shaped=True),
    "convolution_dw": Cut((0, 0), (None,), summed=True),
    "max_pool": Cut((0,), (0, 0)),
    "max_pool_backward": Cut((0, 0), (0,), shaped=True),
    "batch_norm": Cut((1, 0, 0), (1, 0, 0, 0), asks=0, block=1 << 16),
    "batch_norm_backward": Cut((1, 1, 0, 0, 0), (1, 0, 0), asks=0, block=1 << 16),
    "scaled_dot_product_attention": Cut((0, 0, 0, None), (0, 0), least=LEAST, asks=LEAST),
    "scaled_dot_product_attention_backward": Cut((0, 0, 0, 0, 0, None, 0, 0), (0, 0, 0), least=LEAST, asks=LEAST),
}
PRODUCTS = ("matmul", "linear")
MOST_ALONE = 1 << 23  # multiplications of a product that one thread does alone
UPDATES = ("sgd_update", "sgd_momentum_update", "adam_update")  # elementwise, but for single numbers

Job = tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]


def pieces(size: int, most: int, wanted: int = 0) -> list[tuple[int, int]]:
    """A range cut into several pieces for each thread, so that one which comes late finds less left; at most so many."""
    parts = min(max(2 * threads(), wanted), most)
    edges = [size * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def shared(call: Call, arrays: Sequence[Any]) -> list[list[Job]] | None:
    """What the threads do of a call; None where one is enough. arrays: the inputs (None for what is left out), then the outputs."""
    if any(a is not None and not isinstance(a, np.ndarray) for a in arrays):
        return None
    if call.op.name in UPDATES:
        return _update(call, arrays)
    cut = _product(arrays) if call.op.name == "matmul" else CUTS.get(call.op.name)
    if cut is None or len(arrays) != len(cut.inputs) + len(cut.outputs):
        return None
    dims = [*cut.inputs, *cut.outputs]
    if call.op.name.startswith("scaled_dot") and arrays[cut.inputs.index(None)] is not None:
        return None  # a mask may be repeated
    sizes = {a.shape[d] for a, d in zip(arrays, dims) if a is not None and d is not None}
    if len(sizes) != 1 or min(sizes) < (2 if cut.block else threads()):
        return None
    size = sizes.pop()
    jobs: list[list[Job]] = []
    for first, last in pieces(size, threads() if call.op.name in PRODUCTS else size, _blocks(cut, arrays)):
        given = [a if a is None or d is None else a[(slice(None),) * d + (slice(first, last),)] for a, d in zip(arrays, dims)]
        params = call.params
        if cut.shaped:
            params = {**params, "shape": (last - first, *params["shape"][1:])}
        if cut.summed and jobs:
            given[-1] = np.empty_like(arrays[-1])
        jobs.append([(call.op.cpu, tuple(given), params)])
    return jobs


def _update(call: Call, arrays: Sequence[Any]) -> list[list[Job]] | None:
    shape = arrays[0].shape
    if any(a is not None and a.shape == shape and not a.flags.c_contiguous for a in arrays):
        return None
    flat = [a.reshape(-1) if a is not None and a.shape == shape else None for a in arrays]
    size, inputs, run = count(shape), len(call.inputs), update_of(call)
    jobs: list[list[Job]] = []
    for i, (first, last) in enumerate(pieces(size, size)):
        given = [a if f is None else f[first:last] for a, f in zip(arrays, flat)]
        job: list[Job] = []
        if i:  # the number of steps may be written over by the first thread
            for k, (a, f) in enumerate(zip(arrays, flat)):
                if a is not None and f is None:
                    given[k] = np.empty_like(a)
                    if k < inputs:
                        job.append((np.copyto, (given[k], a), {}))
        jobs.append([*job, (run, tuple(given), call.params)])
    return jobs


def may_be_shared(call: Call) -> bool:
    """Whether a call is of a kind and of a size that is worth threads."""
    name = call.op.name
    if name in PRODUCTS:
        return threads() > 1 and work(call) >= MOST_ALONE
    if threads() < 2 or (name not in CUTS and name not in UPDATES):
        return False
    return _largest(call) >= (CUTS[name].least if name in CUTS else 4 * LEAST)


def asks_for_threads(call: Call) -> bool:
    """Whether a program should use threads because of a call; products alone have OpenBLAS's."""
    name = call.op.name
    if threads() < 2 or (name not in CUTS and name not in UPDATES):
        return False
    return _largest(call) >= (CUTS[name].asks if name in CUTS else 4 * LEAST) > 0


def runs_in_blocks(call: Call) -> bool:
    """Whether one thread, too, had better work piece by piece."""
    cut = CUTS.get(call.op.name)
    return cut is not None and 0 < 2 * cut.block <= _largest(call)


def _largest(call: Call) -> int:
    """Elements of a call's largest operand."""
    return max(count(x.spec.shape) for x in (*call.inputs, *call.outputs) if isinstance(x, Value))


def _blocks(cut: Cut, arrays: Sequence[Any]) -> int:
    """How many pieces a row had better be cut into."""
    return max(a.size for a in arrays if a is not None) // cut.block if cut.block else 0


def work(call: Call) -> int:
    """Multiplications of a product."""
    a = call.inputs[0]
    return count(call.outputs[0].spec.shape) * (a.spec.shape[-1] if isinstance(a, Value) and a.spec.shape else 0)


def _product(arrays: Sequence[Any]) -> Cut | None:
    """How a matrix product is cut: its first operand's rows, or the matrices of a batch."""
    a, b, y = arrays
    if a.ndim < 2 or b.ndim < 2:
        return None
    if b.ndim == 2:
        return Cut((0, None), (0,))
    return Cut((0, 0), (0,)) if a.ndim == b.ndim and a.shape[0] == b.shape[0] == y.shape[0] else None


def run_shared(call: Call, jobs: list[list[Job]], threaded: bool = True) -> None:
    """Run the jobs of a call, together on all threads or one after the other."""
    straight([job for of_one in jobs for job in of_one[:-1]])
    (together if threaded else run_alone)([of_one[-1:] for of_one in jobs])
    if call.op.name in CUTS and CUTS[call.op.name].summed:
        target, *others = [of_one[-1][1][-1] for of_one in jobs]
        for other in others:
            np.add(target, other, target)


def run_alone(lists: Sequence[Sequence[Job]]) -> None:
    """Run lists of jobs one after the other."""
    for jobs in lists:
        straight(jobs)


def straight(jobs: Sequence[Job]) -> None:
    """Run jobs one after the other."""
    for function, given, params in jobs:
        function(*given, **params)


def together(lists: Sequence[Sequence[Job]]) -> None:
    """Run lists of jobs on all threads: each takes one after the other. Raises the first error, when all have ended.

    This thread waits for nobody who has not begun: on a busy machine the others may come when all is done.
    """
    waiting, done = deque(lists), SimpleQueue[Any]()
    tasks = _workers(threads() - 1)
    for _ in range(threads() - 1):
        tasks.put((waiting, done))
    try:
        own = _take(waiting, None)
    except BaseException:
        waiting.clear()
        raise
    errors = [e for e in [done.get() for _ in range(len(lists) - own)] if e is not None]
    if errors:
        raise errors[0]


def _take(waiting: deque[Sequence[Job]], done: SimpleQueue[Any] | None) -> int:
    """Run what is waiting, and say how many lists that were. done: where each of them is reported, with its error."""
    count = 0
    while True:
        try:
            jobs = waiting.popleft()
        except IndexError:
            return count
        count += 1
        if done is None:
            straight(jobs)
            continue
        error = None
        try:
            straight(jobs)
        except BaseException as found:  # it is raised again where the jobs were given out
            error = found
        done.put(error)


class Alone:
    """While it is entered, OpenBLAS runs on one thread."""

    def __enter__(self) -> None:
        blas = thread_count()
        self._was = 1 if blas is None else blas[0]()
        if blas is not None and self._was != 1:
            blas[1](1)

    def __exit__(self, *error: Any) -> None:
        blas = thread_count()
        if blas is not None and self._was != 1:
            blas[1](self._was)


# ---------------------------------------------------------------- the threads

_tasks: SimpleQueue[Any] = SimpleQueue()
_started: list[threading.Thread] = []
_lock = threading.Lock()


def _workers(wanted: int) -> SimpleQueue[Any]:
    """The queue that at least so many threads serve."""
    if len(_started) < wanted:
        with _lock:
            while len(_started) < wanted:
                thread = threading.Thread(target=_serve, args=(_tasks,), daemon=True, name="gradlab")
                thread.start()
                _started.append(thread)
    return _tasks


def _serve(tasks: SimpleQueue[Any]) -> None:
    np.seterr(all="ignore")  # of this thread alone
    while True:
        _take(*tasks.get())


def _forget() -> None:
    """A process that was forked off has none of the threads."""
    global _tasks, _lock
    _tasks, _lock = SimpleQueue(), threading.Lock()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
