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
    "channels in groups": ((2, 24, 7, 6), (36, 12, 3, 2), (2, 1), (2, 1), (1, 2), 2),
    "many channels": ((2, 40, 6, 7), (72, 40, 3, 3), (1, 2), (1, 1), (1, 1), 1),
    "a line of channels": ((3, 20, 50), (24, 20, 5), (2,), (3,), (2,), 1),
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
        return cuda.to_numpy(made)
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
    + [(c, d) for c in ("wider groups", "a long sum of wide rows") for d in ("float64", "float16", "bfloat16")]
    + [(c, d) for c in ("tall tiles", "aligned rows", "a long line") for d in ("float16",)]
    + [("wider groups", "tf32"), ("aligned rows", "tf32"), ("a long line", "tf32")]
    + [pytest.param(c, "tf32", marks=pytest.mark.whole) for c in ("a long sum of wide rows", "tall tiles")],  # half a minute
)
def test_convolutions_equal_the_cpu(cuda, precision, case, dtype):
    precision("high" if dtype == "tf32" else "highest")
    fallback.counts.clear()
    for name, inputs, params in operands(case, "float32" if dtype == "tf32" else dtype):
        want = ops.ROWS[name](*inputs, **params)
        orders = ("forward", "reverse", "random", "warps") if case in ("aligned rows", "wider groups") else ("forward", "warps")
        found = [run(cuda, name, inputs, order, **params) for order in orders]
        close(found[0], want, dtype)
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other, err_msg="the order of threads shows in the result")
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


@pytest.mark.parametrize(
    ("case", "dtype"),
    [("wider groups", "float32"), ("channels in groups", "float32"), ("aligned rows", "float16"), ("many channels", "float16"),
     ("many channels", "bfloat16"), ("many channels", "float32"), ("many channels", "tf32"),
     ("channels in groups", "float64"), ("a line of channels", "float32")],
)  # fmt: skip
def test_channels_last_memory_is_read_as_it_lies(cuda, precision, case, dtype, monkeypatch):
    """16 bytes at a time where the channels of a group allow that."""
    driver = cuda.driver
    kernels, find = [], type(cuda.work).kernel

    def kernel(self, file, name, *types):
        kernels.append((name, *types))
        return find(self, file, name, *types)

    monkeypatch.setattr(type(cuda.work), "kernel", kernel)
    precision("high" if dtype == "tf32" else "highest")
    for name, inputs, params in operands(case, "float32" if dtype == "tf32" else dtype):
        arrays = [driver.upload(np.moveaxis(x, 1, -1)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1)) if x.ndim > 2 else driver.upload(x)
                  for x in inputs]  # fmt: skip
        found = []
        for order in ("forward", "warps"):
            if driver.name == "emulated":
                driver.order = order
            found.append(cuda.to_numpy(ops.ROWS[name](*arrays, **params)))
        if driver.name == "emulated":
            driver.order = "forward"
        np.testing.assert_array_equal(*found)
        close(found[0], ops.ROWS[name](*inputs, **params), dtype)
    last = [k[-1] for k in kernels if k[0] in ("convolve_planes", "convolve_ahead")]
    assert any(last) and all(last) is (case != "wider groups")  # 18 channels in a group: its dx alone


