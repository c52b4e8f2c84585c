"""`cond`, `switch`, `while_loop`, `scan`: eager, traced and compiled give the same values and gradients."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph import TraceError, trace
from gradlab.graph.native import build

COMPILERS = ["none", pytest.param("native", marks=pytest.mark.skipif(not build.available(), reason="no compiler"))]


@pytest.fixture(params=COMPILERS)
def machine(request, monkeypatch):
    """With the machine's compiler and without one."""
    if request.param == "none":
        monkeypatch.setattr(build, "available", lambda: False)
    return request.param


def leaf(*shape, seed=0, dtype=gl.float64):
    return gl.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype).requires_grad_()


def same(found, wanted, tolerance=1e-10):
    """Nested tensors are equal."""
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b, tolerance)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for k in wanted:
            same(found[k], wanted[k], tolerance)
    elif wanted is None:
        assert found is None
    else:
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance)


def as_traced(function, *args, tolerance=1e-10):
    """The eager result, which a program of the function gives as well, on these arguments and on others."""
    wanted = function(*args)
    program = trace(function, *args)
    same(program(*args), wanted, tolerance)
    compiled = gl.compile(function)
    for _ in range(3):
        same(compiled(*args), wanted, tolerance)
    assert len(compiled.programs) == 1
    return wanted


def with_gradients(function, *others):
    """A function that also gives the gradients of a weighted sum of its results for its arguments and for `others`."""

    def compute(*args):
        results = gl.graph.tree.flatten(function(*args))[0]
        total = sum((r * (r + 0.3)).sum() for r in results if r.dtype.is_floating_point)
        wanted = [x for x in (*args, *others) if x.requires_grad]
        return results, gl.autograd.grad(total, wanted, materialize_grads=True)

    return compute


def with_second_gradients(function, *others):
    """The same for a function of the gradients."""

    def compute(*args):
        results = gl.graph.tree.flatten(function(*args))[0]
        total = sum((r * (r + 0.3)).sum() for r in results if r.dtype.is_floating_point)
        wanted = [x for x in (*args, *others) if x.requires_grad]
        first = gl.autograd.grad(total, wanted, create_graph=True, materialize_grads=True)
        return first, gl.autograd.grad(sum((g * g).sum() for g in first), wanted, materialize_grads=True)

    return compute


# ---------------------------------------------------------------- scan


def test_scan_is_a_loop():
    xs = gl.arange(12.0).view(4, 3)
    carry, ys = gl.scan(lambda c, x: (c + x, c * x), gl.ones(3), xs)
    c, rows = np.ones(3), []
    for x in np.arange(12.0).reshape(4, 3):
        rows.append(c * x)
        c = c + x
    np.testing.assert_array_equal(carry.numpy(), c)
    np.testing.assert_array_equal(ys.numpy(), np.stack(rows))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_scan_and_its_gradients(machine, reverse, recompute):
    w, b, h, xs = leaf(4, 4), leaf(4, seed=1), leaf(3, 4, seed=2), leaf(5, 3, 4, seed=3)

    def run(h, xs):
        def step(c, x):
            new = (c @ w + x + b).tanh()
            return new, {"double": new * 2, "old": c.sum(0)}

        return gl.scan(step, h, xs, reverse=reverse, recompute=recompute)

    as_traced(with_gradients(run, w, b), h, xs)


def test_scan_of_other_dimensions_and_nested_carry(machine):
    w, a, b, xs, ts = leaf(3, 3), leaf(2, 3, seed=1), leaf(2, seed=2), leaf(2, 6, 3, seed=3), leaf(4, 6, seed=4)

    def run(a, b, xs, ts):
        def step(carry, x):
            (a, b), n = carry["pair"], carry["n"]
            a = (a @ w * x[0]).sin()
            b = b + a.sum(1) * x[1].mean()
            return {"pair": (a, b), "n": n + 1}, None if n is None else (a * b.unsqueeze(1), n)

        return gl.scan(step, {"pair": (a, b), "n": gl.tensor(0)}, (xs, ts), dim=1)

    as_traced(with_gradients(run, w), a, b, xs, ts)


