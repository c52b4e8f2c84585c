"""Learning rate schedulers: explicit values, saving; `-m torch` compares trajectories with PyTorch."""

from __future__ import annotations

import io
import math

import pytest

import gradlab as gl
from gradlab.optim import SGD, Adam, lr_scheduler

CASES = {
    "StepLR": [{"step_size": 3}, {"step_size": 2, "gamma": 0.5}],
    "MultiStepLR": [{"milestones": [2, 5, 5, 9], "gamma": 0.5}],
    "ExponentialLR": [{"gamma": 0.9}],
    "CosineAnnealingLR": [{"T_max": 5}, {"T_max": 7, "eta_min": 0.01}],
    "LambdaLR": [{"lr_lambda": lambda e: 0.95**e}, {"lr_lambda": [lambda e: 1 / (1 + e), lambda e: 0.5]}],
    "MultiplicativeLR": [{"lr_lambda": lambda e: 0.95 + 0.01 * e}],
    "LinearLR": [{}, {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 8}],
    "ConstantLR": [{}, {"factor": 0.5, "total_iters": 3}],
    "PolynomialLR": [{}, {"total_iters": 9, "power": 2.0}],
    "CosineAnnealingWarmRestarts": [{"T_0": 4}, {"T_0": 2, "T_mult": 2, "eta_min": 0.01}],
    "CyclicLR": [
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3},
        {"base_lr": 0.01, "max_lr": [0.1, 0.2], "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"},
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9},
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "scale_fn": lambda x: 1 / x, "cycle_momentum": False},
    ],
    "OneCycleLR": [
        {"max_lr": 0.1, "total_steps": 20},
        {"max_lr": [0.1, 0.3], "epochs": 4, "steps_per_epoch": 5, "anneal_strategy": "linear"},
        {"max_lr": 0.1, "total_steps": 20, "three_phase": True},
        {"max_lr": 0.1, "total_steps": 20, "cycle_momentum": False},
    ],
}
each_case = pytest.mark.parametrize(("name", "number"), [(name, i) for name, cases in CASES.items() for i in range(len(cases))])
PLAIN = [name for name in CASES if name not in ("CyclicLR", "OneCycleLR")]


def setup(optim, tensor, kind="SGD"):
    a, b = tensor([1.0]), tensor([2.0])
    a.requires_grad_(), b.requires_grad_()
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(optim, kind)([{"params": [a]}, {"params": [b], "lr": 0.3}], lr=0.1, **options)


def trajectory(opt, scheduler, steps=18):
    seen = []
    for _ in range(steps):
        opt.step()
        seen.append([(float(g["lr"]), g.get("momentum"), g.get("betas", (None,))[0]) for g in opt.param_groups])
        scheduler.step()
        assert scheduler.get_last_lr() == [float(g["lr"]) for g in opt.param_groups]
    return seen


def flat(seen):
    return [v for step in seen for group in step for v in group if v is not None]


@pytest.mark.torch
@each_case
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_as_in_torch(name, number, kind):
    torch = pytest.importorskip("torch")
    ours, theirs = setup(gl.optim, gl.tensor, kind), setup(torch.optim, torch.tensor, kind)
    got = trajectory(ours, getattr(lr_scheduler, name)(ours, **CASES[name][number]))
    want = trajectory(theirs, getattr(torch.optim.lr_scheduler, name)(theirs, **CASES[name][number]))
    assert flat(got) == pytest.approx(flat(want), rel=1e-12, abs=1e-16)


def sequential(scheduler, opt):
    parts = [scheduler.LinearLR(opt, total_iters=3), scheduler.ExponentialLR(opt, 0.9), scheduler.CosineAnnealingLR(opt, 5)]
    return scheduler.SequentialLR(opt, parts, [4, 9])


def chained(scheduler, opt):
    return scheduler.ChainedScheduler([scheduler.ConstantLR(opt, 0.5, 4), scheduler.ExponentialLR(opt, 0.9), scheduler.StepLR(opt, 3)])


def nested(scheduler, opt):
    inner = scheduler.ChainedScheduler([scheduler.LinearLR(opt), scheduler.ExponentialLR(opt, 0.9)])
    return scheduler.SequentialLR(opt, [inner, scheduler.StepLR(opt, 2)], [6])


@pytest.mark.torch
@pytest.mark.parametrize("make", [sequential, chained])
def test_combined_as_in_torch(make):
    torch = pytest.importorskip("torch")
    ours, theirs = setup(gl.optim, gl.tensor), setup(torch.optim, torch.tensor)
    got = trajectory(ours, make(lr_scheduler, ours))
    assert flat(got) == pytest.approx(flat(trajectory(theirs, make(torch.optim.lr_scheduler, theirs))), rel=1e-12)


