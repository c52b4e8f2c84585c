"""What `jit.trace` does for `check_trace`: the function and its program are run on an example and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.record import wrap
from gradlab.dtype import widest
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.jit.module import ScriptModule
from gradlab.nn.multi_output_node import joined


def check(called: Callable[..., Any], program: ScriptModule, values: list[Any], tolerance: float) -> None:
    """The function and its program on the example, from the same state. TraceError where they differ."""
    given, structure = flatten(values)
    plan = program._plan
    written = {old.id for old, _ in plan.graph.updates}
    arrays = [h.tensor._array for h in plan.held if h.value is not None and h.value.id in written]
    generators = [g for g, _, _ in plan.graph.random]
    before = [_copy(a) for a in arrays], [(g._seed, g._offset) for g in generators]

    def restore() -> None:
        for array, was in zip(arrays, before[0], strict=True):
            dispatch.backend_of(array).assign(array, was)
        for g, (seed, offset) in zip(generators, before[1], strict=True):
            g._seed, g._offset = seed, offset

    def outcome(run: Callable[..., Any]) -> list[Any]:
        fresh = [_twin(t) for t in given]
        try:
            found = _leaves(run(*unflatten(structure, fresh)))
            return [*found, *(_seen(t._array) for t in fresh), *map(_seen, arrays)]
        finally:
            restore()

    expected, got = outcome(called), outcome(program._run)
    results = len(got) - len(given) - len(arrays)
    for i, (a, b) in enumerate(zip(expected, got, strict=True)):
        worst = _difference(a, b, tolerance)
        if worst:
            what = f"result {i}" if i < results else "an argument or a buffer that it changes"
            raise TraceError(
                f"jit.trace: run again on the example, the function gives something else than its program: {what} differs{worst}. Does it "
                f"draw random numbers or read state outside of gradlab? check_trace=False accepts that"
            )


def _twin(tensor: Any) -> Any:
    """A copy that is a leaf where the tensor is one, and within a graph where it is."""
    found = wrap(_alike(tensor._array))
    found._edge = LEAF if tensor._edge is not None else None
    return found if tensor._edge in (None, LEAF) else joined("Argument", [found], [found._array], lambda g: g)[0]


def _leaves(value: Any) -> list[Any]:
    """The arrays and numbers of a result: what was a Python number may be a tensor of the program."""
    if isinstance(value, Differentiable):
        return [_seen(value._array)]
    if isinstance(value, (list, tuple, dict)):
        return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(part)]
    return [value] if isinstance(value, (bool, int, float, complex)) else []


def _difference(a: Any, b: Any, tolerance: float) -> str:
    plain = not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray))
    if np.shape(a) != np.shape(b) or (not plain and a.dtype != b.dtype):
        return f": {np.asarray(a).dtype}{list(np.shape(a))} and {np.asarray(b).dtype}{list(np.shape(b))}"
    x, y = (np.asarray(v, widest(np.asarray(v).dtype)) for v in (a, b))
    if np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    return f" by up to {np.nanmax(np.abs(x - y)):.3g}"


def _seen(array: Any) -> Any:
    return np.array(dispatch.backend_of(array).to_numpy(array))


def _alike(array: Any) -> Any:
    """A copy that lies in memory as the array does."""
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return _copy(array)
    ways = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    before = -sum(way for way in ways if way < 0)
    memory = np.empty(before + sum(way for way in ways if way > 0) + array.itemsize, np.uint8)
    made: Any = np.ndarray(array.shape, array.dtype, memory, before, array.strides)
    np.copyto(made, array)
    made.flags.writeable = array.flags.writeable
    return made


def _copy(array: Any) -> Any:
    return dispatch.backend_of(array).copy(array)