def test_scan_second_gradients(machine):
    w, h, xs = leaf(3, 3), leaf(2, 3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        return gl.scan(lambda c, x: ((c @ w + x).tanh(), (c * x).sum()), h, xs)

    as_traced(with_second_gradients(run, w), h, xs, tolerance=1e-8)


def test_scan_gradients_by_differences():
    w, h, xs = leaf(2, 2), leaf(2, seed=1), leaf(3, 2, seed=2)

    def run(w, h, xs):
        return trace_free(w, h, xs)

    def trace_free(w, h, xs):
        c, ys = gl.scan(lambda c, x: ((c @ w + x).sin(), c * x), h, xs)
        return c.sum() + (ys * ys).sum()

    program = trace(lambda w, h, xs: gl.autograd.grad(run(w, h, xs), [w, h, xs]), w, h, xs)
    found = program(w, h, xs)
    for x, g in zip((w, h, xs), found, strict=True):
        flat, numbers = x.detach().numpy().reshape(-1), g.numpy().reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            values = []
            for step in (1e-6, -1e-6):
                flat[i] = kept + step
                values.append(float(run(w, h, xs).item()))
            flat[i] = kept
            assert abs((values[0] - values[1]) / 2e-6 - numbers[i]) < 1e-6


def test_closures_over_intermediate_results(machine):
    """What the body uses may itself have been computed of each other and of what is differentiated."""
    a, xs = leaf(3), leaf(4, 3, seed=1)

    def run(a, xs):
        b = a * 2
        c = b.exp() + a
        last, ys = gl.scan(lambda s, x: (s + b * x, s * c + a), a, xs)
        return last * b, ys + c

    as_traced(with_gradients(run), a, xs)
    as_traced(with_second_gradients(run), a, xs, tolerance=1e-8)


def test_detached_parts_have_no_gradient(machine):
    w, h, xs = leaf(3, 3), leaf(2, 3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        def step(c, x):
            with gl.no_grad():
                gate = (c @ w).sigmoid()
            return c * gate + x.detach() + (w.detach() * w).sum(), c

        return gl.scan(step, h, xs)

    as_traced(with_gradients(run, w), h, xs)


def test_carry_that_is_passed_through_and_results_from_outside(machine):
    w, h, xs = leaf(2), leaf(2, seed=1), leaf(3, 2, seed=2)

    def run(h, xs):
        return gl.scan(lambda c, x: ((c[0], c[1] + x), (w, c[0], x)), (h, h * 2), xs)

    as_traced(with_gradients(run, w), h, xs)
    same(trace(run, h, xs[:1])(h, xs[:1]), run(h, xs[:1]))


def test_one_step_and_numbers(machine):
    xs = leaf(5)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: (c * x, c + x), gl.tensor(1.0, dtype=gl.float64), xs)), xs)
    one = leaf(1)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: (c * x, c + x), gl.tensor(1.0, dtype=gl.float64), xs)), one)


def test_half_precision(machine):
    xs = leaf(5, 3, dtype=gl.float16)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: ((c + x).tanh(), c), gl.zeros(3, dtype=gl.float16), xs)), xs, tolerance=1e-3)


def test_random_numbers_are_fresh_in_each_step(machine):
    xs = gl.zeros(6, 8)

    def noise(xs):
        before = gl.rand(2)
        _, ys = gl.scan(lambda c, x: (c, x + gl.randn(8)), gl.zeros(()), xs)
        return before, ys, gl.rand(3)

    gl.manual_seed(5)
    wanted = [noise(xs) for _ in range(3)]
    compiled = gl.compile(noise)
    gl.manual_seed(5)
    found = [compiled(xs) for _ in range(3)]
    same(found, wanted, 1e-6)
    rows = found[2][1].numpy()
    assert len({float(r[0]) for r in rows}) == 6


def test_dropout_and_its_gradient(machine):
    w, xs = leaf(8, 8, dtype=gl.float32), leaf(5, 4, 8, seed=1, dtype=gl.float32)
    drop = gl.nn.Dropout(0.5)

    def run(xs):
        _, ys = gl.scan(lambda c, x: (drop((c + x) @ w).tanh(), c), gl.zeros(4, 8), xs)
        return ys

    compute = with_gradients(run, w)
    gl.manual_seed(3)
    wanted = [compute(xs) for _ in range(2)]
    for recompute in (False, True):
        gl.manual_seed(3)
        compiled = gl.compile(
            with_gradients(lambda xs, r=recompute: gl.scan(
                lambda c, x: (drop((c + x) @ w).tanh(), c), gl.zeros(4, 8), xs, recompute=r)[1], w)
        )  # fmt: skip
        same([compiled(xs) for _ in range(2)], wanted, 1e-5)


# ---------------------------------------------------------------- cond and switch


