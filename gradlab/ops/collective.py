"""Rows of what the processes of a program do together; each gets its values from the others by a carrier, its parameter `by`.

A carrier is a `gradlab.distributed.transport.Transport`: it has `rank`, `size`, and for each row a method of that name, which takes the
arrays to give and to fill. The rows know nothing else of it. All processes of a group run the same rows in the same order. A gradient
goes back the way the values came; so it is asked for in all processes, or in none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Library
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec

_GPU = Library(lambda library, inputs, params: None)  # by backends/cuda/launch/collective.py

# How a whole batch travels at once. Rules of vmap: see gradlab/ops/batching/__init__.py.


def _whole(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    return op(values[0], **params)


def _behind(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    """The processes' dimension stays in front, the batch comes behind it."""
    found = op(values[0] if op is all_gather else values[0].movedim(1, 0), **params)
    return found if op is reduce_scatter else found.movedim(1, 0)


def _parts(x: Spec, by: Any) -> None:
    if not x.shape or x.shape[0] != by.size:
        raise ShapeError(f"the first dimension has one part for each of the {by.size} processes, not shape {x.shape}")


def _reduced(x: Spec, *, by: Any, op: str) -> Spec:
    return Spec(x.shape, x.dtype)


def _rooted(x: Spec, *, by: Any, root: int) -> Spec:
    return Spec(x.shape, x.dtype)


def _reduced_rooted(x: Spec, *, by: Any, op: str, root: int) -> Spec:
    return Spec(x.shape, x.dtype)


def _linear(name: str, op: str) -> None:
    if op not in ("sum", "mean"):
        raise NotImplementedError(f"{name}: the {op} has no gradient here; gradlab.distributed.nn.all_reduce has one for each operation")


def _all_reduce_grad(g: Any, by: Any, op: str) -> Any:
    _linear("all_reduce", op)
    return all_reduce(g, by=by, op=op)


# Every process has the sum (or another reduction) of all: so each's value is in all results, and its gradient is the sum of theirs.
all_reduce: Op = Op(
    "all_reduce", _reduced, params=("by", "op"), exact=True, cuda=_GPU, batch=_whole,
    cpu=lambda x, y, by, op: by.all_reduce(_rows(x), y, op),
    grad={"x": _all_reduce_grad},
)  # fmt: skip


def _reduce_grad(g: Any, by: Any, op: str, root: int) -> Any:
    _linear("reduce", op)
    found = broadcast(g, by=by, root=root)
    return found if op == "sum" else found / by.size


# Process `root` has the sum of all, the others have zeros.
reduce: Op = Op(
    "reduce", _reduced_rooted, params=("by", "op", "root"), exact=True, cuda=_GPU, batch=_whole,
    cpu=lambda x, y, by, op, root: by.reduce(_rows(x), y, op, root),
    grad={"x": _reduce_grad},
)  # fmt: skip


# Every process has the value of `root`, whose gradient is the sum of all; those of the others have none.
broadcast: Op = Op(
    "broadcast", _rooted, params=("by", "root"), exact=True, cuda=_GPU, batch=_whole,
    cpu=lambda x, y, by, root: by.broadcast(_rows(x), y, root),
    grad={"x": lambda g, by, root: reduce(g, by=by, op="sum", root=root)},
)  # fmt: skip


def _gathered(x: Spec, *, by: Any) -> Spec:
    return Spec((by.size, *x.shape), x.dtype)


# Every process has the values of all, along a new first dimension.
all_gather: Op = Op(
    "all_gather", _gathered, params=("by",), exact=True, cuda=_GPU, batch=_behind,
    cpu=lambda x, y, by: by.all_gather(_rows(x), y),
    grad={"x": lambda g, by: reduce_scatter(g, by=by, op="sum")},
)  # fmt: skip


def _scattered(x: Spec, *, by: Any, op: str) -> Spec:
    _parts(x, by)
    return Spec(x.shape[1:], x.dtype)


def _reduce_scatter_grad(g: Any, by: Any, op: str) -> Any:
    _linear("reduce_scatter", op)
    found = all_gather(g, by=by)
    return found if op == "sum" else found / by.size


# Process i has the sum of all processes' i-th parts along the first dimension.
reduce_scatter: Op = Op(
    "reduce_scatter", _scattered, params=("by", "op"), exact=True, cuda=_GPU, batch=_behind,
    cpu=lambda x, y, by, op: by.reduce_scatter(_rows(x), y, op),
    grad={"x": _reduce_scatter_grad},
)  # fmt: skip


def _exchanged(x: Spec, *, by: Any, give: tuple[int, ...], take: tuple[int, ...]) -> Spec:
    if not x.shape or len(give) != by.size or len(take) != by.size or sum(give) != x.shape[0]:
        raise ShapeError(
            f"give and take are {by.size} numbers of rows, and all that is given {x.shape[0] if x.shape else 1}; not {give}, {take}"
        )
    return Spec((sum(take), *x.shape[1:]), x.dtype)


# `give[i]` rows of x go to process i, `take[i]` come from it.
all_to_all: Op = Op(
    "all_to_all", _exchanged, params=("by", "give", "take"), exact=True, cuda=_GPU, batch=_behind,
    cpu=lambda x, y, by, give, take: by.all_to_all(_rows(x), y, give, take),
    grad={"x": lambda g, by, give, take: all_to_all(g, by=by, give=take, take=give)},
)  # fmt: skip


def _begun(x: Spec, *, by: Any, op: str, slot: int) -> Spec:
    return Spec(x.shape, x.dtype)


# The two halves of `all_reduce`: between them the program goes on while values travel. What lies in the first's result meanwhile is
# nobody's business; `slot` says which beginning an end belongs to.
all_reduce_begin = Op(
    "all_reduce_begin", _begun, params=("by", "op", "slot"), exact=True, cuda=_GPU, batch=_whole,
    cpu=lambda x, y, by, op, slot: by.begin_all_reduce(_rows(x), y, op, slot),
)  # fmt: skip
all_reduce_end = Op(
    "all_reduce_end", _begun, params=("by", "op", "slot"), exact=True, cuda=_GPU, batch=_whole,
    cpu=lambda x, y, by, op, slot: by.end_all_reduce(x, y, slot),
)  # fmt: skip


def _rows(x: Any) -> Any:
    """Row by row in memory, as it travels."""
    return np.ascontiguousarray(x) if x.shape else x
