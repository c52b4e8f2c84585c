"""Elementwise mathematics of one input: exponentials and logarithms of other bases, angles, numbers that are none.

Every function takes tensors of any shape; results are new tensors, integers become floating point where the result is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, unrecorded, wrap
from gradlab.dtype import BOOL, COMPLEX, FLOATING, INEXACT, finfo, immediate, needs_floating
from gradlab.named_errors import named_functions
from gradlab.quiet import quietly
from gradlab.tensor import elementwise
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.complex import complex
from gradlab.tensor.from_data import beyond
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan", "atanh", "cosh", "deg2rad",
    "exp2", "expm1", "fix", "frac", "log10", "log1p", "log2", "logit", "nan_to_num", "positive", "rad2deg", "sgn", "signbit", "sinc",
    "sinh", "tan",
]  # fmt: skip

_rows = ops.math
_complex_sgn = bind(ops.complex.complex_sgn)
_exp2, _expm1, _log2, _log10, _log1p, _sinc, _signbit = map(
    bind, (_rows.exp2, _rows.expm1, _rows.log2, _rows.log10, _rows.log1p, _rows.sinc, _rows.signbit)
)
_tan, _asin, _acos, _atan, _sinh, _cosh, _asinh, _acosh, _atanh = map(
    bind, (_rows.tan, _rows.asin, _rows.acos, _rows.atan, _rows.sinh, _rows.cosh, _rows.asinh, _rows.acosh, _rows.atanh)
)


def exp2(input: Tensor, *, out: Any = None) -> Tensor:
    """2 to the power of each element.

    >>> gl.exp2(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([0.3536, 1.0000, 2.8284])
    """
    return _exp2(input) if out is None else into("exp2", out, _exp2(input))


def expm1(input: Tensor, *, out: Any = None) -> Tensor:
    """exp(x) - 1, exact also for small x.

    >>> gl.expm1(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.7769,  0.0000,  3.4817])
    """
    return _expm1(input) if out is None else into("expm1", out, _expm1(input))


def log2(input: Tensor, *, out: Any = None) -> Tensor:
    """Logarithm to base 2.

    >>> gl.log2(gl.tensor([0.5, 1.0, 10.0]))
    tensor([-1.0000,  0.0000,  3.3219])
    """
    return _log2(input) if out is None else into("log2", out, _log2(input))


def log10(input: Tensor, *, out: Any = None) -> Tensor:
    """Logarithm to base 10.

    >>> gl.log10(gl.tensor([0.5, 1.0, 10.0]))
    tensor([-0.3010,  0.0000,  1.0000])
    """
    return _log10(input) if out is None else into("log10", out, _log10(input))


def log1p(input: Tensor, *, out: Any = None) -> Tensor:
    """log(1 + x), exact also for small x.

    >>> gl.log1p(gl.tensor([0.5, 1.0, 10.0]))
    tensor([0.4055, 0.6931, 2.3979])
    """
    return _log1p(input) if out is None else into("log1p", out, _log1p(input))


def tan(input: Tensor, *, out: Any = None) -> Tensor:
    """Tangent of an angle in radians.

    >>> gl.tan(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-14.1014,   0.0000,  14.1014])
    """
    return _tan(input) if out is None else into("tan", out, _tan(input))


def asin(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose sine is x; NaN outside [-1, 1].

    >>> gl.asin(gl.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5236])
    """
    return _asin(input) if out is None else into("asin", out, _asin(input))


