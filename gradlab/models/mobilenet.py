"""MobileNet: Howard and others, "MobileNets: efficient convolutional neural networks for mobile vision applications" (2017), table 1.

A 3×3 convolution of each channel by itself (depthwise), then a 1×1 convolution that mixes channels (pointwise): about a ninth of the
products of a whole 3×3 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradlab import Tensor, nn

IMAGENET = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
SMALL = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))


def convolution(inp: int, out: int, kernel: int, stride: int, groups: int = 1) -> list[nn.Module]:
    """A convolution with batch norm and ReLU. No bias before a batch norm: it would be subtracted again."""
    layer = nn.Conv2d(inp, out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(out), nn.ReLU()]


class MobileNet(nn.Module):
    """float32 pictures [batch, in_channels, height, width] to logits [batch, num_classes].

    layers: (channels, stride) of each pair of a depthwise and a pointwise convolution. The paper's (`IMAGENET`, 4,231,976 parameters for
    1000 classes) are for pictures of 224×224; `SMALL` is for those of 8×8 to 64×64, best with stride=1. stride: of the first convolution.
    width: multiplies all numbers of channels (section 3.3), to at least 8.

    >>> import gradlab as gl
    >>> from gradlab.models.mobilenet import SMALL
    >>> net = gl.models.MobileNet(10, in_channels=1, width=0.5, layers=SMALL, stride=1)
    >>> net(gl.randn(5, 1, 8, 8)).shape
    (5, 10)
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        width: float = 1.0,
        layers: Sequence[tuple[int, int]] = IMAGENET,
        stride: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels = max(8, int(32 * width))
        parts = convolution(in_channels, channels, 3, stride)
        for size, step in layers:
            out = max(8, int(size * width))
            parts += [*convolution(channels, channels, 3, step, groups=channels), *convolution(channels, out, 1, 1)]
            channels = out
        self.features = nn.Sequential(*parts)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(self.features(images).mean((2, 3))))
        return logits
