"""Modules as functions of their parameters: functional_call and stack_module_state."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import func


def close(got, want, tolerance=1e-10):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy() if isinstance(want, gl.Tensor) else want, tolerance, 1e-12)


def test_functional_call_uses_other_tensors_and_leaves_the_module_alone():
    net = gl.nn.Linear(3, 2)
    before = net.weight
    y = func.functional_call(net, {"weight": gl.ones(2, 3)}, gl.ones(1, 3))
    close(y, 3 + net.bias.detach().numpy()[None], 1e-6)
    assert net.weight is before
    with pytest.raises(RuntimeError, match="no parameter or buffer 'wight'"):
        func.functional_call(net, {"wight": gl.ones(2, 3)}, gl.ones(1, 3))
    with pytest.raises(RuntimeError, match="bias"):
        func.functional_call(net, {"weight": gl.ones(2, 3)}, gl.ones(1, 3), strict=True)
    with pytest.raises(ValueError, match="several of the dicts"):
        func.functional_call(net, ({"weight": gl.ones(2, 3)}, {"weight": gl.ones(2, 3)}), gl.ones(1, 3))
    with pytest.raises(ValueError):
        func.functional_call(net, {"weight": gl.ones(5)}, gl.ones(1, 3))
    assert net.weight is before


def test_functional_call_ties_weights():
    net = gl.nn.Sequential(gl.nn.Linear(2, 2, bias=False), gl.nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    two = 2 * gl.eye(2)
    close(func.functional_call(net, {"0.weight": two}, gl.ones(1, 2)), 4 * np.ones((1, 2)))
    y = func.functional_call(net, {"0.weight": two}, gl.ones(1, 2), tie_weights=False)
    close(y, (2 * gl.ones(1, 2)) @ net[1].weight.detach().mT, 1e-6)
    with pytest.raises(ValueError, match="one tensor"):
        func.functional_call(net, {"0.weight": two, "1.weight": gl.eye(2)}, gl.ones(1, 2))


def test_buffers_change_in_the_given_tensors_only():
    net = gl.nn.BatchNorm1d(3)
    state = {k: v.detach().clone() for k, v in (*net.named_parameters(), *net.named_buffers())}
    func.functional_call(net, state, (gl.randn(8, 3) + 5,))
    assert float(state["running_mean"].abs().sum()) > 0
    assert float(net.running_mean.abs().sum()) == 0


def test_an_ensemble_is_one_vmap():
    nets = [gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.ReLU(), gl.nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = func.stack_module_state(nets)
    assert params["0.weight"].shape == (3, 4, 3) and params["0.weight"].is_leaf and params["0.weight"].requires_grad
    x = gl.randn(5, 3)
    y = func.vmap(lambda p, b, x: func.functional_call(nets[0], (p, b), (x,)), in_dims=(0, 0, None))(params, buffers, x)
    for i, net in enumerate(nets):
        close(y[i], net(x), 1e-5)
    y.sum().backward()
    assert params["2.bias"].grad.shape == (3, 2)
    for wrong in ([], [nets[0], gl.nn.Linear(1, 1)], [nets[0], gl.nn.Sequential().eval()]):
        with pytest.raises(RuntimeError):
            func.stack_module_state(wrong)


def test_plain_tensors_of_a_module_are_replaced_for_a_while():
    class Scaled(gl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = gl.nn.Linear(2, 1), gl.ones(1)
            self.inner.shift = gl.zeros(1)

        def forward(self, x):
            return self.inner(x) * self.scale + self.inner.shift

    module, x = Scaled(), gl.ones(1, 2)
    before = module(x)
    found = gl.func.functional_call(module, {"scale": gl.full((1,), 2.0), "inner.shift": gl.ones(1)}, x)
    assert gl.allclose(found, before * 2 + 1) and gl.equal(module(x), before) and "scale" not in module.state_dict()
    with pytest.raises(RuntimeError, match="no parameter or buffer 'other'"):
        gl.func.functional_call(module, {"other": gl.ones(1)}, x)
