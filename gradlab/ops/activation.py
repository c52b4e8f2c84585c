"""Elementwise activations that deserve a kernel, and the derivatives that training runs most.

On the CPU, selection by a random mask is slow in NumPy (5 ns an element: the branch is mispredicted), arithmetic is fast; so the functions
below multiply with masks, take minima and maxima, or select bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import where
from gradlab.ops.special import normal_cpu
from gradlab.spec import Spec, broadcast, same


def derivative(dy: Spec, x: Spec, **_: Any) -> Spec:
    """Rule of an elementwise derivative: the output's gradient and the input."""
    return broadcast(dy, x)


def like_input(x: Spec, **_: Any) -> Spec:
    """Rule of one with parameters: the input's Spec."""
    return x


def spread(cpu: Callable[..., None]) -> Callable[..., None]:
    """A derivative's CPU function that takes an x smaller than the result: it is repeated, without a copy."""

    @functools.wraps(cpu)
    def run(dy: Any, x: Any, y: Any, **params: Any) -> None:
        cpu(dy, x if x.shape == y.shape else np.broadcast_to(x, y.shape), y, **params)

    return run


# ---------------------------------------------------------------- gates: x times a share of 1 that depends on x
# Where the share has long rounded to 0 or 1, at ±FAR, x is bounded: ∞·0 would be NaN where the limit is 0.

FAR = 1000.0
_DOWN, _BOTH = f"maximum(x, T(-{FAR}))", f"clamp(x, T(-{FAR}), T({FAR}))"


def times_gate(x: Any, gate: Any, y: Any) -> None:
    """x·gate, where the gate is 0 from -FAR down."""
    np.multiply(x if not x.size or x.min() >= -FAR else np.maximum(x, x.dtype.type(-FAR)), gate, y)


def bounded(x: Any) -> Any:
    """x within ±FAR: x itself where it is."""
    inside = not x.size or (x.min() >= -FAR and x.max() <= FAR)
    return x if inside else np.clip(x, x.dtype.type(-FAR), x.dtype.type(FAR))


def sigmoid_of(x: Any) -> Any:
    """1 / (1 + e^-x), new memory."""
    s = np.negative(x, np.empty_like(x))
    np.exp(s, s)
    s += 1
    return np.true_divide(1, s, s)


# GELU (Hendrycks and Gimpel, 2016): x·Φ(x), Φ the normal distribution. 1 + erf would cancel where Φ is small.

_DENSITY = 1 / math.sqrt(2 * math.pi)
_NORMAL = "T(0.5) * erfc(x * T(-0.7071067811865476))"


def gelu_cpu(x: Any, y: Any) -> None:
    normal_cpu(x, y)
    times_gate(x, y, y)


@spread
def gelu_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·(Φ(x) + x·φ(x))."""
    normal_cpu(x, y)
    y += weighted_density(x)
    y *= dy


def weighted_density(x: Any) -> Any:
    """x·φ(x), new memory."""
    x = bounded(x)
    density = np.multiply(x, x, np.empty_like(x))
    density *= -0.5
    np.exp(density, density)
    density *= x
    density *= _DENSITY
    return density


def _gelu_second(square: Any) -> Any:
    return (square * -0.5).exp() * _DENSITY * (2 - square)


gelu = Op("gelu", same, cpu=gelu_cpu, cuda=Elementwise(f"{_DOWN} * ({_NORMAL})"), promote="float",
          grad={"x": lambda g, x: gelu_backward(g, x)})  # fmt: skip
gelu_backward: Op = Op("gelu_backward", derivative, cpu=gelu_backward_cpu, promote="float",
                   cuda=Elementwise(f"dy * ({_NORMAL} + {_BOTH} * exp(square({_BOTH}) * T(-0.5)) * T(0.3989422804014327))"),
                   grad={"dy": lambda g, x: gelu_backward(g, x),
                         "x": lambda g, dy, x: g * dy * _gelu_second(x.clamp(-FAR, FAR).square())})  # fmt: skip

# Its tanh form: x·(1 + tanh(u))/2 = x·sigmoid(2u) with 2u = _SLOPE·(x + _CUBE·x³). 1 + tanh would cancel.

_SLOPE, _CUBE = 2 * math.sqrt(2 / math.pi), 0.044715


def gelu_tanh_gate(x: Any, s: Any) -> None:
    """The sigmoid of 2u."""
    np.multiply(x, x, s)
    s *= -_SLOPE * _CUBE
    s -= _SLOPE
    s *= x
    np.exp(s, s)
    s += 1
    np.true_divide(1, s, s)


def gelu_tanh_cpu(x: Any, y: Any) -> None:
    gelu_tanh_gate(x, y)
    times_gate(x, y, y)


def gelu_tanh_slope(x: Any) -> Any:
    """x·(2u)', new memory."""
    x = bounded(x)
    slope = x * x
    slope *= 3 * _SLOPE * _CUBE
    slope += _SLOPE
    slope *= x
    return slope


