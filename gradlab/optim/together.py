"""Updates of many parameters that a backend does together: what waits for the end of a group, and what is kept for the next step."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    """What a backend prepared for an optimizer's updates."""
