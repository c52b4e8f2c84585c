"""Families of rows that run as machine code: values against eager, nothing left in NumPy, errors as the rows raise them."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.passes import optimize
from gradlab.nn import functional as F

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
rng = np.random.default_rng(5)
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 1e-2, "float16": 2e-3, "int64": 0, "int32": 0}


def normal(*shape, dtype="float32"):
    return gl.from_numpy(rng.normal(size=shape)).to(getattr(gl, dtype))


def whole(high, *shape):
    return gl.from_numpy(rng.integers(0, high, shape))


def executable_of(function, tensors):
    graph = optimize(trace(function, *tensors).graph)
    return NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))


def check(function, *tensors, dtype="float32", numpy=()):
    """A program gives what eager gives, twice, and only the rows `numpy` run in NumPy."""
    executable = executable_of(function, tensors)
    for _ in range(2):
        outs = [np.ones(v.spec.shape, v.spec.dtype) for v in executable.line.outputs]
        executable.run([t._array for t in tensors], outs)
    for got, want in zip(outs, function(*tensors), strict=True):
        wanted = want.detach().numpy()
        assert got.dtype == wanted.dtype
        exact = wanted.dtype.kind in "biu"
        tolerance = 0 if exact else TOLERANCE[dtype]
        scale = max(1.0, np.nanmax(np.abs(wanted.astype("float64")), initial=0, where=np.isfinite(wanted.astype("float64"))))
        np.testing.assert_allclose(got.astype("float64"), wanted.astype("float64"), rtol=tolerance, atol=tolerance * scale)
    left = {c.op.name for step in executable.report if step.kind == "numpy" for c in step.calls}
    assert left == set(numpy), left
    return executable


def gradients(function, inputs):
    """The results, and the gradients of their sum of squares."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    y = function(*leaves)
    return [y, *gl.autograd.grad((y.float() * y.float()).sum(), leaves)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_indexing(dtype):
    x, rows, at, pairs = normal(7, 5, 33, dtype=dtype), normal(6, 5, 33, dtype=dtype), whole(7, 6), whole(5, 4, 3)
    places = whole(5, 7, 9, 33)
    values = normal(7, 9, 33, dtype=dtype)

    def function(x, rows, at, pairs, places, values):
        def picked(x, rows, values):
            y = x[at] * 2 + rows + x[at - 7]
            z = x[:, pairs].mean((0, 2)) + x[pairs, pairs].mean(1) if dtype != "float64" else x[:, pairs].sum(0).mean(1)
            g = x.gather(1, places) * values
            s = x.scatter_add(1, places, values) + x.scatter(1, places[:, :1], 3.0)
            return y.sum() + z.sum() + (g * g).mean() + (s * s).mean()

        put = x.index_put((at,), rows)
        return [
            x[at], x[:, pairs], x.gather(1, places), x.scatter(1, places[:, :1], values[:, :1]), x.scatter_add(1, places, values),
            put, x.index_put((at,), rows, accumulate=True), x.index_add(0, at, rows), x[2:5][:, whole_at],
            *gradients(picked, [x, rows, values]),
        ]  # fmt: skip

    whole_at = gl.tensor([0, 4, 4, 1])
    check(function, x, rows, at, pairs, places, values, dtype=dtype)


def test_indexing_of_one_column_in_ints_and_of_strided_tensors():
    x, at = whole(100, 40, 3), whole(40, 90)
    y = normal(30, 40)

    def function(x, at, y):
        return [x[at], y.T[at], y.T.gather(0, at[:60].reshape(2, 30)), x.scatter_add(0, at[:80].reshape(40, 2)[:, :1].expand(40, 3), x)]

    executable = executable_of(function, (x, at, y))
    assert executable is not None
    check(function, x, at, y)


@pytest.mark.parametrize("bad", [7, -8])
def test_an_index_outside_raises_what_the_row_raises(bad):
    x, at = normal(7, 3), gl.tensor([0, 1, 2])
    wide = {"gather": lambda x, at: x.gather(0, at.reshape(3, 1).expand(3, 3)), "add": lambda x, at: x.index_add(0, at, x[:3])}
    for function in (lambda x, at: x[at] * 2, *wide.values()):
        step = gl.compile(function)
        for _ in range(3):
            step(x, at)
        with pytest.raises(IndexError, match=r"out of range|index"):
            step(x, gl.tensor([0, bad, 2]))
        np.testing.assert_allclose(step(x, at).numpy(), function(x, at).numpy(), rtol=1e-6)


def test_views_of_nothing():
    """As a series without further columns has them."""
    check(lambda x: [gl.cat([x * 2, x[:, 3:]], 1)], normal(4, 3))
    check(lambda x: [x[:, 3:].flatten(1) + 1, x * 2], normal(4, 3, 2))


def test_operands_with_gaps():
    """Columns of indices, and gradients that were turned: they are copied, not left to NumPy."""
    table, at = normal(7, 5), whole(7, 6, 3)
    check(lambda t, i: gradients(lambda a: F.embedding(i[:, 1], a), [t]), table, at)
    x, w, b = normal(6, 4, 8), normal(8), normal(8)
    turned = lambda a, u, v: F.layer_norm(a.transpose(0, 1), (8,), u, v).transpose(0, 1) * 1.5
    check(lambda *t: gradients(turned, t), x, w, b)
    check(lambda a, u: gradients(lambda p, q: F.rms_norm(p.transpose(0, 1), (8,), q), [a, u]), x, w)
    check(lambda a, c: [F.mse_loss(a.T, c)], normal(4, 6), normal(6, 4))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64"])
def test_scattered_reductions(dtype):
    x = (normal(5, 4) * 9).to(getattr(gl, dtype))
    source = (normal(8, 4) * 9).to(getattr(gl, dtype))
    at = whole(5, 8, 4)
    for reduce in ("amax", "amin", "prod"):
        check(lambda a, i, b, r=reduce: [a.scatter_reduce(0, i, b, r)], x, at, source, dtype=dtype)
    check(lambda a, i, b: [a.scatter_reduce(0, i, b, "amax", include_self=False)], x, at, source, dtype=dtype, numpy={"scatter_reduce"})
    if dtype.startswith("float"):
        source[2, 1] = float("nan")
        check(lambda a, i, b: [a.scatter_reduce(0, i, b, "amax"), a.scatter_reduce(0, i, b, "amin")], x, at, source, dtype=dtype)
        with pytest.raises(IndexError):
            compiled = gl.compile(lambda a, i, b: a.scatter_reduce(0, i, b, "amax"))
            for _ in range(3):
                compiled(x, at, source)
            compiled(x, at + 5, source)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_lines(dtype):
    x = normal(4, 70, 67, dtype=dtype)

    def function(x):
        found = [x.argmax(1), x.argmin(2), x.argmax(), x.cumsum(1), x.cumprod(2), *x.sort(1), *x.sort(2, descending=True), *x.topk(3, 1)]
        found += [*x.max(1), *x.min(2), *x.topk(5, 2, largest=False), x.prod(1), (x > 0).any(1), (x > -9).all(), (x > 1).all(2)]
        return [*found, x.flip(1), x.flip((0, 2)), x.tril(3), x.triu(-2), gl.diag_embed(x[:, 0, :5]), x.permute(2, 1, 0).argmax(1)]

    check(function, x, dtype=dtype)


def test_extremes_of_nan_ties_and_integers():
    x = gl.tensor([[1.0, float("nan"), 3.0, float("nan")], [2.0, 2.0, 1.0, 2.0], [-float("inf"), -float("inf"), -1.0, -1.0]])
    y = whole(4, 9, 50)

    def function(x, y):
        found = []
        for t in (x, y, y.to(gl.int32), y.to(gl.uint8)):
            found += [*t.max(1), *t.min(0), t.argmax(0), *t.sort(1), *t.topk(2, 1), t.sum(1), t.amax(0), t.cumsum(0), t.prod(0)]
        return found

    check(function, x, y)


def test_lines_have_gradients():
    def function(x):
        return x.max(1)[0] + x.topk(4, 1)[0].sum(1) + x.cumsum(1).mean(1) + x.sort(1)[0][:, 3]

    check(lambda x: gradients(function, [x]), normal(30, 40))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_softmax_and_losses(dtype):
    x, w, b, target = normal(6, 5, 8, dtype=dtype), normal(8, dtype=dtype), normal(8, dtype=dtype), whole(5, 6, 8)

    def function(x, w, b, target):
        def computed(x, w, b):
            y = F.layer_norm(x, (8,), w, b) + F.rms_norm(x, (8,), w) + F.softmax(x, 1) * F.log_softmax(x, 0) + F.softmax(x, -1)
            return y + F.batch_norm(x, None, None, w[:5], b[:5], training=True)

        def losses(x):
            masked = gl.where(target == 1, -100, target)
            one = F.cross_entropy(x, masked) + F.cross_entropy(x, target, reduction="sum")
            one = one + F.cross_entropy(x, masked, reduction="none").mean()
            return one + F.nll_loss(x, masked) + F.mse_loss(x, x * 2) + F.cross_entropy(x, target, weight=w[:5].abs(), label_smoothing=0.1)

        return [*gradients(computed, [x, w, b]), *gradients(losses, [x])]

    check(function, x, w, b, target, dtype=dtype)


def test_rows_of_several():
    """Rows that are written as others: what follows a layer, norms of sums, embeddings with positions."""
    x, w, b, n, table, at = normal(12, 16), normal(16, 16), normal(16), normal(16), normal(9, 16), whole(9, 3, 4)

    def function(x, w, b, n, table, at):
        def computed(x, w, b, n, table):
            y = F.linear_activation(x, w, b, activation="relu") + F.linear_activation(x, w, b, activation="gelu_tanh")
            y, s = F.add_layer_norm(y, x, (16,), n, b)
            z, r = F.add_rms_norm(y + s, x, (16,), n)
            return z + r + F.embedding_add(at, table, x).reshape(12, 16)

        return gradients(computed, [x, w, b, n, table])

    check(function, x, w, b, n, table, at)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_rows_have_eager_bits(dtype):
    x = normal(1001, dtype=dtype)

    def draw(x):
        y = F.dropout(x, 0.3) + F.dropout(x[:7], 0.5).sum() * 0
        coins = gl.bernoulli(x.sigmoid())
        return y, coins, gl.rand(1001, dtype=x.dtype) * 2 + x.new_empty(3, 5).uniform_(-2, 7).mean() * 0, F.dropout(x, 1.0)

    step = gl.compile(draw)
    for seed in range(5):
        gl.manual_seed(seed)
        wanted = [t.numpy() for t in (*draw(x), *draw(x))]
        gl.manual_seed(seed)
        got = [t.numpy() for t in (*step(x), *step(x))]
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    report = step.programs[0].runner.executable.report
    assert not [c.op.name for s in report if s.kind == "numpy" for c in s.calls]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_windows_and_resampling(dtype):
    x, line = normal(2, 3, 7, 9, dtype=dtype), normal(2, 3, 11, dtype=dtype)

    def function(x, line):
        def computed(x):
            y = F.interpolate(x, scale_factor=2.0, mode="bilinear") + F.interpolate(x, (14, 18), mode="nearest")
            y = y + F.interpolate(x, (14, 18), mode="bicubic", align_corners=True)
            columns = F.unfold(x, (3, 2), dilation=(2, 1), padding=(2, 1), stride=(1, 2))
            back = F.fold(columns * 2, (7, 9), (3, 2), dilation=(2, 1), padding=(2, 1), stride=(1, 2))
            return y.mean() + back.sum() + F.pad(x, (2, 3, 1, 0), mode="reflect").mean()

        unfolded = F.unfold(x, 3, padding=4)
        return [F.interpolate(x, (3, 4)), F.interpolate(line, 4, mode="linear"), unfolded, *gradients(computed, [x])]

    check(function, x, line, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_small_products(dtype):
    def function(*tensors):
        found = []
        for a, b in zip(tensors[::2], tensors[1::2], strict=True):
            found.append(a @ b)
            if a.shape == b.shape:
                found.append(a.transpose(-1, -2) @ b.transpose(-1, -2))
        return found

    pairs = [((12, 5, 7), (12, 7, 3)), ((9, 8, 8), (9, 8, 8)), ((2, 4, 1, 3), (2, 4, 3, 13)), ((3, 4, 6, 16), (1, 4, 16, 1))]
    pairs.append(((8, 4, 5), (5, 16)))
    check(function, *[normal(*shape, dtype=dtype) for pair in pairs for shape in pair], dtype=dtype)


def test_limits():
    x = gl.cat([normal(1000) * 3, gl.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])])

    def function(x):
        found = [x.clamp(-1, 1), x.clamp(min=0.0), x.clamp(max=0.0), x.clamp(1, -1), x.clamp(float("nan"), 1.0)]
        found += [F.relu6(x), F.hardtanh(x, -2, 0.5), F.hardswish(x), F.hardsigmoid(x)]
        return [*found, (x * 10).nan_to_num(0, 9, -9).int().clamp(-3, 4)]

    check(function, x)


