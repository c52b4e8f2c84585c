"""What the batch rules share: where a sample's dimensions lie, and rules for elementwise rows and for rows with a dimension parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradlab.dtype import INT64, bfloat16, float16
from gradlab.op import Op
from gradlab.spec import count

Flags = list[bool]
Values = list[Any]
Params = dict[str, Any]
HALVES = float16, bfloat16
STATISTICS = "mean", "rstd", "var"  # outputs that norms of half types give in float32


def is_tensor(value: Any) -> bool:
    """Whether an input is a tensor, not a number or None."""
    return hasattr(value, "_edge")


def rank(value: Any, mapped: bool) -> int:
    """The number of dimensions of one sample."""
    return len(value.shape) - mapped if is_tensor(value) else 0


def sample_shape(value: Any, mapped: bool) -> tuple[int, ...]:
    """The shape of one sample."""
    shape: tuple[int, ...] = value.shape
    return shape[1:] if mapped else shape


def front(value: Any, mapped: bool, size: int) -> Any:
    """The value with the batch in front, repeated (without a copy) if it is the same for every sample. Numbers and None as they are."""
    return value if mapped or not is_tensor(value) else value.expand((size, *value.shape))


def fronts(values: Values, mapped: Flags, size: int) -> Values:
    """`front` of all."""
    return [front(v, m, size) for v, m in zip(values, mapped, strict=True)]


def padded(value: Any, mapped: bool, wanted: int) -> Any:
    """A mapped value whose samples get sizes of 1 in front, up to `wanted` dimensions, so that they broadcast as one sample does."""
    missing = wanted - rank(value, mapped)
    return value.reshape((value.shape[0], *(1,) * missing, *value.shape[1:])) if mapped and missing > 0 else value


def rounds_once(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of several steps: on half types they are computed in float32, and the results that the row gives in the half type are cast."""

    @functools.wraps(rule)
    def once(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
        half = next((v.dtype for v in values if is_tensor(v) and v.dtype in HALVES), None)
        if half is None:
            return rule(op, size, mapped, values, params)
        found = rule(op, size, mapped, [v.float() if is_tensor(v) and v.dtype in HALVES else v for v in values], params)
        if op.result is None:
            return found.to(half)
        return tuple([y if name in STATISTICS else y.to(half) for name, y in zip(op.outputs, found, strict=True)])

    return once


def moved(value: Any, source: int, target: int) -> Any:
    """One dimension in another place."""
    if source == target:
        return value
    order = [d for d in range(len(value.shape)) if d != source]
    order.insert(target, source)
    return value.permute(order)


def numbers(size: int, like: Any) -> Any:
    """0 … size - 1 as int64, on the device of `like`."""
    return like.new_ones((size,), dtype=INT64).cumsum(0) - 1


def outputs(found: Any, change: Any) -> Any:
    """`change` of a row's output, or of each of several."""
    return tuple(map(change, found)) if isinstance(found, tuple) else change(found)


def total(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape."""
    return count(shape)


def aligned(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Elementwise: samples broadcast against each other as they would one by one."""
    if len(values) == 1:
        return op(values[0], **params)
    wanted = max([rank(v, m) for v, m in zip(values, mapped, strict=True)])
    ready = [padded(v, m, wanted) for v, m in zip(values, mapped, strict=True)]
    return op(*ready, **params)


def leading(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Rows that take any number of dimensions in front."""
    return op(*fronts(values, mapped, size), **params)


def shifted(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Rows whose `dim`, `dims`, `dim1` … count dimensions and whose `shape` is one of a sample: one more in front.

    A 0-d sample counts as having one dimension: it gets one, and the results lose it again.
    """
    changed = {name: along(name, value, size) for name, value in params.items()}
    given = fronts(values, mapped, size)
    if any(isinstance(params.get(name), int) and name in PLACES for name in params) and all(
        rank(v, True) == 0 for v in given if is_tensor(v)
    ):
        if params.get("shape") == ():
            changed["shape"] = (size, 1)
        found = op(*[v.unsqueeze(1) if is_tensor(v) else v for v in given], **changed)
        return outputs(found, lambda y: y.reshape((size,)) if total(y.shape) == size else y)
    return op(*given, **changed)


PLACES = frozenset({"dim", "dims", "dim0", "dim1", "dim2"})


def along(name: str, value: Any, size: int) -> Any:
    """A parameter of one sample as one of the batch."""
    if name in PLACES:
        return tuple(d + 1 for d in value) if isinstance(value, tuple) else value + 1
    return (size, *value) if name == "shape" else value


