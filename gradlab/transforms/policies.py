"""Several changes at once, by policies that need no search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from gradlab.transforms import functional as F
from gradlab.transforms.base import Transform, integer, uniform
from gradlab.transforms.functional.kinds import InterpolationMode, bound, get_dimensions, taken

NEAREST = InterpolationMode.NEAREST
# Of the changes that have a strength: from which to which it goes over the bins, and whether it may be turned round.
Table = dict[str, tuple[Callable[[int, int, int], Any], bool]]  # of (bins, height, width)


def _rising(last: float) -> Callable[[int, int, int], Any]:
    return lambda bins, high, wide: np.linspace(0.0, last, bins)


def _bits(most: int) -> Callable[[int, int, int], Any]:
    """Fewer and fewer bits of 8."""
    return lambda bins, high, wide: 8 - np.round(np.arange(bins) / ((bins - 1) / most))


COLOURS = ("Brightness", "Color", "Contrast", "Sharpness")
PLAIN: Table = {name: (lambda bins, high, wide: np.zeros(bins), False) for name in ("Identity", "AutoContrast", "Equalize")}
INVERTED: Table = {"Solarize": (lambda bins, high, wide: np.linspace(1.0, 0.0, bins), False)}


class _Policy(Transform):
    """What the policies share: a table of changes, bins of strength, and how a change is made."""

    table: ClassVar[Table]

    def __init__(self, num_magnitude_bins: int = 31, interpolation: Any = NEAREST, fill: Any = None) -> None:
        super().__init__()
        if num_magnitude_bins < 2:
            raise ValueError(f"{type(self).__name__}: num_magnitude_bins is 2 or more, not {num_magnitude_bins}")
        self.num_magnitude_bins, self.interpolation, self.fill = num_magnitude_bins, interpolation, fill

    def _drawn(self, image: Any, bin: int | None) -> tuple[str, float]:
        """A change and its strength: that of the bin, or of one that is drawn."""
        _, high, wide = get_dimensions(image)
        name = list(self.table)[integer(len(self.table))]
        strengths, signed = self.table[name]
        strength = float(strengths(self.num_magnitude_bins, high, wide)[integer(self.num_magnitude_bins) if bin is None else bin])
        return name, -strength if signed and uniform() < 0.5 else strength

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        for name, strength in params["steps"]:
            inpt = self._changed(inpt, name, strength)
        return inpt

    def _changed(self, image: Any, name: str, strength: float) -> Any:
        if name in COLOURS:
            adjust = {"Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast}
            return adjust.get(name, F.adjust_sharpness)(image, 1.0 + strength)
        if name in ("ShearX", "ShearY"):
            turn = math.degrees(math.atan(strength))
            shear = [turn, 0.0] if name == "ShearX" else [0.0, turn]
            return F.affine(image, 0.0, [0, 0], 1.0, shear, self.interpolation, self.fill, [0, 0])
        if name in ("TranslateX", "TranslateY"):
            shift = [int(strength), 0] if name == "TranslateX" else [0, int(strength)]
            return F.affine(image, 0.0, shift, 1.0, [0.0, 0.0], self.interpolation, self.fill)
        if name == "Rotate":
            return F.rotate(image, strength, self.interpolation, fill=self.fill)
        if name == "Posterize":
            return F.posterize(image, int(strength))
        if name == "Solarize":
            return F.solarize(image, strength * bound(taken(name, image)[0]))
        return {"AutoContrast": F.autocontrast, "Equalize": F.equalize}.get(name, lambda x: x)(image)


class RandAugment(_Policy):
    """`num_ops` changes drawn of 14, each of strength `magnitude` of num_magnitude_bins (Cubuk et al., 2020).

    >>> gl.transforms.RandAugment()(gl.rand(3, 8, 8)).shape
    (3, 8, 8)
    """

    table: ClassVar[Table] = {
        **PLAIN, "ShearX": (_rising(0.3), True), "ShearY": (_rising(0.3), True),
        "TranslateX": (lambda bins, high, wide: np.linspace(0.0, 150.0 / 331.0 * wide, bins), True),
        "TranslateY": (lambda bins, high, wide: np.linspace(0.0, 150.0 / 331.0 * high, bins), True),
        "Rotate": (_rising(30.0), True), **{name: (_rising(0.9), True) for name in COLOURS}, "Posterize": (_bits(4), False), **INVERTED,
    }  # fmt: skip

    def __init__(
        self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation: Any = NEAREST,
        fill: float | Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_magnitude_bins, interpolation, fill)
        if num_ops < 0 or not 0 <= magnitude < num_magnitude_bins:
            raise ValueError(f"RandAugment: magnitude is from 0 to {num_magnitude_bins - 1}, num_ops from 0; got {magnitude} and {num_ops}")
        self.num_ops, self.magnitude = num_ops, magnitude

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"steps": [self._drawn(flat_inputs[0], self.magnitude) for _ in range(self.num_ops)]}


class TrivialAugmentWide(_Policy):
    """One change drawn of 14, of a strength that is drawn (Müller and Hutter, 2021).

    >>> gl.transforms.TrivialAugmentWide()(gl.rand(3, 8, 8)).shape
    (3, 8, 8)
    """

    table: ClassVar[Table] = {
        **PLAIN, "ShearX": (_rising(0.99), True), "ShearY": (_rising(0.99), True), "TranslateX": (_rising(32.0), True),
        "TranslateY": (_rising(32.0), True), "Rotate": (_rising(135.0), True), **{name: (_rising(0.99), True) for name in COLOURS},
        "Posterize": (_bits(6), False), **INVERTED,
    }  # fmt: skip

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"steps": [self._drawn(flat_inputs[0], None)]}
