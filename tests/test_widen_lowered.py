"""What autocast lowers to bfloat16 is computed in float32 in compiled programs of a CPU: which are, what they give, and which are not."""

import os
import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler

from repository import ROOT

F = nn.functional
LOW = gl.bfloat16


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(9, 32), nn.LayerNorm(32)
        self.attention, self.head = nn.MultiheadAttention(32, 2, batch_first=True), nn.Linear(32, 5)

    def forward(self, x):
        h = self.table((x.abs() * 2).long().clamp(max=8).reshape(len(x), -1)[:, :6])
        h = h + self.attention(self.norm(h), h, h, need_weights=False)[0]
        return self.head(h.mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.steps, self.head = kind(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.steps(x.reshape(len(x), -1)[:, :48].reshape(-1, 6, 8))[0][:, -1])


def convolutions(*behind):
    return nn.Sequential(
        nn.Conv2d(4, 16, 3, padding=1), *behind, nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(256, 5),
    )  # fmt: skip


MODELS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5)),
    "convolutions": convolutions,
    "batch norm": lambda: convolutions(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)),
    "group norm": lambda: convolutions(nn.GroupNorm(4, 16)),
    "attention": Attention,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Softmax(1), nn.Linear(8, 5), nn.Softplus()),
}


def trained(name, wrap, low):
    """Six losses and the last gradients, the last result, the gradients' dtypes, and the step."""
    gl.manual_seed(0)
    model = MODELS[name]()
    rng = np.random.default_rng(1)
    x, y = gl.tensor(rng.standard_normal((8, 4, 8, 8)).astype("f")), gl.tensor(rng.integers(0, 5, 8))
    made = gl.optim.SGD(model.parameters(), lr=0.05)

    def step(x, y):
        made.zero_grad()
        with gl.autocast("cpu", LOW, enabled=low):
            found = model(x)
            loss = F.cross_entropy(found.float(), y)
        loss.backward()
        made.step()
        return loss, found

    step = wrap(step)
    pairs = [step(x, y) for _ in range(6)]
    values = [*(loss.detach().numpy() for loss, _ in pairs), *(p.grad.numpy() for p in model.parameters())]
    return values, pairs[-1][1], [p.grad.dtype for p in model.parameters()], step


