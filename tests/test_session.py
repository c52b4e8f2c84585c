"""Graphs and sessions: fetching, feeding, pruning, control flow, pictures."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import nn, ops
from gradlab.backends import cpu
from gradlab.graph.staging.symbol import TraceError
from gradlab.session import FeedError, Graph, Session, UninitializedError


@pytest.fixture
def g():
    gl.manual_seed(0)
    return gl.Graph()


def started(g, **options):
    s = gl.Session(g, **options)
    s.run(initializer(g))
    return s


def initializer(g):
    with g.as_default():
        return gl.global_variables_initializer()


# ---------------------------------------------------------------- nothing is computed while defining


def test_no_row_runs_while_a_graph_is_defined(g, monkeypatch):
    ran = []
    run = cpu.CpuBackend.run
    monkeypatch.setattr(cpu.CpuBackend, "run", lambda self, op, arrays, params: ran.append(op.name) or run(self, op, arrays, params))
    for row in ops.ROWS.values():  # the fast paths call the rows' functions themselves
        monkeypatch.setattr(row, "cpu", lambda *args, cpu=row.cpu, name=row.name, **kwargs: ran.append(name) or cpu(*args, **kwargs))
    outside = nn.Linear(4, 4)
    ran.clear()
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 3, 8, 8])
        y = gl.placeholder(gl.int64, [None])
        conv = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4))
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), 2)
        hidden = encoder(nn.LSTM(4, 4, batch_first=True)(conv(x).unsqueeze(1))[0])[:, 0]
        logits = outside(nn.Embedding(5, 4, padding_idx=0)(y) + hidden) + gl.Variable(np.ones(4, "f")) + gl.tensor([1.0, 2, 3, 4])
        for weight in (nn.Parameter(gl.empty(4, 4)) for _ in range(3)):
            nn.init.orthogonal_(weight)
            nn.init.trunc_normal_(weight)
        loss = F.cross_entropy(logits, y) + gl.scan(lambda c, v: (c + v, c), gl.zeros(4), logits)[0].sum()
        params = [*conv.parameters(), *encoder.parameters(), *outside.parameters()]
        gl.optim.Adam(params).minimize(loss)
        gl.optim.SGD(params, momentum=0.9, dampening=0.5).minimize(loss)
    assert ran == []
    ran.clear()
    with gl.inference_mode():
        gl.tensor([1.0, 2.0]).cumsum(0)
    assert ran  # the counter counts


# ---------------------------------------------------------------- fetches


def test_structures_of_fetches(g):
    Pair = namedtuple("Pair", "a b")
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 2], name="x")
        v = gl.Variable([1.0, 2.0], name="v")
        y = x * v
        add = v.assign_add(gl.ones(2))
        total = y.sum()
        train = gl.optim.SGD([v], lr=0.5).minimize(total)
    with gl.Session(g) as s:
        assert s.run(gl.global_variables_initializer()) is None
        feed = {x: [[1, 2], [3, 4]]}
        found = s.run({"y": y, "more": [x, (v, train)], "pair": Pair(total, "v")}, feed)
        np.testing.assert_array_equal(found["y"], [[1, 4], [3, 8]])
        assert type(found["more"]) is list and type(found["more"][1]) is tuple and found["more"][1][1] is None
        np.testing.assert_array_equal(found["more"][1][0], [1, 2])
        assert type(found["pair"]) is Pair and found["pair"].a == 16 and isinstance(found["pair"].a, np.float32)
        assert isinstance(found["y"], np.ndarray) and found["y"].dtype == np.float32
        np.testing.assert_array_equal(s.run(v), [-1, -1])
        np.testing.assert_array_equal(s.run(add), [0, 0])
        assert s.run([]) == [] and s.run({}) == {} and s.run([train], feed) == [None]
        np.testing.assert_array_equal(s.run("mul", feed), s.run(y, feed))


def test_fetching_a_row_with_several_outputs_and_half_types(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None])
        top = x.topk(2)
        half = x.to(gl.bfloat16)
    with gl.Session(g) as s:
        values, indices = s.run([top.values, top.indices], {x: [1, 5, 3]})
        assert values.tolist() == [5, 3] and indices.tolist() == [1, 2]
        assert s.run(half, {x: [1.0]}).dtype.name == "bfloat16"


def test_names(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [2], name="x")
        assert g.nodes["x"] is x
        with g.name_scope("layer"):
            y = gl.identity(x + 1, name="out")
            v = gl.Variable(1.0, name="v")
        with g.name_scope("layer"):
            w = gl.Variable(1.0, name="v")
        _ = x + y, x + 2
        lin, lin2 = nn.Linear(2, 2), nn.Linear(2, 2)
    assert v.name == "layer/v" and w.name == "layer_1/v"
    names = [n.name for n in g.get_operations()]
    assert len(names) == len(set(names)) and "layer/out" in names and "add_1" in names
    assert {"linear.weight", "linear.bias", "linear_1.weight", "linear_1.bias"} <= set(g.nodes) and lin is not lin2
    node = next(n for n in g.get_operations() if n.name == "layer/out")
    assert node.type == "add" and node.inputs == ["x"] and "test_session.py" in node.source and "out" in node.source
    assert "x (float32[2]) = placeholder" in str(g) and "layer/out (float32[2]) = add(x, 1)" in str(g)
    assert "1 placeholders" in repr(g) and g.svg().startswith("<svg") and "layer" in repr(v)
    with gl.Session(g) as s:
        assert s.run("layer/out", {"x": [1, 2]}).tolist() == [2, 3]


def test_default_graph(g):
    with pytest.raises(RuntimeError, match="no default graph"):
        gl.get_default_graph()
    with pytest.raises(RuntimeError, match="as_default"):
        gl.placeholder(gl.float32, [1])
    with pytest.raises(RuntimeError, match="as_default"):
        gl.Variable(1.0)
    other = gl.Graph()
    with g.as_default() as same:
        assert same is g and gl.get_default_graph() is g
        with other.as_default():
            assert gl.get_default_graph() is other
        assert gl.get_default_graph() is g
        assert gl.Session().graph is g
    with gl.Session(other):
        assert gl.get_default_graph() is other
        assert (gl.ones(2) + 1).tolist() == [2, 2]  # a session's block computes eagerly
    with pytest.raises(TypeError, match=r"a gl.Graph"):
        gl.Session("graph")
    with pytest.raises(TraceError, match="compiled or traced"):
        gl.graph.trace(lambda x: g.as_default().__enter__(), gl.ones(1))


def test_a_graph_is_defined_in_several_blocks(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None])
        v = gl.Variable(2.0)
    s = started(g)
    with g.as_default():
        y = x * v
        w = gl.Variable(3.0)
        z = y + w
    assert s.run(y, {x: [1, 2]}).tolist() == [2, 4]
    with pytest.raises(UninitializedError):
        s.run(z, {x: [1]})
    s.run(w.initializer)
    assert s.run(z, {x: [1]}).tolist() == [5]


# ---------------------------------------------------------------- pruning


def test_what_is_not_fetched_is_not_needed_and_does_not_run(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None], name="x")
        y = gl.placeholder(gl.float32, [None], name="y")
        v = gl.Variable(0.0)
        noise = gl.rand(3)
        count = v.assign_add(1.0)
        a, b = x * 2, x + y
    with started(g) as s:
        assert s.run(a, {x: [1]}).tolist() == [2]
        assert s.run([a, b], {x: [1], y: [2]})[1].tolist() == [3]
        before = gl.get_rng_state().tolist()
        s.run(a, {x: [1]})
        assert gl.get_rng_state().tolist() == before and s.run(v) == 0
        first, second = s.run(noise), s.run(noise)
        assert gl.get_rng_state().tolist() != before and not (first == second).all()
        s.run(count)
        assert s.run(v) == 1
        assert [c.op.name for c in g.program([a]).calls] == ["mul"]


def test_random_numbers_are_those_of_eager_code(g):
    with g.as_default():
        a, skipped, b = gl.rand(3), gl.rand(7), gl.randn(2, 2)
        dropped = F.dropout(gl.ones(20), 0.5)
    with gl.Session(g) as s:
        gl.manual_seed(3)
        found = s.run([b, a]), s.run(dropped)
    gl.manual_seed(3)
    want = gl.rand(3), gl.randn(2, 2), F.dropout(gl.ones(20), 0.5)
    np.testing.assert_array_equal(found[0][1], want[0].numpy())
    np.testing.assert_array_equal(found[0][0], want[1].numpy())
    np.testing.assert_array_equal(found[1], want[2].numpy())
    assert skipped.shape == (7,)


def test_a_run_that_fails_uses_no_random_numbers_and_changes_nothing(g):
    with g.as_default():
        i = gl.placeholder(gl.int64, [None])
        v = gl.Variable(np.arange(3.0))
        change = v.assign(v + gl.rand(3))
        read = gl.arange(3)[i]
    with started(g) as s:
        before = gl.get_rng_state().tolist()
        with pytest.raises((IndexError, RuntimeError)):
            s.run([change, read], {i: [7]})
        assert gl.get_rng_state().tolist() == before and s.run(v).tolist() == [0, 1, 2]


# ---------------------------------------------------------------- feeding


def test_what_can_be_fed(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 2])
        n = gl.placeholder(gl.int32, [])
        flag = gl.placeholder(gl.float32, [])
        y = x * 2 + n + flag
    with gl.Session(g) as s:
        for value in ([[1, 2]], ((1.0, 2.0),), np.array([[1, 2]]), np.array([[1.0, 2.0]]), gl.tensor([[1.0, 2.0]]), gl.tensor([[1, 2]]),
                      np.array([[1, 2], [7, 7]], order="F")[:1], gl.tensor([[1.0, 2.0]], requires_grad=True)):  # fmt: skip
            assert s.run(y, {x: value, n: 1, flag: True}).tolist() == [[4, 6]]
        assert s.run(y, {x: np.empty((0, 2)), n: np.int64(1), flag: 0.5}).shape == (0, 2)
        assert s.run(y, {x: [], n: 1, flag: 0} | {x: np.zeros((0, 2))}).shape == (0, 2)


def test_unknown_sizes_and_one_program_for_each(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 4])
        w = gl.placeholder(gl.float32, ["rows", None])
        y = (x.reshape(-1) * x.shape[0]).sum() + w.sum()
        grown = gl.zeros(x.shape[0] * 2, 3)
    with gl.Session(g) as s:
        for n in (1, 5, 2, 5, 1):
            assert s.run(y, {x: np.ones((n, 4)), w: np.ones((n + 1, 3))}) == 4 * n * n + 3 * (n + 1)
        assert len(s._executions) == 3
        assert s.run(grown, {x: np.ones((3, 4))}).shape == (6, 3)
        with pytest.raises(FeedError, match=r"size \?0 is not known: feed placeholder placeholder \(float32\[\?0, 4\]\)"):
            s.run(grown)


def test_intermediate_nodes_can_be_fed(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None], name="x")
        hidden = x.exp()
        v = gl.Variable(3.0)
        y = hidden * v
    with started(g) as s:
        assert s.run(y, {hidden: [2.0]}).tolist() == [6]
        assert s.run([hidden, y], {hidden: [2.0, 4.0]})[0].tolist() == [2, 4]
        assert s.run(y, {hidden: [2.0], v: 10.0}).tolist() == [20] and s.run(v) == 3


# ---------------------------------------------------------------- control flow


def test_control_flow(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 3])
        v = gl.Variable([1.0, 2.0, 3.0])
        chosen = gl.cond(x.sum() > 0, lambda a: a * v, lambda a: a - v, (x,))
        halved = gl.while_loop(lambda a: a.abs().max() > 1, lambda a: (a / 2,), (x,))[0]
        last, sums = gl.scan(lambda c, row: (c + row * v, c + row), gl.zeros(3), x)
        loss = (last * last).sum() + chosen.sum()
        (slope,) = gl.autograd.grad(loss, [v])
    with started(g) as s:
        for data in (np.ones((2, 3)), -2 * np.ones((4, 3))):
            found = s.run([chosen, halved, last, sums, slope], {x: data})
            w = np.array([1.0, 2, 3])
            np.testing.assert_allclose(found[0], data * w if data.sum() > 0 else data - w)
            assert np.abs(found[1]).max() <= 1
            np.testing.assert_allclose(found[2], data.sum(0) * w)
            assert found[3].shape == data.shape
            extra = data.sum(0) if data.sum() > 0 else -np.full(3, len(data))
            np.testing.assert_allclose(found[4], 2 * data.sum(0) ** 2 * w + extra)


def test_pictures_and_programs(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 2])
        y = nn.Linear(2, 1)(x)
        train = gl.optim.Adam(g.trainable_variables).minimize(y.sum())
    whole, part = g.program(), g.program([train])
    assert len(whole.calls) > len(part.calls) > len(g.program(y).calls) == 1
    for found in (g.svg(), g.svg([train, y]), g.picture(y).to_svg()):
        assert "<svg" in found and "linear" in found.lower()
    assert isinstance(g, Graph) and isinstance(started(g), Session)
