"""What can be known before the program runs is computed before it runs.

Tensors with one value in all places are followed through views and elementwise rows: where such a row allows it, the value becomes a number
in its kernel. Small tensors that come of nothing but `arange` and the like become state, computed once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.dtype import immediate
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.replacing import Replacing, is_ours, specs_of
from gradlab.kernel import Elementwise
from gradlab.spec import count

LARGEST = 1 << 20  # bytes of a tensor that is kept rather than computed in each run
NUMBERS = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")  # rows that take a number as an input
DOUBTFUL = ("empty",)  # makes what nobody knows


def fold_constants(graph: Graph) -> Graph:
    """Compute calls on constants once."""
    work = Replacing(graph)
    uniform: dict[int, int | float | bool] = {}  # values that are one number in all places
    known: dict[int, Any] = {}  # values that are small constants: their arrays
    made: dict[int, Value] = {}  # those of them that no call makes any more
    for call in work.walk():
        out = call.outputs[0]
        if call.op is ops.creation.full:
            uniform[out.id] = immediate(call.params["value"], out.spec.dtype).item()
        elif call.op.view and call.inputs[0].id in uniform and is_ours(call.op):
            uniform[out.id] = uniform[call.inputs[0].id]
        elif _is_plain(call) and call.inputs and all(not isinstance(x, Value) or x.id in uniform for x in call.inputs):
            number = _value(call, uniform)
            params = {"shape": out.spec.shape, "value": number, "dtype": out.spec.dtype, "device": graph.device}
            work.keep(Call(ops.creation.full, (), params, call.outputs, call.position))
            uniform[out.id] = number
            continue
        elif _foldable(call, known, uniform):
            arrays = [_array(x, known, uniform, graph.device) for x in call.inputs]
            backend = dispatch.choose(call.op, arrays) if arrays else dispatch.backend_for(call.params["device"])
            result = backend.run(call.op, arrays, call.params)
            known.update(zip((v.id for v in call.outputs), (result,) if call.op.result is None else result))
            if not call.op.view and not any(map(work.is_end, call.outputs)):
                made.update((v.id, v) for v in call.outputs)
                continue
        work.keep(_with_numbers(call, uniform))
    found = work.finish()
    needed = {x.id for c in found.calls for x in c.inputs if isinstance(x, Value)}
    found.state.update((v, known[n]) for n, v in made.items() if n in needed)
    return found


def _is_plain(call: Call) -> bool:
    """Whether each element of the result is the same function of the inputs' elements."""
    return isinstance(call.op.cuda, Elementwise) and len(call.outputs) == 1 and not call.op.variadic and is_ours(call.op) and (
        "index" not in call.op.cuda.expression and all(x is not None for x in call.inputs)
    )  # fmt: skip


def _value(call: Call, uniform: dict[int, Any]) -> Any:
    """The one number that a call computes."""
    arrays = [np.full((), uniform[x.id], x.spec.dtype) if isinstance(x, Value) else x for x in call.inputs]
    result = dispatch._by_type[np.ndarray].run(call.op, arrays, call.params)
    return np.asarray(result).astype(call.outputs[0].spec.dtype).item()


def _foldable(call: Call, known: dict[int, Any], uniform: dict[int, Any]) -> bool:
    if call.op.dynamic or not is_ours(call.op) or call.op.name.startswith(DOUBTFUL):
        return False
    if any(count(v.spec.shape) * v.spec.dtype.itemsize > LARGEST for v in call.outputs):
        return False
    values = [x for x in call.inputs if isinstance(x, Value)]
    if not values:
        return not call.inputs and "device" in call.params
    return any(v.id in known for v in values) and all(v.id in known or v.id in uniform for v in values)


def _array(x: Any, known: dict[int, Any], uniform: dict[int, Any], device: Any) -> Any:
    if not isinstance(x, Value) or x.id in known:
        return known[x.id] if isinstance(x, Value) else x
    params = {"shape": x.spec.shape, "value": uniform[x.id], "dtype": x.spec.dtype, "device": device}
    return dispatch.backend_for(device).run(ops.creation.full, [], params)


def _with_numbers(call: Call, uniform: dict[int, Any]) -> Call:
    """The call with numbers in place of tensors of one value, if it then says the same of its output."""
    if call.op.name not in NUMBERS or not is_ours(call.op):
        return call
    others = [x for x in call.inputs if isinstance(x, Value) and x.id not in uniform]
    if not others or len(others) == len(call.inputs):
        return call
    inputs = tuple(
        uniform[x.id] if isinstance(x, Value) and x.id in uniform and x.spec.dtype == others[0].spec.dtype else x for x in call.inputs
    )
    if all(a is b for a, b in zip(inputs, call.inputs)) or specs_of(call.op, inputs, call.params)[0] != call.outputs[0].spec:
        return call
    return replace(call, inputs=inputs)
