"""The tracer of `compile`: remembers which tensors its state came from, and keeps hyper-parameters live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd.base import LEAF, Differentiable, Meta
from gradlab.autograd.inplace import base_of, written
from gradlab.autograd.record import wrap
from gradlab.device import CPU, Device
from gradlab.dtype import FLOAT64
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.staging.symbol import Symbol
from gradlab.graph.staging.tracer import Tracer
from gradlab.optim.hyper import values
from gradlab.spec import Spec


class LiveTracer(Tracer):
    """As Tracer. After `finish`, `tensors` and `slots` say where each state value is found when the program runs again."""

    runs_here = True
    # What makes the error for a generator's state that is set or read, and for a tensor that is printed; None where a trace lets them.
    reseeded: Any = None
    unprintable: Any = None
    follows = True  # whether views from before the trace are views of their bases in it
    foreign: Any = None  # raises for a tensor whose values the trace may not read

    def __init__(self, device: Device = CPU) -> None:
        super().__init__(device)
        self.tensors: dict[int, Any] = {}  # id of a tensor from before the trace -> the tensor
        self.arrays: dict[int, Any] = {}  # the same -> its array before the trace
        self._holders: dict[int, list[Any]] = {}  # id of an array -> the tensors that hold it
        self.views: dict[int, tuple[Any, Any, Any]] = {}  # id of one of them that is a view -> it, its base, and the rows that lead to it
        self.hyper: dict[tuple[int, tuple[Any, ...]], tuple[dict[str, Any], tuple[Any, ...], Any]] = {}  # -> group, names, tensor
        self.recorded: dict[int, Exception] = {}  # ids of stand-ins of results of recorded operations -> what a write to one raises
        self.rebased: dict[int, tuple[Any, Any]] = {}  # views from before the trace that follow what is written to their bases, and these
        self.untouched: dict[int, Any] = {}  # leaves whose .grad was None when it was first set
        self.arguments: dict[int, tuple[int, Any]] = {}  # id of an argument's stand-in -> its number, and what a look at its .grad raises
        self.without: set[int] = set()  # numbers of arguments that had no .grad when it was looked at
        self.looked_at: dict[int, Any] = {}  # leaves from before the trace whose .grad from before it is read

    def note(self, inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, Differentiable) and type(x._array) is not Symbol:
                self._note(x)
                if self.follows and x._meta is not None and x._meta.base is not None:
                    self._follow(x, x._meta)

    def _note(self, tensor: Any) -> None:
        if type(tensor._array) is not Symbol and id(tensor) not in self.tensors:
            self.tensors[id(tensor)], self.arrays[id(tensor)] = tensor, tensor._array
            self._holders.setdefault(id(tensor._array), []).append(tensor)

    def stand_in(self, array: Any) -> Any:
        """A tensor that stands for an argument with that array."""
        twin = wrap(self.argument(array))
        self._holders.setdefault(id(array), []).append(twin)
        return twin

    def refusal(self, leaf: Any) -> Exception | None:
        return self.recorded.get(id(leaf))

    def _follow(self, view: Any, meta: Meta) -> None:
        """A view from before the trace is one of its base in the trace as well: what is written to either is seen by both."""
        base = base_of(meta)
        if base._meta is None or base._meta.version is not meta.version:  # the base has other memory by now
            return
        self._note(base)
        symbol = self.lift(base._array)
        for op, params in meta.chain:
            symbol = self.run(op, [symbol], params)
        self.deriving(view)
        view._array = symbol
        self.views[id(view)] = view, base, meta.chain

    def deriving(self, view: Any) -> None:
        if type(view._array) is not Symbol:
            self.rebased.setdefault(id(view), (view, view._meta.base))
        super().deriving(view)

    def write(self, tensor: Any, array: Any) -> None:
        self._note(tensor)
        super().write(tensor, array)
        for other in self._holders.get(self._home.get(tensor._array.id, 0), ()):
            if other is not tensor:
                if type(other._array) is Symbol:
                    other._array = tensor._array
                if other._meta is not None and other._meta.version not in (None, tensor._meta.version):
                    written(other._meta.version)

    def reads_gradient(self, leaf: Any, added: bool = False) -> None:
        if id(leaf) in self.arguments:
            number, error = self.arguments[id(leaf)]
            if error is not None and not added:
                raise error
            if not added:
                self.without.add(number)
        elif leaf._grad is not None and id(leaf) not in self._gradients and not self._made(leaf):
            self.looked_at[id(leaf)] = leaf

    def before_gradient(self, leaf: Any, added: bool = False) -> None:
        if not added:  # from here on it is what the trace has made of it
            self.arguments.pop(id(leaf), None)
        if id(leaf) not in self._gradients and leaf._grad is None and not self._made(leaf):
            self.untouched[id(leaf)] = leaf
        super().before_gradient(leaf, added)

    def _made(self, leaf: Any) -> bool:
        """Whether a leaf was made in the trace (or is an argument's twin)."""
        return type(leaf._array) is Symbol and id(leaf) not in self._tensors

    def keep_gradients(self, wanted: set[int], arguments: list[Any]) -> None:
        """Forget the gradients of leaves made in the trace, but for those wanted (by id): nobody else can see them."""
        known = wanted | set(map(id, arguments))
        for key, (leaf, _) in list(self._gradients.items()):
            if self._made(leaf) and key not in known:
                del self._gradients[key]

    def hypers(self, group: dict[str, Any], names: tuple[Any, ...]) -> Any:
        """A group's hyper-parameters as an input that each replay fills anew; None where one is a tensor, which is state."""
        found = values(group, names)
        if any(isinstance(v, Differentiable) for v in found):
            return None
        for p in group["params"]:
            if type(p._array) is not Symbol:
                self.place(p._array)
        key = (id(group), names)
        if key not in self.hyper:
            self.hyper[key] = (group, names, wrap(self.symbol(Spec((len(names),), FLOAT64))))
        return self.hyper[key][2]

    def live(self) -> dict[int, set[str]]:
        """Of each param group (by id) the entries that replays read."""
        found: dict[int, set[str]] = {}
        for group, names, _ in self.hyper.values():
            found.setdefault(id(group), set()).update(n if isinstance(n, str) else n[0] for n in names)
        return found

    def before(self) -> list[Any]:
        """The tensors from before the trace that were used in it, arguments apart."""
        return list(self.tensors.values())

    def graded(self) -> list[Any]:
        """The tensors whose .grad was set."""
        return [leaf for leaf, _ in self._gradients.values()]

    def is_constant(self, array: Any, young: Callable[[Any], bool]) -> bool:
        """Whether only tensors that were made in the trace hold an array."""
        return all(young(t) for key, t in self.tensors.items() if self.arrays[key] is array)

    def leaves(self, first: int) -> list[Any]:
        """The tensors from before the trace (its first sequence number) that require grad and were used in it."""
        return [t for t in self.tensors.values() if t._edge is LEAF or (t._edge is not None and t._edge.node.seq < first)]

    def hyper_values(self) -> list[tuple[dict[str, Any], tuple[Any, ...], Value]]:
        """The hyper-parameter inputs: group, names, value."""
        return [(group, names, self.value(tensor._array)) for group, names, tensor in self.hyper.values()]

    def let_go(self) -> None:
        """Forget everything: whoever kept a symbol would keep it all in memory. Nothing can be restored any more."""
        for table in (self._values, self._state, self._current, self._home, self._tensors, self._gradients, self._random, self.devices):
            table.clear()
        for known in (self.tensors, self.arrays, self.views, self.rebased, self.untouched, self.looked_at, self.arguments):
            known.clear()
        for known in (self._derived, self._versions, self._holders):
            known.clear()
        self._first.clear()
        self.hyper.clear()
        self.graph = Graph(device=self.device)
        self.reseeded = self.unprintable = self.foreign = None
