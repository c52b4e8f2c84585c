"""Sampling at the points of a grid, as in torch.nn.functional: by rows on the CPU.

In traces, on a GPU and for gradients of gradients it is composed of gathers, so that those of every order follow.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd import engine
from gradlab.autograd.mode import current, enter, leave, widest
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, FLOAT64, FLOATING, HALF, INT64
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import expect_tensors
from gradlab.spec import ShapeError, count, whole
from gradlab.tensor.common_arguments import only_real
from gradlab.tensor.creation import arange, zeros
from gradlab.tensor.rounding import once, rounds_once
from gradlab.tensor.shape import cat, stack
from gradlab.tensor.where import where

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_SIDES = ("zeros", "border", "reflection")
_row, _backward_row = bind(ops.grid.grid_sample), bind(ops.grid.grid_sample_backward)


@rounds_once
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The points that affine maps send an output's pixels to, for `grid_sample`.

    theta (N, 2, 3) with size (N, C, H, W) gives (N, H, W, 2); theta (N, 3, 4) with size (N, C, D, H, W) gives (N, D, H, W, 3). Points
    are (x, y) or (x, y, z) in -1 to 1: the centres of the corner pixels with align_corners, else the corners.

    >>> F.affine_grid(gl.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 2, 2), align_corners=True)[0, 0]
    tensor([[-1., -1.],
            [ 1., -1.]])
    """
    expect_tensors("affine_grid", theta)
    size = tuple(map(whole, size))
    sizes, rank = size[2:], len(size) - 2
    shape = theta._array.shape
    if theta._array.dtype not in FLOATING:
        raise ValueError(f"affine_grid: theta is of floating point, not {theta._array.dtype}")
    if rank not in (2, 3) or shape != (size[0], rank, rank + 1):
        raise ShapeError(
            f"affine_grid: theta of shape (N, 2, 3) goes with size (N, C, H, W), (N, 3, 4) with (N, C, D, H, W); "
            f"got {shape} and {tuple(size)}"
        )
    if any(s < 1 for s in size):
        raise ShapeError(f"affine_grid: sizes must be positive, got {tuple(size)}")
    columns = []
    for dim in reversed(range(rank)):
        at = _steps(sizes[dim], bool(align_corners), theta)
        columns.append(at.reshape(-1, *(1,) * (rank - 1 - dim)).expand(sizes))
    columns.append(columns[0] * 0 + 1)
    points = stack(columns, -1).reshape(count(sizes), rank + 1)
    return (points @ theta.mT).reshape(size[0], *sizes, rank)


