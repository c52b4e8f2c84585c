"""Padding, interpolation, pixel shuffles and im2col, as in torch.nn.functional."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.dtype import FLOAT32, HALF, UINT8
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import Numbers, expect_tensors, spread
from gradlab.spec import ShapeError, as_number, whole
from gradlab.tensor.from_data import held
from gradlab.tensor.memory_formats import followed
from gradlab.tensor.rounding import once
from gradlab.tensor.shape import copied

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "channel_shuffle",
    "fold",
    "interpolate",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

_pad, _resample, _im2col, _col2im = map(bind, (ops.vision.pad, ops.vision.resample, ops.vision.im2col, ops.vision.col2im))
_MODES = {"nearest": None, "nearest-exact": None, "area": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


# ---------------------------------------------------------------- padding


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements added around a tensor; negative numbers take away. A copy.

    pad     (before, after) of the last dimension, then of the one before it, and so on.
    mode    "constant": `value` (0 unless given), any dimensions. "reflect" (mirrored without the edge; fewer elements than there are),
            "replicate" (the edge), "circular" (from the other side; at most as many as there are): the last one, two or three
            dimensions of an input with one or two more.

    Raises RuntimeError for sizes that do not fit, ValueError for a value without "constant", NotImplementedError for another mode or rank.

    >>> F.pad(gl.tensor([1.0, 2.0]), (1, 2))
    tensor([0., 1., 2., 0., 0.])
    """
    expect_tensors("pad", input)
    numbers = tuple(map(whole, pad))
    shape = input._array.shape
    if len(numbers) % 2 or len(numbers) > 2 * len(shape):
        raise RuntimeError(f"pad: expected pairs of numbers for at most {len(shape)} dimensions (shape {shape}), got {numbers}")
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))[::-1]
    first = len(shape) - len(pairs)
    if mode == "constant":
        return _pad(input, pads=((0, 0),) * first + pairs, value=0 if value is None else held(as_number(value), input._array.dtype))
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f'pad: mode is "constant", "reflect", "replicate" or "circular", not {mode!r}')
    if value is not None and value != 0:
        raise ValueError(f"pad: a value ({value}) goes with mode constant only, not with {mode!r}")
    if not 1 <= len(pairs) <= 3 or first not in (1, 2):
        raise NotImplementedError(
            f"pad: mode {mode!r} pads the last one, two or three dimensions of an input with one or two more; "
            f"got {len(pairs)} pairs {numbers} for shape {shape}"
        )
    found = input
    for dim, (low, high) in enumerate(pairs, first):
        if low or high:
            found = _resample(found, dim=dim, table=(mode, shape[dim], _bordered(mode, shape, dim, low, high), low))
    return found.clone() if found is input else found


def _bordered(mode: str, shape: tuple[int, ...], dim: int, low: int, high: int) -> int:
    """The padded size of a dimension. Raises ShapeError where there are not as many elements to repeat."""
    size = shape[dim]
    kept = size + min(low, 0) + min(high, 0)
    most = {"reflect": size - 1, "circular": kept, "replicate": max(low, high)}[mode]
    if size < 1 or max(low, high, 0) > max(most, 0):
        raise ShapeError(
            f"pad: {mode} padding ({low}, {high}) of dimension {dim} needs at most {most} elements on each side (input of shape {shape})"
        )
    if size + low + high < 1:
        raise ShapeError(f"pad: padding ({low}, {high}) leaves nothing of dimension {dim} of size {size} (input of shape {shape})")
    return size + low + high


