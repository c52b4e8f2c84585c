"""Comparison and logic: truth values, and bits of integers. Inputs broadcast; no gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable, foreign, reflecting
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "eq", "ge", "greater", "greater_equal", "gt", "isfinite", "isinf", "isnan",
    "le", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal",
]  # fmt: skip

_rows = ops.elementwise
_eq, _ne, _lt, _le, _gt, _ge = map(bind, (_rows.eq, _rows.ne, _rows.lt, _rows.le, _rows.gt, _rows.ge))
_logical_and, _logical_or, _logical_xor, _logical_not = map(
    bind, (_rows.logical_and, _rows.logical_or, _rows.logical_xor, _rows.logical_not)
)
_isnan, _isinf, _isfinite = map(bind, (_rows.isnan, _rows.isinf, _rows.isfinite))
_and, _or, _xor, _not = map(bind, (_rows.bitwise_and, _rows.bitwise_or, _rows.bitwise_xor, _rows.bitwise_not))

Operand = Any  # a Tensor or a Python number
_PLAIN = frozenset({int, float})
_COMPARABLE = (Differentiable, int, float, complex, np.generic, np.ndarray)


def comparable(other: Any) -> bool:
    """Whether `==` and `!=` compare elements with it; None, a text and the like are just another thing."""
    return isinstance(other, _COMPARABLE) or hasattr(type(other), "__torch_function__")


def tensors_only(name: str, *operands: Any) -> None:
    """Raise TypeError for a Python number: where PyTorch takes none, none is taken."""
    for x in operands:
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: takes a tensor here, not {type(x).__name__}; make a tensor of it")


def eq(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether equal, element by element.

    >>> gl.eq(gl.tensor([1, 2, 3]), 2)
    tensor([False,  True, False])
    """
    tensors_only("eq", input)
    return _eq(input, other) if out is None else into("eq", out, _eq(input, other))


def ne(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether not equal.

    >>> gl.ne(gl.tensor([1, 2, 3]), 2)
    tensor([ True, False,  True])
    """
    tensors_only("ne", input)
    return _ne(input, other) if out is None else into("ne", out, _ne(input, other))


def lt(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether less.

    >>> gl.lt(gl.tensor([1, 2, 3]), 2)
    tensor([ True, False, False])
    """
    tensors_only("lt", input)
    return _lt(input, other) if out is None else into("lt", out, _lt(input, other))


def le(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether less or equal.

    >>> gl.le(gl.tensor([1, 2, 3]), 2)
    tensor([ True,  True, False])
    """
    tensors_only("le", input)
    return _le(input, other) if out is None else into("le", out, _le(input, other))


def gt(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether greater.

    >>> gl.gt(gl.tensor([1, 2, 3]), 2)
    tensor([False, False,  True])
    """
    tensors_only("gt", input)
    return _gt(input, other) if out is None else into("gt", out, _gt(input, other))


def ge(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Whether greater or equal.

    >>> gl.ge(gl.tensor([1, 2, 3]), 2)
    tensor([False,  True,  True])
    """
    tensors_only("ge", input)
    return _ge(input, other) if out is None else into("ge", out, _ge(input, other))


def logical_and(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Whether both are nonzero.

    >>> gl.logical_and(gl.tensor([True, True]), gl.tensor([True, False]))
    tensor([ True, False])
    """
    tensors_only("logical_and", input, other)
    return _logical_and(input, other) if out is None else into("logical_and", out, _logical_and(input, other))


def logical_or(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Whether either is nonzero.

    >>> gl.logical_or(gl.tensor([True, True]), gl.tensor([True, False]))
    tensor([True, True])
    """
    tensors_only("logical_or", input, other)
    return _logical_or(input, other) if out is None else into("logical_or", out, _logical_or(input, other))


def logical_xor(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Whether exactly one is nonzero.

    >>> gl.logical_xor(gl.tensor([True, True]), gl.tensor([True, False]))
    tensor([False,  True])
    """
    tensors_only("logical_xor", input, other)
    return _logical_xor(input, other) if out is None else into("logical_xor", out, _logical_xor(input, other))


def logical_not(input: Tensor, *, out: Any = None) -> Tensor:
    """Whether zero.

    >>> gl.logical_not(gl.tensor([0, 3]))
    tensor([ True, False])
    """
    return _logical_not(input) if out is None else into("logical_not", out, _logical_not(input))


def isnan(input: Tensor) -> Tensor:
    """Whether not a number.

    >>> gl.isnan(gl.tensor([1.0, float("inf"), float("nan")]))
    tensor([False, False,  True])
    """
    return _isnan(input)


def isinf(input: Tensor) -> Tensor:
    """Whether infinite, of either sign.

    >>> gl.isinf(gl.tensor([1.0, float("inf"), float("nan")]))
    tensor([False,  True, False])
    """
    return _isinf(input)


def isfinite(input: Tensor) -> Tensor:
    """Whether neither infinite nor NaN.

    >>> gl.isfinite(gl.tensor([1.0, float("inf"), float("nan")]))
    tensor([ True, False, False])
    """
    return _isfinite(input)


def bitwise_and(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits set in both, of integers; "and" of truth values.

    >>> gl.bitwise_and(gl.tensor([12, 10]), 6)
    tensor([4, 2])
    """
    return _and(input, other) if out is None else into("bitwise_and", out, _and(input, other))


def bitwise_or(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits set in either, of integers; "or" of truth values.

    >>> gl.bitwise_or(gl.tensor([12, 10]), 6)
    tensor([14, 14])
    """
    return _or(input, other) if out is None else into("bitwise_or", out, _or(input, other))


def bitwise_xor(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits set in exactly one, of integers.

    >>> gl.bitwise_xor(gl.tensor([12, 10]), 6)
    tensor([10, 12])
    """
    return _xor(input, other) if out is None else into("bitwise_xor", out, _xor(input, other))


def bitwise_not(input: Tensor, *, out: Any = None) -> Tensor:
    """All bits inverted, of integers; "not" of truth values.

    >>> gl.bitwise_not(gl.tensor([0, 3]))
    tensor([-1, -4])
    """
    return _not(input) if out is None else into("bitwise_not", out, _not(input))


greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne


named_functions(__name__)


class ComparisonMethods(Differentiable):
    """The methods and operators of this family."""

    __slots__ = ()
    eq, ne, lt, le, gt, ge = eq, ne, lt, le, gt, ge
    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
    logical_and, logical_or, logical_xor, logical_not = logical_and, logical_or, logical_xor, logical_not
    isnan, isinf, isfinite = isnan, isinf, isfinite
    bitwise_and, bitwise_or, bitwise_xor, bitwise_not = bitwise_and, bitwise_or, bitwise_xor, bitwise_not

    def __eq__(self, other: object) -> Any:
        return _eq(self, other) if comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _ne(self, other) if comparable(other) else NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Any:
        return _lt(self, other) if type(other) in _PLAIN or not foreign(other, "__gt__") else NotImplemented

    def __le__(self, other: Any) -> Any:
        return _le(self, other) if type(other) in _PLAIN or not foreign(other, "__ge__") else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return _gt(self, other) if type(other) in _PLAIN or not foreign(other, "__lt__") else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return _ge(self, other) if type(other) in _PLAIN or not foreign(other, "__le__") else NotImplemented

    __and__, __rand__ = reflecting(bitwise_and, "__rand__"), bitwise_and
    __or__, __ror__ = reflecting(bitwise_or, "__ror__"), bitwise_or
    __xor__, __rxor__ = reflecting(bitwise_xor, "__rxor__"), bitwise_xor
    __invert__ = bitwise_not
