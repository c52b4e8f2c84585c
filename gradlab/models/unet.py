"""U-Net: Ronneberger, Fischer, Brox, "U-Net: convolutional networks for biomedical image segmentation" (2015).

As it is usually built today: convolutions keep the size (padding of 1), with batch norm.
"""

from __future__ import annotations

import gradlab as gl
from gradlab import Tensor, nn


def twice(inp: int, out: int) -> nn.Sequential:
    """Two 3×3 convolutions, each with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inp, out):
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """float32 pictures [batch, in_channels, height, width] to one number for each pixel and output, [batch, out_channels, height, width].

    The way down halves the picture `depth` times and doubles the channels, of which there are `width` at first; the way up undoes it, and
    gets the channels of the same size from the way down beside its own. Height and width have to be multiples of 2**depth, else ValueError.

    >>> import gradlab as gl
    >>> net = gl.models.UNet(in_channels=1, out_channels=2, width=8, depth=2)
    >>> net(gl.randn(5, 1, 8, 12)).shape
    (5, 2, 8, 12)
    """

    def __init__(self, in_channels: int = 1, out_channels: int = 1, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        self.depth = depth
        self.down = nn.ModuleList([twice(inp, out) for inp, out in zip([in_channels, *sizes[:-2]], sizes[:-1], strict=True)])
        self.bottom = twice(sizes[-2] if depth else in_channels, sizes[-1])
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in sizes[-2::-1]])
        self.joined = nn.ModuleList([twice(2 * size, size) for size in sizes[-2::-1]])
        self.head = nn.Conv2d(width, out_channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if height % 2**self.depth or width % 2**self.depth:
            raise ValueError(f"UNet: pictures of {height}×{width} cannot be halved {self.depth} times; pad them, or choose a smaller depth")
        x, beside = images, []
        for block in self.down:
            x = block(x)
            beside.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, block in zip(self.up, self.joined, strict=True):
            x = block(gl.cat([beside.pop(), up(x)], 1))
        found: Tensor = self.head(x)
        return found