def through_gate(dy: Any, s: Any, slope: Any, y: Any) -> None:
    """dy·s·(1 + slope·(1 - s)) for a gate s = sigmoid(v) and slope = x·v'. Written last, y may be one of the others."""
    found = 1 - s
    found *= slope
    found += 1
    found *= s
    np.multiply(found, dy, y)


@spread
def gelu_tanh_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    s = np.empty_like(y)
    gelu_tanh_gate(x, s)
    through_gate(dy, s, gelu_tanh_slope(x), y)


def _gelu_tanh_second(g: Any, dy: Any, x: Any) -> Any:
    x = x.clamp(-FAR, FAR)
    square = x * x
    s = ((square * _CUBE + 1) * x * _SLOPE).sigmoid()
    dv = (square * (3 * _CUBE) + 1) * _SLOPE
    return g * dy * (s * (1 - s) * (2 * dv + x * (1 - 2 * s) * dv * dv + square * (6 * _SLOPE * _CUBE)))


def _gate(x: str) -> str:
    return f"sigmoid({x} * (T(1.5957691216057308) + T(0.07135481627260025) * {x} * {x}))"


gelu_tanh = Op("gelu_tanh", same, cpu=gelu_tanh_cpu, cuda=Elementwise(f"{_DOWN} * {_gate('x')}"), promote="float",
               grad={"x": lambda g, x: gelu_tanh_backward(g, x)})  # fmt: skip
gelu_tanh_backward: Op = Op("gelu_tanh_backward", derivative, cpu=gelu_tanh_backward_cpu, promote="float",
                        cuda=Elementwise(f"dy * {_gate(_BOTH)} * (T(1) + {_BOTH} * (T(1) - {_gate(_BOTH)}) * "
                                         f"(T(1.5957691216057308) + T(0.21406444881780076) * {_BOTH} * {_BOTH}))"),
                        grad={"dy": lambda g, x: gelu_tanh_backward(g, x),
                              "x": _gelu_tanh_second})  # fmt: skip

# ---------------------------------------------------------------- SiLU, Mish, softplus, ELU and the piecewise linear ones


def silu_cpu(x: Any, y: Any) -> None:
    times_gate(x, sigmoid_of(x), y)


