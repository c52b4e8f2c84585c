"""Every public function on complex numbers: PyTorch's values and gradients, or a refusal with a clear error; never an imaginary part
that is dropped in silence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH, arrays_in, converted, parts
from kinds.catalogue.giving import Fixed, words

REFUSALS = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError, AssertionError, BufferError)


def given_complex(call):
    """The call's arguments, float arrays made complex."""

    def turned(array):
        if array.dtype != np.float64 or isinstance(array, Fixed):
            return array
        return array + 0.5j * np.roll(array, 1).reshape(array.shape) + 0.1j

    return converted((call.arguments, call.options), turned)


def made(engine, given, grad):
    def tensor(array):
        if array.dtype == np.complex128:
            return engine.tensor(np.asarray(array)).requires_grad_(grad)
        found = engine.tensor(np.asarray(array))
        return found.to(engine.float64) if array.dtype == np.float64 else found

    def other(part):
        return getattr(engine, str(part).rpartition(".")[2]) if isinstance(part, gl.dtype) else part

    return converted(given, tensor, other)


def array_of(tensor):
    return np.asarray(tensor.detach().resolve_conj().resolve_neg().numpy() if hasattr(tensor, "numpy") else tensor)


def outcome(engine, call, grad):
    """The results' arrays and the inputs' gradients; an exception where the call is refused."""
    args, options = made(engine, given_complex(call), grad)
    leaves = []
    converted((args, options), lambda a: None, lambda x: leaves.append(x) if hasattr(x, "requires_grad") and x.requires_grad else None)
    results = parts(call.on(args, options, None if engine is gl else call.reference))
    found = [array_of(r) for r in results]
    gradients = []
    total = 0
    for r in results:
        if grad and r.requires_grad:
            weights = np.cos(np.arange(r.numel())).reshape(tuple(r.shape)) + (0.3j if r.is_complex() else 0)
            product = r.conj() * engine.tensor(weights).to(r.dtype)
            total = total + (product.real if r.is_complex() else product).sum()
    if leaves and not isinstance(total, int):
        total.backward()
        gradients = [None if x.grad is None else array_of(x.grad) for x in leaves]
    return found, gradients


FLOATS = [c for c in CALLS if any(a.dtype == np.float64 for a in arrays_in((c.arguments, c.options)))]
COMPUTED = [c for c in FLOATS if not c.marks & {"making", "random"}]
# Where PyTorch refuses, and the formula means the same for complex numbers.
MORE = set(words("""
    gl.deg2rad gl.logit gl.native_norm gl.pdist masked.logaddexp gl.rad2deg special.logit F.embedding_bag-1 F.embedding_bag-2
    F.glu F.interpolate F.mse_loss-1 F.pdist
    F.upsample F.upsample_nearest Tensor.bfloat16 Tensor.deg2rad Tensor.deg2rad_ Tensor.logit Tensor.logit_ Tensor.rad2deg Tensor.rad2deg_
"""))
# Where PyTorch computes, and what gradlab refuses.
LESS = {
    "the imaginary part would be dropped": words("gl.bincount-1 Tensor.bincount-1"),
    "a map of points in the plane": words("gl.affine_grid_generator"),
}
REFUSED_HERE = {name for names in LESS.values() for name in names}
# Where both have a reason to differ.
OTHERWISE = {
    "vectors are free but for their phase: test_complex.py multiplies them again": words("gl.svd linalg.svd Tensor.svd linalg.eigh"),
    "of a factor's diagonal the imaginary part is not read there": words("gl.cholesky_inverse Tensor.cholesky_inverse"),
    "memory that was not written": words("Tensor.new"),
}
GRADIENTS_OTHERWISE = {
    "the imaginary part of the diagonal is not read, so it has no gradient": words("""
        gl.cholesky linalg.cholesky linalg.cholesky_ex Tensor.cholesky
    """),
    "PyTorch refuses the function's gradient, but not that in place, which differences contradict": words("""
        F.silu-1 Tensor.index_reduce_ Tensor.scatter_reduce_-1
    """),
    "as of real numbers": words("""
        gl.as_strided_scatter Tensor.as_strided_scatter gl.cholesky_solve Tensor.cholesky_solve Tensor.logical_and_-1 Tensor.logical_not_-1
        Tensor.logical_or_-1 Tensor.logical_xor_-1
    """),
}


def same(x, y, tolerance):
    return x.dtype == y.dtype and x.shape == y.shape and np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def refusal(engine, call, grad=False):
    try:
        return None, outcome(engine, call, grad)
    except REFUSALS as error:
        return error, None


