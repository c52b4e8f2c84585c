"""`utils.checkpoint`: the same gradients, fewer kept values."""

import gc

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.autograd.mode import current, enter, leave
from gradlab.nn import functional as F
from gradlab.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop


def leaf(values, dtype=gl.float64):
    return gl.tensor(values, dtype=dtype, requires_grad=True)


def equal(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy() if isinstance(wanted, gl.Tensor) else wanted)


def block(x, w):
    return ((x @ w).tanh() * x).exp().sin()


def matrices():
    gl.manual_seed(0)
    return gl.randn(3, 4, dtype=gl.float64).requires_grad_(), gl.randn(4, 4, dtype=gl.float64).requires_grad_()


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_are_the_same(depth, early_stop):
    """Also nested."""

    def nested(x, w, level):
        if level == 0:
            return block(block(x, w), w)
        return checkpoint(nested, checkpoint(block, x, w), w, level - 1) * 2

    def plain(x, w, level):
        return block(block(x, w), w) if level == 0 else plain(block(x, w), w, level - 1) * 2

    x, w = matrices()
    wanted = gl.autograd.grad(plain(x, w, depth).sum(), (x, w))
    with set_checkpoint_early_stop(early_stop):
        found = gl.autograd.grad(nested(x, w, depth).sum(), (x, w))
    for a, b in zip(found, wanted):
        equal(a, b)


def test_higher_derivatives():
    x, w = matrices()

    def second(f):
        (g,) = gl.autograd.grad(f(x, w).sum(), x, create_graph=True)
        return gl.autograd.grad((g * g).sum(), (x, w))

    for a, b in zip(second(lambda x, w: checkpoint(block, x, w)), second(block)):
        equal(a, b)


def test_runs_twice_and_only_when_needed():
    calls = []

    def counted(x):
        calls.append(gl.is_grad_enabled())
        return x.exp().sin()

    x = leaf([1.0])
    y = checkpoint(counted, x)
    assert calls == [True]
    y.sum().backward()
    assert calls == [True, True]
    equal(x.grad, np.cos(np.exp([1.0])) * np.exp([1.0]))
    calls.clear()
    with gl.no_grad():
        checkpoint(counted, x)
    assert calls == [False]


def test_a_retained_graph_computes_again_each_time():
    calls = []
    x = leaf([0.5])
    y = checkpoint(lambda x: calls.append(1) or x.exp().sin(), x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert len(calls) == 3
    equal(x.grad, 2 * np.cos(np.exp([0.5])) * np.exp([0.5]))
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_the_rest_is_not_run_again():
    done = []

    def long(x):
        y = x.exp().sin()
        done.append("needed")
        z = y * 2  # keeps nothing
        done.append("not needed")
        return z

    checkpoint(long, leaf([1.0])).sum().backward()
    assert done == ["needed", "not needed"]
    done.clear()
    checkpoint(long, leaf([1.0]), early_stop=False).sum().backward()
    assert done == ["needed", "not needed"] * 2


def test_several_outputs_keywords_and_other_arguments():
    def function(x, power, *, scale):
        return (x**power * scale).exp(), {"half": x.sin() / 2}, "text"

    x = leaf([0.5, 1.0])
    a, b, text = checkpoint(function, x, 3, scale=2.0)
    assert text == "text"
    (a.sum() + b["half"].sum()).backward()
    z = leaf([0.5, 1.0])
    a, b, _ = function(z, 3, scale=2.0)
    (a.sum() + b["half"].sum()).backward()
    equal(x.grad, z.grad)


def test_only_the_parameters_need_gradients():
    gl.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = gl.randn(5, 4)
    checkpoint(net, x).sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    for p, g in zip(net.parameters(), found):
        equal(p.grad, g)


def test_random_numbers_come_again():
    gl.manual_seed(3)
    x = gl.ones(1000, requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x * 2, 0.5) * x, x)
    place = gl.random.get_rng_state()
    y.sum().backward()
    assert (gl.random.get_rng_state() == place).all()
    equal(x.grad, 2 * y)  # d/dx of m * 2x * x, with x = 1: only with the same mask
    y = checkpoint(lambda x: F.dropout(x * 2, 0.5) * x, x, preserve_rng_state=False)
    x.grad = None
    y.sum().backward()
    assert (x.grad != 2 * y).any()


def test_an_error_where_the_runs_differ():
    calls = []

    def other_shape(x):
        calls.append(1)
        y = (x * x)[: 2 if len(calls) == 1 else 1]
        return y.exp().sum()

    y = checkpoint(other_shape, leaf([1.0, 2.0, 3.0]))
    with pytest.raises(CheckpointError, match=r"shape \(2,\).*shape \(1,\)") as caught:
        y.backward()
    assert "test_checkpoint.py" in str(caught.value) and "debug=True" in str(caught.value)

    def fewer(x):
        calls.append(1)
        return x.exp().exp() if len(calls) == 1 else x.exp()

    for debug in (False, True):
        calls.clear()
        y = checkpoint(fewer, leaf([1.0]), debug=debug)
        with pytest.raises(CheckpointError, match="1 tensors were kept when it was run again, 2 the first time") as caught:
            y.sum().backward()
        assert ("exp((1,))" in str(caught.value)) is debug
    calls.clear()
    checkpoint(other_shape, leaf([1.0, 2.0, 3.0]), determinism_check="none").backward()  # on one's own responsibility


