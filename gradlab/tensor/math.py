"""Elementwise mathematics: exponentials and logarithms of other bases, angles, division with rounding, extremes that pass over NaN,
interpolation, comparison within a tolerance, bits.

Every function takes tensors of any shape; two inputs broadcast; dtypes promote as in PyTorch. Results are new tensors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, FLOAT64, FLOATING, finfo, result_type
from gradlab.tensor import pointwise
from gradlab.tensor.alias import into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "acos", "acosh", "addcdiv", "addcmul",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan",
    "atan2", "atanh", "bitwise_left_shift", "bitwise_right_shift", "clamp_max", "clamp_min", "copysign", "cosh", "deg2rad", "exp2", "expm1",
    "fix", "float_power", "floor_divide", "fmax", "fmin", "fmod", "frac", "gcd", "heaviside", "hypot", "lcm", "ldexp", "lerp", "log10",
    "log1p", "log2", "logaddexp", "logaddexp2", "logit", "nan_to_num", "nextafter", "positive", "rad2deg", "remainder", "rsub", "sgn",
    "signbit", "sinc", "sinh", "tan", "xlogy",
]  # fmt: skip

_rows = ops.math
_exp2, _expm1, _log2, _log10, _log1p, _sinc, _signbit = map(
    bind, (_rows.exp2, _rows.expm1, _rows.log2, _rows.log10, _rows.log1p, _rows.sinc, _rows.signbit)
)
_tan, _asin, _acos, _atan, _sinh, _cosh, _asinh, _acosh, _atanh = map(
    bind, (_rows.tan, _rows.asin, _rows.acos, _rows.atan, _rows.sinh, _rows.cosh, _rows.asinh, _rows.acosh, _rows.atanh)
)
_atan2, _hypot, _fmod, _remainder, _floor_divide, _copysign, _fmax, _fmin = map(
    bind, (_rows.atan2, _rows.hypot, _rows.fmod, _rows.remainder, _rows.floor_divide, _rows.copysign, _rows.fmax, _rows.fmin)
)
_logaddexp, _logaddexp2, _xlogy, _heaviside, _nextafter, _lerp = map(
    bind, (_rows.logaddexp, _rows.logaddexp2, _rows.xlogy, _rows.heaviside, _rows.nextafter, _rows.lerp)
)
_left_shift, _right_shift, _gcd, _lcm = map(bind, (_rows.left_shift, _rows.right_shift, _rows.gcd, _rows.lcm))

Operand = Any  # a Tensor or a Python number


def exp2(input: Tensor, *, out: Any = None) -> Tensor:
    """2 to the power of each element."""
    return _exp2(input) if out is None else into("exp2", out, _exp2(input))


def expm1(input: Tensor, *, out: Any = None) -> Tensor:
    """exp(x) - 1, exact also for small x."""
    return _expm1(input) if out is None else into("expm1", out, _expm1(input))


def log2(input: Tensor, *, out: Any = None) -> Tensor:
    """Logarithm to base 2."""
    return _log2(input) if out is None else into("log2", out, _log2(input))


def log10(input: Tensor, *, out: Any = None) -> Tensor:
    """Logarithm to base 10."""
    return _log10(input) if out is None else into("log10", out, _log10(input))


def log1p(input: Tensor, *, out: Any = None) -> Tensor:
    """log(1 + x), exact also for small x."""
    return _log1p(input) if out is None else into("log1p", out, _log1p(input))


def tan(input: Tensor, *, out: Any = None) -> Tensor:
    """Tangent of an angle in radians."""
    return _tan(input) if out is None else into("tan", out, _tan(input))


def asin(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose sine is x; NaN outside [-1, 1]."""
    return _asin(input) if out is None else into("asin", out, _asin(input))


