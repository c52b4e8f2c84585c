"""Recurrent layers on the (emulated) GPU against the CPU: forward, backward and steps of Adam, with nothing computed on the host."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from test_cuda_rows import TOLERANCE, close

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.cuda import fallback
from gradlab.dtype import as_numpy
from gradlab.nn.utils import rnn as sequences
from gradlab.optim import Adam

from samples.recurrent import SAMPLES

KINDS = ("RNN", "LSTM", "GRU")
CELLS = ("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward")
LENGTHS = [3, 5, 1, 3]


def trained(layer, device, packed):
    """Outputs and gradients of three steps of Adam, and the weights after them."""
    layer = copy.deepcopy(layer).to(device)
    optimizer = Adam(layer.parameters(), lr=0.01)
    x = gl.tensor(np.random.default_rng(2).normal(size=(5, 4, 3)), dtype=next(layer.parameters()).dtype, device=device, requires_grad=True)
    found = []
    for _ in range(3):
        if packed:
            out, state = layer(sequences.pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
            out = out.data
        else:
            out, state = layer(x)
        states = state if isinstance(state, tuple) else (state,)
        optimizer.zero_grad()
        x.grad = None
        ((out * out).sum() + sum((s * 0.5).sum() for s in states)).backward()
        found += [out, *states, x.grad, *(p.grad.clone() for p in layer.parameters())]
        optimizer.step()
    return found + list(layer.parameters())


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "options"), [
    *((k, {"num_layers": 2, "bidirectional": True}) for k in KINDS), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 2}),
    ("GRU", {"bias": False}),
], ids=str)  # fmt: skip
def test_layers_train_as_on_the_cpu(cuda, kind, options, packed):
    gl.manual_seed(1)
    layer = getattr(nn, kind)(3, 4, **options)
    want = trained(layer, "cpu", packed)
    fallback.counts.clear()
    got = trained(layer, "cuda", packed)
    assert not fallback.counts
    for a, b in zip(got, want, strict=True):
        close(a, b, "float32", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_train_as_on_the_cpu(cuda, kind):
    gl.manual_seed(1)
    cell = getattr(nn, f"{kind}Cell")(3, 4).double()
    x = gl.randn(2, 3, dtype=gl.float64)
    for device in ("cpu", "cuda"):
        twin = copy.deepcopy(cell).to(device)
        state = None
        for _ in range(3):
            state = twin(x.to(device), state)
        first = state[0] if isinstance(state, tuple) else state
        (first * first).sum().backward()
        found = [first, *(p.grad for p in twin.parameters())]
        if device == "cpu":
            want = found
    for a, b in zip(found, want, strict=True):
        close(a, b, "float64", kind)


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "warps"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_in_every_order(cuda, name, dtype, order):
    """Several blocks, the last one not full."""
    driver, row = cuda.driver, ops.ROWS[name]
    if driver.name != "emulated":
        pytest.skip("a real GPU has an order of its own")
    rng = np.random.default_rng(3)
    size = SAMPLES[name][0].inputs
    rows = [x.shape[-1] // 4 * 67 for x in size]
    inputs = [np.tanh(rng.normal(size=(5, n))).astype(as_numpy(dtype)) for n in rows]
    want = row(*inputs)
    driver.order = order
    try:
        got = [driver.download(y) for y in row(*map(driver.upload, inputs))]
    finally:
        driver.order = "forward"
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=TOLERANCE[dtype])


def test_second_gradients(cuda):
    """The backward rows' own gradients."""
    for kind in ("LSTM", "GRU"):
        gl.manual_seed(4)
        layer = getattr(nn, kind)(2, 3).double()
        found = []
        for device in ("cpu", "cuda"):
            twin = copy.deepcopy(layer).to(device)
            x = gl.tensor(np.random.default_rng(5).normal(size=(3, 2, 2)), device=device, requires_grad=True)
            (g,) = gl.autograd.grad((twin(x)[0] ** 2).sum(), x, create_graph=True)
            (g * g).sum().backward()
            found.append([x.grad, *(p.grad for p in twin.parameters())])
        for want, got in zip(*found, strict=True):
            close(got, want, "float64", kind)


def test_packed_sequences_move_with_their_order(cuda):
    x = gl.tensor(np.random.default_rng(6).normal(size=(5, 4, 3)))
    packed = sequences.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    there = packed.to("cuda")
    assert there.sorted_indices.device.type == there.unsorted_indices.device.type == "cuda"
    assert there.batch_sizes.device.type == "cpu"
    made = sequences.pack_padded_sequence(x.to("cuda"), gl.tensor(LENGTHS), enforce_sorted=False)
    want, lengths = sequences.pad_packed_sequence(packed)
    for one in (there, made, made.cpu()):
        padded, own = sequences.pad_packed_sequence(one)
        np.testing.assert_array_equal(padded.cpu().numpy(), want.numpy())
        assert own.tolist() == lengths.tolist() == LENGTHS
    back = sequences.invert_permutation(made.sorted_indices)
    assert back.device.type == "cuda" and back.tolist() == made.unsorted_indices.tolist()
