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

from gradlab.backends.native import ready
from gradlab.backends.native.calling import DONE, NO_MEMORY, NO_ROOM, Row, callable_of
from gradlab.backends.native.general import conversions, elementwise, reductions
from gradlab.backends.native.lowering import LOWER, WORTH, Lowering, TaskSpec, Unsupported
from gradlab.backends.native.lowerings import families as families, movements
from gradlab.backends.native.lowerings.loops import cost
from gradlab.backends.native.place import ARENA, Place
from gradlab.backends.native.tables import Task, pointer_word
from gradlab.backends.native.thresholds import attached, switch_off
from gradlab.call import Call, Value
from gradlab.dispatch import remembered
from gradlab.dtype import HALF
from gradlab.named_errors import AllocationError
from gradlab.op import NEVER, Op
from gradlab.quiet import quietly
from gradlab.spec import Spec
from gradlab.strides import dense_order, inverse_order, is_row_major

FIRST = 2  # the base of the first array, behind the work space and the status
MOST = 48  # arrays of one row
KEPT = 4096  # plans
LARGE = 1 << 15  # elements: other threads of Python may run meanwhile
PATTERN, NUMBERS = (64,), 64  # of what a loop of any size is planned for; numbers that one may have (row_call.h)
ROWS = 64  # of a product that are worth packing a second matrix that is no smaller
LINE = 32  # elements of a line beyond which NumPy, which has vectors for them, is faster at these rows
BY_LINES = frozenset({"sort", "max", "min", "argmax", "argmin"})
# Rows that are not lowered as in programs.
LOWERED: dict[str, Callable[[Call, Lowering], Sequence[TaskSpec]]]
LOWERED = {
    **dict.fromkeys(reductions.KINDS, reductions.reduce), "var": reductions.var, "clone": movements.clone, "cast": conversions.cast,
}  # fmt: skip
Made = tuple[tuple[int, ...], Any, tuple[int, ...] | None]  # a result's shape in the order of memory, its dtype, and the way back


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
    """How one row runs on arrays of certain shapes.

    call  a builtin function of the inputs that there are and the results, see `calling.DONE`
    made  how each result is allocated
    """

    __slots__ = ("call", "made")

    def __init__(
        self, tasks: Sequence[TaskSpec], ctx: Lowering, places: Sequence[Place], made: list[Made], strides: Any = None, **how: int
    ) -> None:
        """strides, how: `strides` and `dense` of Row, or what else there is of a loop of any size."""
        table = (Task * len(tasks))()
        kept: list[Any] = [table]
        behind = -(-ctx.scratch_size // 64) * 64
        for line, task in zip(table, tasks):
            kernel = ready.address(task.kernel)
            if kernel is None:
                raise Unsupported
            numbers = np.array(task.parameters or (0,), np.int64)
            where = [n for p in task.places for n in _locate(p, behind)]
            spots = np.array(where or (0,), np.int64)
            kept += [numbers, spots]
            line.kernel, line.parameters, line.places = kernel, numbers.ctypes.data, spots.ctypes.data
            line.count, line.widest = len(task.places), task.widest
        aligned = max([p.dtype.itemsize for p in places], default=1)
        size = behind + sum(ctx.reserved)
        large = any(task.widest > 1 for task in tasks) or max([p.size for p in places], default=0) >= LARGE
        row = Row(ctypes.addressof(table), len(tasks), len(places), size, pointer_word(), aligned, large=large, **how)
        if strides is not None:
            row.inputs, row.strides = len(places) - len(made), strides.ctypes.data
        self.call = callable_of(row, strides, *kept)
        self.made = made


def _locate(p: Place, behind: int) -> tuple[int, int]:
    if p.base >= ARENA:
        return p.base, p.offset
    return ARENA, p.offset + (behind if p.base == -1 else 0)


plans: dict[Any, Plan | None] = {}
Known = Callable[..., int] | None


def forget() -> None:
    """Look for kernels anew: for tests that change which there are."""
    plans.clear()
    for kept in remembered:
        kept.clear()


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
    fresh = outs is None
    if outs is None:
        outs = [np.empty(shape, dtype) if back is None else np.empty(shape, dtype).transpose(back) for shape, dtype, back in plan.made]
    stopped = plan.call(*[a for a in arrays if a is not None], *outs)
    if stopped != DONE:
        if stopped == NO_ROOM or (stopped == NO_MEMORY and fresh):
            return None
        if stopped == NO_MEMORY:  # what was there may be half written
            raise AllocationError(f"{op.name}: there is no memory for what its kernel needs besides the result")
        op.quietly(*arrays, *outs, **params)  # an index lies outside: the row's own function says which
    return outs[0] if len(outs) == 1 else tuple(outs)


def copied(array: Any) -> Any:
    """A NumPy array's copy, row by row."""
    clone = attached.get("clone")
    found = None if clone is None or clone.pays == NEVER else run(clone, (array,), {})
    return array.copy() if found is None else found


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """A NumPy array in another dtype."""
    cast = attached.get("cast")
    found = None if cast is None or array.size < cast.pays else run(cast, (array,), {"dtype": dtype})
    return quietly(array.astype, dtype) if found is None else found


def remember(key: Any, op: Op, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None) -> Plan | None:
    """The plan of a call that is met for the first time, or that there is none."""
    if not _kernels_lie_ready():
        return None
    try:
        plan = planned(op, arrays, params, outs)
    except Unsupported:
        plan = None
    _keep(key, plan)
    return plan


def _kernels_lie_ready() -> bool:
    """Otherwise no row asks again."""
    if ready.library("gradlab_row") is None:
        switch_off()
        return False
    return True


def _keep(key: Any, plan: Plan | None) -> None:
    if len(plans) >= KEPT:
        plans.clear()
    plans[key] = plan


def of_rows(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Known:
    """What runs a row on arrays of these shapes and dtypes that lie row by row without gaps; None where no kernel does. Like `Plan.call`,
    it gives `calling.OTHER`, having done nothing, on arrays that lie otherwise."""
    arrays = [None if a is None else a if a.flags.c_contiguous else np.empty(a.shape, a.dtype) for a in arrays]
    if not _kernels_lie_ready():
        return None
    try:
        plan = planned(op, arrays, params, dense=(1 << sum(a is not None for a in arrays)) - 1)
    except Unsupported:
        plan = None
    _keep(("rows", *key_of(op, arrays, params)), plan)
    return None if plan is None else plan.call


def of_any_size(op: Op, dtype: Any, single: Sequence[bool] = (False,)) -> Known:
    """What runs an elementwise row without parameters on arrays of any size, row by row without gaps, and of one dtype; None where no
    kernel does. single: which inputs are numbers, 0-d arrays. All others, and the result, have to be of one shape: it is not looked at."""
    if not _kernels_lie_ready():
        return None
    arrays = [np.empty(() if one else PATTERN, dtype) for one in single]
    try:
        plan = planned(op, arrays, {}, dense=(1 << len(single)) - 1, single=sum(one << i for i, one in enumerate(single)))
    except Unsupported:
        plan = None
    _keep(("any size", *key_of(op, arrays, {})), plan)
    return None if plan is None else plan.call


def of_strides(op: Op, arrays: Sequence[Any]) -> Known:
    """What runs a row without parameters on arrays of these shapes, dtypes and strides into a result that lies row by row; None where no
    kernel does. It gives `calling.OTHER`, having done nothing, on arrays of other strides; shapes are not looked at."""
    if not _kernels_lie_ready():
        return None
    strides = np.array([n for a in arrays for n in (a.ndim, *a.strides)], np.int64)
    try:
        plan = planned(op, arrays, {}, strides=strides)
    except Unsupported:
        plan = None
    _keep(("strides", *key_of(op, arrays, {})), plan)
    return None if plan is None or plan.made[0][2] is not None else plan.call


def planned(
    op: Op, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None = None, dense: int = 0, single: int | None = None,
    strides: Any = None,
) -> Plan:
    """A plan. Unsupported where no kernel takes the call. dense: `Row.dense`; single, strides: likewise."""
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
    tasks = lowered(call, ctx)
    if single is None:
        return Plan(tasks, ctx, places, made, dense=dense, strides=strides)
    if len(tasks) != 1 or op.name in LOWERED or not ctx.generates or len(tasks[0].parameters) > NUMBERS:
        raise Unsupported
    each = max(1, int(WORTH / cost(call)))
    return Plan(tasks, ctx, places, made, dense=dense, single=single, each=each, parameters=len(tasks[0].parameters))


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
    if op.elementwise and op.name not in LOWERED:
        return elementwise.lower(call, ctx)
    if op.name in BY_LINES and call.inputs[0].spec.shape and call.inputs[0].spec.shape[call.params["dim"]] > LINE:
        raise Unsupported
    values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    if op.name in ("matmul", "linear") and math.prod(call.outputs[0].spec.shape[:-1]) < ROWS <= call.inputs[1].spec.shape[-1]:
        raise Unsupported  # packing the second matrix costs as much as the product
    if op.name in ("matmul", "linear") and call.outputs[0].spec.shape[-1:] == (1,):
        raise Unsupported  # a column: tiles of a matrix would be nearly empty, and BLAS has products of vectors
    lower = LOWERED.get(op.name) or LOWER.get(op.name)
    if lower is None or (op.name != "cast" and any(v.spec.dtype in HALF for v in values)):
        raise Unsupported
    return lower(call, ctx)


