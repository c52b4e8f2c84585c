"""Linear algebra on the (emulated) GPU: matrices in shared and in global memory, odd sizes, every order of threads, errors of the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_cuda_rows import TOLERANCE

import gradlab as gl
from gradlab import linalg, ops
from gradlab.backends.cuda import fallback
from gradlab.backends.cuda.emulator import CompilerMissing
from gradlab.backends.cuda.emulator.sanitizer import reports_in, run_sanitized, sanitized_environment
from gradlab.dtype import as_numpy

ORDERS = ("forward", "reverse", "random", "warps")
PARAMS = {"qr": {"mode": "reduced"}, "eigh": {"lower": True}, "svd": {"full": False}, "pinv": {"atol": 0.0, "rtol": 1e-6}}
PARAMS["solve_triangular"] = {"upper": True, "unitriangular": False}
SQUARE = ("cholesky", "eigh", "lu", "inverse", "solve", "solve_triangular", "det", "slogdet", "cofactor", "matrix_exp", "qr", "svd", "pinv")


def matrices(name, *shape, seed=0):
    """Well conditioned ones, symmetric where the row needs it; and the right sides."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(size=shape) / np.sqrt(shape[-1])
    if shape[-1] == shape[-2]:
        x = x + 2 * np.eye(shape[-1])
    if name == "cholesky":
        x = x @ x.swapaxes(-1, -2) + np.eye(shape[-1])
    if name == "eigh":
        x = x + x.swapaxes(-1, -2)
    return (x, rng.normal(size=(*shape[:-1], 35))) if name.startswith("solve") else (x,)


def run(cuda, name, inputs, order="forward", **params):
    """The row's outputs on the device, as NumPy arrays."""
    driver = cuda.driver
    if driver.name == "emulated":
        driver.order = order
    try:
        made = ops.ROWS[name](*map(driver.upload, inputs), **params)
        return [driver.download(y) for y in (made if isinstance(made, tuple) else (made,))]
    finally:
        if driver.name == "emulated":
            driver.order = "forward"


def compare(cuda, name, inputs, order="forward", **params):
    want = ops.ROWS[name](*inputs, **params)
    fallback.counts.clear()
    got = run(cuda, name, inputs, order, **params)
    assert not fallback.counts
    for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind == "i":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE[inputs[0].dtype.name] * max(1, np.abs(b).max(initial=0)))
    return got


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SQUARE)
def test_sizes(cuda, name, dtype):
    """One element; more columns than a warp; matrices of a batch."""
    for shape in ((1, 1), (2, 7, 7), (33, 33)):
        if name == "cofactor" and dtype == "float32" and shape == (33, 33):
            continue  # products of 32 singular values, each with an error of its own
        inputs = [x.astype(dtype) for x in matrices(name, *shape)]
        compare(cuda, name, inputs, **PARAMS.get(name, {}))


@pytest.mark.parametrize("name", [n for n in SQUARE if n not in ("eigh", "svd", "pinv", "cofactor")])
def test_matrices_larger_than_shared_memory(cuda, name):
    compare(cuda, name, [x.astype("float64") for x in matrices(name, 2, 90, 90)], **PARAMS.get(name, {}))


def test_rotations_in_global_memory(cuda):
    compare(cuda, "eigh", matrices("eigh", 57, 57), lower=False)
    compare(cuda, "svd", matrices("svd", 60, 44), full=True)


@pytest.mark.parametrize("full", [False, True])
def test_tall_and_wide(cuda, full):
    for shape in ((9, 4), (3, 40, 7), (4, 9), (2, 7, 40), (1, 5), (5, 1)):
        x = matrices("svd", *shape)
        compare(cuda, "svd", x, full=full)
        compare(cuda, "qr", x, mode="complete" if full else "reduced")
        compare(cuda, "lu", x)
        compare(cuda, "pinv", x, **PARAMS["pinv"])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_triangular(cuda, upper, unitriangular):
    a, b = matrices("solve", 3, 20, 20)
    for right in (b, b[0], b[..., :1]):
        compare(cuda, "solve_triangular", (a, right), upper=upper, unitriangular=unitriangular)
        compare(cuda, "solve_triangular", (a[0], right), upper=upper, unitriangular=unitriangular)


@pytest.mark.parametrize("name", SQUARE)
def test_every_order_gives_the_same_bits(cuda, name):
    inputs = [x.astype(np.float32) for x in matrices(name, 2, 18, 18)]
    found = [run(cuda, name, inputs, order, **PARAMS.get(name, {})) for order in ORDERS]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_pivots_of_equal_size_and_nan(cuda):
    x = np.array([[1.0, 2, 3], [-1, 5, 1], [1, -2, 2]])
    compare(cuda, "lu", (x,))
    compare(cuda, "lu", (np.zeros((3, 3)),))
    x[1, 0] = np.nan
    assert run(cuda, "lu", (x,))[0].tolist() == ops.ROWS["lu"](x)[0].tolist()


def test_determinants_beyond_the_range_of_their_parts(cuda):
    for x in (np.diag([1e200, 1e200, 1e-200, 1e-250]), np.diag([1e-200, 1e-200, 1e200, 1e250]), np.diag([1e300, 1e300]), np.zeros((2, 2))):
        compare(cuda, "det", (x,))
        compare(cuda, "slogdet", (x,))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_singular_values_of_matrices_without_full_rank(cuda, shape):
    rng = np.random.default_rng(4)
    for x in (rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1])), np.zeros(shape), np.ones(shape), 1e-300 * np.ones(shape)):
        u, s, vh = run(cuda, "svd", (x,), full=True)
        k = min(shape)
        np.testing.assert_allclose((u[:, :k] * s) @ vh[:k], x, atol=1e-13 * np.abs(x).max())
        np.testing.assert_allclose(s, np.linalg.svd(x)[1], atol=1e-13 * np.abs(x).max())
        for q in (u, vh):
            np.testing.assert_allclose(q.T @ q, np.eye(len(q)), atol=1e-13)


