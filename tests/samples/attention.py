"""Samples of attention and its gradient. The reference makes all scores."""

import numpy as np

from samples.base import normal, sample


def weights(q, k, mask, scale, causal):
    """The scores, -inf where attention is not allowed."""
    scores = np.einsum("nhle,nhse->nhls", q, k) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        length, keys = scores.shape[2:]
        scores = np.where(np.arange(keys) <= np.arange(length)[:, None], scores, -np.inf)
    return scores


def attention(q, k, v, mask, *, scale, causal):
    scores = weights(q, k, mask, scale, causal)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores).sum(-1))
    lse = np.where(np.isneginf(lse), 0, lse)
    return np.einsum("nhls,nhsv->nhlv", np.exp(scores - lse[..., None]), v), lse


def attention_backward(g, g_lse, q, k, v, mask, y, lse, *, scale, causal):
    p = np.exp(weights(q, k, mask, scale, causal) - lse[..., None])
    delta = (g * y).sum(-1) - (0 if g_lse is None else g_lse)
    ds = p * (np.einsum("nhlv,nhsv->nhls", g, v) - delta[..., None]) * scale
    return np.einsum("nhls,nhse->nhle", ds, k), np.einsum("nhls,nhle->nhse", ds, q), np.einsum("nhls,nhlv->nhsv", p, g)


HIDDEN = np.random.default_rng(7).random((2, 1, 5, 7)) > 0.4
HIDDEN[1, 0, 3] = False  # a query that may look at nothing
PADDING = np.array([[True] * 7, [True] * 4 + [False] * 3]).reshape(2, 1, 1, 7)
SHUT = np.where(HIDDEN, 0.5, -np.inf)

# (batch and heads, queries, keys, size, value size, mask, causal)
CASES = [
    ((2, 3), 5, 7, 4, 4, None, False),
    ((2, 1), 5, 7, 3, 5, HIDDEN, False),
    ((2, 2), 5, 7, 4, 2, PADDING, True),
    ((1, 2), 6, 6, 5, 3, None, True),
    ((1, 2), 3, 8, 4, 4, normal(2, 1, 8, seed=4), False),
    ((2, 1), 5, 7, 2, 2, SHUT, False),
    ((1, 1), 9, 4, 2, 3, None, True),  # more queries than keys
    ((2, 2), 0, 3, 4, 4, None, False),
    ((2, 2), 3, 0, 4, 4, None, False),
    ((0, 2), 3, 2, 4, 4, None, True),
]


def operands(lead, queries, keys, size, value_size):
    return normal(*lead, queries, size), normal(*lead, keys, size, seed=1), normal(*lead, keys, value_size, seed=2)


def _forward(number, case):
    lead, queries, keys, size, value_size, mask, causal = case
    # Where a mask has -inf, finite differences of the mask itself have no slope to compare with.
    inputs = (*operands(lead, queries, keys, size, value_size), mask)
    return sample(*inputs, reference=attention, scale=0.4 + 0.1 * number, causal=causal, dtypes=("float32",))


def _backward(number, case):
    lead, queries, keys, size, value_size, mask, causal = case
    scale = 0.4 + 0.1 * number
    g, g_lse = normal(*lead, queries, value_size, seed=5), normal(*lead, queries, seed=6) if number % 2 else None

    def inputs(q, k, v):
        return g, g_lse, q, k, v, mask, *attention(q, k, v, mask, scale=scale, causal=causal)

    def fresh(draws):
        return inputs(*(draws.normal(size=x.shape) for x in (q, k, v)))

    q, k, v = operands(lead, queries, keys, size, value_size)
    given = inputs(q, k, v)
    # Where a weight is nearly 1 its slope is what the others' lack, whatever y and lse are: smooth only if they change with q, k and v.
    sure = np.exp(weights(q, k, mask, scale, causal) - given[-1][..., None]).max(initial=0) > 0.9
    options = {"gradients": 0 if sure else 2, "dtypes": ("float32",), "fresh": fresh}
    return sample(*given, reference=attention_backward, scale=scale, causal=causal, **options)


SAMPLES = {
    "scaled_dot_product_attention": [_forward(i, case) for i, case in enumerate(CASES)],
    "scaled_dot_product_attention_backward": [_backward(i, case) for i, case in enumerate(CASES)],
}