def test_nested():
    """PyTorch warns here, and its inner ExponentialLR already falls in the first epoch."""
    opt = setup(gl.optim, gl.tensor)
    seen = [step[0][0] for step in trajectory(opt, nested(lr_scheduler, opt), 10)]
    linear = [0.1 * (1 + 2 * t / 5) / 3 * 0.9**t for t in range(6)]
    assert seen == pytest.approx([*linear, 0.1, 0.1, 0.01, 0.01])


METRICS = [1.0, 0.9, 0.95, 0.95, 0.9499, 0.96, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, float("nan"), 0.4, 0.4]


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_as_in_torch(mode, threshold_mode):
    torch = pytest.importorskip("torch")
    options = {
        "mode": mode,
        "threshold_mode": threshold_mode,
        "factor": 0.5,
        "patience": 1,
        "cooldown": 2,
        "min_lr": [0.01, 0.1],
        "threshold": 0.02,
    }
    seen = []
    for optim, tensor in ((gl.optim, gl.tensor), (torch.optim, torch.tensor)):
        opt = setup(optim, tensor)
        scheduler = optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
        seen.append([])
        for metric in METRICS:
            scheduler.step(metric)
            seen[-1].append([g["lr"] for g in opt.param_groups])
    assert seen[0] == seen[1]


def rates(name, steps, lr=1.0, **options):
    opt = SGD([gl.tensor([1.0], requires_grad=True)], lr=lr, momentum=0.5)
    scheduler = getattr(lr_scheduler, name)(opt, **options)
    return [step[0][0] for step in trajectory(opt, scheduler, steps)]


def test_explicit_values():
    assert rates("StepLR", 5, step_size=2, gamma=0.5) == [1, 1, 0.5, 0.5, 0.25]
    assert rates("MultiStepLR", 5, milestones=[1, 3], gamma=0.5) == [1, 0.5, 0.5, 0.25, 0.25]
    assert rates("ExponentialLR", 4, gamma=0.5) == [1, 0.5, 0.25, 0.125]
    assert rates("LambdaLR", 3, lr_lambda=lambda e: e + 1) == [1, 2, 3]
    assert rates("MultiplicativeLR", 4, lr_lambda=lambda e: e) == [1, 1, 2, 6]
    assert rates("ConstantLR", 4, factor=0.5, total_iters=2) == [0.5, 0.5, 1, 1]
    assert rates("LinearLR", 4, start_factor=0.5, total_iters=2) == pytest.approx([0.5, 0.75, 1, 1])
    assert rates("PolynomialLR", 4, total_iters=2) == [1, 0.5, 0, 0]
    assert rates("CosineAnnealingLR", 5, T_max=4) == pytest.approx([(1 + math.cos(math.pi * t / 4)) / 2 for t in range(5)], abs=1e-15)
    assert rates("CosineAnnealingWarmRestarts", 5, T_0=2) == pytest.approx([1, 0.5, 1, 0.5, 1])
    assert rates("CyclicLR", 5, base_lr=1, max_lr=3, step_size_up=2) == pytest.approx([1, 2, 3, 2, 1])
    assert rates("OneCycleLR", 5, max_lr=25, total_steps=10, pct_start=0.3, anneal_strategy="linear")[:3] == pytest.approx([1, 13, 25])


def test_cosine_passes_its_lowest_point():
    seen = rates("CosineAnnealingLR", 17, T_max=4)
    assert seen == pytest.approx([(1 + math.cos(math.pi * t / 4)) / 2 for t in range(17)], abs=1e-12)


@pytest.mark.parametrize("make", [*PLAIN, "CyclicLR", "OneCycleLR", sequential, chained, nested])
def test_resume(make):
    def made():
        opt = setup(gl.optim, gl.tensor)
        return opt, make(lr_scheduler, opt) if callable(make) else getattr(lr_scheduler, make)(opt, **CASES[make][0])

    opt, scheduler = made()
    trajectory(opt, scheduler, 7)
    file = io.BytesIO()
    gl.save({"optimizer": opt.state_dict(), "scheduler": scheduler.state_dict()}, file)
    wanted = trajectory(opt, scheduler, 8)
    file.seek(0)
    found = gl.load(file)
    opt, scheduler = made()
    opt.load_state_dict(found["optimizer"])
    scheduler.load_state_dict(found["scheduler"])
    opt.step()
    assert trajectory(opt, scheduler, 8) == wanted


def test_tensor_rate_keeps_its_identity():
    lr = gl.tensor(0.5)
    opt = SGD([gl.tensor([1.0], requires_grad=True)], lr=lr)
    scheduler = lr_scheduler.ExponentialLR(opt, 0.5)
    trajectory(opt, scheduler, 2)
    assert opt.param_groups[0]["lr"] is lr and lr.item() == 0.125 and opt.param_groups[0]["initial_lr"] == 0.5


