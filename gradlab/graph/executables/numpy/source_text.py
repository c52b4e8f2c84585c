"""Python text of straight lines of calls: it costs nothing but the calls, where a loop over closures costs as much again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Writing:
    """Functions that are written line by line. Objects that the lines use have a name for each object."""

    def __init__(self, title: str) -> None:
        self.names: dict[str, Any] = {"__name__": f"gradlab.graph.executables.numpy.source_text.{title}"}
        self._by_id: dict[int, str] = {}

    def name(self, found: Any) -> str:
        """The name of an object."""
        name = self._by_id.get(id(found))
        if name is None:
            name = self._by_id[id(found)] = f"o{len(self._by_id)}"
            self.names[name] = found  # which also keeps it alive, so that its number stays its own
        return name

    def call(self, function: Any, arguments: Sequence[str], params: Mapping[str, Any] | None = None) -> str:
        """A statement that calls a function; arguments: their texts."""
        given = [*arguments, *(f"{key}={self.name(value)}" for key, value in (params or {}).items())]
        return f"{self.name(function)}({', '.join(given)})"

    def function(self, arguments: Sequence[str], lines: Sequence[str]) -> Callable[..., Any]:
        """The function with these arguments and statements."""
        text = "\n".join([f"def run({', '.join(arguments)}):", *(f"    {line}" for line in lines or ["pass"])])
        exec(compile(text, self.names["__name__"], "exec"), self.names)
        made: Callable[..., Any] = self.names.pop("run")
        return made
