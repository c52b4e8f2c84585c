"""A program of one launch, made on the caller's own memory: no buffers are filled, no graph is replayed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.backends.cuda.arguments import KINDS, repeater
from gradlab.backends.cuda.launch_context import Work

ALIGNED = 16  # what kernels that read packs were chosen for; an array from elsewhere may begin anywhere

Run = Callable[[Sequence[Any], Sequence[Any]], bool]


def single_launch(work: Work, task: Any, inputs: Sequence[Any], results: Sequence[Any], written: Sequence[Any]) -> Run | None:
    """What launches a task, given the arrays that stand in place of the program's inputs and results; None for other tasks.

    It answers False, and does nothing, where these do not lie as the program's own do: with steps, at other alignments, or where an input
    shares memory with something that the program writes. written: arrays that it writes besides `results`.
    """
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
            if which is not None:
                places.append((i, which, address - starts[which][0]))
            kinds.append("P")
            constants.append(address)
        else:
            kinds.append("P" if v is None else len(v) if type(v) is bytes else KINDS[type(v)])
            constants.append(0 if v is None else v)
    send = repeater(kinds, constants, places, driver.launcher(function, (blocks, 1, 1), (threads, 1, 1), 0))
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

    return run
