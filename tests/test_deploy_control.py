"""Control flow as C: each kind beside eager under the sanitizers, one inside the other, without a step, and what a body may not hold."""

import numpy as np
import pytest
from deployed import SANITIZE, compiled, compiler, ran, sanitizers, traced

import gradlab as gl
from gradlab import nn

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


class Flows(nn.Module):
    """All kinds in one program: their bodies share weights with it and each other."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x, steps, which):
        chosen = gl.cond(x.sum() > 0, lambda x: self.linear(x).relu(), lambda x: x * 2, (x,))
        switched = gl.switch(which, [lambda x: x + 1, lambda x: x.softmax(-1), lambda x: x @ x.mT @ x], (chosen,))
        turns, grown = gl.while_loop(
            lambda i, y: (i < 5) & (y.abs().max() < 100), lambda i, y: (i + 1, self.linear(y) * 3), (gl.tensor(0), x)
        )
        last, states = gl.scan(self.step, gl.zeros(3, 4), steps)
        back, sums = gl.scan(lambda h, t: (h + t, (h * t).sum()), gl.ones(4), steps[:, 0], reverse=True)
        inner, rows = gl.scan(self.nested, gl.ones(4), steps[:, 1])
        once, _ = gl.scan(self.step, x, steps[:1])
        return switched, turns, grown, last, states, back, sums, inner, rows.t(), once

    def step(self, h, t):
        h = (self.norm(self.linear(h)) + t).tanh()
        return h, h * 2

    def nested(self, h, t):
        h = gl.cond(t.sum() > 0, lambda h, t: h + self.linear(t), lambda h, t: h - t, (h, t))
        return h, gl.while_loop(lambda v: v.sum() < 50, lambda v: (v * 2 + 1,), (h.abs(),))[0]


def test_bodies_give_what_eager_gives(tmp_path):
    gl.manual_seed(1)
    model, x, steps = Flows(), gl.randn(3, 4), gl.randn(6, 3, 4)
    program, _ = traced(model, x.abs(), steps, gl.tensor(0))
    built = gl.deploy.build(program, tmp_path, name="flows")
    runner = compiled(built, "-O1", *(SANITIZE if sanitizers() else ()))
    for first, which in ((x.abs(), 0), (-x.abs(), 1), (x * 1e4, 7), (x, -3)):
        with gl.no_grad():
            wanted = model(first, steps, gl.tensor(which))
        found = ran(runner, built, [first, steps, gl.tensor(which)])
        for y, z in zip(found, wanted):
            z = z[0].numpy() if isinstance(z, tuple) else z.numpy()
            assert y.dtype == z.dtype and y.shape == z.shape
            assert np.abs(y - z).max() <= 2e-6 * max(1, np.abs(z).max())


def test_what_a_body_holds_is_looked_at_before_anything_is_written(tmp_path):
    cases = (
        (lambda x: gl.cond(x.sum() > 0, lambda x: gl.linalg.cholesky(x), lambda x: x, (x,)), r"cholesky: .*test_deploy_control\.py"),
        (lambda x: gl.scan(lambda h, t: (h, gl.median(t)), x[0], x)[1], "median"),
    )
    for function, message in cases:
        with gl.no_grad():
            program = gl.jit.trace(function, (gl.eye(3),))
        with pytest.raises(NotImplementedError, match=message):
            gl.deploy.build(program, tmp_path / "no", name="no")
        assert not (tmp_path / "no").exists()


def test_each_body_has_its_own_constants(tmp_path):
    """Matrices that bodies and the program around them make lie at the same places in each, and are other ones."""
    def numbered(k, x):
        return gl.nn.functional.linear(x, gl.arange(k, k + 6.0).reshape(2, 3)) @ gl.full((2, 2), k)

    def chosen(x, which):
        y = gl.switch(which, [lambda x, k=k: numbered(k, x) for k in (1.0, 2.0, 3.0)], (x,))
        return numbered(4.0, x), y, gl.cond(which > 0, lambda x: numbered(5.0, x), lambda x: numbered(6.0, x), (x,))

    x = gl.randn(4, 3)
    built = gl.deploy.build(gl.jit.trace(chosen, (x, gl.tensor(0))), tmp_path, name="chosen")
    runner = compiled(built, "-O1")
    for which in (0, 1, 2):
        for got, wanted in zip(ran(runner, built, [x, gl.tensor(which)]), chosen(x, gl.tensor(which)), strict=True):
            assert np.allclose(got, wanted.numpy(), rtol=1e-5)
