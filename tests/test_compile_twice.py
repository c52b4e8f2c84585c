"""Gradients of gradients through compiled functions: `create_graph=True` where the function is differentiated from outside."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError


def both(make, calls=4):
    """What `make(wrap)` gives eagerly and compiled, of several calls: lists of arrays."""
    for a, b in zip(make(lambda f: f, calls), make(gl.compile, calls), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def network():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def test_a_gradient_penalty_trains():
    def make(wrap, calls):
        model = network()
        optimizer = gl.optim.SGD(model.parameters(), lr=0.1)
        critic = wrap(model)
        found = []
        for i in range(calls):
            gl.manual_seed(i)
            x = gl.randn(5, 3, requires_grad=True)
            y = critic(x)
            (slope,) = gl.autograd.grad(y.sum(), x, create_graph=True)
            loss = y.mean() + ((slope.norm(dim=1) - 1) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found += [loss.item(), x.grad.numpy(), *(p.detach().numpy().copy() for p in model.parameters())]
        return found

    both(make)


def test_products_with_the_hessian_and_the_third_order():
    def make(wrap, calls):
        model = network()
        f = wrap(lambda x: model(x).pow(2).sum() * x.detach().sum())
        found = []
        for i in range(calls):
            gl.manual_seed(i)
            x, v = gl.randn(2, 3, requires_grad=True), gl.randn(2, 3)
            (g,) = gl.autograd.grad(f(x), x, create_graph=True)
            (h,) = gl.autograd.grad((g * v).sum(), x, create_graph=True)
            (t,) = gl.autograd.grad((h * v).sum(), x)
            found += [g.detach().numpy(), h.detach().numpy(), t.numpy()]
        return found

    both(make)


def test_the_same_numbers_are_drawn_again_and_nothing_is_written_twice():
    def make(wrap, calls):
        gl.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, 1))
        f = wrap(model)
        found = []
        for _ in range(calls):
            x = gl.randn(6, 3, requires_grad=True)
            y = f(x)
            between = gl.rand(2)  # the stream goes on where the forward left it
            (g,) = gl.autograd.grad(y.sum(), x, create_graph=True)
            model.zero_grad()
            g.square().sum().backward()
            found += [between.numpy(), gl.rand(2).numpy(), y.detach().numpy(), g.detach().numpy()]
            found += [p.grad.numpy() for p in model.parameters() if p.grad is not None]
            found += [b.numpy().copy() for b in model.buffers()]
        return found

    both(make)


class Cubed(gl.autograd.Function):
    """Its backward is not the derivative of its forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**3


def test_a_backward_of_ones_own_and_detached_values_count_as_they_do_eagerly():
    def make(wrap, calls):
        f = wrap(lambda x: Cubed.apply(x) * x.detach())
        found = []
        for i in range(calls):
            x = gl.tensor([1.0, 2.0, 3.0 + i], requires_grad=True)
            (g,) = gl.autograd.grad(f(x).sum(), x, create_graph=True)
            found += [g.detach().numpy(), gl.autograd.grad(g.sum(), x)[0].numpy()]
        return found

    both(make)


def test_the_second_gradient_is_compiled_once():
    f = gl.compile(lambda x: (x**3).sum())
    for _ in range(4):
        x = gl.ones(3, requires_grad=True)
        (g,) = gl.autograd.grad(f(x), x, create_graph=True)
        assert gl.autograd.grad(g.sum(), x)[0].tolist() == [6.0] * 3
    assert len(f.programs) == 1
    assert len(f.programs[0].gradients.programs) == 1


def test_first_order_traces_nothing_more():
    f = gl.compile(lambda x: (x**3).sum())
    for _ in range(3):
        x = gl.ones(3, requires_grad=True)
        gl.autograd.grad(f(x), x)
    assert f.programs[0].gradients.programs == []


def test_what_the_function_read_must_be_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    f = gl.compile(model)
    x = gl.ones(2, 3, requires_grad=True)
    for _ in range(2):
        y = f(x)
    model.eval()
    with pytest.raises(RuntimeError, match=r"has changed since its forward: .*training"):
        gl.autograd.grad(y.sum(), x, create_graph=True)
    model.train()
    y = f(x)
    with gl.no_grad():
        model[0].bias.add_(1.0)
    with pytest.raises(RuntimeError, match="was changed in place after its forward"):
        gl.autograd.grad(y.sum(), x, create_graph=True)


@pytest.mark.parametrize("create_graph", [False, True])
def test_an_argument_must_not_change_before_the_backward(create_graph):
    f = gl.compile(lambda x, w: (x * w).sum())
    w = gl.ones(3, requires_grad=True)
    for _ in range(3):
        x = gl.full((3,), 2.0)
        y = f(x, w)
        x.mul_(3)
        with pytest.raises(RuntimeError, match=r"in[- ]place"):
            gl.autograd.grad(y, w, create_graph=create_graph)


def test_a_function_that_computes_with_what_it_writes_is_refused():
    state = gl.ones(3)

    @gl.compile
    def f(x):
        y = (x + state).square()
        with gl.no_grad():
            state.add_(1.0)
        return y.sum()

    x = gl.ones(3, requires_grad=True)
    for i in range(3):
        assert gl.autograd.grad(f(x), x)[0].tolist() == [2.0 * (2 + i)] * 3
    y = f(x)
    with pytest.raises(NotImplementedError, match="create_graph"):
        gl.autograd.grad(y, x, create_graph=True)


def test_a_result_from_before_a_trace_is_not_differentiated_in_it():
    x = gl.ones(3, requires_grad=True)
    f = gl.compile(lambda x: (x**2).sum())
    for _ in range(2):
        y = f(x)
    g = gl.compile(lambda: gl.autograd.grad(y, x, retain_graph=True)[0])
    g()
    with pytest.raises(TraceError, match="call that function inside"):
        g()


def test_leaves_made_in_the_function():
    """What requires grad through them alone says so; one that is returned gets its gradient."""

    @gl.compile
    def unseen(x):
        return (gl.full((3,), 2.0, requires_grad=True) * x).sum()

    @gl.compile
    def returned(x):
        w = gl.full((3,), 2.0, requires_grad=True)
        return w * w * x, w, x * 2

    x = gl.tensor([1.0, 2.0, 3.0])
    for call in range(3):
        y = unseen(x)
        assert y.requires_grad and not y.is_leaf
        assert gl.autograd.grad(y, gl.ones(1, requires_grad=True), create_graph=True, allow_unused=True) == (None,)
        unseen(x).backward()
        y, w, plain = returned(x)
        assert y.requires_grad and w.requires_grad and w.is_leaf and not plain.requires_grad
        y.sum().backward()
        assert w.grad.tolist() == [4.0, 8.0, 12.0]
        if call:
            y, w, _ = returned(x)
            with pytest.raises(NotImplementedError, match="returns a leaf which it makes; make it outside"):
                gl.autograd.grad(y.sum(), w, create_graph=True)
