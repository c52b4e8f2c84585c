"""Elementwise mathematics: values at the edges, gradients where formulas could divide by zero, operators, in-place twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl

from slopes import check_slopes

INF, NAN = math.inf, math.nan


def gradient(function, *values):
    leaves = [gl.tensor(v, dtype=gl.float64, requires_grad=True) for v in values]
    function(*leaves).sum().backward()
    return [x.grad.tolist() for x in leaves]


def test_edges():
    assert gl.xlogy(gl.tensor([0.0, 0.0, 2.0]), gl.tensor([0.0, -1.0, 0.0])).tolist() == [0, 0, -INF]
    assert math.isnan(gl.xlogy(gl.tensor(0.0), gl.tensor(NAN)).item())
    assert gl.logaddexp(gl.tensor([-INF, INF, 800.0]), gl.tensor([-INF, INF, 800.0])).tolist() == pytest.approx([-INF, INF, 800.6931])
    assert gl.fmax(gl.tensor([NAN, 1.0]), gl.tensor([2.0, NAN])).tolist() == [2, 1]
    assert gl.sinc(gl.tensor([0.0, 1.0])).tolist() == pytest.approx([1, 0], abs=1e-7)
    assert gl.hypot(gl.tensor(3e200, dtype=gl.float64), gl.tensor(4e200, dtype=gl.float64)).item() == pytest.approx(5e200)
    assert gl.nan_to_num(gl.tensor([NAN, INF, -INF, 1.0]), 7, 8, 9).tolist() == [7, 8, 9, 1]
    assert gl.nan_to_num(gl.tensor([INF, -INF])).tolist() == [gl.finfo(gl.float32).max, gl.finfo(gl.float32).min]
    assert gl.expm1(gl.tensor(1e-12, dtype=gl.float64)).item() == pytest.approx(1e-12, rel=1e-12)
    x, at_zero = gl.tensor([-1.0, 0.0, 2.0], requires_grad=True), gl.tensor(0.5, requires_grad=True)
    found = gl.heaviside(x, at_zero)
    assert found.tolist() == [0, 0.5, 1]
    assert [g.tolist() for g in gl.autograd.grad(found.sum(), (x, at_zero))] == [[0, 0, 0], 1]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (gl.atan2, (0.0, 0.0)),
        (gl.hypot, (0.0, 0.0)),
        (gl.xlogy, (0.0, 0.0)),
        (gl.logaddexp, (-INF, -INF)),
        (gl.logaddexp2, (INF, INF)),
        (gl.copysign, (0.0, -1.0)),
        (gl.sinc, (0.0,)),
        (lambda x: gl.logit(x, 1e-3), (0.0,)),
    ],
)
def test_gradients_at_the_edges_are_finite(function, values):
    assert all(math.isfinite(g) for g in gradient(function, *values))


def test_gradients_of_compositions():
    x, y = np.array([0.3, -1.2, 2.5]), np.array([1.5, 0.7, -0.4])
    check_slopes(lambda a, b: gl.lerp(a, b, 0.3), x, y)
    check_slopes(gl.lerp, x, y, np.array([0.2, 0.8, 1.3]))
    check_slopes(lambda a, b, c: gl.addcmul(a, b, c, value=0.5), x, y, x + 3)
    check_slopes(lambda a, b, c: gl.addcdiv(a, b, c, value=-2.0), x, y, x + 3)
    check_slopes(gl.frac, x)
    check_slopes(gl.ldexp, x, y)
    check_slopes(lambda a: gl.nan_to_num(a) * gl.deg2rad(a) + gl.rad2deg(a), x)
    check_slopes(lambda a: gl.logit(a, 0.1), np.array([0.3, 0.6, 0.95]))
    check_slopes(lambda a, b: gl.div(a, b, rounding_mode="floor") * a, x, y)
    check_slopes(lambda a: a % 0.7 + gl.fmod(a, 0.7), x)
    assert gradient(gl.fmax, [1.0, NAN, 2.0], [2.0, 1.0, NAN]) == [[0, 0, 1], [1, 1, 0]]


def test_division_modes():
    a, b = gl.tensor([7, -7, 7, -7]), gl.tensor([2, 2, -2, -2])
    assert (a // b).tolist() == gl.div(a, b, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert (a % b).tolist() == [1, 1, -1, -1]
    assert gl.div(a, b, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert gl.fmod(a, b).tolist() == [1, -1, 1, -1]
    assert gl.div(a, b).dtype == gl.float32
    assert gl.div(a.float(), 2, rounding_mode="trunc").tolist() == [3, -3, 3, -3]
    assert (7 // b).tolist() == [3, 3, -4, -4]
    assert (7 % b).tolist() == [1, 1, -1, -1]
    quotient, remainder = divmod(a, 4)
    assert (quotient.tolist(), remainder.tolist()) == ([1, -2, 1, -2], [3, 1, 3, 1])
    assert [x.tolist() for x in divmod(9, b)] == [[4, 4, -5, -5], [1, 1, -1, -1]]
    assert (a // 0).tolist() == [0, 0, 0, 0]
    with pytest.raises(RuntimeError, match="rounding_mode"):
        gl.div(a, b, rounding_mode="up")


def test_bits():
    x = gl.tensor([1, -8, 5])
    assert (x << 2).tolist() == [4, -32, 20]
    assert (x >> 1).tolist() == [0, -4, 2]
    assert (1 << gl.tensor([3, 64])).tolist() == [8, 0]
    assert gl.gcd(gl.tensor([12, 0, -4]), gl.tensor([18, 5, 6])).tolist() == [6, 5, 2]
    assert gl.lcm(gl.tensor([4, 0]), gl.tensor([6, 5])).tolist() == [12, 0]
    with pytest.raises(TypeError, match="integers"):
        gl.bitwise_left_shift(gl.ones(2), 1)


def test_closeness():
    a = gl.tensor([1.0, INF, NAN])
    assert gl.isclose(a, gl.tensor([1.0 + 1e-6, INF, NAN])).tolist() == [True, True, False]
    assert gl.isclose(a, a, equal_nan=True).all()
    assert not gl.isclose(gl.tensor(INF), gl.tensor(-INF))
    assert gl.allclose(gl.ones(3), gl.ones(3) + 1e-6)
    assert not gl.allclose(gl.ones(3), gl.ones(3) + 1e-3)
    assert gl.equal(gl.ones(2), gl.ones(2))
    assert not gl.equal(gl.ones(2), gl.ones(2, 1))
    assert gl.isposinf(gl.tensor([INF, -INF, 1.0])).tolist() == [True, False, False]
    assert gl.isneginf(gl.tensor([INF, -INF, 1.0])).tolist() == [False, True, False]
    with pytest.raises(RuntimeError, match="dtype"):
        gl.isclose(gl.ones(2), gl.ones(2, dtype=gl.float64))


def test_twins_write_in_place():
    names = "exp2 expm1 log1p tan atan sinh cosh asinh floor ceil round trunc frac abs sign square log sin cos reciprocal rsqrt sgn deg2rad"
    for name in names.split():
        x = gl.tensor([0.3, 0.7, 1.5])
        want = getattr(gl, name)(x).tolist()
        assert getattr(x, f"{name}_")() is x
        assert x.tolist() == want
    x = gl.tensor([5, -7])
    x //= 2
    assert x.tolist() == [2, -4]
    x %= 3
    assert x.tolist() == [2, 2]
    x <<= 2
    assert x.tolist() == [8, 8]
    assert gl.tensor([1.0, 2.0]).lerp_(gl.tensor([3.0, 4.0]), 0.5).tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="cannot be stored"):
        gl.tensor([1, 2]).exp2_()


WRONG = {
    "atan2": lambda: gl.atan2(gl.ones(2), 2),
    "heaviside": lambda: gl.heaviside(gl.ones(2), gl.ones(2, dtype=gl.int64)),
    "lerp": lambda: gl.lerp(gl.ones(2), gl.ones(2, dtype=gl.float64), 0.5),
    "addcdiv": lambda: gl.addcdiv(gl.ones(2), gl.ones(2).long(), gl.ones(2).long()),
    "frac": lambda: gl.frac(gl.ones(2).long()),
    "positive": lambda: gl.positive(gl.tensor(True)),
    "shapes": lambda: gl.fmod(gl.ones(2), gl.ones(3)),
    "nextafter": lambda: gl.nextafter(gl.tensor([1]), gl.tensor([2])),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    with pytest.raises((TypeError, RuntimeError)):
        WRONG[case]()
