"""Activations behind a product or a convolution whose own kernel has none: the rows' kernels, by the rows' names.

This room knows no rows, so their expressions stand here once more; tests/test_compile_epilogues.py holds the two to one another.
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda import elementwise
from gradlab.backends.cuda.launch_context import Work
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import Spec, same

EXPRESSIONS = {
    "relu": "maximum(x, T(0))",
    "gelu": "maximum(x, T(-1000.0)) * (T(0.5) * erfc(x * T(-0.7071067811865476)))",
    "gelu_tanh": "maximum(x, T(-1000.0)) * sigmoid(x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x))",
    "silu": "maximum(x, T(-1000.0)) * sigmoid(x)",
}


def _on_the_host(x: Any, y: Any) -> None:
    raise RuntimeError("an activation of the backend's own has no NumPy side")


_ROWS = {name: Op(name, same, cpu=_on_the_host, cuda=Elementwise(text)) for name, text in EXPRESSIONS.items()}


def activate(work: Work, name: str, z: Any, y: Any) -> None:
    """y = the activation of z, arrays of one shape."""
    if y.size:
        spec = Spec(y.shape, y.dtype)
        elementwise.plan(work, _ROWS[name], [z], [Spec(z.shape, z.dtype)], spec, {})([z], [y])
