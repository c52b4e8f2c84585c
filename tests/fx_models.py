"""Models that the tests of `gradlab.fx` trace."""

import math

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import nn


class Block(nn.Module):
    def __init__(self, inside=4):
        super().__init__()
        self.conv = nn.Conv2d(3, inside, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(inside)
        self.down = nn.Sequential(nn.Conv2d(3, inside, 1), nn.BatchNorm2d(inside))
        self.gain = nn.Parameter(gl.ones(1) * 2)
        self.register_buffer("shift", gl.ones(1))
        self.register_buffer("hidden", gl.ones(1), persistent=False)

    def forward(self, x, scale=2.0):
        y = F.relu(self.bn(self.conv(x)), inplace=True)
        y = y + self.down(x) * self.gain + self.shift
        a, b = y.chunk(2, dim=1)
        y = gl.cat([a * 2, -b], dim=1)
        return y.view(y.shape[0], -1).mean(dim=1) * scale


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        weights = gl.softmax(q @ k.transpose(-2, -1) / math.sqrt(4), dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(n, t, d))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(10, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, tokens, state=None):
        y, (h, _) = self.rnn(self.embed(tokens), state)
        return {"logits": self.head(y), "last": [h[-1], tokens.size(0)]}


MODELS = {
    "block": (Block, lambda: (gl.randn(2, 3, 4, 4),)),
    "attention": (Attention, lambda: (gl.randn(2, 3, 8),)),
    "recurrent": (Recurrent, lambda: (gl.randint(0, 10, (2, 3)),)),
    "sequential": (
        lambda: nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), nn.Flatten()),
        lambda: (gl.ones(2, 2),),
    ),
    "transformer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 1)),
        lambda: (gl.randn(2, 3, 8),),
    ),
    "function": (lambda: lambda x: F.gelu(gl.exp(x) - 1).clamp(min=0)[:, None, ...] @ gl.ones(3, 2), lambda: (gl.randn(2, 3),)),
}  # fmt: skip


def made(name):
    gl.manual_seed(0)
    make, arguments = MODELS[name]
    model = make()
    return (model.eval() if isinstance(model, nn.Module) else model), arguments()


def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in flat(part)] if isinstance(value, (list, tuple)) else [value]


def alike(a, b, atol=0.0):
    for x, y in zip(flat(a), flat(b), strict=True):
        assert gl.allclose(x, y, rtol=0, atol=atol) if isinstance(x, gl.Tensor) else x == y
