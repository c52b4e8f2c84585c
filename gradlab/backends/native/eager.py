"""Rows that run by themselves, as machine code: a plan for each row, its operands' shapes, strides and dtypes, and one call that runs it.

Above are the fast paths of `autograd/` and the CPU backend, which come here with what is large enough (`thresholds.py`); below, the same
lowerings and kernels that compiled programs use. `run` gives None where NumPy is to compute.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.native import compiler, ready
from gradlab.backends.native.general import elementwise, reductions
from gradlab.backends.native.lowering import LOWER, Lowering, TaskSpec, Unsupported
from gradlab.backends.native.lowerings import families as families
from gradlab.backends.native.place import ARENA, Place
from gradlab.backends.native.tables import Task, pointer_word
from gradlab.backends.native.thresholds import switch_off
from gradlab.backends.threads import threads
from gradlab.call import Call, Value
from gradlab.dtype import HALF
from gradlab.op import Op
from gradlab.spec import Spec
from gradlab.strides import dense_order, inverse_order, is_row_major

FIRST = 2  # the base of the first array, behind the work space and the status
MOST = 48  # arrays of one row
KEPT = 4096  # plans
ROWS = 64  # of a product that are worth packing a second matrix that is no smaller
LOWERED: dict[str, Callable[[Call, Lowering], Sequence[TaskSpec]]] = dict.fromkeys(reductions.KINDS, reductions.reduce)
Made = tuple[tuple[int, ...], Any, tuple[int, ...] | None]  # a result's shape in the order of memory, its dtype, and the way back


class _Row(ctypes.Structure):
    """`Row` of thread_pool.cpp."""

    _fields_ = (
        ("tasks", ctypes.c_void_p), ("count", ctypes.c_int64), ("arrays", ctypes.c_int64), ("scratch", ctypes.c_int64),
        ("word", ctypes.c_int64), ("aligned", ctypes.c_int64),
    )  # fmt: skip


class GeneralLowering(Lowering):
    """Lowering for kernels that lie ready: no text is compiled. texts: where given, they are collected instead."""

    general = True

    def __init__(self, collecting: bool = False) -> None:
        super().__init__()
        self.collecting = collecting
        self.bodies: list[str] = []

    def generate(self, body: str) -> str:
        if self.collecting:
            self.bodies.append(body)
        return super().generate(body)


class Plan:
    """How one row runs on arrays of certain shapes."""

    __slots__ = ("_kept", "at", "made", "slots")

    def __init__(self, tasks: Sequence[TaskSpec], ctx: Lowering, places: Sequence[Place], made: list[Made]) -> None:
        table = (Task * len(tasks))()
        kept: list[Any] = [table]
        behind = -(-ctx.scratch_size // 64) * 64
        for row, task in zip(table, tasks):
            kernel = ready.address(task.kernel)
            if kernel is None:
                raise Unsupported
            numbers = np.array(task.parameters or (0,), np.int64)
            where = [n for p in task.places for n in _locate(p, behind)]
            spots = np.array(where or (0,), np.int64)
            kept += [numbers, spots]
            row.kernel, row.parameters, row.places = kernel, numbers.ctypes.data, spots.ctypes.data
            row.count, row.widest = len(task.places), task.widest
        aligned = max([p.dtype.itemsize for p in places], default=1)
        size = behind + sum(ctx.reserved)
        row = _Row(ctypes.addressof(table), len(tasks), len(places), size, pointer_word(), aligned)
        self._kept = (*kept, row)
        self.at = ctypes.addressof(row)
        self.made = made
        self.slots = ctypes.c_void_p * max(len(places), 1)


def _locate(p: Place, behind: int) -> tuple[int, int]:
    if p.base >= ARENA:
        return p.base, p.offset
    return ARENA, p.offset + (behind if p.base == -1 else 0)


plans: dict[Any, Plan | None] = {}
_run: Callable[[int, Any, int], int] | None = None


def key_of(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
    """What a plan depends on."""
    found: list[Any] = [op]
    for a in arrays:
        if a is None:
            found.append(None)
        else:
            found += a.shape, a.strides, a.dtype
    return (*found, *params.items()) if params else tuple(found)


def run(op: Op, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None = None) -> Any:
    """The results of a row on NumPy arrays (or None), the inputs promoted already: an array, or a tuple of several. outs: where they are to
    be written, row by row; an update's may be inputs. None, and nothing is done, where no kernel takes this call."""
    key = key_of(op, arrays, params)
    try:
        plan = plans[key] if outs is None else plans[key, 0]
    except KeyError:
        plan = remember(key if outs is None else (key, 0), op, arrays, params, outs)
    except TypeError:  # a parameter that cannot be part of a key
        return None
    if plan is None:
        return None
    if outs is None:
        outs = [np.empty(shape, dtype) if back is None else np.empty(shape, dtype).transpose(back) for shape, dtype, back in plan.made]
    slots = plan.slots(*[id(a) for a in arrays if a is not None], *map(id, outs))
    assert _run is not None
    stopped = _run(plan.at, slots, threads())
    if stopped != -1:
        if stopped == -2:
            return None
        op.quietly(*arrays, *outs, **params)  # an index lies outside: the row's own function says which
    return outs[0] if len(outs) == 1 else tuple(outs)


