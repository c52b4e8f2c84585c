"""Every learning rate scheduler, stopped at any epoch and continued: by `last_epoch`, by its state dict, as a pickle, as a deep copy."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import warnings

import pytest

import gradlab as gl

EPOCHS, LATER = 14, 9


class Height:
    """A function that can be pickled."""

    def __init__(self, base):
        self.base = base

    def __call__(self, epoch):
        return self.base**epoch


# Of each scheduler the arguments to try.
CASES = {
    "StepLR": [{"step_size": 3}, {"step_size": 2, "gamma": 0.5}],
    "MultiStepLR": [{"milestones": [2, 5, 5, 9], "gamma": 0.5}],
    "ExponentialLR": [{"gamma": 0.9}],
    "CosineAnnealingLR": [{"T_max": 5}, {"T_max": 7, "eta_min": 0.01}],
    "LambdaLR": [{"lr_lambda": Height(0.95)}, {"lr_lambda": [Height(0.9), Height(0.8)]}],
    "MultiplicativeLR": [{"lr_lambda": Height(0.99)}],
    "LinearLR": [{}, {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 8}],
    "ConstantLR": [{}, {"factor": 0.5, "total_iters": 3}],
    "PolynomialLR": [{}, {"total_iters": 9, "power": 2.0}],
    "CosineAnnealingWarmRestarts": [{"T_0": 4}, {"T_0": 2, "T_mult": 2, "eta_min": 0.01}, {"T_0": 1, "T_mult": 3}],
    "CyclicLR": [
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3},
        {"base_lr": 0.01, "max_lr": [0.1, 0.2], "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"},
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9},
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "scale_fn": Height(0.9), "cycle_momentum": False},
    ],
    "OneCycleLR": [
        {"max_lr": 0.1, "total_steps": 40},
        {"max_lr": [0.1, 0.3], "epochs": 8, "steps_per_epoch": 5, "anneal_strategy": "linear"},
        {"max_lr": 0.1, "total_steps": 40, "three_phase": True},
        {"max_lr": 0.1, "total_steps": 40, "cycle_momentum": False},
    ],
    "SWALR": [{"swa_lr": 0.05, "anneal_epochs": 5}, {"swa_lr": [0.05, 0.2], "anneal_epochs": 4, "anneal_strategy": "linear"}],
    "ReduceLROnPlateau": [{"patience": 1, "factor": 0.5}, {"mode": "max", "patience": 0, "cooldown": 2}],
    "SequentialLR": [{}],
    "ChainedScheduler": [{}],
}  # fmt: skip
EACH = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
each = pytest.mark.parametrize(("name", "number"), EACH)
WITHOUT_EPOCH = {"ReduceLROnPlateau", "ChainedScheduler"}  # which take no last_epoch


def wrong_in_torch(name, number):
    """Where PyTorch's, made at a later epoch, applies a factor twice, anneals anew, begins at 0, or takes the first period's length."""
    return name in ("StepLR", "MultiStepLR", "ConstantLR", "SWALR", "SequentialLR") or CASES[name][number].get("T_mult", 1) > 1


def test_every_scheduler_is_here():
    rooms = (gl.optim.lr_scheduler, gl.optim.swa_utils)
    base = gl.optim.lr_scheduler.LRScheduler
    public = {n for room in rooms for n, c in vars(room).items() if inspect.isclass(c) and issubclass(c, base) and c is not base}
    assert {n for n in public if not n.startswith("_")} == CASES.keys()


def optimizer(m, kind="SGD", tensors=False):
    a, b = (m.tensor([1.0]).requires_grad_() for _ in range(2))
    rates = [m.tensor(lr, dtype=m.float64) if tensors else lr for lr in (0.1, 0.3)]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(m.optim, kind)([{"params": [a], "lr": rates[0]}, {"params": [b], "lr": rates[1]}], **options)


def scheduler(m, name, number, opt, **options):
    s = m.optim.lr_scheduler
    if name == "SequentialLR":
        parts = [s.LinearLR(opt, total_iters=3), s.ExponentialLR(opt, 0.9), s.CosineAnnealingLR(opt, 5)]
        return s.SequentialLR(opt, parts, [4, 9], **options)
    if name == "ChainedScheduler":
        return s.ChainedScheduler([s.ConstantLR(opt, 0.5, 4), s.ExponentialLR(opt, 0.9), s.StepLR(opt, 3)])
    return (getattr(s, name, None) or getattr(m.optim.swa_utils, name))(opt, **CASES[name][number], **options)


METRICS = [1.0, 0.9, 0.95, 0.95, 0.9499, 0.96, 0.5, 0.5, 0.5, 0.5, 0.6, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, 0.3, 0.4, 0.4, 0.4, 0.5, 0.6]


def run(name, opt, schedule, first, steps):
    """The rates and momenta of some epochs, and then of one more."""
    found = []
    for epoch in range(first, first + steps + 1):
        found += [v for g in opt.param_groups for v in (float(g["lr"]), g.get("momentum"), g.get("betas", [None])[0]) if v is not None]
        if epoch < first + steps:
            opt.step()
            schedule.step(METRICS[epoch]) if name == "ReduceLROnPlateau" else schedule.step()
    return found


def halfway(m, name, number, epoch, kind="SGD", tensors=False):
    """An optimizer and its scheduler at an epoch; a copy of the optimizer's state there; what comes after it."""
    opt = optimizer(m, kind, tensors)
    schedule = scheduler(m, name, number, opt)
    run(name, opt, schedule, 0, epoch)
    saved = copy.deepcopy((opt.state_dict(), schedule.state_dict()))
    return saved, lambda: run(name, opt, schedule, epoch, LATER), (opt, schedule)


