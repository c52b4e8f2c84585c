"""What the caller of `export` passes: the names of inputs, outputs and parameters, and which sizes are dynamic."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.calls.compiled import Compiled
from gradlab.graph.calls.decorator import CompiledModule
from gradlab.graph.ir.dims import Dim
from gradlab.graph.staging.program import Program
from gradlab.graph.staging.tree import LEAF, has_keys
from gradlab.nn import Module
from gradlab.onnx.loading import OnnxModel


def plain(model: Any) -> Any:
    """A model without what compiles it. TypeError for what cannot be called."""
    if isinstance(model, CompiledModule):
        return model.module
    if isinstance(model, Compiled):
        return model.function
    if not callable(model):
        raise TypeError(f"onnx.export: a module, a function or a traced program is exported, not {type(model).__name__}")
    return model


# ---------------------------------------------------------------- inputs and outputs


def paths(structure: Any, name: str) -> Iterator[str]:
    """Names of the tensors in a nested value: keys, fields and numbers behind the value's own name."""
    if structure == LEAF:
        yield name
        return
    kind = structure[0]
    if kind == "value":
        return
    if has_keys(kind):
        for key, part in zip(structure[1], structure[2], strict=True):
            yield from paths(part, f"{name}_{key}" if name else str(key))
        return
    fields = getattr(kind, "_fields", range(len(structure[1])))
    for key, part in zip(fields, structure[1], strict=True):
        yield from paths(part, f"{name}_{key}" if name else str(key))


