"""Optimizers, and what goes with them, after steps: pickled, copied, without gradients, of classes that leave out the base's init."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import defaultdict

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import DataLoader, TensorDataset

OTHERS = ("Optimizer", "SparseAdam")  # the second takes no dense gradients: test_sparse_embedding.py
OPTIMIZERS = sorted(n for n, c in vars(gl.optim).items() if inspect.isclass(c) and issubclass(c, gl.optim.Optimizer) and n not in OTHERS)
each = pytest.mark.parametrize("name", OPTIMIZERS)


WAYS = {
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda x, n=n: pickle.loads(pickle.dumps(x, n)) for n in (0, pickle.HIGHEST_PROTOCOL)},
}
each_way = pytest.mark.parametrize("way", WAYS)


def model_of(name):
    gl.manual_seed(0)
    if name == "Muon":
        return gl.nn.Linear(3, 3, bias=False)
    return gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.BatchNorm1d(4), gl.nn.Linear(4, 1))


def trained(name, model, opt, steps):
    x = gl.tensor(np.random.default_rng(0).normal(size=(5, 3)).astype("float32"))

    def closure():
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        if name == "LBFGS":
            opt.step(closure)
        else:
            closure()
            opt.step()
    return [p.detach().numpy().copy() for p in model.parameters()]


@each
@each_way
def test_an_optimizer_after_steps(name, way):
    """The copy goes on exactly as the original does. From its first step on an optimizer knows more than its state: what advice is for."""
    model = model_of(name)
    opt = getattr(gl.optim, name)(model.parameters(), lr=0.01)
    opt.register_step_post_hook(lambda *_: None)  # hooks are not copied, as in PyTorch
    trained(name, model, opt, 5)
    other_model, other = WAYS[way]((model, opt))
    owned = {id(p) for p in other_model.parameters()}
    assert all(id(p) in owned for g in other.param_groups for p in g["params"])
    assert {id(p) for p in other.state} <= owned
    for got, want in zip(trained(name, other_model, other, 3), trained(name, model, opt, 3), strict=True):
        np.testing.assert_array_equal(got, want)


@each_way
def test_a_compiled_step_then_a_copy(way):
    model = model_of("Adam")
    opt = gl.optim.Adam(model.parameters())
    x = gl.randn(5, 3)

    @gl.compile
    def step():
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

    for _ in range(4):
        step()
    other_model, other = WAYS[way]((model, opt))
    np.testing.assert_array_equal(trained("Adam", other_model, other, 2)[0], trained("Adam", model, opt, 2)[0])


@pytest.mark.parametrize("workers", [0, 2])
@each_way
def test_a_loader_in_the_middle_of_an_epoch(workers, way):
    data = TensorDataset(gl.arange(6.0))
    loader = DataLoader(data, batch_size=2, shuffle=True, num_workers=workers, persistent_workers=workers > 0, generator=gl.Generator())
    batches = iter(loader)
    next(batches)
    other = WAYS[way](loader)
    assert sorted(v for (batch,) in other for v in batch.tolist()) == [0, 1, 2, 3, 4, 5]
    assert len(list(batches)) == 2


@each_way
def test_a_scaler_after_steps(way):
    model = model_of("SGD")
    opt, scaler = gl.optim.SGD(model.parameters(), lr=0.1), gl.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for _ in range(2):
        scaler.scale(model(gl.randn(5, 3)).sum()).backward()
        scaler.step(opt)
        scaler.update()
    other = WAYS[way](scaler)
    assert other.get_scale() == scaler.get_scale() == 16.0
    other.scale(model(gl.randn(5, 3)).sum()).backward()
    other.step(opt)
    other.update()


@each_way
def test_averages_after_updates(way):
    model = model_of("SGD")
    average = gl.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    trained("SGD", model, gl.optim.SGD(model.parameters(), lr=0.1), 2)
    other = WAYS[way](average)
    for each in (average, other):
        each.update_parameters(model)
    for a, b in zip(average.parameters(), other.parameters(), strict=True):
        assert gl.equal(a, b)


@each
def test_deleted_gradients(name):
    """`del p.grad` is `p.grad = None`."""
    model = model_of(name)
    opt = getattr(gl.optim, name)(model.parameters(), lr=0.01)
    trained(name, model, opt, 2)
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        del p.grad
        assert p.grad is None
        del p.grad  # again
    if name != "LBFGS":
        opt.step()
    assert all(gl.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    trained(name, model, opt, 1)
    assert all(p.grad is not None for p in model.parameters())


class Wrapper(gl.optim.Optimizer):
    """As Lookahead, SAM and many others are written: the groups and the state are another optimizer's."""

    def __init__(self, inner):  # without super().__init__()
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

    @param_groups.setter
    def param_groups(self, groups):
        self.inner.param_groups = groups

    @property
    def state(self):
        return self.inner.state

    @property
    def defaults(self):
        return self.inner.defaults

    def step(self, closure=None):
        return self.inner.step(closure)


class Slow(gl.optim.Optimizer):
    """One that keeps groups and state itself, also without the base's init."""

    def __init__(self, inner):
        self.inner, self.param_groups, self.state, self.defaults = inner, inner.param_groups, defaultdict(dict), {}

    def step(self, closure=None):
        loss = self.inner.step(closure)
        with gl.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    slow = self.state[p].setdefault("slow", p.detach().clone())
                    slow.lerp_(p, 0.5)
                    p.copy_(slow)
        return loss


@pytest.mark.parametrize("kind", [Wrapper, Slow])
@each
def test_a_class_that_leaves_out_init(kind, name):
    model, reference = model_of(name), model_of(name)
    opt = kind(getattr(gl.optim, name)(model.parameters(), lr=0.01))
    seen = []
    opt.register_step_pre_hook(lambda *_: seen.append("before"))
    opt.register_step_post_hook(lambda *_: seen.append("after"))
    schedule = gl.optim.lr_scheduler.StepLR(opt, 100)
    got = trained(name, model, opt, 5)
    schedule.step()
    assert seen == ["before", "after"] * 5
    assert name in repr(opt) or kind.__name__ in repr(opt)
    want = trained(name, reference, getattr(gl.optim, name)(reference.parameters(), lr=0.01), 5)
    if kind is Wrapper:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    other_model, other, _ = pickle.loads(pickle.dumps((model, opt, schedule)))
    for a, b in zip(trained(name, other_model, other, 2), trained(name, model, opt, 2), strict=True):
        np.testing.assert_array_equal(a, b)
    assert opt.state_dict()["param_groups"]


def test_a_subclass_fills_in_what_an_older_file_lacks():
    class Own(gl.optim.SGD):
        def __setstate__(self, state):
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("extra", 3)

    p = gl.ones(1, requires_grad=True)
    opt = Own([p], lr=0.1)
    opt.load_state_dict(gl.optim.SGD([p], lr=0.5).state_dict())
    assert (opt.param_groups[0]["lr"], opt.param_groups[0]["extra"]) == (0.5, 3)


def test_a_copied_parameter_has_no_gradient():
    """As in PyTorch: a copy of a model that is trained begins with no gradient, where a copied tensor that is none keeps its own."""
    model, leaf = gl.nn.Linear(2, 1), gl.ones(2, requires_grad=True)
    (model(leaf).sum() + (leaf * 2).sum()).backward()
    assert [p.grad for p in copy.deepcopy(model).parameters()] == [None, None]
    assert model.weight.grad is not None
    assert copy.deepcopy(leaf).grad.tolist() == leaf.grad.tolist()
