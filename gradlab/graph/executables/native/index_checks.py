"""Indices that come with the arguments are checked before anything is written, so that a refused run leaves everything as it was.

Then results may lend their memory to intermediate values until they are made themselves (`planning.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradlab.backends.native.lowering import LOWER, Lowering, TaskSpec
from gradlab.backends.native.place import STATUS, Place
from gradlab.dtype import INT64
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value

# Rows that check values while they run (indices).
MAY_FAIL = frozenset(
    [
        "index", "gather", "scatter", "scatter_add", "scatter_reduce", "embedding", "index_select", "cross_entropy", "nll", "take",
        "index_put", "max_pool_backward", "bernoulli", "scan", "switch", "while_loop",
    ]
)  # fmt: skip
LIMIT = {"embedding": 0, "cross_entropy": 1}  # of the first operand, the dimension that the second one's indices count
NONE = -(1 << 62)  # an index that is not ignored


def may_fail(call: Call) -> bool:
    """Whether a call checks values while it runs; state must not be written before it."""
    return call.op.name in MAY_FAIL


def refusing(unit: Unit) -> Call | None:
    """The call of several in one kernel that may refuse an index."""
    return next((c for c in unit.calls if c.op.name in MAY_FAIL), None)


def is_early(call: Call, relative: Mapping[int, Place], given: set[int]) -> bool:
    """Whether all that a call checks is known before the first call; given: the values of the program's inputs."""
    if call.op.name not in LIMIT or not isinstance(call.inputs[1], Value):
        return False
    at = relative[call.inputs[1].id]
    return at.base in given and at.contiguous and at.dtype == INT64


def settled(units: Sequence[Unit], relative: Mapping[int, Place], given: set[int]) -> tuple[int, list[Call]]:
    """The first unit behind which nothing can fail, once the calls that are given too have been checked before all of them."""
    first, early = 0, []
    for i, unit in enumerate(units):
        for call in unit.calls:
            if is_early(call, relative, given):
                early.append(call)
            elif call.op.name in MAY_FAIL or not (unit.loop or unit.joined or call.op.name in LOWER):
                first = i + 1
    return first, early


def check(call: Call, ctx: Lowering) -> TaskSpec:
    """The task that checks a call's indices."""
    at = ctx.place(call.inputs[1])
    limit = call.inputs[0].spec.shape[LIMIT[call.op.name]]
    parameters = (at.size, limit, call.params.get("ignore_index", NONE))
    return TaskSpec("gradlab_check_indices", parameters, (at, Place(STATUS, 0, (), (), INT64)))
