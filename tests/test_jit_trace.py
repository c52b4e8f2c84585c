"""`jit.trace`: programs give what the function gives, with its state, gradients, random numbers and sizes."""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.advice import GradlabWarning

F = nn.functional


@pytest.fixture(autouse=True)
def row_by_row(monkeypatch):
    """Programs are traced and run, but not made into machine code, which has its own tests (test_compile*.py)."""
    monkeypatch.setenv("GRADLAB_COMPILE", "0")


@pytest.fixture
def compiled(monkeypatch):
    """Except in these."""
    monkeypatch.delenv("GRADLAB_COMPILE")


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def layers():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def test_a_traced_module_has_the_names_and_tensors_of_the_module():
    m = layers()
    p = gl.jit.trace(m, (gl.randn(5, 4),))
    assert isinstance(p, gl.jit.ScriptModule) and p.training
    assert [n for n, _ in p.named_parameters()] == [n for n, _ in m.named_parameters()]
    assert list(p.state_dict()) == list(m.state_dict())
    assert all(a is b for a, b in zip(p.parameters(), m.parameters(), strict=True))
    assert p.get_parameter("4.weight") is m[4].weight
    assert "0.weight" in p.code and "batch_norm" in p.code and "original_name=Sequential" in repr(p)


def test_state_and_random_numbers_go_on_as_in_eager(compiled):
    m, x = layers(), gl.randn(5, 4)
    twin = deepcopy(m)
    p = gl.jit.trace(m, (x,))
    close(m[1].running_mean, twin[1].running_mean)  # tracing and checking left it alone
    gl.manual_seed(3)
    want = [twin(x) for _ in range(3)]
    gl.manual_seed(3)
    for expected in want:
        close(p(x), expected)
    close(m[1].running_var, twin[1].running_var)
    assert m[1].num_batches_tracked.item() == 3
    assert p.stats()


def test_gradients_reach_parameters_and_arguments(compiled):
    m, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), gl.randn(5, 4, requires_grad=True)
    p = gl.jit.trace(m, (gl.randn(5, 4),))
    inputs = [x, *m.parameters()]
    want = gl.autograd.grad((m(x) ** 2).sum(), inputs)
    for _ in range(2):
        for a, b in zip(gl.autograd.grad((p(x) ** 2).sum(), inputs), want, strict=True):
            close(a, b)


def test_a_program_trains():
    gl.manual_seed(1)
    m, x, y = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), gl.randn(16, 4), gl.randn(16, 1)
    p = gl.jit.trace(m, (x,))
    optimizer = gl.optim.Adam(p.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.mse_loss(p(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_second_derivatives_of_the_program_run_call_by_call():
    p = gl.jit.trace(lambda x: x.sin() * x, (gl.tensor([1.0, 2.0]),))
    x = gl.tensor([1.0, 2.0], requires_grad=True)
    (first,) = gl.autograd.grad(p._run(x).sum(), x, create_graph=True)
    (second,) = gl.autograd.grad(first.sum(), x)
    close(second, 2 * x.cos() - x * x.sin())


def test_detach_and_no_grad_are_part_of_the_program():
    def f(x, w):
        y = x * 2
        with gl.no_grad():
            z = y.exp()
        return y.detach() * w + z, y, z

    x, w = gl.randn(3, requires_grad=True), gl.randn(3, requires_grad=True)
    p = gl.jit.trace(f, (gl.randn(3), gl.randn(3)))
    for _ in range(2):
        a, y, z = p(x, w)
        assert not z.requires_grad and y.requires_grad
        gradients = gl.autograd.grad(a.sum(), [x, w], allow_unused=True)
        assert gradients[0] is None or not gradients[0].any()
        close(gradients[1], x * 2)


def test_arguments_that_are_changed_and_returned_stay_the_same_tensors():
    def f(x, y):
        x.add_(1)
        return x, y, x * y

    p = gl.jit.trace(f, (gl.zeros(2), gl.ones(2)))
    for _ in range(2):
        x, y = gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0])
        a, b, c = p(x, y)
        assert a is x and b is y
        assert x.tolist() == [2.0, 3.0] and c.tolist() == [6.0, 12.0]


def test_what_views_memory_that_is_written_is_the_value_from_before():
    state = gl.arange(4.0)

    def f(x):
        old = state[:2].clone()
        seen = state[2:]
        found = seen * 1
        state.add_(x)
        return old, found

    p = gl.jit.trace(f, (gl.ones(4),))
    assert [t.tolist() for t in p(gl.ones(4))] == [[0.0, 1.0], [2.0, 3.0]]
    assert state.tolist() == [1.0, 2.0, 3.0, 4.0]


class Pair(NamedTuple):
    total: object
    parts: object


def test_structures_numbers_and_keywords():
    def f(x, scale=1.0, *, extra=None, flag="on"):
        assert flag == "on"
        return Pair(x * scale, {"a": [x, None], "b": (3, extra)})

    p = gl.jit.trace(f, (gl.ones(2), 2.0), example_kwarg_inputs={"extra": gl.zeros(1), "flag": "on"})
    got = p(gl.tensor([1.0, 5.0]), 2.0, extra=gl.ones(1), flag="on")
    assert got._fields == ("total", "parts") and got.total.tolist() == [2.0, 10.0]
    assert got.parts["b"][0] == 3 and got.parts["a"][1] is None
    assert p(x=gl.ones(2), scale=2.0, extra=gl.ones(1), flag="on").total.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="traced for arguments"):
        p(gl.ones(2), 3.0, gl.ones(1), "on")
    with pytest.raises(TypeError, match="unexpected argument 'other'"):
        p(gl.ones(2), 2.0, other=1)


