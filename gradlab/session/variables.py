"""What a graph is fed and what it keeps: `placeholder`, `Variable`, assignments, initialisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import wrap
from gradlab.dtype import FLOATING, as_numpy
from gradlab.graph.ir.dims import Dim, unknown
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.ops.elementwise import clone
from gradlab.session.graph import defining, get_default_graph
from gradlab.session.nodes import Operation, at, here
from gradlab.spec import Spec
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.tensor.subclasses import disabled


def placeholder(dtype: Any, shape: Sequence[Any] = (), name: str | None = None) -> Tensor:
    """A node whose value is fed to each run: `session.run(y, {x: value})`.

    dtype: what fed values are converted to; a conversion that loses more than precision is refused.
    shape: sizes; None for one that is not known: the same unknown size at the same position of every placeholder, so that None in front is
    the batch size everywhere. A string names an unknown size of its own: ["batch", "time", 8]. Sizes that are computed from such a size
    (`x.shape[0] * 2`) are unknown, too, and follow it in each run. `gl.graph.unknown("time", 16)` is one that comparisons in the model see
    as 16.
    Raises RuntimeError outside of `with graph.as_default():`.
    """
    tracer = defining("placeholder")
    if isinstance(shape, (str, int)) or not hasattr(shape, "__iter__"):
        raise TypeError(f"placeholder: shape is a list of sizes, such as [None, 784], not {shape!r}")
    sizes: list[int] = []
    for i, size in enumerate(shape):
        if size is None or isinstance(size, str):
            sizes.append(unknown(f"?{i}" if size is None else size))
        elif isinstance(size, Dim):
            sizes.append(size)
        elif hasattr(size, "__index__") and size.__index__() >= 0:
            sizes.append(size.__index__())
        else:
            raise TypeError(f"placeholder: a size is a number from 0 up, None or the name of an unknown size, not {size!r}")
    made: Tensor = wrap(tracer.symbol(Spec(tuple(sizes), as_numpy(dtype))))
    number = made._array.id
    tracer.placeholders[number] = made
    tracer.places[number] = here()
    tracer.names[number] = tracer.owner.unique(name or "placeholder")
    tracer.running.add(number)
    return made


class Variable(Tensor):
    """A value that lasts from run to run of a session. `session.run(variable)` gives it; each session has its own.

    initial: a tensor of the graph, computed by `gl.global_variables_initializer()`, or a number, list or array.
    trainable: whether it requires gradients; floating point ones do by default.
    Raises RuntimeError outside of `with graph.as_default():`, TraceError where the shape of the initial value is not known.
    """

    __slots__ = ()
    __torch_function__ = disabled

    def __new__(cls, initial: Any, name: str | None = None, trainable: bool | None = None, dtype: Any = None) -> Any:
        made = object.__new__(cls)
        tracer = defining("Variable")
        given = initial if isinstance(initial, Differentiable) else tensor(initial, dtype=dtype)
        with no_grad():
            if dtype is not None:
                given = given.to(dtype)  # type: ignore[attr-defined]
            tracer.note((given,))
            symbol = tracer.run(clone, [tracer.lift(given._array)], {})
        made._array, made._meta = symbol, None
        floating = symbol.dtype in FLOATING
        if trainable and not floating:
            raise RuntimeError(f"Variable: only floating point variables can be trained, not {made.dtype}")
        made._edge = LEAF if (floating if trainable is None else trainable) else None
        state = tracer.variable(made, name or "variable", made._edge is not None, used=True)
        if name is None:
            state.place = here()
        return made

    def assign(self, value: Any) -> Tensor:
        """The assignment of a value; its fetch is the new value. `gl.assign`."""
        return assign(self, value)

    def assign_add(self, value: Any) -> Tensor:
        """The assignment of the variable plus a value."""
        return assign_add(self, value)

    def assign_sub(self, value: Any) -> Tensor:
        """The assignment of the variable minus a value."""
        return assign_sub(self, value)

    @property
    def initializer(self) -> Operation:
        """The operation that initialises this variable alone."""
        return variables_initializer([self])

    @property
    def name(self) -> str:
        """The variable's name in its graph."""
        array: Any = self._array
        return str(array.tracer.names[array.id])

    def __repr__(self) -> str:
        array: Any = self._array
        return f"<variable {self.name}: {self.dtype}{list(self.shape)}>" if type(array) is Symbol else super().__repr__()


