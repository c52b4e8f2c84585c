"""Sizes, crops, flips, borders, rotations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradlab.tensor.random import randn
from gradlab.tensor.shape import stack
from gradlab.transforms import functional as F
from gradlab.transforms.base import RandomTransform, Transform, integer, interval, uniform
from gradlab.transforms.functional.geometry import PADDING, pair, wanted_size
from gradlab.transforms.functional.kinds import InterpolationMode, get_size, interpolation_of
from gradlab.transforms.functional.numbers import gaussian_blur

BILINEAR, NEAREST = InterpolationMode.BILINEAR, InterpolationMode.NEAREST
TRIES = 10  # at a part of an image that has the area and the proportions that were drawn


class Resize(Transform):
    """Images at another size: (height, width), or a number for the shorter side, which keeps the proportions. See `functional.resize`.

    >>> gl.transforms.Resize(8)(gl.zeros(3, 16, 32)).shape
    (3, 8, 16)
    """

    def __init__(
        self, size: int | Sequence[int] | None, interpolation: Any = BILINEAR, max_size: int | None = None, antialias: bool | None = True
    ) -> None:
        super().__init__()
        interpolation_of("Resize", interpolation)
        wanted_size("Resize", size, 1, 1, max_size)
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation, max_size, antialias

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resize(inpt, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle of images, (height, width) or a square; 0 where an image is smaller."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = pair("CenterCrop", size)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.center_crop(inpt, self.size)


class RandomHorizontalFlip(RandomTransform):
    """Left and right exchanged, with probability `p`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.horizontal_flip(inpt)


