"""What computes all steps of a layer of recurrent units on a GPU, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.backends.cuda.launch.recurrent import form_of, steps_backward, steps_forward
from gradlab.backends.cuda.launch_context import Work
from gradlab.graph.passes.step_rows import OWN as OWN, ROWS, arranged
from gradlab.op import Op


def launch(work: Work, op: Op, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Callable[[], None]:
    """What computes one of `OWN`."""
    unit = params["unit"]
    forward = op is ROWS[unit][0]
    given = {} if forward else arranged(unit, inputs)
    weight, (batch, units) = (inputs[2], inputs[3].shape) if forward else (given["weight"][0], inputs[0].shape)
    form = form_of(work.driver.capability(work.driver.current_device()), unit, weight.dtype, batch, units)
    assert form is not None  # as when the steps were joined
    if forward:
        return lambda: steps_forward(work, form, inputs, outputs, params["backwards"])
    return lambda: steps_backward(work, form, given, outputs, params["backwards"], params["slope"])
