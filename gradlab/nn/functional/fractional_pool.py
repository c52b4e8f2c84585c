"""Fractional max pooling: windows of one size at places that a random number shifts, as many as the output has elements.

Source: B. Graham, "Fractional max-pooling", arXiv:1412.6071 (2014): the k-th window of n begins at floor((k + u) a) - floor(u a), where u
is drawn for each image, channel and dimension, and a is such that the last one ends with the image. """

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import FLOAT64, INT64
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import batched, expect_tensors
from gradlab.spec import ShapeError, count
from gradlab.tensor.creation import arange
from gradlab.tensor.random import rand
from gradlab.tensor.shape import cat

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices",
]  # fmt: skip


def _sizes(name: str, value: Any, rank: int) -> tuple[int, ...]:
    given = (value,) * rank if not isinstance(value, (tuple, list)) else tuple(value)
    if len(given) != rank:
        raise ValueError(f"{name}: one number or {rank}, not {value}")
    return given


def _starts(samples: Any, size: int, window: int, wanted: int) -> Any:
    """Where the windows begin: (N, C, wanted)."""
    if wanted == 1:
        return samples.new_full((*samples._array.shape, 1), size - window, dtype=INT64)
    step = (size - window) / (wanted - 1)
    places = arange(wanted - 1, dtype=FLOAT64, device=samples.device)
    u = samples.to(FLOAT64).unsqueeze(-1)
    begin = ((places + u) * step).floor() - (u * step).floor()
    last = begin.new_full((*begin._array.shape[:-1], 1), size - window)
    return cat([begin, last], -1).to(INT64)


def _pool(
    rank: int, input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Any, Any]:  # fmt: skip
    name = f"fractional_max_pool{rank}d"
    expect_tensors(name, input)
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name}: requires specifying either an output_size or an output_ratio")
    if output_size is not None and output_ratio is not None:
        raise ValueError(f"{name}: output_size and output_ratio say the same; give one of them")
    x, added = batched(name, input, rank)
    n, c, *sizes = x._array.shape
    kernel = _sizes(name, kernel_size, rank)
    if output_size is None:
        ratios = _sizes(name, output_ratio, rank)
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{name}: output_ratio must be between 0 and 1, got {output_ratio}")
        wanted = tuple(int(s * r) for s, r in zip(sizes, ratios, strict=True))
    else:
        wanted = _sizes(name, output_size, rank)
    if 0 in (c, *sizes):
        raise ShapeError(f"{name}: the channels and sizes of an image are not 0, got shape {input._array.shape}")
    if any(w < 1 or k < 1 or w + k - 1 > s for w, k, s in zip(wanted, kernel, sizes, strict=True)):
        raise ShapeError(f"{name}: windows of {kernel} at {wanted} places do not fit into images of {tuple(sizes)}")
    if samples is None:
        samples = rand((n, c, rank), dtype=x.dtype, device=x.device)
    elif not isinstance(samples, Differentiable) or samples._array.shape != (n, c, rank):
        raise ShapeError(f"{name}: random samples are a tensor of shape {(n, c, rank)}, not {getattr(samples, 'shape', samples)}")
    elif samples._array.dtype != x._array.dtype:
        raise RuntimeError(f"{name}: random samples of the input's dtype, {x.dtype}, not {samples.dtype}")  # type: ignore[attr-defined]
    # PyTorch draws the last dimension's number first in 2-d, the first one's in 3-d
    order = range(rank - 1, -1, -1) if rank == 2 else range(rank)
    flat: Any = 0
    for dim, which in enumerate(order):
        begin = _starts(samples[:, :, which], sizes[dim], kernel[dim], wanted[dim])
        within = begin.unsqueeze(-1) + arange(kernel[dim], device=x.device)
        shape = [n, c] + [1] * (2 * rank)
        shape[2 + dim], shape[2 + rank + dim] = wanted[dim], kernel[dim]
        flat = flat * sizes[dim] + within.reshape(shape)
    places = flat.reshape((n, c, count(wanted), count(kernel)))
    values = x.reshape((n, c, 1, count(sizes))).expand((n, c, count(wanted), count(sizes))).gather(-1, places)
    largest, at = values.max(-1)
    found, index = largest.reshape((n, c, *wanted)), places.gather(-1, at.unsqueeze(-1)).reshape((n, c, *wanted))
    return (found.squeeze(0), index.squeeze(0)) if added else (found, index)


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """As `fractional_max_pool2d` with return_indices=True.

    >>> gl.nn.functional.fractional_max_pool2d_with_indices(gl.ones(1, 1, 4, 4), 2, output_size=2)[0].shape
    (1, 1, 2, 2)
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """As `fractional_max_pool3d` with return_indices=True.

    >>> gl.nn.functional.fractional_max_pool3d_with_indices(gl.ones(1, 1, 4, 4, 4), 2, output_size=2)[0].shape
    (1, 1, 2, 2, 2)
    """
    return _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """The maximum over windows of kernel_size in images (N, C, H, W) or (C, H, W), at places drawn at random, output_size of them in each
    dimension, or output_ratio (between 0 and 1) times the image's size. return_indices: also where the maxima lie in the flat image.

    >>> gl.nn.functional.fractional_max_pool2d(gl.ones(1, 1, 4, 4), 2, output_size=2).shape
    (1, 1, 2, 2)
    """
    found = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """As `fractional_max_pool2d`, of (N, C, D, H, W) or (C, D, H, W).

    >>> gl.nn.functional.fractional_max_pool3d(gl.ones(1, 1, 4, 4, 4), 2, output_size=2).shape
    (1, 1, 2, 2, 2)
    """
    found = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


named_functions(__name__)
