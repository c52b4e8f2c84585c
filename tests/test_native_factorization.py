"""LU factors and triangular systems as machine code, beside NumPy's and what they are factors and solutions of."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import ops
from gradlab.backends.native import eager
from gradlab.spec import Spec
from gradlab.tensor import factor_info

pytestmark = needs_compiler
SHAPES = [(1, 1), (3, 3), (31, 31), (33, 20), (20, 33), (64, 64), (100, 100), (257, 300), (300, 257), (900, 31), (31, 900), (3000, 3),
          (2, 70001), (5, 64, 64), (3, 2, 7, 9), (70, 33, 33), (520, 521)]  # fmt: skip
COLUMNS = [1, 2, 7, 8, 33, 100, 257]


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def matrices(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def by_numpy(name, *arrays, **params):
    row = ops.ROWS[name]
    outs = [np.empty(s.shape, s.dtype) for s in row.specs(*[Spec(a.shape, a.dtype) for a in arrays], **params)]
    row.quietly(*arrays, *outs, **params)
    return outs if len(outs) > 1 else outs[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lu(shape, dtype):
    x = matrices(shape, dtype)
    order, lower, upper = eager.run(ops.ROWS["lu"], (x,), {})
    turned = np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)
    for a, b in zip(eager.run(ops.ROWS["lu"], (turned,), {}), (order, lower, upper), strict=True):
        np.testing.assert_array_equal(a, b)
    want = by_numpy("lu", x.astype(np.float64))
    np.testing.assert_array_equal(order, want[0])
    eps = np.finfo(dtype).eps * 40 * min(shape[-2:])
    error = np.take_along_axis(x, order[..., None], -2) - lower.astype(np.float64) @ upper
    assert np.abs(error).max() <= eps * np.abs(upper).max() and np.abs(lower).max() == 1
    assert (np.tril(upper[..., :, : upper.shape[-2]], -1) == 0).all() and (np.triu(lower[..., : lower.shape[-1], :], 1) == 0).all()


@pytest.mark.parametrize("shape", [(300, 301), (700, 260), (260, 700), (6, 50, 50)])
def test_any_number_of_threads_gives_the_same_bits(shape):
    x, before, found = matrices(shape, np.float32), gl.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            gl.set_num_threads(threads)
            found.append(eager.run(ops.ROWS["lu"], (x,), {}))
    finally:
        gl.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [5, 40, 300])
def test_singular_and_hard_matrices(size):
    x = matrices((size, size), np.float64)
    x[:, 2] = 0
    for a, b in zip(eager.run(ops.ROWS["lu"], (x,), {}), by_numpy("lu", x), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert gl.linalg.lu_factor_ex(gl.tensor(x)).info.item() == 3
    x[1, 3] = np.nan
    _, lower, upper = eager.run(ops.ROWS["lu"], (x,), {})
    assert np.isnan(upper).any() and np.isfinite(lower[:, :3]).all()
    zeros = np.zeros((size, size), np.float32)
    order, lower, upper = eager.run(ops.ROWS["lu"], (zeros,), {})
    assert (order == np.arange(size)).all() and (lower == np.eye(size)).all() and not upper.any()


SYSTEMS = [((), 1), ((), 31), ((), 33), ((), 100), ((), 257), ((), 900), ((5,), 40), ((2, 3), 17), ((70,), 4)]


@pytest.mark.parametrize("batch, size", SYSTEMS)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solve_triangular(batch, size, upper, dtype):
    a = matrices((*batch, size, size), dtype) / size + 3 * np.eye(size, dtype=dtype)
    for columns in COLUMNS if size < 300 else COLUMNS[::3]:
        b = matrices((*batch, size, columns), dtype, 1)
        for given in (a, np.ascontiguousarray(np.swapaxes(a, -1, -2)).swapaxes(-1, -2), np.repeat(a, 2, -1)[..., ::2]):
            how = {"upper": upper, "unitriangular": columns == 7}
            triangle = np.triu(a) if upper else np.tril(a)
            if columns == 7:
                triangle[..., range(size), range(size)] = 1
            found = eager.run(ops.ROWS["solve_triangular"], (given, b), how)
            assert found is not None
            apart = eager.run(ops.ROWS["solve_triangular"], (given, np.repeat(b, 2, -1)[..., ::2]), how)
            np.testing.assert_array_equal(found, apart)
            error = triangle.astype(np.float64) @ found - b
            assert np.abs(error).max() <= np.finfo(dtype).eps * 60 * max(1, np.abs(found).max())
    assert "solve_triangular" in used()


def test_what_is_not_read_and_zeros_on_the_diagonal():
    a = matrices((40, 40), np.float32) + 9 * np.eye(40, dtype=np.float32)
    a[np.triu_indices(40, 1)] = np.nan
    for columns in (1, 20):
        b = np.ones((40, columns), np.float32)
        how = {"upper": False, "unitriangular": False}
        want = by_numpy("solve_triangular", a, b, **how)
        np.testing.assert_allclose(eager.run(ops.ROWS["solve_triangular"], (a, b), how), want, rtol=1e-5, atol=1e-6)
    a[30, 30] = 0
    assert not np.isfinite(eager.run(ops.ROWS["solve_triangular"], (a, b), how)[30:]).any(0).any(0)


@pytest.mark.parametrize("batch, rows, size", [((), 7, 7), ((3,), 9, 5), ((50,), 6, 6), ((50, 2), 6, 4), ((0,), 3, 3), ((40,), 12, 12)])
def test_exchanges_and_orders(batch, rows, size):
    """One after the other and many at once; the order is what they bring the rows into."""
    order = np.argsort(np.random.default_rng(0).random((*batch, rows)), -1)
    exchanges = factor_info._exchanges(order, size)
    assert exchanges.dtype == np.int32 and exchanges.shape == (*batch, size)
    found = factor_info.row_order(gl.tensor(exchanges), rows).numpy()
    np.testing.assert_array_equal(found[..., :size], order[..., :size])


def test_public_functions_have_the_kernels():
    x, b = gl.tensor(matrices((60, 60), np.float32)), gl.tensor(matrices((60, 3), np.float32, 1))
    factors = gl.linalg.lu_factor(x)
    y = gl.linalg.lu_solve(*factors, b)
    np.testing.assert_allclose((x @ y).numpy(), b.numpy(), atol=2e-3)
    p, lower, upper = gl.lu_unpack(*factors)
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x.numpy(), atol=1e-4)
    for a, b in zip(gl.linalg.lu(x), (p, lower, upper), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert {"lu", "solve_triangular"} <= used()
