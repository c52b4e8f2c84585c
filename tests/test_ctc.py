"""ctc_loss against the sum over all alignments, written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F


def collapsed(path):
    """What an alignment says: repeated labels once, without blanks (0)."""
    return [label for label, _ in itertools.groupby(path) if label]


def written_out(log_probs, target):
    steps, classes = log_probs.shape
    paths = (p for p in itertools.product(range(classes), repeat=steps) if collapsed(p) == list(target))
    total = sum(np.exp(sum(log_probs[t, c] for t, c in enumerate(p))) for p in paths)
    return -np.log(total) if total else np.inf


TARGETS = [[1, 2], [1, 1], [2], []]
STEPS = [4, 4, 3, 4]


def batch(seed):
    x = gl.tensor(np.random.default_rng(seed).standard_normal((4, 4, 3)), requires_grad=True)
    padded = gl.tensor([t + [-1] * (2 - len(t)) for t in TARGETS])
    return x, F.log_softmax(x, 2), padded, [len(t) for t in TARGETS]


@pytest.mark.parametrize("seed", [0, 1])
def test_all_alignments(seed):
    _, log_probs, padded, lengths = batch(seed)
    found = F.ctc_loss(log_probs, padded, STEPS, lengths, reduction="none").tolist()
    values = log_probs.detach().numpy()
    expected = [written_out(values[:n, i], t) for i, (n, t) in enumerate(zip(STEPS, TARGETS, strict=True))]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    row = gl.tensor([label for t in TARGETS for label in t])
    assert F.ctc_loss(log_probs, row, gl.tensor(STEPS), gl.tensor(lengths), reduction="none").tolist() == found
    mean = F.ctc_loss(log_probs, padded, STEPS, lengths).item()
    np.testing.assert_allclose(mean, np.mean(np.array(expected) / np.maximum(lengths, 1)), rtol=1e-10)
    single = F.ctc_loss(log_probs[:, 0], padded[0], [4], [2], reduction="none")
    np.testing.assert_allclose(single.item(), expected[0], rtol=1e-10)


def test_gradient():
    x, log_probs, padded, lengths = batch(3)
    F.ctc_loss(log_probs, padded, STEPS, lengths, reduction="sum").backward()
    values, step = x.detach().numpy(), 1e-6
    expected = np.zeros_like(values)
    for index in np.ndindex(values.shape):
        both = []
        for sign in (1, -1):
            moved = values.copy()
            moved[index] += sign * step
            both.append(F.ctc_loss(F.log_softmax(gl.tensor(moved), 2), padded, STEPS, lengths, reduction="sum").item())
        expected[index] = (both[0] - both[1]) / (2 * step)
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-8)


def test_impossible():
    x = gl.zeros(2, 1, 3, dtype=gl.float64, requires_grad=True)
    args = F.log_softmax(x, 2), gl.tensor([[1, 1]]), [2], [2]  # two equal labels need a blank between them
    assert F.ctc_loss(*args, reduction="none").tolist() == [np.inf]
    loss = F.ctc_loss(*args, zero_infinity=True)
    loss.backward()
    assert loss.item() == 0 and not x.grad.numpy().any()


def test_errors():
    log_probs, target = gl.zeros(4, 2, 3), gl.tensor([[1], [2]])
    for wrong in (
        {"input_lengths": [4]},
        {"input_lengths": [4, 5]},
        {"target_lengths": [1, 2]},
        {"target_lengths": [1.0, 1.0]},
        {"blank": 3},
        {"targets": gl.tensor([1])},
        {"log_probs": gl.zeros(4)},
    ):
        with pytest.raises(RuntimeError):
            F.ctc_loss(**{"log_probs": log_probs, "targets": target, "input_lengths": [4, 4], "target_lengths": [1, 1], **wrong})
    with pytest.raises(ValueError):
        F.ctc_loss(log_probs, target, [4, 4], [1, 1], reduction="max")
