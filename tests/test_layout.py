"""Layout, joining and splitting against NumPy; views share memory; gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl

from slopes import check_slopes

X = np.arange(24.0).reshape(2, 3, 4)
T, M = gl.tensor(X), gl.tensor(X[0])

SAME = {
    "roll": [((1, 0), {}), ((-2, 2), {}), (((1, 5), (0, 2)), {}), ((3,), {})],
    "rot90": [((k, d), {}) for k in range(-1, 4) for d in ((0, 1), (2, 0))],
    "flipud": [((), {})],
    "fliplr": [((), {})],
    "moveaxis": [((0, 2), {}), (((0, 1), (-1, 0)), {})],
    "swapaxes": [((0, 2), {})],
    "tile": [(((2,),), {}), (((2, 1, 3, 1),), {})],
    "tril": [((k,), {}) for k in (-1, 0, 2)],
    "triu": [((k,), {}) for k in (-1, 0, 2)],
    "diagonal": [((), {}), ((1, 2, 0), {})],
    "trapezoid": [((), {})],
}


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, cases in SAME.items() for i in range(len(cases))])
def test_as_numpy(name, number):
    args, kwargs = SAME[name][number]
    np.testing.assert_array_equal(getattr(gl, name)(T, *args, **kwargs).numpy(), getattr(np, name)(X, *args, **kwargs))
    check_slopes(lambda x: getattr(gl, name)(x, *args, **kwargs), X)


def test_repetition():
    np.testing.assert_array_equal(T.repeat(2, 1, 3).numpy(), np.tile(X, (2, 1, 3)))
    np.testing.assert_array_equal(T.repeat((2, 2, 1, 1)).numpy(), np.tile(X, (2, 2, 1, 1)))
    assert T.repeat(0, 1, 1).shape == (0, 3, 4)
    np.testing.assert_array_equal(gl.repeat_interleave(T, 2, 1).numpy(), np.repeat(X, 2, 1))
    np.testing.assert_array_equal(gl.repeat_interleave(T, 3).numpy(), np.repeat(X, 3))
    counts = np.array([2, 0, 1])
    np.testing.assert_array_equal(T.repeat_interleave(gl.tensor(counts), 1).numpy(), np.repeat(X, counts, 1))
    assert gl.repeat_interleave(gl.tensor(counts)).tolist() == [0, 0, 2]
    check_slopes(lambda x: x.repeat(2, 1, 3), X)
    check_slopes(lambda x: x.repeat_interleave(gl.tensor(counts), 1), X)
    for wrong in (lambda: T.repeat(2), lambda: T.repeat(-1, 1, 1), lambda: gl.repeat_interleave(T, gl.tensor([1, 2]), 1)):
        with pytest.raises(RuntimeError):
            wrong()


def test_diagonals_are_views():
    x = gl.zeros(3, 3)
    d = x.diagonal()
    d += 1
    x.diagonal(1).fill_(5)
    np.testing.assert_array_equal(x.numpy(), np.eye(3) + 5 * np.eye(3, k=1))
    leaf = gl.zeros(3, 3, requires_grad=True)
    y = leaf * 2
    y.diagonal().mul_(0).add_(1)
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), 2 * (1 - np.eye(3)))


def test_diagonal_matrices():
    v = gl.tensor([1.0, 2.0])
    np.testing.assert_array_equal(gl.diag(v, -1).numpy(), np.diag([1.0, 2.0], -1))
    np.testing.assert_array_equal(gl.diag(M, 1).numpy(), np.diag(X[0], 1))
    np.testing.assert_array_equal(gl.diagflat(M, 1).numpy(), np.diagflat(X[0], 1))
    embedded = gl.diag_embed(M, 1, 0, 2)
    assert embedded.shape == (5, 3, 5)
    np.testing.assert_array_equal(embedded.diagonal(1, 0, 2).numpy(), X[0])
    assert gl.trace(M).item() == np.trace(X[0])
    np.testing.assert_array_equal(gl.tril_indices(3, 4, 1).numpy(), np.stack(np.tril_indices(3, 1, 4)))
    np.testing.assert_array_equal(gl.triu_indices(3, 4, -1).numpy(), np.stack(np.triu_indices(3, -1, 4)))
    check_slopes(gl.diag_embed, X)


def test_scatters():
    for function, place in (
        (lambda a, b: gl.select_scatter(a, b, 1, -1), np.s_[:, -1]),
        (lambda a, b: gl.slice_scatter(a, b, 2, 1, None, 2), np.s_[:, :, 1::2]),
    ):
        source = -X[place]
        want = X.copy()
        want[place] = source
        np.testing.assert_array_equal(function(T, gl.tensor(source)).numpy(), want)
        check_slopes(function, X, source)
    found = gl.diagonal_scatter(M, gl.tensor([-1.0, -2.0, -3.0]))
    assert found.diagonal().tolist() == [-1, -2, -3]
    with pytest.raises(ValueError, match="does not fit"):
        gl.select_scatter(T, gl.ones(3), 1, 0)


def test_windows():
    x = gl.arange(7.0).requires_grad_()
    w = x.unfold(0, 3, 2)
    assert w.tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    w.sum().backward()
    assert x.grad.tolist() == [1, 1, 2, 1, 2, 1, 1]
    y = gl.zeros(6)
    y.unfold(0, 2, 3).fill_(1)
    assert y.tolist() == [1, 1, 0, 1, 1, 0]
    check_slopes(lambda x: x.unfold(1, 2, 1), X)
    with pytest.raises(RuntimeError):
        x.unfold(0, 8, 1)


def test_broadcasting():
    a, b = gl.broadcast_tensors(gl.ones(3, 1), gl.ones(4))
    assert a.shape == b.shape == (3, 4)
    assert gl.broadcast_to(gl.ones(3), (2, 3)).shape == gl.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert gl.ravel(T).shape == (24,)
    assert gl.atleast_1d(gl.tensor(1.0)).shape == (1,)
    assert [x.shape for x in gl.atleast_2d(gl.ones(3), gl.tensor(1.0))] == [(1, 3), (1, 1)]
    assert [x.shape for x in gl.atleast_3d([gl.ones(3), gl.ones(2, 3)])] == [(1, 3, 1), (2, 3, 1)]


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)])
def test_stacks(name, shape):
    a, b = np.ones(shape), np.zeros(shape)
    np.testing.assert_array_equal(getattr(gl, name)([gl.tensor(a), gl.tensor(b)]).numpy(), getattr(np, name)([a, b]))
    with pytest.raises(RuntimeError):
        getattr(gl, name)([])


def test_splits():
    for cut in (3, 5, [1, 1, 3], [2, -1], (0, 9)):
        for got, want in zip(gl.tensor_split(T, cut, 2), np.array_split(X, cut, 2), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert [x.shape for x in gl.hsplit(T, 3)] == [(2, 1, 4)] * 3
    assert [x.shape for x in gl.vsplit(T, [1])] == [(1, 3, 4)] * 2
    assert [x.shape for x in gl.dsplit(T, 2)] == [(2, 3, 2)] * 2
    assert [x.shape for x in gl.split_with_sizes(T, [1, 2], 1)] == [(2, 1, 4), (2, 2, 4)]
    for wrong in (lambda: gl.hsplit(T, 2), lambda: gl.vsplit(gl.ones(3), 1), lambda: gl.tensor_split(T, 0)):
        with pytest.raises(RuntimeError):
            wrong()


def test_grids():
    a, b, c = np.arange(2.0), np.arange(3.0), np.arange(4.0)
    for indexing in ("ij", "xy"):
        grids = gl.meshgrid(*map(gl.tensor, (a, b, c)), indexing=indexing)
        for got, want in zip(grids, np.meshgrid(a, b, c, indexing=indexing), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert gl.cartesian_prod(gl.tensor(a), gl.tensor(b)).tolist() == [list(p) for p in itertools.product(a, b)]
    assert gl.combinations(gl.tensor(c), 3).tolist() == [list(p) for p in itertools.combinations(c, 3)]
    pairs = [list(p) for p in itertools.combinations_with_replacement(b, 2)]
    assert gl.combinations(gl.tensor(b), with_replacement=True).tolist() == pairs
    np.testing.assert_array_equal(gl.vander(gl.tensor(c)).numpy(), np.vander(c))
    np.testing.assert_array_equal(gl.vander(gl.tensor([1, 2, 3]), 2, increasing=True).numpy(), np.vander([1, 2, 3], 2, increasing=True))
    np.testing.assert_array_equal(gl.kron(M, gl.tensor(X[:, 0])).numpy(), np.kron(X[0], X[:, 0]))
    np.testing.assert_array_equal(gl.kron(gl.tensor(b), M).numpy(), np.kron(b, X[0]))
    want = np.zeros((4, 6))
    want[:3, :4], want[3, 4:] = X[0], [7, 8]
    np.testing.assert_array_equal(gl.block_diag(M, gl.tensor([7, 8])).numpy(), want)
    check_slopes(gl.kron, X[0], X[:, 0])
    check_slopes(gl.vander, c)


WRONG = {
    "movedim": lambda: gl.movedim(T, (0, 0), (1, 2)),
    "roll": lambda: gl.roll(T, (1, 2), 0),
    "rot90": lambda: gl.rot90(T, 1, (0, 0)),
    "diagonal": lambda: gl.diagonal(T, 0, 1, 1),
    "diag": lambda: gl.diag(T),
    "trace": lambda: gl.trace(T),
    "tril": lambda: gl.tril(gl.ones(3)),
    "meshgrid": lambda: gl.meshgrid(gl.ones(2), indexing="yx"),
    "cartesian_prod": lambda: gl.cartesian_prod(gl.ones(2, 2)),
    "block_diag": lambda: gl.block_diag(T),
    "fliplr": lambda: gl.fliplr(gl.ones(3)),
    "dim": lambda: gl.roll(T, 1, 3),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    with pytest.raises((RuntimeError, IndexError)):
        WRONG[case]()
