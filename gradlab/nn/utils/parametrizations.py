"""Weights with a property: of a norm of their own, of spectral norm 1, orthogonal. Each by `parametrize.register_parametrization`."""

from __future__ import annotations

from typing import Any

from gradlab import linalg
from gradlab.autograd.mode import no_grad
from gradlab.named_errors import named_functions
from gradlab.nn.functional import normalize
from gradlab.nn.module import Module
from gradlab.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gradlab.nn.utils.parametrize import register_parametrization
from gradlab.tensor import Tensor
from gradlab.tensor.creation import eye, zeros_like
from gradlab.tensor.random import randn
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import cat

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

TRANSPOSED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
WARM_UP = 15  # rounds of the power method when a spectral norm is first asked for
MAPS = ("matrix_exp", "cayley", "householder")


def norm_except(weight: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dimensions but one, which stay with size 1; over all of them where dim is -1."""
    if dim == -1:
        return weight.norm()
    if dim < 0:
        dim += weight.ndim
    return weight.transpose(0, dim).flatten(1).norm(dim=1).reshape(*(-1 if i == dim else 1 for i in range(weight.ndim)))


@rounds_once
def scaled(g: Tensor, v: Tensor, dim: int) -> Tensor:
    """v with the norm g: g·v / ‖v‖."""
    return v / norm_except(v, dim) * g


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return scaled(g, v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight's norm and its direction apart: weight = g · v / ‖v‖, a norm for each index of `dim` (None: one in all).

    `original0` is g, `original1` is v; a state_dict with the older names `weight_g` and `weight_v` loads, too. Returns the module.
    Formula: Salimans and Kingma, "Weight Normalization" (2016).

    >>> from gradlab import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    >>> layer.parametrizations.weight.original0.shape
    (3, 1)
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def older(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
        for suffix, new in (("g", "original0"), ("v", "original1")):
            if f"{prefix}{name}_{suffix}" in state:
                state[f"{prefix}parametrizations.{name}.{new}"] = state.pop(f"{prefix}{name}_{suffix}")

    module.register_load_state_dict_pre_hook(older)
    return module


@rounds_once
def _direction(matrix: Tensor, v: Tensor, eps: float) -> Tensor:
    return normalize(matrix @ v, dim=0, eps=eps)


@rounds_once
def _over_product(weight: Tensor, matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """weight / uᴴ·matrix·v."""
    return weight / u.conj().dot(matrix @ v)


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, rounds: int, dim: int, eps: float) -> None:
        super().__init__()
        if rounds < 1:
            raise ValueError(f"spectral_norm: n_power_iterations is at least 1, not {rounds}")
        self.rounds, self.eps = rounds, eps
        self.dim = dim if dim >= 0 else dim + weight.ndim
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            self.register_buffer("_u", normalize(randn(matrix.shape[0], dtype=matrix.dtype, device=matrix.device), dim=0, eps=eps))
            self.register_buffer("_v", normalize(randn(matrix.shape[1], dtype=matrix.dtype, device=matrix.device), dim=0, eps=eps))
            self._improve(matrix, WARM_UP)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    @no_grad()
    def _improve(self, matrix: Tensor, rounds: int) -> None:
        """The power method: u and v turn towards the first singular vectors."""
        for _ in range(rounds):
            self._u.copy_(_direction(matrix, self._v, self.eps))
            self._v.copy_(_direction(matrix.mH, self._u, self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._improve(matrix.detach(), self.rounds)
        return _over_product(weight, matrix, self._u.clone(), self._v.clone())  # the next call changes them, and backward needs these

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divide a weight by its largest singular value, which each forward in training mode estimates a little better (power method).

    dim: which dimension's indices are the rows of the matrix; 0, of transposed convolutions 1. Returns the module.
    Formula: Miyato et al., "Spectral Normalization for Generative Adversarial Networks" (2018).

    >>> import gradlab as gl
    >>> from gradlab import nn
    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3), n_power_iterations=20)
    >>> bool(abs(gl.linalg.matrix_norm(layer.weight, 2) - 1) < 1e-3)
    True
    """
    weight = getattr(module, name)
    if dim is None:
        dim = 1 if isinstance(module, TRANSPOSED) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _completed(matrix: Tensor, n: int) -> Tensor:
    """An orthogonal n × n matrix whose first columns are those of `matrix`, or nearest to what they span."""
    missing = n - matrix.shape[-1]
    if missing:
        noise = randn(*matrix.shape[:-2], n, missing, dtype=matrix.dtype, device=matrix.device)
        matrix = cat([matrix, noise], dim=-1)
    q, r = linalg.qr(matrix)
    signs = r.diagonal(dim1=-2, dim2=-1).sgn()
    return q * (signs + (signs == 0).to(signs.dtype)).unsqueeze(-2)


class _Orthogonal(Module):
    """Q = base · map(X). At X = -1 on the diagonal and 0 elsewhere, where training starts, map(X) is the identity."""

    base: Any

    def __init__(self, shape: tuple[int, ...], kind: str) -> None:
        super().__init__()
        self.shape, self.kind = tuple(shape), kind
        self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        n, k = x.shape[-2:]
        q = self._reflected(x) if self.kind == "householder" else self._rotated(x, n)[..., :k]
        q = self.base @ q
        return q.mT if wide else q

    def _rotated(self, x: Tensor, n: int) -> Tensor:
        """Of the skew-symmetric (of complex numbers skew-Hermitian) matrix of X's lower triangle."""
        low = x.tril()
        if low.shape[-1] < n:
            low = cat([low, low.new_zeros(*low.shape[:-1], n - low.shape[-1])], dim=-1)
        skew = low - low.mH
        if self.kind == "matrix_exp":
            return skew.matrix_exp()
        one = eye(n, dtype=x.dtype, device=x.device)
        return linalg.solve(one - 0.5 * skew, one + 0.5 * skew)

    def _reflected(self, x: Tensor) -> Tensor:
        """The product of the reflections at the columns below the diagonal, where a 1 stands, times the signs of the diagonal."""
        n, k = x.shape[-2:]
        one = eye(n, dtype=x.dtype, device=x.device)[:, :k]
        columns = x.tril(-1) + one
        scale = 2.0 / columns.abs().square().sum(-2)
        q = one.expand(x.shape)
        for i in reversed(range(k)):
            v = columns[..., i : i + 1]
            q = q - scale[..., i : i + 1].unsqueeze(-1) * v @ (v.mH @ q)
        return q * x.detach().diagonal(dim1=-2, dim2=-1).real.trunc().unsqueeze(-2)

    @no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        if tuple(q.shape) != self.shape:
            raise ValueError(f"orthogonal: expected a matrix of shape {self.shape}, not {tuple(q.shape)}")
        tall = q.mT if q.shape[-2] < q.shape[-1] else q
        base = _completed(tall, tall.shape[-2])
        if self.base is None:
            self.base = base
        else:
            self.base.copy_(base)
        start = zeros_like(q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Module:
    """Keep a matrix (or a batch of them) orthogonal; of a matrix that is not square, the rows or columns that are fewer.

    orthogonal_map: "matrix_exp" or "cayley" of a skew-symmetric matrix, or "householder", a product of reflections; by default the first
    of square matrices and the last of others. What was there is made orthogonal and is where training starts (the buffer `base`).
    use_trivialization=False, without such a base, is not offered (NotImplementedError). ValueError for a vector. Returns the module.
    Formula: Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds" (2019).

    >>> import gradlab as gl
    >>> from gradlab import nn
    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> bool((layer.weight @ layer.weight.mT - gl.eye(3)).abs().max() < 1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"orthogonal: {type(module).__name__} has no tensor {name!r}")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: a matrix is expected, not a tensor of {weight.ndim} dimensions")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in MAPS:
        raise ValueError(f"orthogonal: orthogonal_map is one of {', '.join(MAPS)}, not {orthogonal_map!r}")
    if not use_trivialization:
        raise NotImplementedError("orthogonal: use_trivialization=False is not offered; leave it out")
    return register_parametrization(module, name, _Orthogonal(weight.shape, orthogonal_map), unsafe=True)


named_functions(__name__)
