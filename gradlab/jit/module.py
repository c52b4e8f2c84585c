"""`ScriptModule`: a traced or loaded program as a module, with its tensors under their names, run by the executables of `compile`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from gradlab import dispatch
from gradlab.autograd.base import LEAF
from gradlab.autograd.mode import current, set_grad_enabled
from gradlab.device import CPU, Device
from gradlab.graph.calls.compiled import Compiled
from gradlab.graph.control.body_call import KINDS
from gradlab.graph.ir.dims import Dim, is_unknown, known_sizes
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.ir.specialize import specialize
from gradlab.graph.staging.memory_sharing import Part, SharedMemory, check_apart, uses
from gradlab.graph.staging.tree import flatten
from gradlab.jit.limits import check_again, check_size
from gradlab.jit.portable import nested, structure_text
from gradlab.jit.program_data import Held, Plan
from gradlab.jit.replay import run, views_of_written
from gradlab.jit.writer import write
from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter


class Holder(Module):
    """A place in the tree of modules where tensors of a program have their names."""

    def tensor(self, name: str) -> Any:
        """One of its tensors. (A method, so that a compiled program knows that it depends on this table.)"""
        return self._parameters[name] if name in self._parameters else self._buffers[name]

    def _get_name(self) -> str:
        return "Module"


class _Once(Compiled):
    """Compiled at the first call of a kind: what was traced makes no lazy state."""

    eager_first = False


class ScriptModule(Module):
    """What `jit.trace` and `jit.load` return: a module whose forward is a static program.

    Its parameters and buffers have the names that they had in the traced module, and are the same tensors: both train, and move to
    another device, together. The mode is that of the trace: `train()` and `eval()` set `training` and change nothing else; as in PyTorch,
    trace in the mode that you want. Gradients go through a call to arguments and parameters.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.__dict__["_plan"] = plan
        self.__dict__["training"] = plan.training
        self.__dict__["_special"] = {}
        self.__dict__["_places"] = places = []
        for held in plan.held:
            for name in held.names:
                place = self._register(name, held)
            places.append(place)
        self.__dict__["_uses"] = uses(plan.graph)
        self.__dict__["_loops"] = any(c.op.name == "while_loop" for c in plan.graph.calls)
        self.__dict__["_compiled"] = (Compiled if plan.checked else _Once)(self._run)

    def _register(self, name: str, held: Held) -> tuple[Holder, str]:
        holder: Any = self
        *path, last = name.split(".")
        for part in path:
            if part not in holder._modules:
                holder._modules[part] = child = Holder()
                child.__dict__["_name"] = part
            holder = holder._modules[part]
        if isinstance(held.tensor, Parameter):
            holder._parameters[last] = held.tensor
        else:
            holder._buffers[last] = held.tensor
            if not held.persistent:
                holder._non_persistent_buffers_set.add(last)
        return holder, last

    tensor = Holder.tensor

    # ------------------------------------------------------------ running

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. ValueError where the arguments do not fit those of the trace."""
        args = self._positional(args, kwargs)
        if self._plan.graph.updates and current().tracer is None:
            self._check_memory(flatten(list(args))[0])
        if not self._plan.checked:
            return self._called(args)
        try:
            return self._called(args)
        except (ArithmeticError, LookupError, AttributeError) as error:
            if isinstance(error, IndexError):
                raise
            raise RuntimeError(f"{self._plan.title}: the program fails: {type(error).__name__}: {error}") from error

    def _called(self, args: tuple[Any, ...]) -> Any:
        # A compiled loop of unknown length has no backward; run call by call it has. So has what is written to an argument with a graph.
        recording = current().recording and current().tracer is None
        extends = self._plan.graph.updates and recording and any(t._edge not in (None, LEAF) for t in flatten(list(args))[0])
        if self._plan.careful or (self._loops and recording) or extends:
            return self._careful(*args) if self._plan.careful else self._run(*args)
        return self._compiled(*args)

    def _careful(self, *args: Any) -> Any:
        """Row by row in NumPy."""
        if current().tracer is not None or any(type(t._array) is not np.ndarray for t in (*flatten(list(args))[0], *self.tensors())):
            raise RuntimeError(
                f"{self._plan.title}: loaded from a file, this program runs on the CPU only, and not in a compiled function: it has rows "
                f"whose inputs only NumPy checks fully; load it with trusted=True where you know who made it"
            )
        return self._run(*args)

    def tensors(self) -> list[Any]:
        """The tensors that the program reads and writes, and the others of the traced module."""
        return [holder.tensor(name) for holder, name in self._places]

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        names = self._plan.names
        for name in names[len(args) :]:
            if name not in kwargs:
                break
            args = (*args, kwargs[name])
            kwargs = {k: v for k, v in kwargs.items() if k != name}
        if kwargs:
            taken = f"takes {', '.join(names)}" if names else "takes positional arguments only"
            raise TypeError(f"{self._plan.title}: unexpected argument {next(iter(kwargs))!r}; the program {taken}")
        return args

    def _run(self, *args: Any) -> Any:
        """The program, call by call: what is compiled, traced into other programs, and differentiated."""
        plan = self._plan
        given, structure = flatten(list(args))
        found = structure_text(structure)
        if found != plan.arguments:
            raise ValueError(f"{plan.title}: the program was traced for arguments {shown(plan.arguments)}, not {shown(found)}")
        self._check_layouts(given)
        tensors = self.tensors()
        device = self._where(given, tensors)
        for i in plan.moved:
            given[i] = given[i].to(device)
        for held, t in zip(plan.held, tensors, strict=True):
            if held.value is not None and (t._array.dtype != held.value.spec.dtype or tuple(t._array.shape) != held.value.spec.shape):
                spec = held.value.spec
                raise ValueError(
                    f"{plan.title}: the program's tensor {held.names[0]} is {t._array.dtype.name}{list(t._array.shape)}, the program was "
                    f"traced for {spec.dtype.name}{list(spec.shape)}; trace again"
                )
        graph = self._specialized(given)
        state = {held.value: t for held, t in zip(plan.held, tensors, strict=True) if held.value is not None}
        inputs, mode = given, current()
        if graph.updates and mode.recording:  # gradients need the values from before the write
            written = {old.id for old, _ in graph.updates}
            inputs = [t.clone() if v.id in written else t for v, t in zip(graph.inputs, given, strict=True)]
        env, updates = run(graph, inputs, state, device, plan.cuts)
        by_value = {v.id: t for v, t in state.items()} | {v.id: t for v, t in zip(graph.inputs, given, strict=True)}
        arguments = {v.id for v in graph.inputs}
        for old, new in updates:
            with set_grad_enabled(mode.recording and old.id in arguments and new._edge is not None):
                by_value[old.id].copy_(new)
        env |= views_of_written(graph, env, by_value, [number for kind, number in plan.outputs if kind == "value"])
        results = []
        for i, (kind, number) in enumerate(plan.outputs):
            result = env[number] if kind == "value" else given[number] if kind == "argument" else tensors[number]
            results.append(result.detach() if i in plan.ends else result)
        return nested(plan.result, iter(results))

    def _check_layouts(self, given: Sequence[Any]) -> None:
        """RuntimeError for an argument that lies otherwise than in the trace, where that decides what is written and what is shared."""
        for i, strides in self._plan.layouts.items():
            if given[i].stride() != strides if strides is not None else not given[i].is_contiguous():
                known = "that is contiguous" if strides is None else f"with {strides}"
                raise RuntimeError(
                    f"{self._plan.title}: argument {i} has stride {given[i].stride()}, but what the program writes or shares was decided "
                    f"for one {known}; pass such a one{', as x.contiguous()' if strides is None else ''}, or trace again with this one"
                )

    def _check_memory(self, given: Sequence[Any]) -> None:
        """RuntimeError for a tensor that the program writes and that shares memory with another one: it was traced for tensors apart."""
        written, used = self._uses
        parts = {v.id: Part(i, t._array) for i, (v, t) in enumerate(zip(self._plan.graph.inputs, given, strict=False)) if v.id in used}
        wanted = used if written & parts.keys() else written
        for held, t in zip(self._plan.held, self.tensors(), strict=True):
            if held.value is not None and held.value.id in wanted:
                parts[held.value.id] = Part(-1, t._array)
        try:
            check_apart(parts, written)
        except SharedMemory as sharing:
            raise RuntimeError(f"{self._plan.title}: {sharing}, but was traced for tensors apart; pass copies (clone())") from None

    def _where(self, given: Sequence[Any], tensors: Sequence[Any]) -> Device:
        """The device of the program's tensors, or else of the arguments."""
        moved = self._plan.moved
        for t in (*tensors, *(t for i, t in enumerate(given) if i not in moved)):
            return Device(t.device)
        return self._plan.graph.device

    def _specialized(self, given: Sequence[Any]) -> Graph:
        """The graph for arguments of these shapes."""
        plan, graph = self._plan, self._plan.graph
        shapes = tuple(tuple(t._array.shape) for t in given)
        unknown = False
        sizes: dict[str, int] = {}
        for i, (value, t, shape) in enumerate(zip(graph.inputs, given, shapes, strict=True)):
            unknown = unknown or is_unknown(value.spec.shape)
            if t._array.dtype != value.spec.dtype or not known_sizes(value.spec.shape, shape, sizes):
                name = f" ({plan.names[i]})" if i < len(plan.names) and len(plan.names) == len(shapes) else ""
                known = f"; sizes so far: {sizes}" if sizes else ""
                raise ValueError(
                    f"{plan.title}: argument {i}{name} is {t._array.dtype.name}{list(shape)}, but the program was traced for "
                    f"{value.spec.dtype.name}{list(value.spec.shape)}{known}"
                )
        if not unknown:
            return graph
        if any(isinstance(size, Dim) for size in sizes.values()):
            return specialize(graph, sizes)
        key = tuple(sizes.items())
        if key not in self._special:
            if len(self._special) > 64:
                self._special.clear()
            found = specialize(graph, sizes)
            if plan.checked:
                check_size(found)
                check_again(found)
            self._special[key] = found
        return self._special[key]

    # ------------------------------------------------------------ looking at it

    @property
    def graph(self) -> Graph:
        """The program's graph, its state the arrays of now: `print` it, or draw it with `graph.svg()`."""
        graph = self._plan.graph
        state = {}
        for held, (holder, name) in zip(self._plan.held, self._places, strict=True):
            if held.value is not None:
                state[held.value] = holder.tensor(name)._array
        found = [dispatch.backend_of(a).device_of(a) for a in state.values() if type(a) is not np.ndarray]
        device = found[0] if found else graph.device if not state else CPU
        return Graph(graph.inputs, state, graph.random, graph.calls, graph.outputs, graph.updates, [], device)

    @property
    def names(self) -> dict[Value, str]:
        """The name of each state value of `graph`."""
        return {held.value: held.names[0] for held in self._plan.held if held.value is not None}

    @property
    def code(self) -> str:
        """The program as readable text, its tensors by name."""
        text = str(self.graph)
        for value, name in self.names.items():
            text = text.replace(f"  %{value.id}: {value.spec.dtype.name}{list(value.spec.shape)} = state\n",
                                f"  %{value.id}: {value.spec.dtype.name}{list(value.spec.shape)} = {name}\n")  # fmt: skip
        return text

    def stats(self) -> Any:
        """What became of the program where it ran last (`Compiled.stats`)."""
        return self._compiled.stats()

    def kernels(self) -> dict[str, str]:
        """The kernels of the newest executable (`Compiled.kernels`)."""
        return self._compiled.kernels()

    def save(self, f: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the program with its tensors to a path (whole or not at all), or to a file open for writing, that `jit.load` reads."""
        write(self._plan, self.tensors(), f)

    def _get_name(self) -> str:
        return "ScriptModule"

    def extra_repr(self) -> str:
        """The traced function's name, and the size of its program."""
        calls = len(self._plan.graph.calls)
        loops = sum(c.op.name in KINDS for c in self._plan.graph.calls)
        return f"original_name={self._plan.title}, {calls} calls{f', {loops} of control flow' if loops else ''}"

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptModule:
        plan = self._plan
        held = []
        for old, (holder, name) in zip(plan.held, self._places, strict=True):
            tensor = holder.tensor(name)
            held.append(Held(old.value, list(old.names), tensor.__deepcopy__(memo), old.persistent))
        twin = ScriptModule(Plan(**{**vars(plan), "held": held}))
        memo[id(self)] = twin
        return twin

    def __reduce__(self) -> Any:
        raise TypeError("a ScriptModule is not pickled: use its save(path), and gradlab.jit.load(path)")


def shown(structure: Any) -> str:
    """The JSON of a structure for people: (tensor, {'a': tensor})."""
    if structure == "tensor":
        return "tensor"
    ((kind, content),) = structure.items()
    if kind == "value":
        return repr(content)
    if kind == "dict":
        return "{" + ", ".join(f"{k!r}: {shown(s)}" for k, s in zip(*content, strict=True)) + "}"
    if kind == "named":
        return f"{content[0]}({', '.join(map(shown, content[2]))})"
    inside = ", ".join(map(shown, content))
    return f"[{inside}]" if kind == "list" else f"({inside}{',' * (len(content) == 1)})"
