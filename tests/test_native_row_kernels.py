"""Kernels of single rows that take other ways by what they are given: lengths, strides, large numbers."""

import math

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab.backends.native import eager

F = gl.nn.functional
pytestmark = needs_compiler
SIZES = [31, 33, 100, 257, 900, 3000, 70001]
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30]


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def bits(array):
    return np.where(np.isnan(array), 0, array.view(np.int32 if array.dtype == np.float32 else np.int64))


@pytest.mark.parametrize("size", SIZES)
def test_sines_are_the_same_bits_whatever_stands_beside_them(size):
    """A block without a number beyond 2^24 is computed in another way."""
    x = np.random.default_rng(size).normal(size=size).astype("f") * 1e4
    with_large = np.concatenate([x, np.float32(ODD)])
    for function in (gl.sin, gl.cos):
        alone, beside = function(gl.from_numpy(x)).numpy(), function(gl.from_numpy(with_large)).numpy()
        np.testing.assert_array_equal(bits(alone), bits(beside[:size]))
        np.testing.assert_allclose(alone, getattr(np, function.__name__)(x.astype("d")), atol=1e-6)
        assert np.isnan(beside[size : size + 3]).all()
    assert {"sin", "cos"} <= used()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_and_its_slope(dtype):
    """As its formula in twice the digits: also far below zero, where x Φ(x) is less than a float."""
    x = np.concatenate([np.linspace(-15, 15, 70001 - len(ODD)), ODD]).astype(dtype)
    t = gl.tensor(x, requires_grad=True)
    y = F.gelu(t)
    y.backward(gl.ones_like(y))
    assert {"gelu", "gelu_backward"} <= used()
    wide = gl.tensor(x.astype("d")).clamp(-40, 40)
    share = 0.5 * gl.special.erfc(wide * -math.sqrt(0.5))
    value, slope = (wide * share).numpy(), (share + wide * (wide * wide * -0.5).exp() / math.sqrt(2 * math.pi)).numpy()
    finite = np.isfinite(x) & (np.abs(x) < 20)
    np.testing.assert_allclose(y.detach().numpy()[finite], value[finite], rtol=2e-6 if dtype == np.float32 else 1e-13, atol=1e-37)
    np.testing.assert_allclose(t.grad.numpy()[finite], slope[finite], rtol=0, atol=3e-7 if dtype == np.float32 else 1e-15)
    end, grad = y.detach().numpy()[-len(ODD) :], t.grad.numpy()[-len(ODD) :]
    np.testing.assert_array_equal(end[[1, 3, 4]], np.array([math.inf, 0, 0], dtype))
    assert np.signbit(end[4]) and not np.signbit(end[3]) and end[2] == end[-1] == 0 and np.isnan(end[0]) and np.isnan(grad[0])
    np.testing.assert_array_equal(grad[[1, 2, 3, 4]], np.array([1, 0, 0.5, 0.5], dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(31, 33), (64, 64), (100, 257), (257, 900), (2, 70, 96), (1, 33)])
