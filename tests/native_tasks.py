"""Tasks of machine code run by themselves, over arrays in memory of any order."""

from __future__ import annotations

import ctypes

import numpy as np

from gradlab.backends.native import compiler
from gradlab.backends.native.lowering import Lowering
from gradlab.backends.native.place import Place, last_place, place_of
from gradlab.graph.executables.native.planning import FIRST
from gradlab.graph.executables.native.task_table import Table
from gradlab.spec import Spec


class Memory:
    """Arrays with places, and a Lowering for tasks on them."""

    def __init__(self):
        self.ctx = Lowering()
        self.bases = [np.zeros(0, np.uint8), np.zeros(8, np.int64)]

    def put(self, array, last=False, offset=3):
        """A place that holds the array: in row-major order or with the channels last, some elements behind the beginning of its memory."""
        number = FIRST + len(self.bases) - 2
        make = last_place if last and array.ndim == 4 else place_of
        place = make(number, Spec(array.shape, array.dtype), offset * array.dtype.itemsize)
        self.bases.append(np.zeros(array.size + 2 * offset, array.dtype))
        self.get(place)[...] = array
        return place

    def get(self, place: Place):
        """The array that lies there."""
        return place.array(self.bases[max(place.base, 0)])

    def run(self, tasks, threads=1):
        """Run tasks; the work space is full of rubbish before."""
        self.bases[0] = np.full(self.ctx.scratch_size + 64, 0x7F, np.uint8)[:]
        start = -self.bases[0].ctypes.data % 64
        self.bases[0] = self.bases[0][start:]
        names = dict.fromkeys(task.kernel for task in tasks)
        addresses = (ctypes.c_void_p * len(self.bases))(*(base.ctypes.data for base in self.bases))
        at = ctypes.addressof(addresses)
        table = Table(tasks, compiler.libraries([*names, "gradlab_run"]), lambda p: (max(p.base, 0), p.offset), at)
        assert compiler.runtime().gradlab_run(table.at, 0, len(tasks), at, threads) == -1
        # Nothing was written in front of an array or behind it.
        for base in self.bases[FIRST:]:
            assert not base[:3].any() and not base[-3:].any()
        return self


def part(task, first, count):
    """A task that goes along a batch, for some of its images."""
    along = task.along
    assert first % along.together == 0
    numbers = list(task.parameters)
    for i in along.numbers:
        numbers[i] = count
    places = tuple(p._replace(offset=p.offset + first * step) for p, step in zip(task.places, along.steps, strict=True))
    return task._replace(parameters=tuple(numbers), places=places)
