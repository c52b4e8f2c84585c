"""Two small classifiers of the 8x8 digits: a convolutional network, and a fully connected one to compare it with.

Both take float32 images [batch, 1, 8, 8] with values 0 to 1 and give float32 logits [batch, 10].
"""

from gradlab import Tensor, nn

CLASSES = 10
SIDE = 8


class DigitsCNN(nn.Module):
    """Three 3x3 convolutions of 16, 32 and 64 channels, with batch norm; 25,978 parameters.

    The picture is halved twice, so the last convolution's neurons see all of it. Dropout before the last layer keeps
    so few images from being learned by heart.

    >>> import gradlab as gl
    >>> gl.models.DigitsCNN()(gl.rand(5, 1, 8, 8)).shape
    (5, 10)
    """

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        # No bias before a batch norm: it would be subtracted again.
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(64 * (SIDE // 4) ** 2, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(self.features(images)))
        return logits


class DigitsMLP(nn.Module):
    """Two hidden layers of 128 neurons over the 64 pixels; 26,122 parameters, about as many as the DigitsCNN."""

    def __init__(self, hidden: int = 128, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(SIDE * SIDE, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits
