"""What `gl.compile` takes: methods, modules in place, partial functions, objects that can be called; and what transforms make of it."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import func, nn

from compiled_steps import follows

F = nn.functional


class Scale:
    """Can be called, and has methods of all kinds."""

    factor = 2.0

    def __init__(self):
        self.gain = 1.0

    def __call__(self, x):
        return x * self.gain * self.factor

    def method(self, x):
        return x + self.gain

    @gl.compile
    @staticmethod
    def static(x):
        return x * 3

    @staticmethod
    @gl.compile
    def static_too(x):
        return x * 3

    @gl.compile
    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @gl.compile
    def decorated(self, x):
        return x * self.gain


def test_objects_methods_and_partial_functions(monkeypatch):
    scale = Scale()
    changes = [lambda: None, lambda: setattr(scale, "gain", 5.0), lambda: monkeypatch.setattr(Scale, "factor", 7.0)]
    for function in (scale, scale.method, functools.partial(Scale.method, scale), lambda x: scale(x) * 2, scale.decorated):
        follows(function, changes)
        scale.gain = 1.0
        monkeypatch.setattr(Scale, "factor", 2.0)
    table, x = gl.tensor([1.0, 2.0]), gl.ones(2)
    run = gl.compile(functools.partial(lambda a, b, c: a * b + c, table, c=table))
    for i in range(4):
        table.fill_(i)
        assert run(x).tolist() == [2.0 * i] * 2
    assert "<lambda>" in repr(run)
    for _ in range(3):
        assert Scale.static(x).tolist() == scale.static(x).tolist() == scale.static_too(x).tolist() == [3.0, 3.0]
        assert Scale.of_class(x).tolist() == scale.of_class(x).tolist() == [2.0, 2.0]
    for function in (gl.relu, F.gelu, gl.add, gl.Tensor.sin, x.mul, gl.no_grad()(lambda x: x * 2), gl.compile(lambda x: x * 2)):
        given = (x, x)[: 2 if function is gl.add else 1]
        run = gl.compile(function)
        for _ in range(3):
            np.testing.assert_allclose(run(*given).numpy(), function(*given).numpy(), rtol=1e-6)


def test_generators_by_any_route_are_refused():
    class Stream:
        def __call__(self, x):
            yield x

        def method(self, x):
            yield x

    def stream(x):
        yield x

    for wrong in (Stream(), Stream().method, functools.partial(stream, 1), stream(1)):
        with pytest.raises(TypeError, match="is a generator or a coroutine"):
            gl.compile(wrong)
    with pytest.raises(NotImplementedError, match="backend"):
        gl.compile(lambda x: x, backend=lambda graph, inputs: graph)
    assert gl.compile(lambda x: x + 1, backend="inductor", options={"epilogue_fusion": True})(gl.ones(1)).item() == 2


# ---------------------------------------------------------------- Module.compile


def network():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


def trained(model, steps=5):
    update, losses = gl.optim.SGD(model.parameters(), lr=0.05), []
    for i in range(steps):
        gl.manual_seed(i)
        loss = model(gl.randn(6, 3)).square().mean()
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses


def test_a_module_compiled_in_place():
    eager, model = network(), network()
    run = model.compile(fullgraph=True, mode="reduce-overhead")
    np.testing.assert_allclose(trained(model), trained(eager), rtol=1e-4)
    assert len(run.programs) == 1 and "Sequential" in repr(run) and run.stats().operations
    assert list(model.state_dict()) == list(eager.state_dict())
    x = gl.randn(4, 3)
    model.eval()
    eager.eval()
    handle = model.register_forward_hook(lambda module, args, output: output * 2)
    for _ in range(3):
        np.testing.assert_allclose(model(x).detach().numpy(), 2 * eager(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    handle.remove()
    for _ in range(3):
        np.testing.assert_allclose(model(x).detach().numpy(), eager(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    outer = gl.compile(lambda x: model(x) + 1)  # part of another program
    for _ in range(3):
        np.testing.assert_allclose(outer(x).detach().numpy(), eager(x).detach().numpy() + 1, rtol=1e-4, atol=1e-5)
    assert model.compile(disable=True) is None and model(x).grad_fn.name() != "CompiledBackward0"


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_of_a_module_compiled_in_place(twin):
    model, x = network().eval(), gl.randn(4, 3)
    model.compile()
    before = [model(x) for _ in range(3)][-1].tolist()
    other = twin(model)
    with gl.no_grad():
        for p in other.parameters():
            p.zero_()
    for _ in range(3):
        assert other(x).abs().sum() == 0 and model(x).tolist() == before


# ---------------------------------------------------------------- transforms


def test_derivatives_of_compiled_functions():
    gl.manual_seed(0)
    model, x, batch = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), gl.randn(3), gl.randn(5, 3)
    for function in (lambda x: (x**3).sum() * x[0], lambda x: model(x)):
        run = gl.compile(function)
        for _ in range(3):
            run(x)
        for make in (func.jacrev, func.jacfwd, func.hessian, lambda f: gl.vmap(func.jacrev(f)), gl.vmap):
            given = batch if make is gl.vmap or "lambda" in repr(make) else x
            a, b = make(function)(given), make(run)(given)
            assert a.requires_grad == b.requires_grad
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
        for make in (gl.autograd.functional.jacobian, lambda f, x: func.vjp(f, x)[1](f(x))[0], lambda f, x: func.jvp(f, (x,), (x,))[1]):
            np.testing.assert_allclose(make(function, x).detach().numpy(), make(run, x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_several_vectors_at_once():
    w = nn.Parameter(gl.randn(3, 4))
    found = []
    for wrap in (lambda f: f, gl.compile):
        run = wrap(lambda x: (x @ w).sin())
        for _ in range(3):
            x = gl.ones(3, requires_grad=True)
            y = run(x)
        (none,) = gl.autograd.grad(y, x, gl.eye(4)[:0], is_grads_batched=True, retain_graph=True)
        assert none.shape == (0, 3)
        rows = gl.autograd.grad(y, [x, w], gl.eye(4), is_grads_batched=True, create_graph=True)
        found.append([rows[0], rows[1], *gl.autograd.grad(rows[0].square().sum(), [x, w])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
