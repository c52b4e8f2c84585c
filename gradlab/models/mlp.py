"""Fully connected layers: Rumelhart, Hinton, Williams, "Learning representations by back-propagating errors" (1986)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradlab import Tensor, nn


class MLP(nn.Module):
    """float32 [batch, inputs], or [batch, …] of as many numbers a row, to float32 [batch, outputs], through layers of the sizes `hidden`.

    Each hidden layer is linear, with a batch norm after it where `norm` is set, then `activation`, then dropout. The last layer is linear.

    >>> import gradlab as gl
    >>> net = gl.models.MLP(64, (128, 128), 10)
    >>> net(gl.randn(5, 1, 8, 8)).shape
    (5, 10)
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
        dropout: float = 0.0,
        norm: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        width = inputs
        for size in hidden:
            layers.append(nn.Linear(width, size))
            if norm:
                layers.append(nn.BatchNorm1d(size))
            layers.append(activation())
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.layers = nn.Sequential(*layers, nn.Linear(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found