def _steps(n: int, aligned: bool, like: Tensor) -> Tensor:
    """n points from -1 to 1, each rounded as PyTorch's `linspace` rounds it: by steps of the tensor's dtype from the nearer end.

    An identity map reads the pixels' centres, where bilinear interpolation has a kink: the last bit of a point decides its gradient.
    """
    if n == 1:
        return zeros(1, dtype=like.dtype, device=like.device)
    step = 2 / (n - 1) if like._array.dtype == FLOAT64 else float(np.float32(2 / (n - 1)))
    at = arange(n, dtype=FLOAT64, device=like.device)
    ends = where(at < n // 2, at * step - 1, 1 - (n - 1 - at) * step).to(like.dtype)
    return ends if aligned else ends * (n - 1) / n


@one_row(given="align_corners")
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """An input (N, C, H, W) read at the points of a grid (N, H', W', 2): gives (N, C, H', W'). With a depth, (N, C, D, H, W) and 3.

    Points are (x, y), x along the last dimension, -1 to 1 from the first pixel to the last: between their centres with align_corners,
    else between their outer edges. mode: "bilinear", "nearest" or "bicubic" (4-D only). padding_mode, for what lies outside: "zeros",
    "border" or "reflection".

    >>> F.grid_sample(gl.tensor([[[[1.0, 3.0]]]]), gl.zeros(1, 1, 1, 2), align_corners=False)
    tensor([[[[2.]]]])
    """
    expect_tensors("grid_sample", input, grid)
    only_real("grid_sample", input, grid)
    shape, points = input._array.shape, grid._array.shape
    rank = len(shape) - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f'grid_sample: mode is "bilinear", "nearest" or "bicubic", not {mode!r}')
    if padding_mode not in _SIDES:
        raise ValueError(f'grid_sample: padding_mode is "zeros", "border" or "reflection", not {padding_mode!r}')
    if rank not in (2, 3) or len(points) != len(shape) or points[0] != shape[0] or points[-1] != rank:
        raise ShapeError(
            f"grid_sample: an input (N, C, H, W) goes with a grid (N, H', W', 2), (N, C, D, H, W) with (N, D', H', W', 3); "
            f"got shapes {shape} and {points}"
        )
    if 0 in shape[2:]:
        raise ShapeError(f"grid_sample: the input of shape {shape} has no pixels")
    if mode == "bicubic" and rank == 3:
        raise NotImplementedError(f'grid_sample: mode "bicubic" takes a 4-D input, not shape {shape}')
    if input._array.dtype != grid._array.dtype:
        found = widest(grid_sample, input, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
        if found is not None:
            return found
        raise RuntimeError(f"grid_sample: input and grid have one dtype, not {input._array.dtype} and {grid._array.dtype}")
    if input._array.dtype in HALF:
        return once(grid_sample, (input, grid, mode, padding_mode, align_corners))
    how = mode, padding_mode, bool(align_corners)
    if type(input._array) is np.ndarray and type(grid._array) is np.ndarray and current().tracer is None:
        return _row(_dense(input), _dense(grid), mode=mode, padding=padding_mode, aligned=how[2])
    return composed(input, grid, *how)


def _dense(x: Any) -> Any:
    return x if x._array.flags.c_contiguous else x.contiguous()


def slopes(g: Tensor, x: Tensor, grid: Tensor, mode: str, padding: str, aligned: bool) -> tuple[Tensor | None, ...]:
    """The gradients of x and of the grid: by a row, or by those of what `composed` does where they are differentiated or traced."""
    mode_now = current()
    if not mode_now.recording and mode_now.tracer is None and all(type(t._array) is np.ndarray for t in (g, x, grid)):
        found: tuple[Tensor, ...] = _backward_row(_dense(g), x, grid, mode=mode, padding=padding, aligned=aligned)
        return found
    wanted = [t for t in (x, grid) if t.requires_grad] if mode_now.recording else []
    if not wanted:
        x, grid = wanted = [t.detach().requires_grad_() for t in (x, grid)]
    token = enter(mode_now.replace(recording=True, walking=False))
    try:
        y = composed(x, grid, mode, padding, aligned)
    finally:
        leave(token)
    made = dict(zip(map(id, wanted), engine.grad([y], wanted, [g], True, mode_now.recording), strict=True))
    return tuple([made.get(id(t)) for t in (x, grid)])


def composed(input: Tensor, grid: Tensor, mode: str, padding_mode: str, aligned: bool) -> Tensor:
    """`grid_sample` in many steps."""
    shape, points = input._array.shape, grid._array.shape
    rank = len(shape) - 2
    at = []
    for dim, n in enumerate(shape[2:]):
        place = grid.select(-1, rank - 1 - dim)
        place = (place + 1) * ((n - 1) / 2) if aligned else ((place + 1).double() * (n / 2) - 0.5).to(grid.dtype)  # rounded once
        at.append(place if mode == "bicubic" else _inside(place, n, padding_mode, aligned))
    pixels = _Pixels(input, padding_mode)
    if mode == "nearest":
        y = pixels.image(pixels.at([a.round() for a in at]), points[1:-1])
        if not (grid.requires_grad and current().recording):
            return y
        return where(zeros((), dtype=BOOL, device=grid.device), grid.select(-1, 0).unsqueeze(1), y)  # its gradient is zeros
    floors = [a.detach().floor() for a in at]
    shares = [a - f for a, f in zip(at, floors, strict=True)]
    taps: Any
    if mode == "bilinear":
        taps = [((0, 1 - s), (1, s)) for s in shares]
    else:
        taps = [[(i - 1, _cubic(s, i)) for i in range(4)] for s in shares]
    total: Any = None
    for corner in product(*taps):
        places = [f + offset for f, (offset, _) in zip(floors, corner, strict=True)]
        if mode == "bicubic":
            places = [_inside(p, n, padding_mode, aligned) for p, n in zip(places, shape[2:], strict=True)]
        weight: Any = corner[0][1]
        for _, share in corner[1:]:
            weight = weight * share
        part = pixels.at(places) * weight.reshape(-1, 1)
        total = part if total is None else total + part
    return pixels.image(total, points[1:-1])


def _cubic(t: Tensor, tap: int) -> Tensor:
    """Keys' cubic convolution kernel (R. Keys, 1981; a = -0.75) at the distance of tap 0 to 3 from t, which lies between taps 1 and 2."""
    a = -0.75
    d = {0: t + 1, 1: t, 2: 1 - t, 3: 2 - t}[tap]
    if tap in (1, 2):
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _inside(place: Tensor, n: int, padding_mode: str, aligned: bool) -> Tensor:
    """Coordinates brought into the image, as padding_mode says."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, (n - 1) * 1.0) if aligned else (-0.5, n * 1.0)
        if span == 0:
            return place * 0
        distance = (place - low).abs()
        turns = (distance.detach() / span).floor()
        rest = distance - turns * span
        odd = turns - (turns / 2).floor() * 2
        place = (span - rest).where(odd == 1, rest) + low
    return place.clamp(0, n - 1)


class _Pixels:
    """An input (N, C, *sizes) as rows of C numbers, one for each pixel: what a point reads lies together."""

    def __init__(self, input: Tensor, padding_mode: str) -> None:
        self.shape = shape = input._array.shape
        rows: Any = input.movedim(1, -1).reshape(shape[0] * count(shape[2:]), shape[1])
        self.outside = rows.shape[0] if padding_mode == "zeros" else None  # the row of what lies outside
        self.rows = rows if self.outside is None else cat([rows, rows.new_zeros((1, shape[1]))], 0)

    def at(self, places: list[Tensor]) -> Any:
        """The rows at whole coordinates (N, *outputs), those outside 0: (N · outputs, C)."""
        index: Any = arange(self.shape[0], device=self.rows.device).reshape(-1, *(1,) * (len(self.shape) - 2)) * count(self.shape[2:])
        beyond: Any = None
        for dim, (place, n) in enumerate(zip(places, self.shape[2:], strict=True)):
            if self.outside is not None:
                out = (place < 0) | (place > n - 1)
                beyond = out if beyond is None else beyond | out
            index = index + place.detach().to(INT64).clamp(0, n - 1) * count(self.shape[3 + dim :])
        if beyond is not None:
            index = index.masked_fill(beyond, self.outside)
        return self.rows.index_select(0, index.reshape(-1))

    def image(self, rows: Any, sizes: tuple[int, ...]) -> Tensor:
        """Such rows as (N, C, *sizes)."""
        return rows.reshape(self.shape[0], *sizes, self.shape[1]).movedim(-1, 1).contiguous()


named_functions(__name__)
