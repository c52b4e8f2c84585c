"""A new row is its row: vmap, traces, ONNX, compiled programs and the (emulated) GPU follow from what it says, without a word elsewhere."""

import importlib
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd.record import bind
from gradlab.backends.cuda import fallback
from gradlab.func import vmap
from gradlab.graph import trace
from gradlab.op import Op
from gradlab.ops.batching import rule_of

SOURCE = '''
import numpy as np
from gradlab.kernel import Elementwise, Reduction
from gradlab.op import Op
from gradlab.ops.reduction import reduced, spread
from gradlab.spec import broadcast, same

softer = Op("test_softer", same, params=("limit",), promote="float",
            cpu=lambda x, y, *, limit: np.divide(x, 1 + np.abs(x) / limit, out=y),
            cuda=Elementwise("x / (T(1) + abs(x) / T(limit))"),
            grad={"x": lambda g, x, limit: g / (1 + x.abs() / limit) ** 2})
leaning = Op("test_leaning", broadcast, promote="same", cpu=lambda a, b, y: np.copyto(y, np.where(a > b, a - b, b * a)),
             cuda=Elementwise("a > b ? a - b : b * a"),
             grad={"a": lambda g, a, b: g.where(a > b, g * b), "b": lambda g, a, b: (-g).where(a > b, g * a)})


def cubes_cpu(x, y, *, dim, keepdim):
    np.sum(x * x * x, axis=dim, keepdims=keepdim, out=y)
    y /= np.prod([x.shape[d] for d in dim])


cubes = Op("test_cubes", reduced, params=("dim", "keepdim"), cpu=cubes_cpu, cuda=Reduction("x * x * x", "a + b", "T(0)", "a / T(n)"),
           grad={"x": lambda g, x, x_spec, dim, keepdim:
                 spread(g, x_spec, dim, keepdim) * (3 * x * x) / int(np.prod([x_spec.shape[d] for d in dim]))})


def steepest_cpu(x, y, *, dim, keepdim):
    np.amax(np.exp(x), axis=dim, keepdims=keepdim, out=y)


steepest = Op("test_steepest", reduced, params=("dim", "keepdim"), cpu=steepest_cpu,
              cuda=Reduction("exp(x)", "maximum(a, b)", "T(0)", "a"))
'''


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows_of_a_test.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module("rows_of_a_test")
    finally:
        sys.path.remove(str(folder))
    return {name: (row, bind(row)) for name, row in vars(module).items() if isinstance(row, Op)}


X, Y = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6), np.linspace(1, -1.3, 24, dtype=np.float32).reshape(4, 6)
CALLS = {
    "softer": ((X,), {"limit": 1.5}),
    "leaning": ((X, Y), {}),
    "cubes": ((X,), {"dim": (0,), "keepdim": False}),
    "steepest": ((X,), {"dim": (1,), "keepdim": True}),
}
each = pytest.mark.parametrize("name", CALLS)


def expected(row, arrays, params):
    return np.asarray(row(*arrays, **params))


@each
def test_vmap(rows, name):
    row, call = rows[name]
    arrays, params = CALLS[name]
    stacks = [np.stack([a, a[::-1] / 2, a + 1]) for a in arrays]
    got = vmap(lambda *xs: call(*xs, **params))(*map(gl.tensor, stacks))
    want = np.stack([expected(row, [s[i] for s in stacks], params) for i in range(3)])
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    assert rule_of(row) is not None, "samples would be taken one by one"


@each
def test_trace_and_gradient(rows, name):
    row, call = rows[name]
    arrays, params = CALLS[name]
    program = trace(lambda *xs: call(*xs, **params), *map(gl.tensor, arrays))
    others = [a * 0.7 for a in arrays]
    np.testing.assert_allclose(program(*map(gl.tensor, others)).numpy(), expected(row, others, params), rtol=1e-6)
    if row.steps:
        assert gl.autograd.gradcheck(lambda *xs: call(*xs, **params), [gl.tensor(a, dtype=gl.float64).requires_grad_() for a in arrays])


@each
def test_compiled(rows, name):
    row, call = rows[name]
    arrays, params = CALLS[name]
    compiled = gl.compile(lambda *xs: call(*[x * 2 for x in xs], **params) + 1)
    for factor in (1, 0.5, 2):
        got = compiled(*[gl.tensor(a * factor) for a in arrays])
        np.testing.assert_allclose(got.numpy(), expected(row, [a * 2 * factor for a in arrays], params) + 1, rtol=2e-6, atol=1e-6)
    assert len(compiled.programs) == 1


@each
def test_onnx(rows, name, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    row, call = rows[name]
    arrays, params = CALLS[name]
    gl.onnx.export(lambda *xs: call(*xs, **params), tuple(map(gl.tensor, arrays)), tmp_path / "row.onnx")
    session = runtime.InferenceSession(tmp_path / "row.onnx")
    (got,) = session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})
    np.testing.assert_allclose(got, expected(row, arrays, params), rtol=1e-5, atol=1e-6)


@each
def test_on_a_gpu(rows, name, cuda):
    row, call = rows[name]
    arrays, params = CALLS[name]
    before = dict(fallback.counts)
    got = call(*[gl.tensor(a, device="cuda") for a in arrays], **params)
    np.testing.assert_allclose(got.cpu().numpy(), expected(row, arrays, params), rtol=1e-5, atol=1e-6)
    assert fallback.counts == before, "a kernel, not the host"


def plain(x):
    return x


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"params": ("x",)}, "share a name"),
        ({"params": ("p",), "outputs": ("p",)}, "share a name"),
        ({"grad": {"x": lambda g, z: g}}, r"names \['z'\]"),
        ({"grad": {"z": lambda g: g}}, "names"),
        ({"view": True}, "needs an inverse"),
        ({"dynamic": True}, "says what to use instead"),
    ],
)
def test_what_a_row_says_has_to_fit(said, words):
    with pytest.raises(ValueError, match=f"row odd: .*{words}"):
        Op("odd", plain, cpu=plain, **said)
