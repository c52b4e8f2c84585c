"""`autograd.Function` under the transforms: the generated rule for vmap, and a `jvp` of its own."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import Function, grad, gradcheck, gradgradcheck


class Cube(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x**3 * w, x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, g, h):
        x, w, y = ctx.saved_tensors
        return 3 * x**2 * w * g + h * w, x**3 * g + h * y / w


def plain(x, w):
    return x**3 * w, x * w


def values(*shape):
    return gl.tensor(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape), requires_grad=True)


def mapped(function):
    return lambda x, w: gl.vmap(lambda a, b: sum(function(a, b)), in_dims=(0, None))(x, w)


def test_a_generated_rule_is_differentiated_from_outside():
    x, w = values(5, 3), values(3)
    results = []
    for function in (mapped(Cube.apply), mapped(plain)):
        y = function(x, w)
        first = grad(y.square().sum(), (x, w), create_graph=True)
        second = grad(first[0].sin().sum() + first[1].sin().sum(), (x, w))
        results.append((y, *first, *second))
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and gl.allclose(a, b)
    assert gradcheck(mapped(Cube.apply), (x, w)) and gradgradcheck(mapped(Cube.apply), (x, w))


def test_a_generated_rule_around_an_inner_gradient():
    x, w = values(5, 3), values(3)

    def each(function):
        per_sample = gl.func.grad(lambda a, b: sum(function(a, b)).sum())
        return gl.vmap(per_sample, in_dims=(0, None))(x, w)

    a, b = each(Cube.apply), each(plain)
    assert gl.allclose(a, b)
    for p, q in zip(grad(a.sin().sum(), (x, w)), grad(b.sin().sum(), (x, w)), strict=True):
        assert gl.allclose(p, q)


def test_the_generated_function_is_in_the_graph_and_leaves_nothing_behind():
    x, w = values(4, 3), values(3)
    y = gl.vmap(lambda a, b: Cube.apply(a, b)[0], in_dims=(0, None))(x, w)
    assert y.grad_fn.name() == "VmappedCubeBackward" and y.shape == (4, 3)
    with gl.no_grad():
        assert not gl.vmap(lambda a, b: Cube.apply(a, b)[0], in_dims=(0, None))(x, w).requires_grad


def test_what_samples_share_alone_is_one_call():
    x, w = values(4, 3), values(3)
    y = gl.vmap(lambda a, b: Cube.apply(b, b)[0] + a, in_dims=(0, None))(x, w)
    assert gl.allclose(grad(y.sum(), w)[0], 16 * w.detach() ** 3)


def test_two_rules_are_one_too_many():
    class Both(Cube):
        @staticmethod
        def vmap(info, in_dims, *args):
            return Cube.apply(*args), 0

    with pytest.raises(RuntimeError, match="has a vmap of its own and generate_vmap_rule"):
        gl.vmap(lambda a: Both.apply(a, a)[0])(values(4, 3))


# ---------------------------------------------------------------- jvp

CALLS = []


class Exp(Function):
    @staticmethod
    def forward(ctx, x, k):
        y = (x * k).exp()
        ctx.k = k
        ctx.save_for_backward(y)
        ctx.save_for_forward(y, x)
        return y

    @staticmethod
    def backward(ctx, g):
        CALLS.append("backward")
        (y,) = ctx.saved_tensors
        return g * y * ctx.k, None

    @staticmethod
    def jvp(ctx, t, none):
        CALLS.append("jvp")
        y, x = ctx.saved_tensors
        assert none is None and x.shape == y.shape
        return t * y * ctx.k


V, T = gl.tensor([0.1, 0.2, -0.3], dtype=gl.float64), gl.ones(3, dtype=gl.float64)
WAYS = {
    "jvp": (lambda f: gl.func.jvp(f, (V,), (T,))[1], ["jvp"]),
    "jvp of jvp": (lambda f: gl.func.jvp(lambda v: gl.func.jvp(f, (v,), (T,))[1], (V,), (T,))[1], ["jvp", "jvp"]),
    "jacfwd": (lambda f: gl.func.jacfwd(f)(V), ["jvp"]),
    "linearize": (lambda f: gl.func.linearize(f, V)[1](T), ["jvp"]),
    "grad of jvp": (lambda f: gl.func.grad(lambda v: gl.func.jvp(f, (v,), (T,))[1].sum())(V), ["jvp", "backward"]),
    "forward over reverse": (lambda f: gl.func.jacfwd(gl.func.jacrev(f))(V), ["backward", "jvp"]),
    "reverse": (lambda f: gl.func.jacrev(f)(V), ["backward"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_forward_mode_asks_for_jvp(way):
    run, calls = WAYS[way]
    CALLS.clear()
    found = run(lambda v: Exp.apply(v.sin(), 2.0).sum() * v)
    assert CALLS == calls
    assert gl.allclose(found, run(lambda v: (v.sin() * 2).exp().sum() * v))


def test_a_function_with_a_jvp_alone_needs_no_backward():
    class Forward(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_forward(x, y)
            return x * y, x + y

        @staticmethod
        def jvp(ctx, a, b):
            x, y = ctx.saved_tensors
            return a * y + x * b, a + b

    x, y = values(3), values(2, 3)[0].detach()
    _, (p, q) = gl.func.jvp(lambda x: Forward.apply(x, y), (x.detach(),), (T,))
    assert gl.allclose(p, y) and gl.allclose(q, T)


def test_wrong_jvps_say_what_is_wrong():
    class Few(Exp):
        @staticmethod
        def jvp(ctx, t, none):
            return t, t

    class Shape(Exp):
        @staticmethod
        def jvp(ctx, t, none):
            return t.sum()

    with pytest.raises(RuntimeError, match="jvp returned 2 tangents for 1 outputs"):
        gl.func.jvp(lambda v: Few.apply(v, 1.0), (V,), (T,))
    with pytest.raises(RuntimeError, match=r"jvp returned a tangent of shape \(\)"):
        gl.func.jvp(lambda v: Shape.apply(v, 1.0), (V,), (T,))
