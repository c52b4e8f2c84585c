"""`check=True`: a program's first run against the function's own, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.dtype import widest
from gradlab.graph.staging.stage import Staged
from gradlab.graph.staging.symbol import Symbol
from gradlab.graph.staging.tree import flatten


def compared(title: str, program: Any, eager: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the program's run. RuntimeError where it, or the state afterwards, is not that of the eager run."""
    memory = _Memory(program.staged, list(dict.fromkeys(flatten([list(args), kwargs])[0])))
    expected = [_seen(t._array) for t in flatten(eager())[0]]
    after, noise = memory.take(), memory.noise()
    memory.restore()
    result = program.replay(args, kwargs)
    found = [_seen(t._array) for t in flatten(result)[0]]
    now = memory.take()
    # An update such as Adam's turns rounding noise in a gradient that is nearly zero into a step: state is compared with its own size.
    for name, want, got, slack in [
        *((f"result {i}", a, b, 1e-5) for i, (a, b) in enumerate(zip(expected, found, strict=True))),
        *((name, want, now.get(name), 0.1 * np.abs(want).max(initial=1e-3)) for name, want in after.items()),
    ]:
        if got is None:
            raise RuntimeError(f"compile: {title}: {name} is None, but not in the eager run")
        if want.shape != got.shape or want.dtype != got.dtype:
            raise RuntimeError(f"compile: {title}: {name} is {got.dtype}{list(got.shape)}, in the eager run {want.dtype}{list(want.shape)}")
        if name in noise:
            want, got = want[~noise[name]], got[~noise[name]]
        want, got = (v.astype(widest(v.dtype)) for v in (want, got))
        if not np.allclose(want, got, rtol=1e-3, atol=slack, equal_nan=True):
            worst = np.max(np.abs(want - got))
            raise RuntimeError(f"compile: {title}: {name} differs from the eager run by up to {worst:.3g}")
    return result


class _Memory:
    """The state and the arguments that a program may write, for `check=True`."""

    def __init__(self, staged: Staged, given: list[Any]) -> None:
        graph = staged.graph
        written = {old.id for old, _ in graph.updates}
        state = {id(a) for v, a in graph.state.items() if v.id in written}
        first: dict[int, Any] = {}  # of the tensors that share an array, as x and x.data, the one that was used first
        for t, array in staged.tensors:
            if id(array) in state:
                first.setdefault(id(array), t)
        self.tensors = [(t, t._array, t._edge) for t in first.values()]
        self.tensors += [(t, t._array, t._edge) for t, v in zip(given, graph.inputs) if v.id in written]
        self.edges = [(t, t._edge) for t in given]
        self.before = [_copy(a) for _, a, _ in self.tensors]
        twins = {id(twin): i for i, twin in reversed(list(enumerate(dict.fromkeys(staged.twins))))}
        self.leaves: list[tuple[Any, Any, Any]] = []
        for leaf, _ in graph.gradients:
            place = given[twins[id(leaf)]] if id(leaf) in twins else leaf
            if type(place._array) is not Symbol:  # one that is made anew in each run is not seen
                self.leaves.append((place, place._grad, None if place._grad is None else _copy(place._grad._array)))
        self.generators = [(g, g.clone_state()) for g, _, _ in graph.random]

    def take(self) -> dict[str, Any]:
        """Copies of what is there now: state, then gradients, by what they are called in an error."""
        found = {f"state {i} of shape {t._array.shape}": _seen(t._array) for i, (t, *_) in enumerate(self.tensors)}
        grads = enumerate(leaf for leaf, *_ in self.leaves)
        return {**found, **{f"gradient {i} of shape {p._array.shape}": _seen(p._grad._array) for i, p in grads if p._grad is not None}}

    def noise(self) -> dict[str, Any]:
        """Where parameters have gradients of next to nothing, as an attention's key biases: Adam turns their rounding into whole steps."""
        grads = {id(leaf): np.abs(_seen(leaf._grad._array)) for leaf, *_ in self.leaves if leaf._grad is not None}
        least = 1e-5 * max((g.max(initial=0.0) for g in grads.values()), default=0.0)
        return {
            f"state {i} of shape {t._array.shape}": grads[id(t)] <= least
            for i, (t, *_) in enumerate(self.tensors) if id(t) in grads and grads[id(t)].shape == t._array.shape
        }  # fmt: skip

    def restore(self) -> None:
        """As it was at first."""
        for (t, array, edge), was in zip(self.tensors, self.before, strict=True):
            t._array, t._edge = array, edge
            dispatch.backend_of(array).assign(array, was)
        for t, edge in self.edges:
            t._edge = edge
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
