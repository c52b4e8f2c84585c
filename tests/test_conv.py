"""Convolution functions beyond their rows: padding words, batches, transposed geometry, errors."""

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from samples import conv as reference
from slopes import check_slopes

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape)


def convolved(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    rank = x.ndim - 2
    spread = [(v,) * rank if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation)]
    return reference.convolution(x, w, b, stride=spread[0], padding=spread[1], dilation=spread[2], groups=groups)


@pytest.mark.parametrize(
    ("name", "sizes", "kernel"), [("conv1d", (9,), (3,)), ("conv2d", (6, 7), (3, 2)), ("conv3d", (4, 5, 3), (2, 3, 1))]
)
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2, "groups": 2}])
def test_every_rank_with_bias_and_gradients(name, sizes, kernel, options):
    x, w, b = numbers(2, 4, *sizes), numbers(6, 4 // options.get("groups", 1), *kernel), numbers(6)
    function = getattr(F, name)
    got = function(gl.tensor(x), gl.tensor(w), gl.tensor(b), **options)
    np.testing.assert_allclose(got.numpy(), convolved(x, w, b, **options), atol=1e-12)
    check_slopes(lambda *t: function(*t, **options), x, w, b)
    single = function(gl.tensor(x[1]), gl.tensor(w), gl.tensor(b), **options)
    np.testing.assert_allclose(single.numpy(), got.numpy()[1], atol=1e-12)


@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((2, 4), 1), ((4, 3), (3, 1)), ((1, 1), 1)])
def test_same_keeps_the_sizes_and_puts_the_odd_zero_at_the_end(kernel, dilation):
    x, w = numbers(2, 3, 5, 6), numbers(4, 3, *kernel)
    total = [d * (k - 1) for k, d in zip(kernel, np.broadcast_to(dilation, 2), strict=True)]
    wide = np.pad(x, ((0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)))
    got = F.conv2d(gl.tensor(x), gl.tensor(w), padding="same", dilation=dilation)
    assert got.shape == (2, 4, 5, 6)
    np.testing.assert_allclose(got.numpy(), convolved(wide, w, dilation=dilation), atol=1e-12)
    check_slopes(lambda a, b: F.conv2d(a, b, padding="same", dilation=dilation), x, w)


def test_valid_is_no_padding():
    x, w = gl.tensor(numbers(1, 2, 5, 5)), gl.tensor(numbers(3, 2, 3, 3))
    np.testing.assert_array_equal(F.conv2d(x, w, padding="valid").numpy(), F.conv2d(x, w).numpy())


@pytest.mark.parametrize(
    ("sizes", "kernel", "options"),
    [
        ((5,), (3,), {}),
        ((4, 5), (3, 2), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((4, 3), (3, 3), {"stride": (3, 2), "padding": (0, 1), "dilation": (1, 2), "groups": 2}),
        ((4, 3), (2, 3), {"stride": 1, "padding": 1, "dilation": 3, "output_padding": 2}),
        ((2, 3, 2), (2, 2, 3), {"stride": 2, "padding": (0, 1, 1)}),
    ],
)
def test_a_transposed_convolution_is_the_adjoint(sizes, kernel, options):
    """Every element spreads a kernel, at `stride` times its place, over the output."""
    rank, groups = len(sizes), options.get("groups", 1)
    stride, padding, dilation, extra = (
        np.broadcast_to(options.get(k, d), rank) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    )
    x, w, b = numbers(2, 4, *sizes), numbers(4, 3, *kernel), numbers(3 * groups)
    full = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(sizes, stride, dilation, kernel, extra, strict=True)]
    spread = np.zeros((2, 3 * groups, *full))
    for place in np.ndindex(*sizes):
        for inner in np.ndindex(*kernel):
            at = tuple(p * s + i * d for p, s, i, d in zip(place, stride, inner, dilation, strict=True))
            for channel in range(4):
                group = channel // (4 // groups)
                spread[(slice(None), slice(3 * group, 3 * group + 3), *at)] += (
                    x[(slice(None), channel, *place)][:, None] * w[(channel, slice(None), *inner)]
                )
    want = spread[(..., *(slice(p, n - p) for p, n in zip(padding, full, strict=True)))] + b.reshape(-1, *(1,) * rank)
    function = getattr(F, f"conv_transpose{rank}d")
    got = function(gl.tensor(x), gl.tensor(w), gl.tensor(b), **options)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)
    np.testing.assert_allclose(function(gl.tensor(x[0]), gl.tensor(w), gl.tensor(b), **options).numpy(), want[0], atol=1e-12)
    check_slopes(lambda *t: function(*t, **options), x, w, b)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((70, 2, 9, 9), (3, 2, 3, 3), {}),  # several chunks of images, planes
        ((70, 16, 9, 5), (24, 16, 3, 3), {"padding": 1}),  # several chunks, channels last, one product for all
        ((4, 24, 20, 20), (8, 24, 3, 3), {"padding": 1}),  # channels last, a product for each image
        ((40, 12, 12, 12), (12, 1, 3, 3), {"groups": 12}),
        ((30, 16, 15, 15), (8, 16, 3, 3), {"stride": 2, "padding": 1}),
        ((3, 4, 40, 40), (4, 4, 3, 3), {"padding": 1}),
    ],
)
def test_large_ones_agree_in_single_precision(x, w, options):
    a, b = numbers(*x), numbers(*w)
    ta, tb = (gl.tensor(v, dtype=gl.float32, requires_grad=True) for v in (a, b))
    out = F.conv2d(ta, tb, **options)
    want = convolved(a, b, **options)
    up = numbers(*want.shape)
    scale = np.sqrt(np.prod(w[1:]))
    np.testing.assert_allclose(out.detach().numpy(), want, atol=1e-5 * scale)
    (out * gl.tensor(up, dtype=gl.float32)).sum().backward()
    names = {"stride": 1, "padding": 0, "dilation": 1} | options
    geometry = {k: (v, v) if k != "groups" else v for k, v in names.items()}
    geometry.setdefault("groups", 1)
    np.testing.assert_allclose(ta.grad.numpy(), reference.convolution_dx(up, b, shape=x, **geometry), atol=1e-5 * scale)
    dw = reference.convolution_dw(a, up, shape=w, **geometry)
    np.testing.assert_allclose(tb.grad.numpy(), dw, atol=1e-5 * np.abs(dw).max())


