"""`Session`: runs a graph, and keeps the values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import wrap
from gradlab.device import CPU, Device
from gradlab.dtype import FLOATING
from gradlab.graph.staging.symbol import Symbol
from gradlab.session.execution import Execution
from gradlab.session.graph import Graph, _session_graph, get_default_graph
from gradlab.session.nodes import FeedError, FetchError, Operation, State
from gradlab.session.pruning import Wanted
from gradlab.tensor import Tensor
from gradlab.tensor.convert import moved


class Session:
    """Runs parts of a graph and keeps its variables' values, as in TensorFlow 1. Use it in a `with` statement, or `close()` it.

    graph: the default graph if not given. device: where everything runs and the variables lie, "cpu" or "cuda"; by default where the
    graph's tensors from outside are, or the CPU.
    """

    def __init__(self, graph: Graph | None = None, device: Any = None) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"Session: a gl.Graph, not {type(graph).__name__}")
        self.graph = get_default_graph() if graph is None else graph
        self._asked = None if device is None else Device(device)
        self._values: dict[State, Any] = {}
        self._executions: dict[Any, tuple[Execution, Any, list[Any]]] = {}
        self._tokens: list[Any] = []
        self._closed = False

    @property
    def device(self) -> Device:
        """Where this session runs."""
        found = self.graph.tracer.device if self._asked is None else self._asked
        if found.type != "cpu" and found.index is None:
            backend: Any = dispatch.backend_for(found)
            found = Device(found.type, backend.driver.current_device())
        return found

    def __enter__(self) -> Session:
        self._tokens.append(_session_graph.set(self.graph))
        return self

    def __exit__(self, *_: object) -> None:
        _session_graph.reset(self._tokens.pop())
        if not self._tokens:
            self.close()

    def close(self) -> None:
        """Forget the variables' values and the programs."""
        self._closed = True
        self._values.clear()
        self._executions.clear()

    # ------------------------------------------------------------ running

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Compute nodes of the graph, as NumPy arrays (NumPy scalars where they have no dimensions).

        fetches: a node, variable, operation, or name, or a list, tuple or dict of them, nested as you like; the result has the same
        structure, with None for operations (train steps, initialisers).
        feed_dict: values by placeholder: arrays, tensors, lists, numbers. Other nodes can be fed as well; what they are computed from is
        then left out. Only what the fetches need is computed and has to be fed.
        A run goes through its part of the graph in the order of definition: what was written before an update that is part of the run sees
        the variable's old value, what was written after it the new one. A fetched variable is its value before the run.
        Raises FeedError (a ValueError), TypeError, FetchError (a ValueError), UninitializedError (a RuntimeError), naming node and line.
        """
        if self._closed:
            raise RuntimeError("this session is closed; make another one with gl.Session(graph)")
        leaves: list[Any] = []
        structure = _taken_apart(fetches, leaves)
        feeds = self._fed(feed_dict or {})
        # The same fetches and shapes are the same program; what they are is kept with it, so that no id is used again.
        key = (tuple([x if type(x) is str else id(x) for x in leaves]), tuple([(n, a.shape) for n, a in feeds.items()]))
        known = self._executions.get(key)
        if known is None or known[0].stale():
            wanted = self.graph.wanted(leaves)
            if wanted.initialize:
                self._initialize(wanted.initialize, feeds)
            execution = Execution(self.graph, self._values, Wanted(wanted.outputs, wanted.updates, [], set(feeds)), feeds, self.device)
            known = (execution, leaves, [o for x in leaves for o in getattr(self._named(x), "options", ())])
            if not wanted.initialize:
                self._executions[key] = known
        for option in known[2]:
            option.check()
        results = iter(known[0].run(feeds))
        return _put_together(structure, [None if isinstance(self._named(x), Operation) else next(results) for x in leaves])

    def _named(self, leaf: Any) -> Any:
        return self.graph.nodes[leaf] if type(leaf) is str else leaf

    def _initialize(self, states: list[State], feeds: dict[int, Any]) -> None:
        wanted = Wanted([s.value for s in states], [], states, set(feeds))
        execution = Execution(self.graph, self._values, wanted, feeds, self.device)
        for state, array in zip(states, execution.arrays(feeds), strict=True):
            self._store(state, array)

    def _store(self, state: State, array: Any) -> None:
        """A variable's value; programs that were made read the same memory."""
        if state in self._values:
            dispatch.backend_of(array).assign(self._values[state], array)
        else:
            self._values[state] = array

    # ------------------------------------------------------------ feeding

    def _fed(self, feed_dict: Mapping[Any, Any]) -> dict[int, Any]:
        if not isinstance(feed_dict, Mapping):
            raise TypeError(f"feed_dict is a dict from placeholders to values, not {type(feed_dict).__name__}")
        found: dict[int, Any] = {}
        device = self.device
        for key, value in feed_dict.items():
            if isinstance(key, str):
                key = self.graph.nodes.get(key, key)
            if not isinstance(key, Differentiable):
                raise TypeError(f"feed_dict: {key!r} is no placeholder or other node of graph {self.graph.name}")
            number = self.graph.number(key)
            found[number] = self._converted(number, value, device)
        return found

    def _converted(self, number: int, value: Any, device: Device) -> Any:
        """A fed value as an array of the node's dtype on the session's device."""
        spec = self.graph.tracer._values[number].spec
        if isinstance(value, Differentiable):
            if type(value._array) is Symbol:
                raise TypeError(f"feed of {self._title(number)}: a node of a graph has no value; fetch it first{self.graph.where(number)}")
            array = value.detach()._array  # type: ignore[attr-defined]
            if type(array) is not np.ndarray:
                if array.dtype == spec.dtype and dispatch.backend_of(array).device_of(array) == device:
                    self._check_shape(number, array.shape)
                    return array
                array = dispatch.backend_of(array).to_numpy(array)
        else:
            try:
                array = value if type(value) is np.ndarray else np.asarray(value)
            except ValueError as error:
                raise FeedError(f"feed of {self._title(number)}: no array can be made of it: {error}{self.graph.where(number)}") from None
        if array.dtype != spec.dtype:
            if array.size and not _fits(array, spec.dtype):
                raise TypeError(
                    f"feed of {self._title(number)}: a value of type {array.dtype} does not fit; convert it with "
                    f".astype({str(spec.dtype)!r}){self.graph.where(number)}"
                )
            array = array.astype(spec.dtype)
        self._check_shape(number, array.shape)
        return array if device == CPU else dispatch.backend_for(device).from_numpy(np.ascontiguousarray(array).reshape(array.shape), device)

    def _check_shape(self, number: int, shape: tuple[int, ...]) -> None:
        want = self.graph.tracer._values[number].spec.shape
        if len(shape) != len(want) or any(type(w) is int and w != n for w, n in zip(want, shape, strict=True)):
            raise FeedError(f"feed of {self._title(number)}: a value of shape {tuple(shape)} does not fit{self.graph.where(number)}")

    def _title(self, number: int) -> str:
        return self.graph.tracer.described(number)

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the values of all variables that are initialised, by name, on the CPU: for `gl.save` and `load_state_dict`."""
        found = {}
        for state, array in self._values.items():
            found[state.name] = wrap(np.array(dispatch.backend_of(array).to_numpy(array)))
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Set variables to saved values; no initialiser is needed for them.

        Raises RuntimeError, and changes nothing, where names are missing or unknown (unless strict=False), or shapes or dtypes differ.
        """
        known = {s.name: s for s in self.graph.tracer.variables}
        missing, unexpected = [n for n in known if n not in state_dict], [n for n in state_dict if n not in known]
        if strict and (missing or unexpected):
            raise RuntimeError(f"load_state_dict: missing variables {missing}, unexpected names {unexpected}")
        ready = []
        for name, value in state_dict.items():
            if name not in known:
                continue
            state = known[name]
            array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
            if array.shape != state.symbol.shape or array.dtype != state.symbol.dtype:
                raise RuntimeError(
                    f"load_state_dict: {name} is {state.symbol.dtype.name}{list(state.symbol.shape)}, the saved value "
                    f"{array.dtype.name}{list(array.shape)}"
                )
            ready.append((state, np.array(array)))
        for state, array in ready:
            self._store(state, moved(wrap(array), self.device)._array if self.device != CPU else array)

    def __repr__(self) -> str:
        return f"<session of {self.graph!r} on {self.device}, {len(self._executions)} program(s)>"


