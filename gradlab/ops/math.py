"""Elementwise rows of mathematics: powers of 2 and 10, angles, divisions with rounding, extremes, bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise, Kernel
from gradlab.op import Op
from gradlab.spec import Spec, broadcast, broadcast_shapes, same, same_bool

LN2, LN10 = math.log(2), math.log(10)

# ---------------------------------------------------------------- one input, integers become floating point

exp2 = Op("exp2", same, cpu=np.exp2, cuda=Elementwise("exp2(x)"), promote="float", grad={"x": lambda g, y: g * y * LN2})
expm1 = Op("expm1", same, cpu=np.expm1, cuda=Elementwise("expm1(x)"), promote="float", autocast="float32", sharp=True,
           grad={"x": lambda g, y: g * y + g})  # fmt: skip
log2 = Op("log2", same, cpu=np.log2, cuda=Elementwise("log2(x)"), promote="float", autocast="float32",
          grad={"x": lambda g, x: g / (x * LN2)})  # fmt: skip
log10 = Op("log10", same, cpu=np.log10, cuda=Elementwise("log10(x)"), promote="float", autocast="float32",
           grad={"x": lambda g, x: g / (x * LN10)})  # fmt: skip
log1p = Op("log1p", same, cpu=np.log1p, cuda=Elementwise("log1p(x)"), promote="float", autocast="float32",
           grad={"x": lambda g, x: g / (x + 1)})  # fmt: skip
# A square root for norms and standard deviations: its gradient at 0 is 0, so that a constant input has the gradient 0 and no NaN.
root = Op("root", same, cpu=np.sqrt, cuda=Elementwise("sqrt(x)"), promote="float",
          grad={"x": lambda g, y: g / (2 * y).masked_fill(y == 0, math.inf)})  # fmt: skip
tan = Op("tan", same, cpu=np.tan, cuda=Elementwise("tan(x)"), promote="float", autocast="float32", sharp=True,
         grad={"x": lambda g, y: g + g * (y * y)})  # fmt: skip
asin = Op("asin", same, cpu=np.arcsin, cuda=Elementwise("asin(x)"), promote="float", autocast="float32",
          grad={"x": lambda g, x: g * (1 - x * x).rsqrt()})  # fmt: skip
acos = Op("acos", same, cpu=np.arccos, cuda=Elementwise("acos(x)"), promote="float", autocast="float32",
          grad={"x": lambda g, x: -g * (1 - x * x).rsqrt()})  # fmt: skip
atan = Op("atan", same, cpu=np.arctan, cuda=Elementwise("atan(x)"), promote="float", grad={"x": lambda g, x: g / (x * x + 1)})
sinh = Op("sinh", same, cpu=np.sinh, cuda=Elementwise("sinh(x)"), promote="float", autocast="float32",
          grad={"x": lambda g, x: g * x.cosh()})  # fmt: skip
cosh = Op("cosh", same, cpu=np.cosh, cuda=Elementwise("cosh(x)"), promote="float", autocast="float32",
          grad={"x": lambda g, x: g * x.sinh()})  # fmt: skip
asinh = Op("asinh", same, cpu=np.arcsinh, cuda=Elementwise("asinh(x)"), promote="float",
           grad={"x": lambda g, x: g * (x * x + 1).rsqrt()})  # fmt: skip
acosh = Op("acosh", same, cpu=np.arccosh, cuda=Elementwise("acosh(x)"), promote="float",
           grad={"x": lambda g, x: g * ((x - 1).rsqrt() * (x + 1).rsqrt() if x.is_complex() else (x * x - 1).rsqrt())})  # fmt: skip
atanh = Op("atanh", same, cpu=np.arctanh, cuda=Elementwise("atanh(x)"), promote="float", grad={"x": lambda g, x: g / (1 - x * x)})


def sinc_cpu(x: Any, y: Any) -> None:
    np.multiply(x, y.dtype.type(math.pi), y)
    top, zero = np.empty_like(y), y == 0
    np.sin(y, top)
    top[zero] = y[zero] = 1
    np.true_divide(top, y, y)


def _sinc_gradient(g: Any, x: Any) -> Any:
    """(cos πx - sinc x) / x; where the two nearly cancel, for u = πx up to 1/2, the power series of π (cos u - sin u / u) / u."""
    u = x * math.pi
    near, square, series = u.abs() < 0.5, u.square(), 0.0
    for k in range(7, 0, -1):
        series = series * square + (-1) ** k * 2 * k / math.factorial(2 * k + 1)
    far = (u.cos() - x.sinc()) / x.masked_fill(near, 1)
    return g * far.masked_fill(near, 0) + g * (series * (math.pi * u)).masked_fill(~near, 0)


sinc = Op("sinc", same, cpu=sinc_cpu, promote="float", grad={"x": _sinc_gradient},
          cuda=Elementwise("where(x * T(3.14159265358979323846) == T(0), T(1), "
                           "sin(x * T(3.14159265358979323846)) / (x * T(3.14159265358979323846)))"))  # fmt: skip
signbit = Op("signbit", same_bool, cpu=np.signbit, cuda=Elementwise("signbit(x)"), promote="same", exact=True)

# ---------------------------------------------------------------- two inputs


hypot = Op("hypot", broadcast, cpu=np.hypot, cuda=Elementwise("hypot(a, b)"), promote="float", sharp=True,
           grad={"a": lambda g, a, y: g * (a / y.masked_fill(y == 0, 1)),
                 "b": lambda g, b, y: g * (b / y.masked_fill(y == 0, 1))})  # fmt: skip


def over_squares(top: Any, a: Any, b: Any) -> Any:
    """top / (a² + b²), and 0 where both are 0."""
    r = hypot(a, b)  # squares would overflow from 1e19 on
    r = r.masked_fill(r == 0, 1)
    return top / r / r


atan2 = Op("atan2", broadcast, cpu=np.arctan2, cuda=Elementwise("atan2(a, b)"), promote="float",
           grad={"a": lambda g, a, b: g * over_squares(b, a, b), "b": lambda g, a, b: -g * over_squares(a, a, b)})  # fmt: skip
fmod = Op("fmod", broadcast, cpu=np.fmod, cuda=Elementwise("fmod(a, b)"), promote="same",
          grad={"a": lambda g: g, "b": lambda g, a, b: -g * (a / b).trunc()})  # fmt: skip
floor_divide = Op("floor_divide", broadcast, cpu=np.floor_divide, cuda=Elementwise("floor_divide(a, b)"), promote="same",
                  grad={"a": lambda g: g.zeros_like(), "b": lambda g: g.zeros_like()})  # fmt: skip
remainder = Op("remainder", broadcast, cpu=np.remainder, cuda=Elementwise("remainder(a, b)"), promote="same",
               grad={"a": lambda g: g, "b": lambda g, a, b: -g * floor_divide(a, b)})  # fmt: skip
copysign = Op("copysign", broadcast, cpu=np.copysign, cuda=Elementwise("copysign(a, b)"), promote="float",
              grad={"a": lambda g, a, y: g * (y.sign() * a.sign()), "b": lambda g: g.zeros_like()})  # fmt: skip
fmax = Op("fmax", broadcast, cpu=np.fmax, cuda=Elementwise("fmax(a, b)"), promote="same",
          grad={"a": lambda g, a, b: g.where((a >= b) | b.isnan(), 0),
                "b": lambda g, a, b: g.masked_fill((a >= b) | b.isnan(), 0)})  # fmt: skip
fmin = Op("fmin", broadcast, cpu=np.fmin, cuda=Elementwise("fmin(a, b)"), promote="same",
          grad={"a": lambda g, a, b: g.where((a <= b) | b.isnan(), 0),
                "b": lambda g, a, b: g.masked_fill((a <= b) | b.isnan(), 0)})  # fmt: skip


def gap(a: Any, b: Any) -> Any:
    """a - b, where equal infinities differ by 0."""
    return (a - b).masked_fill((a == b) & a.isinf(), 0)


logaddexp = Op("logaddexp", broadcast, cpu=np.logaddexp, cuda=Elementwise("logaddexp(a, b)"), promote="float",
               grad={"a": lambda g, a, b: g * gap(a, b).sigmoid(), "b": lambda g, a, b: g * gap(b, a).sigmoid()})  # fmt: skip
logaddexp2 = Op("logaddexp2", broadcast, cpu=np.logaddexp2, promote="float",
                cuda=Elementwise("maximum(a, b) + log1p(exp2(-where(a == b, T(0), abs(a - b)))) * T(1.44269504088896340736)"),
                grad={"a": lambda g, a, b: g * (gap(a, b) * LN2).sigmoid(),
                      "b": lambda g, a, b: g * (gap(b, a) * LN2).sigmoid()})  # fmt: skip


def xlogy_cpu(a: Any, b: Any, y: Any) -> None:
    np.multiply(a, np.log(b), y)
    np.copyto(y, 0, where=(a == 0) & ~np.isnan(b))


def as_tensor(b: Any, like: Any) -> Any:
    """In a formula: an input whose methods are wanted, where the call had a number."""
    return like.new_full((), b) if isinstance(b, (int, float, complex)) else b


xlogy = Op("xlogy", broadcast, cpu=xlogy_cpu, cuda=Elementwise("where(a == T(0) && !isnan(b), T(0), a * log(b))"), promote="float",
           grad={"a": lambda g, a, b: g * as_tensor(b, g).log().masked_fill((a == 0) & (b <= 0), 0),
                 "b": lambda g, a, b: g * (a / b.masked_fill((a == 0) & (b == 0), 1))})  # fmt: skip


def heaviside_cpu(a: Any, b: Any, y: Any) -> None:
    np.copyto(y, a > 0, casting="unsafe")
    np.copyto(y, b, where=a == 0)


heaviside = Op("heaviside", broadcast, cpu=heaviside_cpu, cuda=Elementwise("where(a == T(0), b, T(a > T(0)))"), promote="same",
               exact=True, grad={"a": lambda g: g.zeros_like(), "b": lambda g, a: g.where(a == 0, 0)})  # fmt: skip


def floats(a: Spec, b: Spec) -> Spec:
    """Rule: two inputs of floating point, broadcast."""
    if a.dtype.kind in "iub":
        raise TypeError(f"works on floating point, not on {a.dtype}")
    return broadcast(a, b)


nextafter = Op("nextafter", floats, cpu=np.nextafter, promote="same", exact=True,
               grad={"a": lambda g, a, b: g.masked_fill(a == b, 0), "b": lambda g: g.zeros_like()},
               cuda=Kernel("special.cu", "nextafter", "pairs"))  # fmt: skip

# ---------------------------------------------------------------- integers


def integers(a: Spec, b: Spec) -> Spec:
    """Rule: two integer inputs, broadcast."""
    if a.dtype.kind not in "iu":
        raise TypeError(f"works on integers, not on {a.dtype}")
    return broadcast(a, b)


left_shift = Op("left_shift", integers, cpu=np.left_shift, cuda=Elementwise("left_shift(a, b)"), promote="same", exact=True)
right_shift = Op("right_shift", integers, cpu=np.right_shift, cuda=Elementwise("right_shift(a, b)"), promote="same", exact=True)
gcd = Op("gcd", integers, cpu=np.gcd, promote="same", exact=True, cuda=Elementwise("gcd(a, b)"))
lcm = Op("lcm", integers, cpu=np.lcm, promote="same", exact=True, cuda=Elementwise("lcm(a, b)"))

# ---------------------------------------------------------------- three inputs


def between(a: Spec, b: Spec, weight: Spec) -> Spec:
    """Rule: three inputs of one floating point dtype, broadcast."""
    if a.dtype.kind in "iub":
        raise TypeError(f"works on floating point, not on {a.dtype}")
    return Spec(broadcast_shapes(a.shape, b.shape, weight.shape), a.dtype)


def lerp_cpu(a: Any, b: Any, weight: Any, y: Any) -> None:
    """Exact at both ends: from a for small weights, from b for large ones."""
    if not weight.ndim:
        near = bool(np.abs(weight) < 0.5)
        np.subtract(b, a, y)
        y *= weight if near else weight - 1
        y += a if near else b
        return
    difference = b - a
    y[...] = np.where(np.abs(weight) < 0.5, a + weight * difference, b - difference * (1 - weight))


lerp = Op("lerp", between, cpu=lerp_cpu, cuda=Elementwise("lerp(a, b, weight)"), promote="same",
          grad={"a": lambda g, weight: g * (1 - weight), "b": lambda g, weight: g * weight,
                "weight": lambda g, a, b: g * (b - a)})  # fmt: skip