def test_an_argument_changed_in_place_is_noticed():
    x = leaf([1.0, 2.0])
    z = x * 1
    y = checkpoint(lambda z: z.exp().sin(), z)
    z.mul_(2)
    with pytest.raises(RuntimeError, match=r"checkpoint.*modified by an in-place operation"):
        y.sum().backward()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(block, determinism_check="some")
    with pytest.raises(TypeError, match="function"):
        checkpoint(3)
    with pytest.raises(ValueError, match="segments"):
        checkpoint_sequential([nn.ReLU()], 2, gl.ones(1))
    with pytest.raises(ValueError, match="unexpected"):
        checkpoint_sequential([nn.ReLU()], 1, gl.ones(1), debug=True)


def test_sequential():
    gl.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3)) for _ in range(5)])
    x = gl.randn(4, 6).requires_grad_()
    results = []
    for segments in (None, 1, 2, 3, 5):
        gl.manual_seed(7)
        y = net(x) if segments is None else checkpoint_sequential(net, segments, x)
        results.append(gl.autograd.grad(y.sum(), (x, *net.parameters())))
    for other in results[1:]:
        for a, b in zip(other, results[0]):
            equal(a, b)


def test_context_fn():
    entered = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *_):
            pass

    y = checkpoint(lambda x: x.exp().sin(), leaf(1.0), context_fn=lambda: (Note("first"), Note("again")))
    assert entered == ["first"]
    y.backward()
    assert entered == ["first", "again"]


def test_a_function_that_differentiates():
    def penalty(x):
        y = (x**3).sum()
        (g,) = gl.autograd.grad(y, x, create_graph=True)
        return (g * g).sum()

    x, z = leaf([0.5, 2.0]), leaf([0.5, 2.0])
    checkpoint(penalty, x).backward()
    penalty(z).backward()
    equal(x.grad, z.grad)


def test_traced():
    def program(x, w):
        x = x.detach().requires_grad_()
        y = checkpoint(lambda x: F.dropout(block(x, w), 0.5, training=True) * x, x)
        return y, gl.autograd.grad(y.sum(), x)[0]

    x, w = matrices()
    traced = gl.graph.trace(program, x, w)
    gl.manual_seed(5)
    found = traced(x, w)
    gl.manual_seed(5)
    for a, b in zip(found, program(x, w)):
        equal(a, b)


def test_kept_values_are_let_go():
    """What a checkpoint keeps is freed with its graph, without the collector."""

    class Canary:
        alive = 0

        def __init__(self):
            Canary.alive += 1

        def __del__(self):
            Canary.alive -= 1

    gc.collect()
    gc.disable()
    try:
        for run_backward in (True, False):
            canary = Canary()
            y = checkpoint(lambda x, c: (x.exp() * 2).sin(), leaf([1.0]), canary).sum()
            del canary
            assert Canary.alive == 1
            if run_backward:
                y.backward()
                assert Canary.alive == 0
            del y
            assert Canary.alive == 0
    finally:
        gc.enable()


def test_fewer_bytes_are_kept():
    def kept(y):
        seen, total, stack = set(), 0, [y.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in seen or not hasattr(node, "saved"):
                continue
            seen.add(node)
            total += sum(getattr(getattr(v, "_array", v), "nbytes", 0) for v in node.saved)
            stack.extend(edge.node for edge in node.next_functions)
        return total

    x = gl.ones(1000, requires_grad=True)

    def chain(x):
        for _ in range(10):
            x = x.sin()
        return x

    assert kept(chain(x)) >= 40_000
    assert kept(checkpoint(chain, x)) == 0


# ---------------------------------------------------------------- under vmap, and with autocast


def test_under_vmap():
    x, w = matrices()

    def each(run):
        return gl.vmap(lambda row: run(block, row.unsqueeze(0), w).sum())(x)

    def plain(function, *args):
        return function(*args)

    results = []
    for run in (plain, checkpoint):
        y = each(run)  # differentiated from outside of the vmap
        outside = gl.autograd.grad(y.square().sum(), (x, w))
        inside = gl.vmap(gl.func.grad(lambda row, run=run: run(block, row.unsqueeze(0), w).sum()))(x)
        whole = gl.func.grad(lambda w, run=run: gl.vmap(lambda row: run(block, row.unsqueeze(0), w).sum())(x).sum())(w)
        results.append((y, *outside, inside, whole))
    for a, b in zip(*results, strict=True):
        equal(a, b)


def test_random_numbers_come_again_under_vmap():
    x, _ = matrices()

    def each(run):
        gl.manual_seed(3)
        return gl.vmap(gl.func.grad(lambda row: run(lambda r: F.dropout(r.exp(), 0.5).sin().sum(), row)), randomness="different")(x)

    equal(each(checkpoint), each(lambda function, *args: function(*args)))


class Rounding:
    """Stands for autocast, whose room is not there yet: what a mode's `autocast` is asked to do with a row's inputs."""

    def __init__(self):
        self.rows = []

    def cast(self, op, inputs):
        self.rows.append(op.name)
        return [x.to(gl.float32) if isinstance(x, gl.Tensor) and op.autocast == "lower" else x for x in inputs]


def test_autocast_is_that_of_the_forward_when_run_again():
    x, w = matrices()
    casts = Rounding()
    token = enter(current().replace(autocast=casts))
    try:
        plain = block(x, w)
        assert "matmul" in casts.rows
        kept = checkpoint(block, x, w)
    finally:
        leave(token)
    casts.rows.clear()
    wanted = gl.autograd.grad(plain.sum(), (x, w))
    assert casts.rows == []  # backward itself is outside
    found = gl.autograd.grad(kept.sum(), (x, w))
    assert "matmul" in casts.rows and current().autocast is None
    for a, b in zip(found, wanted, strict=True):
        equal(a, b)
