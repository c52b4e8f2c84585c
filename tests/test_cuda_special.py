"""Special functions on the (emulated) GPU and as C++: at poles, in tails, at the edges of each dtype; against NumPy, Python's
math and the CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.backends.cuda import fallback
from gradlab.dtype import as_numpy

from expressions import errors_in_ulps

REAL = (
    "lgamma", "digamma", "erfcx", "log_ndtr", "ndtri", "i0", "i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai",
    "airy_ai_prime",
)  # fmt: skip
ORDERS = ("forward", "reverse", "random", "warps")
rng = np.random.default_rng(3)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, 2, -1, -2, 0.5, -0.5, 1e-300, -1e-300, 1e300, -1e300, 1e-8, 26.5, -26.5, 170, -37])
POINTS = np.concatenate([EDGES, rng.normal(size=200) * 3, rng.uniform(0, 1, 100), 10 ** rng.uniform(-300, 5, 60)])


def on_device(cuda, name, *inputs, order="forward", **params):
    driver = cuda.driver
    if driver.name == "emulated":
        driver.order = order
    try:
        return driver.download(ops.ROWS[name](*map(driver.upload, inputs), **params))
    finally:
        if driver.name == "emulated":
            driver.order = "forward"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "params"), [*((name, {}) for name in REAL), ("polygamma", {"n": 1}), ("polygamma", {"n": 2})], ids=str)
def test_real_functions(cuda, name, params, dtype):
    with np.errstate(all="ignore"):
        x = POINTS.astype(as_numpy(dtype))
    if dtype == "float32":  # whose subnormals are zero on a GPU
        x = x[(np.abs(x) >= np.finfo(x.dtype).tiny) | (x == 0) | np.isnan(x)]
    fallback.counts.clear()
    got, want = on_device(cuda, name, x, **params), ops.ROWS[name](x, **params)
    assert not fallback.counts
    errors = errors_in_ulps(got, want)
    with np.errstate(all="ignore"):
        gap = np.abs(got.astype(np.float64) - want.astype(np.float64)) / (64 * np.finfo(np.float64).eps)
    errors = np.where(np.isfinite(gap), np.minimum(gap, errors), errors)  # near zeros of the gamma functions
    worst = np.argmax(errors)
    assert errors[worst] <= 6, (x[worst], got[worst], want[worst])


def test_the_math_library_agrees(cuda):
    near = rng.normal(size=50) * 1e-6
    x = np.concatenate([rng.uniform(0.01, 30, 300), 1 + near, 2 + near, 10 ** rng.uniform(1, 300, 50)])
    want = np.array([math.lgamma(v) for v in x])
    np.testing.assert_allclose(on_device(cuda, "lgamma", x), want, rtol=1e-13, atol=2e-15)  # math.lgamma is no better about 1 and 2
    z = rng.uniform(-3, 5, 200)
    np.testing.assert_allclose(on_device(cuda, "erfcx", z), [math.exp(v * v) * math.erfc(v) for v in z], rtol=1e-13)
    normal = [math.log(math.erfc(-v / math.sqrt(2)) / 2) for v in z]
    np.testing.assert_allclose(on_device(cuda, "log_ndtr", z), normal, rtol=1e-13, atol=1e-15)
    p = np.array([5e-324, 1e-300, 1e-20, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 2**-53])
    found = on_device(cuda, "ndtri", p)
    np.testing.assert_allclose(found, ops.ROWS["ndtri"](p), rtol=1e-14)
    np.testing.assert_allclose([math.erfc(-v / math.sqrt(2)) / 2 for v in found[1:]], p[1:], rtol=1e-12)


def test_known_values(cuda):
    euler = 0.5772156649015329
    cases = [
        ("lgamma", 0.5, 0.5 * math.log(math.pi), {}), ("lgamma", 1.0, 0.0, {}), ("lgamma", 2.0, 0.0, {}), ("lgamma", -1.0, math.inf, {}),
        ("digamma", 1.0, -euler, {}), ("digamma", 0.5, -euler - 2 * math.log(2), {}), ("digamma", 0.0, -math.inf, {}),
        ("digamma", -0.0, math.inf, {}), ("digamma", -2.0, math.nan, {}), ("polygamma", 1.0, math.pi**2 / 6, {"n": 1}),
        ("polygamma", 0.5, math.pi**2 / 2, {"n": 1}), ("polygamma", 1.0, -2 * 1.2020569031595942, {"n": 2}),
        ("polygamma", -0.5, math.pi**2 / 2 + 4, {"n": 1}), ("erfcx", 0.0, 1.0, {}), ("erfcx", -math.inf, math.inf, {}),
        ("log_ndtr", 0.0, -math.log(2), {}), ("log_ndtr", -math.inf, -math.inf, {}), ("ndtri", 0.5, 0.0, {}), ("ndtri", 0.0, -math.inf, {}),
        ("ndtri", 1.0, math.inf, {}), ("ndtri", 1.5, math.nan, {}),
    ]  # fmt: skip
    for name, x, want, params in cases:
        for side in (on_device(cuda, name, np.array([x]), **params), ops.ROWS[name](np.array([x]), **params)):
            np.testing.assert_allclose(side, [want], rtol=1e-14, atol=1e-15, err_msg=f"{name}({x})")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_divisors_and_multiples(cuda, dtype):
    info = np.iinfo(dtype)
    special = np.array([0, 1, 2, 3, 12, 18, info.max, info.max - 1, info.min, info.min + 1], dtype)
    a, b = np.concatenate([np.repeat(special, 10), rng.integers(info.min, info.max, 300, dtype)]), np.resize(special, 400)
    for name, reference in (("gcd", np.gcd), ("lcm", np.lcm)):
        with np.errstate(all="ignore"):
            want = reference(a, b)
        for order in ORDERS:
            np.testing.assert_array_equal(on_device(cuda, name, a, b, order=order), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nextafter(cuda, dtype):
    kind = as_numpy(dtype)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(kind).itemsize]
    some = rng.integers(0, np.iinfo(bits).max, 300, bits, endpoint=True).view(kind)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], kind)
    tiny = np.array([1, 2, np.iinfo(bits).max // 2 + 2], bits).view(kind)
    a = np.concatenate([edges, tiny, some])
    for order in ORDERS:
        got = on_device(cuda, "nextafter", a[:, None], a[None, :], order=order)
        want = ops.ROWS["nextafter"](a[:, None], a[None, :])
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), ~number)
        nonzero = a.view(bits) << 1 != 0  # comparing a NaN of bfloat16 warns
        number &= nonzero[:, None] | nonzero[None, :]  # of two zeros it is the second, as in C; NumPy's half types give the first
        np.testing.assert_array_equal(got.view(bits)[number], want.view(bits)[number])


def test_gradients_stay_on_the_device(cuda):
    fallback.counts.clear()
    for name in ("gammaln", *[n for n in REAL if n not in ("lgamma", "airy_ai_prime")]):
        found = []
        for device in ("cpu", "cuda"):
            x = gl.tensor([0.1, 0.4, 0.7, 0.9], dtype=gl.float64, device=device, requires_grad=True)
            (g,) = gl.autograd.grad(getattr(gl.special, name)(x).sum(), x, create_graph=True)
            g.sum().backward()
            found.append((g.detach().cpu().numpy(), x.grad.cpu().numpy()))
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=name)
    assert not fallback.counts


def test_shares_of_the_gamma_function(cuda):
    a = np.concatenate([10 ** rng.uniform(-2, 3, 200), [0.0, 0.0, 2.0, np.inf, np.inf, 2.0, -1.0, np.nan]])
    x = np.concatenate([a[:200] * 10 ** rng.uniform(-0.5, 0.5, 200), [0.0, 1.0, np.inf, 1.0, np.inf, 0.0, 1.0, 1.0]])
    fallback.counts.clear()
    for name in ("igamma", "igammac"):
        np.testing.assert_allclose(on_device(cuda, name, a, x), ops.ROWS[name](a, x), rtol=1e-11, atol=1e-14, err_msg=name)
    assert not fallback.counts


def test_polynomials_and_the_zeta_function(cuda):
    rng = np.random.default_rng(0)  # the same numbers whatever tests ran before
    x, n = rng.uniform(-1.5, 1.5, 300), rng.integers(-1, 20, 300).astype(float)
    s, q = rng.uniform(1.1, 60, 200), rng.uniform(0.01, 70, 200)
    reach = np.where(np.abs(x) > 1, 1.5, 1.0) * np.linspace(-1, 1, 61)[:, None]
    fallback.counts.clear()
    for kind in range(12):
        for derivative in (0, 1, 3):
            params = {"kind": kind, "derivative": derivative}
            want = ops.ROWS["orthogonal_polynomial"](x, n, **params)
            largest = np.abs(ops.ROWS["orthogonal_polynomial"](reach, n, **params)).max(0)  # near a root all cancels
            gap = np.abs(on_device(cuda, "orthogonal_polynomial", x, n, **params) - want)
            assert (gap <= 1e-13 * np.maximum(largest, 1)).all(), (kind, derivative, (gap / np.maximum(largest, 1)).max())
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0, -2.5, 1.0, 1e300, 1e-300, 30.5])
    s = np.concatenate([s, np.repeat(np.array([1.0, 0.5, 2.0, 3.0, 2.5, np.inf, np.nan, 300.0]), 10)])
    q = np.concatenate([q, np.tile(edges, 8)])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(on_device(cuda, "zeta", s, q), ops.ROWS["zeta"](s, q), rtol=1e-13)
    assert not fallback.counts
