"""Elementwise rows: arithmetic, comparison, logic. Each carries its expression in the terms of `kernels/scalar_math.h`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, COMPLEX, ZERO, by_float32
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.where import choose, drop, keep
from gradlab.spec import Spec, broadcast, broadcast_bool, broadcast_shapes, gradient_of, same, same_bool

_ONE = np.array(1, np.float32)  # a 0-d array: a ufunc takes a Python number three times slower

# ---------------------------------------------------------------- arithmetic of two inputs

add = Op("add", broadcast, cpu=np.add, cuda=Elementwise("a + b"), promote="same", grad={"a": lambda g: g, "b": lambda g: g})
sub = Op("sub", broadcast, cpu=np.subtract, cuda=Elementwise("a - b"), promote="same", grad={"a": lambda g: g, "b": lambda g: -g})
mul = Op("mul", broadcast, cpu=np.multiply, cuda=Elementwise("a * b"), promote="same",
         grad={"a": lambda g, b: g * b, "b": lambda g, a: g * a})  # fmt: skip
div = Op("div", broadcast, cpu=np.true_divide, cuda=Elementwise("a / b"), promote="float", autocast="reciprocal",
         grad={"a": lambda g, b: g / b, "b": lambda g, a, b: -g * ((a / b) / b)})  # fmt: skip


def _pow_base(g: Any, a: Any, b: Any) -> Any:
    """b·a^(b-1); an exponent of 0 gives 0 also at a = 0."""
    found = b * a.pow(b - 1)
    return g * (found if isinstance(b, complex) else found.masked_fill(b == 0, 0))


def _pow_exponent(g: Any, a: Any, b: Any, y: Any) -> Any:
    """y·log a; at a = 0 with b >= 0 the limit is 0."""
    if isinstance(a, (int, float, complex)):  # formulas get the conjugates of complex values (`formulas.conjugate`): of a real one, too
        a = y.new_full((), complex(a, -0.0) if y.is_complex() and not isinstance(a, complex) else a)
    positive = b.real >= 0  # a Python number has one, too
    return g * (y * a.log()).masked_fill((a == 0) & positive, 0)


def pow_tensor_cpu(a: Any, b: Any, y: Any) -> None:
    """Integers to negative powers, which NumPy refuses, are cut to integers as in PyTorch: 1 and -1 keep their size, all else is 0."""
    if y.dtype.kind != "i" or not np.less(b, 0).any():
        np.power(a, b, y)
        return
    base = np.where((b < 0) & (np.abs(a) != 1), 0, a)
    np.power(base, np.where(b < 0, 2 - (b & 1), b), y)  # of 0 and ±1 only whether it is odd matters; the smallest has no negative


pow_tensor = Op("pow_tensor", broadcast, cpu=pow_tensor_cpu, cuda=Elementwise("pow(a, b)"), promote="same", autocast="float32", sharp=True,
                grad={"a": lambda g, a, b: _pow_base(g, a, b), "b": lambda g, a, b, y: _pow_exponent(g, a, b, y)})  # fmt: skip
maximum = Op("maximum", broadcast, cpu=lambda a, b, y: np.maximum(a, b, out=y), cuda=Elementwise("maximum(a, b)"), promote="same",
             grad={"a": lambda g, a, b: (g / 2).where(a == b, g).masked_fill(a < b, 0),
                   "b": lambda g, a, b: (g / 2).where(a == b, g).masked_fill(b < a, 0)})  # fmt: skip
minimum = Op("minimum", broadcast, cpu=lambda a, b, y: np.minimum(a, b, out=y), cuda=Elementwise("minimum(a, b)"), promote="same",
             grad={"a": lambda g, a, b: (g / 2).where(a == b, g).masked_fill(a > b, 0),
                   "b": lambda g, a, b: (g / 2).where(a == b, g).masked_fill(b > a, 0)})  # fmt: skip

# ---------------------------------------------------------------- one input, integers become floating point

exp = Op("exp", same, cpu=np.exp, cuda=Elementwise("exp(x)"), promote="float", autocast="float32", grad={"x": lambda g, y: g * y})
log = Op("log", same, cpu=np.log, cuda=Elementwise("log(x)"), promote="float", autocast="float32", grad={"x": lambda g, x: g / x})
sqrt = Op("sqrt", same, cpu=np.sqrt, cuda=Elementwise("sqrt(x)"), promote="float", grad={"x": lambda g, y: g / (2 * y)})
sin = Op("sin", same, cpu=np.sin, cuda=Elementwise("sin(x)"), promote="float", grad={"x": lambda g, x: g * x.cos()})
cos = Op("cos", same, cpu=np.cos, cuda=Elementwise("cos(x)"), promote="float", grad={"x": lambda g, x: -g * x.sin()})


def tanh_backward_cpu(dy: Any, result: Any, y: Any) -> None:
    np.multiply(result, result, y)
    np.subtract(_ONE, y, y)
    np.multiply(y, dy, y)


def sigmoid_backward_cpu(dy: Any, result: Any, y: Any) -> None:
    np.subtract(_ONE, result, y)
    y *= result
    y *= dy


tanh = Op("tanh", same, cpu=np.tanh, cuda=Elementwise("tanh(x)"), promote="float", sharp=True,
          grad={"x": lambda g, y: tanh_backward(g, y)})  # fmt: skip
tanh_backward: Op = Op("tanh_backward", gradient_of, cpu=tanh_backward_cpu, promote="same",
                       cuda=Elementwise("dy * ((T(1) - result) * (T(1) + result))"),
                   grad={"dy": lambda g, result: tanh_backward(g, result),
                         "result": lambda g, dy, result: g * dy * result * -2})  # fmt: skip
reciprocal = Op("reciprocal", same, cpu=lambda x, y: np.true_divide(1, x, y), cuda=Elementwise("T(1) / x"), promote="float",
                autocast="float32", sharp=True,
                grad={"x": lambda g, y: -g * (y * y)})  # fmt: skip
rsqrt = Op("rsqrt", same, cpu=lambda x, y: np.true_divide(1, np.sqrt(x, y), y), cuda=Elementwise("rsqrt(x)"), promote="float",
           autocast="float32", sharp=True,
           grad={"x": lambda g, y: g * (y * y * y * -0.5)})  # fmt: skip


def sigmoid_cpu(x: Any, y: Any) -> None:
    """1 / (1 + e^-x): relative accuracy also far below 0; where e^-x overflows the result is 0."""
    np.exp(np.negative(x, y), y)
    y += 1
    np.true_divide(1, y, y)


sigmoid = Op("sigmoid", same, cpu=sigmoid_cpu, cuda=Elementwise("sigmoid(x)"), promote="float", sharp=True,
             grad={"x": lambda g, y: sigmoid_backward(g, y)})  # fmt: skip
sigmoid_backward: Op = Op("sigmoid_backward", gradient_of, cpu=sigmoid_backward_cpu, cuda=Elementwise("dy * ((T(1) - result) * result)"),
                      promote="same", grad={"dy": lambda g, result: sigmoid_backward(g, result),
                                            "result": lambda g, dy, result: g * dy * (1 - 2 * result)})  # fmt: skip

# ---------------------------------------------------------------- one input, its own dtype

neg = Op("neg", same, cpu=np.negative, cuda=Elementwise("-x"), promote="same", grad={"x": lambda g: -g})
abs = Op("abs", same, cpu=np.absolute, cuda=Elementwise("abs(x)"), promote="same", grad={"x": lambda g, x: g * x.sign()})
sign = Op("sign", same, cpu=np.sign, cuda=Elementwise("sign(x)"), promote="same", grad={"x": lambda g: g.zeros_like()})
square = Op("square", same, cpu=np.square, cuda=Elementwise("x * x"), promote="same", autocast="float32",
            grad={"x": lambda g, x: g * (2 * x)})  # fmt: skip
floor = Op("floor", same, cpu=np.floor, cuda=Elementwise("floor(x)"), promote="same", grad={"x": lambda g: g.zeros_like()})
ceil = Op("ceil", same, cpu=np.ceil, cuda=Elementwise("ceil(x)"), promote="same", grad={"x": lambda g: g.zeros_like()})
trunc = Op("trunc", same, cpu=np.trunc, cuda=Elementwise("trunc(x)"), promote="same", grad={"x": lambda g: g.zeros_like()})
round = Op("round", same, cpu=np.rint, cuda=Elementwise("round(x)"), promote="same", grad={"x": lambda g: g.zeros_like()})
relu = Op("relu", same, cpu=lambda x, y: np.maximum(x, ZERO[x.dtype], out=y), cuda=Elementwise("maximum(x, T(0))"), promote="same",
          grad={"x": lambda g, y: relu_backward(g, y)})  # fmt: skip


def relu_backward_cpu(dy: Any, result: Any, y: Any) -> None:
    drop(result <= 0, dy, y)


relu_backward: Op = Op("relu_backward", gradient_of, cpu=relu_backward_cpu,
                   cuda=Elementwise("where(result <= T(0), T(0), dy)"), promote="same",
                   grad={"dy": lambda g, result: relu_backward(g, result), "result": lambda g: g.zeros_like()})  # fmt: skip


def pow_cpu(x: Any, y: Any, *, exponent: float) -> None:
    """A number's power: the common exponents without pow."""
    if exponent == 2:
        np.multiply(x, x, y)
    elif exponent == 3:
        np.multiply(x, x, y)
        y *= x
    elif exponent == 1:
        np.copyto(y, x)
    elif exponent == -1:
        np.true_divide(1, x, y)
    elif exponent in {0.5, -0.5}:  # a root at -∞ and -0 too, where C's pow has ∞ and 0
        np.sqrt(x, y)
        if exponent < 0:
            np.true_divide(1, y, y)
    else:
        np.power(x, x.dtype.type(exponent), y)


