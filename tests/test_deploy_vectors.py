"""The C runner's own vector code beside eager: depthwise windows at every edge, activations behind products, softmax and attention of odd
lengths, and the cells of recurrent networks, with what is not finite among their numbers."""

import numpy as np
import pytest
from deployed import compiled, compiler, ran, traced

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
ACTIVATIONS = (F.relu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, gl.tanh, gl.sigmoid)
# channels, kernel, stride, padding, dilation, size: edges on no, one and both sides, taps that all lie outside, fewer pixels than a block
WINDOWS = (
    (16, (3, 3), 1, 1, 1, (7, 9)), (24, (3, 3), 2, 1, 1, (8, 8)), (16, (3, 3), 1, 0, 1, (3, 6)), (8, (5, 3), (2, 1), (2, 1), 1, (6, 5)),
    (16, (3, 3), 1, 2, 2, (5, 12)), (16, (3, 3), 3, 4, 1, (4, 3)), (32, (1, 4), 1, (0, 3), 2, (2, 11)), (12, (3, 3), 1, 1, 1, (5, 5)),
    (16, (3, 3), 1, (4, 5), 1, (1, 1)),
)  # fmt: skip


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.ModuleList([
            nn.Sequential(
                nn.Conv2d(c, c, 1), nn.Conv2d(c, c, kernel, stride, padding, dilation, groups=c, bias=i % 2 == 0), nn.ReLU(),
                nn.Conv2d(c, 8, 1),
            )
            for i, (c, kernel, stride, padding, dilation, _) in enumerate(WINDOWS)
        ])  # fmt: skip
        self.linear = nn.ModuleList([nn.Linear(5, 8 + 5 * i) for i in range(len(ACTIVATIONS))])
        self.lstm, self.gru = nn.LSTM(5, 19), nn.GRU(5, 21)

    def forward(self, lines, heads, *pictures):
        made = [layers(x) for layers, x in zip(self.depthwise, pictures, strict=True)]
        made += [f(layer(lines)) for f, layer in zip(ACTIVATIONS, self.linear, strict=True)]
        for n in (1, 7, 8, 17, 33):
            made += [F.softmax(heads[..., :n], -1), F.log_softmax(heads[..., :n], -1)]
            one = heads[:, :, : max(n // 2, 1)]
            made += [F.scaled_dot_product_attention(one, one, one, is_causal=causal) for causal in (False, True)]
        return [*made, self.lstm(lines)[0], self.gru(lines)[0]]


@pytest.mark.parametrize("special", [False, True])
def test_vectors_give_what_eager_gives(special, tmp_path):
    gl.manual_seed(0)
    lines, heads = gl.randn(3, 4, 5) * 3, gl.randn(2, 2, 17, 33)
    if special:
        lines[0] = gl.tensor([np.inf, -np.inf, np.nan, 200.0, -200.0])[None]
        heads[0, 0, :3, 4] = gl.tensor([np.nan, np.inf, -np.inf])
        heads[0, 1, 2, :] = -np.inf
    pictures = [gl.randn(2, c, *size) for c, _, _, _, _, size in WINDOWS]
    program, expected = traced(Everything(), lines, heads, *pictures)
    built = gl.deploy.build(program, tmp_path, name="everything")
    for result, y in zip(ran(compiled(built, "-O1", "-march=native"), built, [lines, heads, *pictures]), expected, strict=True):
        assert np.allclose(result, y.numpy(), rtol=1e-5, atol=2e-6, equal_nan=True)
