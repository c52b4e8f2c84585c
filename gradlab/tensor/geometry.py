"""Vectors as points in space: their cross product, and the distances between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import widest
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, needs_floating
from gradlab.named_errors import named_functions
from gradlab.spec import broadcast_shapes, count, normalize_dim
from gradlab.tensor.common_arguments import either, into, only_tensors
from gradlab.tensor.norms import vector_norm
from gradlab.tensor.reduction import amax
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import stack

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["cdist", "cross"]

DIFFERENCES = 1 << 24  # cdist takes the differences themselves, which are exact near 0, up to so many numbers
PRODUCT = 1 << 14  # the same, where a product in float64 is as exact


@rounds_once
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """Cross product of vectors of three numbers along `dim` (default: the first dimension of size 3); the others broadcast.

    >>> gl.cross(gl.tensor([1.0, 0.0, 0.0]), gl.tensor([0.0, 1.0, 0.0]), dim=0)
    tensor([0., 0., 1.])
    """
    only_tensors("cross", other)
    dim = dim if axis is None else either("cross", dim, None, axis)
    if len(input._array.shape) != len(other._array.shape):
        raise RuntimeError(f"cross: as many dimensions in both, got shapes {input._array.shape} and {other._array.shape}")
    shape = broadcast_shapes(input._array.shape, other._array.shape)
    if dim is None:
        dim = next((d for d, size in enumerate(shape) if size == 3), None)
        if dim is None:
            raise RuntimeError(f"cross: no dimension of size 3 in shape {shape}")
    dim = normalize_dim(dim, len(shape))
    if not shape or input._array.shape[dim] != 3 or other._array.shape[dim] != 3:
        raise RuntimeError(f"cross: three numbers along dimension {dim}, got shapes {input._array.shape} and {other._array.shape}")
    (a0, a1, a2), (b0, b1, b2) = input.unbind(dim), other.unbind(dim)
    result = stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim)
    return result if out is None else into("cross", out, result)


@rounds_once(autocast="float32")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances (p-norms of the differences) of each point of x1, (…, n, d), from each of x2, (…, m, d): (…, n, m).

    The gradient of a distance 0 is 0. Many Euclidean distances come from |a|² + |b|² - 2ab, a matrix product, unless `compute_mode` is
    "donot_use_mm_for_euclid_dist": of float32 on the CPU in float64, where nothing is lost; elsewhere very many, less exact near 0.

    >>> gl.cdist(gl.tensor([[0.0, 0.0]]), gl.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    if (found := widest(cdist, x1, x2, p=p, compute_mode=compute_mode)) is not None:
        return found
    a, b = x1._array.shape, x2._array.shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-1]:
        raise RuntimeError(f"cdist: points (…, n, d) and (…, m, d), got shapes {a} and {b}")
    if x1._array.dtype not in FLOATING or x2._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("cdist", x2.dtype if x1._array.dtype in FLOATING else x1.dtype))
    if not p >= 0:
        raise RuntimeError(f"cdist: p is not negative, got {p}")
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"cdist: compute_mode is one of {', '.join(modes)}, not {compute_mode!r}")
    shape = (*broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-2])
    if not a[-1]:
        return (x1.unsqueeze(-2) * x2.unsqueeze(-3)).sum(-1)
    single = x1._array.dtype == x2._array.dtype == FLOAT32 and x1.device.type == x2.device.type == "cpu"
    size = count(shape) * a[-1]
    by_product = p == 2 and (compute_mode == modes[1] or (compute_mode == modes[0] and size > (PRODUCT if single else DIFFERENCES)))
    if not by_product:
        return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), float(p), (len(shape),), False)
    if single:
        return _by_product(x1.to(FLOAT64), x2.to(FLOAT64), 1e-15).to(FLOAT32)
    top: Any = amax(x1.detach().abs()).maximum(amax(x2.detach().abs()))  # squares of what is larger or smaller are none
    top = top.masked_fill((top == 0) | ~top.isfinite(), 1)
    return _by_product(x1 / top, x2 / top, 0.0) * top


def _by_product(x1: Any, x2: Any, noise: float) -> Tensor:
    """The roots of |a|² + |b|² - 2ab. What is no more than rounding, a part `noise` of |a|² + |b|², is 0, with the gradient 0."""
    whole = (x1 * x1).sum(-1, keepdim=True) + (x2 * x2).sum(-1).unsqueeze(-2)
    squares = whole - 2 * (x1 @ x2.mT)
    nothing = squares <= (whole.detach() * noise if noise else 0)
    return squares.masked_fill(nothing, 1).sqrt().masked_fill(nothing, 0)


named_functions(__name__)


class GeometryMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    cross = cross
