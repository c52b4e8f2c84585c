"""Elementwise operators, casts and products of matrices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.dtype import DType, bool_
from gradlab.nn import functional as F
from gradlab.onnx.holders import HOLDERS, NAMES, cast as cast_to
from gradlab.onnx.importing import DATA_TYPES, Node, given, imports, number


def _simple(name: str, function: Callable[..., Any]) -> None:
    imports(name)(lambda node, *xs: function(*xs))


_ALONE: dict[str, Callable[..., Any]] = {
    "Abs": gl.abs, "Acos": gl.acos, "Acosh": gl.acosh, "Asin": gl.asin, "Asinh": gl.asinh, "Atan": gl.atan, "Atanh": gl.atanh,
    "Ceil": gl.ceil, "Cos": gl.cos, "Cosh": gl.cosh, "Erf": gl.erf, "Exp": gl.exp, "Floor": gl.floor, "Identity": lambda x: x,
    "IsNaN": gl.isnan, "Log": gl.log, "Mish": F.mish, "Neg": gl.neg, "Not": gl.logical_not, "Reciprocal": gl.reciprocal, "Relu": F.relu,
    "Round": gl.round, "Sigmoid": gl.sigmoid, "Sign": gl.sign, "Sin": gl.sin, "Sinh": gl.sinh, "Softplus": F.softplus,
    "Softsign": F.softsign, "Sqrt": gl.sqrt, "Tan": gl.tan, "Tanh": gl.tanh, "HardSwish": F.hardswish,
    "Where": gl.where, "BitwiseAnd": gl.bitwise_and, "BitwiseOr": gl.bitwise_or, "BitwiseXor": gl.bitwise_xor, "MatMul": gl.matmul,
    "Det": gl.det,
}  # fmt: skip
for _name, _function in _ALONE.items():
    _simple(_name, _function)


def _aligned(node: Node, a: Any, b: Any) -> Any:
    """Operands of old opsets, which broadcast the second one from an axis on if asked to."""
    if node.opset < 7 and node.get("broadcast") and isinstance(b, gl.Tensor) and b.dim() and "axis" in node.attributes:
        axis = node.get("axis") % a.dim()
        b = b.reshape(*b.shape, *[1] * (a.dim() - axis - b.dim()))
    return b


for _name, _function in {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "And": gl.logical_and, "Or": gl.logical_or, "Xor": gl.logical_xor,
    "Equal": gl.eq,
    "Greater": gl.gt, "GreaterOrEqual": gl.ge, "Less": gl.lt, "LessOrEqual": gl.le,
}.items():  # fmt: skip
    imports(_name, numbers=_name in ("Add", "Sub", "Mul"))(lambda node, a, b, function=_function: function(a, _aligned(node, a, b)))


@imports("Div", numbers=True)
def div(node: Node, a: Any, b: Any) -> Any:
    """Integers are divided towards zero."""
    b = _aligned(node, a, b)
    if (a if isinstance(a, gl.Tensor) else b).is_floating_point():
        return a / b
    return gl.div(a if isinstance(a, gl.Tensor) else gl.full_like(b, a), b, rounding_mode="trunc")


@imports("Mod")
def mod(node: Node, a: Any, b: Any) -> Any:
    """fmod: the sign of the dividend; otherwise the divisor's."""
    return gl.fmod(a, b) if node.get("fmod", 0) else gl.remainder(a, b)


@imports("Pow", numbers=True)
def power(node: Node, a: Any, b: Any) -> Any:
    """The result has the base's type."""
    if not isinstance(b, gl.Tensor):
        return a * a if b == 2 else gl.sqrt(a) if b == 0.5 and a.is_floating_point() else gl.pow(a, b).to(a.dtype)
    if not isinstance(a, gl.Tensor):
        return gl.pow(gl.full_like(b, a), b)
    return gl.pow(a, _aligned(node, a, b).to(a.dtype) if a.is_floating_point() else _aligned(node, a, b)).to(a.dtype)


@imports("BitwiseNot")
def bitwise_not(node: Node, x: Any) -> Any:
    """Of an unsigned type that is held in a wider one its own bits alone."""
    stored = node.get("stored")
    return cast_to(gl.bitwise_not(x), stored) if stored in SIGNED else gl.bitwise_not(x)


@imports("BitShift")
def bit_shift(node: Node, a: Any, b: Any) -> Any:
    return (gl.bitwise_left_shift if node.get("direction") == "LEFT" else gl.bitwise_right_shift)(a, b)


@imports("Max", "Min", "Sum", "Mean")
def several(node: Node, first: Any, *rest: Any) -> Any:
    """Of any number of operands."""
    combine: Callable[[Any, Any], Any] = gl.maximum if node.kind == "Max" else gl.minimum if node.kind == "Min" else gl.add
    for x in rest:
        first = combine(first, x)
    return first / (1 + len(rest)) if node.kind == "Mean" else first


@imports("Clip", host=(1, 2))
def clip(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    low, high = (None if v is None else v if isinstance(v, gl.Tensor) else number(v) for v in (low, high))
    if low is None and high is None:
        return x
    if low is not None and high is not None and not isinstance(low, gl.Tensor) and not isinstance(high, gl.Tensor) and low > high:
        return gl.full_like(x, high)
    return gl.clamp(x, low, high)


@imports("Elu")
def elu(node: Node, x: Any) -> Any:
    return F.elu(x, node.get("alpha", 1.0))


@imports("Celu")
def celu(node: Node, x: Any) -> Any:
    return F.celu(x, node.get("alpha", 1.0))


@imports("Selu")
def selu(node: Node, x: Any) -> Any:
    usual = (1.67326319217681884765625, 1.05070102214813232421875) if node.opset >= 6 else (1.6732, 1.0507)
    alpha, gamma = node.get("alpha", usual[0]), node.get("gamma", usual[1])
    return gl.where(x > 0, x, gl.expm1(gl.clamp(x, max=0)) * alpha) * gamma


@imports("LeakyRelu")
def leaky_relu(node: Node, x: Any) -> Any:
    return F.leaky_relu(x, node.get("alpha", 0.01))


@imports("PRelu")
def prelu(node: Node, x: Any, slope: Any) -> Any:
    """Before opset 7 a vector of slopes is one for each channel."""
    if node.opset < 7 and slope.dim() == 1 and x.dim() > 2 and slope.shape[0] == x.shape[1]:
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))
    return gl.where(x < 0, x * slope, x)


@imports("ThresholdedRelu")
def thresholded(node: Node, x: Any) -> Any:
    return gl.where(x > node.get("alpha", 1.0), x, 0.0)


