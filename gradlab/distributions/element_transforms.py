"""Transforms that take each number, or each vector of shares, on its own. Derivatives: by hand."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.discrete import softplus
from gradlab.distributions.gamma import between
from gradlab.distributions.joint import summed
from gradlab.distributions.transform import Shape, Transform
from gradlab.nn.functional import pad
from gradlab.spec import broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, full_like


class AffineTransform(Transform):
    """loc + scale · x. event_dim: how many of the last dimensions are one value.

    >>> from gradlab.distributions import AffineTransform
    >>> AffineTransform(1.0, 2.0)(gl.ones(2))
    tensor([3., 3.])
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self.dim_in = self.dim_out = event_dim

    @property
    def sign(self) -> Any:
        """The scale's."""
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |scale|."""
        shape = self.forward_shape(x.shape)
        log = self.scale.abs().log() if isinstance(self.scale, Tensor) else full_like(x, math.log(abs(self.scale)))
        return summed(log.expand(shape), self.dim_in)

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape, broadcast against loc and scale."""
        return broadcast_shapes(shape, *(p.shape for p in (self.loc, self.scale) if isinstance(p, Tensor)))

    def inverse_shape(self, shape: Shape) -> Shape:
        """The same."""
        return self.forward_shape(shape)


class ExpTransform(Transform):
    """exp(x).

    >>> from gradlab.distributions import ExpTransform
    >>> ExpTransform().inv(gl.ones(1))
    tensor([0.])
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """x."""
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers.

    >>> from gradlab.distributions import PowerTransform
    >>> PowerTransform(2.0)(gl.full((1,), 3.0))
    tensor([9.])
    """

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """The exponent's."""
        return self.exponent.sign() if isinstance(self.exponent, Tensor) else (self.exponent > 0) - (self.exponent < 0)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |exponent · y / x|."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape, broadcast against the exponent."""
        return broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    def inverse_shape(self, shape: Shape) -> Shape:
        """The same."""
        return self.forward_shape(shape)


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x)).

    >>> from gradlab.distributions import SigmoidTransform
    >>> SigmoidTransform()(gl.zeros(1))
    tensor([0.5000])
    """

    def _call(self, x: Tensor) -> Tensor:
        return between(x.sigmoid())

    def _inverse(self, y: Tensor) -> Tensor:
        y = between(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """-log(1 + exp(-x)) - log(1 + exp(x))."""
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp(x)).

    >>> from gradlab.distributions import SoftplusTransform
    >>> SoftplusTransform()(gl.zeros(1))
    tensor([0.6931])
    """

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """-log(1 + exp(-x))."""
        return -softplus(-x)


class TanhTransform(Transform):
    """tanh(x). With cache_size=1 the density of a sample is exact also where it is rounded to 1.

    >>> from gradlab.distributions import Normal, TanhTransform, TransformedDistribution
    >>> action = TransformedDistribution(Normal(gl.zeros(2), gl.ones(2)), [TanhTransform(cache_size=1)])
    >>> action.log_prob(action.rsample()).shape
    (2,)
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """2 (log(2) - x - log(1 + exp(-2x))), which is log(1 - tanh(x)²) without its cancellation."""
        return 2 * (math.log(2) - x - softplus(-2 * x))


class AbsTransform(Transform):
    """|x|; the inverse gives the positive one.

    >>> from gradlab.distributions import AbsTransform
    >>> AbsTransform()(gl.tensor([-2.0]))
    tensor([2.])
    """

    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """softmax(x) over the last dimension; the inverse gives logarithms. It has no density.

    >>> from gradlab.distributions import SoftmaxTransform
    >>> SoftmaxTransform()(gl.zeros(2))
    tensor([0.5000, 0.5000])
    """

    bijective = False
    dim_in = dim_out = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """From k numbers to k + 1 shares whose sum is 1: each takes a share of what is left, sigmoid(x - log of how many come after it).

    >>> from gradlab.distributions import StickBreakingTransform
    >>> StickBreakingTransform()(gl.zeros(3))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    dim_in = dim_out = 1

    def _offset(self, x: Tensor) -> Tensor:
        count = x.shape[-1]
        return arange(count, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        z = (x - self._offset(x)).sigmoid()
        left = (1 - z).cumprod(-1)
        return pad(z, (0, 1), value=1.0) * pad(left, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        taken = y[..., :-1]
        left = between(1 - taken.cumsum(-1))
        return taken.log() - left.log() + self._offset(taken)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Σ (-x' + log sigmoid(x') + log(y)) with x' = x - offset, over all but the last share."""
        shifted = x - self._offset(x)
        return (-shifted - softplus(-shifted) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        """One longer."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        """One shorter."""
        return (*shape[:-1], shape[-1] - 1)
