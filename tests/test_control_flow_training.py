"""Whole training steps with control flow in them, and control flow on the GPU."""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest
from control_flow_tools import COMPILERS, same

import gradlab as gl
from gradlab.autograd.errors import GraphError
from gradlab.backends.native import compiler
from gradlab.graph import trace


@pytest.fixture(params=COMPILERS)
def machine(request, monkeypatch):
    """With the machine's compiler and without one."""
    if request.param == "none":
        monkeypatch.setattr(compiler, "available", lambda: False)
    return request.param


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


@pytest.mark.parametrize("written", ["operand", "captured"])
@pytest.mark.parametrize("what", ["scan", "cond"])
def test_gradients_of_gradients_refuse_what_was_written_since(what, written):
    """Their body runs once more, which must be on the values that it saw; first gradients are of those values."""
    found = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(0)
        x, w = gl.randn(5, requires_grad=True), gl.randn(5, requires_grad=True)

        def step(twice):
            if what == "scan":
                y = gl.scan(lambda h, row: (row.sigmoid() * 0.5 + h * 0.3, (h + row).tanh() + w), gl.zeros(()), x)[1]  # noqa: B023
            else:
                y = gl.cond(gl.ones(()) > 0, lambda v: (v + 1).sigmoid() + w, lambda v: v.sigmoid(), (x,))  # noqa: B023
            with gl.no_grad():
                (x if written == "operand" else w).add_(1)  # noqa: B023
            return gl.autograd.grad(y.sum(), x, create_graph=twice)[0].detach()  # noqa: B023

        call = wrap(step)
        found += [gl.stack([call(False) for _ in range(3)])]
    assert found[0].allclose(found[1])
    with pytest.raises(GraphError, match=f"{what}: .* modified by an in-place operation"):
        for _ in range(2):  # the first call may run eagerly
            call(True)


def _bound_anew(what):
    """A function that lets the variable that its body uses hold the result."""

    def compute(h):
        if what == "scan":
            h = gl.scan(lambda c, x: (c * x + h[0].cos(), c * h.sum().sin()), gl.ones_like(h[0]), h)[1]
        elif what == "cond":
            h = gl.cond(h.sum() > -1e9, lambda: h**3, lambda: h.cos())
        elif what == "helper":
            cube = lambda: h**3
            h = gl.switch(gl.tensor(1), [lambda: h.cos(), functools.partial(lambda f: f() * h, cube)])
        else:
            with gl.autocast("cpu", gl.bfloat16):
                h = gl.cond(h.sum() > -1e9, lambda: h @ h.t(), lambda: h.t() @ h)
        return h

    return compute


@pytest.mark.parametrize("what", ["scan", "cond", "helper", "autocast"])
def test_gradients_of_gradients_see_what_the_body_saw(what):
    """The body runs once more, and variables have been bound anew by then, autocast has ended."""
    compute = _bound_anew(what)
    x = gl.tensor(np.random.default_rng(3).normal(size=(3, 3)), dtype=gl.float32 if what == "autocast" else gl.float64)

    def curvature(x):
        x = x.detach().requires_grad_()
        (slope,) = gl.autograd.grad(compute(x).float().square().sum(), x, create_graph=True)
        return gl.autograd.grad(slope.square().sum(), x)[0].detach()

    compiled, wanted = gl.compile(curvature), curvature(x)
    for _ in range(3):
        same(compiled(x), wanted, 0.05 if what == "autocast" else 1e-9)
    assert len(compiled.programs) == 1


def test_gradients_of_gradients_refuse_what_a_list_holds_since():
    held = []

    def curvature(x):
        x = x.detach().requires_grad_()
        parts = [x * 2]
        y = gl.cond(x.sum() > -1e9, lambda: parts[-1] ** 3, lambda: parts[-1].cos())
        parts.append(y)
        (slope,) = gl.autograd.grad(y.sum(), x, create_graph=True)
        return gl.autograd.grad(slope.square().sum(), x)[0].detach()

    compiled, x = gl.compile(curvature), gl.tensor([1.0, 2.0])
    held.append(compiled(x))
    with pytest.raises(GraphError, match="another tensor from outside"):
        compiled(x)