@imports("HardSigmoid")
def hard_sigmoid(node: Node, x: Any) -> Any:
    return gl.clamp(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


@imports("Gelu")
def gelu(node: Node, x: Any) -> Any:
    return F.gelu(x, approximate=node.get("approximate", "none"))


@imports("Swish")
def swish(node: Node, x: Any) -> Any:
    return x * gl.sigmoid(x * node.get("alpha", 1.0))


@imports("SwiGLU")
def swiglu(node: Node, a: Any, b: Any) -> Any:
    """The first input through Swish, times the second."""
    return a * gl.sigmoid(a * node.get("alpha", 1.0)) * b


@imports("Shrink")
def shrink(node: Node, x: Any) -> Any:
    bias, border = node.get("bias", 0.0), node.get("lambd", 0.5)
    return gl.where(x < -border, x + bias, gl.where(x > border, x - bias, 0)).to(x.dtype)


@imports("IsInf")
def isinf(node: Node, x: Any) -> Any:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    found = gl.isinf(x)
    if positive and negative:
        return found
    return found & (x > 0) if positive else found & (x < 0) if negative else gl.zeros_like(found)


@imports("Cast")
def cast(node: Node, x: Any) -> Any:
    to = node.get("to")
    if isinstance(to, str):  # of opset 1
        to = next((k for k, name in DATA_TYPES.items() if name == _NAMES.get(to, to.lower())), 0)
    return cast_as(node, x, to) if to in NAMES else x.to(_dtype(node, to))


def cast_as(node: Node, x: Any, to: int) -> Any:
    """A cast to a type that tensors do not have."""
    return cast_to(x, to, bool(node.get("saturate", 1)), node.get("round_mode", "up"))


_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
SIGNED = {4: gl.int16, 12: gl.int32, 13: gl.int64}  # of the unsigned types that are held in wider ones


@imports("BitCast")
def bit_cast(node: Node, x: Any) -> Any:
    """The same bits as numbers of another type of that size. Unsigned ones that are held in wider types go through the signed ones."""
    to, stored = node.get("to"), node.get("stored")
    x = x.to(SIGNED[stored]) if stored in SIGNED else x
    if to in SIGNED and x.dtype.itemsize == SIGNED[to].itemsize:
        return cast_to(x.view(SIGNED[to]) if x.dtype != SIGNED[to] else x, to)
    dtype = _dtype(node, to)
    if dtype.itemsize != x.dtype.itemsize:
        raise node.refuse(f"{x.dtype} and {dtype} have different sizes")
    return x.view(dtype) if dtype != x.dtype else x


@imports("CastLike")
def cast_like(node: Node, x: Any, like: Any) -> Any:
    to = node.get("to", 0)  # of a type that tensors do not have
    return cast_as(node, x, to) if to in NAMES else x.to(like.dtype)


def _dtype(node: Node, number: int) -> Any:
    """gradlab's dtype of a number of `TensorProto.DataType`."""
    name = NAMES.get(number, DATA_TYPES.get(number, ""))
    dtype = getattr(gl, HOLDERS.get(name, name), None)
    if not isinstance(dtype, DType):
        raise node.refuse(f"there are no tensors of ONNX's data type {DATA_TYPES.get(number, number)}")
    return dtype


def dtype_of(node: Node, attribute: str, default: Any) -> Any:
    """The dtype that an attribute names."""
    value = node.get(attribute)
    return default if value is None else _dtype(node, value)


@imports("Gemm")
def gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    """alpha · a b + beta · c."""
    a = a.t() if node.get("transA", 0) else a
    b = b.t() if node.get("transB", 0) else b
    y = a @ b
    if node.get("alpha", 1.0) != 1:
        y = y * node.get("alpha")
    if not given(c):
        return y
    return y + (c if node.get("beta", 1.0) == 1 else c * node.get("beta"))


@imports("Einsum")
def einsum(node: Node, *xs: Any) -> Any:
    return gl.einsum(node.get("equation").replace(" ", ""), *xs)


@imports("Dropout", host=(1, 2))
def dropout(node: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """With `training_mode` some elements are dropped; otherwise the input itself, as in all files before opset 12. The mask of what is
    kept has the input's type before opset 10."""
    if training is None or not bool(number(training)):
        return (x, gl.ones_like(x, dtype=x.dtype if node.opset < 10 else bool_))
    p = 0.5 if ratio is None else float(number(ratio))
    kept = gl.rand(x.shape, device=x.device) >= p
    return (gl.where(kept, x / (1 - p) if p < 1 else x, 0), kept)


@imports("Bernoulli")
def bernoulli(node: Node, x: Any) -> Any:
    return gl.bernoulli(x).to(dtype_of(node, "dtype", x.dtype))


@imports("Multinomial")
def multinomial(node: Node, x: Any) -> Any:
    """Draws by the logarithms of the classes' weights."""
    return gl.multinomial(F.softmax(x, -1), node.get("sample_size", 1), True).to(dtype_of(node, "dtype", gl.int32))


@imports("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")
def random(node: Node, like: Any = None) -> Any:
    """From gradlab's generator: the attribute `seed` is that of another engine and says nothing here."""
    shape = tuple(node.get("shape")) if like is None else like.shape
    dtype = dtype_of(node, "dtype", gl.float32 if like is None else like.dtype)
    if "Normal" in node.kind:
        return gl.randn(shape, dtype=dtype, device=node.device) * node.get("scale", 1.0) + node.get("mean", 0.0)
    low, high = node.get("low", 0.0), node.get("high", 1.0)
    return gl.rand(shape, dtype=dtype, device=node.device) * (high - low) + low


@imports("HannWindow", "HammingWindow", "BlackmanWindow", host=(0,), always_host=True)
def window(node: Node, size: Any) -> Any:
    """Sums of cosines; a periodic window is one of another length without its last point."""
    n = int(number(size))
    length = n if node.get("periodic", 1) else n - 1
    steps = 2 * math.pi * np.arange(n) / max(length, 1)
    a, b, c = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}[node.kind]
    dtype = dtype_of(node, "output_datatype", gl.float32)
    return gl.tensor(a - b * np.cos(steps) + c * np.cos(2 * steps)).to(dtype)
