"""Gradients of one model in several processes, averaged bucket by bucket while the backward pass still runs.

Parameters are put into buckets in the reverse of their order, which is about that in which their gradients come. When all gradients of a
bucket are there, it begins to travel (`all_reduce_begin`), in a thread or stream of the group's carrier, and the pass goes on; at its end
the averages are awaited and put into `.grad`. Buckets begin in their order in every process, whatever the order of the gradients. Within
`gradlab.compile` the same rows are calls of the program.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import bind
from gradlab.autograd.walk import watchers
from gradlab.distributed.grad_bucket import GradBucket
from gradlab.distributed.groups import ProcessGroup
from gradlab.layout import strided
from gradlab.ops import collective as rows
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros
from gradlab.tensor.shape import cat

FIRST = 1 << 20  # bytes of the first bucket, which begins to travel soon; as in PyTorch
_slots = itertools.count()


class Bucket:
    """Parameters whose gradients travel together: of one dtype, on one device."""

    def __init__(self, names: Sequence[str], parameters: Sequence[Any]) -> None:
        self.names, self.parameters, self.slot = list(names), list(parameters), next(_slots)
        self.waiting: set[int] = set()  # parameters, by their places, whose gradients are not there yet
        self.used: set[int] = set()  # those that this process's loss depends on
        self.begun: Any = None  # what travels
        self.counts: Any = None  # where a hook has taken the gradients: which of them are used

    def bytes(self) -> int:
        """Of all gradients."""
        return sum(p.numel() * p.element_size() for p in self.parameters)


def buckets_of(named: Sequence[tuple[str, Any]], cap: int, first: int) -> list[Bucket]:
    """Buckets of at most `cap` bytes (or one parameter), the first of at most `first`."""
    made: list[tuple[list[str], list[Any]]] = []
    open_at: dict[Any, int] = {}
    sizes: list[int] = []
    for name, parameter in reversed(named):
        kind = (parameter.dtype, parameter.device)
        size = parameter.numel() * parameter.element_size()
        at = open_at.get(kind)
        if at is None or sizes[at] + size > (first if at == 0 else cap):
            at = open_at[kind] = len(made)
            made.append(([], []))
            sizes.append(0)
        made[at][0].append(name)
        made[at][1].append(parameter)
        sizes[at] += size
    return [Bucket(names, parameters) for names, parameters in made]


class Reducer:
    """Averages the gradients of parameters in every backward pass that reaches one of them, while `active`.

    named: the parameters with their names, in the same order in all processes. cap: bytes of a bucket. unused: whether a pass may leave
    parameters out; then the buckets also count how many processes have a gradient for each, and one that nobody has stays as it is.
    """

    def __init__(self, named: Sequence[tuple[str, Any]], group: ProcessGroup, cap: int, unused: bool) -> None:
        self.group, self.unused, self.active, self.op, self.scale = group, unused, True, "mean", 1.0
        self.hook: tuple[Any, Callable[[Any, GradBucket], Any]] | None = None  # what averages instead, with its state
        self.buckets = buckets_of(named, cap, min(cap, FIRST))
        self.places = {p: (b, i) for b in self.buckets for i, p in enumerate(b.parameters)}
        self._next = 0  # the first bucket that has not begun to travel
        self._named, self._cap = list(named), cap
        watchers.append(weakref.ref(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Reducer:
        """That of a copy of the model."""
        made = Reducer([(name, copy.deepcopy(p, memo)) for name, p in self._named], self.group, self._cap, self.unused)
        memo[id(self)], made.hook = made, self.hook
        return made

    # ---------------------------------------------------------------- a backward pass

    def begin(self, leaves: Container[Any]) -> Iterable[Any]:
        """Which parameters it waits for. RuntimeError for those that the loss does not depend on, unless that may be."""
        reached = [p for p in self.places if p in leaves] if self.active else []
        if not reached:
            return ()
        missing = [name for b in self.buckets for name, p in zip(b.names, b.parameters) if p not in leaves]
        if missing and not self.unused:
            raise RuntimeError(
                f"DistributedDataParallel: rank {self.group.rank()}'s loss does not depend on {', '.join(missing[:8])}"
                f"{' and others' * (len(missing) > 8)}, whose gradients the other processes wait for. Give find_unused_parameters=True, or "
                f"take them out of the model"
            )
        self._next = 0
        for bucket in self.buckets:
            bucket.used = {i for i, p in enumerate(bucket.parameters) if p in leaves}
            bucket.waiting, bucket.begun = set(bucket.used), None
        return reached

    def ready(self, leaf: Any) -> None:
        """A gradient is complete: buckets that are may travel."""
        bucket, place = self.places[leaf]
        bucket.waiting.discard(place)
        while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
            self._begin(self.buckets[self._next])
            self._next += 1

    def end(self) -> None:
        """Put the averages into the gradients."""
        for bucket in self.buckets[self._next :]:  # such as those of which this process uses nothing
            self._begin(bucket)
        with no_grad():
            for bucket in self.buckets:
                self._leave(bucket, self._ended(bucket))
                bucket.begun = None

    def failed(self) -> None:
        """Wait for what travels, so that the next pass finds nothing on its way."""
        for bucket in self.buckets[: self._next]:
            if self.hook is None:
                self.group.transport.forget(bucket.slot)
            else:
                with suppress(Exception):
                    bucket.begun.wait()
            bucket.begun = None

    def follow(self) -> None:
        """Take part in a pass of the others, with zeros."""
        with no_grad():
            for bucket in self.buckets:
                self._begin(bucket, empty=True)
            for bucket in self.buckets:
                self._ended(bucket)
                bucket.begun = None

    # ---------------------------------------------------------------- a bucket

    def _flat(self, bucket: Bucket, empty: bool) -> list[Tensor]:
        """What a bucket gives: its gradients, zeros for none; and, where parameters may be unused, a 1 for each used."""
        parts = []
        for parameter in bucket.parameters:
            grad = None if empty else parameter.grad
            if grad is not None and grad.layout is not strided:
                grad = grad.to_dense()
            shape, like = (parameter.numel(),), {"dtype": parameter.dtype, "device": parameter.device}
            parts.append(zeros(shape, **like) if grad is None else grad.detach().reshape(-1))
        if self.unused:
            used = [0.0 if empty or i not in bucket.used else 1.0 for i in range(len(bucket.parameters))]
            parts.append(parts[0].new_tensor(used))
        return parts

    def _begin(self, bucket: Bucket, empty: bool = False) -> None:
        with no_grad():
            parts = self._flat(bucket, empty)
            if self.hook is None:
                begin = bind(rows.all_reduce_begin)
                bucket.begun = begin(cat(parts), by=self.group.transport, op=self.op, slot=bucket.slot)
                return
            number, (state, hook) = self.buckets.index(bucket), self.hook
            bucket.counts = parts.pop() if self.unused else None
            given = GradBucket(number, cat(parts), bucket.parameters, number == len(self.buckets) - 1)
            bucket.begun = hook(state, given)
            if not callable(getattr(bucket.begun, "wait", None)):
                raise RuntimeError(f"DistributedDataParallel: a communication hook returns a Future, not {type(bucket.begun).__name__}")

    def _ended(self, bucket: Bucket) -> Tensor:
        """The averages of a bucket, and behind them how many processes use each."""
        if self.hook is None:
            return bind(rows.all_reduce_end)(bucket.begun, by=self.group.transport, op=self.op, slot=bucket.slot)
        found = bucket.begun.wait()
        found = found[0] if isinstance(found, (list, tuple)) and len(found) == 1 else found
        size = sum(p.numel() for p in bucket.parameters)
        if not isinstance(found, Tensor) or found.numel() != size:
            said = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise RuntimeError(f"DistributedDataParallel: a communication hook's Future gives a tensor of {size} numbers, not {said}")
        found = found.detach().reshape(-1).to(bucket.parameters[0].dtype)
        if bucket.counts is None:
            return found
        return cat([found, bind(rows.all_reduce)(bucket.counts, by=self.group.transport, op="sum")])

    def _leave(self, bucket: Bucket, found: Tensor) -> None:
        if self.scale != 1:
            found = found * self.scale
        ends = list(itertools.accumulate(p.numel() for p in bucket.parameters))
        counts = None
        if self.unused and not getattr(found._array, "tracer", None):
            counts = found[ends[-1] :].tolist()
        for i, (parameter, end) in enumerate(zip(bucket.parameters, ends)):
            if counts is not None and not counts[i] and i not in bucket.used and parameter.grad is None:
                continue
            part = found[end - parameter.numel() : end].reshape(parameter.shape)
            old = parameter.grad
            if old is None or old.layout is not strided or getattr(found._array, "tracer", None):
                parameter.grad = part.clone()
            else:
                old.copy_(part)
