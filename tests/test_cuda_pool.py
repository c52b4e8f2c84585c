"""Pooling, unpooling and resampling on the (emulated) GPU: odd sizes, repeated indices, tables of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from test_cuda_conv import close, run

from gradlab import ops
from gradlab.backends.cuda import fallback
from gradlab.dtype import as_numpy

from samples.vision import TABLES

DTYPES = ("float32", "float64", "float16", "bfloat16")
MORE_TABLES = [
    ("linear-antialias", 31, 7, 31 / 7, False),
    ("cubic-antialias", 23, 29, 23 / 29, False),
    ("area", 37, 5),
    ("nearest", 19, 33, 19 / 33),
    ("circular", 7, 19, 6),
    ("reflect", 9, 23, 8),
]


def normal(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(as_numpy(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_indices_are_added_in_their_order(cuda, dtype):
    rng = np.random.default_rng(2)
    dy = normal(3, 5, 9, 8, dtype=dtype)
    for most in (4, 60):  # many for one, few for one
        indices = rng.integers(0, most, dy.shape)
        params = {"shape": (3, 5, 6, 10), "overlap": True}
        want = ops.ROWS["max_pool_backward"](dy, indices, **params)
        found = [run(cuda, "max_pool_backward", (dy, indices), order, **params) for order in ("forward", "warps", "random")]
        close(found[0], want, dtype)
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


def test_the_last_of_repeated_indices_wins(cuda):
    x, indices = normal(2, 3, 7, 5), np.random.default_rng(4).integers(0, 20, (2, 3, 7, 5))
    params = {"shape": (2, 3, 4, 6)}
    want = ops.ROWS["max_unpool"](x, indices, **params)
    for order in ("forward", "reverse", "random"):
        np.testing.assert_array_equal(run(cuda, "max_unpool", (x, indices), order, **params), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pooling_at_odd_sizes(cuda, dtype):
    fallback.counts.clear()
    x = normal(2, 3, 23, 19, dtype=dtype)
    sizes = {"kernel": (3, 2), "stride": (2, 3), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": True}
    backend, driver = ops.ROWS["max_pool"], cuda.driver
    for got, want in zip(backend(driver.upload(x), **sizes), backend(x, **sizes), strict=True):
        np.testing.assert_array_equal(driver.download(got), want)
    mean = {k: v for k, v in sizes.items() if k != "dilation"} | {"include": False, "divisor": None}
    want = ops.ROWS["avg_pool"](x, **mean)
    close(run(cuda, "avg_pool", (x,), "warps", **mean), want, dtype)
    close(
        run(cuda, "avg_pool_backward", (want,), "warps", shape=x.shape, **mean),
        ops.ROWS["avg_pool_backward"](want, shape=x.shape, **mean),
        dtype,
    )
    assert not fallback.counts


@pytest.mark.parametrize("table", MORE_TABLES + [t for t in TABLES if t[0] == "cubic"], ids=lambda t: f"{t[0]} {t[1]} to {t[2]}")
def test_resampling_of_every_kind(cuda, table):
    fallback.counts.clear()
    for name, size in (("resample", table[1]), ("resample_backward", table[2])):
        for dtype in ("float32", "float64") if "antialias" in table[0] else ("float32",):
            x = normal(3, size, 17, dtype=dtype)
            close(run(cuda, name, (x,), "warps", dim=1, table=table), ops.ROWS[name](x, dim=1, table=table), dtype)
    assert not fallback.counts


def test_borders_keep_integers(cuda):
    x = np.random.default_rng(5).integers(-(2**62), 2**62, (3, 9, 2))
    table = ("reflect", 9, 14, 3)
    np.testing.assert_array_equal(run(cuda, "resample", (x,), "forward", dim=1, table=table), ops.ROWS["resample"](x, dim=1, table=table))
