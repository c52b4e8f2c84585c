"""Pooling functions beyond their rows: sizes, indices, edge values, errors."""

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from samples import pool as reference
from samples.base import distinct
from slopes import check_slopes

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank_batched_or_not(rank):
    sizes = (7, 6, 5)[:rank]
    x = distinct(2, 3, *sizes)
    pool, average = getattr(F, f"max_pool{rank}d"), getattr(F, f"avg_pool{rank}d")
    values, indices = pool(gl.tensor(x), 3, 2, 1, return_indices=True)
    numbers_of = reference.geometry((3,) * rank, (2,) * rank, (1,) * rank)
    want = reference.max_pool(x, **numbers_of)
    np.testing.assert_array_equal(values.numpy(), want[0])
    np.testing.assert_array_equal(indices.numpy(), want[1])
    assert indices.dtype == gl.int64
    np.testing.assert_array_equal(pool(gl.tensor(x[0]), 3, 2, 1).numpy(), want[0][0])
    mean = average(gl.tensor(x), 3, 2, 1)
    np.testing.assert_allclose(mean.numpy(), reference.avg_pool(x, **reference.average((3,) * rank, (2,) * rank, (1,) * rank)), atol=1e-12)
    np.testing.assert_allclose(average(gl.tensor(x[0]), 3, 2, 1).numpy(), mean.numpy()[0], atol=1e-12)
    check_slopes(lambda t: pool(t, 3, 2, 1), x)
    check_slopes(lambda t: average(t, 3, 2, 1), x)


def test_the_stride_is_the_kernel_unless_given():
    x = gl.tensor(numbers(1, 1, 7, 6))
    assert F.max_pool2d(x, (3, 2)).shape == (1, 1, 2, 3)
    assert F.max_pool2d(x, (3, 2), stride=1).shape == (1, 1, 5, 5)
    assert F.max_pool2d(x, (3, 2), ceil_mode=True).shape == (1, 1, 3, 3)


def test_in_ceil_mode_no_window_starts_behind_the_input():
    x = gl.ones(1, 1, 5)
    assert F.max_pool1d(x, 2, 3, 1, ceil_mode=True).shape == (1, 1, 2)
    np.testing.assert_allclose(F.avg_pool1d(x, 2, 2, ceil_mode=True).numpy(), [[[1, 1, 1]]])


def test_padding_never_wins_and_nan_does():
    low = gl.full((1, 1, 3, 3), float("-inf"))
    values, indices = F.max_pool2d(low, 2, 1, 1, return_indices=True)
    assert values.isinf().all() and (indices >= 0).all() and (indices < 9).all()
    assert indices.numpy()[0, 0, 0].tolist() == [0, 0, 1, 2]
    x = np.zeros((1, 1, 2, 4))
    x[0, 0, 1, 0] = np.nan
    values, indices = F.max_pool2d(gl.tensor(x), 2, return_indices=True)
    assert np.isnan(values.numpy()[0, 0, 0, 0]) and values.numpy()[0, 0, 0, 1] == 0
    assert indices.numpy().ravel().tolist() == [4, 2]


def test_of_equal_elements_the_first_gets_the_gradient():
    x = gl.ones(1, 1, 4, 4, requires_grad=True)
    F.max_pool2d(x, 2).sum().backward()
    want = np.zeros((4, 4))
    want[::2, ::2] = 1
    np.testing.assert_array_equal(x.grad.numpy()[0, 0], want)


def test_overlapping_windows_add_their_gradients():
    x = gl.tensor([[[0.0, 5.0, 1.0, 2.0]]], requires_grad=True)
    F.max_pool1d(x, 3, 1).sum().backward()
    assert x.grad.tolist() == [[[0, 2, 0, 0]]]


