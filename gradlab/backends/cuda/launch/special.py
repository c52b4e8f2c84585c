"""Elementwise rows that work on bits: `kernels/special.cu`."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch.row_forms import floating
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work

FILE = "special.cu"


def nextafter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (y,) = outputs
    a, b = (work.contiguous(x if x.shape == y.shape else work.broadcast(x, y.shape)) for x in inputs)
    work.each(work.kernel(FILE, "nextafter", y.dtype), y.size, a, b, y)


RULES = {(FILE, "nextafter"): Rule(nextafter, floating)}
