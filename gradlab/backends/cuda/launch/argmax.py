"""argmax, argmin, max and min along one dimension: `kernels/arg.cu`."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch import row_forms
from gradlab.backends.cuda.launch.row_forms import HELD_ANY, Call, Sizes, policy, split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import BOOL, uint8


def find(work: Work, x: Any, largest: bool, values: Any, indices: Any, sizes: Sizes) -> None:
    """The extreme elements of a contiguous array's rows (`values` may be None) and their places."""
    dtype = uint8.dtype if x.dtype == BOOL else x.dtype  # bytes of 0 and 1
    call = Call((x,), (values, indices), extra=(int(not largest), 0))
    row_forms.run(work, "arg.cu", policy("Extreme", dtype), call, dtype, sizes, HELD_ANY, writes=False)


def extreme(largest: bool, with_values: bool) -> Rule:
    """argmax, argmin, max, min."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        x, indices = work.contiguous(inputs[0]), outputs[-1]
        if indices.size:
            find(work, x, largest, outputs[0] if with_values else None, indices, split(x.shape, params["dim"]))

    return Rule(run)


RULES = {
    ("reduce.cu", "argmax"): extreme(True, False), ("reduce.cu", "argmin"): extreme(False, False),
    ("reduce.cu", "max"): extreme(True, True), ("reduce.cu", "min"): extreme(False, True),
}  # fmt: skip
