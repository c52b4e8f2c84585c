"""`Graph`: operations written down to be run later by a `Session`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import wrap
from gradlab.graph.ir.graph import Call, Graph as Program, Value
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.session.defining import Defining
from gradlab.session.nodes import FetchError, Node, Operation, State, Update, at
from gradlab.session.pruning import Wanted, prune
from gradlab.viz import Picture, graph as picture

_session_graph: ContextVar[Graph | None] = ContextVar("gradlab_session_graph", default=None)


class Graph:
    """A graph that is defined first and run later, as in TensorFlow 1.

    Within `with graph.as_default():` every operation, also those of modules, losses and optimizers, is written down and nothing is
    computed. Parameters and buffers of modules made in the block are variables of the graph; tensors from outside are shared with it.

    >>> g = gl.Graph()
    >>> with g.as_default():
    ...     x = gl.placeholder(gl.float32, [None, 2], name="x")
    ...     y = (x * 2).sum(1)
    >>> with gl.Session(g) as s:
    ...     s.run(y, {x: [[1, 2], [3, 4], [5, 6]]})
    array([ 6., 14., 22.], dtype=float32)
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._counts: dict[str, int] = {}
        self._scopes: list[str] = []
        self._modules: dict[int, tuple[Any, str]] = {}
        self._operations: list[Operation] = []
        self.tracer = Defining(self)

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """The block in which the graph is defined. It may be entered again to add to the graph. Raises TraceError inside a trace."""
        mode = current()
        if mode.tracer is not None and not isinstance(mode.tracer, Defining):
            raise TraceError("as_default: a graph cannot be defined inside a function that is being compiled or traced")
        token = enter(mode.replace(tracer=self.tracer, scope=None))
        try:
            yield self
        finally:
            leave(token)
            self.tracer.restore()

    @contextmanager
    def name_scope(self, name: str) -> Iterator[str]:
        """A prefix for the names of what is made in the block: "layer1/matmul"."""
        self._scopes.append(self.unique(name).rsplit("/", 1)[-1])
        try:
            yield "/".join(self._scopes)
        finally:
            self._scopes.pop()

    # ------------------------------------------------------------ names

    def unique(self, name: str) -> str:
        """The name within the scopes that are open, with a number if it is taken: matmul, matmul_1."""
        return self._free("/".join([*self._scopes, name]))

    def _free(self, name: str) -> str:
        found = self._counts.get(name, 0)
        self._counts[name] = found + 1
        return name if not found else self._free(f"{name}_{found}")

    def rename(self, old: str, name: str, module: Any) -> str:
        """A parameter's name from its module: linear.weight, linear_1.weight. One that was named otherwise keeps its name."""
        if not old.rsplit("/", 1)[-1].startswith("variable"):
            return old
        if id(module) not in self._modules:
            self._modules[id(module)] = (module, self.unique(type(module).__name__.lower()))
        return self._free(f"{self._modules[id(module)][1]}.{name}")

    def set_name(self, tensor: Any, name: str) -> str:
        """Give a node a name of the user's choice; returns it, made unique."""
        number = self.number(tensor)
        state = self.tracer.of_value(number)
        found = self.unique(name)
        self.tracer.names[number] = found
        if state is not None:
            state.name = found
        return found

    def number(self, tensor: Any) -> int:
        """The value that a tensor of this graph is. Raises FetchError for another."""
        if not isinstance(tensor, Differentiable):
            raise FetchError(f"a node of graph {self.name} is a tensor made in it, not {type(tensor).__name__}")
        if type(tensor._array) is not Symbol:
            state = self.tracer.state_of(tensor)
            if state is None:
                raise FetchError(
                    f"a tensor of shape {tuple(tensor._array.shape)} is no node of graph {self.name}: it was computed eagerly, and the "
                    f"graph does not use it"
                )
            return state.symbol.id
        if tensor._array.tracer is not self.tracer:
            owner = getattr(tensor._array.tracer, "owner", None)
            whose = "a trace" if owner is None else f"graph {owner.name}" if owner.name != self.name else "another graph"
            place = "" if owner is None else owner.where(tensor._array.id)
            raise FetchError(
                f"a tensor of shape {tuple(tensor._array.shape)} belongs to {whose}, not to graph {self.name} of this session{place}"
            )
        return tensor._array.id

    def where(self, number: int) -> str:
        """The line that made a value, as messages end."""
        return at(self.tracer.place_of(number))

    # ------------------------------------------------------------ looking at it

    @property
    def nodes(self) -> Mapping[str, Any]:
        """Tensors and operations by name: placeholders, variables, results of calls, train steps."""
        tracer = self.tracer
        found: dict[str, Any] = {}
        for number, name in tracer.names.items():
            state = tracer.of_value(number)
            if number in tracer.replaced:
                continue
            if number in tracer.placeholders:
                found[name] = tracer.placeholders[number]
            elif state is not None:
                found[name] = state.tensor
            else:
                found[name] = wrap(Symbol(number, tracer._values[number].spec, tracer))
        return found | {o.name: o for o in self._operations}

    def get_operations(self) -> list[Node]:
        """The graph's nodes in the order of definition: placeholders, variables and calls, with the lines that made them."""
        tracer, names = self.tracer, self.tracer.names
        found = [Node(names[i], "placeholder", [], [names[i]], place=tracer.places[i]) for i in tracer.placeholders]
        found += [Node(s.name, "variable", [], [s.name], place=s.place) for s in tracer.states]
        for call in self._calls():
            outputs = [names.get(v.id, repr(v)) for v in call.outputs]
            inputs = [names.get(x.id, repr(x)) for x in call.inputs if isinstance(x, Value)]
            state = tracer.of_value(call.outputs[0].id)
            found.append(Node(outputs[0] if state is None else f"{outputs[0]}/initial", call.op.name, inputs, outputs, call))
        return found

    @property
    def variables(self) -> list[Any]:
        """The graph's variables, as tensors: those of its modules, of its optimizers, and `gl.Variable`s."""
        return [s.tensor for s in self.tracer.variables]

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that require gradients."""
        return [s.tensor for s in self.tracer.variables if s.trainable]

    @property
    def updates(self) -> list[Operation]:
        """What modules write when they are called (batch norm's statistics), as operations; `minimize` takes along those of its loss."""
        return [Operation(self, f"{u.state.name}/update", u.place, [u]) for u in self.tracer.updates if u.place[2] is not None]

    def _calls(self) -> list[Call]:
        """The calls, without those whose results were replaced at once."""
        replaced = self.tracer.replaced
        return [c for c in self.tracer.graph.calls if c.outputs[0].id not in replaced]

    def operation(self, name: str, place: Any, updates: Sequence[Update] = (), initializes: list[State] | None = None) -> Operation:
        """Add something to run."""
        made = Operation(self, self.unique(name), place, list(updates), initializes)
        self._operations.append(made)
        return made

    def program(self, fetches: Any = None) -> Program:
        """The graph as calls and values: all of it, or what a run with these fetches (a list of nodes and operations) computes."""
        if fetches is None:
            tracer = self.tracer
            wanted = Wanted([c.outputs[0] for c in self._calls()], list(tracer.updates), [], set(), everything=True)
        else:
            wanted = self.wanted(fetches if isinstance(fetches, (list, tuple)) else [fetches])
        pruned = prune(self.tracer, wanted)
        state = {s.value: None for s in pruned.states}
        return Program(pruned.inputs, state, pruned.random, pruned.calls, pruned.outputs if fetches is not None else [], pruned.updates)

    def wanted(self, leaves: Sequence[Any]) -> Wanted:
        """What a list of fetches asks for."""
        tracer = self.tracer
        found = Wanted([], [], [], set())
        for x in leaves:
            if isinstance(x, str):
                if x not in self.nodes:
                    raise FetchError(f"graph {self.name} has no node called {x!r}; nodes: {', '.join(self.nodes)}")
                x = self.nodes[x]
            if isinstance(x, Operation):
                if x.graph is not self:
                    raise FetchError(f"operation {x.name} belongs to another graph, not to graph {self.name} of this session")
                if x.initializes is None:
                    found.updates += [u for u in x.updates if u not in found.updates]
                else:
                    found.initialize += [s for s in (x.initializes or tracer.variables) if s not in found.initialize]
                continue
            number = self.number(x)
            found.outputs.append(Value(number, tracer._values[number].spec))
        return found

    def picture(self, fetches: Any = None) -> Picture:
        """A picture of the graph, or of what a run with these fetches computes; save it as SVG or HTML."""
        return picture(self.program(fetches))

    def svg(self, fetches: Any = None) -> str:
        """The picture as an SVG document."""
        return self.picture(fetches).to_svg()

    def __str__(self) -> str:
        tracer = self.tracer

        def typed(value: Any) -> str:
            return tracer.described(value.id)

        lines = [f"graph {self.name}:"]
        lines += [f"  {tracer.described(i)} = placeholder" for i in tracer.placeholders]
        lines += [f"  {typed(s.value)} = {'shared' if s.shared else 'variable'}" for s in tracer.states]
        last = ""
        for call in self._calls():
            source = call.source()
            if source and source != last:
                lines.append(f"  # {source}")
            last = source or last
            inputs = [tracer.names.get(x.id, repr(x)) if isinstance(x, Value) else repr(x) for x in call.inputs]
            inputs += [f"{k}={v!r}" for k, v in call.params.items()]
            lines.append(f"  {', '.join(map(typed, call.outputs))} = {call.op.name}({', '.join(inputs)})")
        lines += [f"  {u.state.name} <- {tracer.names.get(u.new.id, repr(u.new))}" for u in tracer.updates]
        return "\n".join(lines)

    def __repr__(self) -> str:
        t = self.tracer
        return f"<graph {self.name}: {len(t.placeholders)} placeholders, {len(t.variables)} variables, {len(t.graph.calls)} calls>"


def get_default_graph() -> Graph:
    """The graph of the innermost `with graph.as_default():` or `with gl.Session(graph):` block. RuntimeError outside of both."""
    tracer = current().tracer
    while tracer is not None and not isinstance(tracer, Defining):
        tracer = getattr(tracer, "outer", None)
    found = _session_graph.get() if tracer is None else tracer.owner
    if found is None:
        raise RuntimeError(
            "there is no default graph: outside of blocks operations run at once. Write `with graph.as_default():` around the definition"
        )
    return found


def defining(what: str) -> Defining:
    """The tracer of the graph that is being defined. RuntimeError outside of its block."""
    tracer = current().tracer
    if not isinstance(tracer, Defining):
        raise RuntimeError(f"{what}: a graph is defined inside `with graph.as_default():`; g = gl.Graph() makes one")
    return tracer
