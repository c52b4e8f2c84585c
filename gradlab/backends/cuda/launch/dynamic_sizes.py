"""Rows whose size depends on values: the kernels count first, the host reads the count and makes the outputs.

Reading the count waits for the device, here as in every library; a trace refuses these rows. `DYNAMIC` holds them by name; each returns
its outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.backends.cuda.launch import segments
from gradlab.backends.cuda.launch.prefix import run, running_count
from gradlab.backends.cuda.launch.sort import FILE, KEY64, MOST, extreme, sorted_rows, word
from gradlab.backends.cuda.launch.unique import distinct_slices
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import BOOL, FLOAT32, FLOAT64, INT64
from gradlab.spec import Spec, count


class DynamicRule(NamedTuple):
    """`run(work, inputs, params)` returns the output, or a tuple of outputs; `takes` says for which operands."""

    run: Callable[[Work, list[Any], dict[str, Any]], Any]
    takes: Callable[[Sequence[Spec | None], dict[str, Any]], bool]


def last_of(work: Work, running: Any) -> int:
    """The last of running numbers, read by the host."""
    return int(work.driver.download(running[running.size - 1 :])[0]) if running.size else 0


def nonzero(work: Work, inputs: list[Any], params: dict[str, Any]) -> Any:
    x = work.contiguous(inputs[0])
    mask = x
    if x.dtype != BOOL:
        mask = work.empty(x.shape, BOOL)
        work.each(work.kernel("layout.cu", "truth", x.dtype), x.size, x, mask)
    running = running_count(work, mask)
    found = work.empty((last_of(work, running), len(x.shape)), INT64)
    if found.size:
        sizes = struct.pack("ii8q", len(x.shape), 0, *x.shape, *[1] * (8 - len(x.shape)))
        work.each(work.kernel("layout.cu", "true_places"), x.size, mask, running, found, sizes)
    return found


def unique(work: Work, inputs: list[Any], params: dict[str, Any]) -> Any:
    if params["dim"] is not None:
        return distinct_slices(work, inputs[0], params["dim"], params["consecutive"])
    x = work.contiguous(inputs[0])
    flat = x.reshape((x.size,))
    order = None if params["consecutive"] or not x.size else sorted_rows(work, flat, 0)[1]
    first = work.empty((x.size,), BOOL)
    work.each(work.kernel(FILE, "firsts", x.dtype), x.size, flat, order, first)
    running = running_count(work, first)
    number = last_of(work, running)
    values, inverse, counts = work.empty((number,), x.dtype), work.empty(x.shape, INT64), work.empty((number,), INT64)
    starts = work.empty((number,), INT64)
    work.each(work.kernel(FILE, "write_distinct", word(x)), x.size, flat, order, running, values, inverse, starts)
    work.each(work.kernel(FILE, "lengths"), number, starts, counts, x.size)
    return values, inverse, counts


def bincount(work: Work, inputs: list[Any], params: dict[str, Any]) -> Any:
    x, weights = work.contiguous(inputs[0]), inputs[1]
    size = params["minlength"]
    if x.size:
        low, high = (int(work.driver.download(extreme(work, x, largest))[0]) for largest in (False, True))
        if low < 0:
            raise RuntimeError(f"bincount: counts numbers from 0; there is {low}")
        size = max(size, high + 1)
    if weights is None:
        counts = work.zeros((size,), KEY64)
        work.each(work.kernel(FILE, "count_numbers", x.dtype), x.size, x, counts, size)
        return counts.view(INT64)
    total = work.zeros((size,), FLOAT64)
    source = work.converted(weights, FLOAT64)
    segments.add(work, total, work.converted(x, INT64), source, 1, size)
    return work.converted(total, FLOAT32) if weights.dtype == FLOAT32 else total


def repeated(work: Work, inputs: list[Any], params: dict[str, Any]) -> Any:
    repeats = work.converted(inputs[0], INT64)
    if repeats.size and int(work.driver.download(extreme(work, repeats, False))[0]) < 0:
        raise RuntimeError("repeat_interleave: repeats are not negative")
    running = work.empty(repeats.shape, INT64)
    run(work, "prefix", (INT64, 0), (repeats, running), 1, repeats.size)
    made = work.empty((last_of(work, running),), INT64)
    work.each(work.kernel("layout.cu", "repeated"), made.size, running, made, repeats.size)
    return made


def up_to_eight(specs: Sequence[Spec | None], params: dict[str, Any]) -> bool:
    """At most eight dimensions."""
    return specs[0] is not None and len(specs[0].shape) <= 8


def countable(specs: Sequence[Spec | None], params: dict[str, Any]) -> bool:
    """Fewer numbers than the sort has places."""
    return specs[0] is not None and count(specs[0].shape) <= MOST


DYNAMIC = {
    "nonzero": DynamicRule(nonzero, up_to_eight), "unique": DynamicRule(unique, countable), "bincount": DynamicRule(bincount, countable),
    "repeated": DynamicRule(repeated, countable),
}  # fmt: skip