@spread
def silu_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·s·(1 + x·(1 - s)), s the sigmoid."""
    through_gate(dy, sigmoid_of(x), bounded(x), y)


def _silu_second(g: Any, dy: Any, x: Any) -> Any:
    s = x.sigmoid()
    ds = s - s * s
    return g * dy * (ds * (2 + x.clamp(-FAR, FAR) * (1 - 2 * s)))


silu = Op("silu", same, cpu=silu_cpu, cuda=Elementwise(f"{_DOWN} * sigmoid(x)"), promote="float",
          grad={"x": lambda g, x: silu_backward(g, x)})  # fmt: skip
silu_backward: Op = Op("silu_backward", derivative, cpu=silu_backward_cpu, promote="float",
                   cuda=Elementwise(f"dy * (sigmoid(x) * (T(1) + {_BOTH} * (T(1) - sigmoid(x))))"),
                   grad={"dy": lambda g, x: silu_backward(g, x), "x": _silu_second})  # fmt: skip


def log_of_one_more(z: Any) -> Any:
    """log(1 + e^z) without overflow, new memory. NumPy's log1p is slow; log(u) + (e - (u - 1))/u with u = 1 + e is as accurate."""
    e = np.abs(z, np.empty_like(z))
    np.exp(np.negative(e, e), e)
    u = np.add(e, 1, np.empty_like(e))
    e -= u - 1
    e /= u
    e += np.log(u, u)
    return np.add(e, np.maximum(z, z.dtype.type(0)), e)


def mish_cpu(x: Any, y: Any) -> None:
    """tanh(log(1 + e^x)) = w/(w + 2) with w = e^x·(e^x + 2); from x = 40 on it is 1."""
    e = np.minimum(x, x.dtype.type(40), out=np.empty_like(y))
    np.exp(e, e)
    e *= np.add(e, 2, y)
    np.add(e, 2, y)
    np.true_divide(e, y, y)
    times_gate(x, y, y)


@spread
def mish_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·(t + x·s·(1 - t²)) with t as above and s = sigmoid(x): s·(1 - t²) = 4·e·(1 + e)/(w + 2)²."""
    e = np.exp(np.minimum(x, x.dtype.type(40)))
    w = e * (e + 2)
    below = w + 2
    slope = e * (e + 1)
    slope *= 4
    slope /= below
    slope /= below
    slope *= bounded(x)
    slope += w / below
    np.multiply(dy, slope, y)


def _mish_second(g: Any, dy: Any, x: Any) -> Any:
    x = x.clamp(-FAR, FAR)
    s = x.sigmoid()
    t = softplus(x, beta=1.0, threshold=20.0).tanh()
    return g * dy * (s * (1 - t * t) * (2 + x * (1 - s) - x * t * s * 2))


_SP = "(maximum(x, T(0)) + log1p(exp(-abs(x))))"
mish = Op("mish", same, cpu=mish_cpu, cuda=Elementwise(f"{_DOWN} * tanh({_SP})"), promote="float",
          grad={"x": lambda g, x: mish_backward(g, x)})  # fmt: skip
mish_backward: Op = Op("mish_backward", derivative, cpu=mish_backward_cpu, promote="float",
                       cuda=Elementwise(f"dy * (tanh({_SP}) + {_BOTH} * sigmoid(x) * (T(1) - square(tanh({_SP}))))"),
                       grad={"dy": lambda g, x: mish_backward(g, x), "x": _mish_second})  # fmt: skip


def softplus_cpu(x: Any, y: Any, *, beta: float, threshold: float) -> None:
    z = np.multiply(x, x.dtype.type(beta), np.empty_like(y))
    np.multiply(log_of_one_more(z), x.dtype.type(1 / beta), y)
    large = z > threshold
    if large.any():
        np.copyto(y, x, where=large)


@spread
def softplus_backward_cpu(dy: Any, x: Any, y: Any, *, beta: float, threshold: float) -> None:
    """dy·sigmoid(beta·x), or dy where beta·x is above the threshold."""
    z = np.multiply(x, x.dtype.type(beta), np.empty_like(x))
    s = np.exp(np.minimum(z, 0)) / (1 + np.exp(-np.abs(z)))  # e^-z would overflow where the result is below the normal numbers
    large = z > threshold
    if large.any():
        s[large] = 1
    np.multiply(dy, s, y)


def _softplus_second(g: Any, dy: Any, x: Any, beta: float, threshold: float) -> Any:
    s = (x * beta).sigmoid()
    return g * dy * ((s - s * s) * beta).masked_fill(x * beta > threshold, 0)


softplus: Op = Op("softplus", like_input, params=("beta", "threshold"), cpu=softplus_cpu, promote="float", autocast="float32",
                  cuda=Elementwise("where(x * T(beta) > T(threshold), x, "
                                   "(maximum(x * T(beta), T(0)) + log1p(exp(-abs(x * T(beta))))) / T(beta))"),
                  grad={"x": lambda g, x, beta, threshold: softplus_backward(g, x, beta=beta, threshold=threshold)})  # fmt: skip
softplus_backward: Op = Op("softplus_backward", derivative, params=("beta", "threshold"), cpu=softplus_backward_cpu, promote="float",
                           cuda=Elementwise("where(x * T(beta) > T(threshold), dy, dy * sigmoid(x * T(beta)))"),
                           grad={"dy": lambda g, x, beta, threshold: softplus_backward(g, x, beta=beta, threshold=threshold),
                                 "x": _softplus_second})  # fmt: skip


def logsigmoid_cpu(x: Any, y: Any) -> None:
    np.subtract(0, log_of_one_more(np.negative(x, np.empty_like(y))), y)  # 0 at ∞, not -0


logsigmoid = Op("logsigmoid", same, cpu=logsigmoid_cpu, cuda=Elementwise("minimum(x, T(0)) - log1p(exp(-abs(x)))"), promote="float",
                grad={"x": lambda g, x: softplus_backward(g, -x, beta=1.0, threshold=1e4)})  # fmt: skip


def elu_cpu(x: Any, y: Any, *, alpha: float, scale: float, slope: float) -> None:
    """scale·max(x, 0) + alpha·scale·(e^z - 1), z = slope·min(x, 0). NumPy's expm1 is slow; 2t/(1 - t) with t = tanh(z/2) is the same."""
    kind = x.dtype.type
    np.minimum(x, kind(0), out=y)
    y *= kind(slope * 0.5)
    np.tanh(y, y)
    below = np.subtract(1, y, np.empty_like(y))
    y /= below
    y *= kind(2 * alpha * scale)
    np.maximum(x, kind(0), out=below)
    below *= kind(scale)
    np.copysign(np.add(y, below, y), x if alpha * scale > 0 else y, y)  # -0 stays


