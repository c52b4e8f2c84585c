"""Rows on operands that do not lie row by row, whose results lie as `Op.lies` says; for every backend that computes at once.

An elementwise row runs with all dimensions in the order of the result's memory, so that it is row-major for whoever computes it. Another
row's results are computed row by row and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.op import Op
from gradlab.spec import Spec
from gradlab.strides import inverse_order, ordered, result_orders


def lie_row_by_row(arrays: Sequence[Any]) -> bool:
    """Whether all inputs of a row do."""
    return all(a is None or isinstance(a, (int, float, complex)) or a.flags.c_contiguous for a in arrays)


def turning(ranks: Sequence[int], order: tuple[int, ...]) -> Callable[[list[Any]], list[Any]]:
    """What puts the dimensions of an elementwise row's operands in another order. ranks: theirs, -1 of what is no array."""
    if all(rank == len(order) for rank in ranks):
        return lambda arrays: [a.transpose(order) for a in arrays]
    return lambda arrays: [a if rank < 0 else ordered(a, order, len(order)) for a, rank in zip(arrays, ranks)]


def run(
    op: Op, arrays: list[Any], params: dict[str, Any], results: Sequence[Spec], compute: Callable[..., Any], copy: Callable[[Any], Any]
) -> Any:
    """What the row makes. compute: runs it, its results row-major; copy: a row-major copy of an array."""
    orders = result_orders(op.lies, arrays, results, params)
    order = orders[0]
    if op.elementwise and order is not None:
        rank = len(order)
        turned = [a if a is None or isinstance(a, (int, float, complex)) else ordered(a, order, rank) for a in arrays]
        return compute(op, turned, params).transpose(inverse_order(order))
    found = compute(op, arrays, params)
    if all(o is None for o in orders):
        return found
    laid = [y if o is None else copy(y.transpose(o)).transpose(inverse_order(o))
            for y, o in zip(found if isinstance(found, tuple) else (found,), orders, strict=True)]  # fmt: skip
    return laid[0] if len(laid) == 1 else tuple(laid)
