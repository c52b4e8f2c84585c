"""The gradients of one half tensor are added in float32 and rounded once, wherever in the graph it is and whoever asks for the sum."""

import pytest

import gradlab as gl
from gradlab.autograd.record import bind
from gradlab.autograd.rounding import roundings_of
from gradlab.ops import ROWS

PARTS = {gl.float16: (1.0, 2.0**-11, 2.0**-11), gl.bfloat16: (1.0, 2.0**-8, 2.0**-8)}  # each alone is lost beside 1


def expected(dtype):
    return (sum(PARTS[dtype]),) * 3


def backward_of(x, dtype):
    sum((x * part).sum() for part in PARTS[dtype]).backward()


def leaf(dtype):
    return gl.tensor([3.0, 1.0, 2.0], dtype=dtype, requires_grad=True)


def of_a_leaf(dtype):
    x = leaf(dtype)
    backward_of(x, dtype)
    return x.grad


def of_a_leaf_that_is_an_output(dtype):
    x = leaf(dtype)
    gl.autograd.backward([x] * 3, [gl.full((3,), part, dtype=dtype) for part in PARTS[dtype]])
    return x.grad


def of_a_result(dtype):
    x = leaf(dtype)
    backward_of(x * 1, dtype)
    return x.grad


def of_a_result_that_is_an_output(dtype):
    x = leaf(dtype)
    gl.autograd.backward([x * 1] * 3, [gl.full((3,), part, dtype=dtype) for part in PARTS[dtype]])
    return x.grad


def of_one_operation(dtype):
    x = leaf(dtype)
    y = x * 1
    gl.cat([y, y, y]).backward(gl.tensor([part for part in PARTS[dtype] for _ in range(3)], dtype=dtype))
    return x.grad


def of_one_operation_on_a_leaf(dtype):
    x = leaf(dtype)
    gl.cat([x, x, x]).backward(gl.tensor([part for part in PARTS[dtype] for _ in range(3)], dtype=dtype))
    return x.grad


def of_one_of_several_results(dtype):
    x = leaf(dtype)
    backward_of(x.sort().values, dtype)
    return x.grad


def of_one_of_several_results_of_one_operation(dtype):
    x = leaf(dtype)
    y = x.sort().values
    gl.cat([y, y, y]).backward(gl.tensor([part for part in PARTS[dtype] for _ in range(3)], dtype=dtype))
    return x.grad


def asked_for(dtype):
    y = leaf(dtype) * 1
    return gl.autograd.grad(sum((y * part).sum() for part in PARTS[dtype]), y)[0]


def asked_for_of_a_leaf(dtype):
    x = leaf(dtype)
    return gl.autograd.grad(sum((x * part).sum() for part in PARTS[dtype]), x)[0]


def asked_for_twice_differentiable(dtype):
    x = leaf(dtype)
    return gl.autograd.grad(sum((x * part).sum() for part in PARTS[dtype]), x, create_graph=True)[0].detach()


def retained(dtype):
    y = leaf(dtype) * 1
    y.retain_grad()
    backward_of(y, dtype)
    return y.grad


def seen_by_a_hook(dtype):
    y, seen = leaf(dtype) * 1, []
    y.register_hook(seen.append)
    backward_of(y, dtype)
    return seen[0]


def seen_by_a_hook_of_a_leaf(dtype):
    x, seen = leaf(dtype), []
    x.register_hook(seen.append)
    backward_of(x, dtype)
    return seen[0]


WAYS = [f for name, f in list(globals().items()) if name.startswith(("of_", "asked_", "retained", "seen_"))]


@pytest.mark.parametrize("dtype", PARTS, ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_three_gradients_are_rounded_once(way, dtype):
    found = way(dtype)
    assert found.dtype == dtype and tuple(found.tolist()) == expected(dtype)


BROADCAST = ("fmax", "fmin", "maximum", "minimum", "mul", "relu_backward")  # gradients that round once, but for the sum


@pytest.mark.parametrize("dtype", PARTS, ids=str)
@pytest.mark.parametrize("place", [0, 1])
def test_the_gradient_of_what_was_broadcast_is_rounded_once(dtype, place):
    assert {roundings_of(ROWS[name]) for name in BROADCAST} == {1}
    unit = gl.finfo(dtype).eps
    one, many = gl.tensor([0.5], dtype=dtype), gl.tensor([1 + unit, 1 + 2 * unit] * 500, dtype=dtype)
    weights = gl.tensor([1 + unit, -1.0] * 500, dtype=dtype)  # of the products' sum the squares of `unit` are left
    for name in BROADCAST:
        found = []
        for kind in (dtype, gl.float32):
            x, y = one.detach().to(kind).requires_grad_(), many.to(kind)
            z = bind(ROWS[name])(*((x, y) if place == 0 else (y, x)))
            if z.dtype == kind and z.requires_grad:
                z.backward(weights.to(kind))
                found += [] if x.grad is None else [x.grad.float().item()]
        if found:
            assert found[0] == pytest.approx(found[1], rel=unit, abs=unit**2), name
