"""Elementwise functions and methods: arithmetic, powers, exponentials, rounding. Choosing between values is in `where.py`.

Every function here takes tensors of any shape; two inputs broadcast; dtypes promote as in PyTorch. Results are new tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable, reflecting
from gradlab.autograd.record import bind, operator
from gradlab.dtype import BOOL, COMPLEX, FLOATING, INEXACT, INT64, needs_floating
from gradlab.named_errors import explain, named_functions, number
from gradlab.spec import whole
from gradlab.tensor.common_arguments import into
from gradlab.tensor.deprecated_arguments import with_factor
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "abs", "absolute", "add", "ceil", "cos", "div", "divide", "exp", "floor", "log", "mul", "multiply", "neg", "negative", "pow",
    "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "sub", "subtract", "tanh", "true_divide",
    "trunc",
]  # fmt: skip

_rows = ops.elementwise
_add, _sub, _mul, _div, _pow, _pow_tensor = map(bind, (_rows.add, _rows.sub, _rows.mul, _rows.div, _rows.pow, _rows.pow_tensor))
_exp, _log, _sqrt, _rsqrt, _sin, _cos, _tanh, _sigmoid, _reciprocal = map(
    bind, (_rows.exp, _rows.log, _rows.sqrt, _rows.rsqrt, _rows.sin, _rows.cos, _rows.tanh, _rows.sigmoid, _rows.reciprocal)
)
_neg, _abs, _sign, _square, _floor, _ceil, _trunc, _round, _relu = map(
    bind,
    (_rows.neg, _rows.abs, _rows.sign, _rows.square, _rows.floor, _rows.ceil, _rows.trunc, _rows.round, _rows.relu),
)
_clone = bind(_rows.clone)
_floor_divide, _fmod = map(bind, (ops.math.floor_divide, ops.math.fmod))

Operand = Any  # a Tensor or a Python number


_ONE = 1  # asked for by identity: True is equal to it, and is no factor


@rounds_once
def _with_multiple(row: Any, input: Operand, other: Operand, alpha: float) -> Any:
    """The row of `input` and alpha · other."""
    return row(input, other * alpha)


def _with_factor(name: str, row: Any, input: Operand, other: Operand, alpha: Any) -> Any:
    """As `_with_multiple`, of an alpha that was given. RuntimeError for one that is no number of the result's kind, as in PyTorch."""
    if type(alpha) is float and isinstance(input, Differentiable) and input._array.dtype in INEXACT:
        return row(input, other) if alpha == 1 else _with_multiple(row, input, other, alpha)
    alpha = number(name, "alpha", alpha)
    dtypes = [x._array.dtype for x in (input, other) if isinstance(x, Differentiable)]
    if isinstance(alpha, (bool, np.bool_)) and any(dtype != BOOL for dtype in dtypes):
        raise RuntimeError(f"{name}: alpha is a number, not {alpha}, where the tensors are no truth values")
    if isinstance(alpha, (complex, np.complexfloating)) and not any(dtype in COMPLEX for dtype in dtypes):
        raise RuntimeError(f"{name}: alpha is a real number where no tensor is complex, not {alpha}")
    whole_numbers = dtypes and not any(dtype in INEXACT for dtype in dtypes) and not any(isinstance(x, float) for x in (input, other))
    if whole_numbers and isinstance(alpha, (float, np.floating)):
        raise RuntimeError(f"{name}: alpha is an integer where the tensors are, not {alpha}")
    alpha = bool(alpha) if all(dtype == BOOL for dtype in dtypes) and (len(dtypes) == 2 or isinstance(other, bool)) else alpha
    return row(input, other) if alpha == 1 else _with_multiple(row, input, other, alpha)


def add(input: Operand, other: Operand, *old: Any, alpha: float = 1, out: Any = None) -> Tensor:
    """input + alpha · other.

    >>> gl.add(gl.tensor([1.0, 2.0]), 1, alpha=10)
    tensor([11., 12.])
    """
    try:
        if old:
            other, alpha = with_factor("add", other, old)
        result = _add(input, other) if alpha is _ONE else _with_factor("add", _add, input, other, alpha)
        return result if out is None else into("add", out, result)
    except Exception as error:
        explain(error, "add", add, (input, other, *old), {"alpha": alpha, "out": out})


def sub(input: Operand, other: Operand, *old: Any, alpha: float = 1, out: Any = None) -> Tensor:
    """input - alpha · other.

    >>> gl.sub(gl.tensor([1.0, 2.0]), 1)
    tensor([0., 1.])
    """
    try:
        if old:
            other, alpha = with_factor("sub", other, old)
        result = _sub(input, other) if alpha is _ONE else _with_factor("sub", _sub, input, other, alpha)
        return result if out is None else into("sub", out, result)
    except Exception as error:
        explain(error, "sub", sub, (input, other, *old), {"alpha": alpha, "out": out})


