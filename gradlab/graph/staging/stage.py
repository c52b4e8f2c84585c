"""Staging: one trace of a user's function for `compile`, with everything a later run has to find again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from gradlab.autograd import engine
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.errors import GraphError
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.node import Edge, next_sequence
from gradlab.autograd.record import refresh, wrap
from gradlab.device import CPU
from gradlab.graph.calls.gc_pause import without_collection
from gradlab.graph.calls.higher_order import stops_of
from gradlab.graph.executables.cuda.placement import on_one_device
from gradlab.graph.guards.freeze import freeze
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.reads import Reads
from gradlab.graph.guards.rebinding import Held, Holding, places_of
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.passes import Ran, operations, optimize
from gradlab.graph.staging.compile_tracer import LiveTracer
from gradlab.graph.staging.effects import Arguments, check_result, taken_apart
from gradlab.graph.staging.memory_sharing import Eager, Graded, Part, Recorded, Subclassed, check_apart, uses
from gradlab.graph.staging.results import GRADIENT, Result, results_of
from gradlab.graph.staging.symbol import Symbol, TraceError, unreadable
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.spec import spec_of
from gradlab.tensor.subclasses import disabled
from gradlab.tensor.tensor import Tensor


class Changed(TraceError):
    """The traced function changed Python values, which a replay would not change again.

    places  where it let them be other tensors: with these as further arguments and results (`Holding`) it can be traced. Empty where
            other things have changed as well
    filled  whether nothing but caches got entries, which are there after a run
    """

    def __init__(self, what: list[str], places: Sequence[Held] = (), filled: bool = False) -> None:
        self.what, self.places, self.filled = what, places, filled
        names = ", ".join(dict.fromkeys(what))
        super().__init__(
            f"compile: the function changes {names} while it runs; a replay of the traced program would not. Keep counters and histories "
            f"in tensors (buffers), or change them outside of the compiled function"
        )


@dataclass
class Backward:
    """The second half of a compiled function whose results require grad: from the results' gradients to the inputs' gradients."""

    roots: list[int]  # which values
    gradients: list[Value]  # their gradients, inputs of the backward program
    leaves: list[tuple[str, Any]]  # ("argument", position), ("tensor", tensor) or ("value", which); of one that nobody sees: None
    results: list[Value | None]  # the leaves' gradients, and behind them those of `late` by the other roots
    late: list[int]  # roots that went into arguments, of which the others are functions


@dataclass
class Staged:
    """A traced function.

    graph      forward and backward in one line
    outputs    where each tensor of the result comes from
    values     how many of graph.outputs are results; behind them are the gradients of the backward
    written    (argument, value): arguments that what was written to them put into the graph
    result     the structure of the result
    """

    graph: Graph
    arguments: int
    outputs: list[Result]
    values: int
    written: list[tuple[int, int]]
    result: Any
    hyper: list[tuple[dict[str, Any], tuple[Any, ...], Value]]
    tensors: list[tuple[Any, Any]]  # tensors from before the trace, and their arrays
    guards: Guards
    untouched: list[Any]  # leaves without a .grad
    backward: Backward | None = None
    twins: list[Any] = field(default_factory=list)  # what stood for the arguments in the trace
    traced: int = 0  # calls before the passes
    seconds: float = 0.0  # of the trace
    passes: list[Ran] = field(default_factory=list)
    edges: list[tuple[int, bool]] = field(default_factory=list)  # arguments that begin (or stop) to require grad in the function
    plain: bool = False  # whether the arguments are tensors, all different, passed by position
    views: list[tuple[Any, Any, Any]] = field(default_factory=list)  # views from before the trace, their bases, the rows between
    rebased: list[tuple[Any, Any]] = field(default_factory=list)  # those that follow what is written to their bases, and these
    looked_at: list[Any] = field(default_factory=list)  # leaves from before the trace whose .grad from before it is read
    named: frozenset[int] = frozenset()  # ids of tensors that code finds elsewhere: by a name, in a container, as an attribute
    without: frozenset[int] = frozenset()  # numbers of arguments without a .grad, at which the function has looked
    replaced: frozenset[int] = frozenset()  # ids of arguments' stand-ins whose .grad the function sets itself
    asked: frozenset[Any] = frozenset()  # ids of arrays from outside of which the trace has looked at how they lie


@without_collection()
def stage(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode, passes: Mapping[str, bool] | None = None,
    pure: bool = False,
) -> Staged:  # fmt: skip
    """Run `function` once over Symbols. Nothing outside is changed, whether it succeeds or not. Raises TraceError, or what it raises.

    pure: leave out what the function writes to arguments, state and gradients.
    """
    start, first = perf_counter(), next_sequence()
    given, structure = flatten([list(args), kwargs])
    tracer = LiveTracer(given[0].device if given else CPU)
    tracer.reseeded, tracer.unprintable = _reseeded, unreadable
    twins: dict[int, Any] = {}
    staged = []
    for tensor in given:
        if id(tensor) not in twins:
            if tensor._meta is not None:
                refresh(tensor)
            if type(tensor) is not Tensor and type(tensor).__torch_function__ is not disabled:
                raise Subclassed(len(twins), type(tensor))
            twin = tracer.stand_in(tensor._array)
            twin._edge = LEAF if tensor._edge is not None else None
            if tensor._edge is not None and tensor._edge is not LEAF:
                tracer.recorded[id(twin)] = Recorded(len(twins), tensor.shape)
            graded = None if tensor._grad is None else Graded(len(twins), tensor.shape)
            tracer.arguments[id(twin)] = len(twins), graded
            twins[id(tensor)] = twin
        staged.append(twins[id(tensor)])
    before = random.getstate(), np.random.get_state(legacy=False), _numpy_random()  # noqa: NPY002 - the user's generator is looked at
    places = places_of(function)
    reads = Reads(function.function if isinstance(function, Holding) else function, places)
    tracer.foreign = reads.foreign
    backward = None
    positional, named = unflatten(structure, staged)
    arguments = Arguments(positional, named)
    token = enter(mode.replace(tracer=tracer))
    try:
        with reads:
            result = function(*positional, **named)
        found, result_structure = taken_apart(result, tracer)
        if reads.why:
            raise TraceError(reads.why)
        check_result(result_structure)
        if random.getstate() != before[0] or _numpy_random() != before[2]:
            raise TraceError(
                "compile: the function drew random numbers from Python's or NumPy's generator; a replay would not draw again. "
                "Use gradlab's random functions, or draw outside and pass the numbers in as tensors"
            )
        edges = [
            (i, twin._edge is LEAF) for i, (twin, tensor) in enumerate(zip(staged, given, strict=True))
            if (tensor._edge is None) != (twin._edge is None) and (twin._edge is None or twin._edge is LEAF)
        ]  # fmt: skip
        _check_mode(mode)
        _check_gradients(tracer, given, staged)
        results = results_of(found, staged, tracer.before(), tracer.graded())
        if carried := [t for t in tracer.before() if _is_carried(t, first)]:
            raise Eager(
                f"the function writes what requires grad into a tensor that it finds elsewhere, of shape {carried[0].shape}, which then "
                f"has a graph beyond the call"
            )
        tracer.keep_gradients({id(r.place) for r in results.results if r.kind == GRADIENT}, staged)
        with reads:  # hooks and formulas of the user's
            try:
                backward = _differentiate(tracer, results.values, staged, results.written, first)
            except GraphError as error:  # eagerly that is so when backward is called, not before
                raise Eager(f"what the function returns or writes cannot be differentiated: {str(error).splitlines()[0]}") from None
        if reads.why:
            raise TraceError(reads.why)
        extra = [] if backward is None else [wrap(Symbol(v.id, v.spec, tracer)) for v in backward.results if v is not None]
        graph = tracer.finish([*results.values, *extra])
        if pure:
            graph.updates, graph.gradients = [], []
            graph = graph.without_dead_calls()
        if graph.updates:
            _check_memory(graph, list(dict.fromkeys(given)))
    except BaseException as error:
        tracer.restore()
        reads.changed()
        arguments.changed()
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002 - the same
        if reads.why and isinstance(error, TraceError):  # the cause of what came after it
            raise TraceError(f"compile: {reads.why}") from None
        raise
    finally:
        leave(token)
    changed, given_changed = reads.changed(), arguments.changed()
    if changed or given_changed:
        bound = [] if given_changed else _read(reads, reads.replaced(), tracer)
        raise Changed([*changed, *given_changed], bound, reads.filled and not given_changed)
    if late := [p for p in _read(reads, [p for p in places if not p.read], tracer) if p.read]:
        raise Changed([p.label for p in late], late)
    guards = Guards()
    reads.guard(guards, tracer.live())
    # An alias that an in-place operation made has been given a copy since: its tensor is known by itself.
    tensors = [(t, tracer.arrays[key]) for key, t in tracer.tensors.items() if t._array is tracer.arrays[key] and key not in tracer.views]
    traced, seconds = len(operations(graph.calls, True)), perf_counter() - start
    ran: list[Ran] = []
    graph = optimize(on_one_device(graph, tracer.devices, lambda array: tracer.is_constant(array, reads.young)), passes, ran)
    if backward is not None:  # a pass may have found another value that is the same
        renamed = iter(graph.outputs[len(results.values) :])
        backward.results = [None if v is None else next(renamed) for v in backward.results]
    looked_at, without, rebased = list(tracer.looked_at.values()), frozenset(tracer.without), list(tracer.rebased.values())
    replaced = frozenset(id(t) for t in twins.values() if id(t) not in tracer.arguments)
    named = frozenset(id(value) for _, _, value, _ in reads.chains.values() if isinstance(value, Differentiable))
    untouched = [] if pure else list(tracer.untouched.values())
    hyper, asked, views = tracer.hyper_values(), frozenset(tracer.asked), list(tracer.views.values())
    tracer.let_go()
    return Staged(
        graph, len(given), results.results, len(results.values), results.written, result_structure, hyper, tensors, guards, untouched,
        backward, staged, traced, seconds, ran, edges,
        not kwargs and all(isinstance(a, Differentiable) for a in args) and len(twins) == len(args), views, rebased, looked_at, named,
        without, replaced, asked,
    )  # fmt: skip


def _read(reads: Reads, places: Sequence[Held], tracer: LiveTracer) -> Sequence[Held]:
    """The places, with note of whether the trace has looked at what they hold."""
    for place in places:
        held = flatten(place.get())[0]
        place.read = reads.looks_at(place) or any(id(t) in tracer.tensors for t in held)
    return places


def _reseeded(name: str) -> TraceError:
    return TraceError(
        f"compile: the function makes, sets or reads a random generator ({name}), and a replay would go on with its numbers instead. "
        f"Do so outside of the compiled function: its numbers repeat with the seed"
    )


def _numpy_random() -> Any:
    return freeze(np.random.get_state(legacy=False))  # noqa: NPY002 - it is the user's generator that is looked at


def _is_carried(tensor: Any, first: int) -> bool:
    """Whether a tensor from before the trace now has a graph that was recorded in it, and that could still be differentiated."""
    edge = tensor._edge
    node = edge.node if isinstance(edge, Edge) else edge
    if node is None or node is LEAF or node.seq <= first:
        return False
    return all(n.saved is not None for n in engine.reachable([edge]) if n.seq > first)


def _check_mode(mode: Mode) -> None:
    """TraceError if the function has switched the grad mode or the like and left it so."""
    now = current()
    if now.recording != mode.recording or now.inference != mode.inference or now.autocast is not mode.autocast:
        raise TraceError(
            "compile: the function switches the grad mode, inference mode or autocast and leaves it so, which a replay would not do; use "
            "a with block (with gl.no_grad(): ...), or switch outside"
        )


def _check_gradients(tracer: LiveTracer, given: list[Any], staged: list[Any]) -> None:
    """TraceError where a backward in the function ends at an argument that has a graph of its own outside."""
    graded = set(map(id, tracer.graded()))
    for tensor, twin in zip(given, staged, strict=True):
        if tensor._edge is not None and tensor._edge is not LEAF and id(twin) in graded and twin._grad is not None:
            raise TraceError(
                f"compile: the function calls backward, which would go on in the graph of an argument (shape {tensor._array.shape}) "
                "that was computed outside. Compute it inside of the compiled function, pass it as x.detach() if its gradient is not "
                "wanted, or call backward outside, on what the function returns"
            )


def _check_memory(graph: Graph, given: Sequence[Any]) -> None:
    """SharedMemory where the graph takes what shares memory, and is written, for memory of its own."""
    written, used = uses(graph)
    parts = {v.id: Part(i, t._array) for i, (v, t) in enumerate(zip(graph.inputs, given, strict=True))}
    parts.update((v.id, Part(-1, array)) for v, array in graph.state.items())
    check_apart({number: part for number, part in parts.items() if number in used}, written)


def _differentiate(
    tracer: LiveTracer, found: list[Any], staged: list[Any], written: list[tuple[int, int]], first: int
) -> Backward | None:
    """Write the backward of the results behind the forward, if they can be differentiated: their graph is not freed.

    first: the sequence number at the start of the trace. Gradients end at tensors from before it, whose graphs are outside.
    """
    roots = [i for i, t in enumerate(found) if t._edge is not None and t._edge is not LEAF and type(t._array) is Symbol]
    nodes = [n for n in engine.reachable([found[i]._edge for i in roots]) if n.seq > first]
    if not roots or any(n.saved is None for n in nodes):
        return None
    inputs: list[Any] = []
    names: list[tuple[str, Any]] = []
    for i, t in enumerate(staged):
        if t._edge is LEAF and all(t is not other for other in inputs):
            inputs.append(t)
            names.append(("argument", i))
    for t in tracer.leaves(first):
        inputs.append(t)
        names.append(("tensor", t))
    for t in dict.fromkeys(t for n in nodes for t in n.edges if isinstance(t, Differentiable)):  # also leaves made in the function
        place = next((k for k, x in enumerate(found) if x is t), None)
        if all(t is not other for other in inputs) and (place is not None or not inputs):
            inputs.append(t)
            names.append(("value", place))
    if not inputs:
        return None
    stops = stops_of(inputs)
    symbols = [tracer.symbol(spec_of(found[i]._array)) for i in roots]
    starts = {i: wrap(s) for i, s in zip(roots, symbols, strict=True)}
    late = [k for _, k in written if k in starts]
    ends = {k: found[k]._edge.node if isinstance(found[k]._edge, Edge) else found[k]._edge for k in late}
    if any(ends[j] is node for k in late for node in engine.reachable([found[k]._edge]) for j in late if j != k):
        late = []  # what one gets through another is told apart nowhere
    rest = [i for i in roots if i not in late]
    through: list[Any] = []
    if late and rest:  # results are also functions of the arguments that were written: what such an argument gets is not counted twice
        through = engine.grad([found[i] for i in rest], [found[k] for k in late], [starts[i] for i in rest], True, False, False, stops)
        for k, g in zip(late, through, strict=True):
            if g is not None:
                starts[k] = starts[k] - g
    gradients = engine.grad([found[i] for i in roots], inputs, [starts[i] for i in roots], False, False, False, stops)
    values = [None if g is None else tracer.value(tracer.lift(g._array)) for g in (*gradients, *through)]
    return Backward(roots, [tracer.value(s) for s in symbols], names, values, late if any(g is not None for g in through) else [])
