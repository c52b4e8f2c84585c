"""Runs a staged function on real tensors: finds the arrays, runs the executable, puts gradients, state and random streams forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from sys import getrefcount
from typing import Any

import numpy as np

from gradlab.autograd.base import NOWHERE, version_of
from gradlab.autograd.inplace import note_places, note_writes
from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import refresh, wrap
from gradlab.dtype import FLOAT32
from gradlab.graph.calls.autograd_node import Again, Call, Outside
from gradlab.graph.calls.forward_backward import split
from gradlab.graph.executables.cuda.memory import Memory, memory_of
from gradlab.graph.executables.fastest import executable
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Value
from gradlab.graph.ir.memory_plan import Shared
from gradlab.graph.staging.results import VALUE, Result, built
from gradlab.graph.staging.stage import Staged
from gradlab.graph.staging.tree import LEAF, flatten, unflatten
from gradlab.optim.hyper import values
from gradlab.spec import Spec

Build = Callable[[Line], Any]
Execute = Callable[[Any, Sequence[Any], Sequence[Any]], None]  # lets an executable run on arrays, and looks on


class Gradient:
    """One leaf's `.grad`: the array it is computed into, anew where somebody still holds the last one."""

    __slots__ = ("array", "fresh", "kept", "leaf", "spec", "tensor")

    def __init__(self, leaf: Any, value: Value, fresh: bool) -> None:
        self.leaf, self.spec, self.fresh = leaf, value.spec, fresh
        self.kept = 0  # references to the array that the executable keeps from its last run
        self.tensor: Any = None
        self.array: Any = None

    def place(self) -> Any:
        """Where this run writes the gradient."""
        tensor, array = self.tensor, self.array
        # Held by this object, perhaps the leaf, and the two locals and arguments here; anyone else would see it change.
        if (
            tensor is None or self.fresh or tensor._array is not array or getrefcount(array) > _HELD_ARRAY + self.kept
            or getrefcount(tensor) > _HELD_TENSOR + (self.leaf._grad is tensor)
        ):  # fmt: skip
            if tensor is None and not self.fresh and self._adopt():
                return self.array
            array = self.array = np.empty(self.spec.shape, self.spec.dtype)
            self.tensor = wrap(array)
        return array

    def _adopt(self) -> bool:
        """Take over what an eager run or another program left in `.grad`, if nobody else holds it."""
        tensor = self.leaf._grad
        array = None if tensor is None else tensor._array
        if type(array) is not np.ndarray or array.base is not None or not array.flags.carray:
            return False
        if tensor._meta is not None and vars(tensor._meta).keys() - {"version"}:
            return False
        # Here each has one reference less than in `place`.
        if getrefcount(tensor) > _HELD_TENSOR or getrefcount(array) >= _HELD_ARRAY or (array.shape, array.dtype) != self.spec:
            return False
        self.tensor, self.array = tensor, array
        return True


class CudaGradient(Gradient):
    """The same on a GPU, where the executable refers to the array from many places: how many is counted after each run."""

    __slots__ = ("memory", "references")

    def __init__(self, memory: Memory, leaf: Any, value: Value, fresh: bool) -> None:
        super().__init__(leaf, value, fresh)
        self.memory, self.references = memory, 0

    def place(self) -> Any:
        tensor, array = self.tensor, self.array
        held = tensor is None or getrefcount(tensor) > _HELD_TENSOR + (self.leaf._grad is tensor) or getrefcount(array) > self.references
        if held or self.fresh or tensor._array is not array:
            self.array = self.memory.empty(self.spec.shape, self.spec.dtype)
            self.tensor = wrap(self.array)
        return self.array

    def settle(self) -> None:
        """No code of the user's has run since `place`: whoever refers to the array now is one of us."""
        tensor, array = self.tensor, self.array
        self.references = getrefcount(array)
        del tensor


def mark_replaced(gradients: Sequence[Gradient]) -> None:
    """Let gradients that a program replaces count as written by hand: the advice on gradients that are never zeroed is not for them."""
    for gradient in gradients:
        if gradient.tensor is not None:
            version_of(gradient.tensor).count += 1


MOST = 64  # programs of one function that are kept: those that ran last


def put_first(programs: list[Any], program: Any) -> None:
    """The program that runs next comes first; the one that ran before rests."""
    if programs and programs[0] is not program:
        programs[0].runner.rest()
    programs[:] = [program, *(p for p in programs if p is not program)][:MOST]


def gradient_of(memory: Memory, leaf: Any, value: Value, fresh: bool) -> Gradient:
    """A leaf's gradient in that memory."""
    return Gradient(leaf, value, fresh) if memory.device.type == "cpu" else CudaGradient(memory, leaf, value, fresh)


