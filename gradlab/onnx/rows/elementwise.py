"""Elementwise rows that are an ONNX operator or few of them; all others follow from their expression (`derived.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, FLOAT64
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.expression import expm1, floor_divide, log1p
from gradlab.onnx.registry import exports

# ---------------------------------------------------------------- one operator

ONE = {
    "sub": "Sub", "div": "Div", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "root": "Sqrt", "sin": "Sin", "cos": "Cos", "tanh": "Tanh",
    "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "neg": "Neg", "abs": "Abs", "sign": "Sign", "eq": "Equal", "lt": "Less",
    "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "gelu": "Gelu",
}  # fmt: skip
ON_TRUTHS = {"add": ("Add", "Or"), "mul": ("Mul", "And"), "maximum": ("Max", "Or"), "minimum": ("Min", "And")}


def one(kind: str) -> Callable[..., Any]:
    """A converter to one operator; truth values are compared as integers."""

    def converter(e: Emitter, *xs: Wire) -> Any:
        if xs[0].dtype == BOOL and kind != "Equal":
            return e(kind, *(e.cast(x, np.dtype(np.int32)) for x in xs))
        return e(kind, *xs)

    return converter


def of_truths(number: str, truth: str) -> Callable[..., Any]:
    """A converter to one operator on numbers and to another on truth values."""
    return lambda e, a, b: e(truth if a.dtype == BOOL else number, a, b)


for _name, _kind in ONE.items():
    exports(_name)(one(_kind))
for _name, (_number, _truth) in ON_TRUTHS.items():
    exports(_name)(of_truths(_number, _truth))


@exports("gelu_tanh")
def gelu_tanh(e: Emitter, x: Wire) -> Any:
    """GELU's approximation by tanh."""
    return e("Gelu", x, approximate="tanh")


@exports("square")
def square(e: Emitter, x: Wire) -> Any:
    """x²"""
    return e("Mul", x, x)


@exports("relu")
def relu(e: Emitter, x: Wire) -> Any:
    """ONNX Runtime's Relu takes no int64."""
    return e("Relu", x) if x.dtype.kind == "f" else e("Max", x, 0)


def rounding(name: str) -> Callable[..., Any]:
    """A converter of one rounding row."""

    def converter(e: Emitter, x: Wire) -> Any:
        if x.dtype.kind != "f":
            return e("Identity", x)
        if name == "trunc":
            return e.where(e("Less", x, 0.0), e("Ceil", x), e("Floor", x))
        return e(name.capitalize(), x)

    return converter


for _name in ("floor", "ceil", "round", "trunc"):
    exports(_name)(rounding(_name))


@exports("ne")
def ne(e: Emitter, a: Wire, b: Wire) -> Any:
    """Not equal; a NaN differs from all."""
    return e("Xor", a, b) if a.dtype == BOOL else e("Not", e("Equal", a, b))


def logical(kind: str) -> Callable[..., Any]:
    """A converter of a logic row: numbers count as true unless they are 0."""
    return lambda e, *xs: e(kind, *(e.cast(x, BOOL) for x in xs))


for _name, _kind in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not"}.items():
    exports(_name)(logical(_kind))


def classified(name: str) -> Callable[..., Any]:
    """A converter of isnan, isinf, isfinite; integers are finite."""

    def converter(e: Emitter, x: Wire) -> Any:
        if x.dtype.kind != "f":
            same = e("Equal", x, x)
            return same if name == "isfinite" else e("Not", same)
        if name == "isnan":
            return e("IsNaN", x)
        infinite = e("IsInf", x) if x.dtype in (FLOAT32, FLOAT64) else e("Equal", e("Abs", x), math.inf)
        return infinite if name == "isinf" else e("Not", e("Or", e("IsNaN", x), infinite))

    return converter


for _name in ("isnan", "isinf", "isfinite"):
    exports(_name)(classified(_name))

# ---------------------------------------------------------------- powers, limits, selection


@exports("pow")
def power(e: Emitter, x: Wire, *, exponent: float) -> Any:
    """x to a number."""
    if exponent == 2:
        return e("Mul", x, x)
    return e("Pow", x, exponent)


@exports("pow_tensor")
def pow_tensor(e: Emitter, a: Wire, b: Wire) -> Any:
    """Integers to negative powers are cut to integers: 1 and -1 keep their size, all else is 0."""
    if a.dtype.kind == "f":
        return e("Pow", a, b)
    lost = e("And", e("Less", b, 0), e("Not", e("Equal", e("Abs", a), 1)))
    return e("Pow", e.where(lost, 0, a), e("Abs", b))


@exports("clamp", "hardtanh")
def clamp(e: Emitter, x: Wire, *, lo: float, hi: float) -> Any:
    """ONNX Runtime's Clip takes no small integers, which are wide here; a NaN stays."""
    low = None if lo == -math.inf else e.number(lo, x.dtype)
    high = None if hi == math.inf else e.number(hi, x.dtype)
    return e("Clip", x, low, high)


@exports("where", wide=False)
def where(e: Emitter, condition: Wire, a: Wire, b: Wire) -> Any:
    """ONNX Runtime has no Where of int8 and int16."""
    if (a.dtype.kind == "i" and a.dtype.itemsize < 4) or a.dtype.name == "bfloat16":
        wide = FLOAT32 if a.dtype.kind != "i" else np.dtype(np.int32)
        return e.where(condition, e.cast(a, wide), e.cast(b, wide))
    return e.where(condition, a, b)


