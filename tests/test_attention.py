"""Attention, linear maps, embeddings and distances."""

import tracemalloc

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from slopes import check_slopes

RNG = np.random.default_rng(2)
Q, K, V = RNG.normal(size=(2, 3, 4, 8)), RNG.normal(size=(2, 3, 6, 8)), RNG.normal(size=(2, 3, 6, 5))
attention = F.scaled_dot_product_attention


def reference(q, k, v, mask=0.0, scale=8**-0.5):
    scores = q @ np.swapaxes(k, -1, -2) * scale + mask
    top = np.where(np.isneginf(scores.max(-1, keepdims=True)), 0, scores.max(-1, keepdims=True))
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


def tensors(*arrays):
    return [gl.tensor(a) for a in arrays]


CAUSAL = np.tril(np.ones((4, 6), bool))
HIDDEN = CAUSAL.copy()
HIDDEN[2] = False
ADDED = RNG.normal(size=(3, 4, 6))


@pytest.mark.parametrize(
    ("options", "mask"),
    [({}, 0.0), ({"scale": 0.3}, 0.0), ({"is_causal": True}, np.where(CAUSAL, 0, -np.inf)),
     ({"attn_mask": HIDDEN}, np.where(HIDDEN, 0, -np.inf)),
     ({"attn_mask": ADDED}, ADDED), ({"attn_mask": np.where(HIDDEN, ADDED, -np.inf)}, np.where(HIDDEN, ADDED, -np.inf))],
)  # fmt: skip
def test_attention(options, mask):
    options = {k: gl.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    want = reference(Q, K, V, mask, options.get("scale", 8**-0.5))
    np.testing.assert_allclose(attention(*tensors(Q, K, V), **options).numpy(), want, rtol=1e-11, atol=1e-14)
    check_slopes(lambda *a: attention(*a, **options), Q, K, V)


@pytest.mark.parametrize("mask", [HIDDEN, np.where(HIDDEN, 0.5, -np.inf)])
def test_a_query_that_may_look_at_nothing_gets_zeros(mask):
    leaves = [gl.tensor(a, requires_grad=True) for a in (Q, K, V)]
    out = attention(*leaves, attn_mask=gl.tensor(mask))
    out.sum().backward()
    assert (out.detach().numpy()[..., 2, :] == 0).all()
    for leaf in leaves:
        assert np.isfinite(leaf.grad.numpy()).all()
    assert (leaves[0].grad.numpy()[..., 2, :] == 0).all()


def test_grouped_queries():
    q = RNG.normal(size=(2, 6, 4, 8))
    want = reference(q, K.repeat(2, 1), V.repeat(2, 1))
    np.testing.assert_allclose(attention(*tensors(q, K, V), enable_gqa=True).numpy(), want)
    check_slopes(lambda *a: attention(*a, enable_gqa=True), q, K, V)
    with pytest.raises(RuntimeError, match="heads"):
        attention(*tensors(q[:, :5], K, V), enable_gqa=True)


def test_dropout_keeps_the_mean():
    gl.manual_seed(1)
    weights = gl.zeros(1, 400, 8)
    found = attention(weights, gl.zeros(1, 50, 8), gl.ones(1, 50, 1), dropout_p=0.4).numpy()
    assert found.std() > 0.05
    assert found.mean() == pytest.approx(1, abs=0.02)


def test_sizes_of_nothing():
    assert attention(gl.ones(2, 0, 8), gl.ones(2, 3, 8), gl.ones(2, 3, 5)).shape == (2, 0, 5)
    assert attention(gl.ones(2, 4, 8), gl.ones(2, 0, 8), gl.ones(2, 0, 5)).tolist() == np.zeros((2, 4, 5)).tolist()


@pytest.mark.alone
@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear_in_the_length(causal):
    """All scores of one head would take 36 MB."""
    leaves = [gl.tensor(RNG.normal(size=(1, 3000, 4)).astype(np.float32), requires_grad=True) for _ in range(3)]
    tracemalloc.start()
    attention(*leaves, is_causal=causal).sum().backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_which_calls_are_one_row():
    q, k, v = tensors(Q, K, V)
    q.requires_grad_()
    name = lambda out: type(out.grad_fn).__name__
    assert name(attention(q, k, v)) == name(attention(q, k, v, attn_mask=gl.tensor(HIDDEN))) == "ScaledDotProductAttentionBackward0"
    assert name(attention(q, k, v, dropout_p=0.5)) != "ScaledDotProductAttentionBackward0"
    assert attention(q[0], k[0], v[0]).shape == (3, 4, 5)
    assert attention(q[0, 0], k[0, 0], v[0, 0], attn_mask=gl.tensor(CAUSAL)).shape == (4, 5)
    np.testing.assert_allclose(attention(q, k[:1], v[:1]).detach().numpy(), reference(Q, K[:1], V[:1]), rtol=1e-11)  # broadcast: in parts


@pytest.mark.parametrize(
    ("call", "words"),
    [(lambda: attention(*tensors(Q, K, V), attn_mask=gl.tensor(CAUSAL), is_causal=True), "not both"),
     (lambda: attention(*tensors(Q, K[..., :7], V)), "expected"),
     (lambda: attention(*tensors(Q, K, V[..., :5, :])), "expected"),
     (lambda: attention(*tensors(Q, K, V), attn_mask=gl.ones(4, 6).long()), "attn_mask is bool"),
     (lambda: attention(*tensors(Q, K, V), attn_mask=gl.ones(5, 6) > 0), "does not fit"),
     (lambda: attention(*tensors(Q, K), gl.tensor(V).float()), "one floating point dtype")],
)  # fmt: skip
def test_attention_errors(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


# ---------------------------------------------------------------- linear maps


def test_linear():
    w, b = RNG.normal(size=(5, 8)), RNG.normal(size=5)
    np.testing.assert_allclose(F.linear(*tensors(Q, w, b)).numpy(), Q @ w.T + b)
    np.testing.assert_allclose(F.linear(*tensors(Q[0, 0, 0], w)).numpy(), w @ Q[0, 0, 0])
    np.testing.assert_allclose(F.linear(*tensors(Q, w[0])).numpy(), Q @ w[0])
    check_slopes(F.linear, Q, w, b)
    with pytest.raises(RuntimeError, match="in_features"):
        F.linear(*tensors(Q, w.T))
    with pytest.raises(RuntimeError, match="bias of shape"):
        F.linear(*tensors(Q, w, b[:4]))
    with pytest.raises(TypeError, match="weight is a tensor"):
        F.linear(gl.ones(3), 2.0)


def test_bilinear():
    x, y, w, b = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 4, 2)), RNG.normal(size=(5, 3, 2)), RNG.normal(size=5)
    want = np.einsum("bni,oij,bnj->bno", x, w, y) + b
    np.testing.assert_allclose(F.bilinear(*tensors(x, y, w, b)).numpy(), want)
    check_slopes(F.bilinear, x, y, w, b)
    with pytest.raises(RuntimeError, match="do not fit"):
        F.bilinear(*tensors(y, x, w))


