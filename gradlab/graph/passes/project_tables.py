"""A linear layer behind an embedding runs over the table instead of over the rows that were looked up.

table[at] Wᵀ + b = (table Wᵀ + b)[at]: a recurrent network over characters looks up thousands of rows of a table that has 65. The same
holds backwards: what reaches the rows is first added up by row of the table, and the products are of the table's size.

Half types, whose products the CPU computes in float32 anyway: a cast of rows is one of the table, and what is added up stays float32
until the product is there, so it is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import ops
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting
from gradlab.spec import count

LEAST = 2  # rows looked up for each row of the table, from which on it pays
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

Chain = list[Call]  # from the looked-up rows to where they are used: calls that leave the last dimension alone
Sums = dict[Any, Value]  # what was added up by rows of a table, by what it was made of


def project_tables(graph: Graph) -> Graph:
    """Move products from looked-up rows to their table: of `linear`, of its input's gradient and of its weight's gradient."""
    work = Rewriting(graph)
    sums: Sums = {}
    dtypes = (*DTYPES, *HALF) if graph.device.type == "cpu" else DTYPES
    for call in graph.calls:
        if call.outputs[0].spec.dtype not in dtypes:
            continue
        if call.op is ops.linear.linear:
            new = _forward(work, call)
        elif call.op is ops.indexing.embedding_backward:
            new = _input_gradient(work, call, sums)
        elif call.op is ops.linalg.matmul:
            new = _weight_gradient(work, call, sums)
        else:
            continue
        if new is not None:
            work.replace(call, new)
    return work.finish()


def _forward(work: Rewriting, call: Call) -> list[Call] | None:
    """linear(chain(embedding(table, at)), W, b) → embedding(linear(table, W, b), chain(at))."""
    found = _looked_up(work, call.inputs[0])
    if found is None:
        return None
    lookup, chain = found
    casts, table = _as_the_rows(work, lookup.inputs[0], chain)
    product = work.call(ops.linear.linear, (table, *call.inputs[1:]), call.params, call.position)
    places = _along(work, lookup.inputs[1], chain)
    at = places[-1].outputs[0] if places else lookup.inputs[1]
    return [*casts, product, *places, work.call(lookup.op, (product.outputs[0], at), {"padding_idx": None}, call.position, call.outputs[0])]


def _input_gradient(work: Rewriting, call: Call, sums: Sums) -> list[Call] | None:
    """embedding_backward(chain(G W), at) → embedding_backward(G, chain⁻¹(at)) W."""
    gradient, at = call.inputs
    chain = _chain(work, gradient)
    product = work.maker.get(chain[0].inputs[0].id if chain else gradient.id)
    if product is None or product.op is not ops.linalg.matmul or not _pays(at, call.params["rows"]):
        return None
    if any(len(x.spec.shape) != 2 for x in product.inputs) or any(work.uses[c.outputs[0].id] != 1 for c in [product, *chain]):
        return None
    rows, weight = product.inputs
    calls, summed = _added_up(work, rows, at, _inverse(chain), call, sums)
    return [*calls, *_product(work, summed, weight, product, call.outputs[0])]


def _weight_gradient(work: Rewriting, call: Call, sums: Sums) -> list[Call] | None:
    """Gᵀ chain(embedding(table, at)) → embedding_backward(G, chain(at))ᵀ table."""
    left, right = call.inputs
    turned = work.maker.get(left.id) if isinstance(left, Value) else None
    found = _looked_up(work, right)
    if turned is None or turned.op is not ops.movement.t or len(left.spec.shape) != 2 or len(right.spec.shape) != 2 or found is None:
        return None
    lookup, chain = found
    table, at = lookup.inputs
    like = Call(ops.indexing.embedding_backward, (), {"rows": table.spec.shape[0], "padding_idx": None}, (), call.position)
    calls, summed = _added_up(work, turned.inputs[0], at, chain, like, sums)
    casts, rounded = _as_the_rows(work, table, chain)
    back = work.call(ops.movement.t, (summed,), {}, call.position)
    return [*calls, *casts, back, *_product(work, back.outputs[0], rounded, call, call.outputs[0])]


def _product(work: Rewriting, summed: Value, other: Value, call: Call, output: Value) -> list[Call]:
    """The product of what was added up with a table or a weight of its own type or a half type, as `output`."""
    casts, other = _cast(work, other, summed.spec.dtype, call)
    if output.spec.dtype == summed.spec.dtype:
        return [*casts, work.call(call.op, (summed, other), {}, call.position, output)]
    product = work.call(call.op, (summed, other), {}, call.position)
    return [*casts, product, work.call(ops.elementwise.cast, product.outputs, {"dtype": output.spec.dtype}, call.position, output)]


def _as_the_rows(work: Rewriting, table: Value, chain: Chain) -> tuple[list[Call], Value]:
    """The casts of a chain, of the table instead of its rows, and what they give."""
    calls: list[Call] = []
    for step in chain:
        if step.op is ops.elementwise.cast:
            calls.append(work.call(step.op, (table,), step.params, step.position))
            table = calls[-1].outputs[0]
    return calls, table


def _cast(work: Rewriting, value: Value, dtype: Any, like: Call) -> tuple[list[Call], Value]:
    """The cast of a value that is of another type, and its result."""
    if value.spec.dtype == dtype:
        return [], value
    call = work.call(ops.elementwise.cast, (value,), {"dtype": dtype}, like.position)
    return [call], call.outputs[0]


def _added_up(work: Rewriting, rows: Value, at: Value, chain: Chain, like: Call, sums: Sums) -> tuple[list[Call], Value]:
    """`rows` added up by row of the table: the calls that do it, none where it was done before, and its value."""
    steps = tuple((c.op.name, c.outputs[0].spec.shape[:-1], _dims(c)) for c in chain if c.op is not ops.elementwise.cast)
    key = (rows.id, at.id, steps, like.params["rows"], like.params["padding_idx"])
    if key in sums:
        return [], sums[key]
    places = _along(work, at, chain)
    casts, wide = _cast(work, rows, FLOAT32 if rows.spec.dtype in HALF else rows.spec.dtype, like)
    call = work.call(like.op, (wide, places[-1].outputs[0] if places else at), like.params, like.position)
    sums[key] = call.outputs[0]
    return [*places, *casts, call], sums[key]


def _looked_up(work: Rewriting, value: Any) -> tuple[Call, Chain] | None:
    """The embedding that a value comes from, where there are rows enough, and the calls in between."""
    if not isinstance(value, Value):
        return None
    chain = _chain(work, value)
    lookup = work.maker.get(chain[0].inputs[0].id if chain else value.id)
    if lookup is None or lookup.op is not ops.indexing.embedding or not _pays(lookup.inputs[1], lookup.inputs[0].spec.shape[0]):
        return None
    return lookup, chain


def _pays(at: Value, rows: int) -> bool:
    return rows > 0 and count(at.spec.shape) >= LEAST * rows


def _chain(work: Rewriting, value: Value) -> Chain:
    """The calls that lead to a value and only rearrange its rows."""
    chain: Chain = []
    while (call := work.maker.get(value.id)) is not None and (_keeps_rows(call) or _casts(work, call)):
        chain.insert(0, call)
        value = call.inputs[0]
    return chain


def _casts(work: Rewriting, call: Call) -> bool:
    """Whether a call casts from one floating-point type to another, where both are computed with alike."""
    if call.op is not ops.elementwise.cast or work.graph.device.type != "cpu":
        return False
    return {call.inputs[0].spec.dtype, call.outputs[0].spec.dtype} <= {*DTYPES, *HALF}


def _keeps_rows(call: Call) -> bool:
    before = call.inputs[0].spec.shape if call.inputs and isinstance(call.inputs[0], Value) else ()
    after = call.outputs[0].spec.shape
    if call.op is ops.movement.transpose:
        return len(before) > 0 and len(before) - 1 not in _dims(call) and len(_dims(call)) == 2
    return call.op is ops.movement.view and len(before) > 1 and len(after) > 1 and before[-1] == after[-1] > 0


def _inverse(chain: Chain) -> Chain:
    """The calls that undo a chain, as far as `_along` looks at them."""
    return [Call(c.op, c.outputs, c.params, tuple(c.inputs), c.position) for c in reversed(chain)]


def _dims(step: Call) -> frozenset[int]:
    """Which dimensions a step exchanges."""
    n = len(step.outputs[0].spec.shape)
    return frozenset(step.params[name] % n for name in ("dim0", "dim1") if name in step.params)


def _along(work: Rewriting, at: Value, chain: Chain) -> list[Call]:
    """The same rearrangements of the indices, which have no last dimension."""
    calls: list[Call] = []
    for step in chain:
        if step.op is ops.elementwise.cast:
            continue
        if step.op is ops.movement.transpose:
            params: dict[str, Any] = dict(zip(("dim0", "dim1"), _dims(step), strict=True))
        else:
            params = {"shape": step.outputs[0].spec.shape[:-1]}
        calls.append(work.call(step.op, (at,), params, step.position))
        at = calls[-1].outputs[0]
    return calls
