"""Eager rows as machine code (`gradlab/backends/native/eager.py`): every row that has a kernel beside NumPy's function."""

import math
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab.backends.native import calling, eager, thresholds
from gradlab.dtype import BOOL, HALF as HALVES
from gradlab.kernel import is_dear
from gradlab.ops import ROWS
from gradlab.spec import Spec

F = gl.nn.functional
pytestmark = needs_compiler

HALF = sorted(HALVES, key=str)
SIZES = [31, 33, 100, 257, 900, 3000, 70001]
ELEMENTWISE = sorted(
    name for name, op in ROWS.items() if op.elementwise and thresholds.threshold(op) != thresholds.NEVER and name not in ("cast", "clone")
)
PARAMETERS = {"lo": -0.5, "hi": 0.75, "n": 7, "divisor": 3.0, "exponent": 3.0, "order": 1}


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def operands(op, shape, dtype, seed=0):
    """Arrays for a row, NaN, infinities, zeros and ties among them."""
    random = np.random.default_rng(seed)
    found = []
    for name in op.inputs:
        if name in ("condition", "mask"):
            found.append(random.random(shape) < 0.5)
            continue
        a = np.round(random.normal(0, 2, shape), 1).astype(dtype)
        if name == "squares":
            found.append(np.square(a))
            continue
        if a.size > 20:
            a.reshape(-1)[:6] = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40]
        found.append(a)
    return found


def check(op, arrays, params):
    """A kernel's result beside NumPy's; whether there was a kernel."""
    got = eager.run(op, arrays, params)
    if got is None:
        return False
    spec = op.specs(*[Spec(a.shape, a.dtype) for a in arrays], **params)[0]
    want = np.empty(spec.shape, spec.dtype)
    op.quietly(*[np.ascontiguousarray(a) for a in arrays], want, **params)
    if want.dtype == BOOL or want.dtype.kind in "iu" or not is_dear(op.cuda.expression):
        loose = {"rtol": 2e-6 if want.dtype == np.float32 else 1e-12, "atol": 1e-6 if op.name == "about_mean" else 1e-37}
    else:
        loose = {"rtol": 3e-5 if want.dtype == np.float32 else 1e-11, "atol": 2e-6 if want.dtype == np.float32 else 1e-13}
    np.testing.assert_allclose(got.astype(float), want.astype(float), **loose, err_msg=op.name)
    return True


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_rows(name):
    op = ROWS[name]
    params = {p: PARAMETERS.get(p, 0.5) for p in op.params}
    done = []
    for dtype in (np.float32, np.float64):
        try:
            sizes = SIZES if dtype == np.float32 else SIZES[:3]
            done += [check(op, operands(op, (size,), dtype), params) for size in sizes]
            done.append(check(op, operands(op, (100, 3), dtype), params))
            done.append(check(op, operands(op, (0, 3), dtype), params))
            arrays = operands(op, (40, 90), dtype)
            done.append(check(op, [a.T for a in arrays], params))
            check(op, [a[::2] for a in arrays], params)
            check(op, [a[:, ::2] for a in arrays], params)
            if len(arrays) == 2:
                check(op, [arrays[0], arrays[1][:1]], params)
                check(op, [arrays[0][:, :1], arrays[1]], params)
                check(op, [arrays[0], np.array(0.6, dtype)], params)
        except TypeError:  # rows of integers
            continue
    if not any(done):
        pytest.skip("no kernel of floats")


def both(function, *shapes, dtype=np.float32, grad=True):
    """What a function and its gradients are by kernels and by NumPy."""
    results = []
    for by_numpy in (False, True):
        random = np.random.default_rng(1)
        xs = [gl.tensor(random.normal(size=s).astype(dtype), requires_grad=grad) for s in shapes]
        before = {op: op.pays for op in thresholds.attached.values()}
        if by_numpy:
            thresholds.switch_off()
        try:
            y = function(*xs)
            found = [y]
            if grad:
                (y * gl.arange(y.numel()).reshape(y.shape).sin()).sum().backward()
                found += [x.grad for x in xs]
        finally:
            for op, pays in before.items():
                op.pays = pays
        results.append([f.detach().numpy().copy() for f in found])
    for got, want in zip(*results, strict=True):
        scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5 * scale)


