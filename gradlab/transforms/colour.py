"""Colours, by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.tensor.random import randperm
from gradlab.transforms import functional as F
from gradlab.transforms.base import RandomTransform, Transform, interval, uniform
from gradlab.transforms.functional.kinds import get_num_channels

ADJUSTED = ("brightness", "contrast", "saturation", "hue")


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed by factors drawn anew, in an order drawn anew.

    brightness, contrast, saturation: (from, to), or a number v for (1 - v, 1 + v), not below 0. hue: (from, to) within -0.5 to 0.5, or a
    number v for (-v, v). None or 0 leaves one as it is. Of grey images brightness and contrast change.

    >>> gl.transforms.ColorJitter(brightness=0.4, hue=0.1)(gl.rand(3, 4, 4)).shape
    (3, 4, 4)
    """

    def __init__(self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None) -> None:
        super().__init__()
        given = dict(zip(ADJUSTED, (brightness, contrast, saturation, hue), strict=True))
        bounds = {
            what: interval("ColorJitter", value, what, around=1.0, low=0) if what != "hue" else interval("ColorJitter", value, what)
            for what, value in given.items() if value is not None and value != 0
        }  # fmt: skip
        if "hue" in bounds and not -0.5 <= bounds["hue"][0] <= bounds["hue"][1] <= 0.5:
            raise ValueError(f"ColorJitter: hue is within -0.5 to 0.5, not {hue!r}")
        self.brightness, self.contrast, self.saturation, self.hue = (bounds.get(what) for what in ADJUSTED)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        order = [ADJUSTED[i] for i in randperm(4).tolist()]
        factors = {what: uniform(*getattr(self, what)) for what in ADJUSTED if getattr(self, what) is not None}
        return {what: factors[what] for what in order if what in factors}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        for what, factor in params.items():
            inpt = getattr(F, f"adjust_{what}")(inpt, factor)
        return inpt


class Grayscale(Transform):
    """Images without their colours, in one channel or thrice."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels is 1 or 3, not {num_output_channels}")
        self.num_output_channels = num_output_channels

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.rgb_to_grayscale(inpt, self.num_output_channels)


class RGB(Transform):
    """Images of three channels: a grey one's thrice."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.grayscale_to_rgb(inpt)


class RandomGrayscale(RandomTransform):
    """Images without their colours, of as many channels as before, with probability `p`."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.rgb_to_grayscale(inpt, get_num_channels(inpt))


class RandomInvert(RandomTransform):
    """The negative of images, with probability `p`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.invert(inpt)


class RandomPosterize(RandomTransform):
    """Images of `bits` bits, with probability `p`."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.posterize(inpt, self.bits)


class RandomSolarize(RandomTransform):
    """Images whose levels from `threshold` up are inverted, with probability `p`."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.solarize(inpt, self.threshold)


class RandomAdjustSharpness(RandomTransform):
    """Images made sharper or smoother, with probability `p`; see `functional.adjust_sharpness`."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.adjust_sharpness(inpt, self.sharpness_factor)


class RandomAutocontrast(RandomTransform):
    """Images whose channels reach from black to white, with probability `p`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.autocontrast(inpt)


class RandomEqualize(RandomTransform):
    """Images whose levels are about as frequent, with probability `p`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.equalize(inpt)


class RandomChannelPermutation(Transform):
    """Images with their channels in an order drawn anew."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"permutation": randperm(get_num_channels(flat_inputs[0])).tolist()}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.permute_channels(inpt, **params)


class RandomPhotometricDistort(Transform):
    """Brightness, contrast, saturation, hue and the channels' order changed, each with probability `p` (Liu et al., SSD, 2016)."""

    def __init__(
        self, brightness: Sequence[float] = (0.875, 1.125), contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5), hue: Sequence[float] = (-0.05, 0.05), p: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.brightness, self.contrast, self.saturation, self.hue, self.p = brightness, contrast, saturation, hue, p

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        first = uniform() < 0.5  # contrast comes before or after saturation and hue
        order = ["brightness", *(["contrast"] if first else []), "saturation", "hue", *([] if first else ["contrast"])]
        found: dict[str, Any] = {what: uniform(*getattr(self, what)) for what in order if uniform() < self.p}
        if uniform() < self.p:
            found["permutation"] = randperm(get_num_channels(flat_inputs[0])).tolist()
        return found

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        for what, value in params.items():
            inpt = F.permute_channels(inpt, value) if what == "permutation" else getattr(F, f"adjust_{what}")(inpt, value)
        return inpt
