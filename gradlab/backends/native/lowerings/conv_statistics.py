"""What a convolution's kernel gives: its tasks, and on demand what batch norm has to know of its results."""

from __future__ import annotations

from typing import NamedTuple

from gradlab.backends.native.lowering import TaskSpec
from gradlab.backends.native.place import Place


class Made(NamedTuple):
    """The tasks of a convolution. records: of each of `units` pieces of its results `length(channels)` floats: the channels' means, the
    sums of their squared deviations from these, and the number of pixels. They lie in the call's scratch memory."""

    tasks: list[TaskSpec]
    records: Place | None = None
    units: int = 0


def length(channels: int) -> int:
    """Floats of a record."""
    return 2 * channels + 16
