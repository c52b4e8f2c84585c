"""What `compile` makes: a function that runs as a static program wherever the conditions of an earlier trace hold."""

from __future__ import annotations

import copy
import functools
import logging
import operator
import os
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from gradlab.autograd.base import LEAF
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.dtype import get_default_dtype
from gradlab.graph.calls.autograd_node import Call
from gradlab.graph.calls.checking import compared
from gradlab.graph.calls.fast_call import quickest
from gradlab.graph.calls.gc_pause import without_collection
from gradlab.graph.calls.higher_order import Gradients
from gradlab.graph.calls.runner import MOST, Execute, Runner, mark_replaced, put_first
from gradlab.graph.calls.stats import Stats, kernels, stats
from gradlab.graph.guards.argument_guards import guard_arguments
from gradlab.graph.guards.machine_guards import Found, Lacks
from gradlab.graph.guards.rebinding import Held, Holding
from gradlab.graph.ir.graph import Value
from gradlab.graph.ir.memory_plan import Shared, give_back
from gradlab.graph.staging.memory_sharing import Eager, Refused
from gradlab.graph.staging.signatures import Signatures, name_of
from gradlab.graph.staging.stage import Backward, Changed, Staged, stage
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten
from gradlab.nn.module import Module

_log = logging.getLogger("gradlab.compile")
TWICE = "compile: gradients of gradients (create_graph=True) run the compiled function's trace anew, with what it read"
MANY = 8  # programs of one function that are normal


