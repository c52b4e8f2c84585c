"""A layer's two gradients in one launch: the product that gives the weight's also sums its factor, which is the bias's.

cuBLASLt does that in the product's epilogue. Where it cannot, the product and the sum are two launches, as they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.graph.ir import Call, Value
from gradlab.op import Op
from gradlab.spec import Spec, product


def _rule(a: Spec, b: Spec) -> tuple[Spec, Spec]:
    """Rule: the product, and a number for each row of a."""
    return product(a, b), Spec((a.shape[0],), a.dtype)


def _cpu(a: Any, b: Any, y: Any, sums: Any) -> None:
    np.matmul(a, b, y)
    np.sum(a, 1, out=sums)


# No row of a family: only a device's line holds it.
product_with_sums = Op("matmul_with_sums", _rule, cpu=_cpu, outputs=("y", "sums"))


def enabled() -> bool:
    """GRADLAB_EPILOGUES=0 switches it off."""
    return os.environ.get("GRADLAB_EPILOGUES", "1") != "0"


def with_sums(calls: Sequence[Call]) -> list[Call]:
    """The calls with products t(g) @ x and later sums of g over all but its last dimension as one."""
    maker = {v.id: c for c in calls for v in c.outputs}
    sums: dict[int, tuple[int, Call]] = {}  # what is summed -> where, and the call
    for i, call in enumerate(calls):
        (x,) = call.inputs if call.op is ops.reduce.sum_ else (None,)
        if isinstance(x, Value):
            rank = len(x.spec.shape)
            if rank > 1 and tuple(call.params["dim"]) == tuple(range(rank - 1)) and not call.params["keepdim"]:
                sums.setdefault(x.id, (i, call))
    found = list(calls)
    for i, call in enumerate(calls):
        if call.op is not ops.linalg.matmul or not all(isinstance(x, Value) and len(x.spec.shape) == 2 for x in call.inputs):
            continue
        turned = maker.get(call.inputs[0].id)
        if turned is None or turned.op is not ops.movement.t:
            continue
        g = turned.inputs[0]
        viewed = maker.get(g.id)
        names = [g.id]
        if viewed is not None and viewed.op is ops.movement.view and viewed.inputs[0].spec.shape[-1:] == g.spec.shape[-1:]:
            names.append(viewed.inputs[0].id)
        at, total = next((sums[n] for n in names if n in sums), (-1, call))
        if at > i and total.outputs[0].spec == Spec((g.spec.shape[1],), g.spec.dtype):
            del sums[next(n for n in names if n in sums)]
            found[i] = Call(product_with_sums, call.inputs, {}, (*call.outputs, *total.outputs), call.position)
            found[at] = None  # type: ignore[call-overload]
    return [c for c in found if c is not None]


def launch(backend: Any, inputs: list[Any], outputs: list[Any]) -> tuple[Callable[[], Any], int]:
    """What computes `product_with_sums`, and in how many launches."""
    ready = backend.product_with_sums(*inputs, *outputs)
    if ready is not None:
        return ready, 1
    a, b = inputs
    multiply = backend.prepared(ops.linalg.matmul, [a, b], {})
    rest: dict[str, Any] = {"dim": (1,), "keepdim": False}
    add = backend.prepared(ops.reduce.sum_, [a], rest)

    def both() -> None:
        multiply([a, b], outputs[:1])
        add([a], outputs[1:])

    return both, 2
