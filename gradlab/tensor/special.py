"""The error function, the Bessel function I0 and the incomplete gamma functions, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import into
from gradlab.tensor.comparison import tensors_only
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.math_in_place import twin

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["erf", "erfc", "erfinv", "i0", "igamma", "igammac"]

_erf, _erfc, _erfinv = map(bind, (ops.special.erf, ops.special.erfc, ops.special.erfinv))
_i0, _igamma, _igammac = map(bind, (ops.bessel.i0, ops.incomplete.igamma, ops.incomplete.igammac))


def erf(input: Tensor, *, out: Any = None) -> Tensor:
    """The error function, 2/√π · ∫ e^(-t²) dt from 0 to x. Integers become floating point.

    >>> gl.erf(gl.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5205])
    """
    return _erf(input) if out is None else into("erf", out, _erf(input))


def erfc(input: Tensor, *, out: Any = None) -> Tensor:
    """1 - erf(x), accurate where that is tiny.

    >>> gl.erfc(gl.tensor([0.0, 0.5]))
    tensor([1.0000, 0.4795])
    """
    return _erfc(input) if out is None else into("erfc", out, _erfc(input))


def erfinv(input: Tensor, *, out: Any = None) -> Tensor:
    """The inverse of erf: ±inf at ±1, NaN beyond.

    >>> gl.erfinv(gl.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769])
    """
    return _erfinv(input) if out is None else into("erfinv", out, _erfinv(input))


def i0(input: Tensor, *, out: Any = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 0. Integers become floating point.

    >>> gl.i0(gl.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """
    return _i0(input) if out is None else into("i0", out, _i0(input))


def _shared(name: str, row: Any, input: Tensor, other: Tensor) -> Tensor:
    tensors_only(name, input, other)
    if input._edge is not None and current().recording:
        raise NotImplementedError(
            f"{name}: the derivative by the first argument has no closed form and is not offered; detach() it (the second one has its own)"
        )
    result: Tensor = row(input, other)
    return result


def igamma(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The regularised lower incomplete gamma function P(a, x): the share of ∫ t^(a-1) e^-t dt from 0 to inf that lies below x.

    a is `input`, x is `other`; they broadcast. NaN where one is negative, and at (0, 0). NotImplementedError for a gradient by a.

    >>> gl.igamma(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 2.0]))
    tensor([0.6321, 0.5940])
    """
    result = _shared("igamma", _igamma, input, other)
    return result if out is None else into("igamma", out, result)


def igammac(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x), accurate where it is tiny. Arguments of `igamma`.

    >>> gl.igammac(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 2.0]))
    tensor([0.3679, 0.4060])
    """
    result = _shared("igammac", _igammac, input, other)
    return result if out is None else into("igammac", out, result)


named_functions(__name__)


class SpecialMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    erf, erfc, erfinv, i0, igamma, igammac = erf, erfc, erfinv, i0, igamma, igammac
    i0_, igamma_, igammac_ = twin(i0), twin(igamma), twin(igammac)

    def erf_(self) -> Tensor:
        """The error function, in place.

        >>> gl.tensor([0.5]).erf_()
        tensor([0.5205])
        """
        return update("erf_", self, erf)

    def erfc_(self) -> Tensor:
        """1 - erf(x), in place.

        >>> gl.tensor([0.5]).erfc_()
        tensor([0.4795])
        """
        return update("erfc_", self, erfc)

    def erfinv_(self) -> Tensor:
        """The inverse of erf, in place.

        >>> gl.tensor([0.5]).erfinv_()
        tensor([0.4769])
        """
        return update("erfinv_", self, erfinv)
