"""Names of nodes: those of what they call, made to be Python's and different from all others of the graph."""

from __future__ import annotations

import builtins
import keyword
import re

_TAKEN = frozenset({*dir(builtins), *keyword.kwlist, "inf", "nan", "NoneType", "torch", "gradlab", "device", "self"})
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
_SUFFIX = re.compile(r"(.*)_(\d+)$")


class Names:
    """The names that are used in a graph."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.counts: dict[str, int] = {}

    def new(self, candidate: str) -> str:
        """A name like the candidate; the first one of it has no number unless Python knows it already."""
        name = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if name[0].isdigit():
            name = f"_{name}"
        if name in self.used or name in _TAKEN:
            match = _SUFFIX.match(name)
            base, number = (match[1], int(match[2])) if match else (name, 0)
            number = max(number, self.counts.get(base, 0)) + 1
            while f"{base}_{number}" in self.used:
                number += 1
            self.counts[base] = number
            name = f"{base}_{number}"
        self.used.add(name)
        return name


def snake_case(text: str) -> str:
    """A name without capitals: `MaxPool` becomes `max_pool`."""
    return _CAPITAL.sub(r"_\1", text).lower()
