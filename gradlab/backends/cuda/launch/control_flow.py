"""Control flow: the rows that loops, choices and calls of Python code become when they are traced (gradlab.graph.control)."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work


def _from_host(_: Any, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The host drives the body's launches."""
    params["flow"].run(inputs, outputs)


def _python(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """A user's function, which runs each time: no graph can be captured of it."""
    if work.driver.capturing():
        raise RuntimeError(f"{params['flow'].name} runs Python code in each call")
    params["flow"].run(inputs, outputs)


PYTHON = Rule(_python)
BY_ROW = {kind: Rule(_from_host) for kind in ("scan", "switch", "while_loop")}