class RandomVerticalFlip(RandomTransform):
    """Top and bottom exchanged, with probability `p`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.vertical_flip(inpt)


class Pad(Transform):
    """Borders around images; see `functional.pad`."""

    def __init__(self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        _expect_mode("Pad", padding_mode)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.pad(inpt, self.padding, self.fill, self.padding_mode)


def _expect_mode(name: str, mode: str) -> None:
    if mode not in PADDING:
        raise ValueError(f"{name}: padding_mode is one of {', '.join(PADDING)}, not {mode!r}")


class RandomCrop(Transform):
    """A part of images, (height, width) or a square, from anywhere in them.

    padding, fill, padding_mode: borders that are put around before, as `Pad`. pad_if_needed: more of them where an image is smaller;
    without it that is a ValueError.

    >>> gl.transforms.RandomCrop(32, padding=4)(gl.zeros(3, 32, 32)).shape
    (3, 32, 32)
    """

    def __init__(
        self, size: int | Sequence[int], padding: int | Sequence[int] | None = None, pad_if_needed: bool = False, fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:  # fmt: skip
        super().__init__()
        _expect_mode("RandomCrop", padding_mode)
        self.size, self.padding, self.pad_if_needed = pair("RandomCrop", size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def _padded(self, image: Any) -> Any:
        if self.padding is not None:
            image = F.pad(image, self.padding, self.fill, self.padding_mode)
        (high, wide), (height, width) = get_size(image), self.size
        lacking = max(width - wide, 0), max(height - high, 0)
        if any(lacking):
            if not self.pad_if_needed:
                raise ValueError(f"RandomCrop: {height} x {width} is larger than the image, {high} x {wide}; pass pad_if_needed=True")
            image = F.pad(image, lacking, self.fill, self.padding_mode)
        return image

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(self._padded(flat_inputs[0]))
        height, width = self.size
        return {"top": integer(high - height + 1), "left": integer(wide - width + 1)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.crop(self._padded(inpt), params["top"], params["left"], *self.size)


class RandomResizedCrop(Transform):
    """A part of images of a share `scale` of their area and proportions `ratio` (width by height), at the size `size`.

    Where ten tries find none that fits, it is the middle.

    >>> gl.transforms.RandomResizedCrop(8)(gl.zeros(3, 20, 30)).shape
    (3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int], scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = BILINEAR, antialias: bool | None = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = pair("RandomResizedCrop", size)
        self.scale = interval("RandomResizedCrop", scale, "scale", low=0)
        self.ratio = interval("RandomResizedCrop", ratio, "ratio", low=0)
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(flat_inputs[0])
        for _ in range(TRIES):
            area = high * wide * uniform(*self.scale)
            ratio = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= wide and 0 < height <= high:
                return {"top": integer(high - height + 1), "left": integer(wide - width + 1), "height": height, "width": width}
        ratio = min(max(wide / high, self.ratio[0]), self.ratio[1])
        width, height = min(wide, round(high * ratio)), min(high, round(wide / ratio))
        return {"top": (high - height) // 2, "left": (wide - width) // 2, "height": height, "width": width}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resized_crop(inpt, **params, size=self.size, interpolation=self.interpolation, antialias=self.antialias)


class FiveCrop(Transform):
    """The four corners and the middle of an image, as a tuple."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = pair("FiveCrop", size)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.five_crop(inpt, self.size)


class TenCrop(Transform):
    """`FiveCrop` of an image and of its mirror image."""

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair("TenCrop", size), vertical_flip

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.ten_crop(inpt, self.size, self.vertical_flip)


class RandomRotation(Transform):
    """Images turned by an angle from `degrees`: (from, to), or a number d for (-d, d), counter-clockwise. See `functional.rotate`."""

    def __init__(
        self, degrees: float | Sequence[float], interpolation: Any = NEAREST, expand: bool = False, center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.degrees = interval("RandomRotation", degrees, "degrees")
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"angle": uniform(*self.degrees)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.rotate(inpt, **params, interpolation=self.interpolation, expand=self.expand, center=self.center, fill=self.fill)


class RandomAffine(Transform):
    """Images turned, shifted, scaled and shorn; see `functional.affine`.

    degrees: as `RandomRotation`. translate: the greatest shift as a share of width and height. scale: (from, to). shear: degrees along x, a
    number or (from, to), or (from, to, from, to) along x and y.
    """

    def __init__(
        self, degrees: float | Sequence[float], translate: Sequence[float] | None = None, scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None, interpolation: Any = NEAREST, fill: Any = 0, center: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.degrees = interval("RandomAffine", degrees, "degrees")
        if translate is not None and (len(translate) != 2 or not all(0 <= t <= 1 for t in translate)):
            raise ValueError(f"RandomAffine: translate has two numbers from 0 to 1, not {translate!r}")
        self.translate = translate
        self.scale = None if scale is None else interval("RandomAffine", tuple(scale), "scale", low=0)
        several = shear is not None and not isinstance(shear, (int, float)) and len(shear) == 4
        parts: Any = [shear[:2], shear[2:]] if several else [] if shear is None else [shear]  # type: ignore[index]
        self.shear = [interval("RandomAffine", part, "shear") for part in parts]
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(flat_inputs[0])
        angle = uniform(*self.degrees)
        across, down = self.translate or (0, 0)
        shift = [round(uniform(-n, n)) if n else 0 for n in (across * wide, down * high)]
        scale = uniform(*self.scale) if self.scale is not None else 1.0
        shears = [uniform(*part) for part in self.shear]
        return {"angle": angle, "translate": shift, "scale": scale, "shear": [*shears, 0.0, 0.0][:2]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.affine(inpt, **params, interpolation=self.interpolation, fill=self.fill, center=self.center)


class RandomPerspective(RandomTransform):
    """Images seen from aside, with probability `p`: each corner moves inward by at most half of `distortion_scale` of the sides."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = BILINEAR, fill: Any = 0) -> None:
        super().__init__(p)
        if not 0 <= distortion_scale <= 1:
            raise ValueError(f"RandomPerspective: distortion_scale is from 0 to 1, not {distortion_scale}")
        self.distortion_scale, self.interpolation, self.fill = distortion_scale, interpolation, fill

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(flat_inputs[0])
        start = [[0, 0], [wide - 1, 0], [wide - 1, high - 1], [0, high - 1]]
        across, down = int(self.distortion_scale * (wide // 2)) + 1, int(self.distortion_scale * (high // 2)) + 1
        moved = [[abs(x - integer(across)), abs(y - integer(down))] for x, y in start]
        return {"startpoints": start, "endpoints": moved}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.perspective(inpt, **params, interpolation=self.interpolation, fill=self.fill)


class ElasticTransform(Transform):
    """Images whose pixels are moved by smooth noise: `alpha` is how far, `sigma` how smooth, numbers or (x, y) (Simard et al., 2003)."""

    def __init__(
        self, alpha: float | Sequence[float] = 50.0, sigma: float | Sequence[float] = 5.0, interpolation: Any = BILINEAR, fill: Any = 0
    ) -> None:
        super().__init__()
        self.alpha, self.sigma = ([float(v) for v in (n if isinstance(n, Sequence) else [n, n])] for n in (alpha, sigma))
        if len(self.alpha) != 2 or len(self.sigma) != 2 or min(self.sigma) <= 0:
            raise ValueError(f"ElasticTransform: alpha and sigma are numbers or pairs, sigma positive; got {alpha!r} and {sigma!r}")
        self.interpolation, self.fill = interpolation, fill

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(flat_inputs[0])
        moves = []
        for alpha, sigma, side in zip(self.alpha, self.sigma, (wide, high), strict=True):
            width = min(int(8 * sigma + 1) | 1, 2 * min(high, wide) - 1)
            noise = gaussian_blur(randn(1, 1, high, wide).clamp(-1, 1), width, sigma)
            moves.append(noise[0, 0] * alpha / side)
        return {"displacement": stack(moves, -1)[None]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.elastic(inpt, params["displacement"], self.interpolation, self.fill)


class RandomZoomOut(RandomTransform):
    """Images put somewhere on a larger one, of `side_range` times their sides, with probability `p`."""

    def __init__(self, fill: Any = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        super().__init__(p)
        self.fill, self.side_range = fill, interval("RandomZoomOut", side_range, "side_range", low=1)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        high, wide = get_size(flat_inputs[0])
        factor = uniform(*self.side_range)
        width, height = int(wide * factor), int(high * factor)
        left, top = int((width - wide) * uniform()), int((height - high) * uniform())
        return {"padding": [left, top, width - left - wide, height - top - high]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.pad(inpt, params["padding"], self.fill)


class RandomResize(Transform):
    """Images whose shorter side is drawn from `min_size` to `max_size` (not included)."""

    def __init__(self, min_size: int, max_size: int, interpolation: Any = BILINEAR, antialias: bool | None = True) -> None:
        super().__init__()
        if not 0 < min_size < max_size:
            raise ValueError(f"RandomResize: 0 < min_size < max_size, got {min_size} and {max_size}")
        self.min_size, self.max_size, self.interpolation, self.antialias = min_size, max_size, interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"size": self.min_size + integer(self.max_size - self.min_size)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resize(inpt, params["size"], self.interpolation, antialias=self.antialias)
