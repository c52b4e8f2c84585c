"""`gradlab.array_api` beside NumPy, whose own functions follow the same standard. The public suite: tests/array_api/run.sh."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl

xp = gl.array_api
RNG = np.random.default_rng(0)
A, B = RNG.uniform(0.2, 0.9, (3, 4)), RNG.uniform(0.2, 0.9, (3, 4))
I, S = np.array([[3, -1, 2, 3], [0, 5, -4, 1], [2, 2, 0, -7]]), RNG.normal(size=(3, 3)) + 3 * np.eye(3)
ONE = [
    "abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log",
    "log1p", "log2", "log10", "logical_not", "negative", "positive", "reciprocal", "round", "sign", "signbit", "sin", "sinh", "sqrt",
    "square", "tan", "tanh", "trunc", "conj", "real",
]  # fmt: skip
TWO = [
    "add", "atan2", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "remainder",
    "subtract",
]  # fmt: skip
WHOLE = ["bitwise_and", "bitwise_or", "bitwise_xor"]
CALLS = {
    "arange(1, 7, 2)": (), "eye(3, k=1)": (), "linspace(0.0, 1.0, 4, endpoint=False)": (), "full((2, 2), 3)": (), "acosh(x + 1)": (A,),
    "bitwise_invert(x)": (I,), "bitwise_left_shift(abs(x), 2)": (I,), "bitwise_right_shift(x, 1)": (I,), "clip(x, 0.3, 0.5)": (A,),
    "clip(x, min=1)": (I,), "where(x > 0, x, y)": (A - 0.5, B), "sum(x)": (A,), "sum(x, axis=(0, 1), keepdims=True)": (A,),
    "sum(x, axis=None)": (I,), "prod(x, axis=1)": (I,), "mean(x, axis=0)": (A,), "std(x, axis=1, correction=1)": (A,), "var(x)": (A,),
    "max(x, axis=0)": (I,), "min(x)": (A,), "all(x, axis=0)": (I,), "any(x)": (I,), "argmax(x, axis=1)": (I,), "argmin(x)": (I,),
    "count_nonzero(x, axis=1)": (I,), "cumulative_sum(x, axis=1, include_initial=True)": (A,), "cumulative_prod(x, axis=0)": (A,),
    "sort(x, axis=0)": (I,), "diff(x, axis=0)": (I,), "argsort(x, axis=1, stable=True)": (I,), "nonzero(x)": (I,),
    "searchsorted(x, y, side='right')": (A[0].cumsum(), B[0]), "unique_all(x)": (I,), "unique_counts(x)": (I,), "unique_inverse(x)": (I,),
    "sort(unique_values(x))": (I,), "concat([x, y], axis=1)": (A, B), "concat([x, y], axis=None)": (A, I),
    "stack([x, y], axis=-1)": (A, B), "unstack(x, axis=1)": (A,), "expand_dims(x, axis=1)": (A,), "flip(x)": (I,),
    "flip(x, axis=0)": (I,), "moveaxis(x, 0, 1)": (A,), "permute_dims(x, (1, 0))": (A,), "reshape(x, (4, 3))": (A,), "roll(x, 2)": (I,),
    "roll(x, 1, axis=0)": (I,), "squeeze(x[None], axis=0)": (A,), "tile(x, (2, 1))": (I,), "repeat(x, 2, axis=1)": (I,),
    "take(x, y, axis=1)": (A, np.array([0, -1])), "take_along_axis(x, y, axis=0)": (A, np.array([[0, 1, 2, -1]])),
    "broadcast_to(x, (2, 3, 4))": (A,), "meshgrid(x, y)": (A[0], B[1]), "tril(x, k=1)": (A,), "triu(x)": (A,), "matmul(x, y)": (A, B.T),
    "matrix_transpose(x)": (A,), "tensordot(x, y, axes=2)": (A, B), "vecdot(x, y)": (A, B), "linalg.cholesky(x @ x.mT)": (S,),
    "linalg.cross(x, y)": (S, A[:, :3]), "linalg.det(x)": (S,), "linalg.diagonal(x)": (S,), "linalg.eigvalsh(x + x.mT)": (S,),
    "linalg.inv(x)": (S,), "linalg.matrix_norm(x)": (S,), "linalg.matrix_power(x, 3)": (S,), "linalg.matrix_rank(x)": (S,),
    "linalg.outer(x, y)": (A[0], B[0]), "linalg.pinv(x)": (A,), "linalg.slogdet(x)": (S,), "linalg.solve(x, y)": (S, A),
    "linalg.svdvals(x)": (A,), "linalg.trace(x)": (S,), "linalg.vector_norm(x, axis=1)": (A,), "fft.fft(x)": (A,),
    "fft.ifft(x, axis=0)": (A,), "fft.rfft(x)": (A,), "fft.irfft(x)": (A,), "fft.fftshift(x)": (A,), "fft.fftfreq(5, d=0.5)": (),
    "astype(x, xp.int32)": (A * 9,), "result_type(x, y)": (A, I), "isdtype(x.dtype, 'integral')": (I,),
    "can_cast(x.dtype, xp.float64)": (I,), "finfo(x.dtype).eps": (A,), "iinfo(xp.int8).max": (),
}  # fmt: skip
CALLS |= {f"{name}(x)": (A,) for name in ONE} | {f"{name}(x, y)": (A, B) for name in TWO} | {f"{name}(x, 5)": (I,) for name in WHOLE}


def named(module):
    return {"xp": module, **{name: getattr(module, name) for name in dir(module) if not name.startswith("_")}}


def parts(value):
    return [leaf for part in value for leaf in parts(part)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("call", CALLS)
def test_as_numpy(call):
    names = ("x", "y")
    outcomes = []
    for module, make in ((xp, gl.tensor), (np, np.asarray)):
        given = {name: make(array) for name, array in zip(names, CALLS[call], strict=False)}
        space = {**named(module), **given}
        outcomes.append(parts(eval(call, space)))
    for ours, theirs in zip(*outcomes, strict=True):
        if isinstance(ours, gl.Tensor):
            assert ours.shape == np.shape(theirs) and ours.numpy().dtype.kind == np.asarray(theirs).dtype.kind
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6, atol=1e-8)
        else:
            assert str(getattr(ours, "name", ours)) == str(theirs)


def test_every_function_keeps_the_graph():
    calls = ("add(x, 1.0)", "concat([x, x])", "std(x)", "where(x > 0, x, 0.0)", "take(x, xp.asarray([0]), axis=0)", "linalg.vector_norm(x)")
    for call in calls:
        space = {**named(xp), "x": gl.tensor(A, requires_grad=True)}
        assert eval(call, space).requires_grad


def test_arrays_without_dimensions_are_promoted_as_others():
    x, y = gl.ones(2, dtype=gl.int8), gl.tensor(1, dtype=gl.int32)
    assert xp.add(x, y).dtype == xp.result_type(x, y) == gl.int32 and (x + y).dtype == gl.int8
    assert xp.add(x, 1).dtype == gl.int8 and xp.multiply(2.0, gl.ones(1)).dtype == gl.float32


def test_the_namespace():
    assert gl.ones(1).__array_namespace__() is xp and xp.__array_api_version__ == "2024.12"
    assert gl.ones(1).__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(ValueError, match=r"2030\.12"):
        gl.ones(1).__array_namespace__(api_version="2030.12")
    info = xp.__array_namespace_info__()
    assert info.dtypes(kind="signed integer") == {"int8": gl.int8, "int16": gl.int16, "int32": gl.int32, "int64": gl.int64}
    assert info.default_device() in info.devices() and info.default_dtypes()["real floating"] == gl.float32
    assert list(inspect.signature(xp.concat).parameters) == ["arrays", "axis"]
    with pytest.raises(AttributeError, match=r"gradlab\.array_api"):
        xp.concatenate
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1.0], copy=False)


def test_array_api_compat():
    compat = pytest.importorskip("array_api_compat")
    assert compat.array_namespace(gl.ones(1)) is xp and compat.is_array_api_obj(gl.ones(1))
    assert compat.device(gl.ones(1)) == gl.device("cpu") and compat.to_device(gl.ones(1), "cpu").tolist() == [1.0]


@pytest.mark.slow
def test_the_public_suite():
    """Where the environment says in GRADLAB_ARRAY_API_TESTS where it was cloned to."""
    folder = os.environ.get("GRADLAB_ARRAY_API_TESTS")
    if not folder:
        pytest.skip("GRADLAB_ARRAY_API_TESTS names no clone of data-apis/array-api-tests")
    script = Path(__file__).with_name("array_api") / "run.sh"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([str(script), folder], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
