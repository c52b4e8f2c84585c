"""Lowering: from calls on values to tasks on memory. Each family of rows registers how its calls become kernels."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.native import compiler, prebuilt
from gradlab.backends.native.place import RESERVED, SCRATCH, Place
from gradlab.call import Call, Value

HEADER = '#include "runtime.h"\n#include "half.h"\n'
Number = int | float
WORTH = 16384  # simple operations that are worth a thread of their own (some 5 microseconds)


class Along(NamedTuple):
    """How a task goes along a batch: done for some images after the other, its results are the same to the bit.

    images    how many there are
    together  that many have to stay together
    numbers   which parameters hold the number of images
    steps     of each place the bytes from one image to the next; 0 where all images share it
    """

    images: int
    together: int
    numbers: tuple[int, ...]
    steps: tuple[int, ...]


class TaskSpec(NamedTuple):
    """One kernel call. kernel: a function of the runtime, or the name of a generated text.

    parameters  integers, and floats as `bits`
    places      the operands, in the order of the kernel's pointers
    widest      the most threads worth using
    along       how it goes along a batch of images, if it does
    """

    kernel: str
    parameters: tuple[int, ...]
    places: tuple[Place, ...]
    widest: int = 1
    along: Along | None = None


class Unsupported(Exception):
    """A call that has no kernel in this form; it runs in NumPy."""


class Lowering:
    """What a lowering function sees: `place(x)` of an input or output, `generate(text)` for a kernel of its own.

    general: whether kernels take sizes as parameters where others would have them in their texts; so it is for rows that run by themselves.
    """

    general = False

    def __init__(self) -> None:
        self.generates = compiler.compiles()  # whether there is a compiler for texts
        self.places: dict[int, Place] = {}
        self.texts: dict[str, str] = {}  # name -> kernel text
        self.scratch_size = 0  # bytes of work space behind the values, which the tasks of a call may use
        self.reserved: list[int] = []  # sizes of work space that lives as long as the program, behind the scratch
        self.operands: Counter[Place] = Counter()  # how often a place is the second operand of a product
        self.packed: dict[Place, Place] = {}  # such operands that were packed once for several products
        self.gates: dict[Place, Place] = {}  # such operands with the panels of each of an LSTM's gates by themselves

    def place(self, value: Any) -> Place:
        """Where a value lies. Unsupported for None and numbers."""
        if not isinstance(value, Value):
            raise Unsupported
        return self.places[value.id]

    def dense(self, value: Any, dtype: Any = np.float32) -> Place:
        """The place of a value that has to be contiguous and of that dtype; Unsupported otherwise."""
        found = self.place(value)
        if not found.contiguous or found.dtype != dtype:
            raise Unsupported
        return found

    def images(self, value: Any, dtype: Any = np.float32) -> Place:
        """The place of a value that has to be of that dtype, and contiguous, in row-major order or with its channels last."""
        found = self.place(value)
        if not (found.contiguous or found.channels_last) or found.dtype != dtype:
            raise Unsupported
        return found

    def scratch(self, size: int) -> Place:
        """Work space of so many bytes, for the tasks of one call."""
        self.scratch_size = max(self.scratch_size, -(-size // 64) * 64)
        return Place(SCRATCH, 0, (size,), (1,), np.dtype(np.uint8))

    def reserve(self, size: int) -> Place:
        """Work space that keeps its values for the whole run. Its offset is known when the program is complete: see RESERVED."""
        start = sum(self.reserved)
        self.reserved.append(-(-size // 64) * 64)
        return Place(RESERVED, start, (size,), (1,), np.dtype(np.uint8))

    def generate(self, body: str) -> str:
        """The name of the kernel with that text, `@K` standing for the name; one kernel for equal texts. Without a compiler Unsupported,
        unless it is prebuilt."""
        name, text = named(body)
        if self.generates:
            self.texts[name] = text
        elif prebuilt.function(name) is None:
            raise Unsupported
        return name


def named(body: str) -> tuple[str, str]:
    """The name of the kernel with that text, and the text with it."""
    name = f"k{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return name, body.replace("@K", name)


Lower = Callable[[Call, Lowering], Sequence[TaskSpec]]
LOWER: dict[str, Lower] = {}


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Register a function as the lowering of rows of these names. It returns tasks, or raises Unsupported."""

    def register(function: Lower) -> Lower:
        for name in names:
            if name in LOWER:
                raise ValueError(f"two lowerings of row {name}")
            LOWER[name] = function
        return function

    return register


def bits(value: float) -> int:
    """A double as the integer parameter that carries it."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def widest(work: float, most: int = 64) -> int:
    """Threads that so many simple operations are worth."""
    return max(1, min(most, int(work // WORTH)))
