"""What is done with an image's numbers: their kind and scale, blur and noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.dtype import as_dtype, bool_, float32, uint8
from gradlab.nn import functional as F
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.tensor.random import randn
from gradlab.transforms.functional.colour import to_whole
from gradlab.transforms.functional.geometry import _pad, floating, rounded
from gradlab.transforms.functional.kinds import bound, of_colours, of_images, taken
from gradlab.utils.pillow import is_pillow, pillow


def to_image(inpt: Any) -> Tensor:
    """An image as a tensor (…, channels, height, width) of the same numbers: of NumPy arrays and Pillow images a copy.

    >>> import numpy as np
    >>> gl.transforms.functional.to_image(np.zeros((4, 5, 3), np.uint8)).shape
    (3, 4, 5)
    """
    found = taken("to_image", inpt)[0]
    return found if isinstance(inpt, Tensor) else found.contiguous().clone()


pil_to_tensor = to_image


@of_images
def _to_dtype(x: Tensor, dtype: Any, scale: bool) -> Tensor:
    wanted = as_dtype(dtype)
    if x.dtype == wanted or not scale:
        return x.to(wanted)
    if wanted == bool_ or x.dtype == bool_:
        raise ValueError(f"to_dtype: numbers are not scaled between {x.dtype} and {wanted}; use scale=False")
    if wanted.is_floating_point:
        return x.to(wanted) if x.dtype.is_floating_point else x.to(wanted) / bound(x)
    like = tensor([], dtype=wanted)
    if x.dtype.is_floating_point:
        return to_whole(x if wanted.itemsize == 1 else x.double(), like)
    bits, others = (round(np.log2(bound(t) + 1)) for t in (x, like))
    return (x.long() >> (bits - others)).to(wanted) if bits > others else x.long().mul(1 << (others - bits)).to(wanted)


def to_dtype(inpt: Any, dtype: Any = float32, scale: bool = False) -> Any:
    """An image of another dtype. scale: from 0 to 1 in floating point, from 0 to the greatest number of a whole dtype.

    >>> gl.transforms.functional.to_dtype(gl.tensor([[[0, 255]]], dtype=gl.uint8), scale=True)
    tensor([[[0., 1.]]])
    """
    if is_pillow(inpt):
        raise TypeError("to_dtype: an image of Pillow's has no dtype; make a tensor of it first, with to_image")
    return _to_dtype(inpt, dtype, scale)


def convert_image_dtype(inpt: Any, dtype: Any = float32) -> Any:
    """`to_dtype` with scale=True."""
    return to_dtype(inpt, dtype, scale=True)


def to_tensor(inpt: Any) -> Tensor:
    """An image of Pillow's or a NumPy array as a tensor (channels, height, width): uint8 as float32 from 0 to 1, others as they are."""
    if isinstance(inpt, Tensor):
        raise TypeError("to_tensor: takes an image of Pillow's or a NumPy array; a tensor is one already (see to_dtype)")
    found = to_image(inpt)
    return found.float() / 255 if found.dtype == uint8 else found if is_pillow(inpt) else found.to(found.dtype)


def to_pil_image(inpt: Any, mode: str | None = None) -> Any:
    """An image of Pillow's of a tensor (channels, height, width) or an array (height, width, channels); floating point is from 0 to 1.

    mode: of the result, where several fit ("L", "LA", "RGB", "RGBA", "CMYK", "HSV", "YCbCr", "I", "I;16", "F").
    """
    if is_pillow(inpt):
        return inpt if mode is None else inpt.convert(mode)
    x = taken("to_pil_image", inpt)[0].detach().cpu()
    if x.ndim != 3 or x.shape[0] not in (1, 2, 3, 4):
        raise ValueError(f"to_pil_image: takes one image of 1 to 4 channels, not the shape {tuple(x.shape)}")
    if x.dtype.is_floating_point and mode != "F":
        x = to_whole(x.float().clamp(0, 1), tensor([], dtype=uint8))
    elif x.dtype.is_floating_point:
        x = x.float()
    elif x._array.dtype.kind == "b" or x.dtype.itemsize > (1 if x.shape[0] > 1 else 4):
        raise TypeError(f"to_pil_image: Pillow has no images of {x.shape[0]} channels of {x.dtype}; use to_dtype(x, gradlab.uint8)")
    array = np.ascontiguousarray(np.moveaxis(x.numpy(), 0, -1))
    array = array[..., 0] if array.shape[-1] == 1 else array
    if array.dtype == np.int16:
        array = array.astype(np.uint16)
    made = pillow().fromarray(array)
    if mode is None or mode == made.mode:
        return made
    if len(made.getbands()) != len(pillow().new(mode, (1, 1)).getbands()) or mode in ("I", "F", "I;16", "1"):
        return made.convert(mode)
    return pillow().frombytes(mode, made.size, made.tobytes())


@of_images
def normalize(inpt: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std, for each channel. The image is floating point, see `to_dtype`.

    >>> gl.transforms.functional.normalize(gl.ones(1, 1, 2), [0.5], [0.25])
    tensor([[[2., 2.]]])
    """
    if not inpt.dtype.is_floating_point:
        raise TypeError(f"normalize: takes floating point, not {inpt.dtype}; use ToDtype(gradlab.float32, scale=True) before")
    centres, spreads = ([float(v) for v in (m if isinstance(m, (Sequence, Tensor, np.ndarray)) else [m])] for m in (mean, std))
    if 0 in spreads:
        raise ValueError(f"normalize: std is not 0, got {spreads}")
    if not {len(centres), len(spreads)} <= {1, inpt.shape[-3]}:
        raise ValueError(
            f"normalize: mean and std have a number for each of {inpt.shape[-3]} channels, got {len(centres)} and {len(spreads)}"
        )
    shift, scale = (tensor(v, dtype=inpt.dtype, device=inpt.device).reshape(-1, 1, 1) for v in (centres, spreads))
    return inpt.sub_(shift).div_(scale) if inplace else (inpt - shift) / scale


def gaussian_blur(inpt: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None) -> Any:
    """An image smoothed by a Gaussian: kernel_size, odd, and sigma in pixels, each one number or (x, y); borders are mirrored.

    sigma: default 0.15 · kernel_size + 0.35.
    """
    sizes = [int(k) for k in (kernel_size if isinstance(kernel_size, Sequence) else [kernel_size])] * 2
    if any(k <= 0 or k % 2 == 0 for k in sizes):
        raise ValueError(f"gaussian_blur: kernel_size is odd and positive, not {kernel_size!r}")
    spreads = [float(s) for s in (sigma if isinstance(sigma, Sequence) else [sigma])] * 2 if sigma is not None else [
        k * 0.15 + 0.35 for k in sizes
    ]  # fmt: skip
    if any(s <= 0 for s in spreads):
        raise ValueError(f"gaussian_blur: sigma is positive, not {sigma!r}")
    return _blurred(inpt, sizes[:2], spreads[:2])


@of_colours
def _blurred(x: Tensor, sizes: list[int], spreads: list[float]) -> Tensor:
    channels, high, wide = x.shape[-3:]
    across, down = (_bell(size, spread) for size, spread in zip(sizes, spreads, strict=True))
    batch = _pad(floating(x).reshape(-1, channels, high, wide), (sizes[0] // 2,) * 2 + (sizes[1] // 2,) * 2, None, "reflect")
    for weights in (across[None, :], down[:, None]):
        kernel = tensor(np.broadcast_to(weights, (channels, 1, *weights.shape)).copy(), device=x.device).to(batch.dtype)
        batch = F.conv2d(batch, kernel, groups=channels)
    return rounded(batch, x).reshape(x.shape)


def _bell(size: int, spread: float) -> np.ndarray[Any, Any]:
    """A Gaussian at whole numbers about 0, its sum being 1."""
    heights = np.exp(-0.5 * ((np.arange(size) - size // 2) / spread) ** 2)
    return (heights / heights.sum()).astype(np.float32)


@of_colours
def gaussian_noise(inpt: Tensor, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Tensor:
    """An image with noise of that mean and deviation, where white is 1; clip: to what an image can hold (whole numbers always are)."""
    if sigma < 0:
        raise ValueError(f"gaussian_noise: sigma is not negative, got {sigma}")
    x = floating(inpt)
    noise = (randn(*inpt.shape, device=inpt.device).to(x.dtype) * sigma + mean) * bound(inpt)
    found = x + noise
    return rounded(found.clamp(0, bound(inpt)) if clip or not inpt.dtype.is_floating_point else found, inpt)


__all__ = [
    "convert_image_dtype", "gaussian_blur", "gaussian_noise", "normalize", "pil_to_tensor", "to_dtype", "to_image", "to_pil_image",
    "to_tensor",
]  # fmt: skip
