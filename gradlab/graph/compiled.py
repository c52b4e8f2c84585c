"""`compile`: a function that runs as a static program wherever the conditions of an earlier trace hold."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, TypeVar, overload

from gradlab import dispatch
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.dtype import get_default_dtype
from gradlab.graph.again import Gradients
from gradlab.graph.checking import compared
from gradlab.graph.collection import without_collection
from gradlab.graph.freeze import freeze
from gradlab.graph.ir import Value
from gradlab.graph.memory import give_back
from gradlab.graph.native.watch import Found
from gradlab.graph.quick import quickest
from gradlab.graph.runner import Call, Runner
from gradlab.graph.stage import Backward, Changed, Staged, stage
from gradlab.graph.stats import Stats, kernels, stats
from gradlab.nn.module import Module

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("gradlab.compile")
TWICE = "compile: gradients of gradients (create_graph=True) run the compiled function's trace anew, with what it read"
MANY = 8  # programs of one function that are normal


class Compiled:
    """What `compile` returns: call it as the function. `programs` holds what was traced so far, the newest first."""

    eager_first = True  # whether the first call of a kind runs eagerly: it makes the lazy state

    def __init__(
        self, function: Callable[..., Any], check: bool = False, explain: bool = False, passes: Mapping[str, bool] | None = None
    ) -> None:
        self.function, self.check, self.passes = function, check, passes
        self._tell = print if explain else _log.info
        self.programs: list[Program] = []
        self._signatures: list[Any] = []
        self._leaks = 0
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = current()
        if mode.special and not _stageable(mode):
            return self.function(*args, **kwargs)
        for program in self.programs:
            if program.guard(args, kwargs, mode):
                if program is not self.programs[0]:
                    self.programs.remove(program)
                    self.programs.insert(0, program)
                return program.run(args, kwargs)
        return self._miss(args, kwargs, mode)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled method: one set of programs for each instance, told apart by the guards."""
        return self if instance is None else functools.partial(self, instance)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
        if os.environ.get("GRADLAB_COMPILE") == "0":
            return self.function(*args, **kwargs)
        signature = _signature(args, kwargs, mode)
        if self.eager_first and signature not in self._signatures:
            self._signatures.append(signature)
            return self.function(*args, **kwargs)
        if self.programs:
            reason = self.programs[0].guards.why(args, kwargs, mode)
            self._tell(f"compile: {_title(self.function)} is traced again: {reason}")
            if len(self.programs) == MANY:
                warnings.warn(
                    f"compile: {_title(self.function)} has {MANY} programs already; the last condition that failed: {reason}. Pass what "
                    f"changes as a tensor, pad to fewer shapes, or leave this function uncompiled",
                    stacklevel=3,
                )
        try:
            staged = stage(self.function, args, kwargs, mode, self.passes)
        except Changed as leak:
            # State that the first run of something makes (an optimizer's buffers) is there after one more eager run.
            self._leaks += 1
            if self._leaks > 2 or not all(w.startswith("the state of ") for w in leak.what):
                raise
            return self.function(*args, **kwargs)
        program = Program(self.function, self.passes, staged, args, kwargs, mode)
        if self.check:
            return self._checked(program, args, kwargs)
        self.programs.insert(0, program)
        result = program.run(args, kwargs)
        give_back()  # the gradients of the eager run, which the program's have replaced
        return result

    def _checked(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compare the program's first run with the function's own, from the same state; keep the program's."""
        result = compared(_title(self.function), program, lambda: self.function(*args, **kwargs), args, kwargs)
        self.programs.insert(0, program)
        return result

    @property
    def graph(self) -> Any:
        """The newest program's graph: `print` it, or draw it with `graph.svg()`."""
        return self._newest().staged.graph

    def kernels(self) -> dict[str, str]:
        """The newest program's kernels by name: generated source text, under comments that name the calls it computes."""
        runner = self._newest().runner
        return kernels([runner.executable, *([] if runner.backward is None else [runner.backward])])

    def stats(self) -> Stats:
        """What became of the function in the newest program: operations, tasks, memory, seconds. `print` it."""
        program = self._newest()
        runner = program.runner
        executables = [runner.executable, *([] if runner.backward is None else [runner.backward])]
        return stats(program.staged, executables, program.seconds, len(self.programs))

    def explain(self) -> list[str]:
        """The conditions under which the newest program runs, in words."""
        return self._newest().guards.words()

    def _newest(self) -> Program:
        if not self.programs:
            why = "the first call runs eagerly, the second is traced"
            raise RuntimeError(f"compile: {_title(self.function)} has no program yet: {why}; GRADLAB_COMPILE=0 traces nothing")
        return self.programs[0]

    def __repr__(self) -> str:
        return f"<compiled {_title(self.function)}, {len(self.programs)} program(s)>"


class Program:
    """One traced program with its guards. function: what was traced."""

    @without_collection()
    def __init__(
        self, function: Callable[..., Any], passes: Mapping[str, bool] | None, staged: Staged, args: tuple[Any, ...],
        kwargs: dict[str, Any], mode: Mode,
    ) -> None:  # fmt: skip
        self.staged = staged
        self.gradients = None if staged.backward is None else Again(function, passes, staged.backward)
        start = perf_counter()
        self.runner = Runner(staged, again=self._again)
        self.run = quickest(self.runner)
        self.seconds = perf_counter() - start
        self.guards = staged.guards
        self._guard_arguments(args, kwargs)
        self._guard_mode(mode)
        self._guard_tensors()
        self.guard = self.guards.build()
        give_back()  # what compiling the guards took

    def _again(self, call: Call, gradients: list[Any]) -> list[Any]:
        """The gradients of one call's inputs, differentiable again. RuntimeError where the function would not do the same again."""
        assert self.gradients is not None
        if not self.guard(call.args, call.kwargs, call.mode):
            why = self.guards.why(call.args, call.kwargs, call.mode)
            raise RuntimeError(f"{TWICE}, which has changed since its forward: {why}")
        tensors = [*call.given, *(t for t, _ in self.staged.tensors)]
        if any(t._meta is not None and t._meta.version is not None and t._meta.version.written > call.when for t in tensors):
            raise RuntimeError(f"{TWICE}, which was changed in place after its forward; take the gradients before the update")
        return self.gradients.of(call, gradients, self.runner)

    def _guard_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        guards = self.guards
        seen: dict[int, str] = {}

        def visit(expression: str, label: str, value: Any) -> None:
            if isinstance(value, Differentiable):
                array = f"{expression}._array"
                kind, dtype = guards.name(type(value)), guards.name(value._array.dtype)
                guards.test(f"type({expression}) is {kind}", f"{label}'s type", f"type({expression})")
                guards.test(f"type({array}) is {guards.name(type(value._array))}", f"{label}'s device", f"{expression}.device")
                where = dispatch.backend_of(value._array).device_of(value._array)
                if where.type != "cpu":
                    guards.test(f"{expression}.device.index == {where.index}", f"{label}'s device", f"{expression}.device", where)
                guards.test(f"{array}.shape == {value._array.shape!r}", f"{label}'s shape", f"{array}.shape", value._array.shape)
                test = f"({array}.dtype is {dtype} or {array}.dtype == {dtype})"
                guards.test(test, f"{label}'s dtype", f"{array}.dtype", value._array.dtype)
                edge = "is None" if value._edge is None else "is not None"
                guards.test(f"{expression}._edge {edge}", f"whether {label} requires grad")
                if id(value) in seen:
                    guards.test(f"{expression} is {seen[id(value)]}", f"{label} is {seen[id(value)]}")
                else:
                    for other in seen.values():
                        guards.test(f"{expression} is not {other}", f"{label} and {other} being one tensor")
                    seen[id(value)] = expression
                if self.runner.written or self.runner.written_arguments:
                    guards.names["written"], guards.names["id"] = frozenset(self.runner.written), id
                    apart = f"(id({array}) not in written and ({array}.base is None or id({array}.base) not in written))"
                    guards.test(apart, f"{label} lying in memory that the function writes")
            elif isinstance(value, (list, tuple)):
                guards.test(f"type({expression}) is {guards.name(type(value))}", f"{label}'s type")
                guards.test(f"len({expression}) == {len(value)}", f"{label}'s length", f"len({expression})", len(value))
                for i, part in enumerate(value):
                    visit(f"{expression}[{i}]", f"{label}[{i}]", part)
            elif isinstance(value, dict):
                guards.test(f"type({expression}) is {guards.name(type(value))}", f"{label}'s type")
                guards.test(f"[*{expression}] == {guards.name(list(value))}", f"{label}'s keys")
                for key, part in value.items():
                    visit(f"{expression}[{guards.name(key)}]", f"{label}[{key!r}]", part)
            else:
                guards.equal(expression, value, label)

        guards.test(f"len(args) == {len(args)}", "the number of arguments", "len(args)", len(args))
        guards.test(f"[*kwargs] == {guards.name(list(kwargs))}" if kwargs else "not kwargs", "the names of keyword arguments")
        for i, value in enumerate(args):
            visit(f"args[{i}]", f"argument {i}", value)
        for key, value in kwargs.items():
            visit(f"kwargs[{key!r}]", f"argument {key}", value)

    def _guard_mode(self, mode: Mode) -> None:
        guards = self.guards
        guards.test(f"mode.recording is {mode.recording}", "grad mode", "mode.recording", mode.recording)
        guards.test(f"mode.inference is {mode.inference}", "inference mode", "mode.inference", mode.inference)
        guards.test(f"mode.autocast is {guards.name(mode.autocast)}", "autocast", "mode.autocast or 'off'", mode.autocast or "off")
        guards.test("mode.saved_hooks is None", "saved_tensors_hooks")
        guards.same(f"{guards.name(get_default_dtype.__globals__)}['_default']", get_default_dtype(), "the default dtype")
        guards.known_mode = mode

    def _guard_tensors(self) -> None:
        guards, runner = self.guards, self.runner
        read = {id(leaf._grad): leaf for leaf in runner.leaves_read}
        for t, array in self.staged.tensors:
            if id(t) in read:
                leaf = guards.name(read[id(t)])
                spec = guards.name(array.dtype)
                guards.test(f"{leaf}._grad is not None", "a gradient")
                kind = guards.name(type(array))
                guards.test(f"{leaf}._grad._array.dtype == {spec} and type({leaf}._grad._array) is {kind}", "a gradient")
                continue
            name = guards.name(t)
            guards.same(f"{name}._array", array, f"the memory of a tensor of shape {array.shape}")
            guards.same(f"{name}._edge", t._edge, f"whether a tensor of shape {array.shape} requires grad")
            if t._edge is LEAF:
                meta, label = f"{name}._meta", "hooks of a parameter"
                if t._meta is None or not (t._meta.hooks or t._meta.post_hooks):
                    test = f"({meta} is None or not ({meta}.hooks or {meta}.post_hooks))"
                    guards.test(test, label)
                    now = [meta] if t._meta is None else [f"{meta}.hooks", f"{meta}.post_hooks"]
                    guards.mostly(test, *(Found(expression, None) for expression in now))
                else:
                    guards.equal(f"({meta}.hooks, {meta}.post_hooks)", (t._meta.hooks, t._meta.post_hooks), label)
        argument = set(map(id, self.staged.twins))
        for leaf in self.staged.untouched:
            if id(leaf) not in argument:
                guards.test(f"{guards.name(leaf)}._grad is None", f"the .grad of a parameter of shape {leaf._array.shape}")


class Again(Compiled):
    """The gradients of a compiled function, compiled themselves: for gradients of gradients (`create_graph=True`).

    The user's function is traced anew together with its backward; what it writes to arguments, state and gradients is left out.
    """

    def __init__(self, function: Callable[..., Any], passes: Mapping[str, bool] | None, backward: Backward) -> None:
        super().__init__(Gradients(function, backward.roots, backward.leaves), passes=passes)

    def of(self, call: Call, gradients: list[Any], runner: Runner) -> list[Any]:
        """The gradients of a call, whose results got these."""
        args = (call.args, call.kwargs, gradients)
        now = [(g, g.clone_state()) for g, _ in call.drawn]
        token = enter(call.mode)
        try:
            for generator, was in call.drawn:  # the same random numbers again
                generator._seed, generator._offset = was._seed, was._offset
            return list(self._program(args, call, runner).runner.run(args, {}))
        finally:
            leave(token)
            for generator, was in now:
                generator._seed, generator._offset = was._seed, was._offset

    def _program(self, args: tuple[Any, ...], call: Call, runner: Runner) -> Program:
        for program in self.programs:
            if program.guard(args, {}, call.mode):
                return program
        staged = stage(self.function, args, {}, call.mode, self.passes, pure=True)
        used = {x.id for c in staged.graph.calls for x in c.inputs if isinstance(x, Value)} | {v.id for v in staged.graph.outputs}
        if any(id(array) in runner.written for v, array in staged.graph.state.items() if v.id in used) or any(
            v.id in used for i, v in enumerate(staged.graph.inputs) if i in runner.written_arguments
        ):
            raise NotImplementedError(
                "compile: gradients of gradients (create_graph=True) through a compiled function that computes with a tensor and writes it "
                "in place; call the function uncompiled, or compile the whole step with both gradients in it"
            )
        program = Program(self.function, self.passes, staged, args, {}, call.mode)
        self.programs.insert(0, program)
        return program


def _stageable(mode: Mode) -> bool:
    return mode.tracer is None and not mode.anomaly and mode.saved_hooks is None and mode.observer is None


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
    def picture(value: Any) -> Any:
        if isinstance(value, Differentiable):
            return ("tensor", value._array.shape, value._array.dtype, value._edge is None, type(value._array))
        if isinstance(value, (list, tuple)):
            return (type(value), tuple(map(picture, value)))
        if isinstance(value, dict):
            return (dict, tuple((k, picture(v)) for k, v in value.items()))
        return freeze(value)

    return (picture(args), picture(kwargs), mode.recording)


def _title(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


@overload
def compile(function: F, *, check: bool = ..., explain: bool = ..., passes: Mapping[str, bool] | None = ...) -> F: ...


@overload
def compile(
    function: None = ..., *, check: bool = ..., explain: bool = ..., passes: Mapping[str, bool] | None = ...
) -> Callable[[F], F]: ...


def compile(
    function: Any = None, *, check: bool = False, explain: bool = False, passes: Mapping[str, bool] | None = None
) -> Any:
    """Let a function run as a static program: a forward, a loss, or a whole training step.

    The first call runs eagerly, the second traces the function and runs the program; further calls run the program while the
    conditions of its trace hold: the arguments' shapes, dtypes and Python values, modules and their modes, the globals and attributes
    that the function reads. Where one fails, the function is traced again. Hyper-parameters of optimizers are read at each run, so a
    learning rate schedule needs no new trace. Use it as a decorator or on a function or module.

    check: compare the first run of each program with the eager run from the same state.
    explain: print why the function is traced again (otherwise it goes to the log `gradlab.compile`).
    passes: switches some of the passes over the graph off, by name: {"assemble": False}; see `gradlab.graph.passes`.
    Environment: GRADLAB_COMPILE=0 runs everything eagerly.
    Raises TraceError in the call that traces, naming the line, where the function reads a value (`item()`, `if` on a tensor, print).
    """
    if function is None:
        return functools.partial(compile, check=check, explain=explain, passes=passes)
    if not callable(function):
        raise TypeError(f"compile: a function or a module, not {type(function).__name__}")
    if os.environ.get("GRADLAB_COMPILE") == "0":
        return function
    if isinstance(function, Module):
        return CompiledModule(function, check, explain, passes)
    return Compiled(function, check, explain, passes)


class CompiledModule(Module):
    """A module whose call is compiled. Parameters, buffers and attributes are those of the module it wraps."""

    def __init__(self, module: Module, check: bool, explain: bool, passes: Mapping[str, bool] | None) -> None:
        super().__init__()
        self.module = module
        self.__dict__["_compiled"] = Compiled(module.__call__, check, explain, passes)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's call, compiled."""
        return self.__dict__["_compiled"](*args, **kwargs)

    @property
    def compiled(self) -> Compiled:
        """The compiled call: its `graph`, `stats()`, `kernels()` and `explain()`."""
        return self.__dict__["_compiled"]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)
