"""Functions of elements by the array API standard: tensors' methods of the same meaning, with the standard's names and its promotion.

In that a 0-d array counts as all others do, and either operand may be a Python number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.array_api.types import isdtype, promoted, result_type
from gradlab.autograd.base import Differentiable


def _named(function: Callable[..., Any], name: str, method: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The array API's `{name}`, element by element: `Tensor.{method}`."
    return function


def _of_one(name: str, method: str) -> Callable[..., Any]:
    def function(x: Any, /) -> Any:
        return getattr(x, method)()

    return _named(function, name, method)


def _of_two(name: str, method: str) -> Callable[..., Any]:
    def function(x1: Any, x2: Any, /) -> Any:
        x, y = promoted(name, x1, x2)
        return getattr(x, method)(y)

    return _named(function, name, method)


abs = _of_one("abs", "abs")
acos = _of_one("acos", "acos")
acosh = _of_one("acosh", "acosh")
asin = _of_one("asin", "asin")
asinh = _of_one("asinh", "asinh")
atan = _of_one("atan", "atan")
atanh = _of_one("atanh", "atanh")
bitwise_invert = _of_one("bitwise_invert", "bitwise_not")
ceil = _of_one("ceil", "ceil")
cos = _of_one("cos", "cos")
cosh = _of_one("cosh", "cosh")
exp = _of_one("exp", "exp")
expm1 = _of_one("expm1", "expm1")
floor = _of_one("floor", "floor")
isfinite = _of_one("isfinite", "isfinite")
isinf = _of_one("isinf", "isinf")
isnan = _of_one("isnan", "isnan")
log = _of_one("log", "log")
log10 = _of_one("log10", "log10")
log1p = _of_one("log1p", "log1p")
log2 = _of_one("log2", "log2")
logical_not = _of_one("logical_not", "logical_not")
negative = _of_one("negative", "neg")
positive = _of_one("positive", "positive")
reciprocal = _of_one("reciprocal", "reciprocal")
round = _of_one("round", "round")
sign = _of_one("sign", "sign")
signbit = _of_one("signbit", "signbit")
sin = _of_one("sin", "sin")
sinh = _of_one("sinh", "sinh")
sqrt = _of_one("sqrt", "sqrt")
square = _of_one("square", "square")
tan = _of_one("tan", "tan")
tanh = _of_one("tanh", "tanh")
trunc = _of_one("trunc", "trunc")

add = _of_two("add", "add")
atan2 = _of_two("atan2", "atan2")
bitwise_and = _of_two("bitwise_and", "bitwise_and")
bitwise_left_shift = _of_two("bitwise_left_shift", "bitwise_left_shift")
bitwise_or = _of_two("bitwise_or", "bitwise_or")
bitwise_right_shift = _of_two("bitwise_right_shift", "bitwise_right_shift")
bitwise_xor = _of_two("bitwise_xor", "bitwise_xor")
copysign = _of_two("copysign", "copysign")
divide = _of_two("divide", "div")
equal = _of_two("equal", "eq")
floor_divide = _of_two("floor_divide", "floor_divide")
greater = _of_two("greater", "gt")
greater_equal = _of_two("greater_equal", "ge")
hypot = _of_two("hypot", "hypot")
less = _of_two("less", "lt")
less_equal = _of_two("less_equal", "le")
logaddexp = _of_two("logaddexp", "logaddexp")
logical_and = _of_two("logical_and", "logical_and")
logical_or = _of_two("logical_or", "logical_or")
logical_xor = _of_two("logical_xor", "logical_xor")
maximum = _of_two("maximum", "maximum")
minimum = _of_two("minimum", "minimum")
multiply = _of_two("multiply", "mul")
nextafter = _of_two("nextafter", "nextafter")
not_equal = _of_two("not_equal", "ne")
pow = _of_two("pow", "pow")
remainder = _of_two("remainder", "remainder")
subtract = _of_two("subtract", "sub")


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """The numbers of `x`, those below `min` and above `max` replaced by these: numbers or arrays that broadcast. The dtype stays.

    >>> gl.array_api.clip(gl.tensor([1, 5]), max=3)
    tensor([1, 3])
    """
    for bound, method in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            limit: Any = bound if isinstance(bound, Differentiable) else x.new_tensor(_within(bound, x.dtype))
            x = getattr(x, method)(limit.to(dtype=x.dtype))
    return x.clone() if min is None and max is None else x


def _within(bound: Any, dtype: Any) -> Any:
    return int(bound) if isdtype(dtype, "integral") else bound


def real(x: Any, /) -> Any:
    """The real parts."""
    return x.real if isdtype(x.dtype, "complex floating") else x


def imag(x: Any, /) -> Any:
    """The imaginary parts. TypeError of real numbers, which have none."""
    if not isdtype(x.dtype, "complex floating"):
        raise TypeError(f"imag: of {x.dtype} there are no imaginary parts")
    return x.imag


def conj(x: Any, /) -> Any:
    """The complex conjugates; real numbers are their own."""
    return x.conj().resolve_conj() if isdtype(x.dtype, "complex floating") else x


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """The elements of `x1` where the condition is true, and those of `x2` elsewhere.

    >>> gl.array_api.where(gl.tensor([True, False]), 1.0, gl.zeros(2))
    tensor([1., 0.])
    """
    if isinstance(x1, Differentiable) or isinstance(x2, Differentiable):
        x1, x2 = promoted("where", x1, x2)
    else:
        dtype = result_type(x1, x2)
        x1, x2 = (condition.new_full((), x, dtype=dtype) for x in (x1, x2))
    return x1.where(condition, x2)
