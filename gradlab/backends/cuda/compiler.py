"""Compiled kernels by what they depend on: generated ones (elementwise, reductions) and those of `kernels/`."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.driver import Driver, Function
from gradlab.backends.cuda.generate import Signature, elementwise_source
from gradlab.kernel import source_directory
from gradlab.op import Op


def program(include: str, *bodies: str) -> str:
    """A whole translation unit."""
    return "\n".join([f'#include "{include}"', "namespace gradlab {", *bodies, "}  // namespace gradlab", ""])


class Compiler:
    """Compiles on first use and keeps what it compiled."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._elementwise: dict[Signature, Function] = {}
        self._generated: dict[Any, dict[str, Function]] = {}
        self._files: dict[tuple[str, str], Function] = {}

    def elementwise(self, op: Op, signature: Signature) -> Function:
        """The kernel of an elementwise row for these operands."""
        found = self._elementwise.get(signature)
        if found is None:
            source = program("elementwise.cuh", elementwise_source(op, signature))
            found = self.driver.compile(source, [signature.kernel], signature.kernel)[signature.kernel]
            self._elementwise[signature] = found
        return found

    def generated(self, key: Any, source: str, names: list[str], label: str) -> dict[str, Function]:
        """The kernels of a generated text, compiled once for each key."""
        found = self._generated.get(key)
        if found is None:
            found = self._generated[key] = self.driver.compile(source, names, label)
        return found

    def from_file(self, file: str, name: str) -> Function:
        """A kernel of `kernels/<file>`: an extern "C" name or a name expression such as `gradlab::softmax<float>`."""
        found = self._files.get((file, name))
        if found is None:
            source = (source_directory() / file).read_text(encoding="utf-8")
            found = self._files[file, name] = self.driver.compile(source, [name], file)[name]
        return found
