"""Ordering and counting: against NumPy and explicit numbers."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

NAN, INF = float("nan"), float("inf")


def test_sort_is_stable_and_puts_nan_last():
    x = gl.tensor([2.0, NAN, 1.0, 2.0, -INF, INF])
    values, indices = gl.sort(x)
    np.testing.assert_array_equal(values.numpy(), [-INF, 1, 2, 2, INF, NAN])
    assert indices.tolist() == [4, 2, 0, 3, 5, 1]
    values, indices = x.sort(descending=True)
    np.testing.assert_array_equal(values.numpy(), [NAN, INF, 2, 2, 1, -INF])
    assert indices.tolist() == [1, 5, 0, 3, 2, 4]
    assert gl.sort(gl.tensor([3, 1, 255], dtype=gl.uint8), descending=True).values.tolist() == [255, 3, 1]
    assert gl.argsort(gl.tensor([[3, 1], [0, 2]]), 0).tolist() == [[1, 0], [0, 1]]
    assert gl.msort(gl.tensor([[3, 1], [0, 2]])).tolist() == [[0, 1], [3, 2]]
    assert gl.sort(gl.tensor(2.0)).indices.item() == 0
    with pytest.raises(IndexError):
        gl.sort(x, 1)


@pytest.mark.parametrize("size", [7, 300])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(size, largest):
    array = np.random.default_rng(size).integers(0, 50, (3, size)) / 2.0
    values, indices = gl.topk(gl.tensor(array), 3, largest=largest)
    order = np.argsort(-array if largest else array, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(array, order, 1))
    with pytest.raises(RuntimeError, match="k="):
        gl.topk(gl.tensor(array), size + 1)


def test_topk_with_nan_and_infinity():
    array = np.zeros(200)
    array[[5, 70, 100]] = [NAN, INF, -INF]
    assert gl.topk(gl.tensor(array), 2).indices.tolist() == [5, 70]
    assert gl.topk(gl.tensor(array), 2, largest=False).indices.tolist() == [100, 0]


def test_gradients_go_where_the_values_came_from():
    x = gl.tensor([[3.0, 1.0, 2.0]], requires_grad=True)
    (x.sort(1).values * gl.tensor([[1.0, 10.0, 100.0]])).sum().backward()
    assert x.grad.tolist() == [[100, 1, 10]]
    x.grad = None
    (x.topk(2).values * gl.tensor([[1.0, 10.0]])).sum().backward()
    assert x.grad.tolist() == [[1, 0, 10]]
    x.grad = None
    x.kthvalue(2).values.sum().backward()
    assert x.grad.tolist() == [[0, 0, 1]]
    (first,) = gl.autograd.grad((x.sort().values ** 3).sum(), [x], create_graph=True)
    (second,) = gl.autograd.grad(first.sum(), [x])
    assert second.tolist() == [[18, 6, 12]]


def test_kthvalue_and_mode():
    x = gl.tensor([[3, 1, 3, 1, 2], [5, 5, 4, 4, 0]])
    assert [t.tolist() for t in x.kthvalue(2)] == [[1, 4], [3, 2]]
    assert x.kthvalue(2, keepdim=True).values.shape == (2, 1)
    assert [t.tolist() for t in x.mode()] == [[1, 4], [3, 3]]
    assert x.mode(0).values.tolist() == [3, 1, 3, 1, 0]
    with pytest.raises(RuntimeError, match="k=6"):
        x.kthvalue(6)
    with pytest.raises(RuntimeError):
        gl.zeros(0).mode()


def test_unique():
    x = gl.tensor([[3, 1], [3, 2]])
    values, inverse, counts = gl.unique(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2, 3], [[2, 0], [2, 1]], [1, 1, 2])
    assert gl.unique(gl.tensor([[1, 2], [0, 9], [1, 2]]), dim=0).tolist() == [[0, 9], [1, 2]]
    values, counts = gl.unique_consecutive(gl.tensor([1, 1, 2, 1]), return_counts=True)
    assert (values.tolist(), counts.tolist()) == ([1, 2, 1], [2, 1, 1])
    assert gl.unique(gl.tensor([NAN, NAN, 1.0])).shape == (3,)
    assert gl.unique(gl.zeros(0)).shape == (0,)


def test_gradient_of_distinct_values():
    """Shared among equal elements, or parts."""
    x = gl.tensor([2.0, 1.0, 2.0, 2.0], requires_grad=True)
    for function, weights, want in ((gl.unique, [5.0, 6.0], [2, 5, 2, 2]), (gl.unique_consecutive, [1.0, 2.0, 4.0], [1, 2, 2, 2])):
        assert gl.autograd.grad((function(x) * gl.tensor(weights)).sum(), x)[0].tolist() == want
    rows = gl.tensor([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0]], requires_grad=True)
    weights = gl.tensor([[1.0, 2.0], [4.0, 6.0]])
    assert gl.autograd.grad((gl.unique(rows, dim=0) * weights).sum(), rows)[0].tolist() == [[2, 3], [1, 2], [2, 3]]


def test_counting():
    assert gl.bincount(gl.tensor([0, 3, 3]), minlength=6).tolist() == [1, 0, 0, 2, 0, 0]
    weights = gl.tensor([0.5, 1.0, 2.0], requires_grad=True)
    summed = gl.bincount(gl.tensor([1, 0, 1]), weights)
    assert summed.tolist() == [1.0, 2.5]
    assert summed.dtype is gl.float32
    (summed * gl.tensor([10.0, 1.0])).sum().backward()
    assert weights.grad.tolist() == [1, 10, 1]
    with pytest.raises(RuntimeError, match="-1"):
        gl.bincount(gl.tensor([-1]))
    with pytest.raises(RuntimeError, match="integers"):
        gl.bincount(gl.tensor([0.5]))
    x = gl.tensor([0.0, 1.0, 1.5, 2.0, 5.0])
    assert gl.histc(x, 2, 0, 2).tolist() == [1, 3]
    assert gl.histc(x, 5).tolist() == [1, 2, 1, 0, 1]
    with pytest.raises(RuntimeError, match="not finite"):
        gl.histc(gl.tensor([NAN]))
    with pytest.raises(RuntimeError, match="less than"):
        gl.histc(x, 2, 3, 2)


def test_searchsorted_and_bucketize():
    edges = gl.tensor([1.0, 3.0, 3.0, 5.0])
    assert gl.searchsorted(edges, gl.tensor([[3.0, 0.0], [9.0, NAN]])).tolist() == [[1, 0], [4, 4]]
    assert gl.searchsorted(edges, 3, side="right").item() == 3
    assert gl.bucketize(gl.tensor([3, 4]), edges, right=True, out_int32=True).dtype is gl.int32
    rows = gl.searchsorted(gl.tensor([[0.0, 1.0], [5.0, 6.0]]), gl.tensor([[0.5], [0.5]]))
    assert rows.tolist() == [[1], [0]]
    assert gl.searchsorted(gl.tensor([3.0, 1.0]), 2.0, sorter=gl.tensor([1, 0])).item() == 1
    with pytest.raises(RuntimeError, match="shape"):
        gl.searchsorted(gl.zeros(2, 3), gl.zeros(3, 1))
    with pytest.raises(RuntimeError, match="contradicts"):
        gl.searchsorted(edges, 1.0, right=True, side="left")


def test_isin():
    x = gl.tensor([[1, 2], [3, 4]])
    assert gl.isin(x, gl.tensor([2, 3])).tolist() == [[False, True], [True, False]]
    assert gl.isin(x, 4, invert=True).tolist() == [[True, True], [True, False]]
    assert gl.isin(4, x).item()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "int16", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(0,), (1,), (9,), (3, 0), (4, 70), (2, 5, 6)])
def test_every_order_is_the_stable_one(dtype, shape):
    """Ties, NaN, both zeros, infinities and the ends of integers, along every dimension, up and down, in whole and in part."""
    rng = np.random.default_rng(len(shape) + sum(shape))
    values = rng.integers(-3, 3, shape)
    for special in (False, True):
        x = values.astype(dtype)
        if special and dtype.startswith("float"):
            for value in (np.nan, -np.nan, -0.0, np.inf, -np.inf):
                x[rng.random(shape) < 0.15] = value
        elif special and dtype.startswith("int") and x.size:
            x.reshape(-1)[0], x.reshape(-1)[-1] = np.iinfo(dtype).min, np.iinfo(dtype).max
        for dim in range(x.ndim):
            up = np.argsort(x, axis=dim, kind="stable")
            down = x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)
            for descending, want in ((False, up), (True, down)):
                found = gl.sort(gl.tensor(x), dim, descending)
                np.testing.assert_array_equal(found.indices.numpy(), want)
                np.testing.assert_array_equal(found.values.numpy(), np.take_along_axis(x, want, dim))
                for k in {0, 1, x.shape[dim] // 2, x.shape[dim]} if x.shape[dim] else ():
                    places = gl.topk(gl.tensor(x), k, dim, largest=descending).indices.numpy()
                    np.testing.assert_array_equal(places, np.take(want, range(k), dim))
            if x.size:
                place = gl.kthvalue(gl.tensor(x), (x.shape[dim] + 1) // 2, dim).indices.numpy()
                np.testing.assert_array_equal(place, np.take(up, (x.shape[dim] - 1) // 2, dim))
