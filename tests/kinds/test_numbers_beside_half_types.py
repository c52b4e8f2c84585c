"""A Python number beside half types: rounded where it may become an element or is compared, itself where it is computed with."""

import numpy as np
import pytest

import gradlab as gl

HALVES = (gl.float16, gl.bfloat16)
N = 0.1  # in neither half type
COMPARED = {
    "eq": (lambda x, n: x == n, True), "ne": (lambda x, n: x != n, False), "ge": (lambda x, n: x >= n, True),
    "le": (lambda x, n: x <= n, True), "gt": (lambda x, n: x > n, False), "lt": (lambda x, n: x < n, False),
    "number first": (lambda x, n: n <= x, True), "isin": (lambda x, n: gl.isin(x, n), True),
}  # fmt: skip
LOGICAL = {  # a number in a tensor that a half type rounds to 0 is still true
    "logical_and": (lambda x, n: gl.logical_and(x, n), True), "logical_or": (lambda x, n: gl.logical_or(x - x, n), True),
    "logical_xor": (lambda x, n: gl.logical_xor(x, n), False),
}  # fmt: skip
ELEMENTS = {
    "where": lambda x, n: gl.where(x > 0, n, x), "masked_fill": lambda x, n: x.masked_fill(x > 0, n), "clamp": lambda x, n: x.clamp(max=n),
    "fill_": lambda x, n: x.clone().fill_(n), "full_like": lambda x, n: gl.full_like(x, n), "minimum": lambda x, n: gl.where(x > n, n, x),
    "index_fill": lambda x, n: x.index_fill(0, gl.tensor([0, 1, 2]), n), "scatter": lambda x, n: x.scatter(0, gl.tensor([0, 1, 2]), n),
    "heaviside": lambda x, n: gl.heaviside(x - x, x.new_tensor(n)), "nan_to_num": lambda x, n: (x - np.nan).nan_to_num(n),
}  # fmt: skip
COMPUTED = {
    "add": (lambda x, n: x + n, lambda x, n: x + n), "mul": (lambda x, n: x * n, lambda x, n: x * n),
    "div": (lambda x, n: n / x, lambda x, n: n / x), "sub": (lambda x, n: n - x, lambda x, n: n - x), "pow": (lambda x, n: x**n, np.power),
}  # fmt: skip


FORMS = pytest.mark.parametrize("form", ["eager", "compiled"])


def run(form, functions, *args):
    """What each function gives, by name; all of them in one program."""

    def every(*args):
        return [f(*args) for f in functions.values()]

    program = gl.compile(every) if form == "compiled" else every
    program(*args)  # traced on the way
    return dict(zip(functions, program(*args), strict=True))


@FORMS
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_comparisons_are_with_the_rounded_number(dtype, form):
    x = gl.full((3,), N, dtype=dtype)
    found = run(form, {name: lambda x, call=call: call(x, N) for name, (call, _) in COMPARED.items()}, x)
    assert [name for name, (_, said) in COMPARED.items() if found[name].tolist() != [said] * 3] == []


@FORMS
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_truth_is_the_numbers_own(dtype, form):
    x, small = gl.ones(3, dtype=dtype), gl.tensor(1e-42, dtype=gl.float64)
    assert not small.to(dtype).any()
    found = run(form, {name: call for name, (call, _) in LOGICAL.items()}, x, small)
    assert [name for name, (_, said) in LOGICAL.items() if found[name].tolist() != [said] * 3] == []


@FORMS
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_elements_are_the_rounded_number(dtype, form):
    x, rounded = gl.ones(3, dtype=dtype), float(gl.tensor(N, dtype=dtype))
    found = run(form, {name: lambda x, call=call: call(x, N) for name, call in ELEMENTS.items()}, x)
    assert [name for name, y in found.items() if y.dtype != dtype or y.tolist() != [rounded] * 3] == []


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_and_products_are_with_the_number_itself(dtype):
    x = gl.linspace(0.3, 3, 64).to(dtype)
    for name, (ours, exact) in COMPUTED.items():
        want = gl.tensor(exact(x.double().numpy(), N), dtype=gl.float32).to(dtype)
        assert (ours(x, N) == want).all(), name