@exports("cast", wide=False)
def cast(e: Emitter, x: Wire, *, dtype: Any) -> Any:
    """Another dtype. From floating point to truth values, anything but 0 is true."""
    return e("Cast", x, dtype=np.dtype(dtype), to=np.dtype(dtype))


@exports("clone", "to_device", wide=False)
def clone(e: Emitter, x: Wire, **_: Any) -> Any:
    """The same; a file says nothing of devices."""
    return x


@exports("running")
def running(e: Emitter, average: Wire, value: Wire, *, keep: float, take: float) -> Any:
    """A running average."""
    return average * keep + value * take


@exports("about_mean")
def about_mean(e: Emitter, squares: Wire, rest: Wire, *, n: int, divisor: float) -> Any:
    """The mean of squared distances from the mean."""
    return (squares - e("Min", rest * rest / n, squares)) / divisor


# ---------------------------------------------------------------- activations


@exports("silu")
def silu(e: Emitter, x: Wire) -> Any:
    """x·sigmoid(x)"""
    return x * e("Sigmoid", x)


def soft(e: Emitter, x: Wire) -> Any:
    """log(1 + e^x). ONNX Runtime's Softplus is float32 alone."""
    if x.dtype != FLOAT64:
        return e("Softplus", x)
    return e("Max", x, 0.0) + log1p(e, e("Exp", -e("Abs", x)))


@exports("softplus")
def softplus(e: Emitter, x: Wire, *, beta: float, threshold: float) -> Any:
    """log(1 + e^(beta x)) / beta; x itself above the threshold."""
    if beta == 1 and threshold >= 20:
        return soft(e, x)
    z = x * beta
    return e.where(e("Greater", z, threshold), x, soft(e, z) / beta)


@exports("logsigmoid")
def logsigmoid(e: Emitter, x: Wire) -> Any:
    """-softplus(-x)"""
    return -soft(e, -x)


@exports("mish")
def mish(e: Emitter, x: Wire) -> Any:
    """x·tanh(softplus(x))"""
    return e("Mish", x) if x.dtype != FLOAT64 else x * e("Tanh", soft(e, x))


@exports("hardswish")
def hardswish(e: Emitter, x: Wire) -> Any:
    """x·clamp(x + 3, 0, 6) / 6"""
    return e("HardSwish", x) if x.dtype != FLOAT64 else x * e("Clip", x + 3.0, e.number(0, x.dtype), e.number(6, x.dtype)) / 6.0


@exports("elu")
def elu(e: Emitter, x: Wire, *, alpha: float, scale: float, slope: float) -> Any:
    """scale·max(x, 0) + alpha·scale·(e^(slope·min(x, 0)) - 1): ONNX's Elu, Selu or Celu where they say the same."""
    if x.dtype == FLOAT64:
        return e("Max", x, 0.0) * scale + expm1(e, e("Min", x, 0.0) * slope) * (alpha * scale)
    if slope == 1:
        return e("Elu", x, alpha=alpha) if scale == 1 else e("Selu", x, alpha=alpha, gamma=scale)
    if scale == 1 and alpha * slope == 1 and x.dtype == FLOAT32:
        return e("Celu", x, alpha=alpha)
    return e("Max", x, 0.0) * scale + e("Elu", e("Min", x, 0.0) * slope, alpha=1.0) * (alpha * scale)


@exports("leaky_relu")
def leaky_relu(e: Emitter, x: Wire, *, slope: float) -> Any:
    """x above 0, slope·x below."""
    return e("LeakyRelu", x, alpha=slope) if x.dtype != FLOAT64 else e.where(e("Greater", x, 0.0), x, x * slope)


@exports("bce")
def bce(e: Emitter, x: Wire, target: Wire) -> Any:
    """-(t·max(log x, -100) + (1 - t)·max(log(1 - x), -100))"""
    return (target - 1.0) * e("Max", log1p(e, -x), -100.0) - target * e("Max", e("Log", x), -100.0)


def bits(name: str) -> Callable[..., Any]:
    """A converter of one bitwise row."""
    kind = name.removeprefix("bitwise_").capitalize()
    return lambda e, *xs: e(kind if xs[0].dtype == BOOL else f"Bitwise{kind}", *xs)


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"):
    exports(_name, wide=False)(bits(_name))


def halves(e: Emitter, b: Wire) -> tuple[Any, Any]:
    """2 to both halves of a shift, which is at most the number of bits: 2 to the whole of it would not fit."""
    b = e("Min", b, b.dtype.itemsize * 8)
    first = e("Div", b, 2)
    two = e.number(2, b.dtype)
    return e("Pow", two, first), e("Pow", two, b - first)


@exports("left_shift")
def left_shift(e: Emitter, a: Wire, b: Wire) -> Any:
    """a·2^b; ONNX's BitShift takes unsigned integers alone."""
    first, second = halves(e, b)
    return a * first * second


@exports("right_shift")
def right_shift(e: Emitter, a: Wire, b: Wire) -> Any:
    """a / 2^b, rounded down."""
    first, second = halves(e, b)
    return floor_divide(e, floor_divide(e, a, first), second)