# ---------------------------------------------------------------- interpolation


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """An input (N, C, *sizes), with one to three spatial dimensions, resampled to `size`, or to its sizes times `scale_factor`.

    mode                    "nearest", "nearest-exact", "area" (adaptive means), "linear" (3-D input), "bilinear" and "bicubic" (4-D),
                            "trilinear" (5-D).
    align_corners           for the linear and cubic modes: the corners' centres coincide, instead of the corners themselves.
    recompute_scale_factor  the scale follows from the rounded sizes, not from scale_factor.
    antialias               "bilinear" and "bicubic": the filter covers all that falls onto one output.

    Raises ValueError for arguments that exclude one another, NotImplementedError for a mode that does not go with the rank.

    >>> F.interpolate(gl.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    expect_tensors("interpolate", input)
    shape = input._array.shape
    rank = len(shape) - 2
    _check_mode(mode, rank, shape, align_corners, antialias)
    sizes = shape[2:]
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate: give either size or scale_factor, got size={size} and scale_factor={scale_factor}")
    scales: tuple[float | None, ...] = (None,) * rank
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("interpolate: recompute_scale_factor goes with scale_factor, not with size")
        wanted = _listed("size", size, rank, sizes)
        wanted = tuple(whole(w) for w in wanted)
    else:
        factors = _listed("scale_factor", scale_factor, rank, sizes)
        wanted = tuple(floor(s * float(f)) for s, f in zip(sizes, factors, strict=True))
        if not recompute_scale_factor:
            scales = tuple(float(f) for f in factors)
    if any(w < 1 for w in (*wanted, *sizes)):
        raise ShapeError(f"interpolate: sizes must be positive, got {wanted} for an input of shape {shape}")
    kind = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode) + ("-antialias" if antialias else "")
    tables = []
    for dim in range(rank):
        inputs, outputs = sizes[dim], wanted[dim]
        table = (kind, inputs, outputs, *_arguments(kind, inputs, outputs, scales[dim], bool(align_corners)))
        if inputs != outputs or (kind != "area" and table[3] != 1):
            tables.append((dim + 2, table))
    return resampled(input, tables) if tables else input * 1


def resampled(input: Tensor, tables: list[tuple[int, Any]]) -> Tensor:
    """An input resampled along several dimensions, each by its table, one after the other; half types are rounded once, pictures of
    uint8 after each dimension, the last one first, as in PyTorch and Pillow."""
    if input._array.dtype == UINT8 and tables[0][1][0].startswith(("linear", "cubic")):
        for dim, table in reversed(tables):
            input = (_resample(input.to(FLOAT32), dim=dim, table=table) + 0.5).floor().clamp(0, 255).to(UINT8)
        return input
    if len(tables) > 1 and input._array.dtype in HALF and not tables[0][1][0].startswith("nearest"):
        return once(resampled, (input, tables), autocast="float32")
    for dim, table in tables:
        input = _resample(input, dim=dim, table=table)
    return input


def _check_mode(mode: str, rank: int, shape: tuple[int, ...], align_corners: bool | None, antialias: bool) -> None:
    if mode not in _MODES:
        raise NotImplementedError(f"interpolate: mode is one of {', '.join(_MODES)}, not {mode!r}")
    if not 1 <= rank <= 3 or _MODES[mode] not in (None, rank):
        raise NotImplementedError(
            f"interpolate: mode {mode!r} does not go with an input of shape {shape}: linear takes 3 dimensions, bilinear and bicubic 4, "
            f"trilinear 5, nearest, nearest-exact and area any of these"
        )
    if align_corners is not None and _MODES[mode] is None:
        raise ValueError(f"interpolate: align_corners goes with linear, bilinear, bicubic or trilinear, not with {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: antialias goes with bilinear and bicubic, not with {mode!r}")


def _listed(what: str, value: Any, rank: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):  # float() would read one
        raise TypeError(f"interpolate: {what} is a number or one for each spatial size, not {value!r}")
    if isinstance(value, (list, tuple)):
        if len(value) != rank:
            raise ValueError(f"interpolate: {what} must have one number for each of the spatial sizes {sizes}, got {value}")
        return tuple(value)
    return (value,) * rank


def _arguments(kind: str, inputs: int, outputs: int, factor: float | None, align_corners: bool) -> tuple[Any, ...]:
    """What a table holds besides kind and sizes: the inputs per output, and whether corners are aligned."""
    if kind == "area":
        return ()
    scale = 1 / factor if factor else inputs / outputs
    if kind in ("nearest", "nearest-exact"):
        return (scale,)
    if align_corners:
        scale = (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return (scale, align_corners)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate` under its old name.

    >>> F.upsample(gl.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest", under its old name.

    >>> F.upsample_nearest(gl.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners, under its old name.

    >>> F.upsample_bilinear(gl.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


# ---------------------------------------------------------------- pixels to channels and back


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C·r², H, W) to (*, C, H·r, W·r): r·r channels become the pixels of a square.

    >>> F.pixel_shuffle(gl.ones(1, 4, 2, 2), 2).shape
    (1, 1, 4, 4)
    """
    shape, r = input._array.shape, upscale_factor
    if len(shape) < 3 or r < 1 or shape[-3] % (r * r):
        raise RuntimeError(
            f"pixel_shuffle: expected (*, C, H, W) with a multiple of upscale_factor² = {r * r} channels, got shape {shape}"
        )
    *lead, channels, height, width = shape
    n = len(lead)
    parts = input.reshape(*lead, channels // (r * r), r, r, height, width)
    found = copied(parts.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2), (*lead, channels // (r * r), height * r, width * r))
    return followed(found, input)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H·r, W·r) to (*, C·r², H, W): the inverse of `pixel_shuffle`.

    >>> F.pixel_unshuffle(gl.ones(1, 1, 4, 4), 2).shape
    (1, 4, 2, 2)
    """
    shape, r = input._array.shape, downscale_factor
    if len(shape) < 3 or r < 1 or shape[-1] % r or shape[-2] % r:
        raise RuntimeError(f"pixel_unshuffle: expected (*, C, H, W) with H and W multiples of downscale_factor {r}, got shape {shape}")
    *lead, channels, height, width = shape
    n = len(lead)
    parts = input.reshape(*lead, channels, height // r, r, width // r, r)
    found = copied(parts.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3), (*lead, channels * r * r, height // r, width // r))
    return followed(found, input)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, *sizes), taken in turn from each of `groups` equal groups.

    >>> F.channel_shuffle(gl.arange(4).reshape(1, 4, 1, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    shape = input._array.shape
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise RuntimeError(f"channel_shuffle: expected (N, C, *sizes) with a multiple of groups={groups} channels, got shape {shape}")
    return followed(copied(input.reshape(shape[0], groups, shape[1] // groups, *shape[2:]).transpose(1, 2), shape), input)


# ---------------------------------------------------------------- im2col


def _windows(name: str, kernel_size: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers) -> dict[str, Any]:
    named = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
    return {what.removesuffix("_size"): spread(name, what, value, 2) for what, value in named.items()}


def unfold(input: Tensor, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0, stride: Numbers = 1) -> Tensor:
    """The windows of an input (N, C, H, W) or (C, H, W) as columns: (N, C·KH·KW, number of windows). Not `Tensor.unfold`.

    >>> F.unfold(gl.ones(1, 1, 3, 3), 2).shape
    (1, 4, 4)
    """
    expect_tensors("unfold", input)
    shape = input._array.shape
    if len(shape) not in (3, 4):
        raise ShapeError(f"unfold: expected an input (N, C, H, W) or (C, H, W), got shape {shape}")
    windows = _windows("unfold", kernel_size, dilation, padding, stride)
    try:
        counts = ops.vision.window_counts(shape[-2:], **windows)
    except ShapeError as error:
        raise ShapeError(f"unfold: {error} (input of shape {shape})") from None
    found = _im2col(input.unsqueeze(0) if len(shape) == 3 else input, **windows, outputs=counts)
    return found.squeeze(0) if len(shape) == 3 else found


def fold(
    input: Tensor, output_size: Numbers, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0, stride: Numbers = 1
) -> Tensor:
    """Columns (N, C·KH·KW, number of windows), or without N, added up at their windows' places: (N, C, *output_size).

    >>> F.fold(gl.ones(1, 4, 4), (3, 3), 2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    expect_tensors("fold", input)
    shape = input._array.shape
    if len(shape) not in (2, 3):
        raise ShapeError(f"fold: expected an input (N, C·KH·KW, windows) or (C·KH·KW, windows), got shape {shape}")
    windows = _windows("fold", kernel_size, dilation, padding, stride)
    size = spread("fold", "output_size", output_size, 2)
    try:
        counts = ops.vision.window_counts(size, **windows)
    except ShapeError as error:
        raise ShapeError(f"fold: {error} (input of shape {shape})") from None
    found = _col2im(input.unsqueeze(0) if len(shape) == 2 else input, size=size, **windows, outputs=counts)
    return found.squeeze(0) if len(shape) == 2 else found


named_functions(__name__)
