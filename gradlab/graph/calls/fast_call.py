"""Calls of a compiled step as most of them are: on the CPU, the program one piece of machine code, its gradients still where they were."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from operator import call, itemgetter
from typing import TYPE_CHECKING, Any

from numpy import empty

from gradlab.autograd.inplace import note, note_places
from gradlab.autograd.record import refresh, wrap
from gradlab.graph.calls.autograd_node import Call
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.guards.machine_guards import ATTRIBUTE, WORD, Table, can_watch, words
from gradlab.graph.staging.results import VALUE
from gradlab.graph.staging.tree import LEAF, unflatten

if TYPE_CHECKING:
    from gradlab.graph.calls.runner import Runner

_GRADIENT = "_grad"
_ROWS = 4  # of the table, for each gradient
_MOST_REFUSED = 16  # times that a call on the caller's memory is tried in vain: trying costs more than it gives where arrays never lie so


class Quick:
    """Runs a program that `possible` allows. A call whose gradients nobody else holds takes the short way, others the runner's."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.executable = runner, runner.executable
        self.build = builder(runner.staged.result, [r.place for r in runner.staged.outputs])
        self.outs = [*runner.results, *runner.saved]
        self.count = len(runner.results)
        self.gradients = runner.gradients
        self.held: list[tuple[Any, Any]] = [(None, None)] * len(self.gradients)  # addresses of tensors and arrays that the table knows
        self.table = Table(_ROWS * len(self.gradients)) if self.gradients else None
        self.armed = not self.gradients
        self.test: Callable[[int], int] = int if self.table is None else self.table.test
        self.at = 1 if self.table is None else self.table.at

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `Runner.run`."""
        runner = self.runner
        if not (self.armed and self.test(self.at)):
            self.armed = False  # until it has gone well
            result = runner.run(args, kwargs)
            self._arm()
            return result
        arrays = []
        for t in args:
            if t._meta is not None:
                refresh(t)
            arrays.append(t._array)
        for read, group, buffer, last in runner.hyper:
            found = read(group)
            if found != last[0]:
                buffer[:] = found
                last[0] = found
        for generator, buffer, _ in runner.random:
            buffer[:] = generator.state_array()
        outs = [empty(shape, dtype) for shape, dtype in self.outs]
        if not self.executable.again(arrays, outs):
            self.armed = False
            return self.run(args, kwargs)
        outside = runner.outside
        drawn = [(g, g.clone_state()) for g, _, _ in runner.random] if outside is not None else []
        for generator, _, numbers in runner.random:
            generator.advance(numbers)
        if runner.versions:
            note(runner.versions)
        if outside is not None:
            n = self.count
            made = outside.results(args, arrays, outs[:n], outs[n:], Call(args, kwargs, args, drawn))
        else:
            made = [wrap(out) for out in outs]
        return self.build(made)

    def _arm(self) -> None:
        """The gradients are where the last run wrote them: remember that."""
        self.armed = True
        table = self.table
        if table is None:
            return
        for i, gradient in enumerate(self.gradients):
            tensor, array = id(gradient.tensor), id(gradient.array)
            if self.held[i] != (tensor, array):
                self.held[i] = tensor, array
                alone = self._counts(tensor, array)
                table.set(_ROWS * i, ATTRIBUTE, id(gradient.leaf), id(_GRADIENT), tensor)
                table.set(_ROWS * i + 1, WORD, tensor, words()["_array"], array)
                table.set(_ROWS * i + 2, WORD, tensor, 0, alone[0])
                table.set(_ROWS * i + 3, WORD, array, 0, alone[1])

    def _counts(self, tensor: int, array: int) -> tuple[int, int]:
        """What the first words of a gradient's tensor and array are while nobody else holds them."""
        return _alone()