@pytest.mark.parametrize(("sizes", "output"), [((8, 6), (4, 3)), ((7, 5), (3, 4)), ((5, 6), (None, 2)), ((4, 3), 1), ((3, 2), (5, 4))])
def test_adaptive_pooling(sizes, output):
    x = distinct(2, 3, *sizes)
    wanted = tuple(s if o is None else o for s, o in zip(sizes, output if isinstance(output, tuple) else (output,) * 2, strict=True))
    values, indices = F.adaptive_max_pool2d(gl.tensor(x), output, return_indices=True)
    want = reference.adaptive_max_pool(x, size=wanted)
    np.testing.assert_array_equal(values.numpy(), want[0])
    np.testing.assert_array_equal(indices.numpy(), want[1])
    means = np.zeros((2, 3, *wanted))
    for at, (rows, columns) in reference.adaptive_cells(sizes, wanted):
        means[(..., *at)] = x[:, :, rows.start : rows.stop, columns.start : columns.stop].mean((2, 3))
    np.testing.assert_allclose(F.adaptive_avg_pool2d(gl.tensor(x), output).numpy(), means, atol=1e-12)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(gl.tensor(x[1]), output).numpy(), means[1], atol=1e-12)
    check_slopes(lambda t: F.adaptive_avg_pool2d(t, output), x)
    check_slopes(lambda t: F.adaptive_max_pool2d(t, output), x)


def test_adaptive_pooling_of_other_ranks():
    x = distinct(2, 3, 6, 4, 5)
    halves = np.stack([x[0, 0][..., :3].mean(-1), x[0, 0][..., 2:].mean(-1)], -1)
    np.testing.assert_allclose(F.adaptive_avg_pool1d(gl.tensor(x[0, 0]), 2).numpy(), halves, atol=1e-12)
    np.testing.assert_allclose(F.adaptive_avg_pool3d(gl.tensor(x), 1).numpy(), x.mean((2, 3, 4), keepdims=True), atol=1e-12)
    np.testing.assert_allclose(F.adaptive_max_pool3d(gl.tensor(x), 1).numpy(), x.max((2, 3, 4), keepdims=True))
    np.testing.assert_allclose(F.adaptive_max_pool1d(gl.tensor(x[0, 0]), 1).numpy(), x[0, 0].max(-1, keepdims=True))


