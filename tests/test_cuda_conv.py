"""Convolution on the (emulated) GPU at sizes of several tiles and of odd edges, sums in shares, narrow groups."""

from __future__ import annotations

import numpy as np
import pytest
from test_cuda_rows import TOLERANCE

from gradlab import ops
from gradlab.backends.cuda import fallback
from gradlab.dtype import as_numpy

# (input, weight, stride, padding, dilation, groups)
CASES = {
    "several tiles of 16 rows": ((2, 5, 13, 11), (3, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "several tiles of 64 rows": ((3, 7, 9, 7), (67, 7, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    "a long sum, in shares": ((4, 3, 24, 23), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "wide groups": ((2, 10, 7, 6), (12, 5, 3, 3), (1, 2), (2, 1), (1, 1), 2),
    "depthwise": ((2, 6, 9, 8), (12, 1, 3, 3), (2, 2), (1, 1), (1, 1), 6),
    "one dimension": ((3, 4, 301), (5, 4, 7), (3,), (2,), (2,), 1),
    "three dimensions": ((1, 3, 5, 6, 7), (4, 3, 2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
}


def run(cuda, name, inputs, order, **params):
    """The row's first output on the device, as a NumPy array."""
    driver = cuda.driver
    if driver.name == "emulated":
        driver.order = order
    try:
        made = ops.ROWS[name](*[x if x is None else driver.upload(x) for x in inputs], **params)
        return driver.download(made)
    finally:
        if driver.name == "emulated":
            driver.order = "forward"


def operands(case, dtype):
    x, w, stride, padding, dilation, groups = CASES[case]
    rng = np.random.default_rng(1)
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    make = lambda shape: rng.normal(size=shape).astype(as_numpy(dtype))
    a, b, bias = make(x), make(w), make(w[:1])
    y = ops.ROWS["convolution"](a, b, bias, **numbers)
    dy = make(y.shape)
    return [
        ("convolution", (a, b, bias), numbers),
        ("convolution_dx", (dy, b), {"shape": x, **numbers}),
        ("convolution_dw", (a, dy), {"shape": w, **numbers}),
    ]


def close(got, want, dtype):
    got, want = got.astype(np.float64), want.astype(np.float64)
    tolerance = TOLERANCE[dtype] * np.abs(want).max(initial=1)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("case", "dtype"), [(c, "float32") for c in CASES] + [("wide groups", d) for d in ("float64", "float16", "bfloat16")]
)
def test_convolutions_equal_the_cpu(cuda, case, dtype):
    fallback.counts.clear()
    for name, inputs, params in operands(case, dtype):
        want = ops.ROWS[name](*inputs, **params)
        found = [run(cuda, name, inputs, order, **params) for order in ("forward", "warps")]
        close(found[0], want, dtype)
        np.testing.assert_array_equal(found[0], found[1], err_msg="the order of threads shows in the result")
    assert not fallback.counts
