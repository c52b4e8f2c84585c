"""Control flow: the rows that loops and choices become when they are traced (gradlab.graph.control)."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch.rule import Rule


def _from_host(_: Any, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The host drives the body's launches."""
    params["flow"].run(inputs, outputs)


BY_ROW = {kind: Rule(_from_host) for kind in ("scan", "switch", "while_loop")}
