"""Operations that are counted by module; the numbers of the first test are PyTorch's (2.13, `torch.utils.flop_counter`)."""

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.profiler.flop_counter import FlopCounterMode


def test_forward_and_backward(capsys):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    x = gl.randn(2, 1, 8, 8, requires_grad=True)
    counter = FlopCounterMode(display=False)
    with counter:
        model(x)
    assert counter.get_total_flops() == 8064
    with counter:
        model(x).sum().backward()
    assert counter.get_total_flops() == 24192
    counts = counter.get_flop_counts()
    assert set(counts) == {"Global", "Sequential", "Sequential.0", "Sequential.3"} and sum(counts["Sequential.3"].values()) == 3 * 2880
    assert capsys.readouterr().out == ""
    with FlopCounterMode(depth=1) as shown:
        model(x)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"] and lines[1].split() == ["Global", "8,064", "100.00%"]
    assert not any("Sequential.0" in line for line in lines) and "Sequential.0" in shown.get_table(2)


def test_attention_and_what_does_not_count():
    q = gl.randn(1, 2, 5, 4)
    with FlopCounterMode(display=False) as counter:
        _ = nn.functional.scaled_dot_product_attention(q, q, q), q.exp() + q, q.sum()
    assert counter.get_flop_counts() == {"Global": {"scaled_dot_product_attention": 2 * 10 * 5 * 8}}
    with FlopCounterMode(display=False) as counter:
        _ = q + q
    assert counter.get_total_flops() == 0 and counter.get_table().splitlines()[1].split()[:2] == ["Global", "0"]
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={1: 2})


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_layers_of_sequences_count_their_products(layer, gates):
    """A layer's steps are one row, forward and backward; with that of all inputs and the weights' gradients they are six products."""
    model, x = layer(6, 5), gl.randn(7, 3, 6, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(x)[0].sum().backward()
    rows, width = 7 * 3, gates * 5
    assert counter.get_total_flops() == 3 * 2 * rows * width * (6 + 5)
