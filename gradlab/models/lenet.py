"""LeNet-5: LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition" (1998), section II.

As it is usually built today: the second convolution sees all channels of the first, pooling has no weights, the last layer is linear.
"""

from __future__ import annotations

from gradlab import Tensor, nn


class LeNet(nn.Module):
    """float32 pictures [batch, in_channels, size, size] to logits [batch, num_classes]; 61,706 parameters for digits of 28×28.

    Two 5×5 convolutions of 6 and 16 channels, each followed by tanh and an average over 2×2, then layers of 120 and 84 neurons.
    ValueError where the pictures are smaller than 12×12 or of another size than the network was made for.

    >>> import gradlab as gl
    >>> net = gl.models.LeNet()
    >>> net(gl.randn(5, 1, 28, 28)).shape
    (5, 10)
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, size: int = 28) -> None:
        super().__init__()
        if size < 12:
            raise ValueError(f"LeNet: two convolutions of 5×5 need pictures of at least 12×12, not {size}×{size}; make them larger first")
        self.size, side = size, (size // 2 - 4) // 2
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(16 * side * side, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, num_classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) != (self.size, self.size):
            raise ValueError(f"LeNet: made for pictures of {self.size}×{self.size}, got {tuple(images.shape)}; pass size=")
        logits: Tensor = self.classifier(self.features(images))
        return logits
