"""`custom_op(…, mutates_args=…)`: operations written with tensor functions, as PyTorch's programs make them."""

from __future__ import annotations

import copy

import pytest

import gradlab as gl
from gradlab.library import custom_op, get, register_autograd, register_fake, register_kernel


def scaled_product(name: str, **options):
    @custom_op(name, mutates_args=(), **options)
    def product(x: gl.Tensor, y: gl.Tensor, scale: float = 2.0, *, shift: float = 0.0) -> gl.Tensor:
        """Said of it."""
        return x * y * scale + shift

    return product


def keep(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.scale, ctx.shift = inputs[2], keyword_only_inputs["shift"]


def backward(ctx, g):
    x, y = ctx.saved_tensors
    return g * y * ctx.scale, g * x * ctx.scale, None


def test_values_and_gradients():
    product = scaled_product("of_tensors::product", schema="(Tensor x, Tensor y, float scale=2.0, *, float shift=0.0) -> Tensor")
    x, y = gl.tensor([1.0, 2.0], requires_grad=True), gl.tensor([3.0, 4.0], requires_grad=True)
    assert product(x, y).tolist() == [6, 16] and product(x, y=y, scale=1.0, shift=0.5).tolist() == [3.5, 8.5]
    assert product.__doc__ == "Said of it." and get("of_tensors::product") is product is copy.deepcopy(product)
    with pytest.raises(RuntimeError, match="has no gradient; give it one by"):
        product(x, y).sum().backward()
    register_autograd("of_tensors::product", backward, setup_context=keep)
    product(x, y, 3.0, shift=1.0).sum().backward()
    assert x.grad.tolist() == [9, 12] and y.grad.tolist() == [3, 6]
    assert gl.autograd.gradcheck(product, (x.detach().double().requires_grad_(), y.detach().double().requires_grad_()))


def test_two_outputs_compiled_and_traced():
    @custom_op("of_tensors::both", mutates_args=())
    def both(x: gl.Tensor) -> tuple[gl.Tensor, gl.Tensor]:
        return x + 1, x * 3

    register_autograd(both, lambda ctx, g, h: g + 3 * h)
    x = gl.ones(2, requires_grad=True)
    a, b = gl.compile(both)(x)
    (a + 2 * b).sum().backward()
    assert (a.tolist(), b.tolist(), x.grad.tolist()) == ([2, 2], [3, 3], [7, 7])
    assert gl.jit.trace(lambda x: both(x)[1], gl.ones(2))(gl.ones(2)).tolist() == [3, 3]


def test_operations_that_write():
    @custom_op("of_tensors::add_one", mutates_args={"x"})
    def add_one(x: gl.Tensor) -> None:
        x.add_(1)

    x = gl.zeros(2)
    assert add_one(x) is None
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="writes to x, so it has no gradient"):
        register_autograd(add_one, backward)


def test_kernels_of_a_device():
    product = scaled_product("of_tensors::by_device")

    @register_kernel("of_tensors::by_device", "cpu")
    def other(x, y, scale, *, shift):
        return x - y

    @register_fake(product)
    def fake(x, y, scale, *, shift):
        raise AssertionError("not needed")

    @product.register_kernel(["cuda"])
    def never(x, y, scale, *, shift):
        raise AssertionError("nothing is on a GPU")

    assert product(gl.tensor(3.0), gl.tensor(1.0)).item() == 2


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: custom_op("of_tensors::f", lambda x: x, mutates_args="z"), ValueError, r"mutates_args names z; the function takes \(x\)"),
        (lambda: register_fake("of_tensors::unknown", lambda x: x), KeyError, "no operation"),
        (lambda: register_autograd(custom_op("of_tensors::g", lambda x: x), backward), TypeError, "made with mutates_args="),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()