RINGS = {  # (input, weight, stride, padding, dilation, groups): rows, columns and sums that end within tiles
    "16 rows": ((2, 12, 9, 7), (16, 12, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "31 rows, a sum of 513": ((1, 57, 10, 10), (31, 57, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    "100 rows": ((1, 40, 11, 9), (100, 40, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    "257 rows of a line": ((1, 24, 33), (257, 24, 3), (1,), (1,), (1,), 1),
    "33 rows in groups": ((3, 48, 6, 5), (66, 24, 3, 3), (1, 2), (1, 1), (1, 1), 2),
}
MANY_RINGS = [("31 rows, a sum of 513", "tf32"), ("33 rows in groups", "float16")]


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(c, d, marks=() if (c, d) in MANY_RINGS else pytest.mark.whole) for c in RINGS for d in ("tf32", "float16", "bfloat16")],
)
def test_tiles_that_are_copied_in_the_background(cuda, precision, monkeypatch, case, dtype, shares):
    """From compute capability 8.0. Grids that are too small share the sums; bias, activation and what it is taken of come after that."""
    driver = cuda.driver
    if driver.capability(0) < (8, 0):
        pytest.skip("compute capability 8.0 copies in the background")
    if not shares:
        monkeypatch.setattr(launch.conv, "MULTIPROCESSORS", 0)
    monkeypatch.setitem(CASES, case, RINGS[case])
    kernels, find = [], type(cuda.work).kernel
    monkeypatch.setattr(type(cuda.work), "kernel", lambda self, file, name, *types: kernels.append(name) or find(self, file, name, *types))
    precision("high")
    kind = "float32" if dtype == "tf32" else dtype
    last = dtype != "tf32" and RINGS[case][1][1] % 8 == 0
    lie = (lambda a: a) if not last else lambda a: driver.upload(np.moveaxis(a, 1, -1)).transpose(0, a.ndim - 1, *range(1, a.ndim - 1))
    for name, inputs, params in operands(case, kind):
        want = ops.ROWS[name](*inputs, **params)
        arrays = [lie(x) if i == 0 or name == "convolution_dw" else x for i, x in enumerate(inputs)]
        arrays = [driver.upload(x) if isinstance(x, np.ndarray) else x for x in arrays]
        for order in ("forward", "random", "warps"):
            if driver.name == "emulated":
                driver.order = order
            made = driver.empty(want.shape, want.dtype)
            try:
                getattr(launch.conv, name)(cuda.work, arrays, [made], params)  # not the row: it would launch again what it has prepared
                found = driver.download(made)
            finally:
                if driver.name == "emulated":
                    driver.order = "forward"
            close(found, want, dtype)
    if dtype == "tf32" or last:
        assert "convolve_ahead" in kernels
    if case.startswith("31") and dtype == "tf32":
        assert ("finish_shares" in kernels) is shares


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_end_of_sums_in_shares(cuda, precision, monkeypatch, activation):
    """The bias, the activation, and the second result that it is taken of."""
    monkeypatch.setitem(CASES, "ring", RINGS["31 rows, a sum of 513"])
    precision("high")
    (_, (x, w, bias), params), *_ = operands("ring", "float32")
    want = ops.ROWS["convolution_act_sums"](x, w, bias, activation=activation, **params)
    found = ops.ROWS["convolution_act_sums"](*map(cuda.driver.upload, (x, w, bias)), activation=activation, **params)
    for got, expected in zip(found, want, strict=True):
        close(cuda.driver.download(got), expected, "tf32")


def test_a_result_in_channels_last_memory(cuda):
    """What the static graph may ask of `launch_planes`: the result's steps are the caller's."""
    driver = cuda.driver
    (_, (x, w, bias), params), *_ = operands("wider groups", "float32")
    want = ops.ROWS["convolution"](x, w, bias, **params)
    images, channels, *sizes = want.shape
    m, k, positions = w.shape[0] // params["groups"], w[0].size, sizes[0] * sizes[1]
    result = driver.empty((images, *sizes, channels), want.dtype)
    gathered = driver.upload(np.moveaxis(x, 1, -1)).transpose(0, 3, 1, 2)
    steps = (channels * positions, 1, channels, m)
    given = launch.conv.Operands(driver.upload(w), (0, k, m * k), gathered, w.shape[1], result, steps)
    product = (m, images * positions, k)
    launch.conv.launch_planes(cuda.work, 0, product, x.shape, w.shape, want.shape, given, driver.upload(bias), params)
    close(np.moveaxis(driver.download(result), -1, 1), want, "float32")


SANITIZED = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import gradlab as gl
from gradlab import ops
from gradlab.dtype import as_numpy
from gradlab.backends.cuda.loading import load
driver = load().driver
params = {{"stride": (1, 2), "padding": (1, 0), "dilation": (1, 1)}}
wide, last, narrow, depthwise = (18, 20, 1), (24, 24, 1), (6, 7, 1), (4, 4, 4)
runs = (("float32", "highest", (last, narrow, depthwise)), ("float32", "high", (wide,)), ("float16", "high", (last,)))
for dtype, precision, kinds in runs:
    gl.set_float32_matmul_precision(precision)
    make = lambda *shape: driver.upload(np.random.default_rng(1).normal(size=shape).astype(as_numpy(dtype)))
    for channels, outputs, groups in kinds:
        x, w, dy = make(1, channels, 6, 5), make(outputs, channels // groups, 3, 2), make(1, outputs, 6, 2)
        if outputs == 24:  # in channels-last memory
            x, dy = (make(1, *a.shape[2:], a.shape[1]).transpose(0, 3, 1, 2) for a in (x, dy))
        numbers = {{**params, "groups": groups}}
        ops.ROWS["convolution_act"](x, w, make(outputs), activation="gelu", **numbers)
        ops.ROWS["convolution_transpose"](dy, w, make(channels), shape=x.shape, **numbers)
        ops.ROWS["convolution_dw"](x, dy, shape=w.shape, **numbers)
    driver.synchronize()
print("== end")
"""


@pytest.mark.whole
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
