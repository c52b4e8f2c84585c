"""Bessel functions, the Airy function and the zeta function, element by element. Integers become floating point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import into, only_tensors

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_rows = ops.cylinder
_bessel_j0 = bind(_rows.bessel_j0)
_bessel_j1 = bind(_rows.bessel_j1)
_bessel_y0 = bind(_rows.bessel_y0)
_bessel_y1 = bind(_rows.bessel_y1)
_bessel_k0 = bind(_rows.bessel_k0)
_bessel_k1 = bind(_rows.bessel_k1)
_bessel_k0e = bind(_rows.bessel_k0e)
_bessel_k1e = bind(_rows.bessel_k1e)
_spherical_j0 = bind(_rows.spherical_j0)
_airy_ai = bind(ops.airy.airy_ai)
_zeta = bind(ops.zeta.zeta)


def bessel_j0(input: Tensor, *, out: Any = None) -> Tensor:
    """The Bessel function of the first kind, of order 0.

    >>> gl.special.bessel_j0(gl.tensor([0.0, 1.0]))
    tensor([1.0000, 0.7652])
    """
    only_tensors("bessel_j0", input)
    return _bessel_j0(input) if out is None else into("bessel_j0", out, _bessel_j0(input))


def bessel_j1(input: Tensor, *, out: Any = None) -> Tensor:
    """The Bessel function of the first kind, of order 1.

    >>> gl.special.bessel_j1(gl.tensor([0.0, 1.0]))
    tensor([0.0000, 0.4401])
    """
    only_tensors("bessel_j1", input)
    return _bessel_j1(input) if out is None else into("bessel_j1", out, _bessel_j1(input))


def bessel_y0(input: Tensor, *, out: Any = None) -> Tensor:
    """The Bessel function of the second kind, of order 0: -inf at 0, NaN below.

    >>> gl.special.bessel_y0(gl.tensor([1.0, 2.0]))
    tensor([0.0883, 0.5104])
    """
    only_tensors("bessel_y0", input)
    return _bessel_y0(input) if out is None else into("bessel_y0", out, _bessel_y0(input))


def bessel_y1(input: Tensor, *, out: Any = None) -> Tensor:
    """The Bessel function of the second kind, of order 1: -inf at 0, NaN below.

    >>> gl.special.bessel_y1(gl.tensor([1.0, 2.0]))
    tensor([-0.7812, -0.1070])
    """
    only_tensors("bessel_y1", input)
    return _bessel_y1(input) if out is None else into("bessel_y1", out, _bessel_y1(input))


def modified_bessel_k0(input: Tensor, *, out: Any = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 0: inf at 0, NaN below.

    >>> gl.special.modified_bessel_k0(gl.tensor([1.0, 2.0]))
    tensor([0.4210, 0.1139])
    """
    only_tensors("modified_bessel_k0", input)
    return _bessel_k0(input) if out is None else into("modified_bessel_k0", out, _bessel_k0(input))


def modified_bessel_k1(input: Tensor, *, out: Any = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 1: inf at 0, NaN below.

    >>> gl.special.modified_bessel_k1(gl.tensor([1.0, 2.0]))
    tensor([0.6019, 0.1399])
    """
    only_tensors("modified_bessel_k1", input)
    return _bessel_k1(input) if out is None else into("modified_bessel_k1", out, _bessel_k1(input))


def scaled_modified_bessel_k0(x: Tensor, *, out: Any = None) -> Tensor:
    """e^x times the modified Bessel function of the second kind, of order 0, which does not vanish for large x.

    >>> gl.special.scaled_modified_bessel_k0(gl.tensor([1.0, 2.0]))
    tensor([1.1445, 0.8416])
    """
    only_tensors("scaled_modified_bessel_k0", x)
    return _bessel_k0e(x) if out is None else into("scaled_modified_bessel_k0", out, _bessel_k0e(x))


def scaled_modified_bessel_k1(x: Tensor, *, out: Any = None) -> Tensor:
    """e^x times the modified Bessel function of the second kind, of order 1, which does not vanish for large x.

    >>> gl.special.scaled_modified_bessel_k1(gl.tensor([1.0, 2.0]))
    tensor([1.6362, 1.0335])
    """
    only_tensors("scaled_modified_bessel_k1", x)
    return _bessel_k1e(x) if out is None else into("scaled_modified_bessel_k1", out, _bessel_k1e(x))


def spherical_bessel_j0(x: Tensor, *, out: Any = None) -> Tensor:
    """sin(x) / x, the spherical Bessel function of order 0: 1 at 0.

    >>> gl.special.spherical_bessel_j0(gl.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8415])
    """
    only_tensors("spherical_bessel_j0", x)
    return _spherical_j0(x) if out is None else into("spherical_bessel_j0", out, _spherical_j0(x))


def airy_ai(x: Tensor, *, out: Any = None) -> Tensor:
    """The Airy function Ai, which solves y'' = x y and vanishes to the right.

    >>> gl.special.airy_ai(gl.tensor([0.0, 1.0]))
    tensor([0.3550, 0.1353])
    """
    only_tensors("airy_ai", x)
    return _airy_ai(x) if out is None else into("airy_ai", out, _airy_ai(x))


def zeta(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """The zeta function of Hurwitz, Σ (q + k)^-s over k >= 0: s is `input`, q is `other`, which broadcast; either may be a number.

    inf at s = 1 and at q = 0, -1, -2 …; NaN for s < 1, and for q < 0 unless s is whole. Its gradient is that by q; NotImplementedError for
    one by s.

    >>> gl.special.zeta(gl.tensor([2.0, 4.0]), 1.0)
    tensor([1.6449, 1.0823])
    """
    if not isinstance(input, Differentiable) and not isinstance(other, Differentiable):
        raise TypeError(f"zeta: at least one tensor, not {type(input).__name__} and {type(other).__name__}")
    if isinstance(input, Differentiable) and input._edge is not None and current().recording:
        raise NotImplementedError("zeta: the derivative by the first argument has no closed form and is not offered; detach() it")
    found: Tensor = _zeta(input, other)
    return found if out is None else into("zeta", out, found)


named_functions(__name__)
