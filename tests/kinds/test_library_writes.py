"""Whatever the library itself writes is a write: a graph that kept what was there before raises, and never computes with the new values.

Each case gives a tensor and what writes it. The graph keeps the tensor itself, a detached twin or a view, made before the write.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import gradlab as gl

from kinds.writes.own import OURS
from kinds.writes.shared import AS_IN_TORCH, INIT

FORMS = {"itself": lambda x: x, "a twin": lambda x: x.detach(), "a view": lambda x: x.reshape(-1)[:]}


def graph_of(m, kept):
    """A graph whose backward needs the values of `kept`."""
    w = m.ones_like(kept.detach()).requires_grad_()
    return w, (kept.detach() * w if kept.grad_fn is not None else kept * w).sum()


def attempt(m, make, form):
    m.manual_seed(0)
    x, act = make(m)
    version, before = x._version, x.detach().clone()
    w, y = graph_of(m, FORMS[form](x))
    act()
    assert x.shape != before.shape or x.dtype != before.dtype or not m.equal(x.detach(), before), "the case writes nothing"
    return x._version > version, w, y, before


def fails(y):
    try:
        y.backward()
    except RuntimeError as error:
        return "modified by an in" in str(error)
    return False


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*AS_IN_TORCH, *OURS])
def test_a_graph_that_kept_it_raises(name, form):
    moves = form != "itself" and name in MOVED
    noted, w, y, before = attempt(gl, (AS_IN_TORCH | OURS)[name], form)
    assert noted
    if moves:  # the tensor got other memory: what has the old goes on with it
        y.backward()
        np.testing.assert_array_equal(w.grad.numpy().reshape(-1), before.numpy().reshape(-1))
    else:
        assert fails(y)


MOVED = {
    "given_data", "given_memory", "emptied", "of_a_vector", "pruned_for_good", "without_its_parametrization", "to float64", "half",
}  # fmt: skip


LETS_PASS = {"unscaled", "by_the_function", "average_of_all_batches", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"}  # PyTorch, on the CPU


@pytest.mark.parametrize("name", sorted(AS_IN_TORCH.keys() - LETS_PASS))
def test_as_in_torch(name):
    torch = pytest.importorskip("torch")
    noted, _, y, _ = attempt(torch, AS_IN_TORCH[name], "itself")
    assert noted and fails(y)


def test_every_initialiser_and_optimizer_is_here():
    assert {n for n in dir(gl.nn.init) if n.endswith("_") and not n.startswith("_")} == INIT.keys()
    optimizers = {n for n, c in vars(gl.optim).items() if inspect.isclass(c) and issubclass(c, gl.optim.Optimizer)} - {"Optimizer"}
    assert {f"{n}.step" for n in optimizers} <= {*AS_IN_TORCH, *OURS}


def test_a_kept_gradient_of_the_issue():
    """(w · w.grad)' is w.grad as it was: [2, 2], not what the next backward makes of it."""
    w = gl.ones(2, requires_grad=True)
    (w * 2).sum().backward()
    y = (w * w.grad).sum()
    (w * 3).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        y.backward()
    assert w.grad.tolist() == [5, 5]


def test_an_error_names_the_line_that_wrote():
    w = gl.ones(2, requires_grad=True)
    opt = gl.optim.SGD([w], lr=0.1)

    def step():
        opt.zero_grad()
        (w * w).sum().backward()
        opt.step()  # here

    run = gl.compile(step)
    for _ in range(4):
        run()
    y = (w * w).sum()
    run()
    with pytest.raises(RuntimeError, match=r"opt\.step\(\)  # here"):
        y.backward()


def scanned():
    x = gl.ones(3, requires_grad=True)
    return x, gl.scan(lambda h, v: (h * v + v * v, h * v), gl.zeros(()), x)[1], x


def attended():
    layer, x, y = gl.nn.MultiheadAttention(4, 2), gl.randn(5, 2, 4), gl.randn(6, 2, 4, requires_grad=True)
    return layer.in_proj_weight, layer(x, y, y)[0], y


def run_through(kind, of_input):
    layer, x = kind(3, 4), gl.randn(5, 2, 3)
    return x if of_input else layer.weight_hh_l0, layer(x)[0], layer.weight_ih_l0


IN_PARTS = {
    "scan": scanned, "attention": attended,
    **{f"{kind.__name__} {what}": lambda kind=kind, what=what: run_through(kind, what == "input")
       for kind in (gl.nn.RNN, gl.nn.GRU, gl.nn.LSTM) for what in ("input", "weight")},
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_write_is_seen_where_the_library_has_kept_a_part(name):
    written, result, leaf = IN_PARTS[name]()
    with gl.no_grad():
        written.mul_(2)
    with pytest.raises(RuntimeError, match=r"in-place|in place"):
        gl.autograd.grad(result.sum(), leaf)
