"""`ExponentialFamily`: distributions whose density is exp(t(x)·θ - F(θ) + k(x)), with parameters θ and a log normalizer F."""

from __future__ import annotations

from typing import Any

from gradlab.autograd import grad
from gradlab.distributions.distribution import Distribution
from gradlab.tensor import Tensor


class ExponentialFamily(Distribution):
    """Base of such distributions. A subclass gives `_natural_params` (tensors), `_log_normalizer(*params)` and `_mean_carrier_measure`, the
    expected k(x), and has its entropy from them: F(θ) - θ·F'(θ) - E[k(x)] (Nielsen and Nock, Entropies and cross-entropies of exponential
    families, 2010).

    >>> from gradlab.distributions import ExponentialFamily, Normal
    >>> isinstance(Normal(0.0, 1.0), ExponentialFamily)
    True
    """

    _mean_carrier_measure: Any = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no _natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _log_normalizer")

    def entropy(self) -> Tensor:
        """F(θ) - θ·F'(θ) - E[k(x)]."""
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        found = normalizer - self._mean_carrier_measure
        for p, slope in zip(params, grad(normalizer.sum(), params, create_graph=True), strict=True):
            part = p * slope
            found = found - (part.flatten(-len(self.event_shape)).sum(-1) if self.event_shape else part)
        return found


__all__ = ["ExponentialFamily"]
