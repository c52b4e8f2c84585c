"""`_foreach_add` and its kin do what the methods do, on each tensor of a list."""

import pytest

import gradlab as gl
from gradlab.tensor.foreach import FUNCTIONS, PAIRS, UNARY


def lists():
    x = [gl.tensor([0.5, 0.25]), gl.tensor([[0.75, 0.5, 0.125]])]
    return x, [t * 0.5 + 0.25 for t in x], [t * 0.25 + 0.5 for t in x]


def check(name, given, expected, **options):
    x = lists()[0]
    found = getattr(gl, f"_foreach_{name}")(x, *given, **options)
    assert type(found) is tuple
    for a, b in zip(found, expected, strict=True):
        assert gl.equal(a, b)
    in_place = getattr(gl, f"_foreach_{name}_")(x, *given, **options)
    assert type(in_place) is list
    for a, b, c in zip(in_place, expected, x, strict=True):
        assert a is c
        assert gl.equal(a, b)


def test_all_are_here():
    assert len(FUNCTIONS) == 2 * (len(UNARY.split()) + len(PAIRS.split())) + 7 == 91
    assert all(getattr(gl, name) is function for name, function in FUNCTIONS.items())
    with pytest.raises(AttributeError):
        _ = gl._foreach_nothing


@pytest.mark.parametrize("name", UNARY.split())
def test_of_one_list(name):
    check(name, (), [getattr(t, name)() for t in lists()[0]])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max", "maximum", "minimum"])
def test_of_two(name):
    x, y, _ = lists()
    method = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name, name)
    check(name, (y,), [getattr(a, name)(b) for a, b in zip(x, y)])
    check(name, (0.5,), [getattr(a, method)(0.5) for a in x])
    check(name, ([0.5, 2.0],), [getattr(a, method)(n) for a, n in zip(x, (0.5, 2.0))])
    if name in ("add", "sub"):
        check(name, (y,), [getattr(a, name)(b, alpha=3) for a, b in zip(x, y)], alpha=3)
    if name in ("add", "mul", "div"):
        check(name, (gl.tensor(0.5),), [getattr(a, name)(0.5) for a in x])


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_of_three(name):
    x, y, z = lists()
    rows = list(zip(x, y, z))
    check(name, (y, z), [getattr(a, name)(b, c) for a, b, c in rows])
    check(name, (y, z), [getattr(a, name)(b, c, value=2) for a, b, c in rows], value=2)
    for numbers in ([2.0, 3.0], gl.tensor([2.0, 3.0])):
        check(name, (y, z, numbers), [getattr(a, name)(b, c, value=n) for (a, b, c), n in zip(rows, (2.0, 3.0))])


def test_the_others():
    x, y, z = lists()
    check("lerp", (y, 0.5), [a.lerp(b, 0.5) for a, b in zip(x, y)])
    check("lerp", (y, z), [a.lerp(b, c) for a, b, c in zip(x, y, z)])
    for order in (1, 2, float("inf")):
        assert [n.item() for n in gl._foreach_norm(x, order)] == [a.norm(order).item() for a in x]
    assert gl._foreach_norm(x, 2, gl.float64)[0].dtype is gl.float64
    assert [n.item() for n in gl._foreach_max(x)] == [0.5, 0.75]
    assert [n.item() for n in gl._foreach_powsum(x, 1)] == [0.75, 1.375]
    assert gl._foreach_mm([gl.ones(2, 2)], [gl.ones(2, 3)])[0].tolist() == [[2.0] * 3] * 2
    assert gl.equal(gl._foreach_pow(2, x)[0], 2 ** x[0])
    copies = gl._foreach_clone(x)
    assert gl._foreach_zero_(x)[0].tolist() == [0.0, 0.0]
    assert gl._foreach_copy_(x, list(copies))[0].tolist() == [0.5, 0.25]


def test_gradients_pass():
    x = [gl.ones(2, requires_grad=True), gl.ones(3, requires_grad=True)]
    sum(t.sum() for t in gl._foreach_mul(x, 3.0)).backward()
    assert x[1].grad.tolist() == [3.0] * 3


def test_errors():
    with pytest.raises(RuntimeError, match="at least one"):
        gl._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="same length, got 2 and 1"):
        gl._foreach_add(lists()[0], [1])