def test_integers_and_half_types():
    x, w = RNG.integers(-5, 5, (1, 2, 5, 5)), RNG.integers(-5, 5, (3, 2, 3, 3))
    np.testing.assert_array_equal(F.conv2d(gl.tensor(x), gl.tensor(w)).numpy(), convolved(x, w).astype(np.int64))
    half = F.conv2d(gl.tensor(x, dtype=gl.float16), gl.tensor(w, dtype=gl.float16))
    assert half.dtype == gl.float16
    np.testing.assert_allclose(half.float().numpy(), convolved(x, w), atol=0.5)


def ones(*shape, **options):
    return gl.ones(*shape, **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 4, 3, 3)), ("conv2d", "(2, 4, 3, 3)", "4 channels", "(1, 3, 4, 4)")),
        (lambda: F.conv2d(ones(1, 3, 2, 4), ones(2, 3, 3, 3)), ("conv2d", "kernel is larger", "(2, 4)", "(1, 3, 2, 4)")),
        (lambda: F.conv2d(ones(1, 4, 4, 4), ones(3, 2, 3, 3), groups=2), ("conv2d", "groups=2", "(3, 2, 3, 3)")),
        (lambda: F.conv2d(ones(4, 4), ones(3, 2, 3, 3)), ("conv2d", "(N, C, sizes)", "(4, 4)")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3)), ("conv2d", "weight", "(2, 3, 3)")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), ones(3)), ("conv2d", "bias", "(2,)", "(3,)")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), stride=0), ("conv2d", "stride", "(0, 0)")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), padding=-1), ("conv2d", "padding", "-1")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), dilation=(1, 2, 3)), ("conv2d", "dilation", "2 ints")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), groups=0), ("conv2d", "groups", "0")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), stride=2, padding="same"), ("conv2d", "same", "stride 1")),
        (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3, dtype=gl.float64)), ("conv2d", "float32", "float64")),
        (lambda: F.conv_transpose2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3)), ("conv_transpose2d", "(2, 3, 3, 3)", "(1, 3, 4, 4)")),
        (lambda: F.conv_transpose2d(ones(1, 3, 4, 4), ones(3, 2, 3, 3), output_padding=1), ("conv_transpose2d", "output_padding")),
        (lambda: F.conv_transpose1d(ones(1, 3, 1), ones(3, 2, 1), padding=1), ("conv_transpose1d", "no output")),
        (lambda: F.conv_transpose1d(ones(1, 3, 4), ones(3, 2, 2), ones(3)), ("conv_transpose1d", "bias", "(2,)")),
    ],
)
def test_errors_name_the_operation_and_the_shapes(call, words):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_wrong_types():
    with pytest.raises(TypeError, match=r"conv2d: expected a tensor, got ndarray"):
        F.conv2d(np.ones((1, 3, 4, 4)), ones(2, 3, 3, 3))
    with pytest.raises(TypeError, match=r"conv2d: stride must be an int"):
        F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), stride=1.5)
    with pytest.raises(ValueError, match=r"conv2d: padding must be"):
        F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), padding="full")
