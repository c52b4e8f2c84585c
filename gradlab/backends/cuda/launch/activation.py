"""Activations behind a product or a convolution whose own kernel has none: the rows' kernels, by the rows' names.

This room knows no rows, so their expressions stand here once more; tests/test_compile_epilogues.py holds the two to one another.
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda import elementwise
from gradlab.backends.cuda.work import Work
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import Spec, same

_U = "(T(0.7978845608028654) * x * (T(1) + T(0.044715) * x * x))"
EXPRESSIONS = {
    "relu": "maximum(x, T(0))",
    "gelu": "T(0.5) * x * (T(1) + erf(x * T(0.7071067811865476)))",
    "gelu_tanh": f"T(0.5) * x * (T(1) + tanh({_U}))",
    "silu": "x * sigmoid(x)",
}


def _on_the_host(x: Any, y: Any) -> None:
    raise RuntimeError("an activation of the backend's own has no NumPy side")


_ROWS = {name: Op(name, same, cpu=_on_the_host, cuda=Elementwise(text)) for name, text in EXPRESSIONS.items()}


def activate(work: Work, name: str, z: Any, y: Any) -> None:
    """y = the activation of z, arrays of one shape."""
    if y.size:
        spec = Spec(y.shape, y.dtype)
        elementwise.plan(work, _ROWS[name], [z], [Spec(z.shape, z.dtype)], spec, {})([z], [y])
