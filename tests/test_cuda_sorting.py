"""Sorting, running results and sums by place on the (emulated) GPU, at sizes that take their kernels for many elements, against the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.dtype import as_numpy

STATE = np.array([77, 4], np.int64)
AWKWARD = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42]


@pytest.fixture(params=["forward", "warps"], autouse=True)
def order(cuda, request, monkeypatch):
    """Kernels run in two orders: thread by thread, and one warp as far ahead of the others as barriers let it."""
    if cuda.driver.name == "emulated":
        monkeypatch.setattr(cuda.driver, "order", request.param)
    elif request.param != "forward":
        pytest.skip("a real GPU has its own order")


def both(name, *inputs, **params):
    """The row on both devices, as pairs of NumPy arrays; the GPU's run must not fall back to the host."""
    from gradlab.backends.cuda import fallback

    before = fallback.counts.get(name, 0)
    found = []
    for device in ("cuda", "cpu"):
        result = ops.ROWS[name](*(gl.tensor(x, device=device) if isinstance(x, np.ndarray) else x for x in inputs), **params)
        found.append([t.cpu().numpy() for t in (result if isinstance(result, tuple) else (result,))])
    assert fallback.counts.get(name, 0) == before, f"{name} ran on the host"
    return zip(*found, strict=True)


def equal(name, *inputs, **params):
    for got, want in both(name, *inputs, **params):
        assert got.dtype == want.dtype
        if got.dtype.kind == "V":  # bfloat16, whose NaN NumPy does not know
            got, want = got.astype(np.float32), want.astype(np.float32)
        np.testing.assert_array_equal(got, want)


def close(name, *inputs, tolerance=1e-6, **params):
    for got, want in both(name, *inputs, **params):
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)