def test_arguments_that_do_not_fit():
    p = gl.jit.trace(lambda first, second: first @ second, (gl.ones(2, 3), gl.ones(3, 4)))
    with pytest.raises(ValueError, match=r"argument 1 \(second\) is float32\[4, 4\], but the program was traced for float32\[3, 4\]"):
        p(gl.ones(2, 3), gl.ones(4, 4))
    with pytest.raises(ValueError, match="float64"):
        p(gl.ones(2, 3).double(), gl.ones(3, 4))


def test_one_tensor_for_several_arguments_of_the_example():
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), gl.randn(2, 3, 8)
    p = gl.jit.trace(attention, (x, x, x))
    memory = gl.randn(2, 3, 8)
    close(p(x, memory, memory)[0], attention(x, memory, memory)[0])


def test_unknown_sizes():
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 36, 3))
    p = gl.jit.trace(m, (gl.randn(2, 1, 8, 8),), dynamic={0: {0: "batch"}})
    for batch in (1, 5, 2):
        x = gl.randn(batch, 1, 8, 8)
        close(p(x), m(x))
    q = gl.jit.trace(lambda a, b: (a @ b).mean() / a.shape[0], (gl.ones(2, 3), gl.ones(3, 4)), dynamic={0: {0: "n", 1: "k"}, 1: {-2: "k"}})
    close(q(gl.ones(5, 7), gl.ones(7, 4)), gl.tensor(7.0 / 5))
    with pytest.raises(ValueError, match="sizes so far"):
        q(gl.ones(5, 7), gl.ones(6, 4))
    with pytest.raises(IndexError, match="dimension 2"):
        gl.jit.trace(m, (gl.randn(2, 3),), dynamic={0: {2: "x"}})
    with pytest.raises(ValueError, match="tensor 1"):
        gl.jit.trace(m, (gl.randn(2, 3),), dynamic={1: {0: "x"}})


def test_programs_inside_of_programs(compiled):
    inner = gl.jit.trace(layers(), (gl.randn(5, 4),))

    def outer(x):
        return inner(x * 2) + inner(x)

    x = gl.randn(5, 4)
    gl.manual_seed(0)
    want = outer(x)
    state = inner.state_dict()
    compiled = gl.compile(outer)
    twice = gl.jit.trace(outer, (x,))
    for run in (compiled, compiled, twice, twice):
        gl.manual_seed(0)
        close(run(x), want, 1e-4)
    assert state["1.num_batches_tracked"].item() == 10


