"""A program's tasks as the runtime reads them: rows of addresses (`Task` of runtime.h, `Link` and `Spot` of chain.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.native import needs
from gradlab.backends.native.lowering import TaskSpec
from gradlab.backends.native.place import Place
from gradlab.backends.native.tables import Task
from gradlab.graph.executables.native.replanning import Chain, Link

CHAIN = "gradlab_chain"


class _Link(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p), ("whole", ctypes.c_void_p), ("rest", ctypes.c_void_p), ("spots", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )  # fmt: skip


class Table:
    """The rows, at address `at`. function: gives a kernel by its name; locate: a place's base and offset; bases: where the table of bases
    lies."""

    def __init__(
        self, rows: Sequence[TaskSpec | Chain], function: Callable[[str], Any], locate: Callable[[Place], tuple[int, int]], bases: int
    ) -> None:
        self._function, self._locate = function, locate
        self._numbers: list[int] = []  # all that rows refer to
        self._fixed: list[tuple[Any, str, int]] = []  # a row, its field, and where in the numbers that leads
        table = (Task * max(len(rows), 1))()
        links = (_Link * sum(len(r.links) for r in rows if isinstance(r, Chain)))()
        made = 0
        for row, spec in zip(table, rows):
            if isinstance(spec, TaskSpec):
                row.kernel, row.count, row.widest = self._address(spec.kernel), len(spec.places), spec.widest
                self._lead(row, "parameters", spec.parameters)
                self._lead(row, "places", [n for p in spec.places for n in locate(p)])
                continue
            for link, own in zip(links[made:], spec.links):
                self._fill(link, own, spec)
            row.kernel, row.count, row.widest = self._address(CHAIN), 0, spec.threads
            first = ctypes.addressof(links) + made * ctypes.sizeof(_Link)
            self._lead(row, "parameters", (bases, first, len(spec.links), spec.images, spec.chunk))
            made += len(spec.links)
        numbers = np.array(self._numbers or [0], np.int64)
        for row, field, where in self._fixed:
            setattr(row, field, numbers.ctypes.data + 8 * where)
        self.at = ctypes.addressof(table)
        self._kept = table, links, numbers
        del self._function, self._locate, self._numbers, self._fixed

    def _address(self, kernel: str) -> int | None:
        return ctypes.cast(self._function(kernel), ctypes.c_void_p).value

    def _lead(self, row: Any, field: str, numbers: Sequence[int]) -> None:
        self._fixed.append((row, field, len(self._numbers)))
        self._numbers += numbers

    def _fill(self, row: Any, link: Link, chain: Chain) -> None:
        task = link.task
        assert task.along is not None
        row.kernel, row.count = self._address(task.kernel), len(task.places)
        for field, images in (("whole", chain.chunk), ("rest", chain.images % chain.chunk)):
            numbers = list(task.parameters)
            for i in task.along.numbers:
                numbers[i] = images
            self._lead(row, field, numbers)
        spots = ((*self._locate(p), step, apart) for p, step, apart in zip(task.places, link.steps, link.apart))
        self._lead(row, "spots", [n for spot in spots for n in spot])


def kernels(rows: Sequence[TaskSpec | Chain]) -> dict[str, int]:
    """The names of all kernels that rows need, and which parts of their files (needs.py)."""
    found: dict[str, int] = {}
    for row in rows:
        if not isinstance(row, TaskSpec):
            found[CHAIN] = needs.ALL
        for task in [row] if isinstance(row, TaskSpec) else [link.task for link in row.links]:
            found[task.kernel] = found.get(task.kernel, 0) | needs.of(task.kernel, task.parameters)
    return found