def rows_of(size):
    return {31: (31,), 33: (3, 11), 100: (10, 10), 257: (257,), 900: (30, 30), 3000: (1000, 3), 70001: (70001,)}[size]


REDUCTIONS = {
    "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d), "amax": lambda x, d: x.amax(d), "amin": lambda x, d: x.amin(d),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_reductions(name, size):
    reduce = REDUCTIONS[name]
    shape = rows_of(size)
    dims = [tuple(range(len(shape))), *[(d,) for d in range(len(shape))]]
    for dim in dims:
        both(lambda x, dim=dim: reduce(x, dim), shape)
        both(lambda x, dim=dim: reduce(x, dim), shape, dtype=np.float64)
    assert name in used()


def test_reductions_over_several_dimensions():
    for dims in ((0, 2, 3), (1, 3), (0, 2), (1, 2), (0, 1, 3), (3,), (0,)):
        both(lambda x, dims=dims: x.sum(dims), (5, 7, 9, 11))
        both(lambda x, dims=dims: x.permute(0, 2, 3, 1).mean(dims), (5, 7, 9, 11))
    both(lambda x: x.sum((0, 2, 3)), (3, 300, 40, 41))
    both(lambda x: x.sum(0), (70001, 2))


def test_what_is_not_a_number():
    x = gl.tensor([1.0, math.nan, 3.0, math.inf] * 100).reshape(20, 20)
    assert math.isnan(x.sum().item()) and math.isnan(x.amax().item()) and math.isnan(x.amin().item())
    assert gl.full((300,), -math.inf).amax().item() == -math.inf


ROWS_OF_FLOATS = {
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "gelu": F.gelu, "silu": F.silu, "relu": F.relu, "slice": lambda x: x[..., 1:] * 2, "cat": lambda x: gl.cat([x, x * 2], -1),
    "transposed": lambda x: x.reshape(-1, x.shape[-1]).mT.contiguous() + 1, "flat": lambda x: x.flatten() * x.flatten(),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS_OF_FLOATS)
@pytest.mark.parametrize("size", SIZES)
def test_rows_with_gradients(name, size):
    both(ROWS_OF_FLOATS[name], rows_of(size))


LAYERS = {
    "linear": (F.linear, (33, 20), (31, 20), (31,)),
    "matmul": (lambda a, b: a @ b, (3, 33, 20), (3, 20, 17)),
    "product of turned matrices": (lambda a, b: a.mT @ b.mT, (20, 33), (17, 20)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (30,), w, b), (100, 30), (30,), (30,)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (30,), w), (100, 30), (30,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (5, 6, 7, 8), (6,), (6,)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (9, 6, 7, 8), (6,), (6,)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (4, 3, 17, 15), (8, 3, 3, 3), (8,)),
    "strided conv2d": (lambda x, w: F.conv2d(x, w, stride=2, groups=2), (4, 4, 17, 15), (8, 2, 3, 3)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b), (4, 3, 60), (8, 3, 5), (8,)),
    "channels last": (lambda x, w: F.conv2d(F.relu(x).to(memory_format=gl.channels_last), w), (4, 8, 12, 12), (8, 8, 3, 3)),
    "max_pool": (lambda x: F.max_pool2d(x, 2), (3, 5, 16, 18)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), (3, 5, 16, 18)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 2, 33, 16), (2, 2, 33, 16), (2, 2, 33, 16)),
    "cross_entropy": (lambda x: F.cross_entropy(x, gl.arange(60) % 7, reduction="none"), (60, 7)),
    "embedding": (lambda w: F.embedding(gl.arange(300).reshape(30, 10) % 17, w), (17, 24)),
    "broadcast": (lambda a, b, c: (a + b) * c, (40, 90), (90,), (40, 1)),
    "where": (lambda a, b: gl.where(a > 0, a, b), (40, 90), (40, 90)),
    "pad": (lambda x: F.pad(x, (1, 2, 3, -1)), (7, 20, 30)),
    "numbers": (lambda x: (2.5 - x) / 3 + x.clamp(-0.5, 0.5) + x.pow(3), (40, 90)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("count", [1, 2])
def test_layers(name, count):
    before = gl.get_num_threads()
    gl.set_num_threads(count)
    try:
        both(LAYERS[name][0], *LAYERS[name][1:])
    finally:
        gl.set_num_threads(before)


def test_an_index_outside_is_refused_as_by_numpy():
    with pytest.raises(IndexError, match="embedding"):
        F.embedding(gl.tensor([0, 17] * 50), gl.randn(17, 24))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_rows_of_half_types(name, dtype):
    """Are those of float32, rounded: the same bits, or the next ones where functions differ in float32's last bits."""
    op = ROWS[name]
    params = {p: PARAMETERS.get(p, 0.5) for p in op.params}
    found = 0
    for shape, change in [((size,), None) for size in SIZES] + [((40, 90), lambda a: a.T), ((40, 90), lambda a: a[:, ::2])]:
        with np.errstate(all="ignore"):
            arrays = [a if a.dtype == BOOL else a.astype(dtype) for a in operands(op, shape, np.float32)]
        if len(arrays) == 2 and change is None:
            arrays[1] = np.array(0.6, op.number_dtype(arrays[1].dtype)) if shape == (900,) else arrays[1]
        arrays = [change(a) if change and a.ndim else a for a in arrays]
        try:
            got = eager.run(op, arrays, params)
        except TypeError:  # rows of integers
            continue
        if got is None:
            continue
        found += 1
        given = [np.ascontiguousarray(a if a.dtype == BOOL else a.astype(np.float32)) for a in arrays]
        want = np.empty(got.shape, np.float32 if got.dtype == dtype else got.dtype)
        op.quietly(*given, want, **params)
        if got.dtype != dtype:
            np.testing.assert_array_equal(got, want)
            continue
        with np.errstate(all="ignore"):
            got, want = got.astype(np.float64), want.astype(dtype).astype(np.float64)
            least = {"about_mean": 2e-6}.get(name, 1e-7 if is_dear(op.cuda.expression) else None)
            close = False if least is None else np.abs(got - want) <= np.abs(want) * float(ml_dtypes.finfo(dtype).eps) + least
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        assert (same | close).all(), (name, shape)
        assert same.mean() > 0.99
    if not found:
        pytest.skip("no kernel of half types")


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_conversions_of_half_types(dtype):
    """All numbers of a half type, and those of float32 around the middle between two of them, by kernels and by NumPy."""
    cast, rng = ROWS["cast"], np.random.default_rng(0)
    every = np.arange(65536, dtype=np.uint16).view(dtype)
    edges = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x3000], np.uint32)
    floats = ((np.arange(65536, dtype=np.uint32)[:, None] << 16) | edges).ravel().view("f")
    for x, to in ((every, np.dtype("f")), (floats, dtype), (floats[3:70], dtype), (rng.permutation(floats).reshape(-1, 64).T, dtype)):
        got = eager.run(cast, (x,), {"dtype": to})
        with np.errstate(all="ignore"):
            want, number, nothing = x.astype(to), ~np.isnan(x.astype(np.float64)), np.isnan(got.astype(np.float64))
        word = np.uint32 if to == np.float32 else np.uint16
        assert got is not None and got.dtype == to and got.strides == np.empty_like(x, to).strides
        np.testing.assert_array_equal(got.copy().view(word)[number.copy()], want.copy().view(word)[number.copy()])
        assert nothing[~number].all()
    assert eager.run(cast, (every[::2],), {"dtype": np.dtype("f")}) is None
    assert eager.run(cast, (np.arange(3000.0),), {"dtype": np.dtype("f")}) is None


