"""Recurrent layers as one node (`nn/modules/sequences.py`) beside their steps: values, gradients of both orders, kernels and NumPy."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.native import compiler, eager, ready
from gradlab.nn.modules import sequences
from gradlab.nn.utils.rnn import pack_padded_sequence

from samples import SAMPLES

KINDS = {
    "lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN,
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}  # fmt: skip
FORMS = {
    "plain": {}, "both": {"bidirectional": True}, "layers": {"num_layers": 2, "bidirectional": True}, "bare": {"bias": False},
    "batch": {"batch_first": True}, "packed": {"bidirectional": True}, "begun": {"bidirectional": True},
}  # fmt: skip


def normal(*shape, seed=0, dtype=np.float64):
    return gl.from_numpy(np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype))


def model(kind, form, sizes=(3, 5), dtype=gl.float64):
    gl.manual_seed(0)
    return KINDS[kind](*sizes, dtype=dtype, **FORMS[form])


def loss(layer, form, x, states=None):
    """A number that all results have a part in."""
    given = pack_padded_sequence(x, [4, 2, 4, 1], enforce_sorted=False) if form == "packed" else x
    out, final = layer(given, states)
    out = out.data if form == "packed" else out
    found = [out, *(final if isinstance(final, tuple) else [final])]
    return sum((y * normal(*y.shape, seed=i, dtype=y.detach().numpy().dtype)).sum() for i, y in enumerate(found))


def gradients(kind, form, dtype=gl.float64, sizes=(3, 5), shape=(4, 4), second=True):
    """The loss, its gradients, and those of their squares' sum."""
    layer = model(kind, form, sizes, dtype)
    x = normal(*shape, sizes[0], dtype=np.dtype(layer.weight_ih_l0.detach().numpy().dtype)).requires_grad_()
    states = []
    if form == "begun":
        count = 2 if kind == "lstm" else 1
        states = [normal(2, shape[1], sizes[1], seed=9 + i, dtype=x.detach().numpy().dtype).requires_grad_() for i in range(count)]
    given = None if not states else tuple(states) if kind == "lstm" else states[0]
    value = loss(layer, form, x, given)
    inputs = [x, *states, *layer.parameters()]
    first = gl.autograd.grad(value, inputs, create_graph=second)
    more = gl.autograd.grad(sum((g * g).sum() for g in first), inputs) if second else ()
    once = gl.autograd.grad(loss(layer, form, x, given), inputs)
    return value, *first, *more, *once


@pytest.fixture
def steps(monkeypatch):
    def compute(*args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(sequences, "_is_plain", lambda *tensors: False)
            return gradients(*args, **options)

    return compute


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_node_is_its_steps(kind, form, steps):
    for got, want in zip(gradients(kind, form), steps(kind, form), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-9)


@needs_compiler
@pytest.mark.parametrize("kind, form", [("lstm", "layers"), ("gru", "packed"), ("tanh", "begun"), ("relu", "bare"), ("lstm", "packed")])
@pytest.mark.parametrize("units", [1, 19, 70])
def test_kernels(kind, form, units, steps):
    """Beside steps in NumPy."""
    options = {"dtype": gl.float32, "sizes": (3, units), "second": False}
    want = steps(kind, form, **options)
    with kernels():
        found = gradients(kind, form, **options)
        name = kind if kind in ("lstm", "gru") else "rnn"
        assert {f"{name}_sequence", f"{name}_sequence_backward"} <= used()
    for got, wanted in zip(found, want, strict=True):
        expected = wanted.detach().numpy()
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=3e-5 * np.abs(expected).max(initial=1))


@needs_compiler
@pytest.mark.parametrize("name", [name for name in ops.ROWS if "_sequence" in name])
def test_any_number_of_threads(name, monkeypatch):
    """The same bits."""
    before = gl.get_num_threads()
    monkeypatch.setattr("gradlab.backends.native.lowerings.sequences.widest", lambda work: 64)
    with kernels():
        try:
            for one in SAMPLES[name]:
                arrays = [x if x is None or x.dtype.kind == "i" else x.astype("f") for x in one.inputs]
                found = []
                for threads in (1, 2, 3):
                    gl.set_num_threads(threads)
                    found.append(eager.run(ops.ROWS[name], arrays, one.params))
                for other in found[1:]:
                    for got, want in zip(other, found[0], strict=True):
                        np.testing.assert_array_equal(got, want)
        finally:
            gl.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("counts", [[2, 3], [3, 1], [3, 3, -1], [2, 2, 1]])
def test_counts_that_cannot_be(counts):
    arrays = [np.zeros(s, np.float32) for s in ((5, 4), (4, 4), (3, 4))]
    with kernels():
        with pytest.raises(ValueError, match="counts of 5 rows and 3 sequences cannot be"):
            eager.run(ops.ROWS["rnn_sequence"], (*arrays, np.array(counts)), {"reverse": False, "nonlinearity": "tanh"})
        assert compiler.available() and ready.state().ready


def test_one_node():
    """Not one for each step, also where nothing is recorded later: hooks of the layer see the same."""
    layer, seen = nn.LSTM(3, 4), []
    layer.register_forward_hook(lambda module, args, result: seen.append(result[0]))
    out, _ = layer(normal(50, 2, 3, dtype=np.float32))
    assert seen == [out]
    names, waiting = set(), [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in names:
            names.add(node)
            waiting += [n for n, _ in node.next_functions if n is not None]
    assert len(names) < 20


def test_a_gradient_of_inputs_that_hang_together():
    """The second order where the gates and the state come from one tensor, whose own way must not be counted twice."""
    layer = nn.GRU(3, 3, dtype=gl.float64)

    def compute(x):
        return (layer(x, x[:1] * 2)[0] ** 2).sum()

    x = normal(3, 2, 3).requires_grad_()
    assert gl.autograd.gradgradcheck(compute, (x,))
