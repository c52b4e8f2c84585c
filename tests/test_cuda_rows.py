"""Every row's samples on the (emulated) GPU against the CPU: values, dtypes, strided and empty inputs, gradients, through the public
path."""

from __future__ import annotations

import numpy as np
import pytest
from test_ops import is_float, weights

import gradlab as gl
from gradlab import ops
from gradlab.autograd.record import apply
from gradlab.dtype import as_numpy

from samples import SAMPLES

TOLERANCE = {"float64": 1e-11, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
CASES = [(name, i) for name in ops.ROWS for i in range(len(SAMPLES.get(name, ())))]
FIRST = [(name, 0) for name in ops.ROWS if SAMPLES.get(name)]
DTYPES = ("float32", "float16", "bfloat16", "float64")


def cases(dtype):
    """Of each row the first sample in float32; the rest, and other dtypes, in the whole suite."""
    return [
        pytest.param(name, i, dtype, marks=() if dtype == "float32" and (name, i) in FIRST else pytest.mark.whole, id=f"{name}-{i}-{dtype}")
        for name, i in CASES
    ]


everywhere = pytest.mark.parametrize(("name", "number", "dtype"), [c for d in DTYPES for c in cases(d)])
in_float32 = pytest.mark.parametrize(("name", "number", "dtype"), cases("float32"))


def inputs_of(name, number, dtype):
    """The sample's inputs with its floats in `dtype`; skips what the row does not take."""
    sample = SAMPLES[name][number]
    floats = any(map(is_float, sample.inputs))
    if dtype != "float64" and floats and dtype not in sample.dtypes:
        pytest.skip("the row does not take this dtype")
    if not floats and dtype != "float32":
        pytest.skip("no floating point input")
    return [x.astype(as_numpy(dtype)) if is_float(x) else x for x in sample.inputs], sample.params


def on(device, inputs, requires_grad=False):
    """Arrays as tensors there; numbers and None as they are."""
    return [
        gl.tensor(x, device=device, requires_grad=requires_grad and x.dtype.kind in "fVc") if isinstance(x, np.ndarray) else x
        for x in inputs
    ]


def run(name, tensors, params):
    if not tensors:
        result = apply(ops.ROWS[name], (), {"device": gl.device("cpu"), **params})
    else:
        result = ops.ROWS[name](*tensors, **params)
    return result if isinstance(result, tuple) else (result,)


def close(got, want, dtype, what=""):
    """Same dtype and shape, integers equal, floats within the dtype's tolerance of the largest value."""
    got, want = np.asarray(got.detach().cpu().numpy()), np.asarray(want.detach().numpy())
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if want.dtype.kind in "fVc":
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        got, want = got.astype(wide), want.astype(wide)
        tolerance = TOLERANCE[dtype]
        scale = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


def same_bits(got, want, what):
    """The same numbers to the last bit; NumPy cannot compare NaNs of a dtype that it does not know, such as bfloat16."""
    if want.dtype.kind in "fV":
        words = f"u{want.itemsize}"
        got, want = (np.ascontiguousarray(x).reshape(x.shape).view(words) for x in (got, want))
    np.testing.assert_array_equal(got, want, err_msg=what)


def is_view_of(name, arrays, params):
    """Whether a row that makes views makes one of these strides: of some it can only make a copy."""
    found = ops.ROWS[name].cpu(*arrays, **params)
    return all(np.shares_memory(f, arrays[0]) or not f.size for f in (found if isinstance(found, tuple) else (found,)))


def params_on(device, params):
    return {**params, "device": gl.device(device)} if "device" in params else params


@everywhere
def test_values(cuda, name, number, dtype):
    inputs, params = inputs_of(name, number, dtype)
    want = run(name, on("cpu", inputs), params)
    tensors = on("cuda", inputs)
    outs = run(name, tensors, params_on("cuda", params) if tensors else {**params, "device": gl.device("cuda")})
    for got, expected in zip(outs, want, strict=True):
        assert got.device == gl.device("cuda:0")
        close(got, expected, dtype)
    for tensor, x in zip(tensors, inputs, strict=True):
        if isinstance(x, np.ndarray):
            same_bits(tensor.cpu().numpy(), x, "an input was overwritten")


@in_float32
def test_strided_inputs(cuda, name, number, dtype):
    if not SAMPLES[name][number].strided:
        pytest.skip("the sample has no strided form")
    inputs, params = inputs_of(name, number, dtype)

    def wide(x):
        if not isinstance(x, np.ndarray) or not x.ndim:
            return x
        made = np.zeros((*x.shape[:-1], x.shape[-1] * 2 + 1), x.dtype)
        made[..., 1::2] = x
        return made

    def part(x, original):
        return x[..., 1::2] if isinstance(original, np.ndarray) and original.ndim else x

    if not inputs:
        pytest.skip("no inputs")
    wides = [wide(x) for x in inputs]
    if ops.ROWS[name].view and not is_view_of(name, [part(w, x) for w, x in zip(wides, inputs, strict=True)], params):
        pytest.skip("no view of these strides")
    tensors = [part(t, x) for t, x in zip(on("cuda", wides), inputs, strict=True)]
    for got, expected in zip(run(name, tensors, params), run(name, on("cpu", inputs), params), strict=True):
        close(got, expected, dtype)


def gradients(device, name, inputs, params):
    tensors = on(device, inputs, True)
    outs = run(name, tensors, params)
    total = None
    for out, w in zip(outs, weights(outs, 5), strict=True):
        if w is not None and out.requires_grad:
            part = (out * gl.tensor(w.astype(np.float32), device=device).to(out.dtype)).sum()
            total = part if total is None else total + part
    if total is None:
        return None
    total.backward()
    return [t.grad for t in tensors if isinstance(t, gl.Tensor) and t.requires_grad]


@in_float32
def test_gradients(cuda, name, number, dtype):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    if not row.steps or not any(map(is_float, sample.inputs)) or sample.gradients == 0:
        pytest.skip("no gradient")
    inputs, params = inputs_of(name, number, dtype)
    want = gradients("cpu", name, inputs, params)
    if want is None:
        pytest.skip("no floating point output requires grad")
    found = [gradients("cuda", name, inputs, params) for _ in range(2)]
    for first, second, expected in zip(*found, want, strict=True):
        assert (first is None) == (expected is None)
        if first is not None:
            close(first, expected, dtype, "gradient")
            same_bits(first.cpu().numpy(), second.cpu().numpy(), "two runs differ")