pow = Op("pow", same, params=("exponent",), cpu=pow_cpu, cuda=Elementwise("pow_number(x, T(exponent))"), promote="same",
         autocast="float32",
         grad={"x": lambda g, x, exponent: g * (exponent * x.pow(exponent - 1)) if exponent != 0 else g.zeros_like()})  # fmt: skip


def clamp_cpu(x: Any, y: Any, *, lo: float, hi: float) -> None:
    kind = y.dtype.type
    if lo == -math.inf:
        np.minimum(x, kind(hi), out=y)
    else:
        np.maximum(x, kind(lo), out=y)
        if hi != math.inf:
            np.minimum(y, kind(hi), out=y)


def clamp_backward_cpu(dy: Any, x: Any, y: Any, *, lo: float, hi: float) -> None:
    kind = x.dtype.type
    keep((x >= kind(lo)) & (x <= kind(hi)), dy, y)


clamp = Op("clamp", same, params=("lo", "hi"), cpu=clamp_cpu, cuda=Elementwise("clamp(x, T(lo), T(hi))"), promote="same",
           grad={"x": lambda g, x, lo, hi: clamp_backward(g, x, lo=lo, hi=hi)})  # fmt: skip
# The gradient passes inside and on the bounds, not where x is NaN, as PyTorch's.
clamp_backward: Op = Op("clamp_backward", lambda dy, x, **_: broadcast(dy, x), params=("lo", "hi"), cpu=clamp_backward_cpu, promote="same",
                        cuda=Elementwise("where(x >= T(lo) && x <= T(hi), dy, T(0))"),
                        grad={"dy": lambda g, x, lo, hi: clamp_backward(g, x, lo=lo, hi=hi), "x": lambda g: g.zeros_like()})  # fmt: skip

