"""Compiled kernels by what they depend on: generated ones (elementwise, reductions) and those of `kernels/`. Compiled on first use and kept,
for each device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gradlab.backends.cuda.driver import Driver, Function
from gradlab.backends.cuda.generate import Signature, elementwise_source
from gradlab.kernel import source_directory
from gradlab.op import Op

_INCLUDE = re.compile(r'\s*#include "([^"]+)"')


def program(include: str, *bodies: str) -> str:
    """A whole translation unit."""
    return "\n".join([f'#include "{include}"', "namespace gradlab {", *bodies, "}  // namespace gradlab", ""])


def elementwise_program(op: Op, signature: Signature) -> str:
    """The translation unit of one elementwise kernel."""
    return program("elementwise.cuh", elementwise_source(op, signature))


def file_source(file: str) -> str:
    """The text of a kernel file."""
    return (source_directory() / file).read_text(encoding="utf-8")


def inlined(source: str, seen: set[str] | None = None) -> str:
    """The source with gradlab's own headers put in place of their include lines, so that whoever caches a compiled program by its text
    notices a changed header."""
    seen = set() if seen is None else seen
    lines = []
    for line in source.splitlines():
        match = _INCLUDE.match(line)
        if match:
            if match[1] not in seen:
                seen.add(match[1])
                lines.append(inlined(file_source(match[1]), seen))
        elif line.strip() != "#pragma once":
            lines.append(line)
    return "\n".join(lines) + "\n"


class Compiler:
    """Compiles on first use and keeps what it compiled."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._kept: dict[Any, Any] = {}

    def elementwise(self, op: Op, signature: Signature) -> Function:
        """The kernel of an elementwise row for these operands."""
        name = f"gradlab::{signature.kernel}"
        return self._get(("elementwise", signature), lambda: self.driver.compile(inlined(elementwise_program(op, signature)), [name], signature.kernel)[name])  # type: ignore[no-any-return]

    def generated(self, key: Any, source: Callable[[], str], names: list[str], label: str) -> dict[str, Function]:
        """The kernels of a generated text, compiled once for each key."""
        return self._get(key, lambda: self.driver.compile(inlined(source()), names, label))  # type: ignore[no-any-return]

    def from_file(self, file: str, name: str) -> Function:
        """A kernel of `kernels/<file>`: an extern "C" name or a name expression such as `gradlab::softmax<float>`."""
        return self._get((file, name), lambda: self.driver.compile(inlined(file_source(file)), [name], file)[name])  # type: ignore[no-any-return]

    def _get(self, key: Any, make: Callable[[], Any]) -> Any:
        place = (key, self.driver.current_device())
        found = self._kept.get(place)
        if found is None:
            found = self._kept[place] = make()
        return found
