"""Recurrent layers against their formulas in NumPy, gradients against differences, and packed sequences against padded ones."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn.utils import rnn as sequences


@pytest.fixture(autouse=True)
def seed():
    gl.manual_seed(0)


def array(t):
    return t.detach().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn_formula(w, x, state):
    return (np.tanh(w["ih"] @ x + w["b_ih"] + w["hh"] @ state[0] + w["b_hh"]),)


def lstm_formula(w, x, state):
    h, c = state
    i, f, g, o = np.split(w["ih"] @ x + w["b_ih"] + w["hh"] @ h + w["b_hh"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_formula(w, x, state):
    (h,) = state
    ir, iz, i_n = np.split(w["ih"] @ x + w["b_ih"], 3)
    hr, hz, hn = np.split(w["hh"] @ h + w["b_hh"], 3)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    n = np.tanh(i_n + r * hn)
    return ((1 - z) * n + z * h,)


FORMULAS = {"RNN": rnn_formula, "LSTM": lstm_formula, "GRU": gru_formula}
KINDS = pytest.mark.parametrize("kind", FORMULAS)


def weights(layer, suffix):
    return {
        "ih": array(getattr(layer, "weight_ih" + suffix)), "hh": array(getattr(layer, "weight_hh" + suffix)),
        "b_ih": array(getattr(layer, "bias_ih" + suffix)), "b_hh": array(getattr(layer, "bias_hh" + suffix)),
    }  # fmt: skip


def reference(layer, kind, x):
    """Outputs (T, H) of one sequence (T, I) through all layers, state zero at first."""
    states = 2 if kind == "LSTM" else 1
    for number in range(layer.num_layers):
        found = []
        for suffix in (f"_l{number}", f"_l{number}_reverse")[: 1 + layer.bidirectional]:
            state, outs = (np.zeros(layer.hidden_size),) * states, []
            for step in x[::-1] if suffix.endswith("reverse") else x:
                state = FORMULAS[kind](weights(layer, suffix), step, state)
                outs.append(state[0])
            found.append(outs[::-1] if suffix.endswith("reverse") else outs)
        x = np.concatenate(found, 1)
    return x


@KINDS
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
def test_formula(kind, layers, both):
    layer = getattr(nn, kind)(3, 4, layers, bidirectional=both).double()
    x = gl.randn(5, 2, 3, dtype=gl.float64)
    out, state = layer(x)
    for b in range(2):
        np.testing.assert_allclose(array(out)[:, b], reference(layer, kind, array(x)[:, b]), atol=1e-12)
    h = state[0] if kind == "LSTM" else state
    assert h.shape == (layers * (1 + both), 2, 4)
    np.testing.assert_array_equal(array(h)[-1 - both], array(out)[-1, :, :4])


@KINDS
def test_layouts(kind):
    layer = getattr(nn, kind)(3, 4, bidirectional=True)
    first = getattr(nn, kind)(3, 4, bidirectional=True, batch_first=True)
    first.load_state_dict(layer.state_dict())
    x = gl.randn(5, 2, 3)
    out, state = layer(x)
    swapped, same = first(x.transpose(0, 1))
    np.testing.assert_array_equal(array(swapped.transpose(0, 1)), array(out))
    single, small = layer(x[:, 1])
    np.testing.assert_allclose(array(single), array(out)[:, 1], atol=1e-6)
    pick = (lambda s: s[0]) if kind == "LSTM" else (lambda s: s)
    np.testing.assert_array_equal(array(pick(same)), array(pick(state)))
    np.testing.assert_allclose(array(pick(small)), array(pick(state))[:, 1], atol=1e-6)


@KINDS
def test_state_is_carried_on(kind):
    layer = getattr(nn, kind)(3, 4, 2)
    x = gl.randn(6, 2, 3)
    whole, end = layer(x)
    head, state = layer(x[:2])
    tail, last = layer(x[2:], state)
    np.testing.assert_allclose(array(gl.cat([head, tail])), array(whole), atol=1e-6)
    for a, b in zip(end, last, strict=True) if kind == "LSTM" else [(end, last)]:
        np.testing.assert_allclose(array(a), array(b), atol=1e-6)


@KINDS
@pytest.mark.parametrize("both", [False, True])
def test_packed_equals_each_alone(kind, both):
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=both).double()
    lengths = [3, 5, 1, 3]
    alone = [gl.randn(n, 3, dtype=gl.float64, requires_grad=True) for n in lengths]
    packed = sequences.pack_sequence([x.detach() for x in alone], enforce_sorted=False)
    out, state = layer(packed)
    pieces = sequences.unpack_sequence(out)
    h = state[0] if kind == "LSTM" else state
    for i, x in enumerate(alone):
        expected, own = layer(x)
        np.testing.assert_allclose(array(pieces[i]), array(expected), atol=1e-12)
        np.testing.assert_allclose(array(h)[:, i], array(own[0] if kind == "LSTM" else own), atol=1e-12)

    padded = sequences.pad_sequence([x.detach() for x in alone]).requires_grad_()
    again, _ = layer(sequences.pack_padded_sequence(padded, lengths, enforce_sorted=False))
    (again.data**2).sum().backward()
    for i, x in enumerate(alone):
        (layer(x)[0] ** 2).sum().backward()
        np.testing.assert_allclose(array(padded.grad)[: lengths[i], i], array(x.grad), atol=1e-12)
        assert not array(padded.grad)[lengths[i] :, i].any()


def differences(function, x, step=1e-6):
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            values.append(function(moved))
        gradient[index] = (values[0] - values[1]) / (2 * step)
    return gradient


@KINDS
def test_gradients(kind):
    layer = getattr(nn, kind)(2, 3, 2, bidirectional=True).double()
    x = gl.randn(3, 2, 2, dtype=gl.float64, requires_grad=True)
    (layer(x)[0] ** 2).sum().backward()
    target = layer.weight_hh_l0_reverse

    def of_input(values):
        with gl.no_grad():
            return float((layer(gl.tensor(values))[0] ** 2).sum())

    def of_weight(values):
        saved = target.data
        target.data = gl.tensor(values)
        result = of_input(array(x))
        target.data = saved
        return result

    np.testing.assert_allclose(array(x.grad), differences(of_input, array(x)), atol=1e-7)
    np.testing.assert_allclose(array(target.grad), differences(of_weight, array(target)), atol=1e-7)


def test_second_gradient():
    layer = nn.LSTM(2, 2).double()
    x = gl.randn(3, 1, 2, dtype=gl.float64, requires_grad=True)

    def slope(values):
        point = gl.tensor(values, requires_grad=True)
        (g,) = gl.autograd.grad((layer(point)[0] ** 2).sum(), point)
        return float((g**2).sum())

    (g,) = gl.autograd.grad((layer(x)[0] ** 2).sum(), x, create_graph=True)
    (g**2).sum().backward()
    np.testing.assert_allclose(array(x.grad), differences(slope, array(x)), atol=1e-6)


@KINDS
def test_cells(kind):
    cell = getattr(nn, kind + "Cell")(3, 4)
    layer = getattr(nn, kind)(3, 4)
    layer.load_state_dict({f"{k}_l0": v for k, v in cell.state_dict().items()})
    x = gl.randn(4, 2, 3)
    state, outs = None, []
    for t in range(4):
        state = cell(x[t], state)
        outs.append(state[0] if kind == "LSTM" else state)
    np.testing.assert_allclose(array(gl.stack(outs)), array(layer(x)[0]), atol=1e-6)
    one = cell(x[0, 1])
    np.testing.assert_allclose(array(one[0] if kind == "LSTM" else one), array(outs[0])[1], atol=1e-6)


def test_projection():
    layer = nn.LSTM(3, 6, 2, proj_size=2, bidirectional=True)
    out, (h, c) = layer(gl.randn(4, 5, 3))
    assert out.shape == (4, 5, 4) and h.shape == (4, 5, 2) and c.shape == (4, 5, 6)
    assert layer.weight_hr_l1_reverse.shape == (2, 6) and layer.weight_ih_l1.shape == (24, 4)


def test_dropout_between_layers():
    with pytest.warns(UserWarning, match="only one"):
        nn.GRU(2, 2, dropout=0.5)
    layer = nn.RNN(3, 50, 2, dropout=0.5)
    x = gl.randn(2, 1, 3)
    assert array(layer(x)[0]).tolist() != array(layer(x)[0]).tolist()
    layer.eval()
    np.testing.assert_array_equal(array(layer(x)[0]), array(layer(x)[0]))


def test_errors():
    for wrong in ({"dropout": 2}, {"num_layers": 0}, {"proj_size": 4}, {"hidden_size": 0}):
        with pytest.raises(ValueError):
            nn.LSTM(**{"input_size": 3, "hidden_size": 4, **wrong})
    with pytest.raises(ValueError):
        nn.GRU(3, 4, proj_size=2)
    with pytest.raises(ValueError):
        nn.RNN(3, 4, nonlinearity="sine")
    layer = nn.LSTM(3, 4)
    with pytest.raises(ValueError, match="dimensions"):
        layer(gl.zeros(3))
    with pytest.raises(RuntimeError, match="input_size is 3"):
        layer(gl.zeros(5, 2, 4))
    with pytest.raises(RuntimeError, match="2 tensor"):
        layer(gl.zeros(5, 2, 3), gl.zeros(1, 2, 4))
    with pytest.raises(RuntimeError, match="initial state has shape"):
        layer(gl.zeros(5, 2, 3), (gl.zeros(1, 1, 4), gl.zeros(1, 2, 4)))
    with pytest.raises(ValueError, match="float64"):
        layer(gl.zeros(5, 2, 3, dtype=gl.float64))


def test_padding_helpers():
    a, b = gl.arange(3.0), gl.arange(2.0) + 5
    assert sequences.pad_sequence([a, b], batch_first=True, padding_value=-1).tolist() == [[0, 1, 2], [5, 6, -1]]
    assert sequences.pad_sequence([a, b], padding_side="left").tolist() == [[0, 0], [1, 5], [2, 6]]
    packed = sequences.pack_sequence([a, b])
    assert packed.data.tolist() == [0, 5, 1, 6, 2] and packed.batch_sizes.tolist() == [2, 2, 1]
    padded, lengths = sequences.pad_packed_sequence(packed, batch_first=True, total_length=4)
    assert padded.tolist() == [[0, 1, 2, 0], [5, 6, 0, 0]] and lengths.tolist() == [3, 2]
    assert [x.tolist() for x in sequences.unpad_sequence(padded, lengths, batch_first=True)] == [[0, 1, 2], [5, 6]]
    with pytest.raises(RuntimeError, match="increase"):
        sequences.pack_sequence([b, a])
    with pytest.raises(RuntimeError, match="at least one element"):
        sequences.pack_padded_sequence(gl.zeros(2, 2), [1, 0])
    with pytest.raises(RuntimeError, match="padded to 2"):
        sequences.pack_padded_sequence(gl.zeros(2, 2), [3, 1])
