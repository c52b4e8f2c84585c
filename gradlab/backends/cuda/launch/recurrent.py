"""One time step of recurrent units: one launch between the matrix products."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch.row_forms import floating
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work

FILE = "recurrent.cu"


def step(name: str) -> Rule:
    """A kernel with one thread for each number of the state, which is the shape of the smallest output."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        state, gates = min(outputs, key=lambda y: y.size), max(outputs, key=lambda y: y.size)
        if state.size:
            index = "long long" if gates.size > 2**31 - 1 else "unsigned int"
            function = work.kernel(FILE, name, state.dtype, index)
            work.each(function, state.size, *map(work.contiguous, inputs), *outputs, state.shape[-1])

    return Rule(run, floating)


RULES = {(FILE, name): step(name) for name in ("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward")}
