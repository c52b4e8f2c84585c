"""The gamma function's logarithm and its derivatives, element by element. Integers become floating point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING, as_numpy, get_default_dtype
from gradlab.named_errors import explain, named_functions
from gradlab.spec import whole
from gradlab.tensor.common_arguments import few_enough, into, only_real
from gradlab.tensor.comparison import tensors_only
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["digamma", "lgamma", "mvlgamma", "polygamma"]

_lgamma, _digamma, _polygamma = map(bind, (ops.gamma.lgamma, ops.gamma.digamma, ops.gamma.polygamma))


def lgamma(input: Tensor, *, out: Any = None) -> Tensor:
    """log |Γ(x)|; inf at 0, -1, -2 …

    >>> gl.lgamma(gl.tensor([1.0, 4.0]))
    tensor([0.0000, 1.7918])
    """
    return _lgamma(input) if out is None else into("lgamma", out, _lgamma(input))


def digamma(input: Tensor, *, out: Any = None) -> Tensor:
    """The derivative of log Γ(x); NaN at -1, -2 …, -inf at 0.

    >>> gl.digamma(gl.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """
    return _digamma(input) if out is None else into("digamma", out, _digamma(input))


def polygamma(n: int, input: Tensor, *, out: Any = None) -> Tensor:
    """The n-th derivative of digamma. RuntimeError for a negative n.

    >>> gl.polygamma(1, gl.tensor([1.0]))
    tensor([1.6449])
    """
    try:
        if out is not None:
            return into("polygamma", out, polygamma(n, input))
        n = whole(n)
        if n < 0:
            raise RuntimeError(f"polygamma: n is not negative, got {n}")
        if n > 170:
            raise NotImplementedError(f"polygamma: n is at most 170, the last whose factorial is a float64; got {n}")
        tensors_only("polygamma", input)
        only_real("polygamma", input)
        if n == 0:
            return _digamma(input)
        return _polygamma(input if input._array.dtype in FLOATING else input.to(as_numpy(get_default_dtype())), n=n)
    except Exception as error:
        explain(error, "polygamma", polygamma, (n, input), {"out": out})


@rounds_once
def mvlgamma(input: Tensor, p: int, *, out: Any = None) -> Tensor:
    """log of the multivariate gamma function of dimension p: p(p-1)/4·log π + Σ lgamma(x - j/2) over j = 0 … p-1. x > (p-1)/2.

    >>> gl.mvlgamma(gl.tensor([3.0]), 2)
    tensor([1.5502])
    """
    if p < 1:
        raise RuntimeError(f"mvlgamma: p is at least 1, got {p}")
    few_enough("mvlgamma", "terms (p)", p)
    only_real("mvlgamma", input)
    x: Any = input if input._array.dtype in FLOATING else input.to(as_numpy(get_default_dtype()))
    total: Any = _lgamma(x)
    for j in range(1, p):
        total = total + _lgamma(x - 0.5 * j)
    result = total + p * (p - 1) / 4 * math.log(math.pi)
    return result if out is None else into("mvlgamma", out, result)


named_functions(__name__)


class GammaMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    lgamma, digamma, mvlgamma = lgamma, digamma, mvlgamma

    def polygamma(self, n: int) -> Tensor:
        """The n-th derivative of digamma.

        >>> gl.tensor([1.0]).polygamma(1)
        tensor([1.6449])
        """
        return polygamma(n, self)  # type: ignore[arg-type]
