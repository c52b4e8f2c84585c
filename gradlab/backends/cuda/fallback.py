"""The host fallback: a row without a kernel is downloaded, computed by its CPU function and uploaded. Explicit, and counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cpu import BACKEND
from gradlab.backends.cuda.launch_context import Work
from gradlab.op import Op
from gradlab.spec import Spec

counts: dict[str, int] = {}  # how often each row ran on the host


def run(work: Work, op: Op, arrays: list[Any], outs: tuple[Spec, ...] | None, params: dict[str, Any]) -> Any:
    """The row's result, computed on the host."""
    counts[op.name] = counts.get(op.name, 0) + 1
    driver = work.driver
    host = [driver.download(work.contiguous(a)) if type(a) is driver.array_type else a for a in arrays]
    if not host:  # rows without inputs: the CPU backend takes no device
        made = [np.empty(s.shape, s.dtype) for s in outs or ()]
        op.quietly(*made, **params)
        found: Any = made[0] if len(made) == 1 else tuple(made)
    else:
        found = BACKEND.run(op, host, dict(params))
    if isinstance(found, tuple):
        return tuple(driver.upload(np.ascontiguousarray(f).reshape(f.shape)) for f in found)
    return driver.upload(np.ascontiguousarray(found).reshape(found.shape))