@spread
def elu_backward_cpu(dy: Any, x: Any, y: Any, *, alpha: float, scale: float, slope: float) -> None:
    """dy·scale above 0, dy·alpha·scale·slope·e^z below. Masks are multiplied with: choosing by them is slow in NumPy."""
    kind = x.dtype.type
    factor = np.minimum(x, kind(0), out=np.empty_like(x))
    factor *= kind(slope)
    np.exp(factor, factor)
    factor *= kind(alpha * scale * slope)
    gap = scale - alpha * scale * slope
    if gap:
        factor += (x > 0) * kind(gap)
    np.multiply(dy, factor, y)


def _elu_second(g: Any, dy: Any, x: Any, alpha: float, scale: float, slope: float) -> Any:
    return g * dy * ((x.clamp(max=0) * slope).exp() * (alpha * scale * slope * slope)).masked_fill(x > 0, 0)


_ELU = ("alpha", "scale", "slope")
elu = Op("elu", like_input, params=_ELU, cpu=elu_cpu, promote="float",
         cuda=Elementwise("where(x > T(0), x * T(scale), expm1(minimum(T(0), x) * T(slope)) * (T(alpha) * T(scale)))"),
         grad={"x": lambda g, x, alpha, scale, slope: elu_backward(g, x, alpha=alpha, scale=scale, slope=slope)})  # fmt: skip
elu_backward: Op = Op("elu_backward", derivative, params=_ELU, cpu=elu_backward_cpu, promote="float",
                      cuda=Elementwise("dy * where(x > T(0), T(scale), "
                                       "exp(minimum(x, T(0)) * T(slope)) * (T(alpha) * T(scale) * T(slope)))"),
                      grad={"dy": lambda g, x, alpha, scale, slope: elu_backward(g, x, alpha=alpha, scale=scale, slope=slope),
                            "x": _elu_second})  # fmt: skip


