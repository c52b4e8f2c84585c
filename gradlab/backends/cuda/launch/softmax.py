"""Softmax and its like: a policy of `kernels/softmax.cu`."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch import row_forms
from gradlab.backends.cuda.launch.row_forms import Call, floating, forms_of, policy, split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work


def over_rows(name: str, logarithm: bool, masked: bool = False) -> Rule:
    """A policy of softmax.cu: inputs of one shape, one output."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        (y,) = outputs
        if y.size:
            arrays = [work.contiguous(x if x.shape == y.shape else work.broadcast(x, y.shape)) for x in inputs]
            chosen = policy(name, y.dtype)
            call = Call(arrays, outputs, extra=(int(masked), int(logarithm)))
            row_forms.run(work, "softmax.cu", chosen, call, y.dtype, split(y.shape, params["dim"]), forms_of(y.dtype))

    return Rule(run, floating)


RULES = {
    ("softmax.cu", "softmax"): over_rows("Softmax", False),
    ("softmax.cu", "masked_softmax"): over_rows("Softmax", False, masked=True),
    ("softmax.cu", "softmax_backward"): over_rows("SoftmaxBackward", False),
    ("softmax.cu", "log_softmax"): over_rows("Softmax", True),
    ("softmax.cu", "log_softmax_backward"): over_rows("SoftmaxBackward", True),
}