# ---------------------------------------------------------------- comparison and logic: truth values, no gradient

eq = Op("eq", broadcast_bool, cpu=np.equal, cuda=Elementwise("a == b"), promote="same", exact=True)
ne = Op("ne", broadcast_bool, cpu=np.not_equal, cuda=Elementwise("a != b"), promote="same", exact=True)
lt = Op("lt", broadcast_bool, cpu=np.less, cuda=Elementwise("a < b"), promote="same", exact=True)
le = Op("le", broadcast_bool, cpu=np.less_equal, cuda=Elementwise("a <= b"), promote="same", exact=True)
gt = Op("gt", broadcast_bool, cpu=np.greater, cuda=Elementwise("a > b"), promote="same", exact=True)
ge = Op("ge", broadcast_bool, cpu=np.greater_equal, cuda=Elementwise("a >= b"), promote="same", exact=True)
logical_and = Op("logical_and", broadcast_bool, cpu=np.logical_and, cuda=Elementwise("bool(a) && bool(b)"), promote="same", exact=True)
logical_or = Op("logical_or", broadcast_bool, cpu=np.logical_or, cuda=Elementwise("bool(a) || bool(b)"), promote="same", exact=True)
logical_xor = Op("logical_xor", broadcast_bool, cpu=np.logical_xor, cuda=Elementwise("bool(a) != bool(b)"), promote="same", exact=True)
logical_not = Op("logical_not", same_bool, cpu=np.logical_not, cuda=Elementwise("!bool(x)"), promote="same", exact=True)
isnan = Op("isnan", same_bool, cpu=np.isnan, cuda=Elementwise("isnan(x)"), promote="same", exact=True)
isinf = Op("isinf", same_bool, cpu=np.isinf, cuda=Elementwise("isinf(x)"), promote="same", exact=True)
isfinite = Op("isfinite", same_bool, cpu=np.isfinite, cuda=Elementwise("isfinite(x)"), promote="same", exact=True)


