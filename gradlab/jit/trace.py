"""`jit.trace`: run a function once, and keep what it computed as a program that can be saved."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

from gradlab import dispatch
from gradlab.advice import GradlabWarning
from gradlab.autograd import engine
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.function import FunctionNode
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import refresh, wrap
from gradlab.device import CPU
from gradlab.dtype import FLOATING
from gradlab.graph.executables.cuda.placement import on_one_device
from gradlab.graph.ir.dims import is_unknown, unknown
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.staging.compile_tracer import LiveTracer
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.jit.attributes import Attributes
from gradlab.jit.check_trace import check
from gradlab.jit.module import ScriptModule
from gradlab.jit.portable import structure_text
from gradlab.jit.program_data import CONSTANTS, Held, Plan
from gradlab.jit.strip_gradients import cleaned
from gradlab.nn.module import Module
from gradlab.nn.multi_output_node import joined
from gradlab.nn.parameter import is_lazy
from gradlab.op import Op
from gradlab.ops.elementwise import clone

Sizes = Mapping[int, Mapping[int, Any]]


class _Tracer(LiveTracer):
    """Also remembers which inputs of each call were in the autograd graph: that is how detach() and no_grad() get into the program."""

    runs_here = False
    follows = False  # a buffer has its own place in the program's file

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.edges: dict[int, tuple[bool, ...]] = {}  # by a call's first output
        self.written: set[int] = set()  # ids of tensors
        self.copies_written = False  # whether a copy was written in place: it may be one that another layout makes needless
        self.quietly_written = False  # whether a tensor that is in the autograd graph was written under no_grad
        self._copies: set[int] = set()
        self._noted: tuple[bool, ...] | None = None

    def note(self, inputs: Any) -> None:
        super().note(inputs)
        self._noted = tuple(isinstance(x, Differentiable) and x._edge is not None for x in inputs) if current().recording else None

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        noted, self._noted = self._noted, None
        result = super().run(op, arrays, params)
        call = self.graph.calls[-1]
        if op is clone:
            self._copies.add(result.id)
        if noted is not None and len(noted) == len(call.inputs):
            self.edges[call.outputs[0].id] = noted
        return result

    def write(self, tensor: Any, array: Any) -> None:
        self.copies_written |= type(tensor._array) is Symbol and tensor._array.id in self._copies
        super().write(tensor, array)
        self.written.add(id(tensor))
        self.quietly_written |= tensor._edge is not None and not current().recording
        self._noted = None


def trace(
    func: Any, example_inputs: Any, *, example_kwarg_inputs: Mapping[str, Any] | None = None, dynamic: Sizes | None = None,
    check_trace: bool = True, check_tolerance: float = 1e-5, check_inputs: Sequence[Any] | None = None, strict: bool = True,
) -> ScriptModule:  # fmt: skip
    """Run a function or module once on the example, and return what it computed as a program: a module that can be called and saved.

    example_inputs: a tuple of arguments (a single tensor may stand alone): tensors, nested in tuples, lists and dicts; other values
    (numbers, strings, None) are fixed. Calls take the same shapes and dtypes. Keyword arguments of the example become positional ones.
    dynamic: sizes that may differ from the example's, by tensor in the order of the arguments, and dimension: {0: {0: "batch"}}; one name
    is one size. The program is then specialised for each size that it meets.
    check_trace: run the function and the program on the example and compare, each from the same state and random numbers; and on each of
    check_inputs, more examples. strict: without effect; results may be lists and dicts.

    Python's decisions are those of the example, and so are numbers computed outside of gradlab; decisions on tensors stay in the program
    where they are made with `gl.cond`, `gl.switch`, `gl.while_loop`, `gl.scan`, or in a function that `jit.script` rewrote. Buffers that
    the function changes change at each call; random numbers are drawn anew. `detach()` and `no_grad()` outside of control flow are part of
    the program. Raises TraceError where a value is read, Python state changes, backward() is called or several devices are used.

    >>> import gradlab as gl
    >>> program = gl.jit.trace(lambda x: gl.relu(x) * 2, gl.tensor([-1.0, 3.0]))
    >>> program(gl.tensor([5.0, -2.0]))
    tensor([10.,  0.])
    """
    args = _arguments(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    module = _owner(func)
    if module is not None and any(is_lazy(p) for p in (*module.parameters(), *module.buffers())):
        raise TraceError("jit.trace: the module has parameters without a shape yet; call it once before")
    names = _names(func, args, kwargs)
    if kwargs and len(names) < len(args) + len(kwargs):
        raise TypeError(f"jit.trace: the function's arguments {', '.join(kwargs)} cannot be made positional; pass them in example_inputs")
    values = [*args, *kwargs.values()]

    def called(*given: Any) -> Any:
        return func(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

    plan = _Trace(called, module, values, dynamic or {}).plan(_title(func), names)
    if check_trace:
        for example in (values, *([*_arguments(more)] for more in check_inputs or ())):
            check(called, ScriptModule(plan), example, check_tolerance)
    return ScriptModule(plan)


def _arguments(example: Any) -> tuple[Any, ...]:
    if isinstance(example, Differentiable):
        return (example,)
    if isinstance(example, (tuple, list)) and not hasattr(example, "_fields"):
        return tuple(example)
    raise TypeError(f"jit.trace: example_inputs is a tuple of the arguments, not {type(example).__name__}; for one argument write (x,)")


def _owner(func: Any) -> Module | None:
    """The module whose names count."""
    if isinstance(func, Module):
        return func
    if not callable(func):
        raise TypeError(f"jit.trace: expected a function or a module, not {type(func).__name__}")
    owner = func.__self__ if isinstance(func, MethodType) else None
    return owner if isinstance(owner, Module) else None


def _title(func: Any) -> str:
    return getattr(func, "__qualname__", None) or type(func).__name__


def _names(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The names of the arguments, as far as a signature tells them."""
    try:
        parameters = list(inspect.signature(func.forward if isinstance(func, Module) else func).parameters.values())
    except (TypeError, ValueError):
        return []
    plain = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return [*plain[: len(args)], *kwargs] if len(plain) >= len(args) else []


