"""Optimizers and schedulers, copied and pickled after steps: every public one, eager and compiled, goes on as the original does."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.optim import lr_scheduler, optimizer, swa_utils


def subclasses(module, base):
    found = (getattr(module, name) for name in dir(module) if not name.startswith("_"))
    return sorted({kind.__name__ for kind in found if isinstance(kind, type) and issubclass(kind, base) and kind is not base})


OPTIMIZERS, SCHEDULERS = subclasses(optim, optim.Optimizer), subclasses(lr_scheduler, lr_scheduler.LRScheduler)
OPTIONS = {"SGD": {"lr": 0.1, "momentum": 0.9}, "LBFGS": {"lr": 0.1, "max_iter": 2}}
X = gl.from_numpy(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))


def as_file(value):
    with pytest.warns(gl.GradlabWarning, match="whoever reads it runs code"):
        gl.save(value, file := io.BytesIO(), pickle=True)
    file.seek(0)
    with pytest.warns(gl.GradlabWarning, match="weights_only=False"):
        return gl.load(file, weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda value, n=n: pickle.loads(pickle.dumps(value, n)) for n in (2, pickle.HIGHEST_PROTOCOL)},
    "file": as_file,
}
each_way = pytest.mark.parametrize("way", WAYS)


class Model(nn.Module):
    """A matrix alone, which all optimizers take: Muon wants matrices, SparseAdam the gradients of an embedding."""

    def __init__(self, sparse=False):
        super().__init__()
        gl.manual_seed(0)
        self.table = nn.Embedding(4, 3, sparse=sparse)

    def forward(self):
        return (self.table(gl.tensor([0, 2, 3, 2])) @ X.mT).square().mean()


def made(name):
    model = Model(name == "SparseAdam")
    return model, getattr(optim, name)(model.parameters(), **OPTIONS.get(name, {}))


def stepped(model, optimizer, steps):
    def closure():
        optimizer.zero_grad()
        loss = model()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return [p.detach().numpy().copy() for p in model.parameters()]


def alike(a, b):
    assert len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b))


@each_way
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, way):
    model, optimizer = made(name)
    start = stepped(model, optimizer, 3)
    twin, other = WAYS[way]((model, optimizer))
    assert other.param_groups[0]["params"][0] is next(twin.parameters()) is not next(model.parameters())
    expected = stepped(model, optimizer, 3)
    alike([p.detach().numpy() for p in twin.parameters()], start)
    assert not np.array_equal(start[0], expected[0])
    alike(stepped(twin, other, 3), expected)
    assert type(other) is type(optimizer) and str(other) == str(optimizer)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("LBFGS", "SparseAdam")])
def test_optimizers_after_compiled_steps(name):
    model, optimizer = made(name)

    @gl.compile
    def step():
        optimizer.zero_grad()
        loss = model()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    for way in WAYS.values():
        twin, other = way((model, optimizer))
        kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        expected = stepped(model, optimizer, 2)
        alike(stepped(twin, other, 2), expected)
        model.load_state_dict(kept[0]), optimizer.load_state_dict(kept[1])


# ---------------------------------------------------------------- schedulers


def halved(epoch):
    return 0.5**epoch


ARGUMENTS = {
    "StepLR": {"step_size": 2}, "MultiStepLR": {"milestones": [2, 5]}, "ExponentialLR": {"gamma": 0.9}, "CosineAnnealingLR": {"T_max": 7},
    "LambdaLR": {"lr_lambda": halved}, "MultiplicativeLR": {"lr_lambda": halved}, "CosineAnnealingWarmRestarts": {"T_0": 3},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}, "OneCycleLR": {"max_lr": 0.1, "total_steps": 20},
    "ReduceLROnPlateau": {"patience": 1}, "SWALR": {"swa_lr": 0.01, "anneal_epochs": 3},
}  # fmt: skip


def scheduled(name, optimizer):
    if name == "SequentialLR":
        return lr_scheduler.SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [4])
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)])
    return getattr(swa_utils if name == "SWALR" else lr_scheduler, name)(optimizer, **ARGUMENTS.get(name, {}))


def rates(model, optimizer, scheduler, steps):
    found = []
    for _ in range(steps):
        stepped(model, optimizer, 1)
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        found.append([(float(group["lr"]), group.get("momentum")) for group in optimizer.param_groups])
    return found


@each_way
@pytest.mark.parametrize("name", [*SCHEDULERS, "SWALR"])
def test_schedulers(name, way):
    model, optimizer = made("SGD")
    scheduler = scheduled(name, optimizer)
    rates(model, optimizer, scheduler, 3)
    twin, other, schedule = WAYS[way]((model, optimizer, scheduler))
    assert schedule.optimizer is other is not optimizer
    expected = rates(model, optimizer, scheduler, 5)
    assert rates(twin, other, schedule, 5) == expected
    alike([p.detach().numpy() for p in twin.parameters()], [p.detach().numpy() for p in model.parameters()])


@each_way
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_alone_takes_its_optimizer_along(name, way):
    model, optimizer = made("SGD")
    scheduler = scheduled(name, optimizer)
    rates(model, optimizer, scheduler, 3)
    schedule = WAYS[way](scheduler)
    assert schedule.optimizer is not optimizer and schedule.get_last_lr() == scheduler.get_last_lr()
    for each in (scheduler, schedule):
        each.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    assert schedule.get_last_lr() == scheduler.get_last_lr()


@each_way
def test_what_else_a_training_holds(way):
    model, optimizer = made("SGD")
    average = swa_utils.AveragedModel(model)
    scaler, generator = gl.amp.GradScaler("cpu"), gl.Generator().manual_seed(3)
    stepped(model, optimizer, 2)
    average.update_parameters(model)
    gl.rand(5, generator=generator)
    others = WAYS[way]((average, scaler, generator) if way != "file" else (average, scaler))
    alike([p.detach().numpy() for p in others[0].parameters()], [p.detach().numpy() for p in average.parameters()])
    assert others[1].state_dict() == scaler.state_dict()
    if way != "file":
        assert gl.rand(5, generator=others[2]).tolist() == gl.rand(5, generator=generator).tolist()


def test_hooks_of_all_optimizers():
    """They come before and after an optimizer's own."""
    told = []
    first, second = gl.nn.Parameter(gl.ones(1)), gl.nn.Parameter(gl.ones(1))
    first.grad, second.grad = gl.ones(1), gl.ones(1)
    a, b = gl.optim.SGD([first], 0.1), gl.optim.Adam([second], 0.1)
    a.register_step_pre_hook(lambda *_: told.append("own before"))
    a.register_step_post_hook(lambda *_: told.append("own after"))
    handles = [optimizer.register_optimizer_step_pre_hook(lambda *_: told.append("before")),
               optimizer.register_optimizer_step_post_hook(lambda *_: told.append("after"))]  # fmt: skip
    a.step()
    b.step()
    assert told == ["before", "own before", "own after", "after", "before", "after"]
    for handle in handles:
        handle.remove()
    b.step()
    assert len(told) == 6
