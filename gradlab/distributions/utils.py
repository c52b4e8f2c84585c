"""Small functions that distributions of one's own are written with, as `torch.distributions.utils` has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradlab.autograd.mode import enable_grad
from gradlab.distributions.distribution import broadcast
from gradlab.dtype import finfo
from gradlab.nn.functional import softmax
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros
from gradlab.tensor.layout import tril_indices
from gradlab.tensor.random import randn
from gradlab.tensor.where import where

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; a number takes the dtype of the tensors."""
    return tuple(broadcast(*values))


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1 by the dtype's eps, so that their logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds (is_binary), or of unnormalised logarithms along the last dimension."""
    return logits.sigmoid() if is_binary else softmax(logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds, or logarithms, of probabilities that are kept off 0 and 1."""
    kept = clamp_probs(probs)
    return kept.log() - (-kept).log1p() if is_binary else kept.log()


def log_one_plus_square(z: Tensor) -> Tensor:
    """log(1 + z²), also of numbers whose square is beyond the dtype."""
    near = z.abs() < 1
    far = where(near, 1.0, z)
    return where(near, where(near, z, 0.0).square().log1p(), 2 * far.abs().log() + far.reciprocal().square().log1p())


class lazy_property:
    """A property that is computed once for each object, and kept as its attribute."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a class, not an object, is asked for: a property, so that `inspect` and documentation tools see one."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The entries (…, k) on and below a diagonal of square matrices (…, n, n), row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: diag ({diag}) is not in [{-n}, {n - 1}]")
    rows, columns = tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of `tril_matrix_to_vec`, with zeros above. ValueError if no square matrix has so many entries there."""
    count = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) != n:
        raise ValueError(f"vec_to_tril_matrix: {count} entries are not those of a square matrix below its diagonal {diag}")
    size = round(n)
    made = zeros(*vec.shape[:-1], size, size, dtype=vec.dtype, device=vec.device)
    rows, columns = tril_indices(size, size, diag, device=vec.device)
    made[..., rows, columns] = vec
    return made


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return randn(*shape, dtype=dtype, device=device)


def _sum_rightmost(value: Any, dim: int) -> Any:
    """A sum over so many of the last dimensions."""
    return value if dim == 0 else value.reshape(*value.shape[: value.dim() - dim], -1).sum(-1)


__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip
