"""gl.func: derivatives of functions and how they nest."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import func

X = np.random.default_rng(0).normal(size=(4, 3))
W = np.random.default_rng(1).normal(size=(2, 3))


def x64(array=X):
    return gl.tensor(array)


def close(got, want, tolerance=1e-10):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy() if isinstance(want, gl.Tensor) else want, tolerance, 1e-12)


# ---------------------------------------------------------------- grad


def test_grad_of_chosen_arguments():
    f = lambda a, b: (a * a * b).sum()
    a, b = x64(), x64(X + 1)
    close(func.grad(f)(a, b), 2 * X * (X + 1))
    close(func.grad(f, argnums=1)(a, b), X * X)
    first, second = func.grad(f, argnums=(0, -1))(a, b)
    close(first, 2 * X * (X + 1))
    close(second, X * X)
    assert not first.requires_grad and a.grad is None


def test_grad_of_nested_arguments():
    g = func.grad(lambda p: (p["a"] * p["b"][0]).sum() + p["b"][1])({"a": x64(), "b": (x64(X + 1), gl.tensor(2.0))})
    close(g["a"], X + 1)
    close(g["b"][0], X)
    close(g["b"][1], 1.0)


def test_value_and_aux():
    f = lambda x: ((x**3).sum(), {"twice": 2 * x})
    value, gradient = func.value_and_grad(lambda x: f(x)[0])(x64())
    close(value, (X**3).sum())
    close(gradient, 3 * X**2)
    (value, aux), gradient = func.value_and_grad(f, has_aux=True)(x64())
    close(aux["twice"], 2 * X)
    assert not aux["twice"].requires_grad and not value.requires_grad
    gradient, (value, aux) = func.grad_and_value(f, has_aux=True)(x64())
    close(gradient, 3 * X**2)


def test_the_inner_derivative_sees_only_its_own_input():
    one = func.grad(lambda x: x * func.grad(lambda y: x + y)(1.0))(3.0)
    assert one.item() == 1.0
    assert func.grad(lambda x: x * func.grad(lambda y: x * y)(1.0))(3.0).item() == 6.0
    assert func.jvp(lambda x: x * func.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (3.0,), (1.0,))[1].item() == 1.0
    assert func.grad(lambda x: x * func.jvp(lambda y: x * y, (1.0,), (1.0,))[1])(3.0).item() == 6.0
    assert func.jvp(lambda x: x * func.grad(lambda y: x * y)(1.0), (3.0,), (1.0,))[1].item() == 6.0


def test_any_order():
    f = lambda x: x**5
    for order, want in ((1, 80.0), (2, 160.0), (3, 240.0), (4, 240.0)):
        g = f
        for _ in range(order):
            g = func.grad(g)
        assert g(gl.tensor(2.0)).item() == want


def test_unused_arguments_have_zero_gradients():
    close(func.grad(lambda x, y: y.sum())(x64(), x64()), np.zeros((4, 3)))
    close(func.grad(lambda x: gl.tensor(1.0))(x64()), np.zeros((4, 3)))


def test_the_graph_around_is_kept_exactly_where_asked():
    w = x64(W).requires_grad_()
    loss = lambda x: (F.linear(x, w) ** 2).sum()
    g = func.grad(loss)(x64())
    assert g.requires_grad
    g.sum().backward()
    assert w.grad is not None
    with gl.no_grad():
        assert not func.grad(loss)(x64()).requires_grad
    assert not func.grad(lambda x: (x**2).sum())(x64()).requires_grad
    x = x64().requires_grad_()
    assert func.grad(lambda x: (x**2).sum())(x).requires_grad


def test_no_grad_inside_counts_and_outside_does_not():
    def f(x):
        with gl.no_grad():
            c = x * x
        return (x * c).sum()

    close(func.grad(f)(x64()), X * X)
    with gl.no_grad():
        close(func.grad(lambda x: (x * x).sum())(x64()), 2 * X)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: func.grad(lambda x: x)(x64()), RuntimeError, "0-d"),
        (lambda: func.grad(lambda x: (x.sum(), x.sum()))(x64()), RuntimeError, "one 0-d tensor"),
        (lambda: func.grad(lambda x: 1.0)(x64()), TypeError, "returns tensors"),
        (lambda: func.grad(lambda x: x.sum(), argnums=1)(x64()), RuntimeError, "out of range"),
        (lambda: func.grad(lambda x: x.sum(), argnums=())(x64()), RuntimeError, "empty"),
        (lambda: func.grad(lambda x: x.sum(), argnums=(0, 0))(x64()), RuntimeError, "twice"),
        (lambda: func.grad(lambda x: x.sum())("text"), TypeError, "not by str"),
        (lambda: func.grad(lambda x: x.sum())(gl.ones(2, dtype=gl.int64)), RuntimeError, "floating point"),
        (lambda: func.grad(lambda x: x.sum(), has_aux=True)(x64()), RuntimeError, "pair"),
        (lambda: func.jvp(lambda x: x, (x64(),), (x64(W),)), RuntimeError, "shape"),
        (lambda: func.jvp(lambda x: x, x64(), x64()), RuntimeError, "tuples"),
        (lambda: func.jvp(lambda x: x, (x64(),), (x64().float(),)), RuntimeError, "dtype"),
        (lambda: func.jvp(lambda x: gl.ones(2), (x64(),), (x64(),), strict=True), RuntimeError, "strict"),
        (lambda: func.vjp(lambda x: x, x64())[1](x64(W)), RuntimeError, "shape"),
        (lambda: func.jacrev(lambda x: x > 0)(x64()), RuntimeError, "floating"),
        (lambda: func.jacrev(lambda x: x, chunk_size=0), ValueError, "chunk_size"),
    ],
)
def test_wrong_use_says_what_is_wrong(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


# ---------------------------------------------------------------- products


def test_vjp_and_jvp_are_each_others_transpose():
    f = lambda x: (x.sin() @ x.mT).softmax(-1)
    u, v = np.random.default_rng(3).normal(size=(4, 4)), np.random.default_rng(4).normal(size=(4, 3))
    y, pull = func.vjp(f, x64())
    value, push = func.linearize(f, x64())
    close(value, y)
    left = (pull(gl.tensor(u))[0] * gl.tensor(v)).sum()
    right = (push(gl.tensor(v)) * gl.tensor(u)).sum()
    close(left, right)
    close(func.jvp(f, (x64(),), (gl.tensor(v),))[1], push(gl.tensor(v)))
    step = 1e-6
    close(push(gl.tensor(v)), (f(x64(X + step * v)) - f(x64(X - step * v))) / (2 * step), 1e-6)


def test_linearize_does_not_run_the_function_again():
    calls = []

    def f(x):
        calls.append(1)
        return x.sin() * x.sum()

    _, push = func.linearize(f, x64())
    for _ in range(3):
        push(x64())
    func.vmap(push)(gl.stack([x64(), x64(X + 1)]))
    assert len(calls) == 1


def test_products_of_several_values():
    _, pull = func.vjp(lambda a, b: {"sum": a + b, "first": a}, x64(), x64(X + 1))
    da, db = pull({"sum": x64(), "first": x64(2 * X)})
    close(da, 3 * X)
    close(db, X)
    _, t = func.jvp(lambda a, b: (a * b, a.sum() > 0), (x64(), x64(X + 1)), (gl.ones_like(x64()), gl.zeros_like(x64())))
    close(t[0], X + 1)


def test_hvp_is_the_hessian_times_a_vector():
    f = lambda x: (x.sin() * x.sum()).sum()
    v = np.random.default_rng(5).normal(size=3)
    x = x64(X[0])
    close(func.hvp(f, (x,), (gl.tensor(v),)), func.hessian(f)(x) @ gl.tensor(v))


# ---------------------------------------------------------------- Jacobians


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 5, 100])
def test_jacobians_agree(chunk_size):
    f = lambda a, b: {"p": a @ b, "s": (a.exp().sum(0), b[0])}
    a, b = x64(), x64(W.T.copy())
    rows = func.jacrev(f, argnums=(0, 1), chunk_size=chunk_size)(a, b)
    columns = func.jacfwd(f, argnums=(0, 1), chunk_size=chunk_size)(a, b)
    assert rows["p"][0].shape == (4, 2, 4, 3) and rows["s"][1][1].shape == (2, 3, 2)
    for r, c in ((rows["p"], columns["p"]), (rows["s"][0], columns["s"][0]), (rows["s"][1], columns["s"][1])):
        close(r[0], c[0])
        close(r[1], c[1])
    step = 1e-6
    for i in (0, 7):
        d = np.zeros(12)
        d[i] = step
        d = d.reshape(4, 3)
        change = (f(x64(X + d), b)["p"] - f(x64(X - d), b)["p"]) / (2 * step)
        close(rows["p"][0].reshape(4, 2, 12)[..., i], change, 1e-6)


def test_hessian_of_a_network():
    net = gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.Tanh(), gl.nn.Linear(4, 1)).double()
    p = {k: v.detach() for k, v in net.named_parameters()}
    loss = lambda p: (func.functional_call(net, p, (x64(),)) ** 2).mean()
    h = func.hessian(loss)(p)
    assert h["0.weight"]["2.bias"].shape == (4, 3, 1)
    close(h["0.weight"]["2.weight"].reshape(12, 4), h["2.weight"]["0.weight"].reshape(4, 12).mT)
    step = 1e-5
    moved = lambda s: func.grad(loss)({**p, "2.bias": p["2.bias"] + s})["0.weight"]
    close(h["0.weight"]["2.bias"][..., 0], (moved(step) - moved(-step)) / (2 * step), 1e-5)


def test_empty_values():
    assert func.jacrev(lambda x: x[:0])(x64(X[0])).shape == (0, 3)
    assert func.jacfwd(lambda x: x[:0])(x64(X[0])).shape == (0, 3)
    assert func.jacrev(lambda x: x.sum() + gl.ones(2, dtype=gl.float64))(x64(X[:0])).shape == (2, 0, 3)


# ---------------------------------------------------------------- together with vmap


def test_per_sample_gradients_are_those_of_a_loop():
    layers = [gl.nn.Conv2d(1, 2, 3), gl.nn.ReLU(), gl.nn.MaxPool2d(2), gl.nn.Flatten(), gl.nn.LayerNorm(8), gl.nn.Linear(8, 3)]
    net = gl.nn.Sequential(*layers).double()
    p = {k: v.detach() for k, v in net.named_parameters()}
    images, classes = gl.tensor(np.random.default_rng(2).normal(size=(5, 1, 6, 6))), gl.tensor([0, 1, 2, 1, 0])
    loss = lambda p, x, t: F.cross_entropy(func.functional_call(net, p, (x.unsqueeze(0),)), t.unsqueeze(0))
    found = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(p, images, classes)
    for i in range(5):
        for name, g in func.grad(loss)(p, images[i], classes[i]).items():
            close(found[name][i], g)
    mean = func.grad(lambda p: func.vmap(loss, (None, 0, 0))(p, images, classes).mean())(p)
    for name, g in mean.items():
        close(g, found[name].mean(0))


@pytest.mark.parametrize("outer", [func.jacrev, func.jacfwd])
@pytest.mark.parametrize("inner", [func.jacrev, func.jacfwd])
def test_compositions(outer, inner):
    f = lambda r: r.exp() * r.sum()
    second = outer(inner(f))
    together = func.vmap(second)(x64())
    for i in range(4):
        close(together[i], second(x64(X[i])))
    whole = outer(lambda x: func.vmap(inner(f))(x))(x64())
    assert whole.shape == (4, 3, 3, 4, 3)
    for i in range(4):
        close(whole[i, :, :, i], second(x64(X[i])))


def test_jvp_inside_and_outside_of_vmap():
    f = lambda r: r.softmax(0) * r.sum()
    t = x64(X * 2)
    inside = func.vmap(lambda r, d: func.jvp(f, (r,), (d,))[1])(x64(), t)
    outside = func.jvp(func.vmap(f), (x64(),), (t,))[1]
    close(inside, outside)
    close(inside[2], func.jvp(f, (x64(X[2]),), (t[2],))[1])


def test_a_vmapped_gradient_belongs_to_the_graph_around():
    w = x64(W).requires_grad_()
    f = lambda x: F.linear(x, w).sin().sum()
    g = func.vmap(func.grad(f))(x64())
    (g**2).sum().backward()
    v = x64(W).requires_grad_()
    rows = [x64(r).requires_grad_() for r in X]
    want = sum((gl.autograd.grad(F.linear(x, v).sin().sum(), x, create_graph=True)[0] ** 2).sum() for x in rows)
    close(w.grad, gl.autograd.grad(want, v)[0])


def test_ordinary_backward_through_vmap():
    x = x64().requires_grad_()
    w = x64(W).requires_grad_()
    func.vmap(lambda r: F.linear(r, w).tanh().sum())(x).sum().backward()
    y, v = x64().requires_grad_(), x64(W).requires_grad_()
    F.linear(y, v).tanh().sum().backward()
    close(x.grad, y.grad)
    close(w.grad, v.grad)


# ---------------------------------------------------------------- gl.autograd.functional


def test_the_older_names():
    functional = gl.autograd.functional
    f = lambda x, y: (x * y).sum(1)
    a, b = x64(), x64(X + 1)
    out, (da, db) = functional.vjp(f, (a, b), gl.ones(4, dtype=gl.float64))
    close(out, (X * (X + 1)).sum(1))
    close(da, X + 1)
    close(db, X)
    out, t = functional.jvp(f, (a, b), (gl.ones_like(a), gl.zeros_like(b)))
    close(t, (X + 1).sum(1))
    by_a, by_b = functional.jacobian(f, (a, b))
    close(by_a, functional.jacobian(f, (a, b), vectorize=True, strategy="forward-mode")[0])
    assert by_a.shape == by_b.shape == (4, 4, 3)
    g = lambda x: (x**3).sum()
    close(functional.hessian(g, a).reshape(12, 12), np.diag(6 * X.reshape(-1)))
    for product in (functional.hvp, functional.vhp):
        value, hv = product(g, a, a)
        close(value, (X**3).sum())
        close(hv, 6 * X * X)
    x = x64().requires_grad_()
    assert functional.jacobian(lambda x: x**2, x, create_graph=True).requires_grad
    assert not functional.jacobian(lambda x: x**2, x).requires_grad
    assert functional.vjp(g, x, create_graph=True)[1].requires_grad
    with pytest.raises(RuntimeError, match="strict"):
        functional.jacobian(lambda x, y: x, (a, b), strict=True)
    with pytest.raises(RuntimeError, match="None"):
        functional.vjp(f, (a, b))
    with pytest.raises(TypeError):
        functional.jacobian(f, (a, 3))


def _f(x, w):
    return (x * w).sin().sum()


@pytest.mark.parametrize(
    "inner",
    [
        lambda x, w: func.value_and_grad(_f)(x, w)[0],
        lambda x, w: func.value_and_grad(_f)(x, w)[1].sum(),
        lambda x, w: func.vjp(_f, x, w)[0],
        lambda x, w: func.vjp(_f, x, w)[1](x.sum())[0].sum(),
        lambda x, w: func.jvp(_f, (x, w), (x, w))[0],
        lambda x, w: func.jvp(_f, (x, w), (x, w))[1],
        lambda x, w: func.linearize(_f, x, w)[1](x, w),
        lambda x, w: func.jacrev(lambda x: x * w)(x).sum(),
        lambda x, w: func.jacfwd(lambda x: (x * w).sin())(x).sum(),
        lambda x, w: func.hessian(_f)(x, w).sum(),
        lambda x, w: func.grad(lambda x: (_f(x, w), w * 2), has_aux=True)(x)[1].sum(),
        lambda x, w: func.hvp(lambda x: _f(x, w), (x,), (x,)).sum(),
    ],
)
def test_values_and_jacobians_inside_a_vmap_stay_in_the_graph_around(inner):
    w = x64(X[0])
    found = func.grad(lambda w: func.vmap(lambda x: inner(x, w))(x64()).sum())(w)
    close(found, func.grad(lambda w: sum(inner(x64(X[i]), w) for i in range(4)))(w))
    assert float(found.abs().sum()) > 0
    by_x = func.grad(lambda x: func.vmap(inner, (0, None))(x, w).sum())(x64())
    close(by_x, func.grad(lambda x: sum(inner(x[i], w) for i in range(4)))(x64()))


def test_functions_under_all_transforms():
    class Square(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    f, x = Square.apply, x64(X[0])
    close(func.vmap(func.grad(f))(x), 2 * X[0])
    close(func.vmap(func.grad(func.grad(f)))(x), [2, 2, 2])
    close(func.jvp(f, (x,), (x,))[1], 2 * X[0] ** 2)
    close(func.jacrev(f)(x), np.diag(2 * X[0]))
    close(func.hessian(lambda x: f(x).sum())(x), 2 * np.eye(3))
    with pytest.raises(RuntimeError, match="vmap"):  # never silently without a gradient
        func.grad(lambda x: func.vmap(f)(x).sum())(x)


@pytest.mark.alone
def test_nothing_is_left_behind():
    """Transforms make no reference cycles: with the collector off, memory stays as it is."""
    net = gl.nn.Linear(3, 2).double()
    p = {k: v.detach() for k, v in net.named_parameters()}
    loss = lambda p, x: (func.functional_call(net, p, (x,)) ** 2).sum()
    works = (
        lambda: func.vmap(func.grad(loss), (None, 0))(p, x64()),
        lambda: func.hessian(lambda x: (x.sin() * x.sum()).sum())(x64(X[0])),
        lambda: func.jvp(lambda x: x.exp(), (x64(),), (x64(),)),
        lambda: func.grad(lambda x: func.vmap(lambda r: r.softmax(0)[0])(x).sum())(x64()),
    )
    for work in works:
        for _ in range(3):
            work()
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(20):
                work()
            assert len(gc.get_objects()) - before < 100  # a run makes hundreds
        finally:
            gc.enable()