def test_control_flow_is_kept_and_differentiated():
    def f(x, n):
        y = gl.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v * x), (n * 0, x))[1]
        return gl.cond(y.sum() > 0, lambda v: v * 3, lambda v: -v, (y,)), gl.scan(lambda c, v: (c * v, c + v), x[0], x)[1]

    p = gl.jit.trace(f, (gl.randn(3), gl.tensor(2)))
    for values, n in (([1.0, 2.0, 3.0], 2), ([-1.0, -2.0, 0.5], 0)):
        x, y = (gl.tensor(values, requires_grad=True) for _ in range(2))
        a, b = p(x, gl.tensor(n)), f(y, gl.tensor(n))
        for u, v in zip(a, b, strict=True):
            close(u, v)
        close(*(gl.autograd.grad(u[0].sum() + u[1].sum(), t)[0] for u, t in ((a, x), (b, y))))
        with gl.no_grad():
            for u, v in zip(p(x, gl.tensor(n)), b, strict=True):
                close(u, v)


def test_copies_have_tensors_of_their_own():
    p = gl.jit.trace(nn.Linear(2, 2), (gl.ones(2),))
    twin = deepcopy(p)
    with gl.no_grad():
        twin.get_parameter("weight").zero_()
    assert p.get_parameter("weight").abs().sum() > 0 and twin(gl.ones(2)).tolist() == twin.get_parameter("bias").tolist()


def test_to_another_dtype_is_refused_by_its_name():
    p = gl.jit.trace(nn.Linear(2, 2), (gl.ones(2),))
    with pytest.raises(ValueError, match="the program's tensor weight is float64"):
        p.double()(gl.ones(2))


# ---------------------------------------------------------------- refusals


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


def test_python_state_that_changes():
    m = Counter()
    with pytest.raises(gl.graph.TraceError, match=r"changes Counter\.calls while it runs"):
        gl.jit.trace(m, (gl.ones(2),))
    assert m.calls == 0


def test_random_numbers_of_others_are_found():
    rng = np.random.default_rng(0)
    with pytest.raises(gl.graph.TraceError, match="result 0 differs by up to"):
        gl.jit.trace(lambda x: x * float(rng.normal()), (gl.ones(2),))
    assert gl.jit.trace(lambda x: x * float(rng.normal()), (gl.ones(2),), check_trace=False)


def test_what_cannot_be_traced():
    w = gl.ones(2, requires_grad=True)
    product = w * 2
    with pytest.raises(gl.graph.TraceError, match="result of recorded operations"):
        gl.jit.trace(lambda x: x * product, (gl.ones(2),))
    with pytest.raises(gl.graph.TraceError, match=r"calls backward\(\) or an optimizer"):
        gl.jit.trace(lambda x: (x * w).sum().backward(), (gl.ones(2),))
    with pytest.raises(gl.graph.TraceError, match="a value was read while tracing"):
        gl.jit.trace(lambda x: x * 2 if x.sum() > 0 else x, (gl.ones(2),))
    with pytest.raises(gl.graph.TraceError, match="call it once before"):
        gl.jit.trace(nn.LazyLinear(2), (gl.ones(2),))
    with pytest.raises(TypeError, match="example_inputs is a tuple"):
        gl.jit.trace(lambda x: x, 3)
    with pytest.raises(TypeError, match="a function or a module"):
        gl.jit.trace(3, (gl.ones(2),))
    with pytest.raises(TypeError, match="a set among arguments and results"):
        gl.jit.trace(lambda x: {1}, (gl.ones(2),))


class Square(gl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def test_a_backward_of_ones_own_is_not_in_the_program():
    with pytest.warns(GradlabWarning, match="the backward of Square is Python code"):
        p = gl.jit.trace(Square.apply, (gl.ones(2, requires_grad=True),))
    x = gl.tensor([1.0, 3.0], requires_grad=True)
    close(gl.autograd.grad(p(x).sum(), x)[0], 2 * x)
