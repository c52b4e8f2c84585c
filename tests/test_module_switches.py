"""Switches of modules that show in some state only: lazy sizes of single samples, dropout between layers, packed orders, hints."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F


def same(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("single", [False, True])
def test_lazy_modules_count_the_channels_of_single_samples(single):
    for make, becomes, sizes in (
        (nn.LazyConv1d, nn.Conv1d, (5,)), (nn.LazyConv2d, nn.Conv2d, (5, 6)), (nn.LazyConv3d, nn.Conv3d, (5, 6, 7)),
        (nn.LazyConvTranspose1d, nn.ConvTranspose1d, (5,)), (nn.LazyConvTranspose2d, nn.ConvTranspose2d, (5, 6)),
    ):  # fmt: skip
        module = make(4, 2, groups=2)
        module(gl.ones(*() if single else (3,), 2, *sizes))
        assert type(module) is becomes and module.in_channels == 2
        with pytest.raises(ValueError, match="divisible"):
            make(4, 2, groups=2)(gl.ones(*() if single else (3,), 5, *sizes))
    for make, sizes in ((nn.LazyInstanceNorm1d, (5,)), (nn.LazyInstanceNorm2d, (5, 6)), (nn.LazyInstanceNorm3d, (5, 6, 7))):
        module = make(affine=True)
        module(gl.ones(*() if single else (3,), 2, *sizes))
        assert module.num_features == 2 and module.weight.shape == (2,)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_dropout_acts_between_layers_alone(kind):
    with pytest.warns(UserWarning, match="only one"):
        kind(3, 4, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = kind(3, 4, 2, dropout=1.0)
    x = gl.randn(5, 2, 3)
    out, _ = module(x)
    second = kind(4, 4)
    second.load_state_dict({name.replace("_l1", "_l0"): p for name, p in module.state_dict().items() if "_l1" in name})
    same(out, second(gl.zeros(5, 2, 4))[0])  # all of the first layer's is dropped, nothing of the second's
    assert not np.allclose(module.eval()(x)[0].detach().numpy(), out.detach().numpy())


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_packed_sequences_come_back_in_their_order(kind):
    module, x, lengths = kind(3, 4, bidirectional=True), gl.randn(4, 4, 3), [1, 4, 2, 3]  # no order that is its own inverse
    start = gl.randn(2, 4, 4)
    state = (start, start * 2) if kind is nn.LSTM else start
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    out, last = module(packed, state)
    padded, found = nn.utils.rnn.pad_packed_sequence(out)
    assert found.tolist() == lengths
    for i, n in enumerate(lengths):
        own = tuple(s[:, i : i + 1] for s in state) if kind is nn.LSTM else state[:, i : i + 1]
        alone, end = module(x[:n, i : i + 1], own)
        same(padded[:n, i], alone[:, 0])
        for all_ends, one in zip(last if kind is nn.LSTM else (last,), end if kind is nn.LSTM else (end,), strict=True):
            same(all_ends[:, i], one[:, 0])


def test_attention_drops_in_training_alone():
    x = gl.randn(6, 2, 4)
    module, plain = nn.MultiheadAttention(4, 2, dropout=0.4), nn.MultiheadAttention(4, 2)
    plain.load_state_dict(module.state_dict())
    gl.manual_seed(0)
    weights = module(x, x, x, average_attn_weights=False)[1]
    dropped = (weights == 0).float().mean().item()
    assert 0.2 < dropped < 0.6
    for need in (False, True):
        same(module.eval()(x, x, x, need_weights=need)[0], plain(x, x, x)[0])


def test_a_hint_about_a_mask_changes_nothing():
    x = gl.randn(3, 2, 4)
    causal = gl.tensor([[0.0, -math.inf, -math.inf], [0.0, 0.0, -math.inf], [0.0, 0.0, 0.0]])
    padding = gl.tensor([[False, True, False], [False, False, True]])
    for options in ({}, {"add_bias_kv": True}, {"add_zero_attn": True}):
        module = nn.MultiheadAttention(4, 2, **options).eval()
        for more in ({}, {"key_padding_mask": padding}):
            told, plain = (module(x, x, x, need_weights=False, attn_mask=causal, is_causal=hint, **more)[0] for hint in (True, False))
            same(told, plain)
            same(plain, module(x, x, x, attn_mask=causal, **more)[0])


def test_attention_by_either_way():
    """Both forms of attention, with weights in memory and without, over lengths that differ; what a value's batch is broadcast to."""
    q, k, v = gl.randn(2, 3, 4), gl.randn(2, 5, 4), gl.randn(2, 5, 6)
    allowed = gl.ones(3, 5).tril().bool()
    want = F.softmax((q @ k.mT * 0.5).masked_fill(~allowed, -math.inf), -1) @ v
    same(F.scaled_dot_product_attention(q, k, v, is_causal=True), want)
    same(F.scaled_dot_product_attention(q[None, None, None], k[None, None, None], v[None, None, None], is_causal=True)[0, 0, 0], want)
    same(F.scaled_dot_product_attention(q, k, v[:1]), F.scaled_dot_product_attention(q, k, v[:1].expand(2, 5, 6)))
    same(F.scaled_dot_product_attention(q, k[:1], v[:1]), F.scaled_dot_product_attention(q, k[:1].expand(2, 5, 4), v[:1].expand(2, 5, 6)))
    same(F.scaled_dot_product_attention(q, k, v, scale=0.0), v.mean(1, keepdim=True).expand(2, 3, 6))


