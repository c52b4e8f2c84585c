"""Programs: a traced graph that runs on real arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradlab import dispatch
from gradlab.autograd.base import LEAF
from gradlab.autograd.inplace import note_writes
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import wrap
from gradlab.graph.ir.dims import is_unknown, known_sizes, unknown
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.ir.specialize import specialize
from gradlab.graph.staging.tracer import Tracer
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.spec import spec_of


class Program:
    """Runs a graph: `program(*tensors)` gives what the traced function gave, computed anew.

    Arguments have the shapes and dtypes of the example (ValueError otherwise). State is read before and written after the calls, so an
    error in between changes nothing.
    """

    def __init__(self, graph: Graph, arguments: Any, result: Any, written: Sequence[Any] = ()) -> None:
        self.graph = graph
        self._written = written  # the tensors that hold the state which is written
        self._special: dict[tuple[Any, ...], Graph] = {}  # by the arguments' shapes, where some sizes are unknown
        self._unknown = any(is_unknown(v.spec.shape) for v in graph.inputs)
        self._arguments = arguments  # how the arguments nest
        self._result = result

    def __call__(self, *args: Any) -> Any:
        tensors, structure = flatten(args)
        if structure != self._arguments:
            raise ValueError("this program was traced with arguments of another structure")
        env: dict[int, Any] = {}
        graph = self.specialized([tensor._array.shape for tensor in tensors]) if self._unknown else self.graph
        for i, (value, tensor) in enumerate(zip(graph.inputs, tensors, strict=True)):
            if spec_of(tensor._array) != value.spec:
                raise ValueError(
                    f"argument {i} has shape {tensor._array.shape} and dtype {tensor._array.dtype}, but the program was traced for "
                    f"{value.spec.shape} and {value.spec.dtype}; trace again"
                )
            env[value.id] = tensor._array
        return unflatten(self._result, [wrap(a) for a in self.run(env, graph)])

    def specialized(self, shapes: Sequence[tuple[int, ...]]) -> Graph:
        """The graph for arguments of these shapes. Raises ValueError where they do not fit the unknown sizes."""
        key = tuple(shapes)
        if key not in self._special:
            sizes: dict[str, int] = {}
            for i, (value, shape) in enumerate(zip(self.graph.inputs, key, strict=True)):
                if not known_sizes(value.spec.shape, shape, sizes):
                    raise ValueError(f"argument {i} has shape {shape}, but the program was traced for {value.spec.shape}; sizes: {sizes}")
            self._special[key] = specialize(self.graph, sizes)
        return self._special[key]

    def run(self, env: dict[int, Any], graph: Graph | None = None) -> list[Any]:
        """Run the calls on arrays by value number, commit the updates, return the outputs. graph: another than the program's own."""
        graph = self.graph if graph is None else graph
        for value, array in graph.state.items():
            env[value.id] = array
        for generator, value, _ in graph.random:
            env[value.id] = dispatch.backend_for(graph.device).from_numpy(generator.state_array(), graph.device)
        for call in graph.calls:
            arrays = [env[x.id] if isinstance(x, Value) else x for x in call.inputs]
            backend = dispatch.choose(call.op, arrays) if arrays else dispatch.backend_for(call.params["device"])
            result = backend.run(call.op, arrays, call.params)
            for value, array in zip(call.outputs, (result,) if call.op.result is None else result, strict=True):
                env[value.id] = array
        outputs = [_copy(env[v.id]) for v in graph.outputs]
        gradients = [(leaf, None if v is None else _copy(env[v.id])) for leaf, v in graph.gradients]
        new = [(env[old.id], _copy(env[value.id])) for old, value in graph.updates]
        for target, array in new:
            dispatch.backend_of(target).assign(target, array)
        note_writes(self._written)
        for leaf, gradient in gradients:
            leaf._grad = None if gradient is None else wrap(gradient)
        for generator, _, words in graph.random:
            generator.advance(words)
        return outputs


def trace(function: Callable[..., Any], *example: Any, dynamic: Mapping[int, Mapping[int, Any]] | None = None) -> Program:
    """Run `function` once over Symbols of the example's shapes and dtypes; nothing outside changes. Arguments nest in lists, tuples, dicts.

    Tensors that the function uses and that are not arguments are state: read at each run, and written where the function writes them.
    One tensor passed twice is two arguments of the program.
    dynamic: sizes that may differ from the example's, by tensor (in the order of the arguments) and dimension: {0: {0: "batch"}}. One name
    is one size. A name alone stands for some large number in the traced code; `dims.unknown("time", 16)` says what comparisons see.
    Raises TraceError where the function reads a value or uses an operation whose result's size depends on values.
    """
    tensors, structure = flatten(example)
    tracer = Tracer(tensors[0].device) if tensors else Tracer()
    staged = []
    seen: set[int] = set()
    for i, tensor in enumerate(tensors):
        again = id(tensor._array) in seen  # one tensor as two arguments: the program is given two
        array = _copy(tensor._array) if again else tensor._array
        seen.add(id(array))
        twin = wrap(tracer.argument(array, _with(array.shape, (dynamic or {}).get(i, {}))))
        twin._edge = LEAF if tensor._edge is not None else None
        staged.append(twin)
    token = enter(current().replace(tracer=tracer))
    try:
        result = function(*unflatten(structure, staged))
        found, result_structure = flatten(result)
        graph = tracer.finish(found)
    except BaseException:
        tracer.restore()
        raise
    finally:
        leave(token)
    return Program(graph, structure, result_structure, tracer.rewritten())


def _with(shape: tuple[int, ...], unknown_sizes: Mapping[int, Any]) -> tuple[int, ...]:
    found = list(shape)
    for dim, size in unknown_sizes.items():
        found[dim] = unknown(size) if isinstance(size, str) else size
    return tuple(found)


def _copy(array: Any) -> Any:
    return dispatch.backend_of(array).copy(array)
