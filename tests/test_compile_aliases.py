"""Results of compiled functions that share memory with arguments, state and each other do so as they do eagerly."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def then(value, function):
    return function(value)


def stale(y):
    view = y[0]
    y.add_(1.0)
    return view


FUNCTIONS = {
    "argument": lambda x, w, b: x,
    "view of an argument": lambda x, w, b: x[0],
    "views of an argument": lambda x, w, b: (x[0], x.t(), x.reshape(-1)),
    "view of a view": lambda x, w, b: x.t()[1:][0],
    "detached argument": lambda x, w, b: x.detach(),
    "detached view": lambda x, w, b: x.detach()[1],
    "parameter": lambda x, w, b: w,
    "view of a parameter": lambda x, w, b: w[0],
    "detached parameter": lambda x, w, b: (w.detach(), w.detach()[1]),
    "buffer": lambda x, w, b: (b, b[0]),
    "written buffer": lambda x, w, b: (b.add_(x), b[0], b.t()),
    "view before the write": lambda x, w, b: then(b[0], lambda v: (b.add_(x), v)[1]),
    "written argument": lambda x, w, b: (x.mul_(2), x[0]),
    "view of a result": lambda x, w, b: then(x * 2 + w, lambda y: (y, y[0], y.detach())),
    "views of a hidden value": lambda x, w, b: then(x * 2, lambda y: (y[0], y.t())),
    "halves": lambda x, w, b: (x * w).chunk(2, 1),
    "twice the same": lambda x, w, b: then(x + 1, lambda y: (y, y)),
    "copies": lambda x, w, b: (x.clone(), x[0].clone(), x * 1),
    "no-ops": lambda x, w, b: (x.contiguous(), x.to(gl.float32), x.reshape(3, 4)),
    "written hidden value": lambda x, w, b: then(x + 1, lambda y: (y[0].mul_(3.0), y[:, 0])),
    "stale view": lambda x, w, b: stale(x * 2),
    "nested": lambda x, w, b: {"a": [x[0], (x[1],)], "b": None},
}


def tensors(value):
    if isinstance(value, gl.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value or ()
    return [t for part in parts for t in tensors(part)]


def seen(wrap, function, requires_grad):
    gl.manual_seed(0)
    w, b = gl.randn(3, 4, requires_grad=requires_grad), gl.zeros(3, 4)
    call = wrap(lambda x: function(x, w, b))
    found = []
    for _ in range(4):
        x = gl.randn(3, 4)
        results = tensors(call(x))
        for t in results:
            if t.requires_grad:
                (g,) = gl.autograd.grad(t.sum(), w, retain_graph=True, allow_unused=True)
                found.append(None if g is None else g.tolist())
        everything = [*results, x, w, b]
        for t in everything:
            with gl.no_grad():
                t.detach().add_(1.0)
            found += [u.detach().tolist() for u in everything]
        found.append([t.requires_grad for t in results])
        found.append([[t is u for u in everything] for t in everything])
    return found


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_share_memory_as_they_do_eagerly(name, requires_grad):
    function = FUNCTIONS[name]
    assert seen(gl.compile, function, requires_grad) == seen(lambda f: f, function, requires_grad)


def test_the_gradient_flows_through_a_view_of_an_argument():
    f = gl.compile(lambda x: (x[0], x.t()))
    for _ in range(3):
        leaf = gl.ones(2, 3, requires_grad=True)
        a, b = f(leaf * 2)
        (a.sum() + (b * 3).sum()).backward()
        assert leaf.grad.tolist() == [[8.0] * 3, [6.0] * 3]


def test_an_argument_that_is_written_with_what_requires_grad_is_in_the_graph():
    w = gl.tensor([1.0, 2.0], requires_grad=True)
    f = gl.compile(lambda x: x.mul_(w))
    for i in range(1, 4):
        x = gl.full((2,), float(i))
        y = f(x)
        assert y is x
        assert x.tolist() == [i, 2 * i]
        (g,) = gl.autograd.grad(x.sum(), w)
        assert g.tolist() == [i, i]


def test_a_gradient_that_is_returned_is_the_one_in_grad():
    w = gl.tensor([1.0, 2.0], requires_grad=True)

    @gl.compile
    def f(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    for i in range(4):
        found = f(gl.full((2,), float(i)))
        assert found is w.grad
        found.mul_(2.0)
        assert w.grad.tolist() == [2.0 * i] * 2


def test_a_result_that_requires_grad_as_a_leaf_does():
    f = gl.compile(lambda x: (x * 2).requires_grad_())
    for _ in range(3):
        y = f(gl.ones(2))
        assert y.is_leaf
        (y * 3).sum().backward()
        assert y.grad.tolist() == [3.0, 3.0]


def test_an_argument_that_is_also_found_elsewhere():
    t, u = gl.tensor([1.0, 2.0]), gl.tensor([10.0, 20.0])
    f = gl.compile(lambda x: x + t)
    for x in (t, t, u, t, u, u):
        assert f(x).tolist() == (x + t).tolist()


def test_gradients_reach_the_graphs_of_tensors_from_outside():
    w, v = gl.tensor([1.0, 2.0], requires_grad=True), gl.tensor([3.0, 4.0], requires_grad=True)
    h = (w * v).sigmoid()
    found = []
    for wrap in (lambda f: f, gl.compile):
        f = wrap(lambda x: (x * h * w).sum() + v[0])
        for i in range(4):
            w.grad = v.grad = None
            f(gl.full((2,), 1.0 + i)).backward(retain_graph=True)
            found.append([w.grad.tolist(), v.grad.tolist()])
    np.testing.assert_allclose(found[:4], found[4:], rtol=1e-6)
    (g,) = gl.autograd.grad(f(gl.ones(2)), w, create_graph=True)
    (again,) = gl.autograd.grad(g.sum(), v, retain_graph=True)
    (g,) = gl.autograd.grad((gl.ones(2) * h * w).sum() + v[0], w, create_graph=True)
    np.testing.assert_allclose(again.numpy(), gl.autograd.grad(g.sum(), v, retain_graph=True)[0].numpy(), rtol=1e-6)


def test_a_backward_that_would_go_on_outside_is_refused():
    w, v = gl.ones(2, requires_grad=True), gl.ones(2, requires_grad=True)

    def step(x):
        loss = (x * v).sum()
        loss.backward()
        return loss

    f = gl.compile(step)
    f(w * 2)
    with pytest.raises(gl.graph.TraceError, match=r"graph of an argument[\s\S]*detach"):
        f(w * 2)
    for _ in range(3):
        v.grad = None
        f((w * 2).detach())
        assert v.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("turn", ["t_", "unsqueeze_", "squeeze_"])
def test_a_result_that_was_turned_shares_memory_with_views_from_before(turn):
    def function(x):
        y = x * 3
        z = y.view_as(y)
        getattr(y, turn)(*(() if turn == "t_" else (0,)))
        return z, y

    compiled = gl.compile(function)
    for _ in range(3):
        for call in (function, compiled):
            z, y = call(gl.ones(1, 3))
            z.add_(1)
            assert y.flatten().tolist() == [4.0] * 3