def acos(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose cosine is x; NaN outside [-1, 1]."""
    return _acos(input) if out is None else into("acos", out, _acos(input))


def atan(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose tangent is x."""
    return _atan(input) if out is None else into("atan", out, _atan(input))


def sinh(input: Tensor, *, out: Any = None) -> Tensor:
    """Hyperbolic sine."""
    return _sinh(input) if out is None else into("sinh", out, _sinh(input))


def cosh(input: Tensor, *, out: Any = None) -> Tensor:
    """Hyperbolic cosine."""
    return _cosh(input) if out is None else into("cosh", out, _cosh(input))


def asinh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic sine."""
    return _asinh(input) if out is None else into("asinh", out, _asinh(input))


def acosh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1."""
    return _acosh(input) if out is None else into("acosh", out, _acosh(input))


def atanh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return _atanh(input) if out is None else into("atanh", out, _atanh(input))


def sinc(input: Tensor, *, out: Any = None) -> Tensor:
    """sin(πx) / (πx), 1 at 0."""
    return _sinc(input) if out is None else into("sinc", out, _sinc(input))


def signbit(input: Tensor, *, out: Any = None) -> Tensor:
    """Whether the sign bit is set: of negative numbers, and of -0.0."""
    return _signbit(input) if out is None else into("signbit", out, _signbit(input))


def frac(input: Tensor, *, out: Any = None) -> Tensor:
    """x - trunc(x), with the sign of x."""
    if input._array.dtype not in FLOATING:
        raise RuntimeError(f"frac: needs floating point, got {input.dtype}")
    return input - input.trunc() if out is None else into("frac", out, input - input.trunc())


def sgn(input: Tensor, *, out: Any = None) -> Tensor:
    """The sign, -1, 0 or 1."""
    result = input.clone() if input._array.dtype == BOOL else pointwise.sign(input)
    return result if out is None else into("sgn", out, result)


def positive(input: Tensor) -> Tensor:
    """The input itself. RuntimeError for truth values."""
    if input._array.dtype == BOOL:
        raise RuntimeError("positive: not for truth values")
    return input


def fix(input: Tensor, *, out: Any = None) -> Tensor:
    """x without its fraction; `trunc`."""
    return pointwise.trunc(input) if out is None else into("fix", out, pointwise.trunc(input))


def deg2rad(input: Tensor, *, out: Any = None) -> Tensor:
    """Degrees to radians."""
    return input * (math.pi / 180) if out is None else into("deg2rad", out, input * (math.pi / 180))


def rad2deg(input: Tensor, *, out: Any = None) -> Tensor:
    """Radians to degrees."""
    return input * (180 / math.pi) if out is None else into("rad2deg", out, input * (180 / math.pi))


def logit(input: Tensor, eps: float | None = None, *, out: Any = None) -> Tensor:
    """log(x / (1 - x)), of x limited to [eps, 1 - eps] if `eps` is given."""
    x: Any = _floating(input)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log() if out is None else into("logit", out, (x / (1 - x)).log())


def _floating(input: Tensor) -> Tensor:
    return input if input._array.dtype in FLOATING else input * 1.0


def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None, *, out: Any = None) -> Tensor:
    """NaN, inf and -inf replaced by numbers; by default 0 and the largest and smallest finite numbers of the dtype."""
    if out is not None:
        return into("nan_to_num", out, nan_to_num(input, nan, posinf, neginf))
    if input._array.dtype not in FLOATING:
        return input.clone()
    limits = finfo(input._array.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    infinite, below = input.isinf(), input < 0
    out = input.masked_fill(input.isnan(), 0.0 if nan is None else nan)
    return out.masked_fill(infinite & ~below, high).masked_fill(infinite & below, low)


# ---------------------------------------------------------------- two inputs


def _only_tensors(name: str, *values: Any) -> None:
    """PyTorch takes no Python number here."""
    for value in values:
        if not isinstance(value, Differentiable):
            raise TypeError(f"{name}: takes tensors here, not {type(value).__name__}; use gradlab.tensor(...)")


def atan2(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The angle of the point (other, input), in radians, in all four quadrants."""
    _only_tensors("atan2", input, other)
    return _atan2(input, other) if out is None else into("atan2", out, _atan2(input, other))


def hypot(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """sqrt(a² + b²) without overflow; its gradient at (0, 0) is 0."""
    _only_tensors("hypot", input, other)
    return _hypot(input, other) if out is None else into("hypot", out, _hypot(input, other))


def fmod(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Remainder of the division rounded toward zero: it has the sign of `input`. An integer modulo 0 gives 0."""
    _only_tensors("fmod", input)
    return _fmod(input, other) if out is None else into("fmod", out, _fmod(input, other))


def remainder(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Remainder of the division rounded down, as Python's %: it has the sign of `other`. An integer modulo 0 gives 0."""
    return _remainder(input, other) if out is None else into("remainder", out, _remainder(input, other))


def floor_divide(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """input / other rounded down, as Python's //. An integer divided by 0 gives 0."""
    return _floor_divide(input, other) if out is None else into("floor_divide", out, _floor_divide(input, other))


def copysign(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """The magnitude of `input` with the sign of `other`."""
    _only_tensors("copysign", input)
    return _copysign(input, other) if out is None else into("copysign", out, _copysign(input, other))


def fmax(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The larger of two; if one is NaN the other."""
    _only_tensors("fmax", input, other)
    return _fmax(input, other) if out is None else into("fmax", out, _fmax(input, other))


def fmin(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The smaller of two; if one is NaN the other."""
    _only_tensors("fmin", input, other)
    return _fmin(input, other) if out is None else into("fmin", out, _fmin(input, other))


def logaddexp(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """log(exp(a) + exp(b)) without overflow."""
    _only_tensors("logaddexp", input, other)
    return _logaddexp(input, other) if out is None else into("logaddexp", out, _logaddexp(input, other))


def logaddexp2(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """log2(2^a + 2^b) without overflow."""
    _only_tensors("logaddexp2", input, other)
    return _logaddexp2(input, other) if out is None else into("logaddexp2", out, _logaddexp2(input, other))


def xlogy(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """a · log(b), and 0 where a is 0 (unless b is NaN)."""
    return _xlogy(input, other) if out is None else into("xlogy", out, _xlogy(input, other))


def heaviside(input: Tensor, values: Tensor, *, out: Any = None) -> Tensor:
    """0 below 0, 1 above, and `values` at 0. Both have the same dtype (RuntimeError)."""
    _only_tensors("heaviside", input, values)
    if input._array.dtype != values._array.dtype:
        raise RuntimeError(f"heaviside: input and values have one dtype, got {input.dtype} and {values.dtype}")
    return _heaviside(input, values) if out is None else into("heaviside", out, _heaviside(input, values))


def nextafter(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The next floating point number after `input` in the direction of `other`."""
    _only_tensors("nextafter", input, other)
    return _nextafter(input, other) if out is None else into("nextafter", out, _nextafter(input, other))


def ldexp(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """input · 2^other."""
    _only_tensors("ldexp", input, other)
    return input * exp2(other) if out is None else into("ldexp", out, input * exp2(other))


def float_power(input: Operand, exponent: Operand, *, out: Any = None) -> Tensor:
    """input to the power of exponent, computed and returned as float64."""
    base, power = (x.to(FLOAT64) if isinstance(x, Differentiable) else x for x in (input, exponent))  # type: ignore[attr-defined]
    return pointwise.pow(base, power) if out is None else into("float_power", out, pointwise.pow(base, power))


def rsub(input: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """other - alpha · input."""
    _only_tensors("rsub", input)
    return pointwise.sub(other, input, alpha=alpha)


def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Limit each element to at least `min`."""
    _only_tensors("clamp_min", input)
    return pointwise.clamp(input, min)


def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Limit each element to at most `max`."""
    _only_tensors("clamp_max", input)
    return pointwise.clamp(input, None, max)


def gcd(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Greatest common divisor of integers, not negative; gcd(0, 0) is 0."""
    _only_tensors("gcd", input, other)
    return _gcd(input, other) if out is None else into("gcd", out, _gcd(input, other))


def lcm(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Least common multiple of integers, not negative."""
    _only_tensors("lcm", input, other)
    return _lcm(input, other) if out is None else into("lcm", out, _lcm(input, other))


def bitwise_left_shift(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits of integers moved to the left; a shift by all bits or more, or by a negative count, gives 0."""
    return _left_shift(input, other) if out is None else into("bitwise_left_shift", out, _left_shift(input, other))


def bitwise_right_shift(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits of integers moved to the right, the sign staying; a shift by all bits or more, or by a negative count, leaves only the sign."""
    return _right_shift(input, other) if out is None else into("bitwise_right_shift", out, _right_shift(input, other))


# ---------------------------------------------------------------- three inputs


def lerp(input: Tensor, end: Tensor, weight: Operand, *, out: Any = None) -> Tensor:
    """input + weight · (end - input), exact at weights 0 and 1. `weight` is a number or a tensor; all broadcast."""
    if input._array.dtype != end._array.dtype:
        raise RuntimeError(f"lerp: input and end have one dtype, got {input.dtype} and {end.dtype}")
    return _lerp(input, end, weight) if out is None else into("lerp", out, _lerp(input, end, weight))


def _scaled(dtype: Any, product: Tensor, value: float) -> Tensor:
    if isinstance(value, float) and dtype not in FLOATING:
        raise RuntimeError(f"addcmul, addcdiv: value is an integer for tensors of integers, got {value}")
    return product if value == 1 else product * value


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Any = None) -> Tensor:
    """input + value · tensor1 · tensor2."""
    product = tensor1 * tensor2
    result = input + _scaled(result_type([(x._array.dtype, len(x._array.shape)) for x in (input, product)]), product, value)
    return result if out is None else into("addcmul", out, result)


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Any = None) -> Tensor:
    """input + value · tensor1 / tensor2. RuntimeError for the quotient of integers: convert one first."""
    if tensor1._array.dtype not in FLOATING and tensor2._array.dtype not in FLOATING:
        raise RuntimeError("addcdiv: dividing two integer tensors is not supported; convert one with .float()")
    quotient = tensor1 / tensor2
    result = input + _scaled(quotient._array.dtype, quotient, value)
    return result if out is None else into("addcdiv", out, result)


arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = acos, acosh, asin, asinh, atan, atan2, atanh


class MathMethods(Differentiable):
    """The methods and operators of this family."""

    __slots__ = ()

    exp2, expm1, log2, log10, log1p, tan, asin, acos, atan = exp2, expm1, log2, log10, log1p, tan, asin, acos, atan
    sinh, cosh, asinh, acosh, atanh, sinc, signbit, frac, sgn = sinh, cosh, asinh, acosh, atanh, sinc, signbit, frac, sgn
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh, arctan2 = asin, acos, atan, asinh, acosh, atanh, atan2
    positive, fix, deg2rad, rad2deg, logit, nan_to_num = positive, fix, deg2rad, rad2deg, logit, nan_to_num
    atan2, hypot, fmod, remainder, floor_divide, copysign, fmax, fmin = atan2, hypot, fmod, remainder, floor_divide, copysign, fmax, fmin
    logaddexp, logaddexp2, xlogy, heaviside, nextafter, ldexp = logaddexp, logaddexp2, xlogy, heaviside, nextafter, ldexp
    float_power, clamp_min, clamp_max, gcd, lcm = float_power, clamp_min, clamp_max, gcd, lcm
    bitwise_left_shift, bitwise_right_shift, lerp, addcmul, addcdiv = bitwise_left_shift, bitwise_right_shift, lerp, addcmul, addcdiv
    __floordiv__, __mod__, __lshift__, __rshift__ = floor_divide, remainder, bitwise_left_shift, bitwise_right_shift

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return _floor_divide(other, self)

    def __rmod__(self, other: Operand) -> Tensor:
        return _remainder(other, self)

    def __divmod__(self, other: Operand) -> tuple[Tensor, Tensor]:
        return _floor_divide(self, other), _remainder(self, other)

    def __rdivmod__(self, other: Operand) -> tuple[Tensor, Tensor]:
        return _floor_divide(other, self), _remainder(other, self)

    def __rlshift__(self, other: Operand) -> Tensor:
        return _left_shift(other, self)

    def __rrshift__(self, other: Operand) -> Tensor:
        return _right_shift(other, self)
