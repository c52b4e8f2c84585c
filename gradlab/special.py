"""Special functions by PyTorch's names: `gradlab.special.erfc` and so on. Element by element; integers become floating point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.tensor.activation import log_softmax, softmax
from gradlab.tensor.bessel import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
    zeta,
)
from gradlab.tensor.common_arguments import into as _into
from gradlab.tensor.comparison import tensors_only
from gradlab.tensor.elementwise import round, sigmoid as expit
from gradlab.tensor.gamma import digamma, lgamma as gammaln, mvlgamma as multigammaln, polygamma
from gradlab.tensor.math import exp2, expm1, log1p, logit, sinc
from gradlab.tensor.math_pairs import xlogy
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from gradlab.tensor.reduction import logsumexp
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.special import erf, erfc, erfinv, i0, igamma as gammainc, igammac as gammaincc
from gradlab.tensor.where import filled as _filled, where as _where

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
    "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip

psi = digamma
modified_bessel_i0 = i0
_erfcx, _log_ndtr, _ndtri = map(bind, (ops.special.erfcx, ops.special.log_ndtr, ops.special.ndtri))
_i0e, _i1, _i1e = map(bind, (ops.bessel.i0e, ops.bessel.i1, ops.bessel.i1e))


def erfcx(input: Tensor, *, out: Any = None) -> Tensor:
    """e^(x²) · erfc(x), which neither overflows nor vanishes for large x.

    >>> gl.special.erfcx(gl.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6157])
    """
    if out is not None:
        return _into("erfcx", out, erfcx(input))
    return _erfcx(input)


@rounds_once
def ndtr(input: Tensor, *, out: Any = None) -> Tensor:
    """The standard normal distribution: the probability of being below x.

    >>> gl.special.ndtr(gl.tensor([0.0, 0.5]))
    tensor([0.5000, 0.6915])
    """
    if out is not None:
        return _into("ndtr", out, ndtr(input))
    tensors_only("ndtr", input)
    return 0.5 * erfc(input * -math.sqrt(0.5))


def log_ndtr(input: Tensor, *, out: Any = None) -> Tensor:
    """log(ndtr(x)), also where ndtr vanishes.

    >>> gl.special.log_ndtr(gl.tensor([0.0, 0.5]))
    tensor([-0.6931, -0.3689])
    """
    if out is not None:
        return _into("log_ndtr", out, log_ndtr(input))
    return _log_ndtr(input)


def ndtri(input: Tensor, *, out: Any = None) -> Tensor:
    """The inverse of ndtr: -inf at 0, inf at 1, NaN beyond.

    >>> gl.special.ndtri(gl.tensor([0.5]))
    tensor([0.])
    """
    if out is not None:
        return _into("ndtri", out, ndtri(input))
    return _ndtri(input)


@rounds_once
def entr(input: Tensor, *, out: Any = None) -> Tensor:
    """-x · log(x); 0 at 0, -inf below.

    >>> gl.special.entr(gl.tensor([0.0, 0.5]))
    tensor([0.0000, 0.3466])
    """
    if out is not None:
        return _into("entr", out, entr(input))
    tensors_only("entr", input)
    input = input.float() if input._array.dtype.kind == "b" else input  # NumPy has no negative of truth values
    negative = input < 0
    positive = _filled(input, negative, 1)
    return _filled(xlogy(-positive, positive), negative, -math.inf)  # 0 at 0, not -0


@rounds_once
def xlog1py(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """a · log(1 + b), and 0 where a is 0 (unless b is NaN).

    >>> gl.special.xlog1py(gl.tensor([0.0, 1.0]), gl.tensor([-1.0, 1.0]))
    tensor([0.0000, 0.6931])
    """
    if out is not None:
        return _into("xlog1py", out, xlog1py(input, other))
    if not isinstance(input, Differentiable) and not isinstance(other, Differentiable):
        raise TypeError(f"xlog1py: at least one tensor, not {type(input).__name__} and {type(other).__name__}")
    product: Any = input * other  # for the common dtype
    a: Any = input if isinstance(input, Differentiable) else product.new_full((), input)
    b: Any = other if isinstance(other, Differentiable) else product.new_full((), other)
    zero = a == 0
    return a * log1p(_where(zero & ((b <= -1) | (b == math.inf)), 0.0, b)) + _where(zero, 0.0, -0.0)  # what -0 is added to stays


def i0e(input: Tensor, *, out: Any = None) -> Tensor:
    """e^-|x| · i0(x), which does not overflow.

    >>> gl.special.i0e(gl.tensor([0.0, 1.0]))
    tensor([1.0000, 0.4658])
    """
    return _i0e(input) if out is None else _into("i0e", out, _i0e(input))


def i1(input: Tensor, *, out: Any = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1.

    >>> gl.special.i1(gl.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """
    return _i1(input) if out is None else _into("i1", out, _i1(input))


def i1e(input: Tensor, *, out: Any = None) -> Tensor:
    """e^-|x| · i1(x), which does not overflow.

    >>> gl.special.i1e(gl.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2079])
    """
    return _i1e(input) if out is None else _into("i1e", out, _i1e(input))


modified_bessel_i1 = i1


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.special", name)


named_functions(__name__)
