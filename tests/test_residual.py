"""Norms of a sum and embeddings with positions in one operation: values, gradients and errors on both devices."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.emulator import CompilerMissing
from gradlab.backends.cuda.emulator.launching import ORDERS
from gradlab.backends.cuda.emulator.sanitizer import run_sanitized, sanitized_environment

F = gl.nn.functional
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
# Rows of each form in registers, whole packs and not, on the way there and back; looped by one block, and shared by several.
ROWS = [(5, 10), (3, 100), (3, 101), (2, 500), (2, 1000), (3, 2050), (2, 5001), (1, 16385), (2, 20000)]
FEW = [(5, 10), (3, 101), (2, 500), (1, 16385)]


def values(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(0.3, 1.5, shape)


def wide(t):
    return t.detach().cpu().to(gl.float64).numpy()


def near(got, want, dtype):
    scale = max(1.0, np.abs(want).max(initial=0))
    np.testing.assert_allclose(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def results(run, arrays, device, dtype):
    """Outputs of `run` and gradients of its inputs, each output weighted by other numbers."""
    tensors = [None if a is None else gl.tensor(a, device=device).to(getattr(gl, dtype)).requires_grad_() for a in arrays]
    outs = run(*tensors)
    weights = [gl.tensor(np.cos(np.arange(y.numel()) + i).reshape(y.shape), device=device).to(y.dtype) for i, y in enumerate(outs)]
    sum((y * w).sum() for y, w in zip(outs, weights, strict=True)).backward()
    return [wide(t) for t in (*outs, *(t.grad for t in tensors if t is not None))], outs


def layer_apart(x, r, w, b):
    s = x + r
    return F.layer_norm(s, s.shape[-1:], w, b), s


def layer(x, r, w, b):
    return F.add_layer_norm(x, r, x.shape[-1:], w, b)


def rms_apart(x, r, w):
    s = x + r
    return F.rms_norm(s, s.shape[-1:], w), s


def rms(x, r, w):
    return F.add_rms_norm(x, r, x.shape[-1:], w)


PAIRS = {"layer": (layer, layer_apart, 4), "rms": (rms, rms_apart, 3)}


def arrays_for(name, shape, without=()):
    found = [values(*shape), values(*shape, seed=1), values(*shape[-1:], seed=2), values(*shape[-1:], seed=3)][: PAIRS[name][2]]
    return [None if i in without else a for i, a in enumerate(found)]


def recorded(y):
    return type(y.grad_fn).__name__


# ---------------------------------------------------------------- functions


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("without", [(), (2,), (3,), (2, 3)])
def test_on_the_cpu_they_are_what_they_say(name, without):
    one, apart, _ = PAIRS[name]
    arrays = arrays_for(name, (4, 6), without)
    for got, want in zip(results(one, arrays, "cpu", "float64")[0], results(apart, arrays, "cpu", "float64")[0], strict=True):
        near(got, want, "float64")


@pytest.mark.parametrize("shape", [pytest.param(s, marks=() if s in FEW else pytest.mark.whole, id="x".join(map(str, s))) for s in ROWS])
@pytest.mark.parametrize("name", PAIRS)
def test_rows_of_every_size(cuda, name, shape):
    one, apart, _ = PAIRS[name]
    arrays = arrays_for(name, shape)
    got, outs = results(one, arrays, "cuda", "float32")
    assert "Residual" in recorded(outs[0])
    again, _ = results(one, arrays, "cuda", "float32")
    for a, b, c in zip(got, results(apart, arrays, "cpu", "float32")[0], again, strict=True):
        near(a, b, "float32")
        np.testing.assert_array_equal(a, c, err_msg="two runs differ")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(4, 24), *(pytest.param(s, marks=pytest.mark.whole) for s in ((3, 1000), (2, 9000)))])
@pytest.mark.parametrize("name", PAIRS)
def test_other_dtypes(cuda, name, shape, dtype):
    one, apart, _ = PAIRS[name]
    arrays = arrays_for(name, shape)
    for got, want in zip(results(one, arrays, "cuda", dtype)[0], results(apart, arrays, "cuda", dtype)[0], strict=True):
        near(got, want, dtype)


@pytest.mark.parametrize("without", [(2,), (3,), (2, 3)])
def test_without_weight_or_bias(cuda, without):
    arrays = arrays_for("layer", (3, 40), without)
    for got, want in zip(results(layer, arrays, "cuda", "float32")[0], results(layer_apart, arrays, "cpu", "float32")[0], strict=True):
        near(got, want, "float32")


def test_many_rows(cuda):
    """More rows than blocks: the sums for the weights cross rows and blocks."""
    arrays = arrays_for("layer", (20000, 6))
    for got, want in zip(results(layer, arrays, "cuda", "float32")[0], results(layer_apart, arrays, "cpu", "float32")[0], strict=True):
        near(got, want, "float32")


def test_several_dimensions_and_none(cuda):
    x, r = (gl.tensor(values(2, 3, 4, 5, seed=i).astype(np.float32), device="cuda") for i in range(2))
    y, s = F.add_layer_norm(x, r, (4, 5))
    near(wide(y), wide(F.layer_norm(s, (4, 5))), "float32")
    np.testing.assert_array_equal(wide(s), wide(x + r))
    for shape in ((0, 5), (3, 0)):
        x = gl.zeros(*shape, device="cuda", requires_grad=True)
        y, s = F.add_layer_norm(x, x, shape[1:])
        (y + s).sum().backward()
        assert y.shape == s.shape == x.grad.shape == shape


def test_broadcasting_and_promotion_are_those_of_the_sum(cuda):
    x = gl.tensor(values(2, 3, 8).astype(np.float32), device="cuda")
    row = gl.tensor(values(8, seed=1).astype(np.float32), device="cuda")
    y, s = F.add_layer_norm(x, row, (8,))
    near(wide(s), wide(x) + wide(row), "float32")
    near(wide(y), wide(F.layer_norm(s, (8,))), "float32")
    y, s = F.add_layer_norm(x, x.half(), (8,))
    assert (y.dtype, s.dtype) == (gl.float32, gl.float32)
    y, s = F.add_layer_norm(x.half(), x.half(), (8,), gl.ones(8, device="cuda"))
    assert (y.dtype, s.dtype) == (F.layer_norm(x.half(), (8,), gl.ones(8, device="cuda")).dtype, gl.float16)
    y, s = F.add_rms_norm(x, x.double(), (8,))
    assert (y.dtype, s.dtype) == (gl.float64, gl.float64)


def test_gradients_of_second_order(cuda):
    def along(device):
        x, r, w, b = (gl.tensor(a, device=device, requires_grad=True) for a in arrays_for("layer", (3, 5)))
        y, s = F.add_layer_norm(x, r, (5,), w, b)
        first = gl.autograd.grad((y * y * y).sum() + (s * s * y).sum(), (x, r, w, b), create_graph=True)
        return [wide(g) for g in gl.autograd.grad(sum((g * g).sum() for g in first), (x, r, w, b))]

    for got, want in zip(along("cuda"), along("cpu"), strict=True):
        near(got, want, "float64")


def test_one_result_alone(cuda):
    for i in range(2):
        found = []
        for device in ("cpu", "cuda"):
            x, r, w, b = (gl.tensor(a, device=device, requires_grad=True) for a in arrays_for("layer", (3, 5)))
            F.add_layer_norm(x, r, (5,), w, b)[i].square().sum().backward()
            found.append([np.zeros(1) if t.grad is None else wide(t.grad) for t in (x, r, w, b)])
        for got, want in zip(*found, strict=True):
            near(got + 0 * want, want + 0 * got, "float64")


def test_errors():
    x = gl.ones(2, 3)
    with pytest.raises(RuntimeError, match=r"normalized_shape \(4,\)"):
        F.add_layer_norm(x, x, (4,))
    with pytest.raises(RuntimeError, match=r"normalized_shape \(4,\)"):
        F.add_rms_norm(x, x, (4,))
    with pytest.raises(ValueError, match="weight has shape"):
        F.add_layer_norm(x, x, (3,), gl.ones(1))
    with pytest.raises(ValueError, match="do not broadcast"):
        F.add_layer_norm(x, gl.ones(2, 4), (3,))


def test_errors_on_the_gpu(cuda):
    x = gl.ones(2, 3, device="cuda")
    with pytest.raises(RuntimeError, match=r"normalized_shape \(4,\)"):
        F.add_layer_norm(x, x, (4,))
    with pytest.raises(ValueError, match="weight has shape"):
        F.add_rms_norm(x, x, (3,), gl.ones(1, device="cuda"))
    with pytest.raises(RuntimeError, match="different devices"):
        F.add_layer_norm(x, gl.ones(2, 3), (3,))


# ---------------------------------------------------------------- embeddings

TABLE, PLACES = values(7, 12), values(6, 12, seed=1)


@pytest.mark.parametrize("shape", [(3, 6), (2, 2, 4), (5,), (0, 4)])
@pytest.mark.parametrize("width", [12, 5])
def test_embedding_with_positions(cuda, shape, width):
    at = np.random.default_rng(3).integers(0, 7, shape)
    arrays = [np.ascontiguousarray(a[:, :width]) for a in (TABLE, PLACES)]
    found = {
        device: results(lambda t, p, d=device: [F.embedding_add(gl.tensor(at, device=d), t, p)], arrays, device, "float32")
        for device in ("cpu", "cuda")
    }
    apart = results(lambda t, p: [F.embedding(gl.tensor(at), t) + F.embedding(gl.arange(shape[-1]), p)], arrays, "cpu", "float32")
    assert "EmbeddingAdd" in recorded(found["cuda"][1][0])
    for got, again, want in zip(found["cuda"][0], found["cpu"][0], apart[0], strict=True):
        near(got, want, "float32")
        near(again, want, "float32")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_embedding_padding_dtypes_and_errors(cuda, device):
    table, positions = (gl.tensor(a.astype(np.float32), device=device, requires_grad=True) for a in (TABLE, PLACES))
    at = gl.tensor([[1, 2], [2, 6]], device=device)
    F.embedding_add(at, table, positions, padding_idx=-5).sum().backward()
    np.testing.assert_array_equal(wide(table.grad)[:, 0], [0, 1, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(wide(positions.grad)[:, 0], [2, 2, 0, 0, 0, 0])
    assert F.embedding_add(at.int(), table, positions).shape == (2, 2, 12)
    assert F.embedding_add(at, table.half(), positions).dtype == gl.float32
    assert F.embedding_add(at, table.half(), positions.half()).dtype == gl.float16
    with pytest.raises(IndexError, match="index 7 is out of range"):
        F.embedding_add(gl.tensor([[7]], device=device), table, positions).cpu()
    with pytest.raises(ValueError, match="do not fit a table"):
        F.embedding_add(gl.tensor([[0] * 7], device=device), table, positions)
    with pytest.raises(ValueError, match="padding_idx 9 is not a row"):
        F.embedding_add(at, table, positions, padding_idx=9)


# ---------------------------------------------------------------- kernels

SANITIZED = """
import numpy as np
from gradlab import ops
from gradlab.backends.cuda.loading import load

