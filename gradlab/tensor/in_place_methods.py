"""In-place methods: the functional form, written back into the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab import ops
from gradlab.autograd import inplace
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, refresh
from gradlab.dtype import BOOL, INEXACT, rank

_where = bind(ops.elementwise.where)


def update(name: str, target: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """target = function(target, *args, **kwargs), in target's memory. Raises RuntimeError where the result's shape or kind does not fit."""
    if target._meta is not None:
        refresh(target)
    inplace.check(name, target, current())
    old = inplace.alias(target)
    result = function(old, *args, **kwargs)
    inplace.part_from(old)
    return assign(name, target, result)


def assign(name: str, target: Any, result: Any) -> Any:
    """Write a checked result into `target`."""
    shape, dtype = target._array.shape, target._array.dtype
    if result._array.shape != shape:
        raise RuntimeError(
            f"{name}: the result has shape {result._array.shape}, which does not fit into this tensor of shape {shape}; "
            f"use the out-of-place form"
        )
    found = result._array.dtype
    if found != dtype:
        if rank(found) > rank(dtype) or (dtype == BOOL and found != BOOL):
            raise RuntimeError(f"{name}: a result of type {found} cannot be stored in a tensor of type {dtype}; use the out-of-place form")
        result = result.to(dtype)
    if result._edge is None and target._edge is not None and current().recording and dtype in INEXACT:
        base = target._base
        if base is None or base.numel() == target.numel():
            # Written with constants, the tensor stays in its graph, with a gradient of zero for what it was.
            result = _where(result.new_full((), False, dtype=BOOL), inplace.alias(target), result)
    return inplace.write(name, target, result)
