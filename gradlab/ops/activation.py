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
from gradlab.ops import select
from gradlab.ops.special import erf_cpu
from gradlab.spec import Spec, broadcast, same


def derivative(dy: Spec, x: Spec, **_: Any) -> Spec:
    """Rule of an elementwise derivative: the output's gradient and the input."""
    return broadcast(dy, x)


def spread(cpu: Callable[..., None]) -> Callable[..., None]:
    """A derivative's CPU function that takes an x smaller than the result: it is repeated, without a copy."""

    @functools.wraps(cpu)
    def run(dy: Any, x: Any, y: Any, **params: Any) -> None:
        cpu(dy, x if x.shape == y.shape else np.broadcast_to(x, y.shape), y, **params)

    return run


# ---------------------------------------------------------------- GELU (Hendrycks and Gimpel, 2016): x·Φ(x), Φ the normal distribution

_DENSITY = 1 / math.sqrt(2 * math.pi)
_SLOPE, _CUBE = math.sqrt(2 / math.pi), 0.044715  # of the tanh form: u = _SLOPE·(x + _CUBE·x³)


def gelu_cpu(x: Any, y: Any) -> None:
    erf_cpu(x * x.dtype.type(math.sqrt(0.5)), y)
    y += 1
    y *= x
    y *= 0.5


@spread
def gelu_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·(Φ(x) + x·φ(x))."""
    erf_cpu(x * x.dtype.type(math.sqrt(0.5)), y)
    y += 1
    y *= 0.5
    density = np.multiply(x, x, np.empty_like(y))
    density *= -0.5
    np.exp(density, density)
    density *= x
    density *= _DENSITY
    y += density
    y *= dy


gelu = Op("gelu", same, cpu=gelu_cpu, cuda=Elementwise("T(0.5) * x * (T(1) + erf(x * T(0.7071067811865476)))"), promote="float",
          grad={"x": lambda g, x: gelu_backward(g, x)})  # fmt: skip
gelu_backward: Op = Op("gelu_backward", derivative, cpu=gelu_backward_cpu, promote="float",
                   cuda=Elementwise("dy * (T(0.5) * (T(1) + erf(x * T(0.7071067811865476))) + "
                                    "x * exp(x * x * T(-0.5)) * T(0.3989422804014327))"),
                   grad={"dy": lambda g, x: gelu_backward(g, x),
                         "x": lambda g, dy, x: g * dy * ((x * x * -0.5).exp() * _DENSITY * (2 - x * x))})  # fmt: skip


def gelu_tanh_cpu(x: Any, y: Any) -> None:
    np.multiply(x, x, y)
    y *= _SLOPE * _CUBE
    y += _SLOPE
    y *= x
    np.tanh(y, y)
    y += 1
    y *= x
    y *= 0.5


@spread
def gelu_tanh_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·(1 + t + x·(1 - t²)·u')/2 with t = tanh(u)."""
    square = np.multiply(x, x, np.empty_like(y))
    t = np.multiply(square, x.dtype.type(_SLOPE * _CUBE), np.empty_like(y))
    t += _SLOPE
    t *= x
    np.tanh(t, t)
    square *= 3 * _SLOPE * _CUBE
    square += _SLOPE
    square *= x  # x·u'
    np.multiply(t, t, y)
    np.subtract(1, y, y)
    y *= square
    y += t
    y += 1
    y *= 0.5
    y *= dy


def _gelu_tanh_second(g: Any, dy: Any, x: Any) -> Any:
    square = x * x
    t = ((square * _CUBE + 1) * x * _SLOPE).tanh()
    du = (square * (3 * _CUBE) + 1) * _SLOPE
    return g * dy * ((1 - t * t) * (du - x * t * du * du + square * (3 * _SLOPE * _CUBE)))


_U = "(T(0.7978845608028654) * x * (T(1) + T(0.044715) * x * x))"
gelu_tanh = Op("gelu_tanh", same, cpu=gelu_tanh_cpu, cuda=Elementwise(f"T(0.5) * x * (T(1) + tanh({_U}))"), promote="float",
               grad={"x": lambda g, x: gelu_tanh_backward(g, x)})  # fmt: skip
gelu_tanh_backward: Op = Op("gelu_tanh_backward", derivative, cpu=gelu_tanh_backward_cpu, promote="float",
                        cuda=Elementwise(f"dy * T(0.5) * (T(1) + tanh({_U}) + x * (T(1) - square(tanh({_U}))) * "
                                         "(T(0.7978845608028654) + T(0.10703222440890038) * x * x))"),
                        grad={"dy": lambda g, x: gelu_tanh_backward(g, x),
                              "x": _gelu_tanh_second})  # fmt: skip

# ---------------------------------------------------------------- SiLU, Mish, softplus, ELU and the piecewise linear ones


def sigmoid_of(x: Any) -> Any:
    """1 / (1 + e^-x), new memory."""
    s = np.negative(x, np.empty_like(x))
    np.exp(s, s)
    s += 1
    return np.true_divide(1, s, s)


def silu_cpu(x: Any, y: Any) -> None:
    np.multiply(x, sigmoid_of(x), y)


@spread
def silu_backward_cpu(dy: Any, x: Any, y: Any) -> None:
    """dy·(s + x·s·(1 - s)), s the sigmoid."""
    s = sigmoid_of(x)
    np.subtract(1, s, y)
    y *= x
    y += 1
    y *= s
    y *= dy


def _silu_second(g: Any, dy: Any, x: Any) -> Any:
    s = x.sigmoid()
    ds = s - s * s
    return g * dy * (ds * (2 + x * (1 - 2 * s)))


silu = Op("silu", same, cpu=silu_cpu, cuda=Elementwise("x * sigmoid(x)"), promote="float", grad={"x": lambda g, x: silu_backward(g, x)})
silu_backward: Op = Op("silu_backward", derivative, cpu=silu_backward_cpu, promote="float",
                   cuda=Elementwise("dy * (sigmoid(x) * (T(1) + x * (T(1) - sigmoid(x))))"),
                   grad={"dy": lambda g, x: silu_backward(g, x), "x": _silu_second})  # fmt: skip


def log_of_one_more(z: Any) -> Any:
    """log(1 + e^z) without overflow, new memory. NumPy's log1p is slow; log(u) + (e - (u - 1))/u with u = 1 + e is as accurate."""
    e = np.abs(z, np.empty_like(z))
    np.exp(np.negative(e, e), e)
    u = np.add(e, 1, np.empty_like(e))
    e -= u - 1
    e /= u
    e += np.log(u, u)
    e += np.maximum(z, z.dtype.type(0))
    return e


def mish_cpu(x: Any, y: Any) -> None:
    """tanh(log(1 + e^x)) = w/(w + 2) with w = e^x·(e^x + 2); from x = 40 on it is 1."""
    e = np.minimum(x, x.dtype.type(40), out=np.empty_like(y))
    np.exp(e, e)
    e *= np.add(e, 2, y)
    np.add(e, 2, y)
    np.true_divide(e, y, y)
    y *= x


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
    slope *= x
    slope += w / below
    np.multiply(dy, slope, y)


def _mish_second(g: Any, dy: Any, x: Any) -> Any:
    s = x.sigmoid()
    t = softplus(x, beta=1.0, threshold=20.0).tanh()
    return g * dy * (s * (1 - t * t) * (2 + x * (1 - s) - x * t * s * 2))


_SP = "(maximum(x, T(0)) + log1p(exp(-abs(x))))"
mish = Op("mish", same, cpu=mish_cpu, cuda=Elementwise(f"x * tanh({_SP})"), promote="float",
          grad={"x": lambda g, x: mish_backward(g, x)})  # fmt: skip
mish_backward: Op = Op("mish_backward", derivative, cpu=mish_backward_cpu, promote="float",
                       cuda=Elementwise(f"dy * (tanh({_SP}) + x * sigmoid(x) * (T(1) - square(tanh({_SP}))))"),
                       grad={"dy": lambda g, x: mish_backward(g, x), "x": _mish_second})  # fmt: skip


def softplus_rule(x: Spec, *, beta: float, threshold: float) -> Spec:
    """Rule: like the input."""
    return x


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
    s = sigmoid_of(z)
    large = z > threshold
    if large.any():
        s[large] = 1
    np.multiply(dy, s, y)


def _softplus_second(g: Any, dy: Any, x: Any, beta: float, threshold: float) -> Any:
    s = (x * beta).sigmoid()
    return g * dy * ((s - s * s) * beta).masked_fill(x * beta > threshold, 0)


softplus: Op = Op("softplus", softplus_rule, params=("beta", "threshold"), cpu=softplus_cpu, promote="float", autocast="float32",
                  cuda=Elementwise("where(x * T(beta) > T(threshold), x, "
                                   "(maximum(x * T(beta), T(0)) + log1p(exp(-abs(x * T(beta))))) / T(beta))"),
                  grad={"x": lambda g, x, beta, threshold: softplus_backward(g, x, beta=beta, threshold=threshold)})  # fmt: skip
softplus_backward: Op = Op("softplus_backward", derivative, params=("beta", "threshold"), cpu=softplus_backward_cpu, promote="float",
                           cuda=Elementwise("where(x * T(beta) > T(threshold), dy, dy * sigmoid(x * T(beta)))"),
                           grad={"dy": lambda g, x, beta, threshold: softplus_backward(g, x, beta=beta, threshold=threshold),
                                 "x": _softplus_second})  # fmt: skip


