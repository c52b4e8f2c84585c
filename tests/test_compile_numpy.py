"""Programs without a compiler: text of calls, blocks, kept gates, updates at once, rows in pieces; all against eager."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.openblas import scaled_sum
from gradlab.graph import trace
from gradlab.graph.executables.numpy import row_threads
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable
from gradlab.graph.executables.numpy.shared_exponentials import keeping
from gradlab.graph.executables.numpy.source_text import Writing
from gradlab.graph.passes import optimize
from gradlab.nn import functional as F

rng = np.random.default_rng(3)


def normal(*shape, dtype="float32"):
    return gl.from_numpy(rng.normal(size=shape).astype("float64")).to(getattr(gl, dtype))


def executable_of(function, tensors):
    graph = optimize(trace(function, *tensors).graph)
    return NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))


def ran(executable, tensors):
    """The results of a second run: the first one's values lie in the arena."""
    for _ in range(2):
        outs = [np.ones(v.spec.shape, v.spec.dtype) for v in executable.line.outputs]
        executable.run([t._array for t in tensors], outs)
    return outs


def same(function, tensors, tolerance=1e-6):
    """A program gives what eager gives; the executable."""
    executable = executable_of(function, tensors)
    wanted = function(*tensors)
    for got, want in zip(ran(executable, tensors), wanted if isinstance(wanted, (list, tuple)) else [wanted], strict=True):
        np.testing.assert_allclose(got.astype("float64"), want.detach().numpy().astype("float64"), rtol=tolerance, atol=tolerance)
    return executable


def test_text_names_objects_once():
    writing = Writing("test")
    array = np.zeros(2, "f")
    assert writing.name(array) == writing.name(array) != writing.name(np.zeros(2, "f"))
    lines = [writing.call(np.cos, [writing.name(array), "a"]), writing.call(np.negative, ["a", "a"])]
    run = writing.function(["a"], lines)
    out = np.empty(2, "f")
    run(out)
    assert out.tolist() == [-1, -1]
    assert writing.function([], [])() is None


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5), (600, 700), (1 << 18, 1), (3, 1 << 17)])
@pytest.mark.parametrize("count", [1, 2])
def test_chains_in_blocks(shape, count, monkeypatch):
    monkeypatch.setattr(row_threads, "threads", lambda: count)
    x, y, s = normal(*shape), normal(*shape), normal()
    row = normal(*shape[-1:])

    def function(x, y, s, row):
        z = (x * s + y).sigmoid() * 2 - row
        return z, F.silu(z * x) + 1, (z > 0).logical_and(y < 1)

    same(function, [x, y, s, row], 2e-6)
    same(lambda x, y, s, row: (x.T * 2 + s if x.ndim == 2 else x * s, y.abs().sqrt()), [x, y, s, row])


def test_blocks_of_arguments_that_are_strided_or_repeated():
    x, thin, column = normal(1200, 901), normal(1, 900), normal(600, 1)
    same(lambda x, thin, column: ((x[::2, 1:] * thin + column - x[1::2, :-1]).relu() * column,), [x, thin, column])
    same(lambda x: (x.T + x.T * 0.5 - 1,), [x])


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_kept_gates(name, dtype):
    activation = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}[name]
    edge = gl.tensor([0.0, -0.0, 5.0, -5.0, 30.0, -30.0, 1e-20, -200.0]).to(getattr(gl, dtype))
    x = gl.cat([normal(5000, dtype=dtype) * 3, edge])

    def function(x):
        x = x.detach().requires_grad_()
        y = activation(x) * 0.5
        (dx,) = gl.autograd.grad((y * y).sum(), [x])
        return y, dx

    executable = same(function, [x], {"float32": 3e-6, "float64": 1e-12, "bfloat16": 1e-2}[dtype])
    names = [c.op.name for c in executable.line.calls]
    assert f"{name}_gate" in names and f"{name}_slope" in names and f"{name}_backward" not in names


