"""Functions of PyTorch's top that only programs for PyTorch call: equal to PyTorch's; and what it is asked about itself."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.pytorch import functions, questions
from gradlab.tensor import copies

RNG = np.random.default_rng(0)


def arr(*shape):
    return RNG.normal(size=shape).astype(np.float32)


X = arr(2, 3, 8)
CELL = [arr(2, 3), arr(2, 5), arr(20, 3), arr(20, 5), arr(20), arr(20)]
# Of each function: arguments, arrays among them.
CALLS = {
    "dropout_": [(X, 0.5, False)], "max_pool1d_with_indices": [(X, 2), (X, 3, 2, 1)],
    "lstm_cell": [(CELL[0], [CELL[1], arr(2, 5)], *CELL[2:])],
    "gru_cell": [(CELL[0], CELL[1], *(w[:15] for w in CELL[2:]))], "rnn_tanh_cell": [(CELL[0], CELL[1], *(w[:5] for w in CELL[2:]))],
    "rnn_relu_cell": [(CELL[0], CELL[1], *(w[:5] for w in CELL[2:]))], "frobenius_norm": [(X, [1, 2]), (X, [0, 1], True)],
    "nuclear_norm": [(arr(3, 4), [0, 1])], "slice_copy": [(X, 1, 0, 2), (X, -1, 1, 7, 2)], "alias_copy": [(X,)],
    "detach_copy": [(X,)], "diagonal_copy": [(X, 0, 1, 2)], "expand_copy": [(arr(1, 3), [4, 3])],
    "permute_copy": [(X, [2, 0, 1])], "select_copy": [(X, 1, 2)], "split_copy": [(X, 2, 1)],
    "split_with_sizes_copy": [(X, [1, 2], 1)], "squeeze_copy": [(arr(1, 3, 1),)], "t_copy": [(arr(2, 3),)], "transpose_copy": [(X, 0, 2)],
    "unbind_copy": [(X, 1)], "unfold_copy": [(X, 2, 3, 2)], "unsqueeze_copy": [(X, 1)], "view_copy": [(X, [6, 8])],
}  # fmt: skip


def run(engine, function, args, make):
    def made(value):
        return make(value.copy()) if isinstance(value, np.ndarray) else [made(v) for v in value] if isinstance(value, list) and any(
            isinstance(v, np.ndarray) for v in value) else value  # fmt: skip

    found = function(*map(made, args))
    return [np.asarray(x.detach()) for x in (found if isinstance(found, (tuple, list)) else [found])]


def test_every_function_is_tried():
    own = {name for name, value in vars(functions).items() if callable(value) and value.__module__ == functions.__name__}
    assert {name for name in own if not name.startswith("_")} | set(copies.__all__) == set(CALLS)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of names that it will drop
@pytest.mark.parametrize("name", CALLS)
def test_as_pytorchs(name):
    torch = pytest.importorskip("torch")
    for args in CALLS[name]:
        own = run(gl, getattr(copies if name.endswith("_copy") else functions, name), args, gl.from_numpy)
        theirs = run(torch, getattr(torch, name), args, torch.from_numpy)
        for a, b in zip(own, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CALLS)
def test_it_computes_and_shares_nothing(name):
    for args in CALLS[name]:
        for found in run(gl, getattr(copies if name.endswith("_copy") else functions, name), args, gl.from_numpy):
            assert np.isfinite(found).all()
    if name.endswith("_copy"):
        x = gl.from_numpy(CALLS[name][0][0].copy())
        found = getattr(copies if name.endswith("_copy") else functions, name)(x, *CALLS[name][0][1:])
        for part in found if isinstance(found, tuple) else [found]:
            assert not np.shares_memory(part.numpy(), x.numpy())


def test_questions():
    with gl.autograd.detect_anomaly():
        assert questions.is_anomaly_check_nan_enabled()
    assert questions.get_device_module("cpu") is gl.cpu and questions.sym_int(2.5) == 2 and questions.sym_max(1, 2) == 2
    assert questions.GradScaler is gl.amp.GradScaler
