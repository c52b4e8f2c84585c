"""The tracer: a backend whose arrays are Symbols and whose way to run a row is to write it down.

Tensors from before the trace are state; those made in it are values. Writes to state become updates at the end of the program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import call_site, dispatch
from gradlab.autograd import errors, inplace
from gradlab.autograd.base import Version
from gradlab.autograd.mode import current
from gradlab.autograd.record import wrap
from gradlab.backends.cpu import number_spec
from gradlab.device import CPU, Device
from gradlab.dtype import HALF
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.staging.memory_sharing import Exchanged
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.graph.staging.symbol_strides import Layout, distance, made, outside, viewed
from gradlab.layout import NOT_TRACED
from gradlab.op import Op
from gradlab.ops.elementwise import cast, clone
from gradlab.spec import Spec, spec_of
from gradlab.strides import in_order, is_writable
from gradlab.tensor.bits import offset_of

BFLOAT16 = next(d for d in HALF if d.name == "bfloat16")


class Tracer:
    """Collects one graph. Set as `Mode.tracer` for the time of the trace."""

    staged = True
    runs_here = False  # whether the program is run by this process alone, so that it may have rows that are nothing to others
    node: Any = None  # in a backward, the node whose gradients are computed; the walk sets it

    def __init__(self, device: Device = CPU) -> None:
        self.device = device
        self.graph = Graph(device=device)
        self.devices: dict[int, Device] = {}  # of values by number, where it is known
        self.lowering: set[bool] = set()  # whether autocast was on where values were cast to bfloat16
        self._count = 0
        self._values: dict[int, Value] = {}  # symbol id -> value
        self._state: dict[int, tuple[Any, Symbol]] = {}  # id of an array -> the array (kept alive) and the symbol of its first value
        self._first: set[int] = set()  # ids of those symbols
        self._current: dict[int, Symbol] = {}  # id of an array -> the symbol of what it holds now
        self._home: dict[int, int] = {}  # symbol id -> id of the array that it was written to
        self._tensors: dict[int, tuple[Any, Any, Any]] = {}  # id of a tensor -> the tensor, its array and edge before the trace
        self._derived: dict[int, tuple[Any, Any, Any, int]] = {}  # id of a view -> it, its array and edge before, what it had seen
        self._versions: dict[int, tuple[Version, dict[str, Any]]] = {}  # by id, with what they said before the trace
        self._gradients: dict[int, tuple[Any, Any]] = {}  # id of a leaf -> the leaf and its .grad before the trace
        self._random: dict[int, list[Any]] = {}  # id of a generator -> generator, tensor of its state, words used
        # Ids of arrays from outside of which the trace has looked at how they lie, ("offset", id) where it has looked at where they begin.
        self.asked: set[Any] = set()
        self.values_by_layout = False  # whether values, and not only what is a view, depend on how an argument lies

    def symbol(self, spec: Spec, device: Device | None = None, layout: Layout | None = None) -> Symbol:
        """A new value. device: where it is; None for what is wherever the program runs. layout: how it lies; None for row by row."""
        self._count += 1
        self._values[self._count] = Value(self._count, spec)
        if device is not None:
            self.devices[self._count] = device
        return Symbol(self._count, spec, self, device, layout)

    def place(self, array: Any) -> Device | None:
        """The device of a real array. The first that is not the CPU is the program's. TraceError for another one."""
        if type(array) is np.ndarray:
            return CPU
        device = dispatch.backend_of(array).device_of(array)
        return self.meet(device)

    def meet(self, device: Device) -> Device:
        """Something of the program is on a device: with its number where it was "cuda". TraceError for a second GPU."""
        if device.type == "meta":
            raise TraceError("a tensor on device 'meta' has no values to compute with in a program; call the function itself")
        if device.type != "cpu" and device.index is None:
            backend: Any = dispatch.backend_for(device)
            device = Device(device.type, backend.driver.current_device())
        if device.type != "cpu" and device != self.device:
            if self.device.type != "cpu":
                raise TraceError(
                    f"compile: the function uses several devices, {self.device} and {device}; keep what it computes on one of them"
                )
            self.device = self.graph.device = device
        return device

    def value(self, symbol: Symbol) -> Value:
        """The graph's value of a symbol. TraceError for a symbol of another trace."""
        if symbol.tracer is not self:
            raise TraceError("a tensor of another trace was used in this one; pass it as an argument or return it from there")
        return self._values[symbol.id]

    def argument(self, array: Any, shape: tuple[int, ...] | None = None) -> Symbol:
        """A new input of the program, standing for an array that the caller will pass. Writes to it are updates, as those to state are.

        shape: where some sizes are to stay unknown (`dims.unknown`).
        """
        symbol = self._from_outside(array, array.shape if shape is None else shape)
        self.graph.inputs.append(self.value(symbol))
        key = id(array)
        if key in self._state:  # of two inputs with one array the first is read and written
            return self._current[key]
        self._state[key] = (array, symbol)
        self._first.add(symbol.id)
        self._current[key] = symbol
        self._home[symbol.id] = key
        return symbol

    def note(self, inputs: Any) -> None:
        """Called with the inputs of each operation; a tracer that has to know the tensors behind its state looks at them."""

    def refusal(self, leaf: Any) -> Exception | None:
        """Called with a leaf that is to be written in place: what to raise, where it stands for something else."""
        return None

    def detached(self, source: Any) -> None:
        """Called with a tensor of which `detach` makes a twin."""
        self.note((source,))

    def lift(self, array: Any) -> Symbol:
        """The symbol of an input: a symbol as it is, a real array as state."""
        if type(array) is Symbol:
            return array
        key = id(array)
        if key not in self._current:
            symbol = self._from_outside(array, array.shape)
            self._state[key] = (array, symbol)
            self._first.add(symbol.id)
            self._current[key] = symbol
            self.graph.state[self.value(symbol)] = array
        return self._current[key]

    def _from_outside(self, array: Any, shape: tuple[int, ...]) -> Symbol:
        if hasattr(array, "pattern"):
            raise NotImplementedError(f"a sparse tensor of shape {tuple(array.shape)}: {NOT_TRACED}")
        layout = outside(array, shape, lambda: self.asked.add(id(array)))
        return self.symbol(Spec(shape, array.dtype), self.place(array), layout)

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        """Write down one call."""
        if op.dynamic:
            place = call_site.locate(*call_site.caller(), None)
            raise TraceError(
                f"{op.name}: the size of the result depends on values, so it cannot be traced; use {op.instead} instead"
                f"{'' if place is None else f'{chr(10)}  at: {place}'}"
            )
        lifted = [a if a is None or isinstance(a, (int, float, complex)) else self.lift(a) for a in arrays]
        specs = [
            None if a is None else number_spec(a, lifted) if isinstance(a, (int, float, complex)) else Spec(a.shape, a.dtype)
            for a in lifted
        ]
        visible = params if lifted else {k: v for k, v in params.items() if k != "device"}
        device = self._device_of(op, lifted, params)
        results = op.specs(*specs, **visible)
        if op.view:
            layouts = [viewed(op, params, lifted[0])]
        elif op.lies is not None and any(type(a) is Symbol and a.layout is not None for a in lifted):
            layouts = [made(op, params, lifted, spec) for spec in results]
        else:
            layouts = [None] * len(results)
        outputs = [self.symbol(spec, device, layout) for spec, layout in zip(results, layouts, strict=True)]
        if op is cast and results[0].dtype == BFLOAT16 and self.node is None:
            self.lowering.add(current().autocast is not None)
        code, lasti = call_site.caller()
        scope = current().scope if self.node is None else getattr(self.node, "scope", None)
        self.graph.calls.append(
            Call(
                op,
                tuple(self.value(a) if isinstance(a, Symbol) else a for a in lifted),
                params,
                tuple(map(self.value, outputs)),
                (code, lasti, scope),
            )
        )
        return outputs[0] if op.result is None else tuple(outputs)

    def _device_of(self, op: Op, inputs: list[Any], params: dict[str, Any]) -> Device | None:
        """Where a call's results are. RuntimeError where its inputs are on different devices."""
        if op.name == "to_device" or not inputs:
            device: Device | None = params.get("device")
            return None if device is None else self.meet(device)
        found: Device | None = None
        for x in inputs:
            if isinstance(x, Symbol) and x.device is not None and x.device is not found and x.device != found:
                if found is not None:
                    raise dispatch.mixed(op, inputs)
                found = x.device
        return found

    # ------------------------------------------------------------ what the trace changes outside itself

    def write(self, tensor: Any, array: Any) -> None:
        """`tensor` (and whatever shares its memory) holds `array` from now on."""
        old = tensor._array
        if type(old) is Symbol:
            key = self._home.get(old.id)
        else:
            self.lift(old)
            key = id(old)
            self._tensors.setdefault(id(tensor), (tensor, old, tensor._edge))
        if key is not None and not is_writable(self._state[key][0]):
            raise errors.not_writable("writing in place", old.shape)
        new = self.lift(array)
        if key is not None and (new.shape, new.dtype) != (old.shape, old.dtype):  # `x.data = …` alone asks for that
            raise Exchanged(spec_of(old), spec_of(new))
        if new.id in self._home or new.id in self._first:  # one value in two places: a copy of its own
            new = self.run(clone, [new], {})
        new = self.lying_as(new, old)
        if key is not None:
            self._current[key] = new
            self._home[new.id] = key
        tensor._array = new

    def rewritten(self) -> list[Any]:
        """The tensors from before the trace that it has written."""
        return [tensor for tensor, _, _ in self._tensors.values()]

    def deriving(self, view: Any) -> None:
        """A view is about to be taken anew from what its base holds in the trace."""
        if type(view._array) is not Symbol:
            self._derived.setdefault(id(view), (view, view._array, view._edge, view._meta.seen))

    def writing(self, version: Version) -> None:
        """A write to memory is about to be noted."""
        self._versions.setdefault(id(version), (version, vars(version).copy()))

    def offset(self, tensor: Any) -> int:
        """Elements from the start of its memory to a tensor's first one. What is made in the trace begins where its memory does."""
        meta, base = tensor._meta, tensor
        if meta is not None and meta.base is not None:
            base = inplace.base_of(meta)
        array = base._array
        key = self._home.get(array.id) if type(array) is Symbol else id(array)
        start = 0
        if key is not None or id(array) in self._state:
            before = self._state[key][0] if key in self._state else array
            self.asked.add(("offset", id(before)))
            start = offset_of(before)
        away = 0 if base is tensor else distance(self.lift(array), meta.chain)
        return start + away // int(tensor._array.dtype.itemsize)

    def lying(self, new: Symbol, order: tuple[int, ...]) -> Symbol:
        """A new value whose dimensions lie in that order in memory."""
        return Symbol(new.id, spec_of(new), self, new.device, Layout(lambda: in_order(new.shape, order, new.dtype.itemsize)))

    def lying_as(self, new: Symbol, old: Any) -> Symbol:
        """What memory holds after a write: it lies where it lay."""
        if new.shape != old.shape:
            return new
        return Symbol(new.id, spec_of(new), self, new.device, self.lift(old).layout)

    def outside(self, tensor: Any) -> bool:
        """Whether a tensor is from outside the trace, or its array the newest value of memory from there: an argument's or state."""
        array = tensor._array
        return type(array) is not Symbol or array.id in self._home or id(tensor) in self._derived

    def has_gradient(self, leaf: Any) -> bool:
        """Whether the trace has set a tensor's gradient."""
        return id(leaf) in self._gradients

    def reads_gradient(self, leaf: Any, added: bool = False) -> None:
        """`leaf.grad` is looked at; added: by backward, which adds to it."""

    def before_gradient(self, leaf: Any, added: bool = False) -> None:
        """`leaf.grad` is about to be set; added: by backward, where there is none in the trace."""
        self._gradients.setdefault(id(leaf), (leaf, leaf._grad))

    def random_state(self, generator: Any) -> Any:
        """The tensor of the generator's state at the start of the program."""
        known = self._random.get(id(generator))
        if known is None:
            known = self._random[id(generator)] = [generator, wrap(self.symbol(spec_of(generator.state_array()))), 0]
        return known[1]

    def advance_random(self, generator: Any, words: int) -> int:
        """Reserve `words` of the generator's stream: their constant distance from the start of the program."""
        self.random_state(generator)
        known = self._random[id(generator)]
        offset: int = known[2]
        known[2] += words
        return offset

    def random_words(self, generator: Any) -> int:
        """How many words the program has drawn so far."""
        known = self._random.get(id(generator))
        words: int = 0 if known is None else known[2]
        return words

    def rewind_random(self, generator: Any, words: int) -> None:
        """Go back (or forth) to where the program had drawn that many words: a checkpoint computes the same again."""
        if words != self.random_words(generator):
            self.random_state(generator)
            self._random[id(generator)][2] = words

    def finish(self, outputs: list[Any]) -> Graph:
        """Put everything outside back as it was; what was changed is now in the graph."""
        graph = self.graph
        graph.autocast = self.lowering == {True}
        graph.outputs = [self.value(self.lift(t._array)) for t in outputs]
        for key, (_, first) in self._state.items():
            last = self._current[key]
            if last is not first:
                graph.updates.append((self.value(first), self.value(last)))
        for leaf, before in self._gradients.values():
            after = leaf._grad
            graph.gradients.append((leaf, None if after is None else self.value(self.lift(after._array))))
            leaf._grad = before
        self.restore()
        graph.random = [(g, self.value(state._array), words) for g, state, words in self._random.values()]
        return graph.without_dead_calls()

    def restore(self) -> None:
        """Undo the trace's changes to tensors from before it."""
        for tensor, array, edge in self._tensors.values():
            tensor._array, tensor._edge = array, edge
        for view, array, edge, seen in self._derived.values():
            view._array, view._edge, view._meta.seen = array, edge, seen
        for version, said in self._versions.values():
            vars(version).clear()
            vars(version).update(said)
        for leaf, before in self._gradients.values():
            leaf._grad = before
