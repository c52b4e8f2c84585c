"""What a launch rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.spec import Spec


def anything(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Takes all that the row takes."""
    return True


class Rule(NamedTuple):
    """How a row's kernels are launched: `run(work, inputs, outputs, params)` fills the given outputs (contiguous, not initialised).

    takes: whether the kernels take these operands; where not, the row runs on the host.
    """

    run: Callable[[Any, list[Any], list[Any], dict[str, Any]], None]
    takes: Callable[[Sequence[Spec | None], Sequence[Spec], dict[str, Any]], bool] = anything
