"""Arrays of different shapes in rows of two inputs: kernels that are kept by shapes and strides beside NumPy's functions."""

import threading

import numpy as np
import pytest
from native_eager import kernels, needs_compiler
from numpy.lib.stride_tricks import as_strided

import gradlab as gl
from gradlab.autograd.recall import rounds_once
from gradlab.autograd.record import bind
from gradlab.backends.native import calling, eager, thresholds
from gradlab.ops import ROWS
from gradlab.spec import broadcast, broadcast_bool

pytestmark = needs_compiler
PAIRS = sorted(
    name for name, op in ROWS.items()
    if len(op.inputs) == 2 and not op.params and op.rule in (broadcast, broadcast_bool) and thresholds.threshold(op) != thresholds.NEVER
)  # fmt: skip
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -2.5, 3.0]
WAYS = {  # of a matrix and another one, what is computed with: shapes, and how they lie
    "row": lambda a, b: (a, b[0]),
    "row first": lambda a, b: (b[0], a),
    "column": lambda a, b: (a, b[:, :1]),
    "dense column": lambda a, b: (a, b[:, :1].copy()),
    "column and row": lambda a, b: (a[:, :1], b[:1]),
    "expanded": lambda a, b: (as_strided(a[0], a.shape, (0, a.itemsize))[:, None], b[None]),
    "transposed": lambda a, b: (a.T, b[:, 0]),
    "turned round": lambda a, b: (a[::-1, ::-1], b[0, ::-1]),
    "every other": lambda a, b: (a[:, ::2], b[0, ::2]),
    "a number in an array": lambda a, b: (a, b[:1, :1]),
    "no dimension": lambda a, b: (b[:1, :1].reshape(()), a),
    "nothing": lambda a, b: (a[:0], b[0]),
    "nothing beside a column": lambda a, b: (a[:, :0], b[:, :1]),
    "five dimensions": lambda a, b: (a.reshape(1, -1, 2, 1, 3), b.reshape(-1)[:6].reshape(1, 1, 2, 3)[:, :, :, None]),
}


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        thresholds.attach(ROWS.values())  # as they are measured
        yield


@pytest.fixture(scope="module")
def matrices():
    random, found = np.random.default_rng(3), {}
    for shape in ((6, 6), (48, 36)):
        pair = [np.round(random.normal(0, 2, shape), 1) for _ in range(2)]
        pair[0].reshape(-1)[:8], pair[1].reshape(-1)[:8] = SPECIAL, SPECIAL[::-1]
        pair[1][0, -3:] = SPECIAL[:3]
        found[shape] = pair
    return found


def without_kernels(work):
    before = {op: op.pays for op in thresholds.attached.values()}
    thresholds.switch_off()
    try:
        return work()
    finally:
        for op, pays in before.items():
            op.pays = pays


@pytest.mark.parametrize("name", PAIRS)
def test_every_row_of_two_inputs(name, matrices):
    op, same = ROWS[name], rounds_once(ROWS[name])
    call = bind(op)
    for shape, pair in matrices.items():
        for dtype in (np.float32, np.float64):
            a, b = (m.astype(dtype) for m in pair)
            for way, arrange in WAYS.items():
                x, y = map(gl.from_numpy, arrange(a, b))
                try:
                    want = without_kernels(lambda x=x, y=y: call(x, y))
                except TypeError:  # a row of integers
                    pytest.skip("no floats")
                for _ in range(3):  # the first one makes the plan, and what did it last is asked first
                    got = call(x, y)
                    said = f"{name}, {way}, {shape}, {dtype.__name__}"
                    assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride(), said
                    if same:
                        np.testing.assert_array_equal(got.numpy(), want.numpy(), said)
                        if want.dtype != gl.bool and name not in ("fmax", "fmin"):  # of two zeros either is the larger one
                            assert (np.signbit(got.numpy()) == np.signbit(want.numpy()))[~np.isnan(want.numpy())].all(), said
                    else:
                        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=3e-5, atol=2e-6, err_msg=said)


def test_such_arrays_have_kernels():
    x, row, column = gl.randn(16, 16), gl.randn(16), gl.randn(16, 16)[:, :1]
    eager.plans.clear()
    for kept in eager.remembered:
        kept.clear()
    for y in (row, column, column.contiguous()):
        x + y
    plans = {key[0]: plan for key, plan in eager.plans.items()}
    assert plans["rows"] is not None and plans["strides"] is not None
    assert plans["strides"].call(x._array, row._array) == calling.OTHER  # one array is missing
    assert plans["strides"].call(x._array, column.contiguous()._array, np.empty((16, 16), "f")) == calling.OTHER
    assert plans["strides"].call(x._array, column[:, 0]._array, np.empty((16, 16), "f")) == calling.OTHER


def test_gradients_hooks_and_versions():
    def work():
        gl.manual_seed(0)
        x, row, column = (gl.randn(*shape).requires_grad_() for shape in ((12, 20), (20,), (12, 1)))
        seen = []
        row.register_hook(lambda g: seen.append(g.clone()))
        y = x * row + column / (x.detach()[:, :1] ** 2 + 1) - gl.maximum(column, row)
        grads = gl.autograd.grad(y.sin().sum(), (x, row, column), create_graph=True)
        more = gl.autograd.grad(sum((g * g).sum() for g in grads), (x, row, column))
        mapped = gl.vmap(lambda a, b: a * b + b)(x.detach(), column.detach())
        with gl.autocast("cpu", dtype=gl.bfloat16):
            low = x.detach() * row.detach()
        return [y, *grads, *more, *seen, mapped, low.float()]

    for got, want in zip(work(), without_kernels(work), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    x, row = gl.randn(4, 6), gl.randn(6)
    before, version = x.clone(), x._version
    x += row
    assert x._version == version + 1 and (x == before + row).all()
    target = gl.empty(4, 6)
    assert gl.add(before, row, out=target) is target and (target == x).all()
    view = before[:, :1]
    assert ((before - view)[:, 0] == 0).all()
    before += view  # what is read is written as well
    assert (before[:, 0] == (x - row)[:, 0] * 2).all() or gl.allclose(before[:, 0], (x - row)[:, 0] * 2)
    with pytest.raises(ValueError, match="add: "):
        x + gl.randn(5)


def test_threads_with_arrays_that_lie_differently():
    x, column = gl.randn(40, 40), gl.randn(40, 40)
    want = (x * column[:, :1]).numpy().copy()
    wrong = []

    def work(y):
        wrong.extend(1 for _ in range(300) if not np.array_equal((x * y).numpy(), want))

    ways = column[:, :1], column[:, :1].contiguous(), column.mT.contiguous().mT[:, :1]
    threads = [threading.Thread(target=work, args=(y,)) for y in ways]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