def assign(ref: Any, value: Any, name: str | None = None) -> Tensor:
    """The assignment of a value to a variable, a module's parameter or buffer, or a tensor that the graph shares with eager code.

    Nothing happens until the result (or something computed from it) is fetched: it is the new value. Reads that were written before the
    assignment see the old value, later ones the new. A number is repeated to the variable's shape.
    Raises TypeError or ValueError where shape or dtype do not fit; TraceError for what is no variable.
    """
    tracer = defining("assign")
    if not isinstance(ref, Differentiable):
        raise TypeError(f"assign: to a variable, not {type(ref).__name__}")
    tracer.note((ref,))
    array: Any = ref._array
    if type(array) is not Symbol:
        tracer.lift(array)
    state = tracer.state_of(ref)
    if state is None:
        raise TraceError(f"assign: {tracer.described(array.id)} is computed, no variable: feed a value for it instead{at(here())}")
    want = state.symbol
    dtype = None if isinstance(value, np.ndarray) else ref.dtype  # type: ignore[attr-defined]
    given: Any = value if isinstance(value, Differentiable) else tensor(value, dtype=dtype)
    found = given._array.dtype
    if found != want.dtype and ((found in FLOATING) and want.dtype not in FLOATING):
        raise TypeError(f"assign: a value of type {found.name} does not fit variable {state.name} of type {want.dtype.name}; convert it")
    shape = tuple(given.shape)
    if shape != tuple(want.shape) and (given.numel() != 1 or len(shape) > len(want.shape)):
        raise ValueError(f"assign: a value of shape {shape} does not fit variable {state.name} of shape {tuple(want.shape)}")
    with no_grad():
        given = given.detach().to(ref.dtype)  # type: ignore[attr-defined]
        if tuple(given.shape) != tuple(want.shape):
            given = given.expand(want.shape)
        tracer.note((given,))
        made: Tensor = wrap(tracer.run(clone, [tracer.lift(given._array)], {}))
        before, tracer.group = tracer.group, []
        try:
            state.used = True
            tracer.write(ref, made._array)
            update = tracer.group[0]
        finally:
            tracer.group = before
    tracer.assigned[made._array.id] = update
    tracer.names[made._array.id] = tracer.owner.unique(name or f"{state.name}/assign")
    tracer.running.add(made._array.id)
    return made


def assign_add(ref: Any, value: Any, name: str | None = None) -> Tensor:
    """The assignment of a variable plus a value (see `assign`)."""
    with no_grad():
        return assign(ref, ref + value, name)


def assign_sub(ref: Any, value: Any, name: str | None = None) -> Tensor:
    """The assignment of a variable minus a value (see `assign`)."""
    with no_grad():
        return assign(ref, ref - value, name)


def global_variables_initializer() -> Operation:
    """The operation that initialises all variables of the default graph, those of modules and optimizers too: `session.run(it)`.

    Its random numbers are those that eager code would have drawn: seed with `gl.manual_seed` before the run.
    """
    return get_default_graph().operation("init", here(), initializes=[])


def variables_initializer(variables: Sequence[Any]) -> Operation:
    """The operation that initialises some variables. Raises TypeError for what is no variable of the graph."""
    if not variables:
        raise ValueError("variables_initializer: no variables given; global_variables_initializer() initialises all of them")
    states = []
    for v in variables:
        array = getattr(v, "_array", None)
        state = array.tracer.state_of(v) if type(array) is Symbol and hasattr(array.tracer, "state_of") else None
        if state is None:
            raise TypeError(f"variables_initializer: {type(v).__name__} is no variable of a graph")
        states.append(state)
    return states[0].symbol.tracer.owner.operation("init", here(), initializes=states)


def identity(input: Tensor, name: str | None = None) -> Tensor:
    """The tensor itself; in a graph its node gets that name, by which it can be fetched: `session.run("logits")`.

    >>> gl.identity(gl.ones(1), name="y")
    tensor([1.])
    """
    array: Any = input._array
    if name is not None and type(array) is Symbol and hasattr(array.tracer, "owner"):
        array.tracer.owner.set_name(input, name)
    return input