def _fits(array: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a conversion loses nothing but precision."""
    if dtype in FLOATING:
        return array.dtype in FLOATING or array.dtype.kind in "iub"
    if dtype.kind == "b" or array.dtype.kind not in "iub":
        return False
    return bool((array.astype(dtype) == array).all())


def _taken_apart(fetches: Any, leaves: list[Any]) -> Any:
    if isinstance(fetches, (Differentiable, Operation, str)):
        leaves.append(fetches)
        return None
    if isinstance(fetches, (list, tuple)):
        return type(fetches), [_taken_apart(f, leaves) for f in fetches]
    if isinstance(fetches, Mapping):
        return dict, list(fetches), [_taken_apart(f, leaves) for f in fetches.values()]
    raise FetchError(f"fetches are nodes, variables, operations, names, or lists, tuples and dicts of them, not {type(fetches).__name__}")


def _put_together(structure: Any, values: list[Any]) -> Any:
    waiting = iter(values)

    def build(part: Any) -> Any:
        if part is None:
            return next(waiting)
        if part[0] is dict:
            return dict(zip(part[1], [build(p) for p in part[2]], strict=True))
        found = [build(p) for p in part[1]]
        return part[0](*found) if hasattr(part[0], "_fields") else part[0](found)

    return build(structure)
