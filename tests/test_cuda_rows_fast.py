"""The forms in which kernels walk rows (`kernels/rows.cuh`): every form against the CPU, the same bits in every order of threads, and
launches that are repeated without their rule (`launch/replay.py`)."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.emulator.launching import ORDERS
from gradlab.backends.cuda.launch import row_forms
from gradlab.backends.cuda.loading import load

pytestmark = pytest.mark.usefixtures("cuda")
F = gl.nn.functional
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}

# Rows of each form in registers, whole packs and not; looped by one block (many rows), and shared by several.
ROWS = [(5, 10), (3, 100), (3, 101), (2, 500), (2, 1000), (3, 2050), (2, 5001), (1, 16385), (2, 40000)]
FEW = [(5, 10), (3, 101), (1, 16385)]
COLUMNS = [(3, 7, 5), (2, 300, 33)]
IMAGES = [(64, 5), (700, 3), (9, 1), (4, 3, 5, 7), (6, 2, 4, 4), (2, 3, 64, 64), (3, 2, 65, 33), (2, 1, 50, 100)]


def values(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(0.3, 1.5, shape).astype(dtype)


def many(cases, few):
    return [pytest.param(c, marks=() if c in few else pytest.mark.whole, id="x".join(map(str, c))) for c in cases]


def both(run, *arrays, dtype="float32"):
    """The results and gradients on both devices."""
    found = []
    for device in ("cpu", "cuda"):
        tensors = [gl.tensor(a, device=device).to(getattr(gl, dtype)).requires_grad_() for a in arrays]
        y = run(*tensors)
        weights = gl.tensor(np.cos(np.arange(y.numel())).reshape(y.shape).astype("float32"), device=device).to(y.dtype)
        (y * weights).sum().backward()
        found.append([t.detach().cpu().to(gl.float64).numpy() for t in (y, *(t.grad for t in tensors))])
    return found


def agree(run, *arrays, dtype="float32"):
    want, got = both(run, *arrays, dtype=dtype)
    for w, g in zip(want, got, strict=True):
        scale = max(1.0, np.abs(w).max(initial=0))
        np.testing.assert_allclose(g, w, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def target(shape, classes):
    return np.random.default_rng(1).integers(0, classes, shape)


def cross_entropy(x):
    shape = (x.shape[0], *x.shape[2:])
    return F.cross_entropy(x, gl.tensor(target(shape, x.shape[1]), device=x.device))


# ---------------------------------------------------------------- rows and columns


@pytest.mark.parametrize("shape", many(ROWS, FEW))
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_rows(name, shape):
    agree(lambda x: getattr(F, name)(x, -1), values(shape))


@pytest.mark.parametrize("shape", many(ROWS, FEW[1:]))
def test_norms_of_rows(shape):
    weight, bias = values(shape[-1:], seed=1), values(shape[-1:], seed=2)
    agree(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), values(shape) + 3, weight, bias)
    agree(lambda x, w: F.rms_norm(x, x.shape[-1:], w), values(shape), weight)


@pytest.mark.parametrize("shape", many(ROWS, FEW[:1]))
def test_cross_entropy_of_rows(shape):
    agree(cross_entropy, values(shape))


@pytest.mark.parametrize("shape", many(COLUMNS, COLUMNS[1:]))
def test_columns(shape):
    agree(lambda x: F.softmax(x, 1), values(shape))
    agree(cross_entropy, values(shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", many([(4, 24), (3, 1000), (2, 3000), (2, 9000)], [(4, 24)]))
def test_other_dtypes(shape, dtype):
    weight = values(shape[-1:], seed=1)
    agree(lambda x: F.softmax(x, -1), values(shape), dtype=dtype)
    agree(lambda x, w: F.layer_norm(x, x.shape[-1:], w), values(shape), weight, dtype=dtype)


def test_many_rows_of_a_norm():
    """More rows than blocks: the sums for the weights cross rows and blocks."""
    weight, bias = values((6,), seed=1), values((6,), seed=2)
    agree(lambda x, w, b: F.layer_norm(x, (6,), w, b), values((20000, 6)), weight, bias)


def test_rows_of_infinities():
    x = values((4, 40))
    x[0], x[1, 3], x[2, :5], x[3, 7] = -np.inf, np.inf, -np.inf, np.nan
    for dim, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        for name in ("softmax", "log_softmax"):
            want = getattr(F, name)(gl.tensor(array), dim).numpy()
            np.testing.assert_allclose(getattr(F, name)(gl.tensor(array, device="cuda"), dim).cpu().numpy(), want, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- channels


@pytest.mark.parametrize("shape", many(IMAGES, IMAGES[3:6]))
def test_batch_norm(shape):
    weight, bias = values(shape[1:2], seed=1), values(shape[1:2], seed=2)
    agree(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), values(shape) + 2, weight, bias)


def test_variance_far_from_zero():
    """Deviations are taken from the mean of a few neighbours, not from zero: a large mean costs no digits."""
    x = values((4, 2, 64, 64)) + 1e4
    y = F.batch_norm(gl.tensor(x, device="cuda"), None, None, training=True).cpu().numpy()
    wide = x.astype(np.float64)
    want = (wide - wide.mean((0, 2, 3), keepdims=True)) / np.sqrt(wide.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, want, atol=2e-3)


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16"])
@pytest.mark.parametrize("shape", many([(3, 20), (2, 900), (2, 5000), (1, 20000), (4, 300, 3)], [(3, 20), (1, 20000)]))
def test_extremes(shape, dtype):
    x = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)  # many ties
    t, there = gl.tensor(x), gl.tensor(x, device="cuda")
    for name in ("max", "min"):
        want, got = getattr(t, name)(1), getattr(there, name)(1)
        np.testing.assert_array_equal(got.values.cpu().numpy(), want.values.numpy())
        np.testing.assert_array_equal(got.indices.cpu().numpy(), want.indices.numpy())
    assert int(there.argmax().cpu()) == int(t.argmax())


def test_the_first_nan_is_extreme():
    x = values((1, 20000))
    x[0, 7777] = x[0, 15000] = np.nan
    for t in (gl.tensor(x, device="cuda"), gl.tensor(x[:, 7000:7900].copy(), device="cuda")):
        assert int(t.argmax().cpu()) == int(t.cpu().argmax()) == int(t.argmin().cpu())


# ---------------------------------------------------------------- the same bits


def everything():
    """Results of one kernel of each form."""
    found = []
    for shape, dim in (((3, 101), 1), ((2, 5001), 1), ((1, 16385), 1), ((2, 300, 33), 1)):
        found.append(F.softmax(gl.tensor(values(shape), device="cuda"), dim))
    x, w = (gl.tensor(a, device="cuda").requires_grad_() for a in (values((7, 101)), values((101,), seed=1)))
    F.layer_norm(x, (101,), w).sum().backward()
    image = gl.tensor(values((2, 3, 64, 64)), device="cuda")
    found += [x.grad, w.grad, F.batch_norm(image, None, None, training=True), image.argmax()]
    return [t.detach().cpu().numpy() for t in found]


def test_every_order_of_threads_gives_the_same_bits():
    driver = load().driver
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


def test_the_form_depends_on_sizes_alone():
    assert row_forms.held_form(1000, row_forms.HELD) == (32, 32)
    assert row_forms.held_form(16385, row_forms.HELD) is None
    assert row_forms.parts_for(1, 1 << 20, 8192) == 128
    assert row_forms.parts_for(1000, 1 << 20, 8192) == 1


# ---------------------------------------------------------------- repeated launches


def launches(run):
    driver = load().driver
    if driver.name != "emulated":
        pytest.skip("counted by the emulated driver")
    before = driver.launches
    run()
    return driver.launches - before


def test_repeated_launches_take_the_new_operands():
    for seed in range(4):
        x = values((3, 50), seed=seed)
        np.testing.assert_allclose(F.softmax(gl.tensor(x, device="cuda"), 1).cpu().numpy(), F.softmax(gl.tensor(x), 1).numpy(), atol=1e-6)
    x = gl.tensor(values((3, 50)), device="cuda")
    assert launches(lambda: F.softmax(x, 1)) == 1


def test_repeated_launches_see_how_operands_are_aligned():
    base = gl.tensor(values((300,)), device="cuda")
    for start in (0, 1, 4, 0, 3, 1):
        x = base[start : start + 96].reshape(2, 48)
        np.testing.assert_allclose(F.softmax(x, 1).cpu().numpy(), F.softmax(x.cpu(), 1).numpy(), atol=1e-6)


def test_operands_that_share_memory_are_not_taken_for_one():
    x, w, b = (gl.tensor(values((8,), seed=s), device="cuda") for s in range(3))
    rows = gl.tensor(values((4, 8)), device="cuda")
    for weight, bias in ((w, w), (w, b), (b, w), (x, b)):
        want = F.layer_norm(rows.cpu(), (8,), weight.cpu(), bias.cpu())
        np.testing.assert_allclose(F.layer_norm(rows, (8,), weight, bias).cpu().numpy(), want.numpy(), atol=1e-5)


def test_strided_operands_are_copied_each_time():
    for seed in range(3):
        x = values((50, 6), seed=seed)
        t = gl.tensor(x, device="cuda").t()
        np.testing.assert_allclose(F.softmax(t, 1).cpu().numpy(), F.softmax(gl.tensor(x).t(), 1).numpy(), atol=1e-6)


def test_repeated_launches_still_report_wrong_classes():
    x = gl.tensor(values((4, 5)), device="cuda")
    for _ in range(3):
        F.cross_entropy(x, gl.tensor([0, 1, 2, 4], device="cuda"))
    with pytest.raises(IndexError, match="class 9 is not in"):
        F.cross_entropy(x, gl.tensor([0, 1, 9, 4], device="cuda"))
        gl.cuda.synchronize()


def test_random_numbers_are_new_each_time_and_the_same_on_both_devices():
    found = []
    for device in ("cpu", "cuda"):
        gl.manual_seed(3)
        found.append([gl.rand(37, device=device).cpu().numpy() for _ in range(3)])
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1][0], found[1][1])


def test_reductions_of_nothing():
    """A kernel starts with the number that changes nothing; where a row has none, both devices refuse."""
    names = ["sum", "mean", "prod", "all", "any", "amax", "amin", "max", "min", "argmax", "norm", "var", "logsumexp", "nansum"]
    calls = [(name, call) for name in names for call in (lambda x, f: f(x), lambda x, f: f(x, dim=-1), lambda x, f: f(x, 0))]
    seen = set()
    for shape in ((0,), (3, 0), (0, 4), (2, 0, 3)):
        for name, call in calls:
            found = []
            for device in ("cpu", "cuda"):
                try:
                    y = call(gl.zeros(shape, device=device), getattr(gl, name))
                    found.append([np.asarray(each.cpu()) for each in (y if isinstance(y, tuple) else (y,))])
                except (RuntimeError, IndexError, ValueError, TypeError) as error:
                    found.append(type(error))
            here, there = found
            if isinstance(here, type) or isinstance(there, type):
                assert here is there, (name, shape)
                continue
            seen.add(name)
            for a, b in zip(here, there, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{name} of {shape}")
    assert {"sum", "prod", "all", "any", "norm", "amax"} <= seen