# ---------------------------------------------------------------- embeddings and distances

TABLE, PLACES = RNG.normal(size=(7, 3)), np.array([[1, 1, 4], [6, 1, 0]])


def gradient_of_table(**options):
    table = gl.tensor(TABLE, requires_grad=True)
    F.embedding(gl.tensor(PLACES), table, **options).sum().backward()
    return table.grad.numpy()[:, 0]


def test_embedding():
    np.testing.assert_array_equal(F.embedding(gl.tensor(PLACES), gl.tensor(TABLE)).numpy(), TABLE[PLACES])
    assert gradient_of_table().tolist() == [1, 3, 0, 0, 1, 0, 1]
    assert gradient_of_table(padding_idx=1).tolist() == [1, 0, 0, 0, 1, 0, 1]
    assert gradient_of_table(padding_idx=-1).tolist() == [1, 3, 0, 0, 1, 0, 0]
    np.testing.assert_allclose(gradient_of_table(scale_grad_by_freq=True), [1, 1, 0, 0, 1, 0, 1])
    with pytest.raises(IndexError):
        F.embedding(gl.tensor([7]), gl.tensor(TABLE))
    with pytest.raises(RuntimeError, match="two dimensions"):
        F.embedding(gl.tensor([0]), gl.tensor(TABLE[0]))


def test_embedding_with_a_limited_norm():
    table = gl.tensor(TABLE)
    F.embedding(gl.tensor(PLACES), table, max_norm=0.5)
    norms = np.linalg.norm(table.numpy(), axis=1)
    assert (norms[[0, 1, 4, 6]] <= 0.5 + 1e-6).all()
    np.testing.assert_array_equal(table.numpy()[[2, 3, 5]], TABLE[[2, 3, 5]])


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, np.inf])
def test_normalize_and_distance(p):
    norms = (np.abs(A) ** p).sum(1, keepdims=True) ** (1 / p) if p < np.inf else np.abs(A).max(1, keepdims=True)
    np.testing.assert_allclose(F.normalize(gl.tensor(A), p).numpy(), A / norms)
    check_slopes(lambda a: F.normalize(a, p), A)
    zeros = gl.zeros(2, 3, requires_grad=True)
    F.normalize(zeros, p).sum().backward()
    assert np.isfinite(zeros.grad.numpy()).all()
    check_slopes(lambda a, b: F.pairwise_distance(a, b, p), A, B)


A, B = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))


def test_cosine_similarity():
    want = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    np.testing.assert_allclose(F.cosine_similarity(*tensors(A, B)).numpy(), want)
    check_slopes(F.cosine_similarity, A, B)
    zeros = gl.zeros(4, 5, requires_grad=True)
    found = F.cosine_similarity(zeros, gl.ones(5))
    found.sum().backward()
    assert found.tolist() == [0, 0, 0, 0]
    assert np.isfinite(zeros.grad.numpy()).all()