def distance(found, want):
    return max(float(np.sqrt(((a - b) ** 2).mean() / ((b**2).mean() + 1e-6))) for a, b in zip(found, want, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_eagers_but_for_roundings(name):
    wide = trained(name, lambda f: f, False)[0]
    eager, result, dtypes, _ = trained(name, lambda f: f, True)
    found, got, kinds, step = trained(name, gl.compile, True)
    assert step.graph.lowered
    assert got.dtype == result.dtype
    assert kinds == dtypes
    ends = {v.id for v in step.graph.outputs}
    assert [v for c in step.graph.calls for v in c.outputs if v.spec.dtype == LOW.dtype and v.id not in ends] == []
    assert distance(found[:6], eager[:6]) < 2e-3
    assert distance(found[6:], wide[6:]) <= 1.5 * distance(eager[6:], wide[6:]) + 1e-4  # no further from float32 than eager mode's


@pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
def test_norms_take_their_statistics_from_convolutions_of_pairs():
    _, _, _, step = trained("batch norm", gl.compile, True)
    steps = step.programs[0].runner.executable.steps
    assert any("convolution_batch_norm_relu" in s for s in steps)
    assert any("convolution_batch_norm_relu_bfloat16" in s for s in steps) == compiler.bfloat16(), steps


def test_what_leaves_the_program_has_its_type():
    w = gl.eye(4).requires_grad_()

    @gl.compile
    def both(x):
        with gl.autocast("cpu"):
            y = x @ w
            z = F.relu(y)
        return y, y.float(), z, z.float(), y.view(2, 8), [y.sum(), y.dtype == LOW]

    x = gl.randn(4, 4)
    for _ in range(3):
        y, wide, z, positive, viewed, (total, is_low) = both(x)
    assert both.graph.lowered
    assert is_low and y.dtype == z.dtype == viewed.dtype == LOW and wide.dtype == positive.dtype == gl.float32
    assert total.dtype == LOW
    assert y.equal(wide.to(LOW)) and z.equal(positive.to(LOW)) and viewed.equal(y.view(2, 8))
    assert wide.allclose(x, rtol=0.01)
    (y.float().sum() + wide.sum()).backward()  # a backward outside of the program
    assert w.grad.allclose(2 * x.sum(0).unsqueeze(1).expand(4, 4), rtol=0.05, atol=0.05)


def lowered(function, *arguments):
    compiled = gl.compile(function)
    for _ in range(3):
        found = compiled(*arguments)
    return compiled.graph.lowered, found


def test_roundings_that_are_asked_for_stay():
    """Casts outside of autocast, types of a model's own, and products that autocast leaves in float32."""
    x, w = gl.randn(32, 32), gl.randn(32, 32)

    def cast(x, w):
        with gl.autocast("cpu"):
            y = x @ w
        return y.float() + x.to(LOW).float()

    def apart(x, w):
        with gl.autocast("cpu"):
            y = x @ w
            with gl.autocast("cpu", enabled=False):
                return y, x @ w

    for function in (cast, apart):
        was, found = lowered(function, x, w)
        assert not was
        want = function(x, w)
        for a, b in zip(found if isinstance(found, tuple) else [found], want if isinstance(want, tuple) else [want], strict=True):
            assert a.dtype == b.dtype and a.allclose(b, rtol=0.02, atol=0.02)
    assert lowered(apart, x, w)[1][1].allclose(x @ w, atol=1e-5)
    was, found = lowered(lambda x, w: x @ w, x.to(LOW), w.to(LOW))
    assert not was and found.dtype == LOW
    with gl.autocast("cpu", gl.float16):
        was, found = lowered(lambda x, w: x @ w, x, w)
    assert not was and found.dtype == gl.float16


def test_users_operations_get_what_they_would_eagerly():
    @gl.library.custom_op("widen_lowered::double", mutates_args=())
    def double(x: gl.Tensor) -> gl.Tensor:
        return x * 2 + x.element_size()

    @double.register_fake
    def _(x):
        return gl.empty_like(x)

    w = gl.randn(8, 8)

    def function(x):
        with gl.autocast("cpu"):
            return double(x @ w) + 1

    x = gl.randn(8, 8)
    was, found = lowered(function, x)
    assert was and found.dtype == LOW and found.float().allclose(function(x).float(), rtol=0.02, atol=0.02)


def test_neighbours_are_those_of_bfloat16():
    def function(x):
        with gl.autocast("cpu"):
            return gl.nextafter(gl.ones(8, dtype=LOW), (x @ x).relu() + 2), (x @ x).view(gl.int16)

    was, found = lowered(function, gl.eye(8))
    assert was and found[0].tolist() == [[1.0078125] * 8] * 8 and found[1].tolist() == (gl.eye(8) * 0x3F80).tolist()


def test_dropout_draws_the_same():
    w = gl.eye(16)

    def function(x):
        with gl.autocast("cpu"):
            return F.dropout(x @ w, 0.5) * 1.0

    compiled, x = gl.compile(function), gl.ones(16, 16)
    for _ in range(3):
        gl.manual_seed(3)
        found = compiled(x)
    gl.manual_seed(3)
    assert compiled.graph.lowered and found.equal(function(x))


def test_without_a_compiler():
    script = (
        "import sys; sys.path[:0] = ['.', 'tests']\n"
        "import test_widen_lowered as t\n"
        "for name in ('linear', 'batch norm', 'lstm'): t.test_steps_are_eagers_but_for_roundings(name)\n"
    )
    environment = {**os.environ, "GRADLAB_COMPILER": "none"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
