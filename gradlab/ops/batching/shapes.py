"""Batch rules of rows that move elements, and of sets."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops.batching.common import Flags, Params, Values, fronts, rank, shifted, total
from gradlab.ops.movement import permute


def view(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The batch keeps its place in front of the new shape; a copy where strides do not allow a view."""
    return values[0].reshape((size, *params["shape"]))


def permuted(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Another order of the sample's dimensions."""
    return op(values[0], dims=(0, *(d + 1 for d in params["dims"])))


def transposed(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Two dimensions of the sample change places; a 0-d one has none."""
    return shifted(op, size, mapped, values, params) if rank(values[0], True) else values[0].reshape((size,))


def reversed_order(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """All dimensions of the sample in reverse."""
    return permute(values[0], dims=(0, *range(rank(values[0], True), 0, -1)))


def expanded(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """New dimensions come between the batch and the sample's own."""
    (x,), shape = values, params["shape"]
    return x.reshape((size, *(1,) * (len(shape) - rank(x, True)), *x.shape[1:])).expand((size, *shape))


def sliced(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The whole batch, and in it the sample's part. For the reading, the writing and the gradient."""
    changed = {"index": ((0, None, 1), *params["index"])}
    if "shape" in params:
        changed["shape"] = (size, *params["shape"])
    return op(*fronts(values, mapped, size), **changed)


def windows(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Windows along a dimension of the sample. A 0-d sample has one window, of one element."""
    (x,) = values
    if op.name == "unfold" and rank(x, True) == 0:
        return x.unsqueeze(1) if params["size"] else x.unsqueeze(1).narrow(1, 0, 0)
    if op.name == "unfold_backward" and params["shape"] == ():
        return x.reshape((size,)) if params["size"] else x.new_zeros((size,))
    changed = {**params, "dim": params["dim"] + 1}
    if "shape" in params:
        changed["shape"] = (size, *params["shape"])
    return op(x, **changed)


def padding(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Nothing before and behind the batch."""
    return op(values[0], pads=((0, 0), *params["pads"]), value=params["value"])


def joined(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples one after the other along a dimension of theirs."""
    return op(*fronts(values, mapped, size), dim=params["dim"] + 1)


def membership(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """A set of each sample's own is compared with each of its elements."""
    if not mapped[1]:
        return op(*values, **params)
    x, test = fronts(values, mapped, size)
    found = (x.unsqueeze(-1) == test.reshape((size, *(1,) * rank(x, True), total(test.shape[1:])))).any(-1)
    return found.logical_not() if params["invert"] else found


def found_places(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Boundaries of one dimension serve all values of a sample."""
    boundaries, x = values
    if not mapped[0] and rank(boundaries, False) == 1:
        return op(boundaries, x, **params)
    boundaries, x = fronts(values, mapped, size)
    if rank(boundaries, True) == 1:
        return op(boundaries, x.reshape((size, total(x.shape[1:]))), **params).reshape(x.shape)
    return op(boundaries, x, **params)


def triangle(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Any number of matrices."""
    return op(values[0], **params)


# Rows whose parameters name dimensions and nothing else about the shape need none: `rule_of` derives theirs.
SHAPES = {
    "view": view, "permute": permuted, "transpose": transposed, "t": reversed_order, "expand": expanded,
    "unsqueeze": lambda op, size, mapped, values, params: op(values[0], dim=params["dim"] + 1),
    "slice": sliced, "slice_backward": sliced, "slice_scatter": sliced, "cat": joined, "pad": padding,
    "unfold": windows, "unfold_backward": windows, "searchsorted": found_places, "isin": membership, "tril": triangle, "triu": triangle,
}  # fmt: skip
