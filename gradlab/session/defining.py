"""The tracer of a `Graph`: writes operations down, and tells variables, tensors from outside, updates and random draws apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.mode import current
from gradlab.autograd.record import wrap
from gradlab.device import CPU
from gradlab.dtype import FLOAT64
from gradlab.graph.ir.dims import hint, is_unknown
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.graph.staging.symbol_strides import outside
from gradlab.graph.staging.tracer import Tracer
from gradlab.op import Op
from gradlab.ops.elementwise import clone
from gradlab.optim.hyper import values
from gradlab.session.nodes import Draw, State, Update, at, here
from gradlab.session.training import Training
from gradlab.spec import Spec, spec_of

if TYPE_CHECKING:
    from gradlab.session.graph import Graph


class Defining(Training, Tracer):
    """Collects a graph, over any number of `with graph.as_default()` blocks."""

    def __init__(self, owner: Graph) -> None:
        super().__init__(CPU)
        self.owner = owner
        self.states: list[State] = []
        self.updates: list[Update] = []
        self.draws: list[Draw] = []
        self.hyper: dict[tuple[int, tuple[Any, ...]], tuple[dict[str, Any], tuple[Any, ...], Any]] = {}
        self.placeholders: dict[int, Any] = {}  # value -> tensor
        self.places: dict[int, Any] = {}  # value -> where a placeholder was made
        self.names: dict[int, str] = {}  # value -> name
        self.assigned: dict[int, Update] = {}  # value that an assignment gives -> its update
        self.group: list[Update] | None = None  # where updates are collected that some operation makes
        self._by_symbol: dict[int, State] = {}
        self._by_array: dict[int, State] = {}
        self._by_tensor: dict[int, State] = {}
        self._tensors_seen: dict[int, Any] = {}  # id of an array from outside -> its tensor
        self.running: set[int] = set()  # values that are no part of an initialisation
        self.consumed = set()
        self.read_at: dict[tuple[int, int], int] = {}  # (first result of a call, state it reads) -> where in the graph that counts
        self.overwritten: set[int] = set()  # initial values that another one replaced
        self._last_read: dict[int, int] = {}
        self.replaced: set[int] = set()  # those of them that nothing reads
        self._position: dict[int, int] = {}  # id of a generator -> its next draw

    # ------------------------------------------------------------ what is read

    def note(self, inputs: Any) -> None:
        mode = current()
        for x in inputs:
            if not isinstance(x, Differentiable):
                continue
            array = x._array
            if type(array) is not Symbol:
                self._tensors_seen.setdefault(id(array), x)
                continue
            state = self._by_symbol.get(array.id) if array.tracer is self else None
            if state is not None and ((mode.recording and x._edge is not None) or mode.scope is not None):
                state.used = True

    def detached(self, source: Any) -> None:
        if type(source._array) is not Symbol:  # `weight.data.normal_()` is part of an initialisation
            self._tensors_seen.setdefault(id(source._array), source)

    def lift(self, array: Any) -> Symbol:
        if type(array) is Symbol:
            return array
        state = self._by_array.get(id(array))
        if state is None:
            tensor = self._tensors_seen.get(id(array))
            symbol = self.symbol(spec_of(array), self.place(array), outside(array, array.shape))
            holder = wrap(array) if tensor is None else tensor  # keeps the array alive
            name = self.owner.unique("constant" if holder._edge is None else "shared")
            state = State(holder, symbol, name, here(), True, True, False, holder._edge)
            self._by_array[id(array)] = self._by_symbol[symbol.id] = self._by_tensor[id(holder)] = state
            state.written = version_of(holder).written
            self.states.append(state)
            self.names[symbol.id] = state.name
        return state.symbol

    def value(self, symbol: Symbol) -> Value:
        if symbol.tracer is not self:
            owner = getattr(symbol.tracer, "owner", None)
            whose = "a trace" if owner is None else f"another graph ({owner.name})"
            raise TraceError(f"a tensor of {whose} was used in graph {self.owner.name}; make it in this graph, or feed its value")
        return super().value(symbol)

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        result = super().run(op, arrays, params)
        call = self.graph.calls[-1]
        inputs = [x.id for x in call.inputs if isinstance(x, Value)]
        self.consumed.update(inputs)
        self.named(call)
        for i in inputs:
            if i not in self._by_symbol:
                continue
            if current().walking:  # a gradient is taken where the variable was read
                self.read_at[call.outputs[0].id, i] = self._last_read.get(i, len(self.graph.calls))
            else:
                self._last_read[i] = len(self.graph.calls) - 1
        found = [self._by_symbol.get(i) for i in inputs]
        if any(i in self.running or (s is not None and s.used) for i, s in zip(inputs, found, strict=True)):
            self.running.update(v.id for v in call.outputs)
            for s in found:
                if s is not None:
                    s.used = True
        return result

    def named(self, call: Call) -> None:
        """Give the results of a call names."""
        name = self.owner.unique(call.op.name)
        for i, v in enumerate(call.outputs):
            self.names[v.id] = name if i == 0 else f"{name}:{i}"

    # ------------------------------------------------------------ variables

    def declare(self, tensor: Any, name: str = "", module: Any = None, like: Any = None) -> None:
        """A parameter or buffer was made, registered under a name, or copied from another one: it is a variable of this graph."""
        symbol = tensor._array
        if type(symbol) is not Symbol or symbol.tracer is not self:
            return
        known = self._by_tensor.get(id(tensor))
        if known is not None and known.symbol is not symbol:  # a lazy parameter got its shape
            self._rename(known, symbol)
        if known is None:
            if like is not None and id(like) not in self._by_tensor:
                return
            known = self.variable(tensor, "variable", tensor._edge is not None)
        if name:
            known.name = self.owner.rename(known.name, name, module)
            self.names[known.symbol.id] = known.name

    def variable(self, tensor: Any, name: str, trainable: bool, used: bool = False) -> State:
        """Make a tensor a variable; what it holds is its initial value."""
        symbol: Symbol = tensor._array
        if is_unknown(symbol.shape):
            raise TraceError(f"a variable's shape must be known, but its initial value has shape {symbol.shape}{at(here())}")
        if symbol.id in self._by_symbol or symbol.id in self.placeholders or symbol.id in self.consumed:
            symbol = tensor._array = self.run(clone, [symbol], {})
        state = State(tensor, symbol, self.owner.unique(name), here(), False, used, trainable)
        self._by_symbol[symbol.id] = self._by_tensor[id(tensor)] = state
        state.written = version_of(tensor).written
        self.states.append(state)
        self.names[symbol.id] = state.name
        return state

    def _rename(self, state: State, symbol: Symbol) -> None:
        """The initial value of a variable is another one."""
        del self._by_symbol[state.symbol.id]
        self.names.pop(state.symbol.id, None)
        self.overwritten.add(state.symbol.id)
        if state.symbol.id not in self.consumed:
            self.replaced.add(state.symbol.id)
        state.symbol = symbol
        self._by_symbol[symbol.id] = state
        self.names[symbol.id] = state.name

    def state_of(self, tensor: Any) -> State | None:
        """The state that a tensor stands for, if it does."""
        array = tensor._array
        if type(array) is not Symbol:
            return self._by_array.get(id(array)) or self._by_tensor.get(id(tensor))
        return self._by_symbol.get(array.id) if array.tracer is self else None

    def of_value(self, number: int) -> State | None:
        """The state whose value that is."""
        return self._by_symbol.get(number)

    @property
    def variables(self) -> list[State]:
        """The graph's own variables."""
        return [s for s in self.states if not s.shared]

    # ------------------------------------------------------------ what is written

    def write(self, tensor: Any, array: Any) -> None:
        old = tensor._array
        if type(old) is not Symbol:
            self._tensors_seen.setdefault(id(old), tensor)
            self.lift(old)
        new = self.lift(array)
        state = self.state_of(tensor)
        if state is None:
            self.first_values.setdefault(id(tensor), old)
        if new.id in self._by_symbol or new.id in self.placeholders:
            new = self.run(clone, [new], {})
        new = self.lying_as(new, old)
        if state is None:
            tensor._array = new
        elif not state.used and new.id not in self.running and self.group is None:
            self._rename(state, new)
            tensor._array = new
            state.written = version_of(tensor).written
        else:
            self._update(state, new)

    def _update(self, state: State, new: Symbol) -> None:
        state.used = True
        version_of(state.tensor).written = state.written
        if self.group is None and current().scope is None:
            raise TraceError(
                f"variable {state.name} is written in place while graph {self.owner.name} is defined, and nothing could run that: use "
                f"opt.minimize(loss) for a training step, gl.assign(variable, value) for another update, and initialise a variable before "
                f"it is used{at(here())}"
            )
        if new.shape != state.symbol.shape or new.dtype != state.symbol.dtype:
            raise TraceError(
                f"variable {state.name} is {state.symbol.dtype.name}{list(state.symbol.shape)}; its new value is "
                f"{new.dtype.name}{list(new.shape)}{at(here())}"
            )
        update = Update(state, self.value(new), len(self.graph.calls), here())
        self.updates.append(update)
        if self.group is not None:
            self.group.append(update)

    def outside(self, tensor: Any) -> bool:
        return type(tensor._array) is not Symbol or tensor._array.id in self._by_symbol

    def restore(self) -> None:
        """At the end of a block tensors from outside are as they were."""
        for state in self.states:
            if state.shared:
                state.tensor._edge = state.edge
        kept = {}
        for key, (leaf, before) in self._gradients.items():
            if type(leaf._array) is Symbol:
                kept[key] = (leaf, before)
            else:
                leaf._grad = before
        self._gradients = kept

    # ------------------------------------------------------------ random numbers and hyper-parameters

    def random_state(self, generator: Any) -> Any:
        """Each draw has a state of its own, so that a run counts only the words of what it runs."""
        return self._draw(generator).tensor

    def _draw(self, generator: Any) -> Draw:
        draws = [d for d in self.draws if d.generator is generator]
        place = self._position.setdefault(id(generator), 0)
        if place == len(draws):
            symbol = self.symbol(spec_of(generator.state_array()))
            self.names[symbol.id] = self.owner.unique("random_state")
            draws.append(Draw(generator, wrap(symbol)))
            self.draws.append(draws[-1])
        return draws[place]

    def advance_random(self, generator: Any, words: int) -> int:
        draw = self._draw(generator)
        if hint(draw.words) not in (0, hint(words)):
            raise TraceError("a checkpoint draws other random numbers when it computes again than it drew at first")
        draw.words = words
        self._position[id(generator)] += 1
        return 0

    def random_words(self, generator: Any) -> int:
        return self._position.get(id(generator), 0)

    def rewind_random(self, generator: Any, words: int) -> None:
        self._position[id(generator)] = words

    def hypers(self, group: dict[str, Any], names: tuple[Any, ...]) -> Any:
        """A group's hyper-parameters, read anew at each run; None where one is a tensor, which is a node of the graph."""
        if any(isinstance(v, Differentiable) for v in values(group, names)):
            return None
        key = (id(group), names)
        if key not in self.hyper:
            symbol = self.symbol(Spec((len(names),), FLOAT64))
            self.names[symbol.id] = self.owner.unique("hyper_parameters")
            self.hyper[key] = (group, names, wrap(symbol))
        return self.hyper[key][2]

    # ------------------------------------------------------------ messages

    def described(self, number: int) -> str:
        """A value for messages: its name and type."""
        spec = self._values[number].spec
        return f"{self.names.get(number, f'%{number}')} ({spec.dtype.name}{list(spec.shape)})"

    def place_of(self, number: int) -> Any:
        """Where a value was made."""
        state = self._by_symbol.get(number)
        if state is not None:
            return state.place
        if number in self.places:
            return self.places[number]
        return next((c.position for c in reversed(self.graph.calls) if any(v.id == number for v in c.outputs)), None)

    def unreadable(self, symbol: Symbol) -> TraceError:
        """The error for reading a value while there is only a graph."""
        made = at(self.place_of(symbol.id)).replace("at:", "made at:")
        return TraceError(
            f"a value was read, but {self.described(symbol.id)} is a node of graph {self.owner.name}, which has values only in a session: "
            f"fetch it with session.run({self.names.get(symbol.id, 'node')}), or keep decisions on values inside tensor operations "
            f"(gl.where, gl.cond){at(here())}{made}"
        )

    def misplaced(self, op: Op, symbol: Symbol) -> TraceError:
        """The error for an operation on a node outside of the graph's block."""
        return TraceError(
            f"{op.name}: {self.described(symbol.id)} is a node of graph {self.owner.name}: add operations inside "
            f"`with graph.as_default():`, or fetch its value with session.run(...){at(here())}"
        )
