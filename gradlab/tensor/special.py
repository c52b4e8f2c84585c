"""The error function and its relatives, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.tensor.alias import into
from gradlab.tensor.update import update

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["erf", "erfc", "erfinv"]

_erf, _erfc, _erfinv = map(bind, (ops.special.erf, ops.special.erfc, ops.special.erfinv))


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


class SpecialMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    erf, erfc, erfinv = erf, erfc, erfinv

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
