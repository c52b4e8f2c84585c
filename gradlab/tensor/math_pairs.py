"""Elementwise mathematics of two and three inputs: division with rounding, extremes that pass over NaN, interpolation, bits.

Inputs broadcast; dtypes promote as in PyTorch. Results are new tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable, reflecting
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX128, FLOAT64, INEXACT, complex64, complex128, result_type
from gradlab.named_errors import explain, named_functions
from gradlab.tensor import elementwise, where
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.deprecated_arguments import with_value
from gradlab.tensor.math import exp2
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "addcdiv", "addcmul", "arctan2", "atan2", "bitwise_left_shift", "bitwise_right_shift", "clamp_max", "clamp_min", "copysign",
    "float_power", "floor_divide", "fmax", "fmin", "fmod", "gcd", "heaviside", "hypot", "lcm", "ldexp", "lerp", "logaddexp",
    "logaddexp2", "nextafter", "remainder", "rsub", "xlogy",
]  # fmt: skip

_rows = ops.math
_atan2, _hypot, _fmod, _remainder, _floor_divide, _copysign, _fmax, _fmin = map(
    bind, (_rows.atan2, _rows.hypot, _rows.fmod, _rows.remainder, _rows.floor_divide, _rows.copysign, _rows.fmax, _rows.fmin)
)
_logaddexp, _logaddexp2, _xlogy, _heaviside, _nextafter, _lerp = map(
    bind, (_rows.logaddexp, _rows.logaddexp2, _rows.xlogy, _rows.heaviside, _rows.nextafter, _rows.lerp)
)
_left_shift, _right_shift, _gcd, _lcm = map(bind, (_rows.left_shift, _rows.right_shift, _rows.gcd, _rows.lcm))

Operand = Any  # a Tensor or a Python number


def atan2(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The angle of the point (other, input), in radians, in all four quadrants.

    >>> gl.atan2(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([ 0.6435, -0.7854])
    """
    only_tensors("atan2", input, other)
    return _atan2(input, other) if out is None else into("atan2", out, _atan2(input, other))


