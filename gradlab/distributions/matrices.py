"""Distributions of matrices: of correlations (LKJ) and of covariances (Wishart)."""

from __future__ import annotations

import math
from typing import Any

from gradlab import linalg
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.gamma import Beta, Chi2
from gradlab.distributions.normal import cholesky_factor, keep_given
from gradlab.distributions.rounding import derived
from gradlab.spec import broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, as_tensor
from gradlab.tensor.gamma import digamma, lgamma, mvlgamma
from gradlab.tensor.random import randn


class LKJCholesky(Distribution):
    """The lower triangular factors of matrices of correlations whose density is det^(concentration - 1): with 1 all are as likely.

    Formulas: Lewandowski, Kurowicka and Joe, Generating random correlation matrices based on vines and extended onion method, 2009.
    dim: the matrices' size, at least 2.

    >>> import gradlab as gl
    >>> gl.distributions.LKJCholesky(2, 1.0).log_prob(gl.eye(2))
    tensor(-0.6931)
    """

    batched = ("concentration",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"LKJCholesky: dim is at least 2, not {dim}")
        self.dim, self.concentration = dim, as_tensor(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        self.require(self.concentration > 0, "concentration is above 0")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Factors by the onion method: each row's length below the diagonal is a root of a beta number, its direction uniform."""
        n, c = self.dim, self.concentration.detach()
        offset = arange(n, dtype=c.dtype, device=c.device).sub(1).clamp(min=0)
        lengths = Beta(offset + 0.5, (c + 0.5 * (n - 2)).unsqueeze(-1) - 0.5 * offset).sample(sample_shape).unsqueeze(-1)
        direction = randn(*self._extended(sample_shape), dtype=c.dtype, device=c.device).tril(-1)
        norm = direction.square().sum(-1, keepdim=True).sqrt()
        below = lengths.sqrt() * direction / norm.clamp(min=1e-30)
        return below + (1 - below.square().sum(-1)).clamp(min=1e-7).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        """Σ (2 (concentration - 1) + dim - i) log L_ii from the second row on, less the logarithm of the volume."""
        n, c = self.dim, self.concentration
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = n - arange(2, n + 1, dtype=c.dtype, device=c.device)
        density = ((2 * (c - 1)).unsqueeze(-1) + order) * diagonal.log()
        alpha = c + 0.5 * (n - 1)
        volume = 0.5 * (n - 1) * math.log(math.pi) + mvlgamma(alpha - 0.5, n - 1) - (n - 1) * lgamma(alpha)
        return density.sum(-1) - volume


class Wishart(ExponentialFamily):
    """The sum of `df` outer products of normal vectors: a distribution of positive definite matrices.

    df: more than the matrices' size less 1. One of covariance_matrix, precision_matrix and scale_tril (the covariance's lower triangular
    factor) is given. Samples: Bartlett's decomposition (1933).

    >>> import gradlab as gl
    >>> gl.distributions.Wishart(gl.tensor(3.0), covariance_matrix=gl.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    has_rsample = True
    batched = ("df", "scale_tril", "covariance_matrix", "precision_matrix")
    _unbroadcasted_scale_tril: Tensor

    def __init__(
        self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        given = [each for each in (covariance_matrix, precision_matrix, scale_tril) if each is not None]
        if len(given) != 1 or given[0].ndim < 2:
            raise ValueError("Wishart: one of covariance_matrix, precision_matrix and scale_tril is given, with two dimensions or more")
        factor = cholesky_factor(covariance_matrix, precision_matrix, scale_tril)
        df, size = as_tensor(df, dtype=factor.dtype, device=factor.device), factor.shape[-1]
        shape = broadcast_shapes(df.shape, factor.shape[:-2])
        super().__init__(shape, factor.shape[-2:], validate_args)
        self.df, self._unbroadcasted_scale_tril = df.expand(shape), factor
        keep_given(self, (*shape, size, size), covariance_matrix, precision_matrix, scale_tril)
        self.require(self.df > size - 1, f"df is more than {size - 1}, the matrices' size less 1")

    @derived
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        return self._unbroadcasted_scale_tril.expand(*self._batch_shape, *self._event_shape)

    @derived
    def covariance_matrix(self) -> Tensor:
        """Of the normal vectors."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(*self._batch_shape, *self._event_shape)

    @derived
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return linalg.inv(factor @ factor.mT).expand(*self._batch_shape, *self._event_shape)

    @property
    def mean(self) -> Tensor:
        """df · covariance."""
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """(df - size - 1) · covariance, where that is positive; NaN elsewhere."""
        factor = self.df - self.event_shape[0] - 1
        return factor.where(factor > 0, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """df · (V_ij² + V_ii V_jj)."""
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    @property
    def _dist_chi2(self) -> Chi2:
        return Chi2(self.df.unsqueeze(-1) - arange(self.event_shape[0], dtype=self.df.dtype, device=self.df.device))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """L A Aᵀ Lᵀ, with roots of chi-squared numbers on A's diagonal and normal ones below."""
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        a = randn(*self._extended(sample_shape), dtype=self.df.dtype, device=self.df.device).tril(-1) + roots.diag_embed()
        factor = self.scale_tril @ a
        return factor @ factor.mT

    def _half_log_det(self) -> Tensor:
        p = self.event_shape[0]
        return 0.5 * p * math.log(2.0) + self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density at positive definite matrices."""
        p, value = self.event_shape[0], value.to(self.scale_tril.dtype)
        whitened = linalg.solve_triangular(self.scale_tril, linalg.cholesky(value), upper=False)
        density = (self.df - p - 1) / 2 * linalg.slogdet(value)[1] - whitened.square().flatten(-2).sum(-1) / 2
        return density - self.df * self._half_log_det() - mvlgamma(self.df / 2, p)

    def entropy(self) -> Tensor:
        """The expected -log_prob."""
        p = self.event_shape[0]
        slope = digamma(self.df.unsqueeze(-1) / 2 - arange(p, dtype=self.df.dtype, device=self.df.device) / 2).sum(-1)
        return (p + 1) * self._half_log_det() + mvlgamma(self.df / 2, p) - (self.df - p - 1) / 2 * slope + self.df * p / 2
