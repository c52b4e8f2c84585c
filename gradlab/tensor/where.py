"""Choosing between values, element by element: where, masks, limits, the larger and the smaller of two.

Inputs broadcast; dtypes promote as in PyTorch. Results are new tensors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.advice import warn
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import FLOAT32, FLOAT64, INEXACT, iinfo, result_type
from gradlab.named_errors import explain, named_functions
from gradlab.tensor.common_arguments import into
from gradlab.tensor.comparison import tensors_only
from gradlab.tensor.from_data import operand

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["clamp", "clip", "masked_fill", "maximum", "minimum", "where"]

_rows = ops.elementwise
_maximum, _minimum, _where, _lt, _gt, _clamp, _ne, _logical_or = map(
    bind, (_rows.maximum, _rows.minimum, _rows.where, _rows.lt, _rows.gt, _rows.clamp, _rows.ne, _rows.logical_or)
)

Operand = Any  # a Tensor or a Python number
_READY, _NUMBERS = frozenset({FLOAT32, FLOAT64}), frozenset({float, int, type(None)})


def clamp(input: Tensor, min: Operand = None, max: Operand = None, *, out: Any = None) -> Tensor:
    """Limit each element to [min, max]; either may be left out; tensors broadcast. NaN stays NaN. Where min > max the result is max.

    >>> gl.clamp(gl.tensor([-1.0, 0.5, 3.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    try:
        numbers_only = out is None and type(min) in _NUMBERS and type(max) in _NUMBERS and not min is max is None
        if numbers_only and isinstance(input, Differentiable) and input._array.dtype in _READY:
            return _clamp(input, lo=-math.inf if min is None else min, hi=math.inf if max is None else max)
        if out is not None:
            return into("clamp.into" if any(isinstance(x, Differentiable) for x in (min, max)) else "clamp", out, clamp(input, min, max))
        if min is None and max is None:
            raise ValueError("clamp: give min, max or both")
        if isinstance(min, Differentiable) or isinstance(max, Differentiable):
            given = (input, *[v for v in (min, max) if v is not None])
            tensors = [(x._array.dtype, len(x._array.shape)) for x in given if isinstance(x, Differentiable)]
            dtype = result_type(tensors, [x for x in given if not isinstance(x, Differentiable)])
            input = input if input._array.dtype == dtype else input.to(dtype)
            out = input if min is None else _bounded(_lt, input, min)
            return out if max is None else _bounded(_gt, out, max)
        if isinstance(min, np.generic) or isinstance(max, np.generic):
            return clamp(input, *[v.item() if isinstance(v, np.generic) else v for v in (min, max)])
        numbers = [v for v in (min, max) if v is not None]
        dtype = result_type([(input._array.dtype, len(input._array.shape))], numbers)
        low, high = (-math.inf, math.inf) if dtype in INEXACT else (iinfo(dtype).min, iinfo(dtype).max)
        lo = low if min is None or min < low else high if min > high else min
        hi = high if max is None or max > high else low if max < low else max
        return _clamp(input if input._array.dtype == dtype else input.to(dtype), lo=lo, hi=hi)
    except Exception as error:
        explain(error, "clamp", clamp, (input, min, max), {"out": out})


def _bounded(beyond: Any, x: Tensor, bound: Operand) -> Tensor:
    """The bound where an element is beyond it, and where it is NaN."""
    limit, kept = _together(bound, x)
    passed = beyond(x, bound)
    return _where(_logical_or(passed, _ne(limit, limit)) if limit._array.dtype in INEXACT else passed, limit, kept)


def maximum(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The larger of two, NaN if either is NaN. Equal elements share the gradient. For a number use clamp(min=…).

    >>> gl.maximum(gl.tensor([1, 5]), gl.tensor([3, 2]))
    tensor([3, 5])
    """
    tensors_only("maximum", input, other)
    return _maximum(input, other) if out is None else into("maximum", out, _maximum(input, other))


def minimum(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The smaller of two, NaN if either is NaN. Equal elements share the gradient. For a number use clamp(max=…).

    >>> gl.minimum(gl.tensor([1, 5]), gl.tensor([3, 2]))
    tensor([1, 2])
    """
    tensors_only("minimum", input, other)
    return _minimum(input, other) if out is None else into("minimum", out, _minimum(input, other))


def _together(a: Operand, b: Operand) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of their result type."""
    if isinstance(a, Differentiable) and isinstance(b, Differentiable) and a._array.dtype == b._array.dtype:
        return a, b  # type: ignore[return-value]
    tensors = [x for x in (a, b) if isinstance(x, Differentiable)]
    numbers = [x for x in (a, b) if not isinstance(x, Differentiable)]
    dtype = result_type([(t._array.dtype, len(t._array.shape)) for t in tensors], numbers)
    like: Any = tensors[0] if tensors else None
    made = [x.to(dtype) if isinstance(x, Differentiable) else operand(like, x, dtype) for x in (a, b)]  # type: ignore[attr-defined]
    return made[0], made[1]


def where(condition: Tensor, input: Operand = None, other: Operand = None, *, out: Any = None) -> Any:
    """`input` where the bool tensor `condition` is true, else `other`; all broadcast. With the condition alone: nonzero(as_tuple=True).
    A condition of uint8 is taken, with a UserWarning.

    >>> gl.where(gl.tensor([True, False]), 1.0, 0.0)
    tensor([1., 0.])
    """
    try:
        if out is not None:
            return into("where", out, where(condition, input, other))
        if input is None and other is None:
            return condition.nonzero(as_tuple=True)
        try:
            if isinstance(input, Differentiable) or isinstance(other, Differentiable):
                return _where(condition, *_together(input, other))
            dtype = result_type([], [input, other])
            return _where(condition, condition.new_full((), input, dtype=dtype), condition.new_full((), other, dtype=dtype))
        except TypeError:
            if not isinstance(condition, Differentiable) or condition._array.dtype != np.uint8:
                raise
        warn(UserWarning, "where: a condition of uint8 is taken as PyTorch's older scripts mean it; say so: .bool()")
        return where(condition.bool(), input, other)
    except Exception as error:
        explain(error, "where", where, (condition, input, other), {"out": out})


def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """`input` with `value` (a number or a 0-d tensor) where the bool tensor `mask` is true.

    >>> gl.masked_fill(gl.ones(2), gl.tensor([True, False]), 0.0)
    tensor([0., 1.])
    """
    try:
        found = filled(input, mask, value)
        array = found._array
        return found if type(array) is np.ndarray and array.flags.c_contiguous else found.contiguous()  # row by row, as PyTorch's
    except Exception as error:
        explain(error, "masked_fill", masked_fill, (input, mask, value))


def filled(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """As `masked_fill`, lying as its operands do: what other functions are made of."""
    if not isinstance(value, Differentiable):
        value = operand(input, value)
    elif value._array.shape:
        raise RuntimeError(f"masked_fill: value is a number or a 0-d tensor, not one of shape {value._array.shape}; use where")
    else:
        value = value.to(input._array.dtype)  # type: ignore[attr-defined]
    return _where(mask, value, input)


clip = clamp


named_functions(__name__)


class WhereMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    clamp, clip, maximum, minimum, masked_fill = clamp, clamp, maximum, minimum, masked_fill

    def where(self, condition: Tensor, other: Operand) -> Tensor:
        """This tensor where `condition` is true, else `other`.

        >>> gl.tensor([1, 2]).where(gl.tensor([True, False]), 0)
        tensor([1, 0])
        """
        try:
            return where(condition, self, other)
        except Exception as error:
            explain(error, "where", type(self).where, (self, condition, other))