def test_unpooling_puts_the_maxima_back():
    x = distinct(2, 2, 4, 6) + 0.05  # so that none is 0
    values, indices = F.max_pool2d(gl.tensor(x), 2, return_indices=True)
    back = F.max_unpool2d(values, indices, 2).numpy()
    assert back.shape == x.shape
    np.testing.assert_array_equal(np.sort(back[back != 0]), np.sort(values.numpy().ravel()))
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert F.max_unpool2d(values, indices, 2, output_size=(5, 7)).shape == (2, 2, 5, 7)
    check_slopes(lambda v: F.max_unpool2d(v, indices, 2), values.numpy())
    with pytest.raises(ValueError, match=r"max_unpool2d: output_size"):
        F.max_unpool2d(values, indices, 2, output_size=(8, 8))
    with pytest.raises(RuntimeError, match=r"indices must lie within"):
        F.max_unpool2d(values, indices + 100, 2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_power_means(rank):
    x = np.abs(numbers(2, 2, *(6, 4, 4)[:rank])) + 0.1
    pool = getattr(F, f"lp_pool{rank}d")
    means = reference.avg_pool(x**3, **reference.average((2,) * rank, (2,) * rank))
    np.testing.assert_allclose(pool(gl.tensor(x), 3, 2).numpy(), (means * 2**rank) ** (1 / 3), atol=1e-12)
    check_slopes(lambda t: pool(t, 3, 2), x)


def test_the_norm_of_zeros_has_gradient_zero():
    x = gl.zeros(1, 1, 4, requires_grad=True)
    out = F.lp_pool1d(x, 2, 2)
    out.sum().backward()
    assert out.tolist() == [[[0, 0]]] and x.grad.tolist() == [[[0, 0, 0, 0]]]
    assert F.lp_pool1d(gl.tensor([[-1.0, -2.0]]), 1, 2).tolist() == [[-3.0]]
    for p in (1.5, 3):
        assert F.lp_pool1d(gl.tensor([[-1.0, -2.0, 0.0, 0.0]]), p, 2).isnan().tolist() == [[True, False]]


def test_second_order_gradients():
    x = gl.tensor(distinct(1, 2, 4, 4) / 5, requires_grad=True)
    y = (F.max_pool2d(x, 2) ** 3).sum() + (F.avg_pool2d(x, 3, 1) ** 2).sum()
    (g,) = gl.autograd.grad(y, x, create_graph=True)
    check = gl.autograd.grad((g * g).sum(), x)[0]
    assert check.shape == x.shape and bool(check.isfinite().all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.max_pool2d(gl.ones(1, 1, 2, 4), 3), ("max_pool2d", "too small", "(1, 1, 2, 4)", "(3, 3)")),
        (lambda: F.max_pool2d(gl.ones(1, 1, 4, 4), 2, padding=2), ("max_pool2d", "at most half", "(2, 2)")),
        (lambda: F.max_pool2d(gl.ones(4, 4), 2), ("max_pool2d", "(4, 4)")),
        (lambda: F.max_pool2d(gl.ones(1, 1, 4, 4), 0), ("max_pool2d", "kernel_size", "(0, 0)")),
        (lambda: F.max_pool2d(gl.ones(1, 1, 4, 4), 2, 0), ("max_pool2d", "stride", "(0, 0)")),
        (lambda: F.avg_pool2d(gl.ones(1, 1, 4, 4), (1, 2, 3)), ("avg_pool2d", "kernel_size", "2 ints")),
        (lambda: F.avg_pool2d(gl.ones(1, 1, 4, 4), 2, divisor_override=0), ("avg_pool2d", "divisor_override")),
        (lambda: F.avg_pool2d(gl.ones(1, 1, 4, 4, dtype=gl.int32), 2), ("avg_pool2d", "int32", ".float()")),
        (lambda: F.adaptive_avg_pool2d(gl.ones(1, 1, 4, 4), (1, 2, 3)), ("adaptive_avg_pool2d", "output_size")),
        (lambda: F.adaptive_avg_pool2d(gl.ones(1, 1, 4, 4), -1), ("adaptive_avg_pool2d", "negative")),
        (lambda: F.adaptive_max_pool2d(gl.ones(1, 1, 0, 4), 2), ("adaptive_max_pool2d", "(1, 1, 0, 4)")),
        (lambda: F.max_unpool1d(gl.ones(1, 1, 3), gl.ones(1, 1, 2, dtype=gl.int64), 2), ("max_unpool1d", "(1, 1, 3)", "(1, 1, 2)")),
    ],
)
def test_errors_name_the_operation_and_the_shapes(call, words):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_averages_of_int64_are_cut_to_integers():
    x = gl.tensor([[[-7, 2, 5, 4, 9, 9]]])
    assert F.avg_pool1d(x, 2).tolist() == [[[-2, 4, 9]]]
    assert F.avg_pool2d(x.unsqueeze(0), (1, 3), divisor_override=2).tolist() == [[[[0, 11]]]]


@pytest.mark.parametrize(("sizes", "output"), [((5, 7, 4), (3, 2, 6)), ((1, 2, 3), (9, 1, 3)), ((4, 4), (97, 3)), ((9,), (4,))])
@pytest.mark.parametrize("share", [0, 0.2])
def test_adaptive_maxima_among_equals_and_nan_are_the_first(sizes, output, share):
    rng = np.random.default_rng(1)
    x = np.where(rng.random((2, 3, *sizes)) < share, np.nan, rng.integers(0, 3, (2, 3, *sizes)).astype(np.float64))
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[len(sizes) - 1]
    found = pool(gl.tensor(x), output, return_indices=True)
    for one, want in zip(found, reference.adaptive_max_pool(x, size=output), strict=True):
        np.testing.assert_array_equal(one.numpy(), want)
