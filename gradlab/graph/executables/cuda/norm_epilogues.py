"""A batch norm and the ReLU behind it as one kernel. Its gradient reads the ReLU's result, as it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.backends.cuda.launch import norm as kernels
from gradlab.backends.cuda.launch_context import Work
from gradlab.graph.executables.cuda.line_rewriting import Rewriting
from gradlab.graph.ir.graph import Call
from gradlab.op import Op
from gradlab.spec import Spec


def _rule(x: Spec, weight: Spec | None, bias: Spec | None, *, eps: float) -> Any:
    """Rule: the norm's."""
    return ops.norm.batch_norm.infer(x, weight, bias, eps=eps)


def _cpu(x: Any, weight: Any, bias: Any, y: Any, mean: Any, rstd: Any, var: Any, *, eps: float) -> None:
    ops.norm.batch_norm.cpu(x, weight, bias, y, mean, rstd, var, eps=eps)
    np.maximum(y, 0, out=y)


norm_relu = Op("batch_norm_and_relu", _rule, params=("eps",), cpu=_cpu, outputs=ops.norm.batch_norm.outputs)


def with_relu(line: Rewriting, call: Call) -> None:
    """Join a ReLU with the norm that makes what it takes, and nobody else reads."""
    (x,) = call.inputs
    maker = line.only(x)
    if maker is not None and maker.op is ops.norm.batch_norm and maker.outputs[0].id == x.id and call.outputs[0].spec == x.spec:
        line.joins("batch_norm", "relu")
        made = Call(norm_relu, maker.inputs, maker.params, (call.outputs[0], *maker.outputs[1:]), maker.position)
        line.put(line.at[x.id], made, call)


def launch(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Callable[[], None]:
    """What computes both."""
    given = params | {"relu": True}
    return lambda: kernels.batch_norm(work, inputs, outputs, given)