def test_cond_takes_one_branch(machine):
    w, x = leaf(3, 3), leaf(2, 3, seed=1)

    def run(p, x):
        return gl.cond(p, lambda x: (x @ w, x.sum()), lambda x: (x.exp(), (w * w).sum()), (x,))

    for function in (with_gradients(run, w), with_second_gradients(run, w)):
        program = None
        for p in (gl.tensor(True), gl.tensor(False)):
            as_traced(function, p, x, tolerance=1e-8)
            program = program or trace(function, p, x)
            same(program(p, x), function(p, x), 1e-8)


def test_cond_of_a_computed_condition(machine):
    x = leaf(4)

    def run(x):
        return gl.cond(x.sum() > 0, lambda: x * 2, lambda: x * x)

    compute = with_gradients(run)
    compiled = gl.compile(compute)
    for sign in (1, 1, -1, 1, -1):
        y = (x.detach().abs() * sign).requires_grad_()
        same(compiled(y), with_gradients(lambda y: gl.cond(y.sum() > 0, lambda: y * 2, lambda: y * y))(y))
    assert compiled is not None


def test_switch_clamps_its_index(machine):
    x, w = leaf(3), leaf(3, seed=1)
    branches = [lambda x: x.sin(), lambda x: x * w, lambda x: (x * x).tanh() @ w * x, lambda x: gl.zeros(3, dtype=gl.float64)]

    def run(i, x):
        return gl.switch(i, branches, (x,))

    compute = with_gradients(run, w)
    program = trace(compute, gl.tensor(0), x)
    for i, taken in ((-3, 0), (0, 0), (1, 1), (2, 2), (3, 3), (9, 3)):
        same(program(gl.tensor(i), x)[0][0], branches[taken](x))
        same(gl.switch(i, branches, (x,)), branches[taken](x))
        if taken != 3:
            same(program(gl.tensor(i), x), compute(gl.tensor(i), x))
    assert all(float(g.abs().sum()) == 0 for g in program(gl.tensor(3), x)[1])


def test_untaken_branches_do_not_run(machine):
    """An index out of range would be refused."""
    x = gl.arange(4.0)

    def run(i):
        return gl.cond(i < 4, lambda: x.index_select(0, i.view(1)), lambda: gl.zeros(1))

    program = trace(run, gl.tensor(0))
    assert program(gl.tensor(2)).tolist() == [2.0]
    assert program(gl.tensor(7)).tolist() == [0.0]
    with pytest.raises(IndexError):
        trace(lambda i: gl.cond(i < 9, lambda: x.index_select(0, i.view(1)), lambda: gl.zeros(1)), gl.tensor(0))(gl.tensor(7))