def test_equal_eigenvalues(cuda):
    x = np.eye(6) + np.ones((6, 6))
    w, v = run(cuda, "eigh", (x,), lower=True)
    np.testing.assert_allclose(w, [1] * 5 + [7], atol=1e-13)
    np.testing.assert_allclose(v @ np.diag(w) @ v.T, x, atol=1e-13)
    np.testing.assert_allclose(v.T @ v, np.eye(6), atol=1e-13)


def test_the_errors_of_the_cpu(cuda):
    cases = [
        (linalg.cholesky, np.array([[1.0, 2], [2, 1]])), (linalg.inv, np.ones((2, 2))), (linalg.cholesky, np.zeros((3, 3))),
        (lambda x: linalg.solve(x, x), np.zeros((3, 2, 2))), (linalg.svd, np.full((3, 2), np.nan)), (linalg.pinv, np.full((3, 2), np.nan)),
    ]  # fmt: skip
    for function, x in cases:
        with pytest.raises(linalg.LinAlgError) as want:
            function(gl.tensor(x))
        with pytest.raises(linalg.LinAlgError) as got:
            function(gl.tensor(x, device="cuda")), gl.cuda.synchronize()
        assert str(got.value) == str(want.value)
    for name in ("eigh", "cholesky", "det", "inverse"):  # NaN is no error there
        assert np.isnan(run(cuda, name, (np.full((2, 2), np.nan),), **PARAMS.get(name, {}))[0]).any()


def test_gradients_of_the_public_functions(cuda):
    x = matrices("inverse", 5, 5)[0]
    functions = {
        "inv": linalg.inv, "det": linalg.det, "cholesky": lambda a: linalg.cholesky(a @ a.mT), "pinv": linalg.pinv,
        "eigvalsh": lambda a: linalg.eigvalsh(a + a.mT), "svdvals": linalg.svdvals, "matrix_exp": linalg.matrix_exp,
        "solve": lambda a: linalg.solve(a, a @ a), "lstsq": lambda a: linalg.lstsq(a, a[:, :2]).solution,
        "norm": lambda a: linalg.norm(a, 2),
    }  # fmt: skip
    fallback.counts.clear()
    for name, function in functions.items():
        found = []
        for device in ("cpu", "cuda"):
            a = gl.tensor(x, device=device, requires_grad=True)
            y = function(a)
            (y * y).sum().backward()
            found.append((y.detach().cpu().numpy(), a.grad.cpu().numpy()))
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * max(1, np.abs(want).max()), err_msg=name)
    assert not fallback.counts


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool"])
def test_distinct_slices(cuda, dtype):
    rng = np.random.default_rng(6)
    x = rng.integers(-1 if dtype.startswith(("f", "b", "i")) and dtype != "bool" else 0, 2, size=(7, 40, 2)).astype(as_numpy(dtype))
    if dtype.startswith(("float", "bf")):
        x[:, 3, 1] = np.nan
        x[:, 5] = -0.0
    for dim in range(3):
        for consecutive in (False, True):
            for order in ORDERS[:: 3 if dtype != "float32" else 1]:
                found = run(cuda, "unique", (x,), order, dim=dim, consecutive=consecutive)
                for got, want in zip(found, ops.ROWS["unique"](x, dim=dim, consecutive=consecutive), strict=True):
                    assert got.dtype == want.dtype
                    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))  # NumPy knows no NaN of bfloat16
    assert not fallback.counts.get("unique")


def test_distinct_slices_of_odd_sizes(cuda):
    rng = np.random.default_rng(7)
    for shape, dim in (((0, 3), 0), ((3, 0), 0), ((3, 0), 1), ((1,), 0), ((2500, 2), 0)):  # the last is sorted by radix
        x = rng.integers(0, 40, size=shape)
        for got, want in zip(run(cuda, "unique", (x,), dim=dim, consecutive=False),
                             ops.ROWS["unique"](x, dim=dim, consecutive=False), strict=True):  # fmt: skip
            np.testing.assert_array_equal(got, want)


SANITIZED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
import test_cuda_linalg as t
from gradlab.backends.cuda.loading import load
cuda = load()
for name in t.SQUARE:
    t.run(cuda, name, t.matrices(name, 2, 5, 5), "random", **t.PARAMS.get(name, {{}}))
t.run(cuda, "eigh", t.matrices("eigh", 57, 57), lower=True)
for shape in ((6, 3), (3, 6)):
    t.run(cuda, "svd", t.matrices("svd", *shape) , full=True)
    t.run(cuda, "lu", t.matrices("lu", *shape))
t.run(cuda, "unique", (t.np.arange(12).reshape(4, 3) % 2,), dim=0, consecutive=False)
print("== end")
"""


@pytest.mark.slow
def test_sanitizers_find_nothing():
    try:
        sanitized_environment("address,undefined")
    except (CompilerMissing, RuntimeError) as error:
        pytest.skip(str(error))
    done = run_sanitized(["-c", SANITIZED], sanitize="address,undefined", keep_going=True)
    assert "== end" in done.output, done.output[-3000:]
    assert not reports_in(done.output), done.output[:3000]
