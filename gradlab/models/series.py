"""A model of series: the last value or the last season carried on, a linear part, and beside it a recurrent or a convolutional network."""

from __future__ import annotations

from typing import Literal

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


class CausalBlock(nn.Module):
    """Two dilated convolutions that see no later step, added to their input: float32 [batch, channels, steps] to the same."""

    def __init__(self, channels: int, dilation: int, kernel: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.before = (kernel - 1) * dilation
        self.first = nn.Conv1d(channels, channels, kernel, dilation=dilation)
        self.second = nn.Conv1d(channels, channels, kernel, dilation=dilation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(F.relu(self.first(F.pad(x, (self.before, 0)))))
        y = self.dropout(F.relu(self.second(F.pad(y, (self.before, 0)))))
        return x + y


class SeriesModel(nn.Module):
    """A window, float32 [batch, window, columns], to the steps after it, float32 [batch, horizon, values]; values are the first columns.

    The result is a sum of three. First a value of the window: the last, or that of the same place in the last season, or none
    (`start_from`). Then a linear function of the whole window, relative to its last value, as of Zeng and others, "Are transformers
    effective for time series forecasting?", 2023 (NLinear). Then a network on the same: "gru", of Cho and others, "Learning phrase
    representations using RNN encoder-decoder", 2014; or "convolutions", dilated and causal, as of van den Oord and others, "WaveNet",
    2016, in the blocks of Bai and others, "An empirical evaluation of generic convolutional and recurrent networks for sequence
    modeling", 2018. Both linear parts begin with zeros, so the model begins as the naive forecast.

    >>> net = gl.models.SeriesModel(window=4, columns=1, horizon=2)
    >>> net(gl.tensor([[[1.0], [2.0], [3.0], [5.0]]])).tolist()
    [[[5.0], [5.0]]]
    """

    def __init__(
        self, window: int, columns: int, horizon: int, values: int = 1, *, network: Literal["gru", "convolutions"] = "gru",
        width: int = 32, dropout: float = 0.1,
    ) -> None:  # fmt: skip
        super().__init__()
        if network not in ("gru", "convolutions"):
            raise ValueError(f'SeriesModel: network is "gru" or "convolutions", not {network!r}')
        self.window, self.columns, self.horizon, self.values, self.network = window, columns, horizon, values, network
        self.register_buffer("places", gl.full((horizon,), window - 1))
        self.register_buffer("carried", gl.ones(()))
        self.linear = nn.Linear(window * columns, horizon * values)
        if network == "gru":
            self.recurrent = nn.GRU(columns + values, width, batch_first=True)
        else:
            self.inner = nn.Conv1d(columns + values, width, 1)
            dilations = [2**i for i in range(8) if not i or 4 * (2**i - 1) + 1 < window]  # as many blocks as see the whole window
            self.blocks = nn.Sequential(*(CausalBlock(width, dilation, dropout=dropout) for dilation in dilations))
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, horizon * values)
        for parameter in (*self.linear.parameters(), *self.last.parameters()):
            nn.init.zeros_(parameter)

    def start_from(self, back: int) -> None:
        """Carry on the last value (1) or the last season, of so many steps; 0: nothing. ValueError for more steps than a window has."""
        if not 0 <= back <= self.window:
            raise ValueError(f"SeriesModel.start_from: a season of {back} steps is not in a window of {self.window}")
        with gl.no_grad():
            self.carried.fill_(min(back, 1))
            self.places.copy_(self.window - max(back, 1) + gl.arange(self.horizon) % max(back, 1))

    def relative(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The window with its values relative to the last, [batch, window, columns], and that value, [batch, 1, values]."""
        level = x[:, -1:, : self.values]
        return gl.cat([x[:, :, : self.values] - level, x[:, :, self.values :]], 2), level

    def features(self, x: Tensor) -> Tensor:
        """What the linear part sees, [batch, window · columns]: the relative window, with the last value where that would be 0."""
        moved, level = self.relative(x)
        return gl.cat([gl.cat([moved[:, :-1, : self.values], level], 1).flatten(1), moved[:, :, self.values :].flatten(1)], 1)

    def naive(self, x: Tensor) -> Tensor:
        """The part that is carried on."""
        return self.carried * x[:, :, : self.values].index_select(1, self.places)

    def without_network(self, x: Tensor) -> Tensor:
        """What is carried on and the linear part alone."""
        return self.naive(x) + self.linear(self.features(x)).unflatten(1, (self.horizon, self.values))

    def forward(self, x: Tensor) -> Tensor:
        moved, level = self.relative(x)
        seen = gl.cat([moved, level.expand(-1, self.window, -1)], 2)
        if self.network == "gru":
            found = self.recurrent(seen)[0][:, -1]
        else:
            found = F.relu(self.blocks(self.inner(seen.transpose(1, 2)))[:, :, -1])
        return self.without_network(x) + self.last(self.dropout(found)).unflatten(1, (self.horizon, self.values))