def logsigmoid_cpu(x: Any, y: Any) -> None:
    np.negative(log_of_one_more(np.negative(x, np.empty_like(y))), y)


logsigmoid = Op("logsigmoid", same, cpu=logsigmoid_cpu, cuda=Elementwise("minimum(x, T(0)) - log1p(exp(-abs(x)))"), promote="float",
                grad={"x": lambda g, x: g * (-x).sigmoid()})  # fmt: skip


def elu_rule(x: Spec, *, alpha: float, scale: float, slope: float) -> Spec:
    """Rule: like the input."""
    return x


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
    y += below


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
elu = Op("elu", elu_rule, params=_ELU, cpu=elu_cpu, promote="float",
         cuda=Elementwise("where(x > T(0), x * T(scale), expm1(minimum(x, T(0)) * T(slope)) * (T(alpha) * T(scale)))"),
         grad={"x": lambda g, x, alpha, scale, slope: elu_backward(g, x, alpha=alpha, scale=scale, slope=slope)})  # fmt: skip
elu_backward: Op = Op("elu_backward", derivative, params=_ELU, cpu=elu_backward_cpu, promote="float",
                      cuda=Elementwise("dy * where(x > T(0), T(scale), "
                                       "exp(minimum(x, T(0)) * T(slope)) * (T(alpha) * T(scale) * T(slope)))"),
                      grad={"dy": lambda g, x, alpha, scale, slope: elu_backward(g, x, alpha=alpha, scale=scale, slope=slope),
                            "x": _elu_second})  # fmt: skip


def leaky_rule(x: Spec, *, slope: float) -> Spec:
    """Rule: like the input."""
    return x


def leaky_relu_cpu(x: Any, y: Any, *, slope: float) -> None:
    kind = x.dtype.type
    if 0 < slope <= 1:
        np.maximum(x, np.multiply(x, kind(slope), y), out=y)
    else:
        np.minimum(x, kind(0), out=y)
        y *= kind(slope)
        y += np.maximum(x, kind(0))


@spread
def leaky_relu_backward_cpu(dy: Any, x: Any, y: Any, *, slope: float) -> None:
    factor = (x > 0) * x.dtype.type(1 - slope)
    factor += x.dtype.type(slope)
    np.multiply(dy, factor, y)


leaky_relu = Op("leaky_relu", leaky_rule, params=("slope",), cpu=leaky_relu_cpu, promote="float",
                cuda=Elementwise("where(x > T(0), x, x * T(slope))"),
                grad={"x": lambda g, x, slope: leaky_relu_backward(g, x, slope=slope)})  # fmt: skip
leaky_relu_backward: Op = Op("leaky_relu_backward", derivative, params=("slope",), cpu=leaky_relu_backward_cpu, promote="float",
                             cuda=Elementwise("where(x > T(0), dy, dy * T(slope))"),
                             grad={"dy": lambda g, x, slope: leaky_relu_backward(g, x, slope=slope),
                                   "x": lambda g: g.zeros_like()})  # fmt: skip


def hardtanh_rule(x: Spec, *, lo: float, hi: float) -> Spec:
    """Rule: like the input."""
    return x


def hardtanh_cpu(x: Any, y: Any, *, lo: float, hi: float) -> None:
    np.clip(x, x.dtype.type(lo), x.dtype.type(hi), y)


@spread
def hardtanh_backward_cpu(dy: Any, x: Any, y: Any, *, lo: float, hi: float) -> None:
    """dy inside, 0 on the limits and outside, whatever dy is there."""
    inside = x > lo
    inside &= x < hi
    select.keep(inside, dy, y)


hardtanh = Op("hardtanh", hardtanh_rule, params=("lo", "hi"), cpu=hardtanh_cpu, promote="same",
              cuda=Elementwise("clamp(x, T(lo), T(hi))"),
              grad={"x": lambda g, x, lo, hi: hardtanh_backward(g, x, lo=lo, hi=hi)})  # fmt: skip
hardtanh_backward: Op = Op("hardtanh_backward", derivative, params=("lo", "hi"), cpu=hardtanh_backward_cpu, promote="float",
                           cuda=Elementwise("where(x > T(lo) && x < T(hi), dy, T(0))"),
                           grad={"dy": lambda g, x, lo, hi: hardtanh_backward(g, x, lo=lo, hi=hi),
                                 "x": lambda g: g.zeros_like()})  # fmt: skip


def hardswish_cpu(x: Any, y: Any) -> None:
    np.multiply(x, np.clip(x + 3, 0, 6), y)
    y /= 6


hardswish = Op("hardswish", same, cpu=hardswish_cpu, cuda=Elementwise("x * clamp(x + T(3), T(0), T(6)) / T(6)"), promote="float",
               grad={"x": lambda g, x: g.where(x >= 3, g * (x / 3 + 0.5)).masked_fill(x <= -3, 0)})  # fmt: skip