def input_names(model: Any, structure: Any, given: Sequence[str] | None) -> list[str]:
    """The inputs' names: those given, or those of the function's parameters."""
    function = model.forward if isinstance(model, Module) else model
    parameters: list[str] = list(model.input_names) if isinstance(model, OnnxModel) else []
    if not isinstance(model, (Program, OnnxModel)):
        try:
            every = inspect.signature(function).parameters.values()
            parameters = [p.name for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        except (TypeError, ValueError):
            pass
    parts = structure[1]
    names = [n for i, part in enumerate(parts) for n in paths(part, parameters[i] if i < len(parameters) else f"input_{i}")]
    return named("input_names", names, given)


def output_names(model: Any, structure: Any, given: Sequence[str] | None) -> list[str]:
    """The outputs' names: those given, those of a loaded file (of a sequence among them with numbers behind), or "output", "output_0",
    a dict's keys, a named tuple's fields."""
    if given is None and isinstance(model, OnnxModel):
        results = [structure] if len(model.output_names) == 1 else structure[1]
        return named("output_names", [n for name, part in zip(model.output_names, results) for n in paths(part, name)], None)
    keyed = structure != LEAF and (has_keys(structure[0]) or hasattr(structure[0], "_fields"))
    return named("output_names", list(paths(structure, "" if keyed else "output")), given)


def named(what: str, names: list[str], given: Sequence[str] | None) -> list[str]:
    """Distinct names. ValueError for as many as there are not."""
    if given is not None:
        if len(given) != len(names) or len(set(given)) != len(given) or not all(isinstance(n, str) and n for n in given):
            raise ValueError(f"onnx.export: {what} {list(given)!r} does not name {len(names)} tensors, each differently")
        return list(given)
    found: list[str] = []
    for name in names:
        fresh, number = name, 1
        while fresh in found:
            fresh, number = f"{name}_{number}", number + 1
        found.append(fresh)
    return found


# ---------------------------------------------------------------- dynamic sizes

Dynamic = dict[int, dict[int, Any]]


def axes(dynamic_axes: Any, outputs: Sequence[str] | None) -> Any:
    """PyTorch's `dynamic_axes` as `dynamic`: without the outputs; dimensions in a list are named after the input, as PyTorch does."""
    if not isinstance(dynamic_axes, Mapping):
        return dynamic_axes
    return {
        name: value if isinstance(value, Mapping) else {d: f"{name}_dynamic_axes_{i + 1}" for i, d in enumerate(value)}
        for name, value in dynamic_axes.items()
        if name not in (outputs or ("output",))
    }


def dynamic_sizes(dynamic: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Dynamic:
    """Of each input (by number) the dimensions whose sizes are dynamic: a name, or a size of `gradlab.graph.ir.dims.unknown`.

    Raises ValueError or TypeError for inputs, dimensions and names that are none, and where one name stands for different sizes.
    """
    found: Dynamic = {}
    if dynamic is None:
        return found
    if isinstance(dynamic, Sequence) and not isinstance(dynamic, str):
        dynamic = {i: d for i, d in enumerate(dynamic) if d}
    if not isinstance(dynamic, Mapping):
        raise TypeError(f'onnx.export: dynamic is a dict such as {{"{names[0] if names else "x"}": {{0: "batch"}}}}, not {dynamic!r}')
    sizes: dict[str, int] = {}
    for key, value in dynamic.items():
        at = position(key, names)
        for dim, name in dimensions(value, len(shapes[at]), names[at]):
            if isinstance(name, Dim) and not isinstance(name.expr, str):
                raise ValueError(f"onnx.export: the size {name} of input {names[at]} is computed from others; name it")
            label = name.expr if isinstance(name, Dim) else name
            if not isinstance(label, str) or not label:
                raise TypeError(f"onnx.export: a dynamic size is named by a string, not {name!r}")
            size = int(shapes[at][dim])
            if sizes.setdefault(label, size) != size:
                raise ValueError(f"onnx.export: the example has {sizes[label]} and {size} where the dynamic size {label!r} stands")
            found.setdefault(at, {})[dim] = name
    return found


def position(key: Any, names: Sequence[str]) -> int:
    """Which input a key means."""
    if isinstance(key, str) and key in names:
        return list(names).index(key)
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names):
        return key
    raise ValueError(f"onnx.export: dynamic names the input {key!r}; there are {', '.join(names)}")


def dimensions(value: Any, rank: int, name: str) -> Iterator[tuple[int, Any]]:
    """The dimensions and their names."""
    if isinstance(value, Mapping):
        for dim, size in value.items():
            if not isinstance(dim, int) or not -rank <= dim < rank:
                raise ValueError(f"onnx.export: dynamic names dimension {dim!r} of input {name}, which has {rank} dimensions")
            if size is not None:
                yield dim % rank, size
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != rank:
            raise ValueError(f"onnx.export: dynamic gives {len(value)} sizes for input {name}, which has {rank} dimensions")
        yield from ((d, s) for d, s in enumerate(value) if s is not None)
    else:
        raise TypeError(f'onnx.export: dynamic sizes of input {name} are {{0: "batch"}} or ["batch", None], not {value!r}')


# ---------------------------------------------------------------- parameters


def parameter_names(model: Any) -> dict[int, str]:
    """The names of parameters and buffers, by the arrays that they hold: the module's own, or those that the function sees it under."""
    found: dict[int, str] = {}
    if isinstance(model, OnnxModel):
        return {id(array): name for name, array in model.named_arrays()}
    if isinstance(model, Module):
        add_module(found, model, "")
        return found
    for name, value in surroundings(model):
        if isinstance(value, CompiledModule):
            value = value.module
        if isinstance(value, Module):
            add_module(found, value, name + ".")
        elif isinstance(value, Differentiable):
            found.setdefault(id(value._array), name)
    return found


def add_module(found: dict[int, str], module: Module, prefix: str) -> None:
    """A module's tensors."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        found.setdefault(id(tensor._array), prefix + name)


def surroundings(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function can see by name: its object, its closure, the globals it reads."""
    owner = getattr(function, "__self__", None)
    if owner is not None:
        yield "self", owner
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    everything = getattr(function, "__globals__", {})
    for name in code.co_names:
        if name in everything:
            yield name, everything[name]
