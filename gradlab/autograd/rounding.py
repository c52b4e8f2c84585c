"""Half types in a backward: a gradient formula of several steps runs in float32 and is rounded once; so is a sum of several gradients."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FunctionType
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import FLOAT32, HALF
from gradlab.op import Op

# Of what a formula calls and reads, that which rounds nothing.
_NAMES = """
    reshape flip transpose permute unsqueeze squeeze expand masked_fill where zeros_like new_zeros logical_not isnan sign trunc floor
    index_select gather tril triu narrow contiguous to shape dtype mT T ndim spread at_indices inverted flat pi inf count len tuple range
"""
EXACT = frozenset(_NAMES.split())


def roundings_of(op: Op) -> int:
    """How many steps of a row's gradient round their results, at most. Counted when it is first asked for."""
    if op.roundings is None:
        op.roundings = max((roundings(step.formula) for step in op.steps), default=0)
    return op.roundings


class Sum:
    """The gradients of one half tensor that have arrived so far: two are added as they are, more in float32, and rounded once."""

    __slots__ = ("dtype", "parts")

    def __init__(self, first: Any, second: Any) -> None:
        self.dtype, self.parts = first._array.dtype, [first, second]

    def __add__(self, more: Any) -> Sum:
        """With another gradient."""
        parts = [widened(x) for x in (*self.parts, more)]
        self.parts = [sum(parts[1:], parts[0])]
        return self

    def total(self) -> Any:
        """All of them, in their type."""
        return self.parts[0].to(self.dtype) if len(self.parts) == 1 else self.parts[0] + self.parts[1]


def widened(value: Any) -> Any:
    """What a formula that runs in float32 gets for a value: half tensors as float32."""
    if isinstance(value, Differentiable):
        return value.to(FLOAT32) if value._array.dtype in HALF else value  # type: ignore[attr-defined]
    return tuple(map(widened, value)) if type(value) is tuple else value


def roundings(formula: Callable[..., Any]) -> int:
    """How many results of a formula's steps are rounded, at most: operators, methods and rows, each once; two for any other function."""
    found = 0
    known = formula.__globals__
    for step in dis.get_instructions(formula):
        name = step.argval
        if step.opname == "BINARY_OP" or (step.opname in ("LOAD_METHOD", "LOAD_ATTR") and name not in EXACT):
            found += 1
        elif step.opname in ("MAKE_FUNCTION", "LOAD_DEREF"):
            found += 2
        elif step.opname == "LOAD_GLOBAL" and name not in EXACT and isinstance(value := known.get(name), (Op, FunctionType)):
            found += 1 if isinstance(value, Op) else 2
    return found
