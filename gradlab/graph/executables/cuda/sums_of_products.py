"""A product and what is added to it as one launch: the library adds to a matrix that lies elsewhere (beta = 1).

So do the gradients of a recurrent network's state, which come from the step behind and from the loss, and those of a residual stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.backends.cuda.gemm.rows import product_plus
from gradlab.dtype import FLOATING
from gradlab.graph.executables.cuda.line_rewriting import Rewriting
from gradlab.graph.ir.graph import Call, Value
from gradlab.op import Op
from gradlab.spec import Spec, count


def _plus_rule(a: Spec, b: Spec, c: Spec) -> Spec:
    """Rule: what is added to has the result's shape."""
    return c


def _plus_cpu(a: Any, b: Any, c: Any, y: Any) -> None:
    np.add(np.matmul(a, b).reshape(c.shape), c, out=y)


plus = Op("matmul_plus", _plus_rule, cpu=_plus_cpu)


def with_sums_to(line: Rewriting, small: Callable[[Call], bool]) -> None:
    """Put c + a @ b in place of a product and an addition. small: whether a product becomes part of a larger kernel anyway."""
    for at, call in enumerate(line.calls):
        if call is None or call.op is not ops.elementwise.add or not all(isinstance(x, Value) for x in call.inputs):
            continue
        for x, c in (call.inputs, call.inputs[::-1]):
            made = line.only(x)
            view = made if made is not None and made.op is ops.movement.view else None
            product = line.only(view.inputs[0]) if view is not None else made
            if product is None or product.op is not ops.linalg.matmul or small(product):
                continue
            a, b = product.inputs
            if not all(isinstance(m, Value) and len(m.spec.shape) == 2 and count(m.spec.shape) for m in (a, b)):
                continue
            out = call.outputs[0].spec
            if c.spec == x.spec == out and out.dtype in FLOATING and out.shape[-1:] == b.spec.shape[-1:]:
                line.joins("matmul", "add")
                line.put(at, Call(plus, (a, b, c), {}, call.outputs, product.position), *(m for m in (product, view) if m is not None))
                break


def launch(backend: Any, inputs: Sequence[Any], y: Any) -> tuple[Callable[[], Any], int]:
    """What computes y = a @ b + c, and in how many launches."""
    a, b, c = inputs
    shape = (a.shape[0], b.shape[1])
    if c.flags.c_contiguous:
        ready = product_plus(backend.work, a, b, c.reshape(shape), y.reshape(shape))
        if ready is not None:
            return ready, 1
    between = backend.work.empty(y.shape, y.dtype)
    inner = between.reshape(shape)
    multiply = backend.prepared(ops.linalg.matmul, [a, b], {})
    add = backend.prepared(ops.elementwise.add, [c, between], {})

    def both() -> None:
        multiply([a, b], [inner])
        add([c, between], [y])

    return both, 2
