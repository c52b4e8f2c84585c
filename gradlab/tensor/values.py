"""A tensor's elements as Python sees them."""

from __future__ import annotations

from typing import Any

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current


def check_readable(tensor: Differentiable) -> None:
    """Raise TraceError while `gl.compile` traces a function, for what the trace has not made: a replay would go on with these values."""
    tracer = current().tracer
    if tracer is not None:
        refuse = getattr(tracer, "foreign", None)
        if refuse is not None:
            refuse(tensor)


def values_of(tensor: Differentiable) -> Any:
    """The elements as a NumPy array, which shares the memory of a CPU tensor. Raises as `check_readable`."""
    check_readable(tensor)
    return dispatch.backend_of(tensor._array).to_numpy(tensor._array)
