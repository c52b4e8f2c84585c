"""The models in gradlab.models: sizes, shapes, one step of learning."""

import pytest

import gradlab as gl
from gradlab.models import GPT, GPTConfig, resnet20
from gradlab.nn import functional as F


def learns(net, x, y):
    """Whether a few steps on one batch lower its loss."""
    optimizer = gl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x).reshape(-1, 10), y.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < losses[0]


def test_resnet20():
    gl.manual_seed(0)
    net = resnet20()
    assert sum(p.numel() for p in net.parameters()) == 269_722
    x = gl.randn(4, 3, 16, 16)
    assert net(x).shape == (4, 10)
    assert learns(net, x, gl.tensor([0, 1, 2, 3]))


def test_gpt():
    gl.manual_seed(0)
    assert sum(p.numel() for p in GPT().parameters()) == 826_368
    net = GPT(GPTConfig(vocab_size=10, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1))
    tokens = gl.randint(0, 10, (3, 9))
    assert learns(net, tokens[:, :-1], tokens[:, 1:])
    net.eval()
    with gl.no_grad():
        whole = net(tokens[:, :8])
        assert gl.allclose(net(tokens[:, :5]), whole[:, :5], atol=1e-5)  # earlier tokens do not see later ones
    with pytest.raises(ValueError, match="block_size"):
        net(tokens)
    with pytest.raises(ValueError, match="divisible"):
        GPTConfig(n_embd=10, n_head=3)
