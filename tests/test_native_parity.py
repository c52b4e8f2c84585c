"""Native kernels as one more device: every row's samples, and rows of many sizes, by eager kernels beside NumPy."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.native import eager, thresholds
from gradlab.backends.native.lowering import Unsupported
from gradlab.op import NEVER
from gradlab.spec import Spec, spec_of
from gradlab.testing.parity import parity, units

from samples import SAMPLES

pytestmark = needs_compiler
NATIVE = sorted(name for name, op in ops.ROWS.items() if thresholds.threshold(op) != NEVER)
SIZES = (31, 33, 100, 257, 900, 3000, 70001)
# In units of parity's tolerance, which is for sums of some hundred terms in float32.
LOOSE = {"sgd_momentum_update": 2, "batch_norm_backward": 2}


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def compared(name, arrays, params, limit=1.0):
    """Whether a kernel took the call; if so, with NumPy's results."""
    op = ops.ROWS[name]
    specs = op.specs(*[None if a is None else Spec(a.shape, a.dtype) for a in arrays], **params)
    got = eager.run(op, arrays, params)
    if got is None:
        return False
    want = [np.empty(s.shape, s.dtype) for s in specs]
    op.quietly(*[None if a is None else a.copy() for a in arrays], *want, **params)
    for found, wanted in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert spec_of(found) == spec_of(wanted)
        error = units(found, wanted)
        given = [None if a is None else a.shape for a in arrays]
        assert error <= limit * LOOSE.get(name, 1), f"{name}: {error} × tolerance, {given}, {params}"
    return True


def strided(a):
    """The same elements with others between them; turned around where there are two dimensions."""
    if a is None or a.ndim == 0:
        return a
    wide = np.repeat(a, 2, -1)[..., ::2]
    return np.asfortranarray(a) if a.ndim > 1 and a.size > 4 else wide


@pytest.mark.parametrize("name", NATIVE)
def test_samples(name):
    taken = False
    for one in SAMPLES.get(name, ()):
        arrays = [np.asarray(x) if isinstance(x, (int, float)) else x for x in one.inputs]
        for dtype in (np.float32, np.float64):
            if dtype == np.float32 and "float32" not in one.dtypes:
                continue
            own = [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in arrays]
            taken |= compared(name, own, one.params)
            if one.strided:
                taken |= compared(name, [strided(a) for a in own], one.params)
    if not taken:
        pytest.skip("no sample is of a form that a kernel takes")


def shapes():
    for n in SIZES:
        yield (n,), 0
        for dim in (0, 1):
            if n < 10000:
                yield (n, 3), dim
                yield (3, n), dim


def numbers(shape, lost=False):
    found = np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)
    if lost:
        found.reshape(-1)[:: max(found.size // 5, 1)] = np.nan
        found.reshape(-1)[1] = np.inf
    return found


LINES = ("cumsum", "cumprod", "max", "min", "argmax", "argmin", "sort", "softmax", "log_softmax")
TOTALS = ("sum", "mean", "amax", "amin", "prod", "any", "all", "euclidean")


def test_lines_of_all_sizes():
    for name in LINES:
        op, taken = ops.ROWS[name], 0
        for shape, dim in shapes():
            for lost in (False, True):
                x = numbers(shape, lost)
                if name == "cumprod":
                    x = np.exp(x / 64)
                params = {p: {"dim": dim, "keepdim": False, "descending": False}[p] for p in op.params}
                for array in (x, strided(x), x[::-1], x[::2]):
                    taken += compared(name, [array], params, limit=4)
        assert taken, name


def test_totals_of_all_sizes():
    for name in TOTALS:
        taken = 0
        for shape, dim in shapes():
            for lost in (False, True):
                x = numbers(shape, lost)
                x = np.exp(x / 64) if name == "prod" else x > 0.5 if name in ("any", "all") else x
                for array in (x, strided(x), x[::-1], x[::2]):
                    taken += compared(name, [array], {"dim": (dim,), "keepdim": False}, limit=4)
        assert taken, name


def test_euclidean_norms_beyond_the_squares_of_float32():
    for scale in (1e-30, 1e30):
        x = numbers((70001,)) * np.float32(scale)
        assert compared("euclidean", [x], {"dim": (0,), "keepdim": False})


def test_copies_and_flips():
    for dtype in (np.float32, np.float64, np.int64, np.int16, np.bool_):
        for shape in ((33, 31), (100, 257), (3, 900), (3000, 3), (5, 7, 9, 11), (70001,)):
            x = (numbers(shape) * 100).astype(dtype)
            for array in (x, x.T, x[::2], x[..., ::-1], np.broadcast_to(x[:1], shape)):
                compared("clone", [array], {})
                for dims in ((0,), (x.ndim - 1,), tuple(range(x.ndim))):
                    compared("flip", [array], {"dims": dims})
    assert {"clone", "flip"} <= used()


def test_indices_of_all_sizes():
    random = np.random.default_rng(0)
    for n in SIZES[:-1]:
        for shape, dim in (((n, 3), 0), ((3, n), 1), ((n,), 0)):
            x, at = numbers(shape), random.integers(0, n, shape)
            rows = [
                ("gather", [x, at], {"dim": dim}), ("gather_backward", [x, at], {"dim": dim, "shape": shape}),
                ("scatter_add", [x, at, x], {"dim": dim}),
            ]  # fmt: skip
            for row in rows:
                assert compared(*row), row[0]
    with pytest.raises((IndexError, RuntimeError)):
        gl.gather(gl.randn(40, 3), 0, gl.full((40, 3), 40, dtype=gl.int64))


def test_models():
    gl.manual_seed(0)
    last = nn.Sequential(nn.Flatten(), nn.Linear(128, 10), nn.GELU())
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(2), last)
    report = parity(net, gl.randn(4, 3, 8, 8, requires_grad=True), device="native")
    assert report, str(report)
    before = {op: op.pays for op in ops.ROWS.values()}
    assert parity(lambda x: gl.cumsum(x.clamp(-0.5, 0.5), 1).norm(), gl.randn(30, 33, requires_grad=True), device="native")
    assert before == {op: op.pays for op in ops.ROWS.values()}


def test_a_call_that_no_kernel_takes_is_left_to_numpy():
    with pytest.raises(Unsupported):
        eager.planned(ops.ROWS["cumsum"], [np.empty((3, 0), np.float32)], {"dim": 1})
