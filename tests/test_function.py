"""Operations with a gradient of one's own: `autograd.Function`."""

import gc
import weakref

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd.function import Function, FunctionCtx, once_differentiable


def leaf(values, dtype=gl.float64):
    return gl.tensor(values, dtype=dtype, requires_grad=True)


def equal(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Exp(Function):
    """Keeps its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Scale(Function):
    """In the other style, with a default and an argument that is no tensor."""

    @staticmethod
    def forward(x, w, factor=2.0):
        return x * w * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.factor = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * w * ctx.factor if ctx.needs_input_grad[0] else None
        return gx, g * x * ctx.factor if ctx.needs_input_grad[1] else None, None


# ---------------------------------------------------------------- values and orders


def test_forward_and_gradient():
    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    equal(y, [1.0, 8.0])
    y.sum().backward()
    equal(x.grad, [3.0, 12.0])


@pytest.mark.parametrize("function", [Cube, Exp])
def test_three_orders(function):
    plain = {Cube: lambda x: x**3, Exp: lambda x: x.exp()}[function]
    x, z = leaf([0.5, -1.5]), leaf([0.5, -1.5])
    found, wanted = function.apply(x).sum(), plain(z).sum()
    for _ in range(3):
        (found,) = gl.autograd.grad(found.sum(), x, create_graph=True)
        (wanted,) = gl.autograd.grad(wanted.sum(), z, create_graph=True)
        equal(found, wanted.detach().numpy())


def test_setup_context():
    x, w = leaf([1.0, 2.0]), gl.tensor([3.0, 4.0], dtype=gl.float64)
    y = Scale.apply(x, w)
    assert y.grad_fn.factor == 2.0 and y.grad_fn.needs_input_grad == (True, False, False)
    y.sum().backward()
    equal(x.grad, [6.0, 8.0])
    equal(Scale.apply(x, w=w, factor=5.0), [15.0, 40.0])
    with pytest.raises(TypeError, match="missing"):
        Scale.apply(x)


def test_vjp_is_another_name_for_backward():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf(3.0)
    Twice.apply(x).backward()
    assert x.grad.item() == 2.0


def test_names():
    y = Cube.apply(leaf(1.0))
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "CubeBackward"
    assert gl.autograd.Function is Function and gl.autograd.function.FunctionCtx is FunctionCtx
    assert [type(n).__name__ for n, _ in y.grad_fn.next_functions] == ["AccumulateGrad"]
    assert y.grad_fn.forward_position.line > 0


def test_ctx_attributes_do_not_meet_the_nodes_own():
    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.count, ctx.index, ctx.saved, ctx.edges, ctx.seq, ctx.params, ctx.op = 5, 6, 7, 8, 9, 10, 11
            ctx.node = ctx.hooks = None
            return x * 1

        @staticmethod
        def backward(ctx, g):
            assert (ctx.count, ctx.index, ctx.saved, ctx.edges, ctx.seq, ctx.params, ctx.op) == (5, 6, 7, 8, 9, 10, 11)
            return g

    x = leaf([1.0])
    Named.apply(x).sum().backward()
    equal(x.grad, [1.0])


# ---------------------------------------------------------------- several inputs and outputs


class Both(Function):
    """Sum and difference; a third output without gradient, and one that is no tensor."""

    @staticmethod
    def forward(ctx, a, b):
        largest = (a + b).argmax()
        ctx.mark_non_differentiable(largest)
        return a + b, a - b, largest, "note"

    @staticmethod
    def backward(ctx, g_sum, g_difference, g_largest, g_note):
        assert g_note is None and g_largest is not None
        return g_sum + g_difference, g_sum - g_difference


def test_several_outputs_with_zeros_for_the_unused():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 5.0])
    total, _, largest, note = Both.apply(a, b)
    assert note == "note" and largest.item() == 1 and not largest.requires_grad
    total.sum().backward()
    equal(a.grad, [1.0, 1.0])
    equal(b.grad, [1.0, 1.0])


def test_none_for_the_unused_on_request():
    seen = []

    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            seen.append((g, h))
            return g * 2 if h is None else g * 2 + h * 3

    x = leaf(1.0)
    Split.apply(x)[0].backward()
    assert seen[0][1] is None and x.grad.item() == 2.0


def test_a_float_output_marked_non_differentiable():
    class Marked(Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x * 2, x * 3
            ctx.mark_non_differentiable(b)
            return a, b

        @staticmethod
        def backward(ctx, g, h):
            equal(h, 0.0)
            return g * 2

    x = leaf(1.0)
    a, b = Marked.apply(x)
    assert a.requires_grad and not b.requires_grad
    a.backward()
    assert x.grad.item() == 2.0


def test_broadcast_gradients_are_summed_and_cast():
    class Add(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, g.double()

    a, b = leaf(np.ones((2, 3)), gl.float32), leaf(np.ones(3), gl.float32)
    Add.apply(a, b).sum().backward()
    equal(b.grad, [2.0, 2.0, 2.0])
    assert b.grad.dtype == gl.float32


def test_a_returned_input_is_a_tensor_of_its_own():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return -g

    x = leaf([1.0, 2.0])
    y = Reverse.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and x.is_leaf
    (y * gl.tensor([3.0, 4.0], dtype=gl.float64)).sum().backward()
    equal(x.grad, [-3.0, -4.0])
    with pytest.raises(RuntimeError, match="view"):  # x would not learn of the write's gradient
        y.mul_(2)
    with pytest.raises(RuntimeError, match="view"):
        y[0].mul_(2)


def test_a_returned_view():
    class Flat(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.reshape(-1)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape)

    x = leaf(np.arange(6.0).reshape(2, 3))
    (Flat.apply(x).sin() ** 2).sum().backward()
    equal(x.grad, np.sin(2 * np.arange(6.0)).reshape(2, 3))


# ---------------------------------------------------------------- in place


class DoubleInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_dirty_inputs_are_rebound():
    x = leaf([1.0, 2.0])
    z = x * 3
    w = DoubleInPlace.apply(z)
    assert w is z and z.grad_fn.name() == "DoubleInPlaceBackward"
    (z * z).sum().backward()
    equal(x.grad, [72.0, 144.0])


def test_a_dirty_view_writes_its_base():
    x = leaf([1.0, 2.0, 3.0])
    base = x * 1
    DoubleInPlace.apply(base[1:])
    equal(base, [1.0, 4.0, 6.0])
    (base * base).sum().backward()
    equal(x.grad, [2.0, 16.0, 24.0])


def test_dirty_refusals():
    with pytest.raises(RuntimeError, match="leaf"):
        DoubleInPlace.apply(leaf([1.0]))

    class Lost(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="have to be returned"):
        Lost.apply(leaf([1.0]) * 1)


def test_a_saved_tensor_changed_in_place_is_noticed():
    x = leaf([1.0, 2.0])
    z = x * 1
    y = Cube.apply(z)
    z.mul_(2)
    with pytest.raises(RuntimeError, match=r"CubeBackward.*modified by an in-place operation"):
        y.sum().backward()
    y = Exp.apply(x * 1)
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"ExpBackward.*modified by an in-place operation"):
        y.sum().backward()


# ---------------------------------------------------------------- freeing and recording


def test_saved_tensors_are_freed():
    x = leaf([1.0])
    y = Cube.apply(x).sum()
    node = y.grad_fn.next_functions[0][0]
    equal(node.saved_tensors[0], [1.0])
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        _ = node.saved_tensors
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_no_reference_cycle():
    gc.disable()
    try:
        x = leaf([1.0])
        y = Exp.apply(x)
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_nothing_is_recorded_without_need():
    assert not Cube.apply(gl.ones(2)).requires_grad
    with gl.no_grad():
        assert not Cube.apply(leaf([1.0])).requires_grad
    recorded = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            recorded.append((gl.is_grad_enabled(), (x * 2).requires_grad))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            recorded.append((gl.is_grad_enabled(), (g * leaf(1.0)).requires_grad))
            return g * 2

    y = Looks.apply(leaf(1.0))
    y.backward(retain_graph=True)
    y.backward(create_graph=True)
    assert recorded == [(False, False), (False, False), (True, True)]


def test_once_differentiable():
    class Numpy(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return gl.from_numpy(np.sin(x.numpy(force=True)))

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * gl.from_numpy(np.cos(x.detach().numpy()))

    x = leaf([0.5])
    (g,) = gl.autograd.grad(Numpy.apply(x).sum(), x)
    equal(g, np.cos([0.5]))
    (g,) = gl.autograd.grad(Numpy.apply(x).sum(), x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gl.autograd.grad(g.sum(), x)
