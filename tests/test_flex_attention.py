"""Attention with scores and masks that are functions, and the choice among PyTorch's kernels, which changes nothing."""

import importlib
import math

import pytest

import gradlab as gl
from gradlab.nn import attention, functional as F

flex = importlib.import_module("gradlab.nn.attention.flex_attention")

SCORES = {
    "none": None,
    "slopes": lambda score, b, h, q, kv: score + gl.tensor([0.5, -0.25], dtype=gl.float64)[h] * (q - kv),
    "soft cap": lambda score, b, h, q, kv: 3 * (score / 3).tanh(),
    "batch": lambda score, b, h, q, kv: score * (b + 1),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, q, kv: q >= kv,
    "documents": lambda b, h, q, kv: gl.tensor([0, 0, 1, 1, 2])[q] == gl.tensor([0, 0, 1, 1, 2])[kv],
    "window": flex.and_masks(lambda b, h, q, kv: q >= kv, lambda b, h, q, kv: q - kv < 2),
    "either": flex.or_masks(lambda b, h, q, kv: q == kv, lambda b, h, q, kv: kv == 0),
    "strict": lambda b, h, q, kv: q > kv,  # the first query sees no key
}


def inputs(*shape):
    gl.manual_seed(0)
    return [gl.randn(*(shape or (2, 2, 5, 4)), dtype=gl.float64, requires_grad=True) for _ in range(3)]


def by_hand(q, k, v, score, mask):
    """One query and key at a time, as the functions are written."""
    result = gl.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for b, h, i in ((b, h, i) for b in range(q.shape[0]) for h in range(q.shape[1]) for i in range(q.shape[2])):
        row = []
        for j in range(k.shape[2]):
            places = [gl.tensor(n) for n in (b, h, i, j)]
            s = q[b, h, i] @ k[b, h, j] / math.sqrt(q.shape[3])
            s = s if score is None else score(s, *places)
            row.append(s if mask is None or mask(*places) else gl.full((), -math.inf, dtype=q.dtype))
        scores = gl.stack(row)
        if (scores > -math.inf).any():
            result[b, h, i] = scores.softmax(0) @ v[b, h]
    return result


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_values(score, mask):
    q, k, v = inputs()
    block = None if MASKS[mask] is None else flex.create_block_mask(MASKS[mask], None, None, 5, 5)
    with gl.no_grad():
        assert gl.allclose(flex.flex_attention(q, k, v, SCORES[score], block), by_hand(q, k, v, SCORES[score], MASKS[mask]))


@pytest.mark.parametrize(("score", "mask"), [("slopes", "strict"), ("soft cap", "causal")])
def test_gradients(score, mask):
    block = flex.create_block_mask(MASKS[mask], None, None, 3, 3)
    assert gl.autograd.gradcheck(lambda q, k, v: flex.flex_attention(q, k, v, SCORES[score], block), inputs(1, 2, 3, 2))


def test_beside_scaled_dot_product_attention():
    q, k, v = (x.detach().float() for x in inputs())
    block = flex.create_block_mask(MASKS["causal"], None, None, 5, 5)
    assert gl.allclose(flex.flex_attention(q, k, v, block_mask=block), F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-6)
    half = [x.bfloat16() for x in (q, k, v)]
    assert flex.flex_attention(*half).dtype == gl.bfloat16
    compiled = gl.compile(lambda q: flex.flex_attention(q, k, v, SCORES["soft cap"], block))
    assert all(gl.allclose(compiled(q), flex.flex_attention(q, k, v, SCORES["soft cap"], block), atol=1e-6) for _ in range(3))


def test_heads_that_are_used_several_times():
    q, k, v = inputs()
    k, v = k[:, :1], v[:, :1]
    result, lse = flex.flex_attention(q, k, v, enable_gqa=True, return_lse=True)
    assert gl.allclose(result, flex.flex_attention(q, k.expand(2, 2, 5, 4), v.expand(2, 2, 5, 4))) and lse.shape == (2, 2, 5)
    with pytest.raises(RuntimeError, match="enable_gqa"):
        flex.flex_attention(q, k, v)
    with pytest.raises(RuntimeError, match="expected"):
        flex.flex_attention(q[0], k[0], v[0])
    with pytest.raises(RuntimeError, match="more than the mask's"):
        flex.flex_attention(q, q, q, block_mask=flex.create_block_mask(MASKS["causal"], None, None, 4, 4))
    with pytest.raises(RuntimeError, match="heads"):
        flex.flex_attention(q, q, q, block_mask=flex.create_block_mask(MASKS["causal"], 2, 3, 5, 5))


def test_masks():
    block = flex.create_block_mask(MASKS["causal"], 2, None, 4, 4, device="cpu", BLOCK_SIZE=64)
    assert block.to_dense().shape == block.shape == (2, 1, 4, 4) and block.sparsity() == 37.5 and block.numel() == 32
    assert block.to("cpu") is block and block.BLOCK_SIZE == (64, 64) and block.seq_lengths == (4, 4)
    assert flex.create_mask(flex.noop_mask, None, None, 2, 3).all()


def test_choices_are_kept():
    kinds = attention.SDPBackend
    assert attention.flash_sdp_enabled() and attention.math_sdp_enabled()
    with attention.sdpa_kernel(kinds.MATH):
        assert attention.math_sdp_enabled() and not attention.flash_sdp_enabled() and not attention.cudnn_sdp_enabled()
        attention.enable_mem_efficient_sdp(True)
        assert attention.mem_efficient_sdp_enabled()
    for name in ("flash", "math", "mem_efficient", "cudnn"):
        switch, asked = getattr(attention, f"enable_{name}_sdp"), getattr(attention, f"{name}_sdp_enabled")
        switch(False)
        assert not asked()
        switch(True)
        assert asked()
    with attention.sdp_kernel(enable_flash=False):
        assert not attention.flash_sdp_enabled()
    with pytest.raises(TypeError, match="SDPBackend"), attention.sdpa_kernel("math"):
        pass
    with pytest.raises(RuntimeError, match="leave one on"), attention.sdp_kernel(False, False, False, False):
        pass