def leaky_relu_cpu(x: Any, y: Any, *, slope: float) -> None:
    kind = x.dtype.type
    if 0 < slope <= 1:
        np.maximum(x, np.multiply(x, kind(slope), y), out=y)
    else:
        np.minimum(x, kind(0), out=y)
        y *= kind(slope)
        np.copyto(y, x, where=x > 0)  # a sum would make NaN of an infinite slope's 0


@spread
def leaky_relu_backward_cpu(dy: Any, x: Any, y: Any, *, slope: float) -> None:
    np.multiply(dy, (x > 0) * x.dtype.type(1 - slope) + x.dtype.type(slope), y)


leaky_relu = Op("leaky_relu", like_input, params=("slope",), cpu=leaky_relu_cpu, promote="float",
                cuda=Elementwise("where(x > T(0), x, x * T(slope))"),
                grad={"x": lambda g, x, slope: leaky_relu_backward(g, x, slope=slope)})  # fmt: skip
leaky_relu_backward: Op = Op("leaky_relu_backward", derivative, params=("slope",), cpu=leaky_relu_backward_cpu, promote="float",
                             cuda=Elementwise("where(x > T(0), dy, dy * T(slope))"),
                             grad={"dy": lambda g, x, slope: leaky_relu_backward(g, x, slope=slope),
                                   "x": lambda g: g.zeros_like()})  # fmt: skip


def hardtanh_cpu(x: Any, y: Any, *, lo: float, hi: float) -> None:
    np.clip(x, x.dtype.type(lo), x.dtype.type(hi), y)


@spread
def hardtanh_backward_cpu(dy: Any, x: Any, y: Any, *, lo: float, hi: float) -> None:
    """dy inside and where x is NaN, 0 on the limits and outside, whatever dy is there."""
    where.drop((x <= lo) | (x >= hi), dy, y)


hardtanh = Op("hardtanh", like_input, params=("lo", "hi"), cpu=hardtanh_cpu, promote="same", cuda=Elementwise("clamp(x, T(lo), T(hi))"),
              grad={"x": lambda g, x, lo, hi: hardtanh_backward(g, x, lo=lo, hi=hi)})  # fmt: skip
hardtanh_backward: Op = Op("hardtanh_backward", derivative, params=("lo", "hi"), cpu=hardtanh_backward_cpu, promote="float",
                           cuda=Elementwise("where(x <= T(lo) || x >= T(hi), T(0), dy)"),
                           grad={"dy": lambda g, x, lo, hi: hardtanh_backward(g, x, lo=lo, hi=hi),
                                 "x": lambda g: g.zeros_like()})  # fmt: skip


def hardswish_cpu(x: Any, y: Any) -> None:
    times_gate(x, np.clip(x + 3, 0, 6), y)
    y /= 6


@spread
def hardswish_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy above 3, dy·(x/3 + 1/2) between, 0 below -3."""
    np.multiply(dy, np.where(x >= 3, 1, x / 3 + 0.5), y)
    where.drop(x <= -3, y, y)


hardswish = Op("hardswish", same, cpu=hardswish_cpu, cuda=Elementwise(f"{_DOWN} * clamp(x + T(3), T(0), T(6)) / T(6)"), promote="float",
               grad={"x": lambda g, x: hardswish_backward(g, x)})  # fmt: skip
hardswish_backward: Op = Op("hardswish_backward", derivative, cpu=hardswish_backward_cpu, promote="float",
                            cuda=Elementwise("where(x <= T(-3), T(0), where(x >= T(3), dy, dy * (x / T(3) + T(0.5))))"),
                            grad={"dy": lambda g, x: hardswish_backward(g, x),
                                  "x": lambda g, dy, x: (g * dy / 3).masked_fill(x.abs() >= 3, 0)})  # fmt: skip