def test_wrong_order_warns():
    opt = SGD([gl.tensor([1.0], requires_grad=True)])
    scheduler = lr_scheduler.StepLR(opt, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_resuming_needs_the_initial_rate():
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(SGD([gl.tensor([1.0], requires_grad=True)]), 1, last_epoch=3)


def test_errors():
    opt = setup(gl.optim, gl.tensor)
    with pytest.raises(TypeError, match="is not an Optimizer"):
        lr_scheduler.StepLR(3, 1)
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas"):
        lr_scheduler.LambdaLR(opt, [lambda e: 1.0])
    with pytest.raises(ValueError, match="factor"):
        lr_scheduler.ConstantLR(opt, 1.5)
    with pytest.raises(ValueError, match="factor"):
        lr_scheduler.LinearLR(opt, 0.0)
    with pytest.raises(ValueError, match="T_0"):
        lr_scheduler.CosineAnnealingWarmRestarts(opt, 0)
    with pytest.raises(ValueError, match="mode is invalid"):
        lr_scheduler.CyclicLR(opt, 0.1, 0.2, mode="round")
    with pytest.raises(ValueError, match="must support momentum"):
        lr_scheduler.CyclicLR(gl.optim.Adagrad([gl.tensor([1.0])]), 0.1, 0.2)
    with pytest.raises(ValueError, match="total_steps"):
        lr_scheduler.OneCycleLR(opt, 0.1)
    with pytest.raises(ValueError, match="Factor"):
        lr_scheduler.ReduceLROnPlateau(opt, factor=1.0)
    with pytest.raises(ValueError, match="one more"):
        lr_scheduler.SequentialLR(opt, [lr_scheduler.StepLR(opt, 1)], [2])
    with pytest.raises(ValueError, match="same optimizer"):
        lr_scheduler.SequentialLR(Adam([gl.tensor([1.0])]), [lr_scheduler.StepLR(opt, 1)], [])
    scheduler = lr_scheduler.OneCycleLR(opt, 0.1, total_steps=4)
    with pytest.raises(ValueError, match="Tried to step"):
        trajectory(opt, scheduler, 6)


@pytest.mark.parametrize(("make", "wanted"), [
    (lambda o: gl.optim.lr_scheduler.ExponentialLR(o, 0.9), [0.9, 0.81, 0.729, 0.6561]),
    (lambda o: gl.optim.lr_scheduler.StepLR(o, 2, 0.5), [1, 1, 0.5, 0.5]),
    (lambda o: gl.optim.lr_scheduler.MultiStepLR(o, [1, 3], 0.5), [1, 0.5, 0.5, 0.25]),
    (lambda o: gl.optim.lr_scheduler.ConstantLR(o, 0.5, 3), [0.25, 0.25, 0.25, 0.5]),
    (lambda o: gl.optim.lr_scheduler.LinearLR(o, 0.25, 1.0, 4), [0.0625, 0.109375, 0.15625, 0.203125]),
    (lambda o: gl.optim.lr_scheduler.PolynomialLR(o, 5), [5 / 6, 2 / 3, 1 / 2, 1 / 3]),
])  # fmt: skip
def test_rates_that_are_asked_for_by_hand(make, wanted):
    """As wrappers of schedulers do (Ignite's): `get_lr`, the groups' rates by hand, and the next epoch. Figures of PyTorch 2.13."""
    opt = gl.optim.SGD([gl.nn.Parameter(gl.ones(1))], lr=1.0)
    scheduler, found = make(opt), []
    for _ in wanted:
        (value,) = scheduler.get_lr()
        found.append(value)
        opt.param_groups[0]["lr"] = value
        scheduler.last_epoch += 1
    assert found == pytest.approx(wanted)


def test_what_a_plateau_does_is_a_subclass_to_say():
    class Noted(gl.optim.lr_scheduler.ReduceLROnPlateau):
        def _reduce_lr(self, epoch):
            seen.append(epoch)

        def _is_better(self, a, best):
            seen.append((a, best))
            return super()._is_better(a, best)

    seen: list = []
    scheduler = Noted(gl.optim.SGD([gl.nn.Parameter(gl.ones(1))], lr=1.0), patience=0, min_lr=0.1)
    for metric in (3.0, 2.0, 4.0):
        scheduler.step(metric)
    assert seen == [(3.0, math.inf), (2.0, 3.0), (4.0, 2.0), 3] and scheduler.min_lrs == [0.1]
    scheduler._reset()
    assert (scheduler.best, scheduler.num_bad_epochs) == (math.inf, 0)


def test_a_scheduler_in_pytorchs_manner():
    """Which asks whether `step` calls it, and has a closed form of its own."""

    class Own(gl.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            asked.append(self._get_lr_called_within_step)
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

        def _get_closed_form_lr(self):
            return [base / (10 + self.last_epoch) for base in self.base_lrs]

    asked: list = []
    opt = gl.optim.SGD([gl.nn.Parameter(gl.ones(1))], lr=1.0)
    scheduler = Own(opt)
    opt.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.5]
    scheduler.step(6)
    assert scheduler.get_last_lr() == [1 / 16] and scheduler.get_lr() == [1 / 7] and asked == [True, True, False]
    assert not scheduler.state_dict()["_get_lr_called_within_step"]