def hypot(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """sqrt(a² + b²) without overflow; its gradient at (0, 0) is 0.

    >>> gl.hypot(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([5.0000, 1.4142])
    """
    only_tensors("hypot", input, other)
    return _hypot(input, other) if out is None else into("hypot", out, _hypot(input, other))


def fmod(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """Remainder of the division rounded toward zero: it has the sign of `input`. An integer modulo 0 gives 0.

    >>> gl.fmod(gl.tensor([7, -7]), 3)
    tensor([ 1, -1])
    """
    only_tensors("fmod", input)
    return _fmod(input, other) if out is None else into("fmod", out, _fmod(input, other))


def remainder(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Remainder of the division rounded down, as Python's %: it has the sign of `other`. An integer modulo 0 gives 0.

    >>> gl.remainder(gl.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    return _remainder(input, other) if out is None else into("remainder", out, _remainder(input, other))


def floor_divide(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """input / other rounded down, as Python's //. An integer divided by 0 gives 0.

    >>> gl.floor_divide(gl.tensor([7, -7]), 3)
    tensor([ 2, -3])
    """
    try:
        return _floor_divide(input, other) if out is None else into("floor_divide", out, _floor_divide(input, other))
    except Exception as error:
        explain(error, "floor_divide", floor_divide, (input, other), {"out": out})


def copysign(input: Tensor, other: Operand, *, out: Any = None) -> Tensor:
    """The magnitude of `input` with the sign of `other`.

    >>> gl.copysign(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([3., 1.])
    """
    only_tensors("copysign", input)
    return _copysign(input, other) if out is None else into("copysign", out, _copysign(input, other))


def fmax(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The larger of two; if one is NaN the other.

    >>> gl.fmax(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([4., 1.])
    """
    only_tensors("fmax", input, other)
    return _fmax(input, other) if out is None else into("fmax", out, _fmax(input, other))


def fmin(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The smaller of two; if one is NaN the other.

    >>> gl.fmin(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([ 3., -1.])
    """
    only_tensors("fmin", input, other)
    return _fmin(input, other) if out is None else into("fmin", out, _fmin(input, other))


def logaddexp(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """log(exp(a) + exp(b)) without overflow.

    >>> gl.logaddexp(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([4.3133, 1.1269])
    """
    only_tensors("logaddexp", input, other)
    return _logaddexp(input, other) if out is None else into("logaddexp", out, _logaddexp(input, other))


def logaddexp2(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """log2(2^a + 2^b) without overflow.

    >>> gl.logaddexp2(gl.tensor([3.0, -1.0]), gl.tensor([4.0, 1.0]))
    tensor([4.5850, 1.3219])
    """
    only_tensors("logaddexp2", input, other)
    return _logaddexp2(input, other) if out is None else into("logaddexp2", out, _logaddexp2(input, other))


def xlogy(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """a · log(b), and 0 where a is 0 (unless b is NaN).

    >>> gl.xlogy(gl.tensor([0.0, 2.0]), gl.tensor([0.0, 1.0]))
    tensor([0., 0.])
    """
    return _xlogy(input, other) if out is None else into("xlogy", out, _xlogy(input, other))


def heaviside(input: Tensor, values: Tensor, *, out: Any = None) -> Tensor:
    """0 below 0, 1 above, and `values` at 0. Both have the same dtype (RuntimeError).

    >>> gl.heaviside(gl.tensor([-1.0, 0.0, 1.0]), gl.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    only_tensors("heaviside", input, values)
    if input._array.dtype != values._array.dtype:
        raise RuntimeError(f"heaviside: input and values have one dtype, got {input.dtype} and {values.dtype}")
    return _heaviside(input, values) if out is None else into("heaviside", out, _heaviside(input, values))


def nextafter(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The next floating point number after `input` in the direction of `other`.

    >>> gl.nextafter(gl.tensor([1.0]), gl.tensor([2.0])) > 1
    tensor([True])
    """
    only_tensors("nextafter", input, other)
    return _nextafter(input, other) if out is None else into("nextafter", out, _nextafter(input, other))


def ldexp(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """input · 2^other.

    >>> gl.ldexp(gl.tensor([1.0, 3.0]), gl.tensor([2, 3]))
    tensor([ 4., 24.])
    """
    only_tensors("ldexp", input, other)
    result = input * exp2(other)
    if input._array.dtype in INEXACT and other._array.dtype not in INEXACT:
        result = result.to(input._array.dtype)
    return result if out is None else into("ldexp", out, result)


def float_power(input: Operand, exponent: Operand, *, out: Any = None) -> Tensor:
    """input to the power of exponent, computed and returned as float64 (complex128, where one is complex).

    >>> gl.float_power(gl.tensor([2, 3]), 2)
    tensor([4., 9.], dtype=gradlab.float64)
    """
    both = (input, exponent)
    wide = COMPLEX128 if any(isinstance(x, complex) or getattr(x, "dtype", None) in (complex64, complex128) for x in both) else FLOAT64
    base, power = (x.to(wide) if isinstance(x, Differentiable) else x for x in both)  # type: ignore[attr-defined]
    return elementwise.pow(base, power) if out is None else into("float_power", out, elementwise.pow(base, power))


def rsub(input: Tensor, other: Operand, alpha: float = 1) -> Tensor:
    """other - alpha · input.

    >>> gl.rsub(gl.tensor([1.0, 2.0]), 10)
    tensor([9., 8.])
    """
    only_tensors("rsub", input)
    return elementwise.sub(other, input, alpha=alpha)


def clamp_min(input: Tensor, min: Operand, *, out: Any = None) -> Tensor:
    """Limit each element to at least `min`.

    >>> gl.clamp_min(gl.tensor([-1.0, 2.0]), 0)
    tensor([0., 2.])
    """
    if out is not None:
        return into("clamp_min" if not isinstance(min, Differentiable) else "clamp_min.into", out, clamp_min(input, min))
    only_tensors("clamp_min", input)
    return where.clamp(input, min)


def clamp_max(input: Tensor, max: Operand, *, out: Any = None) -> Tensor:
    """Limit each element to at most `max`.

    >>> gl.clamp_max(gl.tensor([-1.0, 2.0]), 0)
    tensor([-1.,  0.])
    """
    if out is not None:
        return into("clamp_max" if not isinstance(max, Differentiable) else "clamp_max.into", out, clamp_max(input, max))
    only_tensors("clamp_max", input)
    return where.clamp(input, None, max)


def gcd(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Greatest common divisor of integers, not negative; gcd(0, 0) is 0.

    >>> gl.gcd(gl.tensor([12, 8]), gl.tensor([18, 6]))
    tensor([6, 2])
    """
    only_tensors("gcd", input, other)
    return _gcd(input, other) if out is None else into("gcd", out, _gcd(input, other))


def lcm(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Least common multiple of integers, not negative.

    >>> gl.lcm(gl.tensor([12, 8]), gl.tensor([18, 6]))
    tensor([36, 24])
    """
    only_tensors("lcm", input, other)
    return _lcm(input, other) if out is None else into("lcm", out, _lcm(input, other))


def bitwise_left_shift(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits of integers moved to the left; a shift by all bits or more, or by a negative count, gives 0.

    >>> gl.bitwise_left_shift(gl.tensor([4, 8]), 1)
    tensor([ 8, 16])
    """
    return _left_shift(input, other) if out is None else into("bitwise_left_shift", out, _left_shift(input, other))


def bitwise_right_shift(input: Operand, other: Operand, *, out: Any = None) -> Tensor:
    """Bits of integers moved to the right, the sign staying; a shift by all bits or more, or by a negative count, leaves only the sign.

    >>> gl.bitwise_right_shift(gl.tensor([4, 8]), 1)
    tensor([2, 4])
    """
    return _right_shift(input, other) if out is None else into("bitwise_right_shift", out, _right_shift(input, other))


# ---------------------------------------------------------------- three inputs


@one_row
def lerp(input: Tensor, end: Tensor, weight: Operand, *, out: Any = None) -> Tensor:
    """input + weight · (end - input), exact at weights 0 and 1. `weight` is a number or a tensor; all broadcast.

    >>> gl.lerp(gl.tensor([0.0, 10.0]), gl.tensor([10.0, 20.0]), 0.5)
    tensor([ 5., 15.])
    """
    try:
        only_tensors("lerp", input, end)
        if input._array.dtype != end._array.dtype:
            raise RuntimeError(f"lerp: input and end have one dtype, got {input.dtype} and {end.dtype}")
        if out is None:
            return _lerp(input, end, weight)
        return into("lerp.Tensor" if isinstance(weight, Differentiable) else "lerp", out, _lerp(input, end, weight))
    except Exception as error:
        explain(error, "lerp", lerp, (input, end, weight), {"out": out})


def _scaled(input: Tensor, product: Tensor, value: float) -> Tensor:
    if value == 1:
        return product
    if product._array.dtype not in INEXACT and input._array.dtype not in INEXACT:
        value = int(value)  # as PyTorch
    return product * value


def _of_one_type(*tensors: Tensor) -> Any:
    """Tensors in their common result type. Two by two it would be another one: a 0-d float64 tensor counts beside one of integers, but not
    beside one of float32."""
    first, *others = [x._array.dtype for x in tensors]
    if all(dtype == first for dtype in others):
        return tensors
    dtype = result_type([(x._array.dtype, len(x._array.shape)) for x in tensors])
    return [x if x._array.dtype == dtype else x.to(dtype) for x in tensors]


@rounds_once
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Any, value: float = 1, out: Any = None) -> Tensor:
    """input + value · tensor1 · tensor2. Of integers `value` is cut to an integer.

    >>> gl.addcmul(gl.ones(2), gl.tensor([2.0, 3.0]), gl.tensor([4.0, 5.0]), value=10)
    tensor([ 81., 151.])
    """
    if old:
        tensor1, tensor2, value = with_value("addcmul", tensor1, tensor2, old)
    only_tensors("addcmul", input, tensor1, tensor2)
    input, tensor1, tensor2 = _of_one_type(input, tensor1, tensor2)
    result = input + _scaled(input, tensor1 * tensor2, value)
    return result if out is None else into("addcmul", out, result)


@rounds_once
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Any, value: float = 1, out: Any = None) -> Tensor:
    """input + value · tensor1 / tensor2. RuntimeError for the quotient of integers: convert one first.

    >>> gl.addcdiv(gl.ones(2), gl.tensor([2.0, 3.0]), gl.tensor([4.0, 2.0]))
    tensor([1.5000, 2.5000])
    """
    if old:
        tensor1, tensor2, value = with_value("addcdiv", tensor1, tensor2, old)
    only_tensors("addcdiv", input, tensor1, tensor2)
    if tensor1._array.dtype not in INEXACT and tensor2._array.dtype not in INEXACT:
        raise RuntimeError("addcdiv: dividing two integer tensors is not supported; convert one with .float()")
    input, tensor1, tensor2 = _of_one_type(input, tensor1, tensor2)
    result = input + _scaled(input, tensor1 / tensor2, value)
    return result if out is None else into("addcdiv", out, result)


arctan2 = atan2


named_functions(__name__)


class MathPairMethods(Differentiable):
    """The methods and operators of this family."""

    __slots__ = ()

    arctan2 = atan2
    atan2, hypot, fmod, remainder, floor_divide, copysign, fmax, fmin = atan2, hypot, fmod, remainder, floor_divide, copysign, fmax, fmin
    logaddexp, logaddexp2, xlogy, heaviside, nextafter, ldexp = logaddexp, logaddexp2, xlogy, heaviside, nextafter, ldexp
    float_power, clamp_min, clamp_max, gcd, lcm = float_power, clamp_min, clamp_max, gcd, lcm
    bitwise_left_shift, bitwise_right_shift, lerp, addcmul, addcdiv = bitwise_left_shift, bitwise_right_shift, lerp, addcmul, addcdiv
    __floordiv__, __mod__ = reflecting(floor_divide, "__rfloordiv__"), reflecting(remainder, "__rmod__")
    __lshift__, __rshift__ = reflecting(bitwise_left_shift, "__rlshift__"), reflecting(bitwise_right_shift, "__rrshift__")

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
