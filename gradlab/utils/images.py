"""Tensors as pictures: many laid out as one, and a file of it. Names and arguments are torchvision's (`torchvision.utils`)."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from gradlab.dtype import uint8
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat, stack
from gradlab.utils.atomic import write_bytes
from gradlab.utils.pillow import pillow
from gradlab.utils.png import png


def _batch(tensor: Any) -> Any:
    """(N, channels, height, width), of one or three channels."""
    if isinstance(tensor, (list, tuple)):
        tensor = stack(list(tensor))
    if not isinstance(tensor, Tensor):
        raise TypeError(f"make_grid: a tensor or a list of tensors, not {type(tensor).__name__}")
    if not 2 <= tensor.ndim <= 4:
        raise ValueError(f"make_grid: pictures are (H, W), (C, H, W) or (N, C, H, W), not of shape {tensor.shape}")
    x = tensor.reshape(*[1] * (4 - tensor.ndim), *tensor.shape)
    return cat([x, x, x], 1) if x.shape[1] == 1 else x


def _scaled(x: Any, value_range: tuple[float, float] | None) -> Any:
    low, high = (float(x.min()), float(x.max())) if value_range is None else value_range
    return (x.clamp(low, high) - low) / max(high - low, 1e-5)


def make_grid(
    tensor: Tensor | Sequence[Tensor], nrow: int = 8, padding: int = 2, normalize: bool = False,
    value_range: tuple[float, float] | None = None, scale_each: bool = False, pad_value: float = 0.0,
) -> Tensor:  # fmt: skip
    """Pictures (N, C, H, W), or a list of (C, H, W), beside and below one another: (C, height, width). One channel becomes three.

    nrow: how many stand in a row. padding: pixels around each, of `pad_value`. normalize: scale to 0 to 1 from `value_range`, or from the
    smallest and largest number there is (scale_each: in each picture). One picture alone has no padding.

    >>> gl.utils.make_grid(gl.zeros(5, 3, 4, 4), nrow=3).shape
    (3, 14, 20)
    """
    if value_range is not None and (not isinstance(value_range, tuple) or len(value_range) != 2):
        raise TypeError(f"make_grid: value_range is a tuple of the smallest and the largest number, not {value_range!r}")
    x = _batch(tensor)
    if normalize:
        x = stack([_scaled(one, value_range) for one in x.unbind(0)]) if scale_each else _scaled(x, value_range)
    count, channels, height, width = x.shape
    if count == 1:
        return x.squeeze(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    grid = x.new_full((channels, rows * (height + padding) + padding, columns * (width + padding) + padding), pad_value)
    for i, picture in enumerate(x.detach().unbind(0)):
        top, left = i // columns * (height + padding) + padding, i % columns * (width + padding) + padding
        grid[:, top : top + height, left : left + width] = picture
    return grid


def save_image(tensor: Tensor | Sequence[Tensor], fp: str | os.PathLike[str] | BinaryIO, format: str | None = None, **options: Any) -> None:
    """Write pictures, numbers from 0 to 1, to one file: as `make_grid`, whose arguments it takes, lays them out.

    fp: a path or a binary file. format: "png" (the default of files without an ending), which needs nothing; others by Pillow
    (`pip install gradlab-engine[images]`), which knows them by the ending.
    """
    grid = make_grid(tensor, **options).detach().float().cpu()
    pixels = (grid * 255 + 0.5).clamp(0, 255).to(dtype=uint8).permute(1, 2, 0).contiguous().numpy()
    name = os.fspath(fp) if isinstance(fp, (str, os.PathLike)) else ""
    kind = (format or os.path.splitext(name)[1].removeprefix(".") or "png").lower()
    if kind != "png":
        pillow().fromarray(pixels).save(fp, format=format)
    elif name:
        write_bytes(name, png(pixels))
    else:
        fp.write(png(pixels))  # type: ignore[union-attr]