def _measure() -> tuple[int, int]:
    """The reference counts that `place` sees when only the Gradient holds a gradient."""
    own = Gradient(None, Value(0, Spec((), FLOAT32)), False)
    own.array = np.empty(())
    own.tensor = wrap(own.array)
    tensor, array = own.tensor, own.array
    return getrefcount(tensor), getrefcount(array)


_HELD_TENSOR, _HELD_ARRAY = _measure()


def _not_again(call: Any, gradients: list[Any]) -> list[Any]:
    raise NotImplementedError("the backward of this program is not recorded, so it has no gradients of its own (create_graph=True)")


def _reader(names: tuple[Any, ...]) -> Callable[[dict[str, Any]], Any]:
    """What reads several hyper-parameters from a group at once."""
    if len(names) > 1 and all(type(name) is str for name in names):
        return itemgetter(*names)
    if len(names) == 1 and type(names[0]) is str:
        name = names[0]
        return lambda group: (group[name],)
    return lambda group: values(group, names)


class Runner:
    """A staged function, ready to run: `run(args, kwargs)`.

    build   makes an executable of a Line.
    again   from a call and the gradients of its results to those of its inputs, differentiable again
    shared  memory for intermediate values that other programs use as well
    """

    def __init__(self, staged: Staged, build: Build = executable, again: Again | None = None, shared: Shared | None = None) -> None:
        graph = staged.graph
        self.staged = staged
        first, second = split(staged)
        # Arrays that change from run to run: the arguments, and gradients that the program reads.
        known = {id(array): t for t, array in staged.tensors}
        self.leaves_read: list[Any] = []
        self.pinned: list[tuple[Any, Any]] = []  # leaves whose .grad the program takes from where else it is, and that tensor
        inputs, fixed = list(graph.inputs), {}
        holders = {id(t._grad): t for t, _ in staged.tensors if t._grad is not None}
        for group, _, _ in staged.hyper:
            holders.update({id(p._grad): p for p in group["params"] if p._grad is not None})
        holders.update({id(leaf._grad): leaf for leaf, _ in graph.gradients if leaf._grad is not None})
        holders.update({id(leaf._grad): leaf for leaf in staged.looked_at})
        for value, array in graph.state.items():
            tensor = known.get(id(array))
            leaf = holders.get(id(tensor)) if tensor is not None else None
            if leaf is not None and tensor is not None and (tensor._edge is not None or id(tensor) in staged.named):
                self.pinned.append((leaf, tensor))
                leaf = None
            if leaf is not None:
                self.leaves_read.append(leaf)
                inputs.append(value)
            else:
                fixed[value] = array
        views = {id(t) for t, _, _ in staged.views}  # these stand for what they are views of
        self.pinned += [(leaf, leaf._grad) for leaf in staged.looked_at if id(leaf._grad) in views]
        memory = self.memory = memory_of(graph.device)
        small = [*(value for _, _, value in staged.hyper), *(value for _, value, _ in graph.random)]
        buffers, theirs, self.send = memory.words([(v.spec.shape[0], v.spec.dtype) for v in small])
        fixed.update(zip(small, theirs, strict=True))
        self.hyper: list[tuple[Any, Any, Any, list[Any]]] = []  # what reads a group's numbers, the group, the buffer, the numbers in it
        self.hyper += [(_reader(names), group, buffer, [None]) for (group, names, _), buffer in zip(staged.hyper, buffers)]
        self.random = [(g, buffer, words) for (g, _, words), buffer in zip(graph.random, buffers[len(self.hyper) :], strict=True)]
        twins = {id(t): i for i, t in reversed(list(enumerate(staged.twins)))}
        read = set(map(id, self.leaves_read))
        self.gradients: list[Gradient] = []
        self.settling: list[CudaGradient] = []
        self.cleared: list[Any] = []
        self.of_argument: list[tuple[int, Gradient, bool]] = []  # argument, gradient, whether it takes the place of one from before
        self.cleared_arguments: list[int] = []
        for leaf, new in graph.gradients:
            if new is None and id(leaf) in twins:
                self.cleared_arguments.append(twins[id(leaf)])
            elif new is None:
                self.cleared.append(leaf)
            else:
                gradient = gradient_of(memory, leaf, new, id(leaf) in read or id(leaf) in twins)
                self.gradients.append(gradient)
                if isinstance(gradient, CudaGradient):
                    self.settling.append(gradient)
                if id(leaf) in twins:
                    self.of_argument.append((twins[id(leaf)], gradient, id(leaf) in staged.replaced))
        results = graph.outputs[: staged.values]
        self.results = [(v.spec.shape, v.spec.dtype) for v in results]
        self.saved = [(v.spec.shape, v.spec.dtype) for v in first.saved]
        outputs = [*results, *first.saved, *(v for _, v in graph.gradients if v is not None)]
        start = len(results) + len(first.saved)
        lasting = frozenset(start + i for i, gradient in enumerate(self.gradients) if not gradient.fresh)
        about = graph.last, graph.notes, graph.lowered
        line = Line(first.calls, inputs, fixed, outputs, graph.updates, graph.device, lasting, shared, *about)
        self.executable = build(line)
        for gradient in self.gradients:
            gradient.kept = getattr(self.executable, "kept", 0)
        self.backward = None
        if second is not None:
            line = Line(second.calls, second.inputs, second.fixed(fixed), second.outputs, [], graph.device, frozenset(), shared, *about)
            self.backward = build(line)
        self.outside = None
        if second is not None:
            # Of the arguments whose arrays the backward reads, the positions among all tensors.
            unique = list(dict.fromkeys(map(id, staged.twins)))
            at = {id(t): i for i, t in reversed(list(enumerate(staged.twins)))}
            needed = [at[unique[i]] for i in second.arguments]
            assert staged.backward is not None
            self.outside = Outside(staged.backward, second, self.backward, memory, needed, again or _not_again)
        self.single = self.outside is None and not staged.written and staged.result == LEAF and staged.outputs[0] == Result(VALUE, 0)
        lines = {v.id: call.position for call in graph.calls for v in call.outputs}
        writing = {old.id: lines.get(new.id) or NOWHERE for old, new in graph.updates}
        self.written = {id(a): writing[v.id] for v, a in graph.state.items() if v.id in writing}
        self.lines = [(version_of(t), self.written[id(array)]) for t, array in staged.tensors if id(array) in self.written]
        self.versions = [version for version, _ in self.lines]
        self.written_arguments = [i for i, v in enumerate(graph.inputs) if v.id in writing]

    def rest(self) -> None:
        """Another program of the function runs next: let go of the gradients, which it may take over, and of the last run's arrays."""
        if isinstance(self.executable, NativeExecutable) and self.executable.forget():
            for gradient in self.gradients:
                gradient.tensor = gradient.array = None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], execute: Execute | None = None) -> Any:
        """One run of the program. execute: what lets the executable run, and looks on."""
        staged = self.staged
        given = args if staged.plain else flatten([list(args), kwargs])[0]
        for t in given:
            if t._meta is not None:
                refresh(t)
        arrays = [t._array for t in (given if staged.plain else dict.fromkeys(given))]
        if self.leaves_read:
            arrays += [leaf._grad._array for leaf in self.leaves_read]
        for read, group, buffer, last in self.hyper:
            found = read(group)
            if found != last[0]:
                buffer[:] = found
                last[0] = found
        for generator, buffer, _ in self.random:
            buffer[:] = generator.state_array()
        if self.send is not None:
            self.send()
        empty = self.memory.empty
        outs = [empty(shape, dtype) for shape, dtype in self.results]
        saved = [empty(shape, dtype) for shape, dtype in self.saved] if self.saved else []
        outputs = [*outs, *saved, *[g.place() for g in self.gradients]]
        if execute is None:
            self.executable.run(arrays, outputs)
        else:
            execute(self.executable, arrays, outputs)
        return self._commit(given, arrays, outs, saved, args, kwargs)

    def _commit(
        self, given: Sequence[Any], arrays: list[Any], outs: list[Any], saved: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        drawn = [(g, g.clone_state()) for g, _, _ in self.random] if self.outside is not None else []
        for leaf in self.cleared:
            leaf._grad = None
        for gradient in self.gradients:
            gradient.leaf._grad = gradient.tensor
        for gradient in self.settling:
            gradient.settle()
        for i in self.cleared_arguments:
            given[i]._grad = None
        for i, gradient, replaces in self.of_argument:
            before, gradient.leaf._grad = given[i]._grad, None
            if replaces or before is None:
                given[i]._grad = gradient.tensor
            else:  # backward adds
                with no_grad():
                    before.add_(gradient.tensor)
        for generator, _, words in self.random:
            generator.advance(words)
        if self.lines:
            note_places(self.lines)
        if self.written_arguments:
            unique = list(dict.fromkeys(given))
            note_writes([unique[i] for i in self.written_arguments])
        staged = self.staged
        if self.single:
            return wrap(outs[0])
        if self.outside is None:
            made = list(map(wrap, outs))
        else:
            made = self.outside.results(given, arrays, outs, saved, Call(args, kwargs, given, drawn))
        for i, k in staged.written:
            given[i].copy_(made[k])
        if self.outside is not None and self.outside.backward.late:
            made = self.outside.through(made, given, staged.written)
        return unflatten(staged.result, built(staged.outputs, made, given))


_TENSOR = type(wrap(np.empty(())))
