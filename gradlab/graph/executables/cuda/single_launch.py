"""A program of one launch, made on the caller's own memory: no buffers are filled, no graph is replayed."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.backends.cuda.arguments import KINDS, Packer, repeater
from gradlab.backends.cuda.launch_context import Work

ALIGNED = 16  # what kernels that read packs were chosen for; an array from elsewhere may begin anywhere

Run = Callable[[Sequence[Any], Sequence[Any]], bool]


class Single(NamedTuple):
    """run: launches a task, given the arrays that stand in place of the program's inputs and results. It answers False, and does nothing,
    where these do not lie as the program's own do: with steps, at other alignments, or where an input shares memory with something that
    the program writes.

    again: gives the same for calls whose last results, so many of them, are these arrays each time, and whose other results are memory
    that nobody has had yet; it answers False where it cannot. One call at a time."""

    run: Run
    again: Callable[[Sequence[Any]], Run]


def single_launch(work: Work, task: Any, inputs: Sequence[Any], results: Sequence[Any], written: Sequence[Any]) -> Single | None:
    """How to launch a task on the caller's memory; None for what is no plain launch. written: what it writes besides `results`."""
    if not (isinstance(task, functools.partial) and task.func == work.launch and not task.keywords):
        return None
    driver, pointer = work.driver, work.pointer
    kind_of: Any = driver.array_type
    function, blocks, threads, *values = task.args
    own = [*inputs, *results]
    if any(a.nbytes == 0 or not a.flags.c_contiguous for a in own):
        return None
    starts = [(pointer(a), a.nbytes) for a in own]
    kinds: list[str | int] = []
    constants: list[Any] = []
    places: list[tuple[int, int, int]] = []
    for i, v in enumerate(values):
        if type(v) is kind_of:
            address = pointer(v)
            which = next((n for n, (start, size) in enumerate(starts) if start <= address < start + size), None)
            if which is not None and v.dtype != own[which].dtype:
                return None  # it sees other bits in its memory: the caller's array does not say so
            if which is not None:
                places.append((i, which, address - starts[which][0]))
            kinds.append("P")
            constants.append(address)
        else:
            kinds.append("P" if v is None else len(v) if type(v) is bytes else KINDS[type(v)])
            constants.append(0 if v is None else v)
    launch = driver.launcher(function, (blocks, 1, 1), (threads, 1, 1), 0)
    send = repeater(kinds, constants, places, launch)
    number, sizes = len(inputs), [a.nbytes for a in own]
    fixed = [(pointer(a), pointer(a) + a.nbytes) for a in written]
    apart: list[int] = []  # addresses that were found to be right

    def separate(found: list[int]) -> bool:
        """Whether no input, and no result, lies where something is written."""
        spans = [(at, at + size) for at, size in zip(found, sizes, strict=True)]
        targets = [*spans[number:], *fixed]
        return not any(a < d and c < b for i, (a, b) in enumerate(spans) for c, d in targets[max(i - number + 1, 0) :])

    def run(arrays: Sequence[Any], outs: Sequence[Any]) -> bool:
        nonlocal apart
        found = []
        for array in (*arrays, *outs):
            if type(array) is not kind_of or not array.flags.c_contiguous:
                return False
            found.append(pointer(array))
        if found != apart:
            if any(at % ALIGNED for at in found) or not separate(found):
                return False
            apart = found
        send(found)
        return True

    def again(lasting: Sequence[Any]) -> Run:
        ends = [pointer(a) for a in lasting]
        targets = sorted([*fixed, *((at, at + a.nbytes) for at, a in zip(ends, lasting, strict=True))])
        begins, lasts = [a for a, _ in targets], [b for _, b in targets]
        # With targets that lie apart, of those that begin before an input's end only the last can reach into it.
        sound = all(b <= a for (_, b), (a, _) in itertools.pairwise(targets)) and not any(at % ALIGNED for at in ends)
        before: list[Any] = [None] * number
        packer = Packer(kinds)
        packet = packer.fill(*constants)  # one is enough: a launch copies it, and callers take turns

        def writer(which: int) -> Callable[[int], None]:
            """What puts an array's address into the packet: in most programs in one place."""
            writes = [(packer.part_of(packet, i), far) for i, n, far in places if n == which]
            if len(writes) == 1 and not writes[0][1]:
                return writes[0][0]

            def write(at: int) -> None:
                for part, far in writes:
                    part(at + far)

            return write

        writers = [writer(n) for n in range(len(own) - len(ends))]
        of_fresh = writers[number:]
        for n, at in enumerate(ends, len(own) - len(ends)):
            writer(n)(at)

        def quick(arrays: Sequence[Any], fresh: Sequence[Any]) -> bool:
            for i, array in enumerate(arrays):
                if array is before[i]:
                    continue
                if type(array) is not kind_of or not array.flags.c_contiguous:
                    return False
                at = pointer(array)
                n = bisect_left(begins, at + sizes[i])
                if at % ALIGNED or (n and lasts[n - 1] > at) or not sound:
                    return False
                before[i] = array
                writers[i](at)
            for write, array in zip(of_fresh, fresh):
                write(pointer(array))
            launch(packet.address)  # which is there as long as the packet
            return True

        return quick

    return Single(run, again)


def repeated(executable: Any, lasting: Sequence[Any]) -> Run | None:
    """The short way of an executable (`Single.again`), which holds while its settings are what they are now: it answers False where the
    executable is to run as a whole. None where it has none, or no graph yet."""
    single, settings = executable._single, executable._settings
    now, device, driver = executable._now, executable.device, executable.driver
    if executable._graph is None or single is None or len(executable._bound) != len(lasting) or settings != now():
        return None
    quick, faults, lock = single.again(lasting), executable.work.faults, executable._lock

    def run(arrays: Sequence[Any], fresh: Sequence[Any]) -> bool:
        with lock:
            if executable._settings is not settings or now() != settings or driver.current_device() != device or not quick(arrays, fresh):
                return False
        faults.check()
        return True

    return run