class _Trace:
    """One run over Symbols."""

    def __init__(self, called: Any, module: Module | None, values: list[Any], dynamic: Sizes) -> None:
        self.called, self.module = called, module
        self.given, self.structure = flatten(values)
        self.dynamic = dynamic
        if odd := [i for i in dynamic if not 0 <= i < len(self.given)]:
            raise ValueError(f"jit.trace: dynamic names tensor {odd[0]}, and the arguments have {len(self.given)}")
        self.arguments = structure_text(self.structure)
        self.tracer = _Tracer(self.given[0].device if self.given else CPU)
        self.twins: list[Any] = []
        self.arrays: list[Any] = []  # what the twins stand for
        self.found: list[Any] = []
        self.connected: set[int] = set()

    def _twin(self, i: int, tensor: Any) -> Any:
        """What stands for an argument. It is in the autograd graph, as the argument of a later call may be."""
        if tensor._meta is not None:
            refresh(tensor)
        shape = tuple(tensor._array.shape)
        for dim, name in self.dynamic.get(i, {}).items():
            if not -len(shape) <= dim < len(shape):
                raise IndexError(f"jit.trace: dynamic names dimension {dim} of tensor {i}, which has shape {shape}")
            dim %= len(shape)
            shape = (*shape[:dim], unknown(name) if isinstance(name, str) else name, *shape[dim + 1 :])
        array = tensor._array
        if any(array is other._array for other in self.given[:i]):  # one tensor for two arguments: later calls may give two
            array = dispatch.backend_of(array).copy(array)
        self.arrays.append(array)
        symbol = self.tracer.argument(array, shape)
        if tensor._edge is LEAF or tensor._array.dtype not in FLOATING or not current().recording:
            twin = wrap(symbol)
            twin._edge = None if tensor._edge is None else LEAF
            return twin
        leaf = wrap(symbol)
        leaf._edge = LEAF
        return joined("Argument", [leaf], [symbol], lambda g: g)[0]  # no leaf: the function may write it in place

    def plan(self, title: str, names: list[str]) -> Plan:
        tracer = self.tracer
        self.twins = [self._twin(i, tensor) for i, tensor in enumerate(self.given)]
        attributes = Attributes(self.module)
        token = enter(current().replace(tracer=tracer))
        try:
            given = unflatten(self.structure, self.twins)
            result = self.called(*given)
            self.found, structure = flatten(result)
            for t in self.found:
                if t._meta is not None:
                    refresh(t)
            result_text = structure_text(structure)
            ends = self._ends()
            graph = tracer.finish(self.found)
        except BaseException:
            tracer.restore()
            attributes.changed()
            raise
        finally:
            leave(token)
        if changed := attributes.changed():
            raise TraceError(
                f"jit.trace: the function changes {', '.join(dict.fromkeys(changed))} while it runs; the program would not. Keep counters "
                f"and histories in buffers, call the function once before where it sets itself up, or change them outside"
            )
        if graph.gradients or tracer.hyper:
            raise TraceError("jit.trace: the function calls backward() or an optimizer; trace the forward alone, and train the program")
        moved = [
            i for i, v in enumerate(graph.inputs)
            if tracer.devices.get(v.id, graph.device) != graph.device and any(c.op.name == "to_device" for c in graph.calls)
        ]  # fmt: skip
        layouts = self._layouts(graph)
        graph = cleaned(on_one_device(graph, tracer.devices))
        held = self._held(graph)
        outputs = self._outputs(graph, held)
        cuts = self._cuts(graph, held)
        ends = [i for i in ends if graph.outputs[i].id in self.connected]
        graph = Graph(graph.inputs, {}, graph.random, graph.calls, graph.outputs, graph.updates, [], graph.device)
        training = self.module.training if self.module is not None else False
        return Plan(title, graph, self.arguments, result_text, names, outputs, held, cuts, ends, moved, training, layouts=layouts)

    def _layouts(self, graph: Graph) -> dict[int, tuple[int, ...] | None]:
        """How those arguments lie of which the trace has looked at that, if it decides what is written and whose memory results share."""
        made = {c.outputs[0].id: c for c in graph.calls}
        ends = {old.id for old, _ in graph.updates}
        copied = self.tracer.copies_written or self.tracer.values_by_layout
        for value in graph.outputs:
            at = value.id
            while at in made and made[at].op.view:
                at = made[at].inputs[0].id
            ends.add(at)
            copied = copied or (at in made and made[at].op is clone)
        found: dict[int, tuple[int, ...] | None] = {}
        for i, (value, array) in enumerate(zip(graph.inputs, self.arrays, strict=True)):
            if ("offset", id(array)) in self.tracer.asked:
                raise TraceError(
                    f"jit.trace: what the function computes depends on where argument {i} begins in its memory, which no program asks: "
                    f"call as_strided without a storage offset, on a part of the argument"
                )
            if id(array) in self.tracer.asked and (copied or value.id in ends):
                found[i] = None if array.flags.c_contiguous else self.given[i].stride()
                if found[i] is not None and is_unknown(value.spec.shape):
                    raise TraceError(
                        f"jit.trace: what the function writes or shares depends on how argument {i} lies in memory, which of another size "
                        f"is not known; pass x.contiguous() as the example"
                    )
        return found

    def _ends(self) -> list[int]:
        """Results without a gradient."""
        if not current().recording:
            return []
        roots = [t._edge for t in self.found if t._edge is not None and t._edge is not LEAF]
        for node in engine.reachable(roots):
            if isinstance(node, FunctionNode) and not node.function.__module__.startswith("gradlab."):
                warnings.warn(
                    f"jit.trace: the backward of {node.function.__name__} is Python code, which a program cannot hold; the program is "
                    f"differentiated by the operations of its forward",
                    GradlabWarning, stacklevel=5,
                )  # fmt: skip
        if self.tracer.quietly_written:
            warnings.warn(
                "jit.trace: the function writes a tensor that requires grad under no_grad; the program's gradients go through what is "
                "written. Compute out of place, or write before the program",
                GradlabWarning, stacklevel=5,
            )  # fmt: skip
        return [i for i, t in enumerate(self.found) if t._edge is None]

    def _held(self, graph: Graph) -> list[Held]:
        """The tensors that the program needs, and all of the module's, with their names."""
        tracer = self.tracer
        named: dict[int, tuple[Any, list[str]]] = {}
        if self.module is not None:
            tables = (self.module.named_parameters(remove_duplicate=False), self.module.named_buffers())
            for name, own in (item for table in tables for item in table):
                named.setdefault(id(own), (own, []))[1].append(name)
        order = {names[0]: i for i, (_, names) in enumerate(named.values())}
        passing = set()
        for prefix, part in self.module.named_modules() if self.module is not None else ():
            passing |= {f"{prefix}.{n}".lstrip(".") for n in part._non_persistent_buffers_set}
        # Of the tensors of one memory the module's own, or the one that was written: others are its aliases.
        by_array: dict[int, Any] = {}
        for key, known in sorted(tracer.tensors.items(), key=lambda item: (item[0] in named, item[0] in tracer.written)):
            by_array[id(tracer.arrays[key])] = known
        read = {v.id for c in graph.calls for v in c.inputs if isinstance(v, Value)}
        read |= {v.id for v in graph.outputs} | {v.id for pair in graph.updates for v in pair}
        held: list[Held] = []
        for value, array in graph.state.items():
            t: Any = by_array.get(id(array))
            if t is not None and t._edge is not None and t._edge is not LEAF:
                raise TraceError(
                    f"jit.trace: a tensor from outside (shape {tuple(array.shape)}) is the result of recorded operations; pass it as an "
                    f"argument, or detach() it before"
                )
            if value.id not in read and id(t) not in named:
                continue
            if t is not None and id(t) in named:
                names = named.pop(id(t))[1]
                held.append(Held(value, names, t, names[0] not in passing))
            else:
                number = sum(h.names[0].startswith(CONSTANTS) for h in held)
                held.append(Held(value, [f"{CONSTANTS}.{number}"], wrap(array) if t is None else t, False))
        held += [Held(None, names, own, names[0] not in passing) for own, names in named.values()]
        return sorted(held, key=lambda h: order.get(h.names[0], len(order)))

    def _outputs(self, graph: Graph, held: list[Held]) -> list[tuple[str, int]]:
        """Where each tensor of the result comes from."""
        arguments = {id(t): i for i, t in enumerate(self.twins)}
        state = {id(h.tensor): i for i, h in enumerate(held)}
        return [
            ("argument", arguments[id(t)]) if id(t) in arguments else ("state", state[id(t)]) if id(t) in state else ("value", v.id)
            for t, v in zip(self.found, graph.outputs, strict=True)
        ]

    def _cuts(self, graph: Graph, held: list[Held]) -> dict[int, tuple[int, ...]]:
        """Inputs of calls that were not in the autograd graph, though what made them was."""
        cuts: dict[int, tuple[int, ...]] = {}
        self.connected = connected = {v.id for v in graph.inputs if v.spec.dtype in FLOATING}
        connected |= {h.value.id for h in held if h.value is not None and h.tensor._edge is not None}
        if not current().recording:
            return {}
        for call in graph.calls:
            edges = self.tracer.edges.get(call.outputs[0].id)
            inside = [i for i, x in enumerate(call.inputs) if isinstance(x, Value) and x.id in connected]
            cut = tuple(i for i in inside if edges is not None and not edges[i])
            if cut:
                cuts[call.outputs[0].id] = cut
            if len(cut) < len(inside) and (call.op.steps or "flow" in call.params):
                connected |= {v.id for v in call.outputs if v.spec.dtype in FLOATING}
        return cuts