driver = load().driver
rng = np.random.default_rng(1)
make = lambda *shape: driver.upload(rng.normal(size=shape).astype(np.float32))
for rows, n in ((5, 12), (2, 301), (1, 4100)):
    w = make(n)
    _, s, mean, rstd = ops.ROWS["layer_norm_residual"](make(rows, n), make(rows, n), w, None, k=1, eps=1e-5)
    ops.ROWS["layer_norm_residual_backward"](make(rows, n), make(rows, n), s, w, mean, rstd, k=1)
for width in (12, 5):
    ops.ROWS["embedding_add"](make(7, width), make(3, width), driver.upload(np.array([[1, 2, 0], [6, 6, 2]])), padding_idx=None)
driver.synchronize()
print("== end")
"""


def everything():
    """Results and gradients that take every form of the kernels, packs and not."""
    found = []
    for shape, name in itertools.product(((5, 10), (9, 64), (3, 101), (2, 1000), (1, 16385)), PAIRS):
        found += results(PAIRS[name][0], arrays_for(name, shape), "cuda", "float32")[0]
    for width in (12, 5):
        arrays = [np.ascontiguousarray(a[:, :width]) for a in (TABLE, PLACES)]
        at = gl.tensor([[1, 2, 0], [6, 6, 2]], device="cuda")
        found += results(lambda t, p, at=at: [F.embedding_add(at, t, p)], arrays, "cuda", "float32")[0]
    return found


def test_the_same_bits_in_every_order_of_threads(cuda):
    driver = cuda.driver
    if driver.name != "emulated":
        pytest.skip("the order of threads is the hardware's own")
    first, kept = everything(), driver.order
    try:
        for order in ORDERS:
            driver.order = order
            for a, b in zip(first, everything(), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=order)
    finally:
        driver.order = kept


@pytest.mark.whole
@pytest.mark.parametrize("sanitize", ["address,undefined"])
def test_the_sanitizers_find_nothing(cuda, sanitize):
    if cuda.driver.name != "emulated":
        pytest.skip("of the emulated GPU")
    try:
        sanitized_environment(sanitize)
    except (CompilerMissing, RuntimeError) as error:
        pytest.skip(str(error))
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent.parent)!r})\n{SANITIZED}"
    done = run_sanitized(["-c", code], sanitize=sanitize, keep_going=True, environment={"GRADLAB_CUDA": "emulated"})
    assert "== end" in done.output, done.output[-3000:]
    assert not done.reports, done.output[-3000:]
