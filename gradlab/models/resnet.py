"""Residual networks: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition" (2015).

For 32x32 pictures (section 4.2), `resnet20` and its kin. Depth 6n + 2: a convolution, three stages of n blocks with 16, 32 and 64
channels, an average over the picture, a linear layer. Where the picture is halved and the channels doubled, the shortcut has no
parameters: every second pixel, new channels zero (option A).

For large pictures (section 4.1), `resnet18` and `resnet34`: four stages of 64 to 512 channels, and shortcuts with parameters.
"""

from collections.abc import Sequence

from gradlab import Tensor, nn
from gradlab.nn import functional as F

WIDTHS = (16, 32, 64)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added. [batch, inp, h, w] to [batch, out, h/stride, w/stride]."""

    def __init__(self, inp: int, out: int, stride: int = 1) -> None:
        super().__init__()
        # No bias before a batch norm: it would be subtracted again.
        self.conv1 = nn.Conv2d(inp, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.stride, self.added = stride, out - inp

    def shortcut(self, x: Tensor) -> Tensor:
        """The input in the shape of the output."""
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        half = self.added // 2
        return F.pad(x, (0, 0, 0, 0, half, self.added - half)) if self.added else x

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """float32 pictures [batch, 3, 32, 32] (other sizes work too) to logits [batch, num_classes], with `blocks` blocks in each stage."""

    def __init__(self, blocks: int, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = self._stage(blocks, WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = self._stage(blocks, WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = self._stage(blocks, WIDTHS[1], WIDTHS[2], 2)
        self.fc = nn.Linear(WIDTHS[2], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    @staticmethod
    def _stage(blocks: int, inp: int, out: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(inp, out, stride), *(BasicBlock(out, out) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet20(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """Three blocks in each stage; 269,722 parameters for 10 classes of pictures in colour.

    >>> import gradlab as gl
    >>> gl.models.resnet20()(gl.randn(2, 3, 32, 32)).shape
    (2, 10)
    """
    return ResNet(3, num_classes, in_channels)


def resnet32(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """Five blocks in each stage."""
    return ResNet(5, num_classes, in_channels)


def resnet56(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """Nine blocks in each stage."""
    return ResNet(9, num_classes, in_channels)


class ProjectedBlock(BasicBlock):
    """As BasicBlock, with a 1×1 convolution and a batch norm as the shortcut where the shape changes (option B)."""

    def __init__(self, inp: int, out: int, stride: int = 1) -> None:
        super().__init__(inp, out, stride)
        self.downsample = None
        if stride != 1 or inp != out:
            self.downsample = nn.Sequential(nn.Conv2d(inp, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def shortcut(self, x: Tensor) -> Tensor:
        return x if self.downsample is None else self.downsample(x)


class ImageResNet(nn.Module):
    """float32 pictures [batch, in_channels, height, width] to logits [batch, num_classes]: the networks of section 4.1.

    Parameters are named as torchvision's are, so that its files of weights fit. small: begin with a 3×3 convolution, for pictures of up to
    about 64×64, instead of a 7×7 one and pooling, which make a picture four times smaller.
    """

    def __init__(self, blocks: Sequence[int], num_classes: int = 1000, in_channels: int = 3, small: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 3 if small else 7, stride=1 if small else 2, padding=1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(blocks[0], 64, 64, 1)
        self.layer2 = self._stage(blocks[1], 64, 128, 2)
        self.layer3 = self._stage(blocks[2], 128, 256, 2)
        self.layer4 = self._stage(blocks[3], 256, 512, 2)
        self.fc = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(blocks: int, inp: int, out: int, stride: int) -> nn.Sequential:
        return nn.Sequential(ProjectedBlock(inp, out, stride), *(ProjectedBlock(out, out) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18(num_classes: int = 1000, in_channels: int = 3, small: bool = False) -> ImageResNet:
    """Two blocks in each of four stages; 11,689,512 parameters for 1000 classes of pictures in colour.

    >>> import gradlab as gl
    >>> net = gl.models.resnet18(10, in_channels=1, small=True)
    >>> net(gl.randn(2, 1, 8, 8)).shape
    (2, 10)
    """
    return ImageResNet((2, 2, 2, 2), num_classes, in_channels, small)


def resnet34(num_classes: int = 1000, in_channels: int = 3, small: bool = False) -> ImageResNet:
    """Three, four, six and three blocks; 21,797,672 parameters for 1000 classes of pictures in colour."""
    return ImageResNet((3, 4, 6, 3), num_classes, in_channels, small)