def integers(name: str) -> Any:
    """Rule: two inputs that are integers or truth values, broadcast."""

    def rule(a: Spec, b: Spec) -> Spec:
        if a.dtype.kind not in "iub":
            raise TypeError(f"works on integers and truth values, not on {a.dtype}")
        return broadcast(a, b)

    return rule


def _integer(x: Spec) -> Spec:
    if x.dtype.kind not in "iub":
        raise TypeError(f"works on integers and truth values, not on {x.dtype}")
    return x


bitwise_and = Op("bitwise_and", integers("and"), cpu=np.bitwise_and, cuda=Elementwise("a & b"), promote="same", exact=True)
bitwise_or = Op("bitwise_or", integers("or"), cpu=np.bitwise_or, cuda=Elementwise("a | b"), promote="same", exact=True)
bitwise_xor = Op("bitwise_xor", integers("xor"), cpu=np.bitwise_xor, cuda=Elementwise("a ^ b"), promote="same", exact=True)
bitwise_not = Op("bitwise_not", _integer, cpu=np.invert, cuda=Elementwise("bitwise_not(x)"), promote="same", exact=True)

# ---------------------------------------------------------------- selection and conversion


def where_rule(condition: Spec, a: Spec, b: Spec) -> Spec:
    """A truth value chooses between two inputs of one dtype."""
    if condition.dtype != BOOL:
        raise TypeError(f"the condition is a bool tensor, not {condition.dtype}; compare it with something first")
    return Spec(broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)


def where_cpu(condition: Any, a: Any, b: Any, y: Any) -> None:
    choose(condition, a, b, y)


where = Op("where", where_rule, cpu=where_cpu, cuda=Elementwise("where(condition, a, b)"), exact=True,
           grad={"a": lambda g, condition: g.where(condition, 0),
                 "b": lambda g, condition: g.masked_fill(condition, 0)})  # fmt: skip


def cast_rule(x: Spec, *, dtype: np.dtype[Any]) -> Spec:
    """The same shape in another dtype."""
    return Spec(x.shape, dtype)


def cast_cpu(x: Any, y: Any, *, dtype: np.dtype[Any]) -> None:
    """A real number that a complex one becomes is its real part; a truth value says whether either part is not 0."""
    np.copyto(y, by_float32(x.real if x.dtype in COMPLEX and y.dtype.kind not in "cb" else x, dtype), casting="unsafe")


def _cast_gradient(g: Any, x_spec: Spec) -> Any:
    return g if g._array.dtype == x_spec.dtype else cast(g, dtype=x_spec.dtype)


cast: Op = Op("cast", cast_rule, params=("dtype",), cpu=cast_cpu, cuda=Elementwise("x"), exact=True, roundings=0,
              grad={"x": _cast_gradient})  # fmt: skip
clone = Op("clone", same, cpu=lambda x, y: np.copyto(y, x), cuda=Elementwise("x"), exact=True, lies=False, grad={"x": lambda g: g})