def test_gru():
    layer = nn.GRU(5, 17, batch_first=True)
    parameters = list(layer.parameters())
    x, h = normal(3, 4, 5), normal(1, 3, 17)

    def function(x, h, *parameters):
        y, last = layer(x, h)
        return [y, last, *gl.autograd.grad((y * y).sum() + last.sum(), [h, *parameters_of])]

    h.requires_grad_()
    parameters_of = parameters
    check(function, x, h)


OPTIMIZERS = {
    "Adam": {"amsgrad": True, "weight_decay": 0.1}, "RMSprop": {"weight_decay": 0.1},
    "RMSprop centered": {"centered": True, "momentum": 0.9}, "RMSprop momentum": {"momentum": 0.9},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.1}, "Adadelta": {"weight_decay": 0.1}, "Adamax": {"weight_decay": 0.1},
    "NAdam": {"weight_decay": 0.1}, "NAdam decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"weight_decay": 0.1}, "Lion": {"weight_decay": 0.1}, "RMSprop maximize": {"maximize": True},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_optimizers(dtype):
    """All of them in one program, over parameters of several sizes, one with a transposed gradient."""
    x, rows = normal(90, 8, dtype=dtype), normal(50, 6, dtype=dtype)
    start = [normal(*shape, dtype=dtype) for shape in ((3, 4), (1,), (70, 90), (60, 50))]
    found = []
    for compiled in (False, True):
        params = {name: [nn.Parameter(t.clone()) for t in start] for name in OPTIMIZERS}
        optimizers = {name: getattr(gl.optim, name.split()[0])(params[name], lr=0.01, **options) for name, options in OPTIMIZERS.items()}

        def step(x, rows, params=params, optimizers=optimizers):
            losses = []
            for name, (a, d, e, f) in params.items():
                losses.append((a * a).sum() + d.exp().sum() + ((e @ x * 0.05).tanh() ** 2).sum() + ((f @ rows) ** 2).mean())
                optimizers[name].zero_grad()
            sum(losses).backward()
            for optimizer in optimizers.values():
                optimizer.step()
            return losses

        run = gl.compile(step) if compiled else step
        for _ in range(7):
            losses = [loss.item() for loss in run(x, rows)]
        found.append((losses, [p.detach().numpy() for own in params.values() for p in own]))
        if compiled:
            report = run.programs[0].runner.executable.report
            assert not [c.op.name for s in report if s.kind == "numpy" for c in s.calls]
    (losses, got), (eager, wanted) = found[::-1]
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(losses, eager, rtol=tolerance)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance * 10, atol=tolerance)
