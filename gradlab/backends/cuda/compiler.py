"""Compiled kernels by what they depend on: generated ones (elementwise, reductions) and those of `kernels/`. Compiled on first use and
kept,
for each device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gradlab.backends.cuda.driver import Driver, Function
from gradlab.backends.cuda.generate import Signature, elementwise_source
from gradlab.dtype import FLOATING
from gradlab.kernel import Elementwise, source_folders
from gradlab.op import Op
from gradlab.spec import Spec

_INCLUDE = re.compile(r'\s*#include "([^"]+)"')


def program(include: str, *bodies: str) -> str:
    """A whole translation unit."""
    return "\n".join([f'#include "{include}"', "namespace gradlab {", *bodies, "}  // namespace gradlab", ""])


def elementwise_program(op: Op, signature: Signature) -> str:
    """The translation unit of one elementwise kernel."""
    return program("elementwise.cuh", elementwise_source(op, signature))


def file_source(file: str) -> str:
    """The text of a kernel file, or of a header that all devices share."""
    return next(path for folder in source_folders("cuda") if (path := folder / file).exists()).read_text(encoding="utf-8")


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
        self.rows: Iterable[Op] = ()  # rows whose kernels are compiled together with those of a like one: fewer, larger programs

    def elementwise(self, op: Op, signature: Signature) -> Function:
        """The kernel of an elementwise row for these operands."""
        name = f"gradlab::{signature.kernel}"
        key = ("elementwise", signature)
        device = self.driver.current_device()
        if self.rows and (key, device) not in self._kept:
            self._compile_alike(op, signature, device)

        def compiled() -> Function:
            return self.driver.compile(inlined(elementwise_program(op, signature)), [name], signature.kernel)[name]

        return self._get(key, compiled)

    def _compile_alike(self, op: Op, signature: Signature, device: int) -> None:
        """The kernels of all rows with as many inputs, for the same operands, in one program. Rows with parameters are left out."""
        members: list[tuple[Op, Signature]] = []
        for row in self.rows:
            if isinstance(row.cuda, Elementwise) and not row.params and len(row.inputs) == len(op.inputs) and signature.operands:
                operands = tuple(o._replace(name=name) for o, name in zip(signature.operands, row.inputs))
                specs = [Spec((1,), o.dtype) for o in operands]
                if row.promote == "float" and any(s.dtype not in FLOATING for s in specs):
                    continue
                try:
                    out = row.infer(*specs).dtype
                except TypeError:
                    continue
                if out == signature.out:
                    members.append((row, signature._replace(row=row.name, operands=operands, params=())))
        if (op, signature) not in members:
            return
        source = program("elementwise.cuh", *(elementwise_source(row, s) for row, s in members))
        names = [f"gradlab::{s.kernel}" for _, s in members]
        try:
            found = self.driver.compile(inlined(source), names, f"rows like {signature.kernel}")
        except RuntimeError:
            return  # one of them does not take these operands: each by itself
        for (_, s), name in zip(members, names):
            self._kept[("elementwise", s), device] = found[name]

    def generated(self, key: Any, source: Callable[[], str], names: list[str], label: str) -> dict[str, Function]:
        """The kernels of a generated text, compiled once for each key."""
        return self._get(key, lambda: self.driver.compile(inlined(source()), names, label))

    def from_file(self, file: str, name: str) -> Function:
        """A kernel of `kernels/cuda/<file>`: an extern "C" name or a name expression such as `gradlab::softmax<float>`."""
        return self._get((file, name), lambda: self.driver.compile(inlined(file_source(file)), [name], file)[name])

    def _get(self, key: Any, make: Callable[[], Any]) -> Any:
        place = (key, self.driver.current_device())
        found = self._kept.get(place)
        if found is None:
            found = self._kept[place] = make()
        return found
