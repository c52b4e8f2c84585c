"""Rotations and other affine maps of images, and perspective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.nn import functional as F
from gradlab.tensor import Tensor
from gradlab.tensor.creation import ones_like, tensor
from gradlab.tensor.shape import cat
from gradlab.transforms.functional.geometry import filled, floating, rounded
from gradlab.transforms.functional.kinds import OF_PILLOW, InterpolationMode, get_size, interpolation_of, of_images
from gradlab.utils.pillow import is_pillow

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
MODES = ("nearest", "bilinear")
DIGITS = 4  # behind the point: a rotated image's corner that is nearer to a pixel's edge lies on it


def affine_matrix(
    angle: float, translate: Sequence[float], scale: float, shear: Sequence[float], centre: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """Where an image's points go, 3 x 3 in homogeneous coordinates: shorn, scaled, turned by `angle` degrees about `centre`, and shifted.

    A shear (x, y) in degrees comes first about x, then about y.
    """
    turn, across, down = (math.radians(a) for a in (angle, *shear))
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    shearing = np.array([[1, 0], [-math.tan(down), 1]]) @ np.array([[1, -math.tan(across)], [0, 1]])
    whole = np.eye(3)
    whole[:2, :2] = scale * rotation @ shearing
    whole[:2, 2] = np.array(centre) + np.array(translate, float) - whole[:2, :2] @ np.array(centre)
    return whole


def affine(
    inpt: Any, angle: float, translate: Sequence[float], scale: float, shear: float | Sequence[float], interpolation: Any = NEAREST,
    fill: float | Sequence[float] | None = None, center: Sequence[float] | None = None,
) -> Any:  # fmt: skip
    """An image turned by `angle` degrees (clockwise), shifted by `translate` (x, y) pixels, scaled, and shorn by `shear` (x, y) degrees.

    interpolation: nearest or bilinear (and bicubic for images of Pillow's). fill: what lies outside (0), a number or one for each channel.
    center: (x, y) from the upper left corner, about which it is turned (default: the middle).
    """
    shears = (float(shear), 0.0) if isinstance(shear, (int, float)) else (*map(float, shear), 0.0)[:2]
    if scale <= 0:
        raise ValueError(f"affine: scale is positive, not {scale}")
    if len(translate) != 2:
        raise ValueError(f"affine: translate is (x, y), not {translate!r}")
    high, wide = get_size(inpt)
    if is_pillow(inpt):
        centre = (wide * 0.5, high * 0.5) if center is None else (center[0], center[1])
        back = np.linalg.inv(affine_matrix(angle, translate, scale, shears, centre))
        return _by_pillow(inpt, (wide, high), back, interpolation_of("affine", interpolation), fill)
    middle = (0.0, 0.0) if center is None else (center[0] - wide * 0.5, center[1] - high * 0.5)
    back = np.linalg.inv(affine_matrix(angle, translate, scale, shears, middle))
    return _mapped(inpt, (high, wide), back, interpolation_of("affine", interpolation, MODES), fill)


def _by_pillow(image: Any, size: tuple[int, int], back: np.ndarray[Any, Any], mode: str, fill: Any) -> Any:
    colour = None if fill is None else fill if isinstance(fill, (int, float)) and len(image.getbands()) == 1 else _colour(image, fill)
    return image.transform(size, 0, tuple(back[:2].ravel()), OF_PILLOW[mode], fillcolor=colour)  # 0 is Image.Transform.AFFINE


def _colour(image: Any, fill: Any) -> Any:
    """A fill as Pillow wants it."""
    bands = len(image.getbands())
    values = [int(v) for v in fill] if isinstance(fill, Sequence) else [int(fill)]
    if len(values) not in (1, bands):
        raise ValueError(f"fill is one number or one for each of {bands} channels, not {fill!r}")
    return values[0] if bands == 1 else tuple(values * bands)[:bands]


def rotate(
    inpt: Any, angle: float, interpolation: Any = NEAREST, expand: bool = False, center: Sequence[float] | None = None,
    fill: float | Sequence[float] | None = None,
) -> Any:  # fmt: skip
    """An image turned by `angle` degrees counter-clockwise, about its middle or `center` (x, y).

    expand: the result is as large as the whole image needs (about its middle). interpolation, fill: as `affine`.

    >>> gl.transforms.functional.rotate(gl.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 90)
    tensor([[[2., 4.],
             [1., 3.]]])
    """
    if is_pillow(inpt):
        way = OF_PILLOW[interpolation_of("rotate", interpolation)]
        colour = None if fill is None else _colour(inpt, fill)
        return inpt.rotate(angle % 360, way, expand, None if center is None else tuple(center), fillcolor=colour)
    mode = interpolation_of("rotate", interpolation, MODES)
    high, wide = get_size(inpt)
    if center is None and (angle % 180 == 0 or (angle % 90 == 0 and (expand or high == wide))):
        return _turned(inpt, int(angle // 90))
    middle = (0.0, 0.0) if center is None else (center[0] - wide * 0.5, center[1] - high * 0.5)
    forth = affine_matrix(-angle, (0.0, 0.0), 1.0, (0.0, 0.0), middle)
    size = _expanded(high, wide, forth) if expand else (high, wide)
    return _mapped(inpt, size, np.linalg.inv(forth), mode, fill)


@of_images
def _turned(x: Tensor, quarters: int) -> Tensor:
    return x.rot90(quarters, (-2, -1))


def _expanded(high: int, wide: int, forth: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Height and width that hold an image's corners where they go."""
    half = np.array([[wide], [high]]) / 2
    corners = half + forth[:2, :2] @ (half * [[-1, -1, 1, 1], [-1, 1, 1, -1]]) + forth[:2, 2:]
    across, down = np.ceil(corners.max(1).round(DIGITS)) - np.floor(corners.min(1).round(DIGITS))
    return int(down), int(across)


@of_images
def _mapped(x: Tensor, size: tuple[int, int], back: np.ndarray[Any, Any], mode: str, fill: Any) -> Tensor:
    """The pixels of a result of `size`, each read where `back` (3 x 3, about the middles) says."""
    high, wide = x.shape[-2:]
    across, down = np.meshgrid(np.arange(size[1]) + 0.5 - size[1] / 2, np.arange(size[0]) + 0.5 - size[0] / 2)
    places = back @ np.stack([across.ravel(), down.ravel(), np.ones(across.size)])
    points = (places[:2] / places[2:] / np.array([[wide / 2], [high / 2]])).T.reshape(1, *size, 2)
    return _read(x, tensor(points.astype(np.float32), device=x.device), mode, fill)


def _read(x: Tensor, points: Tensor, mode: str, fill: Any) -> Tensor:
    """An image read at points (1, height, width, 2) from -1 to 1; `fill` where they lie outside, in proportion."""
    batch = floating(x).reshape(-1, *x.shape[-3:])
    if batch.dtype.name == "float64":
        points = points.double()
    outside = fill is not None and (isinstance(fill, Sequence) or fill != 0)
    if outside:
        batch = cat([batch, ones_like(batch[:, :1])], 1)
    points = points.to(batch.dtype).expand(batch.shape[0], *points.shape[1:])
    found = F.grid_sample(batch, points, mode=mode, padding_mode="zeros", align_corners=False)
    if outside:
        share, found = found[:, -1:], found[:, :-1]
        if mode == "nearest":
            found = filled(found, share < 0.5, fill, "fill")
        else:
            found = found * share + filled(found, share > -1, fill, "fill") * (1 - share)
    return rounded(found, x).reshape(*x.shape[:-2], *points.shape[1:3])


def perspective(
    inpt: Any, startpoints: Sequence[Sequence[float]] | None, endpoints: Sequence[Sequence[float]] | None, interpolation: Any = BILINEAR,
    fill: float | Sequence[float] | None = None, coefficients: Sequence[float] | None = None,
) -> Any:  # fmt: skip
    """An image whose four points (x, y) `startpoints` come to lie at `endpoints`.

    coefficients: in their place (a, b, c, d, e, f, g, h), a result's (x, y) being read at (ax + by + c, dx + ey + f) / (gx + hy + 1).
    """
    if coefficients is None:
        if startpoints is None or endpoints is None or len(startpoints) != 4 or len(endpoints) != 4:
            raise ValueError("perspective: give four startpoints and four endpoints, or coefficients")
        coefficients = _coefficients(startpoints, endpoints)
    elif len(coefficients) != 8:
        raise ValueError(f"perspective: there are 8 coefficients, not {len(coefficients)}")
    mode = interpolation_of("perspective", interpolation, MODES if not is_pillow(inpt) else (*MODES, "bicubic"))
    if is_pillow(inpt):
        colour = None if fill is None else _colour(inpt, fill)
        return inpt.transform(inpt.size, 2, tuple(coefficients), OF_PILLOW[mode], fillcolor=colour)  # 2 is Image.Transform.PERSPECTIVE
    high, wide = get_size(inpt)
    corner = np.array([*coefficients, 1.0]).reshape(3, 3)  # of points from the upper left corner
    middle = np.array([[1, 0, wide / 2], [0, 1, high / 2], [0, 0, 1]])
    return _mapped(inpt, (high, wide), np.linalg.inv(middle) @ corner @ middle, mode, fill)


def _coefficients(start: Sequence[Sequence[float]], end: Sequence[Sequence[float]]) -> list[float]:
    """The map from ends to starts, by its eight linear equations."""
    rows, right = [], []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return [float(c) for c in np.linalg.lstsq(np.array(rows, float), np.array(right, float), rcond=None)[0]]


def elastic(inpt: Any, displacement: Tensor, interpolation: Any = BILINEAR, fill: float | Sequence[float] | None = None) -> Any:
    """An image whose pixels are read elsewhere: `displacement` (1, height, width, 2) are (x, y), 2 being the width or height."""
    high, wide = get_size(inpt)
    if tuple(displacement.shape) != (1, high, wide, 2):
        raise ValueError(f"elastic: displacement has the shape {(1, high, wide, 2)}, not {tuple(displacement.shape)}")
    return _displaced(inpt, displacement, interpolation_of("elastic", interpolation, MODES), fill)


@of_images
def _displaced(x: Tensor, displacement: Tensor, mode: str, fill: Any) -> Tensor:
    high, wide = x.shape[-2:]
    across, down = np.meshgrid((2 * np.arange(wide) + 1) / wide - 1, (2 * np.arange(high) + 1) / high - 1)
    return _read(x, tensor(np.stack([across, down], 2)[None].astype(np.float32), device=x.device) + displacement.to(x.device), mode, fill)


__all__ = ["affine", "elastic", "perspective", "rotate"]