def test_half_types_round_once():
    for dtype in (gl.float16, gl.bfloat16):
        x = gl.randn(3000).to(dtype)
        wide = x.float()
        for f in (lambda x: x * 3, lambda x: x.exp(), lambda x: x + x, lambda x: x > 0.5):
            assert gl.equal(f(x).float(), f(wide).to(dtype).float()) or gl.allclose(f(x).float(), f(wide).float(), rtol=0.01)


@pytest.mark.parametrize("optimizer", [gl.optim.SGD, gl.optim.Adam, gl.optim.AdamW, gl.optim.RMSprop, gl.optim.Adagrad])
def test_optimizers(optimizer):
    found = []
    for by_numpy in (False, True):
        before = {op: op.pays for op in thresholds.attached.values()}
        if by_numpy:
            thresholds.switch_off()
        p = gl.tensor(np.linspace(-1, 1, 5001, dtype=np.float32), requires_grad=True)
        o = optimizer([p], lr=0.1)
        for _ in range(4):
            o.zero_grad()
            (p * p * p).sum().backward()
            o.step()
        found.append(p.detach().numpy().copy())
        for op, pays in before.items():
            op.pays = pays
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_in_place_and_out():
    x = gl.linspace(-2, 2, 5000)
    y = x.clone()
    y.mul_(3).add_(x).relu_()
    assert gl.equal(y, F.relu(x * 3 + x))
    out = gl.empty(5000)
    gl.add(x, x, out=out)
    assert gl.equal(out, x * 2)
    view = y[1000:2000]
    view.copy_(x[:1000])
    assert gl.equal(y[1000:2000], x[:1000])