class Compiled:
    """What `compile` returns: call it as the function. `programs` holds what was traced so far, the newest first."""

    eager_first = True  # whether the first call of a kind runs eagerly: it makes the lazy state

    def __init__(
        self, function: Callable[..., Any], check: bool = False, explain: bool = False, passes: Mapping[str, bool] | None = None,
        fullgraph: bool = True,
    ) -> None:  # fmt: skip
        self.function, self.check, self.passes, self.fullgraph = function, check, passes, fullgraph
        self._options = (check, explain, passes, fullgraph)
        self._tell = print if explain else _log.info
        self.programs: list[Program] = []
        self._signatures = Signatures()
        self._shared = Shared()
        self._leaks = 0
        self._full = False  # whether it was said that no more programs are kept
        self._sharing: list[Eager] = []  # of calls that no program stands for
        self._held: dict[Any, Held] = {}  # places that the newest program binds anew
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = current()
        if mode.special:
            if not _stageable(mode):
                return self.function(*args, **kwargs)
            if mode.observer is not None:
                return self._observed(args, kwargs, mode)
        for program in self.programs:
            if program.guard(args, kwargs, mode):
                if program is not self.programs[0]:
                    put_first(self.programs, program)
                return program.run(args, kwargs)
        return self._miss(args, kwargs, mode)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled method: one set of programs for each instance, told apart by the guards."""
        return self if instance is None else functools.partial(self, instance)

    def _observed(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
        """A call that a profile looks at."""
        program = next((p for p in self.programs if p.guard(args, kwargs, mode)), None)
        return self._miss(args, kwargs, mode) if program is None else program.observed(args, kwargs, mode.observer)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
        if os.environ.get("GRADLAB_COMPILE") == "0":
            return self.function(*args, **kwargs)
        if self.eager_first and self._signatures.is_new(_title(self.function), args, kwargs, mode):
            self._shared.rest()
            return self.function(*args, **kwargs)
        if self.programs:
            closest = min(self.programs[:MANY], key=lambda p: p.guards.failing(p.given(args), kwargs, mode))
            reason = closest.guards.why(closest.given(args), kwargs, mode)
            self._tell(f"compile: {_title(self.function)} is traced again: {reason}")
            if len(self.programs) >= MOST and not self._full:
                self._full = True
                warnings.warn(
                    f"compile: {_title(self.function)} has {MOST} programs, as many as are kept; from here on the one that has not run for "
                    f"longest goes for each new one, and calls may take as long as a trace. The last condition that failed: {reason}",
                    stacklevel=3,
                )
            if len(self.programs) == MANY:
                warnings.warn(
                    f"compile: {_title(self.function)} has {MANY} programs already; the last condition that failed: {reason}. Pass what "
                    f"changes as a tensor, pad to fewer shapes, or leave this function uncompiled",
                    stacklevel=3,
                )
        if self._sharing:
            tensors = list(dict.fromkeys(flatten([list(args), kwargs])[0]))
            if any(sharing.holds(tensors) for sharing in self._sharing):
                return self.function(*args, **kwargs)
        observer = mode.observer
        if observer is not None:
            mode = mode.replace(observer=None)
        try:
            function, staged = self._stage(args, kwargs, mode)
        except Eager as sharing:
            return self._eagerly(sharing, args, kwargs)
        except Changed as leak:
            # State that the first run of something makes (an optimizer's buffers) is there after one more eager run, or after as many as
            # it takes a GradScaler to find a scale at which the optimizer steps for the first time. So are the entries of caches.
            self._leaks += 1
            if self._leaks > (99 if all(w.startswith("the state of ") for w in leak.what) else 3 if leak.filled else 0):
                if self.fullgraph:
                    raise
                return self._eagerly(Refused(leak), args, kwargs)
            return self.function(*args, **kwargs)
        except TraceError as error:
            if self.fullgraph:
                raise
            return self._eagerly(Refused(error), args, kwargs)
        self._leaks = 0
        given = function.given(args) if isinstance(function, Holding) else args
        program = Program(function, self.passes, staged, given, kwargs, mode, self._shared)
        if self.check:
            return self._checked(program, args, kwargs)
        put_first(self.programs, program)
        result = program.run(args, kwargs) if observer is None else program.observed(args, kwargs, observer)
        mark_replaced(program.runner.gradients)
        give_back()  # the gradients of the eager run, which the program's have replaced
        return result

    def _eagerly(self, sharing: Eager, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that no program stands for, and remember that those like it are run so."""
        if not self._sharing:
            advice = f"such calls run eagerly; {sharing.advice}, or leave {_title(self.function)} uncompiled"
            warnings.warn(f"compile: {sharing}; {advice}", stacklevel=4)
        self._sharing.append(sharing)
        return self.function(*args, **kwargs)

    def _stage(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> tuple[Callable[..., Any], Staged]:
        """A trace, and what was traced: the function, or with what it binds to other tensors as further arguments and results."""
        places, most = self._held, 9
        while True:
            function = self.function if not places else Holding(self.function, list(places.values()))
            most -= 1
            try:
                staged = stage(function, function.given(args) if isinstance(function, Holding) else args, kwargs, mode, self.passes)
            except Changed as change:
                if not change.places or not most:
                    raise
                places = {**places, **{p.number: p for p in change.places}}
                continue
            if isinstance(function, Holding) and function.kept and most > 0:  # bound in other programs, or of other instances
                places = {n: p for n, p in places.items() if p not in function.kept}
                continue
            self._held = places
            return function, staged

    def _checked(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compare the program's first run with the function's own, from the same state; keep the program's."""
        given, function = program.given(args), program.function
        result = compared(_title(self.function), program, lambda: function(*given, **kwargs), given, kwargs)
        put_first(self.programs, program)
        mark_replaced(program.runner.gradients)
        if program.holding is not None:
            result, found = result
            program.holding.bind(found)
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """The same function, of a bound method's object a copy; without programs."""
        return type(self)(copy.deepcopy(self.function, memo), *self._options)

    def __reduce__(self) -> Any:
        """Pickled by its name where that leads to it, as of a decorated function; otherwise with its function. Programs stay behind."""
        return name_of(self.function, self) or (type(self), (self.function, *self._options))

    def __repr__(self) -> str:
        return f"<compiled {_title(self.function)}, {len(self.programs)} program(s)>"


class Program:
    """One traced program with its guards. function: what was traced."""

    @without_collection()
    def __init__(
        self, function: Callable[..., Any], passes: Mapping[str, bool] | None, staged: Staged, args: tuple[Any, ...],
        kwargs: dict[str, Any], mode: Mode, shared: Shared | None = None,
    ) -> None:  # fmt: skip
        self.staged, self.function = staged, function
        self.holding = function if isinstance(function, Holding) else None
        self.gradients = None if staged.backward is None else Again(function, passes, staged.backward)
        start = perf_counter()
        self.runner = Runner(staged, again=self._again, shared=shared)
        self.replay = quickest(self.runner) if not staged.edges else self._with_edges
        self.seconds = perf_counter() - start
        self.guards = staged.guards
        guard_arguments(self.guards, staged, self.runner, [] if self.holding is None else self.holding.reading, args, kwargs)
        self._guard_mode(mode)
        self._guard_tensors()
        self.holds = self.guards.build()
        self.guard, self.run = self.holds, self.replay
        if self.holding is not None:
            self.guard, self.run = self._guard_held, self._run_held
        give_back()  # what compiling the guards took

    def given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of what was traced."""
        return args if self.holding is None else self.holding.given(args)

    def _guard_held(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> bool:
        return self.holds(self.given(args), kwargs, mode)

    def _run_held(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A run of a function that lets places hold other tensors: they do so when all has gone well."""
        assert self.holding is not None
        result, found = self.replay(self.holding.given(args), kwargs)
        self.holding.bind(found)
        return result

    def observed(self, args: tuple[Any, ...], kwargs: dict[str, Any], observer: Any) -> Any:
        """A run that a profile looks at: the same work, by the runner, whose executable shows its steps."""
        result = self._with_edges(self.given(args), kwargs, observer.execute)
        if self.holding is None:
            return result
        result, found = result
        self.holding.bind(found)
        return result

    def _with_edges(self, args: tuple[Any, ...], kwargs: dict[str, Any], execute: Execute | None = None) -> Any:
        """A run of a function that lets arguments begin or stop to require grad: they do so first."""
        given = flatten([list(args), kwargs])[0]
        for i, wanted in self.staged.edges:
            given[i].requires_grad_() if wanted else given[i].detach_()
        return self.runner.run(args, kwargs, execute)

    def _again(self, call: Call, gradients: list[Any]) -> list[Any]:
        """The gradients of one call's inputs, differentiable again. RuntimeError where the function would not do the same again."""
        assert self.gradients is not None
        if not self.holds(call.args, call.kwargs, call.mode):
            why = self.guards.why(call.args, call.kwargs, call.mode)
            raise RuntimeError(f"{TWICE}, which has changed since its forward: {why}")
        tensors = [*call.given, *(t for t, _ in self.staged.tensors)]
        if any(t._meta is not None and t._meta.version is not None and t._meta.version.written > call.when for t in tensors):
            raise RuntimeError(f"{TWICE}, which was changed in place after its forward; take the gradients before the update")
        return self.gradients.of(call, gradients, self.runner)

    def _guard_mode(self, mode: Mode) -> None:
        guards = self.guards
        guards.test(f"mode.recording is {mode.recording}", "grad mode", "mode.recording", mode.recording)
        guards.test(f"mode.inference is {mode.inference}", "inference mode", "mode.inference", mode.inference)
        guards.test(f"mode.autocast is {guards.name(mode.autocast)}", "autocast", "mode.autocast or 'off'", mode.autocast or "off")
        guards.test("mode.saved_hooks is None", "saved_tensors_hooks")
        guards.same(f"{guards.name(get_default_dtype.__globals__)}['_default']", get_default_dtype(), "the default dtype")
        guards.equal(f"{guards.name(SETTINGS)}.precision", SETTINGS.precision, "the precision of float32 products")
        guards.known_mode = mode

    def _guard_tensors(self) -> None:
        guards, runner = self.guards, self.runner
        read, looked_at = {id(leaf._grad): leaf for leaf in runner.leaves_read}, set(map(id, self.staged.looked_at))
        for t, array in self.staged.tensors:
            if id(t) in read:
                leaf = guards.name(read[id(t)])
                spec = guards.name(array.dtype)
                guards.test(f"{leaf}._grad is not None", "a gradient")
                kind = guards.name(type(array))
                guards.test(f"{leaf}._grad._array.dtype == {spec} and type({leaf}._grad._array) is {kind}", "a gradient")
                guards.test(f"{leaf}._grad._array.shape == {array.shape!r}", "a gradient's shape")
                guards.test(f"{leaf}._grad._edge is None", "whether a gradient has a graph")
                if id(array) in self.staged.asked or id(read[id(t)]) in looked_at:
                    guards.test(f"{leaf}._grad._array.strides == {array.strides!r}", "how a gradient lies in memory")
                continue
            name = guards.name(t)
            guards.same(f"{name}._array", array, f"the memory of a tensor of shape {array.shape}")
            guards.same(f"{name}._edge", t._edge, f"whether a tensor of shape {array.shape} requires grad")
            if t._edge is LEAF:
                meta, label = f"{name}._meta", "hooks of a parameter"
                if t._meta is None or not (t._meta.hooks or t._meta.post_hooks):
                    test = f"({meta} is None or not ({meta}.hooks or {meta}.post_hooks))"
                    guards.test(test, label)
                    own: Any = {} if t._meta is None else vars(t._meta)  # a Meta never gets another dict
                    names = () if t._meta is None else ("hooks", "post_hooks")
                    hooks = (Found(f"{meta}.{k}", own[k]) if k in own else Lacks(own, k) for k in names)
                    guards.mostly(test, Found(meta, t._meta), *hooks)
                else:
                    guards.equal(f"({meta}.hooks, {meta}.post_hooks)", (t._meta.hooks, t._meta.post_hooks), label)
        for leaf, t in runner.pinned:
            guards.same(f"{guards.name(leaf)}._grad", t, "a gradient that the function finds elsewhere, too")
        for t, base, chain in self.staged.views:
            name = guards.name(t)
            for what, value in ((f"{name}._meta.base", base), (f"{name}._meta.chain", chain), (f"{name}._edge", t._edge)):
                guards.same(what, value, f"what a view of shape {t._array.shape} is a view of")
        for t, base in self.staged.rebased:
            guards.same(f"{guards.name(t)}._meta.base", base, f"what a view of shape {t._array.shape} follows")
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
    watched = mode.observer is not None and not hasattr(mode.observer, "execute")  # by somebody other than a profile
    return mode.tracer is None and mode.vmap is None and not mode.anomaly and mode.saved_hooks is None and not watched


def _title(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.args[0] if function.func is operator.call else function.func
    owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
    return type(owner).__name__ if isinstance(owner, Module) else getattr(function, "__qualname__", None) or type(function).__name__
