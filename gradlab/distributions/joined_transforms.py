"""Transforms of parts of a tensor, each by one of its own, and by a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.distributions.distribution import Distribution
from gradlab.distributions.transform import Transform
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat, stack


class _Parts(Transform):
    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.bijective = all(t.bijective for t in self.transforms)

    def _split(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(part) for t, part in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t._inv_call(part) for t, part in zip(self.transforms, self._split(y), strict=True)])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Those of the parts, joined as the parts are. ValueError if parts differ in how many dimensions one value has."""
        if any(t.dim_in or t.dim_out for t in self.transforms):
            raise ValueError(f"{type(self).__name__}: log_abs_det_jacobian is of transforms of single numbers")
        rows = zip(self.transforms, self._split(x), self._split(y), strict=True)
        return self._join([t.log_abs_det_jacobian(a, b).expand(a.shape) for t, a, b in rows])


class CatTransform(_Parts):
    """Consecutive parts along a dimension, of the given lengths (1 each), by one transform each.

    >>> from gradlab.distributions import CatTransform, ExpTransform, identity_transform
    >>> CatTransform([ExpTransform(), identity_transform], lengths=[2, 1])(gl.zeros(3))
    tensor([1., 1., 0.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(f"CatTransform: {len(self.lengths)} lengths for {len(self.transforms)} transforms")

    def _split(self, x: Tensor) -> list[Tensor]:
        return list(x.split(self.lengths, self.dim))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return cat(parts, self.dim)


class StackTransform(_Parts):
    """Slices along a dimension, by one transform each.

    >>> from gradlab.distributions import ExpTransform, StackTransform, identity_transform
    >>> StackTransform([ExpTransform(), identity_transform], dim=1)(gl.zeros(2, 2))
    tensor([[1., 0.],
            [1., 0.]])
    """

    def _split(self, x: Tensor) -> list[Tensor]:
        return list(x.unbind(self.dim))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return stack(parts, self.dim)


class CumulativeDistributionTransform(Transform):
    """A distribution's cdf; the inverse is its icdf.

    >>> from gradlab.distributions import CumulativeDistributionTransform, Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(gl.zeros(1))
    tensor([0.5000])
    """

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        """The distribution's log_prob."""
        return self.distribution.log_prob(x)
