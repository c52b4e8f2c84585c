"""`check=True`: a program's first run against the function's own, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.graph.stage import Staged
from gradlab.graph.tree import flatten


def compared(title: str, program: Any, eager: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the program's run. RuntimeError where it, or the state afterwards, is not that of the eager run."""
    memory = _Memory(program.staged)
    expected = [_seen(t._array) for t in flatten(eager())[0]]
    after = memory.take()
    memory.restore()
    result = program.runner.run(args, kwargs)
    found = [_seen(t._array) for t in flatten(result)[0]]
    # An update such as Adam's turns rounding noise in a gradient that is nearly zero into a step: state is compared with its own size.
    for name, want, got, slack in [
        *((f"result {i}", a, b, 1e-5) for i, (a, b) in enumerate(zip(expected, found, strict=True))),
        *((f"state of shape {a.shape}", a, b, 0.1 * np.abs(a).max(initial=1e-3)) for a, b in zip(after, memory.take(), strict=True)),
    ]:
        if not np.allclose(want.astype(np.float64), got.astype(np.float64), rtol=1e-3, atol=slack, equal_nan=True):
            worst = np.max(np.abs(want.astype(np.float64) - got.astype(np.float64)))
            raise RuntimeError(f"compile: {title}: {name} differs from the eager run by up to {worst:.3g}")
    return result


class _Memory:
    """The state a program may write, for `check=True`."""

    def __init__(self, staged: Staged) -> None:
        graph = staged.graph
        written = {old.id for old, _ in graph.updates}
        self.arrays = [a for v, a in graph.state.items() if v.id in written]
        self.before = [_copy(a) for a in self.arrays]
        self.leaves: list[tuple[Any, Any, Any]] = []
        for leaf, _ in graph.gradients:
            self.leaves.append((leaf, leaf._grad, None if leaf._grad is None else _copy(leaf._grad._array)))
        self.generators = [(g, g.clone_state()) for g, _, _ in graph.random]

    def take(self) -> list[Any]:
        """Copies of what is there now: state, then gradients."""
        grads = [leaf._grad._array for leaf, *_ in self.leaves if leaf._grad is not None]
        return [_seen(a) for a in [*self.arrays, *grads]]

    def restore(self) -> None:
        """As it was at first."""
        for array, was in zip(self.arrays, self.before, strict=True):
            dispatch.backend_of(array).assign(array, was)
        for leaf, gradient, was in self.leaves:
            leaf._grad = gradient
            if gradient is not None:
                dispatch.backend_of(was).assign(gradient._array, was)
        for generator, was in self.generators:
            generator._seed, generator._offset = was._seed, was._offset


def _seen(array: Any) -> Any:
    """A copy in host memory."""
    return np.array(dispatch.backend_of(array).to_numpy(array))


def _copy(array: Any) -> Any:
    """A copy on the array's device."""
    return dispatch.backend_of(array).copy(array)
