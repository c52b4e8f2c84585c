"""The networks that a run of images can train, made to fit the images' size, and the statistics that stand before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import gradlab as gl
from gradlab import Tensor, models, nn
from gradlab.data import ImageError
from gradlab.models.mobilenet import SMALL


class Standardize(nn.Module):
    """(images - mean) / deviation by channel: the statistics of the training images, kept with the model."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", gl.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("deviation", gl.tensor(deviation).reshape(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.deviation


def _stages(side: int) -> int:
    """Halvings that leave four pixels or more."""
    return min(4, max(2, int(np.log2(max(side, 8) / 4)) + 1))


def _patch(size: tuple[int, int]) -> int:
    """The side of a ViT's patches: about an eighth of the images', which are square."""
    if size[0] != size[1]:
        raise ImageError(f"a ViT takes square images, not {size[0]}x{size[1]}: give --size, or size in the settings")
    return min((p for p in range(2, size[0] + 1) if size[0] % p == 0), key=lambda p: abs(p - size[0] / 8))


NETWORKS: dict[str, Callable[[int, int, tuple[int, int]], nn.Module]] = {  # of classes, channels and (height, width)
    "cnn": lambda classes, channels, size: models.CNN(classes, channels, stages=_stages(min(size))),
    "resnet20": lambda classes, channels, size: models.resnet20(classes, channels),
    "mobilenet": lambda classes, channels, size: models.MobileNet(classes, channels, 0.5, SMALL, stride=1, dropout=0.1),
    "vit": lambda classes, channels, size: models.ViT(size[0], _patch(size), channels, classes, dim=96, depth=6, dropout=0.1),
    "mlp": lambda classes, channels, size: nn.Sequential(
        nn.Flatten(), nn.Linear(channels * size[0] * size[1], 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, classes)
    ),
}