class QuickLaunch(Quick):
    """The same for a program of one launch on a GPU, which runs on the caller's memory. Nobody's code runs between a call of the runner and
    `_arm`: whoever holds a gradient then is one of us."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.armed = False
        self.launch: Any = None
        self.refused = 0  # how often it was not to be, for what the caller gave
        memory: Any = runner.memory
        self.makers = [memory.driver.maker(shape, dtype) for shape, dtype in self.outs]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `Runner.run`."""
        runner = self.runner
        if self.armed and self.test(self.at):
            arrays = []
            for t in args:
                if t._meta is not None:
                    refresh(t)
                arrays.append(t._array)
            for read, group, buffer, last in runner.hyper:
                found = read(group)
                if found != last[0]:
                    buffer[:] = found
                    last[0] = found
            if runner.send is not None:
                runner.send()
            outs = [*map(call, self.makers)]
            if self.launch(arrays, outs):
                if runner.lines:
                    note_places(runner.lines)
                return self.build([*map(wrap, outs)])
            self.refused += 1
        self.armed = False  # until it has gone well
        result = runner.run(args, kwargs)
        if self.refused < _MOST_REFUSED:
            self.launch = self.executable.again([g.array for g in self.gradients])
            if self.launch is not None:
                self.held = [(None, None)] * len(self.gradients)  # they may be counted otherwise by now
                self._arm()
        return result

    def _counts(self, tensor: int, array: int) -> tuple[int, int]:
        return ctypes.c_uint64.from_address(tensor).value, ctypes.c_uint64.from_address(array).value


def builder(structure: Any, places: list[int]) -> Callable[[list[Any]], Any]:
    """What puts results together: from the values of a call to what the function returns. places: of its tensors among the values."""
    if structure == LEAF:
        return itemgetter(places[0])
    kind, in_order = structure[0], places == list(range(len(places)))
    if in_order and (kind is tuple or kind is list) and all(part == LEAF for part in structure[1]):
        return kind
    if in_order and kind is dict and all(part == LEAF for part in structure[2]):
        keys = structure[1]
        return lambda made: dict(zip(keys, made))
    return lambda made: unflatten(structure, [made[i] for i in places])


def possible(runner: Runner) -> bool:
    """Whether the short way does all that this program asks for."""
    executable = runner.executable
    return type(executable) is NativeExecutable and executable.short and not runner.send and _plain(runner)


def launches_alone(runner: Runner) -> bool:
    """Whether the short way of one launch may do all that this program asks for; whether it is one launch shows when it has run."""
    return runner.memory.device.type == "cuda" and runner.outside is None and not runner.random and _plain(runner)


def _plain(runner: Runner) -> bool:
    staged = runner.staged
    if not (staged.plain and can_watch()):
        return False
    if not all(r.kind == VALUE and r.chain is None and not r.leaf for r in staged.outputs):
        return False
    arguments = runner.of_argument or runner.cleared_arguments or runner.written_arguments
    if runner.leaves_read or runner.cleared or arguments or staged.written:
        return False
    return not runner.gradients or (_alone() != (0, 0) and not any(g.fresh for g in runner.gradients))


@functools.cache
def _alone() -> tuple[int, int]:
    """What the first words of a gradient's tensor and array are, their counts of references, when only the leaf, the `Gradient` and the
    executable hold them. (0, 0) where this interpreter does not count so."""
    leaf, own = wrap(empty(())), [wrap(empty(()))]
    leaf._grad = own[0]
    kept = [own[0]._array, own[0]._array]
    tensor, array = (ctypes.c_uint64.from_address(id(x)) for x in (own[0], kept[0]))
    found = tensor.value, array.value
    own.append(own[0])
    kept.append(kept[0])
    counts = (tensor.value, array.value) == (found[0] + 1, found[1] + 1)
    return found if counts and words() else (0, 0)


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def quickest(runner: Runner) -> Run:
    """How to run a program."""
    return Quick(runner).run if possible(runner) else QuickLaunch(runner).run if launches_alone(runner) else runner.run
