"""Optional arguments in pairs: schedulers' step(epoch), samplers, norms with either of weight and bias, optimizers' options two by two."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from kinds.test_schedulers_resumed import CASES

F, nn, lr_scheduler = gl.nn.functional, gl.nn, gl.optim.lr_scheduler

# ---------------------------------------------------------------- schedulers

BY_FORMULA = (  # step(epoch) is told by a formula of the epoch alone
    "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "LambdaLR", "LinearLR", "ConstantLR", "PolynomialLR",
    "CosineAnnealingWarmRestarts",
)  # fmt: skip


def groups(engine=gl):
    leaves = [engine.zeros(1, requires_grad=True) for _ in range(2)]
    return engine.optim.SGD([{"params": leaves[:1]}, {"params": leaves[1:], "lr": 0.3}], lr=0.1, momentum=0.9)


@pytest.mark.parametrize(("name", "number"), [(n, i) for n in BY_FORMULA for i in range(len(CASES[n]))])
def test_a_step_to_an_epoch_is_as_many_steps(name, number):
    options = CASES[name][number]
    one_by_one, optimizer = [], groups()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = getattr(lr_scheduler, name)(optimizer, **options)
        for _ in range(12):
            scheduler.step()
            one_by_one.append([g["lr"] for g in optimizer.param_groups])
        for order in (range(1, 13), (7, 3, 12, 2, 5, 5, 9)):
            optimizer = groups()
            scheduler = getattr(lr_scheduler, name)(optimizer, **options)
            for epoch in order:
                scheduler.step(epoch)
                assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(one_by_one[epoch - 1], rel=1e-9), (order, epoch)


def test_milestones_repeated_count_as_often():
    optimizer = groups()
    scheduler = lr_scheduler.MultiStepLR(optimizer, milestones=[3, 1, 3], gamma=0.5)
    found = []
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.05, 0.05, 0.0125, 0.0125])


# ---------------------------------------------------------------- samplers


def seeded(number):
    return gl.Generator().manual_seed(number)


@pytest.mark.parametrize(("replacement", "count"), list(itertools.product((False, True), (None, 3, 7, 17))))
def test_random_samplers(replacement, count):
    data = range(7)
    drawn = [list(RandomSampler(data, replacement, count, generator=seeded(s))) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == len(RandomSampler(data, replacement, count)) == (count or 7)
    assert set(drawn[0]) <= set(data)
    if not replacement:  # each pass has each element once
        for first in range(0, len(drawn[0]), 7):
            part = drawn[0][first : first + 7]
            assert len(set(part)) == len(part)
    sampler = RandomSampler(data, replacement, count, generator=seeded(1))
    assert list(sampler) == drawn[0] and list(sampler) != drawn[0]  # a generator goes on


def test_samplers_with_generators_and_batches():
    weighted = [list(WeightedRandomSampler([0.0, 1, 3], 40, generator=seeded(s))) for s in (1, 1, 2)]
    assert weighted[0] == weighted[1] != weighted[2] and set(weighted[0]) == {1, 2}
    assert sorted(WeightedRandomSampler([1.0, 1, 3, 0], 3, replacement=False, generator=seeded(0))) == [0, 1, 2]
    assert list(SubsetRandomSampler([4, 9, 2, 5], seeded(1))) == list(SubsetRandomSampler([4, 9, 2, 5], seeded(1)))
    for size, drop in itertools.product((1, 2, 3, 4, 7, 9), (False, True)):
        batches = BatchSampler(range(7), size, drop)
        want = [list(range(i, min(i + size, 7))) for i in range(0, 7, size)]
        want = [w for w in want if len(w) == size or not drop]
        assert [list(b) for b in batches] == want and len(batches) == len(want)


# ---------------------------------------------------------------- norms

X = np.random.default_rng(0).normal(1, 2, (3, 4, 5, 6))
SCALE = {4: np.array([0.5, 2, -1, 3.0]), 6: np.array([0.5, 2, -1, 3, 1, 0.25])}


def standard(x, axes, center=True):
    mean = x.mean(axes, keepdims=True) * center
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def grouped(x):
    return standard(x.reshape(3, 2, 2, 5, 6), (2, 3, 4)).reshape(x.shape)


NORMS = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), lambda x: standard(x, -1), 6),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), grouped, 4),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x: standard(x, (0, 2, 3)), 4),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), lambda x: standard(x, (2, 3)), 4),
}


@pytest.mark.parametrize(("name", "scaled", "shifted"), list(itertools.product(NORMS, (False, True), (False, True))))
@pytest.mark.parametrize("compiled", [False, True])
def test_norms_with_either_of_weight_and_bias(name, scaled, shifted, compiled):
    function, reference, size = NORMS[name]
    shape = (size,) if size == 6 else (size, 1, 1)
    scale, shift = SCALE[size], SCALE[size][::-1] + 1
    want = reference(X) * (scale.reshape(shape) if scaled else 1) + (shift.reshape(shape) if shifted else 0)

    def both(x, w, b):
        y = function(x, w, b)
        (y * y * 0.5).sum().backward()
        return y

    run = gl.compile(both) if compiled else both
    for _ in range(3 if compiled else 1):
        given = (X, True), (scale, scaled), (shift, shifted)
        leaves = [gl.tensor(v, requires_grad=True) if there else None for v, there in given]
        y = run(*leaves)
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-9, atol=1e-9)
    axes = (0, 1, 2) if size == 6 else (0, 2, 3)
    if scaled:
        np.testing.assert_allclose(leaves[1].grad.numpy(), (want * reference(X)).sum(axes), rtol=1e-8, atol=1e-11)
    if shifted:
        np.testing.assert_allclose(leaves[2].grad.numpy(), want.sum(axes), rtol=1e-8, atol=1e-11)


# ---------------------------------------------------------------- optimizers

OPTIONS = {
    "SGD": {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "nesterov": True, "maximize": True},
    "Adam": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True, "maximize": True},
    "AdamW": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.3, "amsgrad": True, "maximize": True},
    "RMSprop": {"alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9, "centered": True, "maximize": True},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3, "maximize": True},
    "Adadelta": {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    "Adamax": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    "NAdam": {"betas": (0.5, 0.9), "weight_decay": 0.1, "momentum_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    "RAdam": {"betas": (0.5, 0.9), "weight_decay": 0.1, "eps": 1e-3, "decoupled_weight_decay": True, "maximize": True},
    "Rprop": {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2), "maximize": True},
    "ASGD": {"lambd": 0.01, "alpha": 0.5, "t0": 2.0, "weight_decay": 0.1, "maximize": True},
}
PAIRS = [(name, pair) for name, options in OPTIONS.items() for pair in itertools.combinations(options, 2)]


def trained(engine, name, options, constant):
    """A parameter after six steps with gradients that are constant, or change their signs."""
    p = engine.tensor([1.0, -2.0, 0.5], dtype=engine.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = getattr(engine.optim, name)([p], lr=0.1, **options)
    for step in range(6):
        p.grad = engine.tensor([1.0, 1.0, -3.0], dtype=engine.float64) * (1 if constant else (-1) ** step * (step + 1))
        optimizer.step()
    return p.detach().numpy()


def possible(options):
    return not (options.get("nesterov") and ("dampening" in options or not options.get("momentum")))


@pytest.mark.torch
@pytest.mark.parametrize("name", OPTIONS)
def test_pairs_of_an_optimizers_options(name):
    torch = importlib.import_module("torch")
    for pair in (p for n, p in PAIRS if n == name):
        options = {option: OPTIONS[name][option] for option in pair}
        if possible(options):
            for constant in (True, False):
                want, got = trained(torch, name, options, constant), trained(gl, name, options, constant)
                np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"{options} {constant}")


def test_centered_rmsprop_under_a_constant_gradient():
    """The mean of squares less the square of the mean: (1 - α^n) g² - (1 - α^n)² g² = α^n (1 - α^n) g²."""
    p = gl.tensor([1.0], dtype=gl.float64, requires_grad=True)
    optimizer, want = gl.optim.RMSprop([p], lr=0.1, alpha=0.5, eps=1e-3, centered=True), 1.0
    for n in range(1, 8):
        p.grad = gl.tensor([2.0], dtype=gl.float64)
        optimizer.step()
        want -= 0.1 * 2 / (math.sqrt(0.5**n * (1 - 0.5**n) * 4) + 1e-3)
        assert p.item() == pytest.approx(want, rel=1e-9)


def test_every_pair_of_options_stands_apart():
    """Without PyTorch: each option of each optimizer changes what is trained, and two options are not one of them alone."""
    for name, pair in PAIRS:
        options = {option: OPTIONS[name][option] for option in pair}
        if possible(options) and all(possible({o: v}) for o, v in options.items()):
            both, first, second = (trained(gl, name, o, False) for o in (options, *({k: v} for k, v in options.items())))
            assert not np.array_equal(both, first) or not np.array_equal(both, second), (name, pair)


def test_a_step_to_a_part_of_an_epoch():
    optimizer = groups()
    scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)
    for at, whole in ((0.25, 0), (1.5, 1), (3.75, 3), (4.5, 4)):
        scheduler.step(at)
        assert scheduler.last_epoch == whole
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * (1 + math.cos(math.pi * (at % 4) / 4)))


@pytest.mark.parametrize("made", [
    lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.5, 3), lambda o: lr_scheduler.OneCycleLR(o, 0.5, 9),
])
def test_cycles_of_momentum_leave_the_other_betas(made):
    optimizer = gl.optim.Adam([gl.zeros(1, requires_grad=True)], betas=(0.7, 0.98))
    scheduler, seen = made(optimizer), set()
    for _ in range(8):
        optimizer.step()
        scheduler.step()
        first, second = optimizer.param_groups[0]["betas"]
        seen.add(first)
        assert second == 0.98
    assert len(seen) > 3


@pytest.mark.parametrize("name", ["StepLR", "MultiStepLR"])
def test_a_rate_that_has_not_turned_yet_turns_when_a_run_goes_on(name):
    """The groups have the initial rate still, as where only the epoch is known; with the rate of the epoch it stays."""
    options = {"StepLR": {"step_size": 3}, "MultiStepLR": {"milestones": [3]}}[name]
    for rate, want in ((0.1, 0.01), (0.01, 0.01)):
        optimizer = gl.optim.SGD([{"params": [gl.zeros(1, requires_grad=True)], "initial_lr": 0.1}], lr=rate)
        getattr(lr_scheduler, name)(optimizer, last_epoch=2, **options)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(want)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("kind", "values", "better"), [
    ("abs", (1.0, 1.05, 1.11, 1.2, 1.32), (True, False, True, False, True)),
    ("rel", (10.0, 10.5, 11.1, 12.0, 12.5), (True, False, True, False, True)),
])
def test_how_much_better_counts(kind, values, better, sign):
    scheduler = lr_scheduler.ReduceLROnPlateau(groups(), "max" if sign > 0 else "min", threshold=0.1, threshold_mode=kind, patience=100)
    if sign < 0 and kind == "rel":
        values = (10.0, 9.5, 8.9, 8.1, 8.0)  # a tenth below the best
    bad = 0
    for value, counts in zip(values, better, strict=True):
        scheduler.step(value if kind == "rel" else sign * value)
        bad = 0 if counts else bad + 1
        assert scheduler.num_bad_epochs == bad, value


def test_rates_on_a_plateau_stop_at_their_bounds():
    optimizer = groups()
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, min_lr=[0.03, 0.2], eps=0)
    for want in ([0.1, 0.3], [0.05, 0.2], [0.03, 0.2], [0.03, 0.2]):
        scheduler.step(1.0)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(want) == scheduler.get_last_lr()
    optimizer = groups()
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, eps=0.06)
    for want in ([0.1, 0.3], [0.1, 0.15], [0.1, 0.075], [0.1, 0.075]):  # smaller changes are not made
        scheduler.step(1.0)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(want)


def test_gradients_are_forgotten_whichever_parameters_have_some():
    for none in (True, False):
        parameters = [gl.zeros(1, requires_grad=True) for _ in range(4)]
        for p in parameters[1::2]:
            p.sum().backward()
        gl.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}]).zero_grad(set_to_none=none)
        assert all(p.grad is None for p in parameters[::2])
        assert all(p.grad is None if none else p.grad.tolist() == [0] for p in parameters[1::2])


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "AdamW"])
def test_a_loaded_state_is_a_copy(name):
    def made():
        p = gl.ones(3, requires_grad=True)
        return p, getattr(gl.optim, name)([p], lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))

    def step(p, optimizer):
        p.grad = p.detach() * 2 - 3
        optimizer.step()

    def values(state):
        return {k: v.numpy().copy() for k, v in state["state"][0].items() if isinstance(v, gl.Tensor)}

    p, optimizer = made()
    step(p, optimizer)
    saved = optimizer.state_dict()
    before = values(saved)
    step(p, optimizer)
    other, loaded = made()
    loaded.load_state_dict(saved)
    for _ in range(2):
        step(other, loaded)
    assert before and all(np.array_equal(before[k], v) for k, v in values(saved).items())