def test_norms_whose_statistics_are_switched():
    x = gl.randn(6, 4, 5)
    norm = nn.BatchNorm1d(4)
    norm.track_running_stats = False
    out = norm(x)
    assert norm.num_batches_tracked.item() == 0 and norm.running_mean.tolist() == [0.0] * 4
    same(out, F.batch_norm(x, None, None, training=True))
    still = nn.InstanceNorm1d(4, momentum=None, track_running_stats=True)
    still(x)
    assert still.running_mean.tolist() == [0.0] * 4 and still.running_var.tolist() == [1.0] * 4
    for training in (False, True):
        for track in (False, True):
            made = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4, track_running_stats=track).train(training))
            assert made.training is training and made.track_running_stats is track and (made.running_mean is None) is not track


def test_running_statistics_count_as_written():
    """Also the count of batches; and not where a checkpoint computes again."""
    norm = nn.BatchNorm1d(4)
    before = [b._version for b in norm.buffers()]
    norm(gl.randn(6, 4))
    assert all(b._version > old for b, old in zip(norm.buffers(), before, strict=True))
    once, x = [b.clone() for b in norm.buffers()], gl.randn(6, 4, requires_grad=True)
    norm.load_state_dict(nn.BatchNorm1d(4).state_dict())
    gl.utils.checkpoint.checkpoint(nn.Sequential(norm, nn.Linear(4, 1)), x, use_reentrant=False).sum().backward()
    assert norm.num_batches_tracked.item() == 1 and once[2].item() == 1
    same(norm.running_mean, 0.1 * x.mean(0))
    same(norm.running_var, 0.9 + 0.1 * x.var(0))


def test_running_statistics_that_cannot_be_written():
    norm = nn.BatchNorm1d(4)
    norm.running_mean = gl.zeros(1).expand(4)
    with pytest.raises(RuntimeError, match="batch_norm"):
        norm(gl.randn(6, 4))


def test_plain_averages_in_a_compiled_function():
    eager, x = nn.BatchNorm1d(4, momentum=None), gl.randn(3, 6, 4)
    norm = nn.BatchNorm1d(4, momentum=None)
    step = gl.compile(norm)
    for part in x:
        same(step(part), eager(part))
        for a, b in zip(norm.buffers(), eager.buffers(), strict=True):
            same(a.float(), b.float())


def test_group_norm_lies_as_its_input():
    x = gl.randn(2, 4, 5, 6).contiguous(memory_format=gl.channels_last).requires_grad_()
    y = F.group_norm(x, 2)
    assert y.is_contiguous(memory_format=gl.channels_last)
    same(y, F.group_norm(x.detach().contiguous(), 2))
