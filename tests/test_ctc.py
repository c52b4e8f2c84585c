"""ctc_loss against the sum over all alignments, written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import ops
from gradlab.backends.native import eager
from gradlab.nn import functional as F
from gradlab.nn.functional import ctc


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


SIZES = [(31, 7, 5), (33, 8, 33), (100, 16, 257), (257, 31, 17), (900, 100, 31), (40, 1, 3), (3, 1, 900)]  # steps, labels, classes


def given(steps, labels, classes, dtype, seed=0):
    """Log probabilities of five sequences, targets with equal neighbours among them, and lengths."""
    random = np.random.default_rng(seed)
    x = gl.tensor(random.normal(0, 2, (steps, 5, classes))).log_softmax(2).numpy().astype(dtype)
    targets = random.integers(1, classes, (5, labels))
    if labels > 2:
        targets[:, 1] = targets[:, 0]
    inputs, lengths = random.integers(steps // 2, steps + 1, 5), random.integers(0, labels + 1, 5)
    inputs[0], lengths[0], inputs[1] = steps, labels, 0
    return x, targets, inputs, lengths


@needs_compiler
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_beside_numpy_and_beside_other_rows(sizes, dtype):
    arrays, how = given(*sizes, dtype), {"blank": 0, "zero_infinity": True}
    g = np.arange(1, 6, dtype=dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in (g, *arrays)]
    loss, slope = np.empty(5), np.empty(arrays[0].shape)
    ops.ROWS["ctc_loss"].quietly(*wide[1:], loss, **how)
    ops.ROWS["ctc_loss_backward"].quietly(*wide, slope, **how)
    near = {"rtol": 3e-7 if dtype == np.float32 else 1e-14, "atol": 3e-6 if dtype == np.float32 else 1e-13}
    with kernels():
        np.testing.assert_allclose(eager.run(ops.ROWS["ctc_loss"], arrays, how), loss, **near)
        found = eager.run(ops.ROWS["ctc_loss_backward"], (g, *arrays), how)
        np.testing.assert_allclose(found, slope, rtol=2e-5 if dtype == np.float32 else 1e-11, atol=25 * near["atol"])
        assert {"ctc_loss", "ctc_loss_backward"} <= used()
    x, *rest = (gl.tensor(a) for a in wide[1:])
    x.requires_grad_()
    other = ctc.composed(x, *rest, 0, True)
    np.testing.assert_allclose(loss, other.detach().numpy(), rtol=1e-9)
    other.backward(gl.tensor(wide[0]))
    np.testing.assert_allclose(slope, x.grad.numpy(), atol=1e-9)


@needs_compiler
def test_hard_numbers():
    """NaN stays in its sequence; what is impossible by one class is so by its infinity; huge and tiny ones in turn keep their digits."""
    x, targets, inputs, lengths = given(40, 9, 6, np.float32)
    x[3, 2, 4], lengths[2:] = np.nan, 9
    x[5, 3], inputs[2:] = -np.inf, 40
    x[:, 4] *= 40
    how = {"blank": 0, "zero_infinity": False}
    row, back = ops.ROWS["ctc_loss"], ops.ROWS["ctc_loss_backward"]
    want, slope = np.empty(5), np.empty(x.shape)
    wide = (x.astype(np.float64), targets, inputs, lengths)
    row.quietly(*wide, want, **how)
    back.quietly(np.ones(5), *wide, slope, **how)
    assert np.isnan(want[2]) and want[3] == np.inf and np.isfinite(want[4])
    with kernels():
        np.testing.assert_allclose(eager.run(row, (x, targets, inputs, lengths), how), want, rtol=1e-6)
        found = eager.run(back, (np.ones(5, np.float32), x, targets, inputs, lengths), how)
    for n in (0, 1, 3, 4):
        np.testing.assert_allclose(found[:, n], slope[:, n], rtol=1e-4, atol=1e-4)
    assert not found[:, 3].any() and np.isnan(found[:, 2]).any()


@needs_compiler
@pytest.mark.parametrize("wrong", [{"lengths": 3}, {"inputs": 5}, {"inputs": -1}, {"label": 4}, {"label": -1}, {"lengths": -1}])
@pytest.mark.parametrize("native", [True, False])
def test_what_cannot_be_is_said(wrong, native):
    x, targets, inputs, lengths = np.zeros((4, 2, 4), np.float32), np.ones((2, 2), np.int64), np.full(2, 4), np.full(2, 2)
    inputs[1], lengths[1], targets[1, 0] = wrong.get("inputs", 4), wrong.get("lengths", 2), wrong.get("label", 1)
    with kernels(1 if native else 1 << 40), pytest.raises((RuntimeError, IndexError), match="ctc_loss"):
        F.ctc_loss(*map(gl.tensor, (x, targets, inputs, lengths)))


def step(x, targets, inputs, lengths, reduction):
    x = x.detach().requires_grad_()
    loss = F.ctc_loss(x.log_softmax(2), targets, inputs, lengths, reduction=reduction, zero_infinity=True)
    return loss.detach(), gl.autograd.grad(loss.sum(), x)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_compiled_with_lengths_in_tensors(reduction):
    """The lengths may be others in each call: the row is in the program."""
    compiled = gl.compile(step)
    with kernels():
        for seed in range(4):
            arrays = [gl.tensor(a) for a in given(60, 12, 9, np.float32, seed)]
            for found, want in zip(compiled(*arrays, reduction), step(*arrays, reduction), strict=True):
                np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6, atol=5e-6)


def test_gradients_of_gradients_and_half_types():
    x, *rest = (gl.tensor(a) for a in given(8, 3, 4, np.float64))
    x.requires_grad_()
    first = gl.autograd.grad(F.ctc_loss(x, *rest, zero_infinity=True), x, create_graph=True)[0]
    plain = gl.autograd.grad(F.ctc_loss(x, *rest, zero_infinity=True), x)[0]
    np.testing.assert_allclose(first.detach().numpy(), plain.numpy(), atol=1e-10)
    assert gl.autograd.grad(first.square().sum(), x)[0].isfinite().all()
    for dtype in (gl.float16, gl.bfloat16):
        half = x.detach().to(dtype).requires_grad_()
        loss = F.ctc_loss(half, *rest, zero_infinity=True)
        loss.backward()
        assert loss.dtype == half.grad.dtype == dtype
        wide = F.ctc_loss(half.detach().float(), *rest, zero_infinity=True)
        assert loss.item() == wide.to(dtype).item()


def test_strided_and_transposed_inputs():
    x, targets, inputs, lengths = (gl.tensor(a) for a in given(30, 5, 6, np.float32))
    want = F.ctc_loss(x, targets, inputs, lengths, reduction="none")
    apart = gl.stack([targets, targets], 2)[:, :, 0]
    found = F.ctc_loss(x.transpose(0, 1).contiguous().transpose(0, 1), apart, inputs.int(), lengths.tolist(), reduction="none")
    np.testing.assert_array_equal(found.numpy(), want.numpy())
    row = gl.cat([t[:n] for t, n in zip(targets, lengths.tolist(), strict=True)])
    np.testing.assert_array_equal(F.ctc_loss(x, row.int(), inputs, lengths, reduction="none").numpy(), want.numpy())