def test_gates_are_kept_only_where_there_is_a_derivative():
    x = normal(10)
    assert all(not c.op.name.endswith("_gate") for c in same(lambda x: (F.silu(x), F.gelu(x)), [x]).line.calls)
    graph = trace(lambda x: F.silu(x), x).graph
    line = Line(graph.calls, graph.inputs, {}, graph.outputs, [])
    assert keeping(line) is line


def test_half_types_are_widened_between_the_rows_that_need_it():
    x, w = normal(300, 400, dtype="float16"), normal(300, 400, dtype="float16")

    def function(x, w):
        for _ in range(3):
            x = (x * w).tanh() + w.sigmoid()
        return x, x.sum(0), x.amax(1)

    executable = executable_of(function, [x, w])
    for got, want in zip(ran(executable, [x, w]), function(x, w), strict=True):
        assert np.array_equal(got, want.numpy())  # the same roundings


OPTIMIZERS = {
    "SGD": {"weight_decay": 0.1}, "SGD nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "SGD momentum": {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}, "SGD maximize": {"momentum": 0.9, "maximize": True},
    "Adam": {"weight_decay": 0.1}, "AdamW": {"weight_decay": 0.1}, "Adam amsgrad": {"amsgrad": True}, "RMSprop": {}, "Adagrad": {},
    "NAdam": {}, "RAdam": {}, "Adadelta": {}, "Adamax": {}, "Rprop": {}, "ASGD": {},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_at_once_and_in_fewer_passes(name, dtype, monkeypatch):
    """Small parameters, among them one that joins later and one of one number, and large ones, one with a transposed gradient."""
    monkeypatch.setenv("GRADLAB_COMPILER", "none")
    compiler.compiles.cache_clear()
    try:
        start = [normal(*shape, dtype=dtype) for shape in ((3, 4), (5,), (), (1,), (70, 90), (700, 500))]
        x, rows = normal(90, 8, dtype=dtype), normal(500, 6, dtype=dtype)
        found = []
        for compiled in (False, True):
            params = [gl.nn.Parameter(t.clone()) for t in start]
            optimizer = getattr(gl.optim, name.split()[0])(params, lr=0.01, **OPTIMIZERS[name])
            params[1].grad = gl.ones(5).to(params[1].dtype)
            optimizer.step()  # one parameter has done a step more than the others

            def step(x, rows, params=params, optimizer=optimizer):
                a, b, c, d, e, f = params
                loss = (a * a).sum() + (b * 3).sin().sum() + c * d.sum() + ((e @ x).tanh() ** 2).sum() + ((f @ rows) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss

            run = gl.compile(step) if compiled else step
            losses = [run(x, rows).item() for _ in range(6)]
            found.append((losses, [p.detach().numpy() for p in params]))
        (eager, wanted), (losses, got) = found
        assert all(map(math.isfinite, eager))
        tolerance = 2e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(losses, eager, rtol=tolerance)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance * 10, atol=tolerance)
    finally:
        compiler.compiles.cache_clear()


def test_scaled_sums():
    for dtype in ("float32", "float64"):
        add = scaled_sum(np.dtype(dtype))
        if add is None:
            pytest.skip("NumPy has another library")
        for n in (0, 1, 7, 100_003):
            x, y = rng.normal(size=n).astype(dtype), rng.normal(size=n).astype(dtype)
            wanted = 0.25 * x - 2 * y
            add(0.25, x, -2, y)
            np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)
    assert scaled_sum(np.dtype("int64")) is None


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shape", [(8, 16, 40, 41), (64, 3, 50, 50), (2, 300, 500), (3000, 130)])
def test_batch_norm_in_pieces(shape, count, monkeypatch):
    monkeypatch.setattr(row_threads, "threads", lambda: count)
    x, w, b = normal(*shape), normal(shape[1]), normal(shape[1])

    def function(x, w, b):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        y = F.batch_norm(x, None, None, w, b, training=True)
        return [y, *gl.autograd.grad((y**3).sum(), [x, w, b])]

    same(function, [x, w, b], 2e-3)