def remember(key: Any, op: Op, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None) -> Plan | None:
    """The plan of a call that is met for the first time, or that there is none."""
    global _run
    if _run is None:
        library = ready.library("gradlab_row")
        if library is None:
            switch_off()
            return None
        _run = compiler.typed(library).gradlab_row
    try:
        plan = planned(op, arrays, params, outs)
    except Unsupported:
        plan = None
    if len(plans) >= KEPT:
        plans.clear()
    plans[key] = plan
    return plan


def planned(op: Op, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None = None) -> Plan:
    """A plan. Unsupported where no kernel takes the call."""
    specs = [None if a is None else Spec(a.shape, a.dtype) for a in arrays]
    found = op.specs(*specs, **params)
    if len(arrays) + len(found) > MOST or any(s.dtype.isnative is False for s in (*found, *(s for s in specs if s is not None))):
        raise Unsupported
    places, inputs = list[Place](), list[Any]()
    ctx = GeneralLowering()

    def take(spec: Spec, strides: Sequence[int]) -> Value:
        """The value of the next array."""
        size = spec.dtype.itemsize
        if any(s % size for s in strides):
            raise Unsupported
        value = Value(len(places), spec)
        places.append(Place(FIRST + len(places), 0, tuple(spec.shape), tuple(s // size for s in strides), spec.dtype))
        ctx.places[value.id] = places[-1]
        return value

    for a, spec in zip(arrays, specs):
        inputs.append(None if spec is None else take(spec, a.strides))
    made = [_laid(op, arrays, spec, params) for spec in found] if outs is None else []
    results = []
    for i, spec in enumerate(found):
        if outs is not None:
            if outs[i].shape != spec.shape or outs[i].dtype != spec.dtype or not outs[i].flags.c_contiguous:
                raise Unsupported
            results.append(take(spec, outs[i].strides))
            continue
        shape, dtype, back = made[i]
        results.append(take(spec, np.empty(shape, dtype).transpose(back).strides if back else np.empty(shape, dtype).strides))
    call = Call(op, tuple(inputs), params, tuple(results))
    return Plan(lowered(call, ctx), ctx, places, made)


def _laid(op: Op, arrays: Sequence[Any], spec: Spec, params: dict[str, Any]) -> Made:
    """How a result is to lie."""
    if op.lies is None or all(a is None or a.flags.c_contiguous for a in arrays):
        return spec.shape, spec.dtype, None
    operands = tuple([None if a is None else (a.shape, a.strides) for a in arrays])
    strides = op.lies(operands, spec.shape, spec.dtype.itemsize, params)
    if is_row_major(spec.shape, strides, spec.dtype.itemsize):
        return spec.shape, spec.dtype, None
    order = dense_order(spec.shape, strides, spec.dtype.itemsize)
    if order is None:
        raise Unsupported
    return tuple([spec.shape[d] for d in order]), spec.dtype, inverse_order(order)


def lowered(call: Call, ctx: Lowering) -> Sequence[TaskSpec]:
    """The tasks of a call, by kernels that take sizes as parameters where there are such."""
    op = call.op
    if op.elementwise:
        return elementwise.lower(call, ctx)
    values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    if op.name in ("matmul", "linear") and math.prod(call.outputs[0].spec.shape[:-1]) < ROWS <= call.inputs[1].spec.shape[-1]:
        raise Unsupported  # packing the second matrix costs as much as the product
    lower = LOWERED.get(op.name) or LOWER.get(op.name)
    if lower is None or any(v.spec.dtype in HALF for v in values):
        raise Unsupported
    return lower(call, ctx)