def acos(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose cosine is x; NaN outside [-1, 1].

    >>> gl.acos(gl.tensor([0.0, 0.5]))
    tensor([1.5708, 1.0472])
    """
    return _acos(input) if out is None else into("acos", out, _acos(input))


def atan(input: Tensor, *, out: Any = None) -> Tensor:
    """Angle in radians whose tangent is x.

    >>> gl.atan(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.9828,  0.0000,  0.9828])
    """
    return _atan(input) if out is None else into("atan", out, _atan(input))


def sinh(input: Tensor, *, out: Any = None) -> Tensor:
    """Hyperbolic sine.

    >>> gl.sinh(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-2.1293,  0.0000,  2.1293])
    """
    return _sinh(input) if out is None else into("sinh", out, _sinh(input))


def cosh(input: Tensor, *, out: Any = None) -> Tensor:
    """Hyperbolic cosine.

    >>> gl.cosh(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([2.3524, 1.0000, 2.3524])
    """
    return _cosh(input) if out is None else into("cosh", out, _cosh(input))


def asinh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic sine.

    >>> gl.asinh(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.1948,  0.0000,  1.1948])
    """
    return _asinh(input) if out is None else into("asinh", out, _asinh(input))


def acosh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1.

    >>> gl.acosh(gl.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """
    return _acosh(input) if out is None else into("acosh", out, _acosh(input))


def atanh(input: Tensor, *, out: Any = None) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside [-1, 1].

    >>> gl.atanh(gl.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """
    return _atanh(input) if out is None else into("atanh", out, _atanh(input))


def sinc(input: Tensor, *, out: Any = None) -> Tensor:
    """sin(πx) / (πx), 1 at 0.

    >>> gl.sinc(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.2122,  1.0000, -0.2122])
    """
    return _sinc(input) if out is None else into("sinc", out, _sinc(input))


def signbit(input: Tensor, *, out: Any = None) -> Tensor:
    """Whether the sign bit is set: of negative numbers, and of -0.0.

    >>> gl.signbit(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([ True, False, False])
    """
    return _signbit(input) if out is None else into("signbit", out, _signbit(input))


def frac(input: Tensor, *, out: Any = None) -> Tensor:
    """x - trunc(x), with the sign of x.

    >>> gl.frac(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-0.5000,  0.0000,  0.5000])
    """
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("frac", input.dtype))
    return input - input.trunc() if out is None else into("frac", out, input - input.trunc())


def sgn(input: Tensor, *, out: Any = None) -> Tensor:
    """The sign, -1, 0 or 1; of a complex number x / |x|.

    >>> gl.sgn(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.,  0.,  1.])
    """
    dtype = input._array.dtype
    result = input.clone() if dtype == BOOL else _complex_sgn(input) if dtype in COMPLEX else elementwise.sign(input)
    return result if out is None else into("sgn", out, result)


def positive(input: Tensor) -> Tensor:
    """The input itself. RuntimeError for truth values.

    >>> gl.positive(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.5000,  0.0000,  1.5000])
    """
    if input._array.dtype == BOOL:
        raise RuntimeError("positive: not for truth values")
    return input


def fix(input: Tensor, *, out: Any = None) -> Tensor:
    """x without its fraction; `trunc`.

    >>> gl.fix(gl.tensor([-1.5, 0.0, 1.5]))
    tensor([-1.,  0.,  1.])
    """
    return elementwise.trunc(input) if out is None else into("fix", out, elementwise.trunc(input))


def deg2rad(input: Tensor, *, out: Any = None) -> Tensor:
    """Degrees to radians.

    >>> gl.deg2rad(gl.tensor([180.0]))
    tensor([3.1416])
    """
    only_tensors("deg2rad", input)
    return input * (math.pi / 180) if out is None else into("deg2rad", out, input * (math.pi / 180))


def rad2deg(input: Tensor, *, out: Any = None) -> Tensor:
    """Radians to degrees.

    >>> gl.rad2deg(gl.tensor([gl.pi]))
    tensor([180.])
    """
    only_tensors("rad2deg", input)
    return input * (180 / math.pi) if out is None else into("rad2deg", out, input * (180 / math.pi))


@rounds_once(autocast="float32")
def logit(input: Tensor, eps: float | None = None, *, out: Any = None) -> Tensor:
    """log(x / (1 - x)), of x limited to [eps, 1 - eps] if `eps` is given.

    >>> gl.logit(gl.tensor([0.5, 0.9]))
    tensor([0.0000, 2.1972])
    """
    x: Any = _floating(input)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    found = x.log() - (1 - x).log()  # of the quotient's logarithm the gradient at 0 and 1 would be ∞·0
    return found if out is None else into("logit", out, found)


def _floating(input: Tensor) -> Tensor:
    return input if input._array.dtype in INEXACT else input * 1.0


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None, *, out: Any = None
) -> Tensor:
    """NaN, inf and -inf replaced by numbers; by default 0 and the largest and smallest finite numbers of the dtype.

    >>> gl.nan_to_num(gl.tensor([gl.nan, 1.0]), nan=7.0)
    tensor([7., 1.])
    """
    if out is not None:
        return into("nan_to_num", out, nan_to_num(input, nan, posinf, neginf))
    if input._array.dtype in COMPLEX:
        return complex(*(nan_to_num(part, nan, posinf, neginf) for part in (input.real, input.imag)))
    if input._array.dtype not in FLOATING:
        return input.clone()
    limits = finfo(input._array.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    values = 0.0 if nan is None else nan, high, low
    if (x := unrecorded(input)) is not None and x.flags.c_contiguous and {*map(type, values)} <= {int, float}:
        return wrap(quietly(_finite, x, *values))
    # What the dtype cannot hold becomes an infinity here, in PyTorch as well.
    instead, high, low = (math.copysign(math.inf, v) if type(v) in (int, float) and beyond(v, input._array.dtype) else v for v in values)
    infinite, below = input.isinf(), input < 0
    out = filled(input, input.isnan(), instead)
    return filled(filled(out, infinite & ~below, high), infinite & below, low)


def _finite(x: Any, nan: float, high: float, low: float) -> Any:
    y = x.copy()
    if not np.logical_and.reduce(np.isfinite(x), axis=None):
        for where, value in ((np.isnan(x), nan), (x == np.inf, high), (x == -np.inf, low)):
            y[where] = immediate(value, x.dtype)
    return y


arccos, arccosh, arcsin, arcsinh, arctan, arctanh = acos, acosh, asin, asinh, atan, atanh


named_functions(__name__)


class MathMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    exp2, expm1, log2, log10, log1p, tan, asin, acos, atan = exp2, expm1, log2, log10, log1p, tan, asin, acos, atan
    sinh, cosh, asinh, acosh, atanh, sinc, signbit, frac, sgn = sinh, cosh, asinh, acosh, atanh, sinc, signbit, frac, sgn
    positive, fix, deg2rad, rad2deg, logit, nan_to_num = positive, fix, deg2rad, rad2deg, logit, nan_to_num
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh
