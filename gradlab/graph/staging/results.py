"""What a compiled function returns: which results are tensors of their own, and which share memory with arguments, state or each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.autograd import engine
from gradlab.autograd.base import LEAF
from gradlab.autograd.inplace import base_of
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import refresh
from gradlab.graph.staging.symbol import Symbol

VALUE, ARGUMENT, TENSOR, GRADIENT, GRADIENT_OF_ARGUMENT = "value", "argument", "tensor", "gradient", "gradient of an argument"


class Result(NamedTuple):
    """Where one tensor of the result comes from.

    kind, place   a value the program computes ("value", its position), an argument ("argument", its position), a tensor from before the
                  trace ("tensor", itself), or what one of them has in .grad afterwards
    chain         view rows that lead from there to the result; None where it is that tensor itself
    quiet         whether the view is outside of the autograd graph
    leaf          whether it requires grad as a leaf
    """

    kind: str
    place: Any
    chain: tuple[Any, ...] | None = None
    quiet: bool = False
    leaf: bool = False


class Results(NamedTuple):
    """results, and the tensors of the trace that are the program's values.

    written  (argument, value): arguments that what was written to them put into the graph
    """

    results: list[Result]
    values: list[Any]
    written: list[tuple[int, int]]


def results_of(found: Sequence[Any], arguments: Sequence[Any], from_before: Sequence[Any], graded: Sequence[Any]) -> Results:
    """Sort the tensors that a traced function returned, while the trace is going on.

    A view shares the memory of what it is a view of, as it does eagerly: of an argument, of a tensor from before the trace, of a result, or
    of what two results are views of. A view of a value that nobody else sees is a value, if it lies row by row.
    """
    place = {id(t): i for i, t in reversed(list(enumerate(arguments)))}
    before = set(map(id, from_before))
    gradients = {id(t._grad): t for t in graded if t._grad is not None}
    for t in found:
        if t._meta is not None:
            refresh(t)
    bases = [_base(t) for t in found]
    own = {id(t): t for t in found}
    seen = Counter({id(b): n for b, n in _views(found, bases)})
    # What t_ or its like made a view of what it was counts as one where another result shows that memory, too.
    bases = [None if b is not None and t._meta.hidden and seen[id(b)] == 1 else b for t, b in zip(found, bases, strict=True)]
    values: list[Any] = []
    at: dict[int, int] = {}

    def root(t: Any) -> tuple[str, Any]:
        """A tensor that is no view, or is taken as if it were none."""
        if id(t) in place:
            return ARGUMENT, place[id(t)]
        if type(t._array) is not Symbol or id(t) in before:
            return TENSOR, t
        if id(t) in gradients:
            owner = gradients[id(t)]
            return (GRADIENT_OF_ARGUMENT, place[id(owner)]) if id(owner) in place else (GRADIENT, owner)
        if id(t) not in at:
            at[id(t)] = len(values)
            values.append(t)
        return VALUE, at[id(t)]

    results = []
    for t, base in zip(found, bases, strict=True):
        known = base is not None and any(id(base) in x for x in (place, before, gradients, own))
        shares = known or (base is not None and (type(base._array) is not Symbol or seen[id(base)] > 1 or not t._array.flags.c_contiguous))
        if id(t) in place or id(t) in before or not shares:
            kind, where = root(t)
            results.append(Result(kind, where, leaf=kind == VALUE and t._edge is LEAF))
        else:
            assert base is not None
            if base._meta is not None:
                refresh(base)
            results.append(Result(*root(base), t._meta.chain, t._edge is None or t._edge is LEAF, t._edge is LEAF))
    written = []
    for t in dict.fromkeys(arguments):
        if t._edge is not None and t._edge is not LEAF and all(node.saved is not None for node in engine.reachable([t._edge])):
            written.append((place[id(t)], len(values)))
            values.append(t)
    return Results(results, values, written)


def _base(t: Any) -> Any:
    """What a tensor is a view of."""
    meta = t._meta
    base = None if meta is None else base_of(meta)
    return base if base is None or base._meta is None or base._meta.base is None else None


def _views(found: Sequence[Any], bases: Sequence[Any]) -> list[tuple[Any, int]]:
    """Each base, with the number of different results that are views of it."""
    different: dict[int, tuple[Any, set[int]]] = {}
    for t, base in zip(found, bases, strict=True):
        if base is not None:
            different.setdefault(id(base), (base, set()))[1].add(id(t))
    return [(base, len(ids)) for base, ids in different.values()]


def built(results: Sequence[Result], values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The tensors of the result, from the program's values and the arguments."""
    found = []
    for r in results:
        t = values[r.place] if r.kind == VALUE else given[r.place] if r.kind in (ARGUMENT, GRADIENT_OF_ARGUMENT) else r.place
        if r.kind in (GRADIENT, GRADIENT_OF_ARGUMENT):
            t = t._grad
        if r.chain is not None:
            t = _view(t, r)
        if r.leaf:
            t._edge = LEAF
        found.append(t)
    return found


def _view(t: Any, r: Result) -> Any:
    if not r.chain:
        return t.detach()
    token = enter(current().replace(recording=False)) if r.quiet else None
    try:
        for op, params in r.chain:
            t = op.call(t, **params)
    finally:
        if token is not None:
            leave(token)
    return t