def test_misaligned_memory_is_left_to_numpy():
    raw = np.zeros(4001, np.uint8)[1:].view(np.float32)
    x = gl.from_numpy(raw)
    assert gl.equal(x + 1, gl.ones(1000))


def test_compiled_programs_and_eager_code_agree_where_they_use_one_kernel():
    x, w = gl.randn(40, 64), gl.randn(30, 64)
    for f in (lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, (64,)), lambda x: F.linear(x, w), F.gelu):
        assert gl.equal(gl.compile(f)(x), f(x))


def test_a_call_refuses_arrays_that_lie_otherwise():
    row, x = ROWS["gelu"], np.linspace(-3, 3, 60, dtype=np.float32).reshape(6, 10)
    call, loop = eager.of_rows(row, (x,), {}), eager.of_any_size(row, np.dtype(np.float32))
    for f, out in ((call, np.zeros((6, 10), np.float32)), (loop, np.zeros((6, 10), np.float32))):
        assert f(x.reshape(10, 6).T, out) == calling.OTHER and not out.any()
        assert f(x) == calling.OTHER and f(x, x, out) == calling.OTHER
        assert f(x, out) == calling.DONE
        np.testing.assert_array_equal(out, F.gelu(gl.tensor(x)).numpy())
    assert loop(x[:3], np.zeros((6, 10), np.float32)) == calling.OTHER  # another number of elements
    odd = np.frombuffer(bytearray(244), np.uint8)[1:241].view(np.float32).reshape(6, 10)
    assert call(odd, np.zeros((6, 10), np.float32)) == calling.NO_ROOM
    numbers = eager.of_any_size(ROWS["add"], np.dtype(np.float64), (False, True))
    out = np.zeros(70001)
    assert numbers(np.arange(70001.0), np.array(2.0), out) == calling.DONE and out[-1] == 70002 and out[0] == 2
    assert numbers(np.empty(0), np.array(2.0), np.empty(0)) == calling.DONE


def test_threads_of_python_run_one_row_at_once():
    x = gl.randn(300, 400)
    wanted = F.layer_norm(F.gelu(x), (400,))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: F.layer_norm(F.gelu(x), (400,)), range(24)):
            assert gl.equal(found, wanted)
