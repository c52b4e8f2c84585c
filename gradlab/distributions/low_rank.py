"""Normal vectors whose covariance is a diagonal and a product of few columns. Formulas: Woodbury's identity, the determinant lemma."""

from __future__ import annotations

from typing import Any

from gradlab import linalg
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.normal import HALF_LOG_TWO_PI
from gradlab.distributions.rounding import derived
from gradlab.spec import broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import eye
from gradlab.tensor.random import randn


class LowRankMultivariateNormal(Distribution):
    """Normal vectors around `loc` with the covariance cov_factor @ cov_factor.T + diag(cov_diag), which is never written out.

    loc: (*, n). cov_factor: (*, n, rank). cov_diag: (*, n), positive.

    >>> import gradlab as gl
    >>> d = gl.distributions.LowRankMultivariateNormal(gl.zeros(2), gl.tensor([[1.0], [0.0]]), gl.ones(2))
    >>> d.covariance_matrix
    tensor([[2., 0.],
            [0., 1.]])
    """

    has_rsample = True
    batched = ("loc", "cov_factor", "cov_diag", "covariance_matrix", "precision_matrix", "scale_tril")

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1 or cov_factor.ndim < 2 or cov_diag.ndim < 1:
            raise ValueError("LowRankMultivariateNormal: loc and cov_diag are vectors, cov_factor is a matrix, with batches in front")
        size = loc.shape[-1]
        if cov_factor.shape[-2] != size or cov_diag.shape[-1] != size:
            raise ValueError(f"LowRankMultivariateNormal: cov_factor is of {size} rows and cov_diag of {size} numbers, as loc is")
        batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand(*batch, size), cov_diag.expand(*batch, size)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        super().__init__(batch, (size,), validate_args)
        self.require(cov_diag > 0, "cov_diag is positive")

    @property
    def _capacitance_tril(self) -> Tensor:
        return self._capacitance()[1]

    def _capacitance(self) -> tuple[Tensor, Tensor]:
        """factor.T / diag, and the Cholesky factor of 1 + factor.T / diag @ factor."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        unit = eye(self.cov_factor.shape[-1], dtype=self.loc.dtype, device=self.loc.device)
        return scaled, linalg.cholesky(unit + scaled @ self.cov_factor)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @derived
    def covariance_matrix(self) -> Tensor:
        """Written out."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @derived
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        return linalg.cholesky(self.covariance_matrix)

    @derived
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        scaled, factor = self._capacitance()
        half = linalg.solve_triangular(factor, scaled, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - half.mT @ half

    def half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        _, factor = self._capacitance()
        return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random vectors as a function of the three parameters."""
        shape = self._extended(sample_shape)
        dtype: dict[str, Any] = {"dtype": self.loc.dtype, "device": self.loc.device}
        few = randn(*shape[:-1], self.cov_factor.shape[-1], 1, **dtype)
        return self.loc + (self.cov_factor @ few).squeeze(-1) + self.cov_diag.sqrt() * randn(*shape, **dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """-(value - loc)ᵀ covariance⁻¹ (value - loc)/2 - log(det(2π · covariance))/2."""
        self.require(~value.isnan(), "a value is real numbers, not NaN")
        gap = (value - self.loc).to(self.loc.dtype)
        scaled, factor = self._capacitance()
        right = scaled @ gap.unsqueeze(-1)
        few = linalg.solve_triangular(factor.expand(*right.shape[:-2], *factor.shape[-2:]), right, upper=False).squeeze(-1)
        distance = (gap.square() / self.cov_diag).sum(-1) - few.square().sum(-1)
        return -0.5 * distance - self.half_log_det() - self._event_shape[0] * HALF_LOG_TWO_PI

    def entropy(self) -> Tensor:
        """n/2 · (1 + log(2π)) + log(det(covariance))/2."""
        return self.half_log_det() + self._event_shape[0] * (0.5 + HALF_LOG_TWO_PI)
