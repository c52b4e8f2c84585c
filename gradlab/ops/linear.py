"""The row of a fully connected layer: one product with the transposed weight, and the bias."""

from __future__ import annotations

from typing import Any

from gradlab.dispatch import product
from gradlab.kernel import Gemm
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, count


def linear_rule(x: Spec, w: Spec, b: Spec | None) -> Spec:
    """Rule: x (..., n), w (m, n), b (m) or None give (..., m)."""
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
        raise ShapeError(
            f"input of shape {x.shape} and weight of shape {w.shape}: the input's last size must be the weight's last (in_features)"
        )
    if b is not None and b.shape not in ((w.shape[0],), (1,), ()):
        raise ShapeError(f"bias of shape {b.shape} does not fit a weight of shape {w.shape}: expected ({w.shape[0]},)")
    return Spec((*x.shape[:-1], w.shape[0]), x.dtype)


def linear_cpu(x: Any, w: Any, b: Any, y: Any) -> None:
    out = y
    if x.ndim != 2:
        x, out = x.reshape(count(x.shape[:-1]), x.shape[-1]), y.reshape(count(y.shape[:-1]), y.shape[-1])
    product(x, w.T, out)
    if b is not None:
        out += b


def flat(x: Any) -> Any:
    """All dimensions but the last as one."""
    *lead, last = x.shape
    return x if len(lead) == 1 else x.reshape(count(lead), last)


linear = Op("linear", linear_rule, cpu=linear_cpu, cuda=Gemm(transpose_b=True), promote="same", autocast="lower",
            grad={"x": lambda g, w, x_spec: g @ w if len(x_spec.shape) == 2 else (flat(g) @ w).reshape(x_spec.shape),
                  "w": lambda g, x: flat(g).t() @ flat(x),
                  "b": lambda g: flat(g).sum(0)})  # fmt: skip
