"""Batches whose images, and labels, are mixed with one another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradlab.distributions import Beta
from gradlab.nn.functional import one_hot
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.transforms.base import Transform, images_in, integer, leaves, rebuilt
from gradlab.transforms.functional.geometry import floating, rounded


class _Mixing(Transform):
    """What MixUp and CutMix share: a share drawn from Beta(alpha, alpha), labels, and pairs (an image and the one before it)."""

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Callable[[Any], Any] | str = "default"
    ) -> None:
        super().__init__()
        if alpha <= 0:
            raise ValueError(f"{type(self).__name__}: alpha is positive, not {alpha}")
        self.alpha, self.num_classes, self.labels_getter = float(alpha), num_classes, labels_getter

    def _labels(self, whole: Any, images: Tensor) -> Tensor:
        if callable(self.labels_getter):
            found = self.labels_getter(whole)
        else:
            others = [leaf for leaf in leaves(whole) if isinstance(leaf, Tensor) and leaf is not images and leaf.ndim in (1, 2)]
            found = others[0] if others else None
        name, count = type(self).__name__, images.shape[0]
        if not isinstance(found, Tensor) or found.ndim not in (1, 2) or found.shape[0] != count:
            raise ValueError(
                f"{name}: takes a batch of images and their labels, a tensor ({count},) of classes or ({count}, classes) of shares; "
                f"got {'no labels' if found is None else getattr(found, 'shape', type(found).__name__)}; see labels_getter"
            )
        if found.ndim == 1 and self.num_classes is None:
            raise ValueError(f"{name}: num_classes is needed for labels that are classes")
        return found

    def forward(self, *inputs: Any) -> Any:
        whole = inputs if len(inputs) != 1 else inputs[0]
        found = images_in(whole)
        if not found or not isinstance(found[0], Tensor) or found[0].ndim != 4:
            shape = getattr(found[0], "shape", None) if found else None
            raise ValueError(
                f"{type(self).__name__}: takes a batch of images, a tensor (n, channels, height, width), not {shape}; call it on batches"
            )
        images = found[0]
        labels = self._labels(whole, images)
        share = float(Beta(tensor(self.alpha, dtype="float64"), tensor(self.alpha, dtype="float64")).sample().item())
        mixed, share = self.mixed(images, share)
        shares = one_hot(labels, self.num_classes or -1).float() if labels.ndim == 1 else floating(labels)
        changed = {id(images): mixed, id(labels): shares.roll(1, 0) * (1 - share) + shares * share}
        return rebuilt(whole, lambda leaf: changed.get(id(leaf), leaf))

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        """The images mixed, and how much of each is its own."""
        raise NotImplementedError


class MixUp(_Mixing):
    """Images and labels of a batch, each λ of itself and 1 - λ of the one before it, λ drawn from Beta(alpha, alpha) (Zhang et al., 2018).

    Labels become shares (n, num_classes), as `cross_entropy` takes them. labels_getter: a function that finds them in the input; the
    default takes the first tensor (n,) or (n, classes) beside the images.

    >>> images, labels = gl.transforms.MixUp(num_classes=3)(gl.rand(4, 1, 2, 2), gl.tensor([0, 1, 2, 0]))
    >>> images.shape, labels.shape
    ((4, 1, 2, 2), (4, 3))
    """

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        x = floating(images)
        return rounded(x.roll(1, 0) * (1.0 - share) + x * share, images), share


class CutMix(_Mixing):
    """Images of a batch with a rectangle of the one before it, labels in proportion; its area is 1 - λ of λ from Beta(alpha, alpha), or
    what of that lies in the image (Yun et al., 2019). Labels as in `MixUp`.

    >>> images, labels = gl.transforms.CutMix(num_classes=3)(gl.rand(4, 1, 8, 8), gl.tensor([0, 1, 2, 0]))
    >>> images.shape, labels.shape
    ((4, 1, 8, 8), (4, 3))
    """

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        high, wide = images.shape[-2:]
        across, down = integer(wide), integer(high)
        half = 0.5 * math.sqrt(1.0 - share)
        left, right = max(across - int(half * wide), 0), min(across + int(half * wide), wide)
        top, bottom = max(down - int(half * high), 0), min(down + int(half * high), high)
        found = images.clone()
        found[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return found, 1.0 - (right - left) * (bottom - top) / (wide * high)
