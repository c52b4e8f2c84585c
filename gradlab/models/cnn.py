"""A small convolutional network for images of any size and number of channels."""

from __future__ import annotations

from gradlab import Tensor, nn


class CNN(nn.Module):
    """Float images [batch, channels, height, width] to logits [batch, classes]: `stages` pairs of 3x3 convolutions with batch norm, each
    pair but the first at half the size and twice the width, then an average over the picture.

    width: channels of the first stage. dropout: before the last layer. After Simonyan and Zisserman, "Very Deep Convolutional Networks for
    Large-Scale Image Recognition" (2014), with Ioffe and Szegedy's batch norm (2015) and Lin, Chen and Yan's global average (2013).

    >>> import gradlab as gl
    >>> gl.models.CNN(classes=5, channels=3, stages=3)(gl.zeros(2, 3, 40, 28)).shape
    (2, 5)
    """

    def __init__(self, classes: int, channels: int = 3, width: int = 32, stages: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inp = channels
        for stage in range(stages):
            out = width * 2**stage
            layers += [nn.MaxPool2d(2)] if stage else []
            for _ in range(2):
                # No bias before a batch norm: it would be subtracted again.
                layers += [nn.Conv2d(inp, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
                inp = out
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(inp, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(self.features(images).mean((2, 3))))
        return logits
