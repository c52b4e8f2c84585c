"""`autograd.Function` with the rest: wrong use, hooks, traces, vmap."""

import numpy as np
import pytest
from test_function import Cube, Exp, equal, leaf

import gradlab as gl
from gradlab.autograd.function import Function, FunctionCtx

# ---------------------------------------------------------------- errors


def returning(value, arguments=1):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, *args):
            return args[0] * 2

        @staticmethod
        def backward(ctx, g):
            return value(g)

    x = leaf([1.0, 2.0])
    Wrong.apply(x, *[7] * (arguments - 1)).sum().backward()
    return x.grad


@pytest.mark.parametrize(
    ("value", "arguments", "error", "words"),
    [
        (lambda g: (g, g), 1, RuntimeError, "incorrect number of gradients \\(expected 1, got 2\\)"),
        (lambda g: g, 2, RuntimeError, "incorrect number of gradients \\(expected 2, got 1\\)"),
        (lambda g: (g, g), 2, RuntimeError, "different from None at position 2"),
        (lambda g: g.sum().reshape(1, 1).expand(3, 3), 1, RuntimeError, "invalid gradient at index 0.*\\(3, 3\\).*\\(2,\\)"),
        (lambda g: g[:1], 1, RuntimeError, "invalid gradient at index 0"),
        (lambda g: 3.0, 1, TypeError, "float"),
    ],
)
def test_wrong_gradients(value, arguments, error, words):
    with pytest.raises(error, match=words):
        returning(value, arguments)


def test_more_nones_than_arguments_are_forgiven():
    equal(returning(lambda g: (g, None, None)), [1.0, 1.0])
    assert returning(lambda g: None) is None


def test_wrong_use():
    with pytest.raises(RuntimeError, match=r"Cube\.apply"):
        Cube()
    with pytest.raises(TypeError, match="no keyword"):
        Cube.apply(x=leaf(1.0))
    for save in (FunctionCtx().save_for_backward, FunctionCtx().save_for_forward):
        save(leaf(1.0), None)
        with pytest.raises(TypeError, match=f"{save.__name__}: argument 1 is a int, not a tensor; .* attributes of ctx"):
            save(None, 3)
    with pytest.raises(NotImplementedError, match="forward"):
        Function.apply(leaf(1.0))

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    y = NoBackward.apply(leaf(1.0))
    with pytest.raises(NotImplementedError, match="backward"):
        y.backward()

    class Listed(Function):
        @staticmethod
        def forward(ctx, x):
            return [x * 2]

    with pytest.raises(TypeError, match="tuple"):
        Listed.apply(leaf(1.0))


# ---------------------------------------------------------------- with the rest


def test_hooks_and_saved_tensors_hooks():
    packed = []
    x = leaf([2.0])
    with gl.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = Cube.apply(x)
        z = Exp.apply(y)
    assert len(packed) == 2 and not any(t.requires_grad for t in packed)
    seen = []
    y.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    (g,) = gl.autograd.grad(z.sum(), x, create_graph=True)
    (h,) = gl.autograd.grad(g.sum(), x)
    equal(g, 12 * np.exp([8.0]))
    equal(h, (12 + 144) * np.exp([8.0]))
    assert seen == [(1, 1)] * 2


def test_traced():
    def program(x):
        x = x.detach().requires_grad_()
        y = Exp.apply(Cube.apply(x)).sum()
        return gl.autograd.grad(y, x)[0]

    x = gl.tensor([0.5, 1.0], dtype=gl.float64)
    traced = gl.graph.trace(program, x)
    for values in ([0.5, 1.0], [0.25, -1.0]):
        v = np.array(values)
        equal(traced(gl.tensor(values, dtype=gl.float64)), 3 * v**2 * np.exp(v**3))


def test_under_vmap():
    x = gl.tensor([[0.5, 1.0], [-1.0, 2.0]], dtype=gl.float64)
    equal(gl.func.vmap(Cube.apply)(x), x.numpy() ** 3)
    equal(gl.func.vmap(gl.func.grad(lambda x: Exp.apply(Cube.apply(x)).sum()))(x), 3 * x.numpy() ** 2 * np.exp(x.numpy() ** 3))
    with pytest.raises(RuntimeError, match="Define the static method setup_context"):
        gl.func.vmap(Cube.apply)(x.detach().requires_grad_())


def test_a_vmap_of_its_own():
    """Forward and backward by NumPy, which reads values: each needs a vmap."""
    seen = []

    class Slope(Function):
        @staticmethod
        def forward(x, g):
            return gl.from_numpy(np.cos(x.detach().numpy()) * g.detach().numpy())

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x, g):
            return Slope.apply(x, g), 0

    class Sine(Function):
        @staticmethod
        def forward(x):
            return gl.from_numpy(np.sin(x.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return Slope.apply(ctx.saved_tensors[0], g)

        @staticmethod
        def vmap(info, in_dims, x):
            seen.append((info.batch_size, in_dims, x.shape))
            return Sine.apply(x), 0

    x = gl.tensor(np.arange(6.0).reshape(2, 3), dtype=gl.float64)
    equal(gl.func.vmap(Sine.apply, in_dims=1)(x), np.sin(x.numpy().T))
    assert seen == [(3, (0,), (3, 2))]
    y = x.detach().requires_grad_()
    gl.func.vmap(Sine.apply)(y).sum().backward()
    equal(y.grad, np.cos(x.numpy()))
    equal(gl.func.vmap(gl.func.grad(lambda x: (Sine.apply(x) * 2).sum()))(x), 2 * np.cos(x.numpy()))
    Sine.generate_vmap_rule = True
    with pytest.raises(RuntimeError, match="remove one"):
        gl.func.vmap(Sine.apply)(x)


def test_one_name_for_one_method():
    class Both(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

        vjp = backward

    with pytest.raises(RuntimeError, match="Both: backward and vjp"):
        Both.apply(gl.ones(2, requires_grad=True)).sum().backward()