def mul(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """input · other, element by element.

    >>> gl.mul(gl.tensor([1.0, 2.0]), 3)
    tensor([3., 6.])
    """
    try:
        return _mul(input, other) if out is None else into("mul", out, _mul(input, other))
    except Exception as error:
        explain(error, "mul", mul, (input, other), {"out": out})


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Any = None) -> Tensor:
    """input / other; integers give the default floating point type. `rounding_mode` "floor" rounds down, "trunc" toward zero; both keep
    integers integers.

    >>> gl.div(gl.tensor([7, -7]), 2, rounding_mode="floor")
    tensor([ 3, -4])
    """
    try:
        if out is not None:
            return into("div", out, div(input, other, rounding_mode=rounding_mode))
        if rounding_mode is None:
            return _div(input, other)
        if rounding_mode == "floor":
            return _floor_divide(input, other)
        if rounding_mode != "trunc":
            raise RuntimeError(f'div: rounding_mode is None, "trunc" or "floor", not {rounding_mode!r}')
        if not isinstance(input, Differentiable) and not isinstance(other, Differentiable):
            input = _add(input, 0)  # two numbers: a tensor of the first
        remains = _fmod(input, other)
        return _whole_quotient(input, other) if remains._array.dtype in FLOATING else _floor_divide(_sub(input, remains), other)
    except Exception as error:
        explain(error, "div", div, (input, other), {"rounding_mode": rounding_mode, "out": out})


@rounds_once
def _whole_quotient(input: Operand, other: Operand) -> Any:
    return _trunc(_div(input, other))


