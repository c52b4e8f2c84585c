"""Values written into planes at the indices of maxima: the gradient of max pooling, and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.indexing import word
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOATING
from gradlab.spec import Spec, count

INT32 = np.dtype(np.int32)


def _sizes(source: Any, y: Any) -> tuple[int, int]:
    """Elements of a plane: of the source, of the result."""
    return count(source.shape[2:]), count(y.shape[2:])


def max_unpool(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """Where an index repeats the last one wins."""
    _last_ones(work, "max_unpool", inputs, outputs)


def _last_ones(work: Work, name: str, inputs: list[Any], outputs: list[Any]) -> None:
    source, indices = map(work.contiguous, inputs)
    (y,) = outputs
    if not y.size:
        return
    sizes = _sizes(source, y)
    head = work.zeros((y.size,), INT32)
    site, record = work.faults.plane(name, sizes[1]), work.faults.record
    work.each(work.kernel("planes.cu", "last_outputs"), source.size, indices, head, record, site, *sizes)
    work.each(work.kernel("planes.cu", "take_last", word(y)), y.size, source, head, y, *sizes)
    work.faults.check()


def max_pool_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """What has one index is added by ascending places; where windows do not overlap no index repeats."""
    if not params["overlap"]:
        _last_ones(work, "max_pool_backward", inputs, outputs)
        return
    source, indices = map(work.contiguous, inputs)
    (y,) = outputs
    if not y.size:
        return
    sizes = _sizes(source, y)
    head, following = work.zeros((y.size,), INT32), work.empty((max(source.size, 1),), INT32)
    site, record = work.faults.plane("max_pool_backward", sizes[1]), work.faults.record
    work.each(work.kernel("planes.cu", "link_outputs"), source.size, indices, head, following, record, site, *sizes)
    work.each(work.kernel("planes.cu", "add_linked", y.dtype), y.size, source, head, following, y, *sizes)
    work.faults.check()


def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Planes counted in 32 bits; sums of floating point."""
    first = specs[0]
    assert first is not None
    small = max(count(first.shape[2:]), count(outs[0].shape[2:])) < 2**31
    return small and (outs[0].dtype in FLOATING or not params.get("overlap", False))


RULES = {("pool.cu", "max_pool_backward"): Rule(max_pool_backward, takes), ("pool.cu", "max_unpool"): Rule(max_unpool, takes)}