def test_scan_in_cond_in_scan(machine):
    w, h, xs = leaf(3, 3), leaf(3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        def inner(c, x):
            return (c * x).tanh() + (w @ x), c

        def outer(c, x):
            return gl.cond(c.sum() > 0, lambda c, x: gl.scan(inner, c, x), lambda c, x: (c + x.sum(0), x * w[0]), (c, x))

        return gl.scan(outer, h, xs)

    as_traced(with_gradients(run, w), h, xs)
    as_traced(with_second_gradients(run, w), h, xs, tolerance=1e-7)


def test_cond_draws_in_the_branch_that_is_taken(machine):
    def run(p):
        return gl.cond(p, lambda: gl.randn(4), lambda: gl.rand(4) + 100), gl.rand(2)

    compiled = gl.compile(run)
    gl.manual_seed(1)
    found = [compiled(gl.tensor(bool(i % 2)))[0].numpy() for i in range(6)]
    assert len({tuple(f) for f in found}) == 6
    assert all((f > 50).all() == (i % 2 == 0) for i, f in enumerate(found))


# ---------------------------------------------------------------- while_loop


def test_newton_iteration(machine):
    def root(a):
        def body(x, n):
            return 0.5 * (x + a / x), n + 1

        return gl.while_loop(lambda x, n: ((x * x - a).abs() > 1e-12 * a).any() & (n < 100), body, (a.clone(), gl.tensor(0)))

    program = trace(root, gl.tensor([2.0, 9.0], dtype=gl.float64))
    for numbers in ([2.0, 9.0], [1e6, 0.01], [1.0, 1.0]):
        a = gl.tensor(numbers, dtype=gl.float64)
        found, n = program(a)
        same((found, n), root(a))
        np.testing.assert_allclose(found.numpy(), np.sqrt(numbers), rtol=1e-12)
    compiled = gl.compile(root)
    for _ in range(3):
        same(compiled(a), root(a))


def test_while_loop_that_does_not_begin(machine):
    program = trace(lambda x: gl.while_loop(lambda x: x < 0, lambda x: (x - 1,), (x,)), gl.tensor(3.0))
    assert program(gl.tensor(3.0))[0].item() == 3.0


def test_while_loop_has_no_gradient_in_a_trace():
    x = leaf(2)

    def run(x):
        (y,) = gl.while_loop(lambda y: y.sum() < 10, lambda y: (y * 2 + 1,), (x,))
        return gl.autograd.grad(y.sum(), x)

    assert run(x)[0].shape == (2,)  # eagerly it is a Python loop
    with pytest.raises(RuntimeError, match="use scan with the largest number of steps"):
        trace(run, x)
    with pytest.raises(TraceError, match="draw outside"):
        trace(lambda x: gl.while_loop(lambda x: x < 1, lambda x: (x + gl.rand(()),), (x,)), gl.tensor(0.0))


# ---------------------------------------------------------------- refusals


def test_branches_that_differ():
    x = gl.ones(3)
    with pytest.raises(ValueError, match=r"float32\[3\] in the result of false_fn .*float64\[3\] in the result of true_fn"):
        trace(lambda p: gl.cond(p, lambda: x.double(), lambda: x), gl.tensor(True))
    with pytest.raises(TypeError, match=r"nests as tensor, .* as \(tensor, tensor\)"):
        trace(lambda p: gl.cond(p, lambda: (x, x), lambda: x), gl.tensor(True))
    with pytest.raises(ValueError, match=r"branch 0 .*branch 1"):
        trace(lambda i: gl.switch(i, [lambda: x, lambda: x[:2]]), gl.tensor(0))


def test_carry_that_changes():
    for run in (lambda f, x: f(x), lambda f, x: trace(f, x)):
        with pytest.raises(ValueError, match=r"float32\[3\] in init, but float32\[1, 3\] in the carry"):
            run(lambda x: gl.scan(lambda c, x: (c + x.view(1, 3), None), x[0], x), gl.ones(2, 3))
        with pytest.raises(ValueError, match=r"float32\[\] in carried, but float64\[\] in the result of body_fn"):
            run(lambda x: gl.while_loop(lambda x: x < 1, lambda x: (x.double() + 1,), (x,)), gl.tensor(0.0))
        with pytest.raises(TypeError, match="init nests as tensor"):
            run(lambda x: gl.scan(lambda c, x: ((c, c), None), x[0], x), gl.ones(2, 3))


@pytest.mark.parametrize("run", [lambda f, x: f(x), trace], ids=["eager", "traced"])
def test_wrong_arguments(run):
    x = gl.ones(2, 3)
    for error, function in [
        (TypeError, lambda x: gl.scan(lambda c, x: c, x[0], x)),
        (TypeError, lambda x: gl.scan(lambda c, x: (c, 3), x[0], x)),
        (TypeError, lambda x: gl.scan(lambda c, x: (c, c), 0.0, x)),
        (TypeError, lambda x: gl.scan(None, x[0], x)),
        (IndexError, lambda x: gl.scan(lambda c, x: (c, c), x[0], x, dim=2)),
        (ValueError, lambda x: gl.scan(lambda c, x: (c, c), x[0], (x, x[:1]))),
        (RuntimeError, lambda x: gl.scan(lambda c, x: (c, c), x[0], x[:0])),
        (RuntimeError, lambda x: gl.scan(lambda c, x: (c, c), x[0], None)),
        (ValueError, lambda x: gl.cond(x > 0, lambda: x, lambda: x)),
        (TypeError, lambda x: gl.cond("yes", lambda: x, lambda: x)),
        (TypeError, lambda x: gl.cond(x.sum() > 0, lambda x: x, lambda x: x, x)),
        (TypeError, lambda x: gl.cond(x.sum() > 0, lambda: x, x)),
        (TypeError, lambda x: gl.switch(x.sum(), [lambda: x])),
        (ValueError, lambda x: gl.switch(0, [])),
        (TypeError, lambda x: gl.while_loop(lambda x: x.sum() < 100, lambda x: x + 1, (x,))),
        (ValueError, lambda x: gl.while_loop(lambda x: x < 100, lambda x: (x + 1,), (x,))),
        (ValueError, lambda x: gl.while_loop(lambda: True, lambda: (), ())),
    ]:
        with pytest.raises(error):
            run(function, x)


def test_what_a_body_may_not_do():
    w, x, counter = leaf(3), gl.ones(4, 3, dtype=gl.float64), gl.zeros(())
    kept = []

    def leaking(c, x):
        kept.append(c * 2)
        return c, kept[0]

    def stepping(c, x):
        (c * w).sum().backward()
        return c, x

    for match, body in [
        ("value was read", lambda c, x: (c + float(x.sum()), x)),
        ("in place", lambda c, x: (c + counter.add_(1), x)),
        ("in-place", lambda c, x: (c.add_(1), x)),
        ("in place", lambda c, x: (c, x.add_(1))),
        (r"calls backward\(\)", stepping),
    ]:
        with pytest.raises(RuntimeError, match=match):
            trace(lambda x, body=body: gl.scan(body, x[0], x), x)
        assert w.requires_grad and w.grad is None and counter.item() == 0
    _, ys = trace(lambda x: gl.scan(lambda c, x: (c, (x * 2).add_(1)), x[0], x), x)(x)  # its own values it may change
    same(ys, x * 2 + 1)
    with pytest.raises(TraceError, match="another body"):
        trace(lambda x: (gl.scan(leaking, x[0], x), gl.scan(leaking, x[0], x)), x)
    with pytest.raises(TraceError, match="another"):
        trace(lambda x: (gl.scan(leaking, x[0], x), kept[-1] + x), x)


def test_a_failed_trace_leaves_everything_as_it_was():
    w = leaf(3)

    def run(x):
        y = w * 2

        def body(c, x):
            _ = c * w + y
            raise KeyError("broken")

        return gl.scan(body, x[0], x)

    with pytest.raises(KeyError, match="broken"):
        trace(run, gl.ones(2, 3, dtype=gl.float64))
    assert w.is_leaf and w.requires_grad
    same((w * 2).sum(), gl.tensor(2 * w.detach().numpy().sum(), dtype=gl.float64))


def test_vmap_runs_the_loop():
    xs = gl.arange(24.0).view(2, 4, 3)
    found = gl.vmap(lambda x: gl.scan(lambda c, r: (c + r, c * r), gl.zeros(3), x))(xs)
    same(found[0], xs.sum(1))


# ---------------------------------------------------------------- training


class Recurrent(gl.nn.Module):
    """An LSTM over padded sequences of different lengths, by scan or by a loop, and a linear layer on its last state."""

    def __init__(self, loop):
        super().__init__()
        self.loop = loop
        self.inputs = gl.nn.Linear(5, 32)
        self.hidden = gl.nn.Linear(8, 32, bias=False)
        self.out = gl.nn.Linear(8, 3)

    def cell(self, carry, x):
        h, c = carry
        i, f, g, o = (self.inputs(x) + self.hidden(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def forward(self, x, lengths):
        start = gl.zeros(x.shape[0], 8), gl.zeros(x.shape[0], 8)

        def step(carry, item):
            t, row = item
            new = self.cell(carry, row)
            going = (t < lengths).unsqueeze(1)
            return tuple(gl.where(going, n, old) for n, old in zip(new, carry, strict=True)), None

        if self.loop:
            carry = start
            for t in range(x.shape[1]):
                carry, _ = step(carry, (gl.tensor(t), x[:, t]))
        else:
            carry, _ = gl.scan(step, start, (gl.arange(x.shape[1]), x.transpose(0, 1)))
        return self.out(carry[0])


def recurrent_batch(seed, length=9):
    rng = np.random.default_rng(seed)
    x = gl.tensor(rng.standard_normal((4, length, 5)).astype(np.float32))
    return x, gl.tensor(rng.integers(1, length + 1, 4)), gl.tensor(rng.integers(0, 3, 4))


def test_lstm_trains_as_the_loop_does(machine):
    """Loss, gradients and five steps of Adam."""
    models = []
    for loop in (True, False):
        gl.manual_seed(0)
        models.append(Recurrent(loop))
    optimizers = [gl.optim.Adam(m.parameters(), lr=0.01) for m in models]

    def step(model, optimizer, x, lengths, y):
        loss = gl.nn.functional.cross_entropy(model(x, lengths), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @gl.compile
    def compiled(x, lengths, y):
        return step(models[1], optimizers[1], x, lengths, y)

    for k in range(6):
        batch = recurrent_batch(k)
        same(compiled(*batch), step(models[0], optimizers[0], *batch), 1e-5)
        for a, b in zip(models[1].parameters(), models[0].parameters(), strict=True):
            same(a.grad, b.grad, 1e-5)
            same(a, b, 1e-4)
    assert len(compiled.programs) == 1
    assert any(c.op.name == "scan" for c in compiled.graph.calls)
    assert len(compiled.graph.calls) < 120


def test_compiled_forward_is_differentiated_outside(machine):
    gl.manual_seed(0)
    model = Recurrent(False)
    x, lengths, y = recurrent_batch(1)
    forward = gl.compile(lambda x, n: model(x, n))
    gradients = []
    for f in (model, forward, forward, forward):
        model.zero_grad()
        gl.nn.functional.cross_entropy(f(x, lengths), y).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for found in gradients[1:]:
        same(found, gradients[0], 1e-5)


def test_a_changed_global_is_noticed_inside_a_body():
    settings = {"scale": 2.0}
    factor = [3.0]

    class Holder(gl.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, c, x):
            return c + x * self.scale, c

    holder = Holder()
    compiled = gl.compile(lambda xs: gl.scan(lambda c, x: holder(c, x), gl.zeros(()), xs)[0])
    xs = gl.ones(3)
    assert [compiled(xs).item() for _ in range(3)] == [6.0] * 3
    holder.scale = 5.0
    assert [compiled(xs).item() for _ in range(2)] == [15.0] * 2
    assert settings and factor


def test_trace_time_does_not_depend_on_the_length():
    gl.manual_seed(0)
    model = Recurrent(False)
    counts, times = [], []
    for length in (10, 1000):
        x, lengths, y = recurrent_batch(0, length)

        def step(x, lengths, y):
            loss = gl.nn.functional.cross_entropy(model(x, lengths), y)
            return loss, gl.autograd.grad(loss, list(model.parameters()))

        best = 1e9
        for _ in range(3):
            start = time.process_time()
            program = trace(step, x, lengths, y)
            best = min(best, time.process_time() - start)
        counts.append(len(program.graph.calls))
        times.append(best)
    assert counts[0] == counts[1]
    assert times[1] < 3 * times[0]


# ---------------------------------------------------------------- the GPU


def test_on_the_gpu(cuda):
    """Values and gradients as on the CPU, with the body's launches driven by the host and nothing computed there."""
    from gradlab.backends.cuda import fallback

    numbers = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 2
    series = np.random.default_rng(1).standard_normal((5, 3, 4)).astype(np.float32)

    def prepared(device):
        w, xs = (gl.tensor(a, device=device).requires_grad_() for a in (numbers, series))

        def run(xs):
            c, ys = gl.scan(lambda c, x: ((c @ w + x).tanh(), c * 2 + gl.rand(3, 4, device=device)), gl.zeros(3, 4, device=device), xs)
            k = gl.cond(c.sum() > 0, lambda c: c * 2, lambda c: (c @ w).exp(), (c,))
            with gl.no_grad():
                (z,) = gl.while_loop(lambda z: z.sum() < 100, lambda z: (z * 2 + 1,), (c.detach().abs(),))
            loss = (k * k).sum() + (ys * ys).sum()
            return loss, z, *gl.autograd.grad(loss, [xs, w])

        return run, xs

    def on_cpu(results):
        return [r.detach().cpu() for r in results]

    function, xs = prepared("cpu")
    gl.manual_seed(0)
    wanted = [on_cpu(function(xs)) for _ in range(3)]
    function, xs = prepared("cuda")
    program, compiled = trace(function, xs), gl.compile(function)
    before = dict(fallback.counts)
    for run in (function, program, compiled):
        gl.manual_seed(0)
        for want in wanted:
            same(on_cpu(run(xs)), want, 2e-4)
    assert fallback.counts == before


def test_a_scan_is_captured_on_the_gpu(cuda):
    w = gl.ones(2, 2, device="cuda").requires_grad_()

    @gl.compile
    def run(xs):
        _, ys = gl.scan(lambda c, x: ((c @ w).tanh() + x, c), gl.zeros(2, 2, device="cuda"), xs)
        return ys, *gl.autograd.grad(ys.sum(), [w])

    for k in range(4):
        xs = gl.full((3, 2, 2), k / 7, device="cuda")
        same([t.cpu() for t in run(xs)], [t.cpu() for t in run.function(xs)], 1e-5)
    assert run.programs[0].runner.executable.why == ""