@pytest.mark.torch
@pytest.mark.skipif(TORCH is None, reason="needs PyTorch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [c for c in COMPUTED if c.reference is not None], ids=repr)
def test_as_in_pytorch(call):
    error, expected = refusal(TORCH, call)
    own, found = refusal(gl, call)
    if error is not None:
        assert own is not None or repr(call) in MORE, f"PyTorch: {error}"
        return
    if repr(call) in REFUSED_HERE:
        assert own is not None
        return
    assert own is None, own
    if not any(repr(call) in names for names in OTHERWISE.values()):
        assert len(found[0]) == len(expected[0])
        for x, y in zip(found[0], expected[0], strict=True):
            assert same(x, y, 1e-9), (x, y)
    if any(repr(call) in names for names in (*OTHERWISE.values(), *GRADIENTS_OTHERWISE.values())):
        return
    error, expected = refusal(TORCH, call, True)
    if error is None:
        for x, y in zip(outcome(gl, call, True)[1], expected[1], strict=True):
            if x is None or y is None:
                given = y if x is None else x
                assert given is None or not given.any()
            else:
                assert same(x, y, 1e-8), (x, y)


# They cast, and warn that they do.
CASTS = set(words("float double half bfloat16 int long short char byte type to as_tensor type_as heaviside"))


@pytest.mark.parametrize("call", FLOATS, ids=repr)
def test_nothing_imaginary_is_lost_in_silence(call):
    """Neither by NumPy nor by a cast of the library's own, but where the user asked for a cast."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error, _ = refusal(gl, call)
    assert ".float()" not in str(error), "the error's advice loses the imaginary part"
    lost = [w for w in seen if "discards the imaginary part" in str(w.message)]
    assert not lost or call.name.rpartition(".")[2] in CASTS, lost[0].message


@pytest.mark.parametrize("name", words("lt le gt ge maximum minimum max sort relu floor remainder clamp sign cummax topk"))
def test_orders_are_refused_by_name(name):
    z = gl.tensor([1 + 1j, 2 - 1j])
    pairs = (z,) if name in words("lt le gt ge maximum minimum remainder") else ()
    arguments = {"clamp": (0.0,), "cummax": (0,), "topk": (1,)}.get(name, pairs)
    with pytest.raises(TypeError, match="complex"):
        getattr(gl, name)(z, *arguments)


ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-300, 1e300, np.inf, -np.inf, np.nan]
GRID = np.array([complex(x, y) for x in ENDS for y in ENDS])
UNARY = words("""
    abs angle sgn exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sigmoid sin cos tan asin acos atan sinh cosh tanh asinh
    acosh atanh sinc isnan isinf isfinite
""")
# PyTorch's acos(0 + 0j) is on the other side of its cut; signs of zeros in sgn; ∞ - ∞ in squares; NumPy's log1p has no digits below 1e-16.
NOT_ITS = {"acos": np.arccos, "log1p": np.log1p}
FREE = {"sgn": np.isfinite(GRID), "square": np.abs(GRID.real) < 1e200}


@pytest.mark.torch
@pytest.mark.skipif(TORCH is None, reason="needs PyTorch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNARY)
def test_cuts_infinities_and_zeros(name):
    """On both sides of all cuts, with the signs of zeros; where PyTorch is wrong, NumPy's (C99's) values."""
    found = getattr(gl, name)(gl.tensor(GRID)).numpy()
    with np.errstate(all="ignore"):
        expected = NOT_ITS[name](GRID) if name in NOT_ITS else getattr(TORCH, name)(TORCH.tensor(GRID)).numpy()
    assert found.dtype == expected.dtype
    kept = FREE.get(name, np.ones(len(GRID), bool))
    for a, b in ((np.real(found), np.real(expected)), (np.imag(found), np.imag(expected))):
        a, b = a[kept].astype(float), b[kept].astype(float)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-300)
        signed = ~np.isnan(b) & (name != "sgn")
        np.testing.assert_array_equal(np.signbit(a)[signed], np.signbit(b)[signed])


@pytest.mark.parametrize("dtype", [gl.float64, gl.complex128])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("sizes", [(3, 3), (3, 5), (5, 3)])
def test_unitary_weights(kind, sizes, dtype):
    """A weight stays unitary while it is trained."""
    layer = gl.nn.utils.parametrizations.orthogonal(gl.nn.Linear(*sizes, dtype=dtype), orthogonal_map=kind)
    optimizer, x = gl.optim.SGD(layer.parameters(), 0.1), gl.randn(5, sizes[0], dtype=dtype)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x).abs().sum().backward()
        optimizer.step()
    w = layer.weight.detach()
    product = w @ w.mH if w.shape[0] <= w.shape[1] else w.mH @ w
    assert gl.allclose(product, gl.eye(3, dtype=dtype), atol=1e-9)


def test_the_norm_of_complex_gradients_is_real():
    p = gl.nn.Parameter(gl.ones(3, dtype=gl.complex64))
    p.grad = gl.full((3,), 2j)
    for total in (gl.nn.utils.get_total_norm([p.grad]), gl.nn.utils.clip_grad_norm_([p], 1.0)):
        assert total.dtype == gl.float32 and abs(float(total) - 12**0.5) < 1e-6
    assert gl.allclose(p.grad, gl.full((3,), 1j / 3**0.5), atol=1e-5)
