"""`gl.autograd.functional` beside `gl.func`: graphs of the results, functions of one element, strictness about second derivatives."""

import pytest

import gradlab as gl
from gradlab.autograd import functional as AF


def leaf():
    return gl.tensor([1.0, 2.0, 3.0], dtype=gl.float64, requires_grad=True)


def cubes(x):
    return x**3


def total(x):
    return cubes(x).sum()


ONE = gl.ones(3, dtype=gl.float64)
EVERY = {  # each function, of something that has a second derivative
    "vjp": lambda f, x, **how: AF.vjp(f, x, ONE, **how)[1],
    "jvp": lambda f, x, **how: AF.jvp(f, x, ONE, **how)[1],
    "jacobian": AF.jacobian,
    "vhp": lambda f, x, **how: AF.vhp(lambda x: f(x).sum(), x, ONE, **how)[1],
    "hvp": lambda f, x, **how: AF.hvp(lambda x: f(x).sum(), x, ONE, **how)[1],
    "hessian": lambda f, x, **how: AF.hessian(lambda x: f(x).sum(), x, **how),
}
every = pytest.mark.parametrize("name", EVERY)


@every
@pytest.mark.parametrize("off", [False, True])
def test_create_graph_keeps_results_in_the_graph_under_no_grad_too(name, off):
    x = leaf()
    with gl.set_grad_enabled(not off):
        found = EVERY[name](cubes, x, create_graph=True)
        assert gl.is_grad_enabled() is not off
    (again,) = gl.autograd.grad(found.sum(), x)
    gl.testing.assert_close(again, ONE * 6 if "h" in name else 6 * x.detach())
    with gl.set_grad_enabled(not off):
        assert EVERY[name](cubes, x).grad_fn is None


@every
def test_strict_says_what_has_no_further_derivative(name):
    constant = (lambda x: x * x) if "h" in name else (lambda x: 2 * x)  # whose derivative is the same everywhere
    x = leaf()
    assert EVERY[name](cubes, x, create_graph=True, strict=True).requires_grad
    EVERY[name](constant, x, strict=True)
    EVERY[name](constant, x, create_graph=True)
    with pytest.raises(RuntimeError, match="constant"):
        EVERY[name](constant, x, create_graph=True, strict=True)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_functions_of_one_element_may_have_any_shape(shape):
    x = leaf()
    f = lambda x: total(x).reshape(shape)
    second = gl.diag(6 * x.detach())
    gl.testing.assert_close(AF.hessian(f, x), second)
    gl.testing.assert_close(AF.hessian(f, x, vectorize=True), second)
    for product in (AF.vhp, AF.hvp):
        value, found = product(f, x, ONE)
        assert value.shape == shape
        gl.testing.assert_close(found, second.sum(0))
    with pytest.raises(RuntimeError, match="0-d"):
        AF.hessian(cubes, x)
