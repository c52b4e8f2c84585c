"""What graphs and sessions refuse: errors that name the node, its shape, and the user's line that made it."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import nn
from gradlab.graph.staging.symbol import TraceError
from gradlab.session import FeedError, FetchError, UninitializedError


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


def raises(kind, run, *parts, line):
    with pytest.raises(kind) as caught:
        run()
    text = str(caught.value)
    assert all(p in text for p in parts), text
    assert f"at: test_session_errors.py:{line}:" in text, text


def line_of(function):
    return function.__code__.co_firstlineno


def test_errors_name_the_node_and_its_line(g):
    def define():
        x = gl.placeholder(gl.float32, [None, 3], name="pixels")
        v = gl.Variable(gl.ones(3), name="scale")
        return x, v, x * v

    with g.as_default():
        x, _, y = define()
        t = gl.placeholder(gl.int64, [None], name="labels")
        z = y.sum(1) + t
    first = line_of(define)
    with gl.Session(g) as s:
        raises(FeedError, lambda: s.run(y), "no value was fed for placeholder pixels (float32[?0, 3])", line=first + 1)
        data = {x: np.ones((2, 3))}
        raises(UninitializedError, lambda: s.run(y, data), "scale (float32[3])", "global_variables_initializer", line=first + 2)
        s.run(gl.global_variables_initializer())
        s.run(y, data)
        raises(FeedError, lambda: s.run(y, {x: np.ones((2, 4))}), "pixels (float32[?0, 3])", "(2, 4)", line=first + 1)
        raises(FeedError, lambda: s.run(y, {x: [1, 2, 3]}), "pixels", "(3,)", line=first + 1)
        raises(TypeError, lambda: s.run(z, {**data, t: [0.5, 1]}), "labels (int64[?0])", "float64", line=first + 7)
        raises(TypeError, lambda: s.run(y, {x: [["a"] * 3]}), "pixels", line=first + 1)
        raises(FeedError, lambda: s.run(y, {x: [[1], [2, 3]]}), "pixels", line=first + 1)
        raises(TypeError, lambda: s.run(y, {x: y}), "pixels", "no value", line=first + 1)
        raises(FeedError, lambda: s.run(z, {**data, t: [1, 2, 3]}), "labels", "(3,)", "?0 is 2", line=first + 7)
        with pytest.raises(TypeError, match="no placeholder or other node"):
            s.run(y, {3: 1})
        with pytest.raises(FetchError, match="no node of graph graph: it was computed eagerly"):
            s.run(y, {gl.ones(3): 1})
        with pytest.raises(TypeError, match="dict from placeholders"):
            s.run(y, [x])
        with pytest.raises(FetchError, match="no node called 'loss'; nodes: pixels, "):
            s.run("loss")
        with pytest.raises(FetchError, match="not int"):
            s.run([y, 3])
        with pytest.raises(FetchError, match="computed eagerly"):
            s.run(gl.ones(3))
    with pytest.raises(RuntimeError, match="closed"):
        s.run(y, data)


def test_nodes_of_another_graph(g):
    other = gl.Graph("other")
    with g.as_default():
        x = gl.placeholder(gl.float32, [2])
        train = gl.optim.SGD([gl.Variable(1.0)]).minimize(gl.Variable(gl.ones(1)).sum() + g.variables[0])
    with other.as_default():
        y = gl.placeholder(gl.float32, [2])
        with pytest.raises(TraceError, match=r"another graph \(graph\) was used in graph other"):
            _ = x + y
    with gl.Session(other) as s:
        raises(FetchError, lambda: s.run(x), "belongs to graph graph, not to graph other", line=line_of(test_nodes_of_another_graph) + 3)
        with pytest.raises(FetchError, match="operation minimize belongs to another graph"):
            s.run(train)
        with pytest.raises(FetchError, match="belongs to graph graph"):
            s.run(y, {x: [1, 2]})


def test_values_cannot_be_read_while_defining(g):
    with g.as_default():
        x = gl.identity(gl.placeholder(gl.float32, []) * 2, name="double")
        v = gl.Variable(1.0, name="v")
        says = r"a value was read, but .* is a node of graph graph(.|\n)*test_session_errors.py(.|\n)*made at: test_session_errors.py"
        methods = (lambda t: t.item(), lambda t: t.numpy(), lambda t: t.tolist(), lambda t: 1 if t > 0 else 2)
        for read in (float, int, bool, np.asarray, *methods):
            with pytest.raises(TraceError, match=says):
                read(x)
        with pytest.raises(TraceError, match=r"nonzero|size of the result"):
            x.reshape(1).nonzero()
        with pytest.raises(TraceError, match="no truth value"):
            bool(gl.global_variables_initializer())
    with pytest.raises(TraceError, match=r"v \(float32\[\]\) is a node of graph graph: add operations inside"):
        _ = v + 1
    with pytest.raises(TraceError, match="double"):
        float(x)


def test_writes_that_nothing_could_run_are_refused(g):
    with g.as_default():
        v = gl.Variable([1.0, 2.0], name="v")
        layer = nn.Linear(2, 1)
        y = layer(v)
        says = r"written in place while graph graph is defined(.|\n)*gl.assign(.|\n)*test_session_errors.py"
        for write in (lambda: v.add_(1), lambda: v.__setitem__(0, 3.0), lambda: nn.init.zeros_(layer.weight)):
            with gl.no_grad(), pytest.raises(TraceError, match=says):
                write()
        opt = gl.optim.SGD(layer.parameters())
        y.sum().backward()
        with pytest.raises(TraceError, match="minimize"):
            opt.step()
        temporary = gl.zeros(2)
        temporary += v
        temporary[0] = 7.0
    with started(g) as s:
        assert s.run(temporary).tolist() == [7, 2]


def test_sizes_that_do_not_fit_name_the_line(g):
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 4])
        w = gl.placeholder(gl.float32, ["rows", 4])
        with pytest.raises(ValueError, match=r"\(\?0, 4\) and \(rows, 4\)"):
            _ = x + w
        image = gl.placeholder(gl.float32, [1, 1, "h", "h"])
        y = F.conv2d(image, gl.ones(1, 1, 3, 3))
        fixed = x.sum() / len(range(x.shape[0]))
    with gl.Session(g) as s:
        assert s.run(y, {image: np.ones((1, 1, 5, 5))}).shape == (1, 1, 3, 3)
        with pytest.raises(ValueError, match=r"conv(.|\n)*at: test_session_errors.py"):
            s.run(y, {image: np.ones((1, 1, 2, 2))})
        with pytest.raises(FeedError, match=r"\(1, 1, 5, 6\) does not fit"):
            s.run(y, {image: np.ones((1, 1, 5, 6))})
        with pytest.raises(TraceError, match="not tracked"):
            s.run(fixed, {x: np.ones((2, 4))})


def test_wrong_placeholders(g):
    with g.as_default():
        for shape in (3, "abc", [-1], [1.5]):
            with pytest.raises(TypeError, match="placeholder: "):
                gl.placeholder(gl.float32, shape)
        assert gl.placeholder(gl.float32, [gl.graph.unknown("t", 16)]).shape[0] == 16