def test_copies_of_what_lies_otherwise(shape, dtype):
    """Turned, from one number, from one row, from one column, backwards: into memory without gaps, and nothing beside it is written."""
    a = np.random.default_rng(1).integers(0, 200, shape).astype(dtype)
    given = [
        a.swapaxes(-1, -2), np.broadcast_to(a[(0,) * a.ndim], shape), np.broadcast_to(a[..., :1, :], shape),
        np.broadcast_to(a[..., :1], shape), a[..., ::-1], a[..., ::2],
    ]  # fmt: skip
    for x in given:
        room = np.full(x.size + 32, 77, dtype)
        out = room[16 : 16 + x.size].reshape(x.shape)
        if eager.run(gl.ops.ROWS["clone"], (x,), {}, (out,)) is None:
            continue
        np.testing.assert_array_equal(out, x)
        assert (room[:16] == 77).all() and (room[-16:] == 77).all()
    assert "clone" in used()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_any_length(size, dtype):
    """Extremes with NaN and infinities at each place of a vector; sums as their exact value; eager and compiled sums of the same bits."""
    x = np.random.default_rng(size).normal(size=(3, size)).astype(dtype)
    t = gl.from_numpy(x)
    np.testing.assert_array_equal(t.amax(1).numpy(), x.max(1))
    np.testing.assert_array_equal(t.amin(1).numpy(), x.min(1))
    exact = np.array([math.fsum(row) for row in x])
    np.testing.assert_allclose(t.sum(1).numpy(), exact, rtol=0, atol=(2e-7 if dtype == np.float32 else 4e-16) * np.abs(x).sum(1).max())
    np.testing.assert_array_equal(t.sum(1).numpy(), gl.compile(lambda v: v.sum(1))(t).numpy())
    for place in sorted({0, 7, 8, 31, size // 2, size - 1} & set(range(size))):
        for value, extreme in ((math.nan, math.nan), (math.inf, math.inf)):
            y = x.copy()
            y[1, place] = value
            found = gl.from_numpy(y).amax(1).numpy()
            np.testing.assert_array_equal(found, np.array([x[0].max(), extreme, x[2].max()], dtype))
            np.testing.assert_array_equal(gl.from_numpy(-y).amin(1).numpy(), -found)
    assert {"amax", "amin", "sum"} <= used()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances(size, dtype):
    """Far from 0 as near it, of one number, of infinities and NaN, by any divisor, over the last dimensions and over others."""
    x = np.random.default_rng(size).normal(size=(4, size)).astype(dtype) + dtype(1000)
    for correction in (0, 1, 1.5):
        found = gl.from_numpy(x).var(1, correction=correction).numpy()
        exact = ((x.astype("d") - x.astype("d").mean(1, keepdims=True)) ** 2).sum(1) / (size - correction)
        np.testing.assert_allclose(found, exact, rtol=2e-5 if dtype == np.float32 else 1e-9)
    cube = gl.from_numpy(x).reshape(2, 2, size)
    for dims in ((1, 2), (0, 1, 2), (0,), (1,), (0, 2)):
        np.testing.assert_allclose(cube.var(dims).numpy(), cube.numpy().astype("d").var(dims, ddof=1), rtol=2e-5)
    x[0, 0], x[1, -1], x[2] = math.nan, math.inf, 7
    found = gl.from_numpy(x).var(1).numpy()
    assert np.isnan(found[:2]).all() and found[2] == 0 and found[3] > 0 and "var" in used()
    one = gl.ones(3, 1)
    assert np.isnan(one.var(1).numpy()).all() and (one.var(1, correction=0).numpy() == 0).all()


@pytest.mark.parametrize("columns", [31, 900, 4096, 4103, 70001])
def test_long_rows_of_a_norm(columns):
    """Its gradients of input, weight and bias, rows of a block going together some columns at a time."""
    random = np.random.default_rng(columns)
    rows = 70 if columns < 70001 else 5
    arrays = [random.normal(size=shape).astype("f") for shape in ((rows, columns), (columns,), (columns,), (rows, columns))]
    results = []
    for dtype in (gl.float32, gl.float64):
        x, weight, bias, g = (gl.from_numpy(a).to(dtype) for a in arrays)
        for t in (x, weight, bias):
            t.requires_grad_()
        F.layer_norm(x, (columns,), weight, bias).backward(g)
        results.append([t.grad.numpy() for t in (x, weight, bias)])
    for got, want in zip(*results):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)
    assert "layer_norm_backward" in used()


def test_a_gradient_that_is_another_shape_of_an_array_is_taken():
    """Of an array that nobody else sees; what a hook keeps is copied."""
    kept = []
    for keep in (False, True):
        x = gl.arange(6.0).requires_grad_()
        y = x.reshape(2, 3) if not keep else (x * 1).reshape(2, 3)
        if keep:
            x.register_hook(kept.append)
        (y * 3).backward(gl.ones(2, 3))
        assert x.grad.tolist() == [3.0] * 6
        x.grad.add_(1)
        assert x.grad.tolist() == [4.0] * 6
    assert kept[0].tolist() == [3.0] * 6


@pytest.mark.parametrize("shape", [(70001,), (3, 70001), (70001, 3)])
def test_products_of_numbers_near_one_keep_their_digits(shape):
    """Half of them lie halfway between two float32 numbers, and totals in float32 would be rounded the same way each time."""
    x = (1 + np.random.default_rng(len(shape)).normal(size=shape) / 70001).astype("f")
    dim = shape.index(70001)
    for program in (lambda t: t.prod(dim), gl.compile(lambda t: t.prod(dim))):
        np.testing.assert_allclose(program(gl.from_numpy(x)).numpy(), x.astype("d").prod(dim), rtol=2e-7)
    assert "prod" in used()