def pow(input: Operand, exponent: Operand, *, out: Any = None) -> Tensor:
    """input to the power of `exponent`. An integer tensor takes no negative integer exponent (RuntimeError): make it floating point.

    >>> gl.pow(gl.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    try:
        if out is not None:
            return into("pow", out, pow(input, exponent))
        if type(exponent) in (int, float) and isinstance(input, Differentiable):
            dtype = input._array.dtype
            if dtype in INEXACT:
                return _pow(input, exponent=exponent)
            if isinstance(exponent, int) and exponent < 0:
                raise RuntimeError("pow: an integer tensor takes no negative integer exponent; convert it first, for example with .float()")
        return _pow_tensor(input, exponent)
    except Exception as error:
        explain(error, "pow", pow, (input, exponent), {"out": out})


def exp(input: Tensor, *, out: Any = None) -> Tensor:
    """e to the power of each element.

    >>> gl.exp(gl.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """
    return _exp(input) if out is None else into("exp", out, _exp(input))


def log(input: Tensor, *, out: Any = None) -> Tensor:
    """Natural logarithm; -inf at 0, NaN below.

    >>> gl.log(gl.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """
    return _log(input) if out is None else into("log", out, _log(input))


def sqrt(input: Tensor, *, out: Any = None) -> Tensor:
    """Square root; NaN below 0.

    >>> gl.sqrt(gl.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """
    return _sqrt(input) if out is None else into("sqrt", out, _sqrt(input))


def rsqrt(input: Tensor, *, out: Any = None) -> Tensor:
    """1 / square root.

    >>> gl.rsqrt(gl.tensor([0.25, 1.0, 4.0]))
    tensor([2.0000, 1.0000, 0.5000])
    """
    return _rsqrt(input) if out is None else into("rsqrt", out, _rsqrt(input))


def sin(input: Tensor, *, out: Any = None) -> Tensor:
    """Sine of an angle in radians.

    >>> gl.sin(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.9975,  0.0000,  0.9975])
    """
    return _sin(input) if out is None else into("sin", out, _sin(input))


def cos(input: Tensor, *, out: Any = None) -> Tensor:
    """Cosine of an angle in radians.

    >>> gl.cos(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([0.0707, 1.0000, 0.0707])
    """
    return _cos(input) if out is None else into("cos", out, _cos(input))


def tanh(input: Tensor, *, out: Any = None) -> Tensor:
    """Hyperbolic tangent.

    >>> gl.tanh(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.9051,  0.0000,  0.9051])
    """
    return _tanh(input) if out is None else into("tanh", out, _tanh(input))


def sigmoid(input: Tensor, *, out: Any = None) -> Tensor:
    """1 / (1 + e^-x).

    >>> gl.sigmoid(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([0.1824, 0.5000, 0.8176])
    """
    return _sigmoid(input) if out is None else into("sigmoid", out, _sigmoid(input))


def reciprocal(input: Tensor, *, out: Any = None) -> Tensor:
    """1 / x.

    >>> gl.reciprocal(gl.tensor([0.25, 1.0, 4.0]))
    tensor([4.0000, 1.0000, 0.2500])
    """
    return _reciprocal(input) if out is None else into("reciprocal", out, _reciprocal(input))


def neg(input: Tensor, *, out: Any = None) -> Tensor:
    """-x.

    >>> gl.neg(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([ 1.5000, -0.0000, -1.5000])
    """
    return _neg(input) if out is None else into("neg", out, _neg(input))


def abs(input: Tensor, *, out: Any = None) -> Tensor:
    """Absolute value; its gradient at 0 is 0.

    >>> gl.abs(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([1.5000, 0.0000, 1.5000])
    """
    return _abs(input) if out is None else into("abs", out, _abs(input))


def sign(input: Tensor, *, out: Any = None) -> Tensor:
    """-1, 0 or 1; truth values as they are.

    >>> gl.sign(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.,  0.,  1.])
    """
    try:
        result = _clone(input) if input._array.dtype == BOOL else _sign(input)
        return result if out is None else into("sign", out, result)
    except Exception as error:
        explain(error, "sign", sign, (input,), {"out": out})


def square(input: Tensor, *, out: Any = None) -> Tensor:
    """x · x; truth values become int64.

    >>> gl.square(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([2.2500, 0.0000, 2.2500])
    """
    try:
        result = _square(input.to(INT64) if input._array.dtype == BOOL else input)
        return result if out is None else into("square", out, result)
    except Exception as error:
        explain(error, "square", square, (input,), {"out": out})


def floor(input: Tensor, *, out: Any = None) -> Tensor:
    """The largest integer not above x.

    >>> gl.floor(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-2.,  0.,  1.])
    """
    return _floor(input) if out is None else into("floor", out, _floor(input))


def ceil(input: Tensor, *, out: Any = None) -> Tensor:
    """The smallest integer not below x.

    >>> gl.ceil(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.,  0.,  2.])
    """
    return _ceil(input) if out is None else into("ceil", out, _ceil(input))


def trunc(input: Tensor, *, out: Any = None) -> Tensor:
    """x without its fraction.

    >>> gl.trunc(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.,  0.,  1.])
    """
    return _trunc(input) if out is None else into("trunc", out, _trunc(input))


def round(input: Tensor, *, decimals: int = 0, out: Any = None) -> Tensor:
    """The nearest integer, halves to the even one, or the nearest number with so many decimals (with negative ones, of tens, hundreds …).

    Integers as they are (RuntimeError for other decimals than 0).

    >>> gl.round(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-2.,  0.,  2.])
    """
    try:
        if out is not None:
            return into("round", out, round(input, decimals=decimals))
        if type(decimals) is not int:
            decimals = whole(decimals)
        if input._array.dtype not in FLOATING:
            if decimals or input._array.dtype == BOOL or input._array.dtype in COMPLEX:
                raise RuntimeError(needs_floating("round", input.dtype))
            return _clone(input)
        if not decimals:
            return _round(input)
        scale = 10.0 ** max(decimals, -decimals)
        return _round(input * scale) / scale if decimals > 0 else _round(input / scale) * scale
    except Exception as error:
        explain(error, "round", round, (input,), {"decimals": decimals, "out": out})


def relu(input: Tensor) -> Tensor:
    """max(x, 0); its gradient at 0 is 0.

    >>> gl.relu(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([0.0000, 0.0000, 1.5000])
    """
    return _relu(input)


multiply, subtract, divide, true_divide, negative, absolute = mul, sub, div, div, neg, abs


named_functions(__name__)


class ElementwiseMethods(Differentiable):
    """The methods and operators of this family."""

    __slots__ = ()

    add, sub, mul, div, pow = add, sub, mul, div, pow
    exp, log, sqrt, rsqrt, sin, cos, tanh, sigmoid, reciprocal = exp, log, sqrt, rsqrt, sin, cos, tanh, sigmoid, reciprocal
    neg, abs, sign, square, floor, ceil, trunc, round, relu = neg, abs, sign, square, floor, ceil, trunc, round, relu
    multiply, subtract, divide, true_divide, negative, absolute = mul, sub, div, div, neg, abs

    if TYPE_CHECKING:

        def __add__(self, other: Operand) -> Tensor: ...
        def __sub__(self, other: Operand) -> Tensor: ...
        def __mul__(self, other: Operand) -> Tensor: ...
        def __truediv__(self, other: Operand) -> Tensor: ...
        def __neg__(self) -> Tensor: ...

    else:  # the bound rows themselves: a function in between is a twentieth of a small operation
        __add__, __sub__, __neg__ = operator(_rows.add, "__radd__"), operator(_rows.sub, "__rsub__"), operator(_rows.neg)
        __mul__, __truediv__ = operator(_rows.mul, "__rmul__"), operator(_rows.div, "__rtruediv__")

    def __radd__(self, other: Operand) -> Tensor:
        return _add(other, self)

    def __rsub__(self, other: Operand) -> Tensor:
        return _sub(other, self)

    def __rmul__(self, other: Operand) -> Tensor:
        return _mul(other, self)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _div(other, self)

    __rdiv__, __pow__ = __rtruediv__, reflecting(pow, "__rpow__")  # PyTorch has kept Python 2's name

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Tensor:
        return _abs(self)

    def __rpow__(self, other: Operand) -> Tensor:
        return _pow_tensor(other, self)
