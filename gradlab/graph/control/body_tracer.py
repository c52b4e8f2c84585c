"""The tracer of a body: what its functions use from outside becomes an explicit input of the control-flow call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradlab.autograd import engine
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import refresh, wrap
from gradlab.device import Device
from gradlab.dtype import FLOATING, INT64
from gradlab.graph.ir.graph import Value
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.graph.staging.symbol_strides import Layout, outside
from gradlab.graph.staging.tracer import Tracer
from gradlab.spec import Spec
from gradlab.tensor.creation import arange, zeros


class Inner(Tracer):
    """Collects a body's calls.

    captured  tensors from outside that the body uses, with their symbols in here
    leaves    those of them that are in a graph outside; in here they are leaves, so that the body is differentiated on its own
    """

    def __init__(self, outer: Any, what: str) -> None:
        super().__init__(outer.device)
        self.outer, self.what = outer, what
        self._derived, self._versions = outer._derived, outer._versions  # the outer trace puts them back
        self.captured: list[tuple[Any, Symbol]] = []
        self.leaves: list[Any] = []
        self.entries: list[Any] = []  # the body's own arguments, as tensors
        self._by_array: dict[Any, int] = {}
        self._edges: dict[int, tuple[Any, Any]] = {}
        self._entered: set[int] = set()

    @property
    def reseeded(self) -> Any:
        """As the outer tracer's."""
        return getattr(self.outer, "reseeded", None)

    @property
    def unprintable(self) -> Any:
        """As the outer tracer's."""
        return getattr(self.outer, "unprintable", None)

    @property
    def foreign(self) -> Any:
        """As the outer tracer's."""
        return getattr(self.outer, "foreign", None)

    def meet(self, device: Device) -> Device:
        device = self.outer.meet(device)
        self.device = self.graph.device = self.outer.device
        return device

    def entry(self, spec: Spec, tensor: Any, leaf: bool) -> Any:
        """A tensor that stands for an argument of the body: `tensor`, or for a part of it."""
        array = tensor._array
        twin = wrap(self.symbol(spec, self._where(array), _layout(array) if spec.shape == array.shape else None))
        twin._edge = LEAF if leaf and spec.dtype in FLOATING else None
        self.entries.append(twin)
        self._entered.add(twin._array.id)
        return twin

    # ------------------------------------------------------------ what comes from outside

    def reads_gradient(self, leaf: Any, added: bool = False) -> None:
        self.outer.reads_gradient(leaf, added)

    def note(self, inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, Differentiable) and not self._own(x._array):
                self._capture(x)

    def lift(self, array: Any) -> Symbol:
        if self._own(array):
            return array
        at = self._by_array.get(_key(array))
        return self._capture(wrap(array)) if at is None else self.captured[at][1]

    def _where(self, array: Any) -> Device | None:
        return array.device if type(array) is Symbol else self.place(array)

    def _own(self, array: Any) -> bool:
        return type(array) is Symbol and array.tracer is self

    def _capture(self, tensor: Any) -> Symbol:
        array = tensor._array
        if type(array) is Symbol and not self._reaches(array.tracer):
            raise TraceError(
                f"{self.what}: a tensor that another body made was used in this one; return it from that body, and pass it as an operand"
            )
        key = _key(array)
        at = self._by_array.get(key)
        if tensor._edge is not None and id(tensor) not in self._edges:
            self._edges[id(tensor)] = (tensor, tensor._edge)
            self.leaves.append(tensor)
            tensor._edge = LEAF
            if at is not None and self.captured[at][0]._edge is None:
                self.captured[at] = (tensor, self.captured[at][1])
            elif at is not None:
                self.captured.append((tensor, self.captured[at][1]))
        if at is None:
            self._by_array[key] = at = len(self.captured)
            symbol = self.symbol(Spec(tuple(array.shape), array.dtype), self._where(array), _layout(array))
            self.captured.append((tensor, symbol))
        return self.captured[at][1]

    def _reaches(self, tracer: Any) -> bool:
        outside = self.outer
        while outside is not None:
            if outside is tracer:
                return True
            outside = getattr(outside, "outer", None)
        return False

    # ------------------------------------------------------------ what a body may not do

    def write(self, tensor: Any, array: Any) -> None:
        if not self._own(tensor._array) or tensor._array.id in self._entered:
            raise TraceError(
                f"{self.what}: its body changes a tensor (shape {tuple(tensor._array.shape)}) from outside, or an argument, in place; "
                f"a body may run any number of times: carry the tensor and return its new value (training statistics of batch norm: "
                f"eval(), or apply the layer outside)"
            )
        super().write(tensor, array)

    def before_gradient(self, leaf: Any, added: bool = False) -> None:
        raise TraceError(
            f"{self.what}: its body calls backward(), which stores into .grad; use gradlab.autograd.grad inside, or differentiate outside"
        )

    # ------------------------------------------------------------ the trace

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Operations are collected in here; afterwards the tensors from outside are as they were."""
        token = enter(current().replace(tracer=self, saved_hooks=None))
        try:
            yield
        finally:
            leave(token)
            for tensor, edge in self._edges.values():
                tensor._edge = edge

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Operations are collected in here, and not recorded."""
        token = enter(current().replace(tracer=self, saved_hooks=None, recording=False, autocast=None))
        try:
            yield
        finally:
            leave(token)

    def gradients(self, outputs: list[Any], targets: list[Any]) -> tuple[dict[int, Symbol], list[Symbol | None]]:
        """Within `tracing`: the outputs' gradients (by position, of those in the graph) as symbols, and the targets' gradients of them."""
        roots = [i for i, t in enumerate(outputs) if t._edge is not None and t._array.dtype in FLOATING]
        arriving = {i: self.twin(self.lift(outputs[i]._array)) for i in roots}
        if not roots or not targets:
            return {}, [None] * len(targets)
        with self.quiet():
            found = engine.grad([outputs[i] for i in roots], targets, [wrap(arriving[i]) for i in roots], False, False, hooks=False)
        return arriving, [None if g is None else self.lift(g._array) for g in found]

    def twin(self, symbol: Symbol) -> Symbol:
        """A new input like a value: its gradient, or a sum of such values."""
        return self.symbol(Spec(tuple(symbol.shape), symbol.dtype), symbol.device)

    def zeros(self, spec: Spec) -> Symbol:
        """Zeros, made by the body."""
        with self.quiet():
            return self.lift(zeros(spec.shape, dtype=spec.dtype, device=self.device)._array)

    def results(self, tensors: list[Any]) -> list[Symbol]:
        """The symbols of what a body returns."""
        for t in tensors:
            if t._meta is not None:
                refresh(t)
        self.note(tensors)
        return [self.lift(t._array) for t in tensors]

    def moved_on(self, state: Any, words: int) -> Any:
        """A random state so many words on. (A constant made by a row, which is on whatever device the program is.)"""
        return state + arange(0, 2 * words, words, dtype=INT64, device=self.device) if words else state

    def draws(self) -> list[tuple[Any, Symbol, int]]:
        """Generators from which the body draws: generator, symbol of its state, words."""
        return [(generator, state._array, words) for generator, state, words in self._random.values()]

    def values(self, symbols: list[Symbol]) -> list[Value]:
        """The graph's values of symbols."""
        return [self.value(s) for s in symbols]


def _layout(array: Any) -> Layout | None:
    return array.layout if type(array) is Symbol else outside(array, array.shape)


def _key(array: Any) -> Any:
    return (id(array.tracer), array.id) if type(array) is Symbol else id(array)
