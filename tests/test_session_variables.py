"""Variables of graphs: values in sessions, assignments, initial values, modules, sharing with eager code, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph.staging.symbol import TraceError
from gradlab.session import FeedError, UninitializedError


@pytest.fixture
def g():
    gl.manual_seed(0)
    return gl.Graph()


def started(g):
    with g.as_default():
        initializer = gl.global_variables_initializer()
    s = gl.Session(g)
    s.run(initializer)
    return s


def test_sessions_have_values_of_their_own(g):
    with g.as_default():
        v = gl.Variable(gl.rand(2), name="v")
        more = v.assign_add(1)
    one, two = started(g), started(g)
    first, second = one.run(v), two.run(v)
    assert not (first == second).all()
    one.run(more)
    np.testing.assert_array_equal(one.run(v), first + 1)
    np.testing.assert_array_equal(two.run(v), second)


def test_assignments_and_the_order_of_definition(g):
    with g.as_default():
        v = gl.Variable([1.0, 2.0], name="v")
        before = v * 10
        first = v.assign_add(1.0)
        between = v * 10
        second = gl.assign(v, v * 2)
        after = v * 10
    with started(g) as s:
        assert s.run([before, between, after])[0].tolist() == [10, 20]
        assert [a.tolist() for a in s.run([after, between, before, first, second, v])] == [
            [40, 60], [20, 30], [10, 20], [2, 3], [4, 6], [1, 2],
        ]  # fmt: skip
        assert s.run(v).tolist() == [4, 6]
        assert [a.tolist() for a in s.run([before, between, after, second])] == [[40, 60], [40, 60], [80, 120], [8, 12]]


def test_using_an_assignment_makes_it(g):
    with g.as_default():
        v = gl.Variable(1.0)
        y = v.assign_sub(0.5) * 4
    with started(g) as s:
        assert s.run(y) == 2 and s.run(v) == 0.5


def test_what_can_be_assigned(g):
    outside = gl.zeros(2)
    with g.as_default():
        v = gl.Variable(gl.zeros(2, 2), name="v")
        n = gl.Variable(1, name="n", trainable=False)
        layer = nn.Linear(2, 1)
        x = gl.placeholder(gl.float32, [2])
        changes = [v.assign(3), gl.assign(v, gl.ones(2, 2)), n.assign_add(2), gl.assign(layer.weight, [[1, 2]]), gl.assign(outside, x)]
        with pytest.raises(ValueError, match=r"shape \(3,\) does not fit variable v of shape \(2, 2\)"):
            v.assign([1, 2, 3])
        with pytest.raises(TypeError, match="float32 does not fit variable n of type int64"):
            n.assign(gl.ones(()))
        with pytest.raises(TraceError, match="computed, no variable"):
            gl.assign(x + 1, x)
        with pytest.raises(TypeError, match="to a variable"):
            gl.assign("v", x)
    with started(g) as s:
        found = s.run(changes, {x: [5, 6]})
        assert found[0].tolist() == [[3, 3], [3, 3]] and s.run(v).tolist() == [[1, 1], [1, 1]] and s.run(n) == 3
        assert s.run(layer.weight).tolist() == [[1, 2]] and outside.tolist() == [5, 6]
        assert s.run(n).dtype == np.int64 and not n.requires_grad and v.requires_grad


def test_initial_values(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [2])
        a = gl.Variable(gl.rand(3), name="a")
        b = gl.Variable(a * 2, name="b")
        c = gl.Variable(x + 1, name="c")
        d = gl.Variable(np.float64(3), name="d", dtype=gl.float32)
        with pytest.raises(TraceError, match="shape must be known"):
            gl.Variable(gl.zeros(gl.placeholder(gl.float32, [None]).shape[0]))
        with pytest.raises(RuntimeError, match="can be trained"):
            gl.Variable(1, trainable=True)
    with gl.Session(g) as s:
        with pytest.raises(FeedError, match="no value was fed for placeholder"):
            s.run(gl.global_variables_initializer())
        s.run(gl.global_variables_initializer(), {x: [1, 2]})
        found = s.run([a, b, c, d])
        np.testing.assert_array_equal(found[1], found[0] * 2)
        assert found[2].tolist() == [2, 3] and found[3] == 3 and found[3].dtype == np.float32
        s.run(gl.variables_initializer([b, d]))
        np.testing.assert_array_equal(s.run(a), found[0])
        assert d.initializer.name.startswith("init")
    with pytest.raises(TypeError, match="no variable"):
        gl.variables_initializer([gl.ones(1)])


def test_initialisation_of_modules_is_that_of_eager_code(g):
    def build():
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 3, padding_idx=1), nn.GRU(2, 3))
        with gl.no_grad():
            model[0].weight.mul_(0.5)
            model[0].bias[1:].fill_(7.0)
            model[2].weight.data.normal_(0, 3)
        nn.init.xavier_uniform_(model[3].weight_ih_l0)
        nn.init.orthogonal_(model[3].weight_hh_l0)
        return model

    with g.as_default():
        model = build()
    gl.manual_seed(5)
    with started(g) as s:
        values = s.run(dict(model.named_parameters()))
    gl.manual_seed(5)
    for name, p in build().named_parameters():
        np.testing.assert_allclose(values[name], p.detach().numpy(), rtol=1e-6, err_msg=name)


def test_copied_and_lazy_modules_have_variables_of_their_own(g):
    with g.as_default():
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 2)
        lazy = nn.LazyLinear(3)
        x = gl.placeholder(gl.float32, [None, 2, 4])
        y = lazy(encoder(x))
        train = gl.optim.SGD([*encoder.parameters(), *lazy.parameters()], lr=0.1).minimize(y.pow(2).mean())
    assert len(g.trainable_variables) >= 2 * 12 + 2
    with started(g) as s:
        w = [layer.linear1.weight for layer in encoder.layers]
        assert (s.run(w[0]) == s.run(w[1])).all()
        s.run(train, {x: np.random.default_rng(0).normal(size=(3, 2, 4))})
        assert not (s.run(w[0]) == s.run(w[1])).all() and s.run(lazy.weight).shape == (3, 4)


def test_parameters_shared_with_eager_code(g):
    layer = nn.Linear(2, 1)
    opt = gl.optim.SGD(layer.parameters(), lr=0.1)
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 2])
        y = layer(x)
        loss = y.pow(2).mean()
        train = opt.minimize(loss)
    assert layer.weight.grad is None and isinstance(layer.weight.detach().numpy(), np.ndarray) and layer.weight.is_leaf
    with gl.Session(g) as s:
        data = np.ones((4, 2), "f")
        np.testing.assert_allclose(s.run(y, {x: data}), layer(gl.tensor(data)).detach().numpy(), rtol=1e-6)
        before = layer.weight.detach().clone()
        s.run(train, {x: data})
        assert not (layer.weight == before).all()
        with gl.no_grad():
            layer.weight.fill_(3.0)
        np.testing.assert_allclose(s.run(y, {x: data}), layer(gl.tensor(data)).detach().numpy(), rtol=1e-6)
        layer.weight.data = gl.ones(1, 2)  # other memory
        np.testing.assert_allclose(s.run(y, {x: data}), layer(gl.tensor(data)).detach().numpy(), rtol=1e-6)
        assert s.run(layer.weight).tolist() == [[1, 1]] or s.run(layer.bias) is not None


def test_state_dict(g, tmp_path):
    with g.as_default():
        layer = nn.Linear(2, 3)
        v = gl.Variable(1.5, name="v")
        y = layer(gl.ones(1, 2)) * v
    one = started(g)
    state = one.state_dict()
    assert set(state) == {"linear.weight", "linear.bias", "v"} and all(isinstance(t, gl.Tensor) for t in state.values())
    gl.save(state, tmp_path / "s.safetensors")
    two = gl.Session(g)
    with pytest.raises(UninitializedError):
        two.run(y)
    two.load_state_dict(gl.load(tmp_path / "s.safetensors"))
    np.testing.assert_array_equal(one.run(y), two.run(y))
    with pytest.raises(RuntimeError, match=r"missing variables \['v'\], unexpected names \['w'\]"):
        two.load_state_dict({**{k: t for k, t in state.items() if k != "v"}, "w": gl.ones(1)})
    with pytest.raises(RuntimeError, match="v is float32"):
        two.load_state_dict({"v": gl.ones(2)}, strict=False)
    two.load_state_dict({"v": gl.tensor(2.5)}, strict=False)
    assert two.run(v) == 2.5 and one.run(v) == 1.5