def resumed(m, name, number, epoch, saved, kind="SGD", tensors=False):
    opt = optimizer(m, kind, tensors)
    opt.load_state_dict(saved[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of steps in another order
        return run(name, opt, scheduler(m, name, number, opt, last_epoch=epoch - 1), epoch, LATER)


@pytest.mark.parametrize("tensors", [False, True], ids=["numbers", "tensors"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "number"), [pair for pair in EACH if pair[0] not in WITHOUT_EPOCH])
def test_one_made_at_a_later_epoch_continues(name, number, kind, tensors):
    for epoch in range(1, EPOCHS):
        saved, rest, _ = halfway(gl, name, number, epoch, kind, tensors)
        assert resumed(gl, name, number, epoch, saved, kind, tensors) == pytest.approx(rest(), rel=1e-9), epoch


@pytest.mark.parametrize(("name", "number"), [(n, i) for n, i in EACH if n not in WITHOUT_EPOCH and not wrong_in_torch(n, i)])
def test_one_made_at_a_later_epoch_as_in_torch(name, number):
    torch = pytest.importorskip("torch")
    for epoch in range(1, EPOCHS):
        got, want = (resumed(m, name, number, epoch, halfway(m, name, number, epoch)[0]) for m in (gl, torch))
        assert got == pytest.approx(want, rel=1e-9), epoch


@each
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_state_dict_continues(name, number, kind):
    for epoch in range(EPOCHS):
        saved, rest, _ = halfway(gl, name, number, epoch, kind)
        opt = optimizer(gl, kind)
        schedule = scheduler(gl, name, number, opt)
        opt.load_state_dict(saved[0])
        schedule.load_state_dict(saved[1])
        assert run(name, opt, schedule, epoch, LATER) == rest(), epoch


@each
def test_a_state_dict_as_in_torch(name, number):
    torch = pytest.importorskip("torch")
    found = []
    for m in (gl, torch):
        saved, _, _ = halfway(m, name, number, 5)
        opt = optimizer(m)
        schedule = scheduler(m, name, number, opt)
        opt.load_state_dict(saved[0])
        schedule.load_state_dict(saved[1])
        found.append((run(name, opt, schedule, 5, LATER), schedule.last_epoch if hasattr(schedule, "last_epoch") else None))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9)
    assert found[0][1] == found[1][1]


@each
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_continues_with_its_own_optimizer(name, number, copied):
    _, rest, pair = halfway(gl, name, number, 5)
    opt, schedule = copied(pair)
    assert schedule.optimizer is opt and opt is not pair[0]
    alone = copied(schedule)  # takes its optimizer along
    expected = rest()
    assert run(name, opt, schedule, 5, LATER) == expected
    assert run(name, alone.optimizer, alone, 5, LATER) == expected


@pytest.mark.parametrize("mult", [1, 2, 3])
@pytest.mark.parametrize("last", [0, 1, 3, 8, 99, 12345])
def test_warm_restarts_begin_anywhere(mult, last):
    """The rate at an epoch by the definition: half a cosine over the period that the epoch lies in."""
    (group, _) = (opt := optimizer(gl)).param_groups
    for g in opt.param_groups:
        g["initial_lr"] = 1.0
    schedule = gl.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=3, T_mult=mult, last_epoch=last)
    for epoch in range(last + 1, last + 12):
        start, length = (epoch - epoch % 3, 3) if mult == 1 else (0, 3)
        while mult > 1 and epoch >= start + length:
            start, length = start + length, length * mult
        assert group["lr"] == pytest.approx((1 + math.cos(math.pi * (epoch - start) / length)) / 2, abs=1e-12)
        opt.step()
        schedule.step()
