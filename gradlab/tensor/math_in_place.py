"""The in-place twins of elementwise functions: `x.exp2_()` is `x = exp2(x)` in x's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import asarray, empty_like

from gradlab.autograd.base import Differentiable, reflecting
from gradlab.ops.math import lerp
from gradlab.quiet import quietly
from gradlab.tensor import comparison as c, elementwise as p, gamma, math as m, math_pairs as mp, norms, where
from gradlab.tensor.common_arguments import only_real
from gradlab.tensor.complex import conj_physical
from gradlab.tensor.in_place_methods import ordinary, put, update


def twin(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """The in-place method of a function."""
    name = name or f"{function.__name__}_"

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return update(name, self, function, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"In place: {function.__doc__}"
    return method


def _polygamma(input: Any, n: int) -> Any:
    """The n-th derivative of digamma.

    >>> gl.tensor([1.0]).polygamma_(1)
    tensor([1.6449])
    """
    return gamma.polygamma(n, input)


def lerp_(self: Any, end: Any, weight: Any) -> Any:
    if type(weight) is float and end is not None and ordinary(self, end):
        x = self._array
        found = empty_like(x)
        quietly(lerp.cpu, x, end._array, asarray(weight, x.dtype), found)
        return put(self, found)
    return update("lerp_", self, mp.lerp, end, weight)


lerp_.__qualname__, lerp_.__doc__ = "lerp_", f"In place: {mp.lerp.__doc__}"


def _abs(input: Any) -> Any:
    """Absolute value. TypeError for complex numbers, whose sizes are real.

    >>> gl.tensor([-1.5]).abs_()
    tensor([1.5000])
    """
    only_real("abs_", input)
    return p.abs(input)


class MathInPlaceMethods(Differentiable):
    """The in-place methods of the elementwise families."""

    __slots__ = ()

    log_, rsqrt_, sin_, cos_, reciprocal_ = twin(p.log), twin(p.rsqrt), twin(p.sin), twin(p.cos), twin(p.reciprocal)
    conj_physical_ = twin(conj_physical)
    abs_, sign_, square_, floor_, ceil_ = twin(_abs, "abs_"), twin(p.sign), twin(p.square), twin(p.floor), twin(p.ceil)
    trunc_, round_ = twin(p.trunc), twin(p.round)
    exp2_, expm1_, log2_, log10_, log1p_ = twin(m.exp2), twin(m.expm1), twin(m.log2), twin(m.log10), twin(m.log1p)
    tan_, asin_, acos_, atan_ = twin(m.tan), twin(m.asin), twin(m.acos), twin(m.atan)
    sinh_, cosh_, asinh_, acosh_, atanh_ = twin(m.sinh), twin(m.cosh), twin(m.asinh), twin(m.acosh), twin(m.atanh)
    sinc_, frac_, sgn_, deg2rad_, rad2deg_ = twin(m.sinc), twin(m.frac), twin(m.sgn), twin(m.deg2rad), twin(m.rad2deg)
    logit_, nan_to_num_, clamp_min_, clamp_max_ = twin(m.logit), twin(m.nan_to_num), twin(mp.clamp_min), twin(mp.clamp_max)
    atan2_, hypot_, fmod_, remainder_ = twin(mp.atan2), twin(mp.hypot), twin(mp.fmod), twin(mp.remainder)
    lerp_, floor_divide_ = lerp_, twin(mp.floor_divide)
    copysign_, xlogy_, heaviside_, nextafter_ = twin(mp.copysign), twin(mp.xlogy), twin(mp.heaviside), twin(mp.nextafter)
    ldexp_, float_power_, gcd_, lcm_ = twin(mp.ldexp), twin(mp.float_power), twin(mp.gcd), twin(mp.lcm)
    bitwise_left_shift_, bitwise_right_shift_ = twin(mp.bitwise_left_shift), twin(mp.bitwise_right_shift)
    bitwise_and_, bitwise_or_, bitwise_xor_ = twin(c.bitwise_and), twin(c.bitwise_or), twin(c.bitwise_xor)
    bitwise_not_, logical_not_ = twin(c.bitwise_not), twin(c.logical_not)
    logical_and_, logical_or_, logical_xor_ = twin(c.logical_and), twin(c.logical_or), twin(c.logical_xor)
    eq_, ne_, lt_, le_, gt_, ge_ = twin(c.eq), twin(c.ne), twin(c.lt), twin(c.le), twin(c.gt), twin(c.ge)
    not_equal_, less_, less_equal_, greater_, greater_equal_ = ne_, lt_, le_, gt_, ge_
    digamma_, lgamma_, mvlgamma_, renorm_ = twin(gamma.digamma), twin(gamma.lgamma), twin(gamma.mvlgamma), twin(norms.renorm)
    polygamma_ = twin(_polygamma, "polygamma_")

    multiply_, subtract_, divide_, true_divide_ = twin(p.mul), twin(p.sub), twin(p.div), twin(p.div)
    negative_, absolute_, clip_, fix_ = twin(p.neg), twin(_abs, "absolute_"), twin(where.clamp), twin(p.trunc)
    arcsin_, arccos_, arctan_, arctan2_ = asin_, acos_, atan_, atan2_
    arcsinh_, arccosh_, arctanh_ = asinh_, acosh_, atanh_
    __ifloordiv__, __imod__ = reflecting(floor_divide_, "__rfloordiv__"), reflecting(remainder_, "__rmod__")
    __ilshift__, __irshift__ = reflecting(bitwise_left_shift_, "__rlshift__"), reflecting(bitwise_right_shift_, "__rrshift__")
    __iand__, __ior__ = reflecting(bitwise_and_, "__rand__"), reflecting(bitwise_or_, "__ror__")
    __ixor__ = reflecting(bitwise_xor_, "__rxor__")
