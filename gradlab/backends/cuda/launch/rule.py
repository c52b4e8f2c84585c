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
    prepare: where given, `prepare(work, arrays, specs of the outputs)` makes the plan for operands like these, which is quicker than `run`:
    it takes the inputs, and perhaps the arrays to write to, and returns the output. None from it: `run` does it.
    repeats: what `run` launches depends on shapes, strides, dtypes, parameters and the alignment of addresses alone, never on other values
    or on state of its own, so that its launches may be repeated without it (`replay.py`).
    chooses: that it depends on what users choose about products as well (`replay.choice`).
    """

    run: Callable[[Any, list[Any], list[Any], dict[str, Any]], None]
    takes: Callable[[Sequence[Spec | None], Sequence[Spec], dict[str, Any]], bool] = anything
    prepare: Callable[[Any, list[Any], Sequence[Spec]], Callable[..., Any] | None] | None = None
    repeats: bool = False
    chooses: bool = False
