"""Compiled CPU programs write parts where the whole lies (`graph/executables/native/assembling.py`): same results, no copies."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")
F = nn.functional


def tasks(step):
    """The names of the rows that have tasks in a compiled function's program, loops left out."""
    return [call.op.name for call in step.programs[0].runner.executable._calls if call is not None]


def arrays(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [gl.tensor(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def check(function, *shapes):
    """Compiled calls on several inputs give what eager ones give; the compiled function."""
    step = gl.compile(function)
    for seed in range(4):
        given = arrays(seed, *shapes)
        got, want = step(*given), function(*given)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
            np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=3e-5, atol=3e-6)
    return step


class Attention(nn.Module):
    def __init__(self, width, heads, one):
        super().__init__()
        self.heads, self.one = heads, one
        if one:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(x).split(c, dim=2) if self.one else (self.q(x), self.k(x), self.v(x))
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


@pytest.mark.parametrize("one", [True, False])
def test_attention_copies_nothing(one):
    gl.manual_seed(0)
    model = Attention(24, 3, one)

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss, *(p.grad for p in model.parameters())

    compiled = check(step, (2, 21, 24))
    assert "scaled_dot_product_attention_backward" in tasks(compiled)
    assert not {"cat", "view"} & set(tasks(compiled))


def test_attention_whose_result_is_wanted_keeps_its_order():
    def function(q, k, v):
        y = F.scaled_dot_product_attention(q, k, v)
        return y, y.transpose(1, 2).reshape(2, 9, 24) * 2

    compiled = check(function, (2, 3, 9, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    assert compiled(*arrays(9, (2, 3, 9, 8), (2, 3, 7, 8), (2, 3, 7, 8)))[0].is_contiguous()


def test_parts_along_the_first_dimension():
    compiled = check(lambda x, w: gl.cat([x @ w, (x + 1) @ w, x.t() @ w]).tanh(), (5, 5), (5, 7))
    assert "cat" not in tasks(compiled)


def test_parts_that_are_read_before_and_after():
    def function(x, w):
        a, b = x @ w, (x * 2) @ w
        c = (a.exp() + b) @ w
        whole = gl.cat([a, b, c])
        return (whole * 2).sum(0), a.sum(), (whole.tanh() + gl.cat([c, a, b])).amax(1)

    check(function, (6, 6), (6, 6))


def test_parts_through_views():
    def function(x, w):
        a, b = (x @ w).view(2, 3, 6), ((x + 1) @ w).view(6, 6).unsqueeze(0).view(2, 3, 6)
        return gl.cat([a, b]) * 2, gl.stack([(x - 2) @ w, (x - 1) @ w], dim=0).sum(1)

    compiled = check(function, (6, 6), (6, 6))
    assert "cat" not in tasks(compiled)


def test_what_cannot_be_a_part():
    def function(x, w):
        a, b, c = x @ w, (x * 2) @ w, (x * 3) @ w
        twice = gl.cat([a, a])
        beside = gl.cat([b, c], dim=1)
        turned = gl.cat([c.t(), w])
        inner = gl.cat([gl.cat([x @ w.t(), w @ x]), w @ w])
        wanted = (x - 1) @ w
        return twice * 1, beside.sum(1), turned.tanh(), inner, wanted, gl.cat([wanted, x]), gl.cat([x[:0], a[1:]])

    check(function, (6, 6), (6, 6))


def test_a_whole_that_is_state():
    state = gl.zeros(4, 3)

    def step(x, w):
        before = state * 1
        a = x @ w
        b = state[:2] @ w
        state.copy_(gl.cat([a, b]))
        return before, (state @ w) * 1

    compiled = gl.compile(step)
    expected = np.zeros((4, 3), np.float32)
    for seed in range(4):
        x, w = arrays(seed, (2, 3), (3, 3))
        before, after = compiled(x, w)
        np.testing.assert_allclose(before.numpy(), expected, rtol=1e-5, atol=1e-6)
        expected = np.concatenate([x.numpy() @ w.numpy(), expected[:2] @ w.numpy()])
        np.testing.assert_allclose(state.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.numpy(), expected @ w.numpy(), rtol=1e-5, atol=1e-5)


def test_a_recurrent_layer_joins_nothing_but_what_it_began_with():
    gl.manual_seed(1)
    model = nn.LSTM(5, 6, batch_first=True)

    def step(x):
        model.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        return loss, *(p.grad for p in model.parameters())

    compiled = check(step, (3, 8, 5))
    names = tasks(compiled)
    assert names.count("cat") <= 8  # of the states before each step, the first of which comes from outside
