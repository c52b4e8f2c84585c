"""What an executable is made of: calls, and what they read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.device import CPU, Device
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import Shared


class Line(NamedTuple):
    """What an executable is made of.

    calls    the rows, in order
    inputs   values whose arrays come with each run
    fixed    values whose arrays are known: state, constants, the small buffers for random states and hyper-parameters
    outputs  values that leave the program, in arrays of their own
    updates  (value of an input or of state, value that is written into its memory after all calls)
    device   where all of it lies
    lasting  positions of outputs whose arrays are mostly the same ones in each run
    shared   memory for intermediate values that other executables use as well
    last     numbers of images whose channels come last in memory; executables may have them in row-major order all the same, but for inputs
             and outputs: those that one program leaves to another are arrays of their shape, filled in the order of memory
    notes    what passes left as it is, and why, for people
    lowered  whether products may round what they multiply to bfloat16
    """

    calls: Sequence[Call]
    inputs: Sequence[Value]
    fixed: dict[Value, Any]
    outputs: Sequence[Value]
    updates: Sequence[tuple[Value, Value]]
    device: Device = CPU
    lasting: frozenset[int] = frozenset()
    shared: Shared | None = None
    last: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    lowered: bool = False
