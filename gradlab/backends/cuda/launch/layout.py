"""Triangles of matrices; masks."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch.prefix import running_count
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import WORD_TYPES, Work

FILE = "layout.cu"


def triangle(lower: bool) -> Rule:
    """tril, triu."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        x, (y,) = work.contiguous(inputs[0]), outputs
        if y.size:
            function = work.kernel(FILE, "triangle", WORD_TYPES[x.dtype.itemsize])
            work.each(function, y.size, x, y, params["diagonal"], int(lower), x.shape[-2], x.shape[-1])

    return Rule(run)


def masked_scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, mask, source), (y,) = (work.contiguous(a) for a in inputs), outputs
    if not y.size:
        return
    running = running_count(work, mask)
    site = work.faults.count("masked_scatter", source.shape)
    function = work.kernel(FILE, "masked_scatter", WORD_TYPES[x.dtype.itemsize])
    work.each(function, y.size, x, mask, running, source, y, work.faults.record, site, source.size)
    work.faults.check()


def masked_gather(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, mask), (y,) = (work.contiguous(a) for a in inputs), outputs
    if not y.size:
        return
    work.driver.fill_zero(y)
    function = work.kernel(FILE, "masked_gather", WORD_TYPES[x.dtype.itemsize])
    work.each(function, x.size, x, mask, running_count(work, mask), y, y.size)


BY_ROW = {"tril": triangle(True), "triu": triangle(False)}
RULES = {("index.cu", "masked_scatter"): Rule(masked_scatter), ("index.cu", "masked_gather"): Rule(masked_gather)}
