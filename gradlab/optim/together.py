"""Updates of many parameters that a backend does together: what waits for the end of a group, what is kept for the next step, and how
backward is told of what they wrote."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradlab.autograd import position
from gradlab.autograd.base import version_of
from gradlab.autograd.node import next_sequence
from gradlab.op import Op
from gradlab.tensor import Tensor


class Queued(NamedTuple):
    """Updates by one row that a backend does together: for each the parameter, its state and the names of its buffers, and the inputs."""

    backend: Any
    row: Op
    params: dict[str, Any]
    waiting: list[tuple[Tensor, dict[str, Any], tuple[str, ...]]]
    arguments: list[list[Any]]


class Known(dict[Any, Any]):
    """What a backend prepared for an optimizer's updates. It is not copied and not saved with the optimizer."""

    def __reduce__(self) -> Any:
        return Known, ()


def note_writes(params: list[Tensor]) -> None:
    """Let backward know that parameters were changed: a graph made before can no longer use their old values."""
    sequence, (code, lasti) = next_sequence(), position.caller()
    for p in params:
        version = version_of(p)
        version.written, version.code, version.lasti, version.scope = sequence, code, lasti, None
    params.clear()
