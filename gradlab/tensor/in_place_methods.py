"""In-place methods: the functional form, written back into the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import copyto, multiply, ndarray

from gradlab import ops
from gradlab.autograd import inplace
from gradlab.autograd.base import version_of
from gradlab.autograd.mode import Mode, current
from gradlab.autograd.record import bind, refresh
from gradlab.batched import Batched
from gradlab.dtype import BOOL, FLOAT32, FLOAT64, INEXACT, rank
from gradlab.named_errors import explain
from gradlab.quiet import quietly
from gradlab.strides import repeated

SMALL = 1 << 14  # elements; above it a row's kernel and its threads are faster than a ufunc
_where = bind(ops.elementwise.where)


def update(name: str, target: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """target = function(target, *args, **kwargs), in target's memory. Raises RuntimeError where the result's shape or kind does not fit."""
    try:
        mode, meta = current(), target._meta
        if meta is not None:
            refresh(target)
        array = target._array
        short = not mode.special and type(array) is ndarray and array.flags.writeable and outside_graphs(target, mode)
        if not short:
            inplace.check(name, target, mode)
        old = inplace.alias(target) if mode.recording or not short else target  # a graph of the other inputs may keep it
        result = function(old, *args, **kwargs)
        if old is not target:
            inplace.part_from(old)
        new = result._array
        if not short or result._edge is not None or type(new) is not ndarray or new.dtype != array.dtype or new.shape != array.shape:
            return assign(name, target, result)
        if new is not array:
            copyto(array, new)
        inplace.written(version_of(target))
        return target
    except Exception as error:
        explain(error, name, function, (target, *args), kwargs, depth=1)


def outside_graphs(target: Any, mode: Mode) -> bool:
    """Whether a tensor may be written, and belongs to no graph that has to learn of it other than by the note of the write."""
    meta = target._meta
    if meta is not None and (meta.inference or (mode.recording and (meta.base is not None or meta.shut))):
        return False
    return not mode.recording or target._edge is None


def ordinary(target: Any, other: Any = None) -> bool:
    """Whether what an in-place call does to `target` is a write to small, ordinary memory and nothing else: float32 or float64 of NumPy's,
    outside graphs, no more than SMALL elements; `other`, if given, an array of the same shape and type, or a Python float."""
    mode, x = current(), target._array
    if mode.special or type(x) is not ndarray or x.size >= SMALL or (x.dtype is not FLOAT32 and x.dtype is not FLOAT64):
        return False
    if not outside_graphs(target, mode):
        return False
    if target._meta is not None:
        refresh(target)
    if other is not None and type(other) is not float:
        y = getattr(other, "_array", None)
        if type(y) is not ndarray or y.dtype is not x.dtype or y.shape != x.shape or (mode.recording and other._edge is not None):
            return False
        if other._meta is not None:
            refresh(other)
    return bool(target._array.flags.writeable)


def unrepeated(target: Any) -> Any:
    """The part of an expanded tensor that has each of its memory locations once; None for any other. What writes one value may write it."""
    array = target._array
    if current().tracer is not None or type(array) is Batched or (type(array) is ndarray and array.flags.writeable):
        return None
    found = None
    for dim in repeated(array):
        found = (target if found is None else found).narrow(dim, 0, 1)
    return found


_ONE = 1  # asked for by identity: True is equal to it, and is no factor


def direct(ufunc: Any, target: Any, other: Any, alpha: Any = 1) -> bool:
    """Let a ufunc write target and alpha · other into target's memory, and note it; False where that is no plain matter."""
    if other is None or not ordinary(target, other):
        return False
    y = other if type(other) is float else other._array
    if alpha is not _ONE:
        if (type(alpha) is not float and type(alpha) is not int) or y is other:
            return False
        y = quietly(multiply, y, alpha) if alpha != 1 else y
    x = target._array
    quietly(ufunc, x, y, x)
    inplace.written(version_of(target))
    return True


def put(target: Any, value: Any) -> Any:
    """Write an array or a number over the whole of an `ordinary` target."""
    quietly(copyto, target._array, value)
    inplace.written(version_of(target))
    return target


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
