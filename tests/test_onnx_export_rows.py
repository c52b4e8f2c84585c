"""Every row that ONNX can say, exported and run by ONNX Runtime beside itself. `--full` runs all samples and dtypes, else the first two."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.dtype import FLOATING, as_numpy
from gradlab.graph import TraceError, trace

from samples import SAMPLES

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

OPTIMIZERS = {name for name in ops.ROWS if name.endswith("_update")}  # they write state, which a file cannot keep
SERIES = {"bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
          "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai", "airy_ai_prime", "zeta", "orthogonal_polynomial"}  # fmt: skip
COLLECTIVES = {name for name, row in ops.ROWS.items() if "by" in row.params}
SEQUENCES = {name for name in ops.ROWS if "_sequence" in name}  # no trace has them
GRIDS = {"grid_sample", "grid_sample_backward", "ctc_loss", "ctc_loss_backward"}  # traces have them in steps
NO_OPERATOR = OPTIMIZERS | SERIES | COLLECTIVES | SEQUENCES | GRIDS
NO_OPERATOR |= {"bits", "eigh", "ldl", "ldl_solve", "nextafter", "pinv", "poisson", "svd"}
NO_OPERATOR |= {"grouped_mm"}
COMPLEX = {"conj", "complex", "eig", "real", "imag", "view_as_real", "view_as_complex", "complex_abs", "complex_sgn", "complex_angle"}
COMPLEX |= {"fft", "rfft", "irfft"}
DYNAMIC = {name for name, row in ops.ROWS.items() if row.dynamic}
ROWS = [name for name in ops.ROWS if name not in NO_OPERATOR | COMPLEX and name not in DYNAMIC]
# What ONNX leaves open or says otherwise: a NaN in a window of MaxPool; random integers of more than float32's bits.
WIDE = [i for i, s in enumerate(SAMPLES["random_integers"]) if s.params["high"] - s.params["low"] > 1 << 24]
HOLED = [i for i, s in enumerate(SAMPLES["max_pool"]) if np.isnan(s.inputs[0]).any()]
ODD = {*(("max_pool", i) for i in HOLED), *(("random_integers", i) for i in WIDE)}
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-6}
OLDER = (11, 13, 15, 17)
# Rows that no older opset says: three operators came with opset 18, sums in ScatterND with 16, and before 12 and 13 these did not take
# what they are given.
NEEDED = {"bitwise_and": 18, "bitwise_or": 18, "bitwise_xor": 18, "left_shift": 12, "right_shift": 12, "dropout": 12,
          "quantized_convolution": 13, "quantized_linear": 13, "index_backward": 16}  # fmt: skip
CASES = [(n, i, "float32") for n in ROWS for i in range(len(SAMPLES[n]))]
OTHERS = [(n, i, d) for d in ("float16", "bfloat16", "float64") for n, i, _ in CASES]


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def quick(cases, most):
    return [pytest.param(*c, marks=() if c[1] < most else pytest.mark.whole, id="-".join(map(str, c))) for c in cases if c[:2] not in ODD]


def exported(tmp_path, name, number, dtype, opset=None):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    arrays = [gl.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
    inputs = [t.to(getattr(gl, dtype)) if is_float(x) else t for t, x in zip(arrays, sample.inputs, strict=True)]
    tensors = [x for x in inputs if isinstance(x, gl.Tensor)]

    def compute(*given):
        waiting = iter(given)
        return row(*[next(waiting) if isinstance(x, gl.Tensor) else x for x in inputs], **sample.params)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gl.onnx.ExportWarning)
        return gl.onnx.export(compute, tuple(tensors), tmp_path / "m.onnx", tolerance=TOLERANCE[dtype], opset=opset)


@pytest.mark.parametrize(("name", "number", "dtype"), quick(CASES, 2))
def test_row(tmp_path, name, number, dtype):
    found = exported(tmp_path, name, number, dtype)
    assert "Runtime " in found.checked_by or not SAMPLES[name][number].inputs


@pytest.mark.parametrize(("name", "number", "dtype"), quick(CASES, 1))
def test_row_in_an_older_opset(tmp_path, name, number, dtype):
    """From 17 to 11, one opset for each row."""
    opset = OLDER[ROWS.index(name) % len(OLDER)]
    found = exported(tmp_path, name, number, dtype, opset)
    assert found.opset == opset or opset < NEEDED.get(name, 0)


@pytest.mark.parametrize("name", sorted(COMPLEX))
def test_complex_numbers_are_refused(tmp_path, name):
    with pytest.raises(RuntimeError, match="ONNX has no operators that compute with complex numbers"):
        exported(tmp_path, name, 0, "float64")


@pytest.mark.parametrize(("name", "number", "dtype"), quick(OTHERS, 0))
def test_row_in_another_dtype(tmp_path, name, number, dtype):
    sample = SAMPLES[name][number]
    if dtype != "float64" and dtype not in sample.dtypes:
        pytest.skip("the row does not take it")
    if not any(map(is_float, sample.inputs)):
        pytest.skip("no floating point input")
    if "attention_backward" in name and dtype != "float64":
        pytest.skip("lse is float32 for half types")
    try:
        exported(tmp_path, name, number, dtype)
    except gl.onnx.ExportError as error:
        if dtype == "float64" and "neither ONNX Runtime nor" in str(error):
            pytest.skip("ONNX Runtime has no float64 kernel, and the reference evaluator has not so many dimensions")
        raise


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["add", "gelu", "softmax", "linear", "convolution", "layer_norm", "sum", "cat", "where", "sort", "erf"])
def test_a_few_rows_in_another_dtype(tmp_path, name, dtype):
    found = exported(tmp_path, name, 0, dtype)
    if dtype == "float64" and name in ("gelu", "convolution", "erf"):
        assert "reference evaluator" in found.checked_by and "no kernel" in found.checked_by


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "bool"])
@pytest.mark.parametrize(
    "name", ["add", "mul", "maximum", "where", "amax", "cat", "eq", "permute", "embedding", "cast", "abs", "slice", "pad"]
)
def test_small_integers(tmp_path, name, dtype):
    x = gl.tensor(np.array([[1, 0, 3], [100, 5, 120]])).to(getattr(gl, dtype))
    calls = {
        "add": lambda x: x + x, "mul": lambda x: x * x, "maximum": lambda x: gl.maximum(x, x.flip(0)), "amax": lambda x: x.amax(1),
        "where": lambda x: gl.where(x == x.flip(0), x, x.flip(1)), "cat": lambda x: gl.cat([x, x]), "eq": lambda x: x < x.flip(0),
        "permute": lambda x: x.t(), "embedding": lambda x: gl.nn.functional.embedding(gl.tensor([0, 1]), x), "cast": lambda x: x.float(),
        "abs": lambda x: x.abs() if dtype != "bool" else x, "slice": lambda x: x[1:, ::2],
        "pad": lambda x: gl.nn.functional.pad(x, (1, 1)) if dtype != "bool" else x,
    }  # fmt: skip
    gl.onnx.export(calls[name], x, tmp_path / "m.onnx")


@pytest.mark.parametrize("name", sorted(NO_OPERATOR))
def test_rows_without_operator_are_named(tmp_path, name):
    with pytest.raises(gl.onnx.UnsupportedError, match=rf"{name}.*\n?.*no ONNX operator|{name}: "):
        exported(tmp_path, name, 0, "float32")


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_rows_of_unknown_size_cannot_be_traced(name):
    sample = SAMPLES[name][0]
    with pytest.raises(TraceError, match="instead"):
        trace(lambda *xs: ops.ROWS[name](*xs, **sample.params), *[gl.tensor(x) for x in sample.inputs if x is not None])


def test_all_floating_dtypes_have_a_tolerance():
    assert set(TOLERANCE) == {d.name for d in FLOATING} and as_numpy("float32") in FLOATING
