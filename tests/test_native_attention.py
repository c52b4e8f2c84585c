"""Attention's kernels on the CPU beside the formula in float64: lengths beyond a tile, more queries or keys, masks, widths of heads."""

import itertools

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl

pytestmark = needs_compiler
F = gl.nn.functional
LENGTHS = [(31, 33), (33, 31), (64, 257), (257, 64), (130, 130), (257, 513)]  # queries and keys


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def formula(q, k, v, mask, causal):
    """Softmax of the products times the values, by NumPy."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def slopes(q, k, v, mask, causal, g):
    """The gradients of the formula, by hand."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    seen = np.tril(np.ones(scores.shape[-2:], bool)) if causal else np.ones(scores.shape[-2:], bool)
    scores = np.where(seen if mask is None else seen & mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    of_weights = g @ v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return of_scores @ k, of_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g


WAYS = [(16, ""), (24, "causal"), (64, "causal"), (40, "mask")]  # widths of heads
CASES = [(n, m, width, way) for (n, m), (width, way) in itertools.product(LENGTHS, WAYS)]


@pytest.mark.parametrize(("n", "m", "width", "way"), CASES)
def test_attention(n, m, width, way):
    random = np.random.default_rng(n + m + width)
    q, k, v, g = (random.normal(size=(2, 3, size, width)) for size in (n, m, m, n))
    mask = (random.random((n, m)) < 0.7) | (np.arange(m) == 0) if way == "mask" else None
    leaves = [gl.tensor(x, dtype=gl.float32, requires_grad=True) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves, None if mask is None else gl.tensor(mask), is_causal=way == "causal")
    y.backward(gl.tensor(g, dtype=gl.float32))
    np.testing.assert_allclose(y.detach().numpy(), formula(q, k, v, mask, way == "causal"), rtol=2e-5, atol=2e-5)
    for name, leaf, want in zip("qkv", leaves, slopes(q, k, v, mask, way == "causal", g), strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=5e-5, atol=5e-5, err_msg=name)
    assert {"scaled_dot_product_attention", "scaled_dot_product_attention_backward"} <= used()
