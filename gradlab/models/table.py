"""A model of tables: a linear part, and beside it embeddings of categories and layers on top of them."""

from __future__ import annotations

from collections.abc import Sequence

import gradlab as gl
from gradlab import Tensor, nn


class TableModel(nn.Module):
    """Numbers, float32 [rows, numbers], and categories, int64 [rows, len(sizes)], to float32 [rows, outputs].

    The result is a linear model's (a factor for each number, a summand for each category) plus a network's: embeddings of the categories
    (Guo and Berkhahn, "Entity embeddings of categorical variables", 2016), then layers with batch norm. The two side by side are of Cheng
    and others, "Wide & deep learning for recommender systems", 2016. The network's last layer begins with zeros, so the model begins as
    its linear part.

    >>> net = gl.models.TableModel(2, [5, 3], 1)  # two columns of numbers, two of 5 and 3 categories
    >>> net(gl.tensor([[0.5, -1.0], [0.2, 2.0]]), gl.tensor([[4, 2], [0, 1]])).tolist()
    [[0.0], [0.0]]
    """

    def __init__(self, numbers: int, sizes: Sequence[int], outputs: int, hidden: Sequence[int] = (64, 32), dropout: float = 0.1) -> None:
        super().__init__()
        self.wide = nn.Linear(numbers, outputs)
        self.shifts = nn.ModuleList([nn.Embedding(size, outputs) for size in sizes])
        widths = [min(50, round(1.6 * size**0.56)) for size in sizes]  # as many as fastai's tables have
        self.embeddings = nn.ModuleList([nn.Embedding(size, width) for size, width in zip(sizes, widths, strict=True)])
        layers: list[nn.Module] = []
        width = numbers + sum(widths)
        for size in hidden:
            layers += [nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        last = nn.Linear(width, outputs)
        self.deep = nn.Sequential(*layers, last)
        for module in (self.wide, *self.shifts, last):
            for parameter in module.parameters():
                nn.init.zeros_(parameter)

    def linear(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """The linear part alone."""
        found: Tensor = self.wide(numbers)
        for i, shift in enumerate(self.shifts):
            found = found + shift(categories[:, i])
        return found

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        parts = [numbers, *(embedding(categories[:, i]) for i, embedding in enumerate(self.embeddings))]
        return self.linear(numbers, categories) + self.deep(gl.cat(parts, 1))
