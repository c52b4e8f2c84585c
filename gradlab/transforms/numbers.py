"""What images are made of: their kind and dtype, their scale, blur, noise and holes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradlab.dtype import as_dtype, float32
from gradlab.tensor import Tensor
from gradlab.tensor.random import randint, randn
from gradlab.transforms import functional as F
from gradlab.transforms.base import RandomTransform, Transform, integer, interval, uniform
from gradlab.transforms.functional.kinds import bound, get_dimensions, taken

TRIES = 10


class ToImage(Transform):
    """Images as tensors (…, channels, height, width) of the same numbers."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_image(inpt)


class PILToTensor(ToImage):
    """As `ToImage`."""


class ToDtype(Transform):
    """Tensors and arrays of another dtype; scale: from 0 to 1 in floating point, from 0 to the greatest number of a whole dtype.

    >>> gl.transforms.ToDtype(gl.float32, scale=True)(gl.tensor([[[0, 255]]], dtype=gl.uint8))
    tensor([[[0., 1.]]])
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = as_dtype(dtype), scale

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_dtype(inpt, self.dtype, self.scale)

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, scale={self.scale}"


class ConvertImageDtype(ToDtype):
    """As `ToDtype` with scale=True."""

    def __init__(self, dtype: Any = float32) -> None:
        super().__init__(dtype, scale=True)


class ToTensor(Transform):
    """Images of Pillow's and NumPy arrays as tensors (channels, height, width), uint8 as float32 from 0 to 1: `ToImage` and `ToDtype`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_tensor(inpt)


class ToPILImage(Transform):
    """Tensors and arrays as images of Pillow's; see `functional.to_pil_image`."""

    def __init__(self, mode: str | None = None) -> None:
        super().__init__()
        self.mode = mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_pil_image(inpt, self.mode)


class ToPureTensor(Transform):
    """Changes nothing: images are plain tensors already."""

    def forward(self, *inputs: Any) -> Any:
        return inputs if len(inputs) != 1 else inputs[0]


class Normalize(Transform):
    """(x - mean) / std, for each channel, of floating point images.

    >>> gl.transforms.Normalize([0.5], [0.25])(gl.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.normalize(inpt, self.mean, self.std, self.inplace)


class GaussianBlur(Transform):
    """Images smoothed by a Gaussian of a deviation drawn from `sigma`, (from, to) or one number; see `functional.gaussian_blur`."""

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.sigma = interval("GaussianBlur", (sigma, sigma) if isinstance(sigma, (int, float)) else sigma, "sigma", low=0)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"sigma": uniform(*self.sigma)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.gaussian_blur(inpt, self.kernel_size, **params)


class GaussianNoise(Transform):
    """Images with noise of that mean and deviation; see `functional.gaussian_noise`."""

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        super().__init__()
        self.mean, self.sigma, self.clip = mean, sigma, clip

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.gaussian_noise(inpt, self.mean, self.sigma, self.clip)


class RandomErasing(RandomTransform):
    """A rectangle of images painted over, with probability `p` (Zhong et al., Random erasing data augmentation, 2017).

    scale: its share of the area. ratio: its height by its width. value: a number, one for each channel, or "random" for noise. Where ten
    tries find no rectangle that fits, the image is as it was.

    >>> gl.transforms.RandomErasing(p=1.0)(gl.ones(3, 8, 8)).shape
    (3, 8, 8)
    """

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3), value: Any = 0.0,
        inplace: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(p)
        self.scale, self.ratio = (interval("RandomErasing", v, what, low=0) for v, what in ((scale, "scale"), (ratio, "ratio")))
        if self.scale[1] > 1:
            raise ValueError(f"RandomErasing: scale is from 0 to 1, not {scale!r}")
        if isinstance(value, str) and value != "random":
            raise ValueError(f'RandomErasing: value is a number, one for each channel, or "random", not {value!r}')
        self.value, self.inplace = value, inplace

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        channels, high, wide = get_dimensions(flat_inputs[0])
        if isinstance(self.value, (tuple, list)) and len(self.value) not in (1, channels):
            raise ValueError(f"RandomErasing: value has one number or one for each of {channels} channels, not {len(self.value)}")
        for _ in range(TRIES):
            area = high * wide * uniform(*self.scale)
            ratio = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < height < high and 0 < width < wide:
                place = {"i": integer(high - height + 1), "j": integer(wide - width + 1), "h": height, "w": width}
                return {**place, "v": self._paint(flat_inputs[0], channels, height, width)}
        return {}

    def _paint(self, image: Any, channels: int, height: int, width: int) -> Any:
        if self.value != "random":
            values = list(self.value) if isinstance(self.value, (tuple, list)) else [0.0 if self.value is None else self.value]
            return [[[v]] for v in values]
        like = taken("RandomErasing", image)[0]
        if like.dtype.is_floating_point:
            return randn(channels, height, width, device=like.device).to(like.dtype)
        return randint(0, int(bound(like)) + 1, (channels, height, width), device=like.device).to(like.dtype)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.erase(inpt, **params, inplace=self.inplace and isinstance(inpt, Tensor)) if params else inpt


class LinearTransformation(Transform):
    """(x - mean_vector) · transformation_matrix of an image's numbers in a row: whitening."""

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        size = transformation_matrix.shape[0]
        if tuple(transformation_matrix.shape) != (size, size) or tuple(mean_vector.shape) != (size,):
            raise ValueError(
                f"LinearTransformation: takes a square matrix and as long a vector, not {tuple(transformation_matrix.shape)} "
                f"and {tuple(mean_vector.shape)}"
            )
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        x, back = taken("LinearTransformation", inpt)
        if math.prod(x.shape[-3:]) != len(self.mean_vector):
            raise ValueError(f"LinearTransformation: images have {len(self.mean_vector)} numbers here, not {tuple(x.shape[-3:])}")
        flat = x.reshape(-1, len(self.mean_vector)) - self.mean_vector.to(x.device)
        return back((flat @ self.transformation_matrix.to(x.device)).reshape(x.shape))
