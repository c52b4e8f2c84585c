"""Orthogonal polynomials, element by element, of whole degrees that may differ from element to element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.ops.polynomial import KINDS
from gradlab.tensor.common_arguments import into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_row = bind(ops.polynomial.orthogonal_polynomial)


def _polynomial(name: str, x: Any, n: Any, out: Any) -> Tensor:
    if not isinstance(x, Differentiable) and not isinstance(n, Differentiable):
        raise TypeError(f"{name}: x or n is a tensor, not {type(x).__name__} and {type(n).__name__}")
    degrees = n.detach() if isinstance(n, Differentiable) else n  # type: ignore[attr-defined]
    found: Tensor = _row(x, degrees, kind=KINDS.index(name.replace("_polynomial", "")), derivative=0)
    return found if out is None else into(name, out, found)


def chebyshev_polynomial_t(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial of the first kind, T(cos a) = cos(n a).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.chebyshev_polynomial_t(gl.tensor([0.5, 2.0]), 2)
    tensor([-0.5000,  7.0000])
    """
    return _polynomial("chebyshev_polynomial_t", x, n, out)


def chebyshev_polynomial_u(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial of the second kind, U(cos a) = sin((n + 1) a) / sin(a).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.chebyshev_polynomial_u(gl.tensor([0.5, 2.0]), 2)
    tensor([ 0., 15.])
    """
    return _polynomial("chebyshev_polynomial_u", x, n, out)


def chebyshev_polynomial_v(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial of the third kind, V(cos a) = cos((n + 1/2) a) / cos(a / 2).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.chebyshev_polynomial_v(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 11.])
    """
    return _polynomial("chebyshev_polynomial_v", x, n, out)


def chebyshev_polynomial_w(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial of the fourth kind, W(cos a) = sin((n + 1/2) a) / sin(a / 2).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.chebyshev_polynomial_w(gl.tensor([0.5, 2.0]), 2)
    tensor([ 1., 19.])
    """
    return _polynomial("chebyshev_polynomial_w", x, n, out)


def shifted_chebyshev_polynomial_t(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial T of 2 x - 1.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.shifted_chebyshev_polynomial_t(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 17.])
    """
    return _polynomial("shifted_chebyshev_polynomial_t", x, n, out)


def shifted_chebyshev_polynomial_u(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial U of 2 x - 1.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.shifted_chebyshev_polynomial_u(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 35.])
    """
    return _polynomial("shifted_chebyshev_polynomial_u", x, n, out)


def shifted_chebyshev_polynomial_v(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial V of 2 x - 1.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.shifted_chebyshev_polynomial_v(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 29.])
    """
    return _polynomial("shifted_chebyshev_polynomial_v", x, n, out)


def shifted_chebyshev_polynomial_w(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Chebyshev's polynomial W of 2 x - 1.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.shifted_chebyshev_polynomial_w(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 41.])
    """
    return _polynomial("shifted_chebyshev_polynomial_w", x, n, out)


def hermite_polynomial_h(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Hermite's polynomial H of physics, orthogonal with the weight e^(-x²).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.hermite_polynomial_h(gl.tensor([0.5, 2.0]), 2)
    tensor([-1., 14.])
    """
    return _polynomial("hermite_polynomial_h", x, n, out)


def hermite_polynomial_he(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Hermite's polynomial He of probability, orthogonal with the weight e^(-x²/2).

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.hermite_polynomial_he(gl.tensor([0.5, 2.0]), 2)
    tensor([-0.7500,  3.0000])
    """
    return _polynomial("hermite_polynomial_he", x, n, out)


def laguerre_polynomial_l(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Laguerre's polynomial, orthogonal with the weight e^-x from 0 on.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.laguerre_polynomial_l(gl.tensor([0.5, 2.0]), 2)
    tensor([ 0.1250, -1.0000])
    """
    return _polynomial("laguerre_polynomial_l", x, n, out)


def legendre_polynomial_p(x: Any, n: Any, *, out: Any = None) -> Tensor:
    """Legendre's polynomial, orthogonal from -1 to 1.

    x and the degrees n broadcast; either may be a number. Degrees are cut to whole numbers, and below 0 the polynomial is 0. The gradient
    is that by x, of any order up to the 7th.

    >>> gl.special.legendre_polynomial_p(gl.tensor([0.5, 2.0]), 2)
    tensor([-0.1250,  5.5000])
    """
    return _polynomial("legendre_polynomial_p", x, n, out)


named_functions(__name__)
