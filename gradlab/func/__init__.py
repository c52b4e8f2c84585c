"""Functions of functions: derivatives and batching that compose, as in `torch.func`.

    per_sample = gl.func.vmap(gl.func.grad(loss), in_dims=(None, 0, 0))

Models become functions of their parameters by `functional_call`. See `docs/transforms.md`.
"""

from __future__ import annotations

from gradlab.func.derivatives import (
    grad as grad,
    grad_and_value as grad_and_value,
    hvp as hvp,
    jvp as jvp,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from gradlab.func.jacobian import hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
from gradlab.func.mapping import vmap as vmap
from gradlab.func.module import functional_call as functional_call, stack_module_state as stack_module_state

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