def numbers(dtype, *shape, seed=0):
    """Many equal ones, and all the awkward ones."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 20, shape)
    if dtype == "bool":
        return x > 0
    if dtype.startswith("float") or dtype == "bfloat16":
        x = x / 4
        flat = x.reshape(-1)
        flat[rng.permutation(flat.size)[: len(AWKWARD)]] = AWKWARD
        return x.astype(as_numpy(dtype))
    return (x * (1 if dtype == "int8" else 9)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_long_rows_are_sorted_by_digits(dtype, descending):
    x = numbers(dtype, 2501)
    equal("sort", x, dim=0, descending=descending)


@pytest.mark.parametrize(("shape", "dim"), [((3, 2100), 1), ((2100, 2), 0), ((2, 65, 3), 1), ((5, 1), 1), ((0, 4), 1), ((4, 0), 1)])
def test_rows_stay_apart(shape, dim):
    x = np.random.default_rng(1).integers(-50, 50, shape).astype(np.float32)
    equal("sort", x, dim=dim, descending=True)
    if x.size:
        equal("topk", x, k=min(7, shape[dim]), dim=dim, largest=False)
        equal("mode", x, dim=dim)
        equal("median", x, dim=dim, keepdim=False, pass_nan=False)


def test_permutation_and_categories_without_replacement():
    for n in (1, 33, 2048, 2500):
        equal("random_permutation", STATE, shape=(n,), dtype=np.dtype(np.int64), offset=8)
    weights = np.random.default_rng(2).uniform(0, 1, (3, 100)).astype(np.float32)
    weights[0, 5:] = 0
    weights[:, -1] = 0
    equal("multinomial", weights, STATE, samples=5, replacement=False, offset=0)
    equal("multinomial", weights, STATE, samples=40, replacement=True, offset=0)


def test_distinct_values_counts_and_places():
    x = numbers("float32", 2300)
    equal("unique", x, dim=None, consecutive=False)
    equal("unique", x, dim=None, consecutive=True)
    equal("nonzero", x.reshape(46, 50))
    equal("bincount", np.abs(numbers("int64", 1500)), None, minlength=3)
    equal("bincount", np.abs(numbers("int64", 150)), np.arange(150).astype(np.float16), minlength=0)
    close("bincount", np.abs(numbers("int64", 1500)), np.random.default_rng(3).normal(size=1500).astype(np.float32), minlength=0)
    equal("isin", x, numbers("float32", 300, seed=4), invert=False)
    equal("searchsorted", np.sort(numbers("float32", 501)), x, right=True, dtype=np.dtype(np.int32))
    equal("histc", np.random.default_rng(5).normal(size=1111), bins=7, lo=0.0, hi=0.0)
    equal("repeated", np.arange(50) % 4)
    equal("masked_gather", x.reshape(46, 50), numbers("bool", 46, 50), shape=(2300,))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize(("shape", "dim"), [((2, 1025), 1), ((9001,), 0), ((1300, 3), 0)])
def test_running_results_of_long_lines(name, shape, dim):
    x = np.random.default_rng(6).normal(1, 0.02, shape).astype(np.float32)
    close(name, x, dim=dim, tolerance=3e-6)
    if name == "cumsum":
        equal(name, np.random.default_rng(7).integers(-99, 99, shape), dim=dim)


@pytest.mark.parametrize(("shape", "dim"), [((2, 1025), 1), ((9001,), 0), ((1300, 3), 0)])
def test_running_extremes_and_recurrences_of_long_lines(shape, dim):
    x = numbers("float32", *shape)
    x[np.isnan(x)] = 0
    equal("cummax", x, dim=dim)
    x.reshape(-1)[[700, 900]] = np.nan
    equal("cummin", x, dim=dim)
    a, b = (np.random.default_rng(seed).uniform(-0.9, 1, shape) for seed in (8, 9))
    for reverse in (False, True):
        close("recurrence", a, b, dim=dim, reverse=reverse, tolerance=1e-9)


def test_a_recurrence_that_overflows_between_zeros():
    a = np.full(300, 1e300)
    b = np.zeros(300)
    close("recurrence", a, b, dim=0, reverse=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize(("rows", "width", "number"), [(5, 40, 700), (300, 3, 200), (1, 1, 999), (4000, 1, 130)])
def test_many_rows_add_up_in_their_order(dtype, rows, width, number):
    rng = np.random.default_rng(10)
    at = rng.integers(0, rows, number)
    at[: number // 2] = at[0]  # one place that many want
    dy = rng.integers(-8, 8, (number, width)).astype(as_numpy(dtype))
    if dtype != "int64":
        equal("embedding_backward", dy, at, rows=rows, padding_idx=None)
        equal("embedding_backward", dy, at, rows=rows, padding_idx=int(at[0]))
    x = rng.integers(-8, 8, (rows, width)).astype(as_numpy(dtype))
    for accumulate in (False, True):
        equal("index_put", x, at[None], dy, dims=(0,), accumulate=accumulate, wrap=True)


def test_sums_of_few_sources_are_the_cpus_bits():
    rng = np.random.default_rng(11)
    at, dy = rng.integers(0, 900, 800), rng.normal(size=(800, 5)).astype(np.float32)
    equal("embedding_backward", dy, at, rows=900, padding_idx=None)


@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_of_many(dim):
    rng = np.random.default_rng(12)
    x = rng.integers(-4, 4, (150, 130)).astype(np.float32)
    index = rng.integers(0, x.shape[dim], (100, 90))
    src = rng.integers(-2, 3, index.shape).astype(np.float32)
    equal("gather", x, index, dim=dim)
    equal("gather_backward", src, index, shape=x.shape, dim=dim)
    equal("scatter", x, index, src, dim=dim)
    equal("scatter", x, index, np.array(3, np.float32), dim=dim)
    equal("scatter_add", x, index, src, dim=dim)
    for reduce in ("amax", "amin", "prod"):
        equal("scatter_reduce", x, index, src, dim=dim, reduce=reduce, include_self=False)


def test_one_index_for_all_columns(cuda):
    """An index that is one vector, repeated, is added row by row."""
    rng = np.random.default_rng(13)
    at, src = rng.integers(0, 20, 100), rng.integers(-9, 9, (100, 33)).astype(np.float32)
    for device in ("cuda", "cpu"):
        index = gl.tensor(at, device=device).unsqueeze(1).expand(100, 33)
        y = gl.zeros(20, 33, device=device).scatter_add(0, index, gl.tensor(src, device=device)).cpu().numpy()
        want = np.zeros((20, 33), np.float32)
        np.add.at(want, at, src)
        np.testing.assert_array_equal(y, want)
