"""Transforms that make matrices of a kind: lower triangular ones, factors of correlations, positive definite ones."""

from __future__ import annotations

import math

from gradlab import linalg
from gradlab.distributions.transform import Shape, Transform
from gradlab.dtype import int64
from gradlab.nn.functional import softplus
from gradlab.tensor import Tensor
from gradlab.tensor.creation import eye


class LowerCholeskyTransform(Transform):
    """A lower triangular matrix with a positive diagonal, of any square one: what is above is left out, the diagonal is exponentiated.

    >>> from gradlab.distributions import LowerCholeskyTransform
    >>> LowerCholeskyTransform()(gl.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    bijective = False  # what is above the diagonal is lost
    dim_in = dim_out = 2

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A positive definite matrix: L @ L.mT of the lower triangular one that `LowerCholeskyTransform` makes.

    >>> from gradlab.distributions import PositiveDefiniteTransform
    >>> PositiveDefiniteTransform()(gl.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    bijective = False
    dim_in = dim_out = 2

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inv_call(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """The lower triangular factor of a matrix of correlations, of n(n-1)/2 numbers: tanh of each is a partial correlation.

    Formula: Lewandowski, Kurowicka and Joe, Generating random correlation matrices based on vines and extended onion method, 2009.

    >>> from gradlab.distributions import CorrCholeskyTransform
    >>> CorrCholeskyTransform()(gl.zeros(1))
    tensor([[1., 0.],
            [0., 1.]])
    """

    dim_in, dim_out = 1, 2

    def _call(self, x: Tensor) -> Tensor:
        n = _side(x.shape[-1])
        rows, columns = _below(x, n)
        r = x.new_zeros(*x.shape[:-1], n, n)
        r[..., rows, columns] = x.tanh()
        left = (1 - r.square()).cumprod(-1).sqrt()  # what is left of a row's length 1 after each entry
        before = left.roll(1, -1).index_fill(-1, rows.new_tensor([0]), 1.0)
        return (r + eye(n, dtype=x.dtype, device=x.device)) * before

    def _inverse(self, y: Tensor) -> Tensor:
        n = y.shape[-1]
        rows, columns = _below(y, n)
        before = (1 - (y.square().cumsum(-1) - y.square())).clamp(min=0).sqrt()
        return (y / before)[..., rows, columns].atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Σ log sqrt(what is left of the row's length), below the diagonal's left neighbour, + Σ log(1 - tanh²(x))."""
        left = (1 - y.square().cumsum(-1)).tril(-2)
        rows, columns = _below(y, y.shape[-1], 2)
        rest = 0.5 * left[..., rows, columns].log().sum(-1)
        return rest - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        """A square matrix in place of the numbers."""
        n = _side(shape[-1])
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Shape) -> Shape:
        """The numbers below the diagonal."""
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"CorrCholeskyTransform: expected square matrices, got the shape {shape}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _side(count: int) -> int:
    n = round((1 + math.sqrt(1 + 8 * count)) / 2)
    if n * (n - 1) // 2 != count:
        raise ValueError(f"CorrCholeskyTransform: {count} numbers are not n(n-1)/2 of any n")
    return n


def _below(like: Tensor, n: int, distance: int = 1) -> tuple[Tensor, Tensor]:
    """The rows and columns of the places that far below the diagonal, or farther."""
    places = [(i, j) for i in range(n) for j in range(i - distance + 1)]
    table = like.new_tensor(places, dtype=int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
