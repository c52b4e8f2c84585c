"""A call of a row on numbered values, as plain data: what graphs are made of, and what is lowered to kernels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlab import call_site
from gradlab.op import Op
from gradlab.spec import Spec


@dataclass(frozen=True, slots=True)
class Value:
    """One array of the program: an input, a state, or the result of a call."""

    id: int
    spec: Spec

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(slots=True)
class Call:
    """One row applied to values, Python numbers and None."""

    op: Op
    inputs: tuple[Any, ...]
    params: dict[str, Any]
    outputs: tuple[Value, ...]
    position: Any = None  # (code, instruction, module scope) of the user's call
    again: bool = False  # whether it computes something a second time, so that it need not be kept: it stays behind the calls before it

    def __repr__(self) -> str:
        return self.text()

    def text(self, last: Collection[int] = ()) -> str:
        """The call in words. last: the numbers of values whose channels come last in memory, which it says."""
        arguments = [repr(x) for x in self.inputs] + [f"{k}={v!r}" for k, v in self.params.items()]
        results = (f"%{v.id}: {v.spec.dtype.name}{list(v.spec.shape)}{' channels last' if v.id in last else ''}" for v in self.outputs)
        return f"{', '.join(results)} = {self.op.name}({', '.join(arguments)})"

    def source(self) -> str:
        """The user's line that made the call, as "file.py:12: text"; "" where it is not known."""
        found = call_site.locate(*self.position) if self.position is not None else None
        return "" if found is None else f"{Path(found.file).name}:{found.line}: {found.text}".removesuffix(": ")
