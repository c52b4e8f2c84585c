"""Convolution on the (emulated) GPU at sizes of several tiles and of odd edges, sums in shares, narrow groups."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from test_cuda_rows import TOLERANCE

import gradlab as gl
from gradlab import ops
from gradlab.backends.cuda import fallback, launch
from gradlab.backends.cuda.emulator import CompilerMissing
from gradlab.backends.cuda.emulator.sanitizer import run_sanitized, sanitized_environment
from gradlab.dtype import as_numpy

# (input, weight, stride, padding, dilation, groups)
CASES = {
    "several tiles of 16 rows": ((2, 5, 13, 11), (3, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "several tiles of 64 rows": ((3, 7, 9, 7), (67, 7, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    "a long sum, in shares": ((4, 3, 24, 23), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "wide groups": ((2, 10, 7, 6), (12, 5, 3, 3), (1, 2), (2, 1), (1, 1), 2),
    "depthwise": ((2, 6, 9, 8), (12, 1, 3, 3), (2, 2), (1, 1), (1, 1), 6),
    "one dimension": ((3, 4, 301), (5, 4, 7), (3,), (2,), (2,), 1),
    "tall tiles": ((2, 9, 12, 13), (130, 9, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "aligned rows": ((2, 16, 8, 8), (32, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "wider groups": ((2, 36, 7, 6), (40, 18, 3, 2), (2, 3), (2, 1), (1, 2), 2),
    "a long line": ((3, 20, 90), (24, 20, 5), (2,), (3,), (2,), 1),
    "a long sum of wide rows": ((6, 18, 20, 20), (24, 18, 3, 3), (2, 2), (1, 1), (1, 1), 1),
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


@pytest.fixture
def precision():
    """Sets float32's precision; sets it back."""
    yield gl.set_float32_matmul_precision
    gl.set_float32_matmul_precision("highest")


def close(got, want, dtype):
    got, want = got.astype(np.float64), want.astype(np.float64)
    tolerance = {**TOLERANCE, "tf32": 2e-3}[dtype] * np.abs(want).max(initial=1)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("case", "dtype"), [(c, "float32") for c in CASES]
    + [("wide groups", d) for d in ("float64", "float16", "bfloat16")]
    + [(c, d) for c in ("wider groups", "a long sum of wide rows") for d in ("float64", "tf32", "float16", "bfloat16")]
    + [(c, d) for c in ("tall tiles", "aligned rows", "a long line") for d in ("tf32", "float16")],
)
def test_convolutions_equal_the_cpu(cuda, precision, case, dtype):
    precision("high" if dtype == "tf32" else "highest")
    fallback.counts.clear()
    for name, inputs, params in operands(case, "float32" if dtype == "tf32" else dtype):
        want = ops.ROWS[name](*inputs, **params)
        found = [run(cuda, name, inputs, order, **params) for order in ("forward", "warps")]
        close(found[0], want, dtype)
        np.testing.assert_array_equal(found[0], found[1], err_msg="the order of threads shows in the result")
    assert not fallback.counts


@pytest.mark.parametrize(("activation", "dtype"), [(a, "float32") for a in ("relu", "gelu", "gelu_tanh", "silu")] + [("gelu", "bfloat16")])
def test_an_activation_in_the_epilogue(cuda, activation, dtype):
    """What a launch rule does for a parameter `activation`: the same as the row and then the activation's row."""
    name, inputs, params = operands("wider groups", dtype)[0]
    name, params = "convolution", {**params}
    driver = cuda.driver
    arrays = [driver.upload(x) for x in inputs]
    want = ops.ROWS[name](*inputs, **params)
    made = driver.empty(want.shape, want.dtype)
    launch.conv.convolution(cuda.work, arrays, [made], {**params, "activation": activation})
    z = want.astype(np.float64)
    erf = np.vectorize(math.erf)
    expected = {"relu": np.maximum(z, 0), "gelu": z / 2 * (1 + erf(z / 2**0.5)), "silu": z / (1 + np.exp(-z)),
                "gelu_tanh": z / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)))}[activation]  # fmt: skip
    close(driver.download(made), expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", ["wider groups", "aligned rows"])
def test_channels_last_memory_is_read_as_it_lies(cuda, case, dtype):
    for name, inputs, params in operands(case, dtype):
        turned = [x if x is None or x.ndim < 4 or x.shape == params.get("shape") else np.ascontiguousarray(np.moveaxis(x, 1, -1)) for x in inputs]
        driver = cuda.driver
        arrays = [driver.upload(t) if t is x else driver.upload(t).transpose(0, 3, 1, 2) for t, x in zip(turned, inputs, strict=True) if t is not None]
        found = driver.download(ops.ROWS[name](*arrays, *([None] if None in inputs else []), **params))
        close(found, ops.ROWS[name](*inputs, **params), dtype)


SANITIZED = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import gradlab as gl
from test_cuda_conv import CASES, operands, run
from gradlab.backends.cuda.loading import load
cuda = load()
CASES |= {{"small": ((1, 18, 6, 5), (20, 18, 3, 2), (1, 2), (1, 0), (1, 1), 1)}}
for dtype, precision in (("float32", "highest"), ("float32", "high"), ("float16", "high"), ("bfloat16", "high")):
    gl.set_float32_matmul_precision(precision)
    for name, inputs, params in operands("small", dtype):
        run(cuda, name, inputs, "forward", **params)
print("== end")
"""


@pytest.mark.parametrize("sanitize", ["address,undefined", "thread"])
def test_the_sanitizers_find_nothing(cuda, sanitize):
    if cuda.driver.name != "emulated":
        pytest.skip("of the emulated GPU")
    try:
        sanitized_environment(sanitize)
    except (CompilerMissing, RuntimeError) as error:
        pytest.skip(str(error))
    here = Path(__file__).resolve().parent
    code = SANITIZED.format(paths=[str(here), str(here.parent)])
    done = run_sanitized(["-c", code], sanitize=sanitize, keep_going=True, environment={"GRADLAB_CUDA": "emulated"})
    assert "== end" in done.output, done.output[-3000:]
    assert not done.reports, done.output[-3000:]
