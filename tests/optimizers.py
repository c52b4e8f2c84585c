"""What the tests of optimizers share: options to try, parameters, gradients, running."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

CASES = {
    "SGD": [{}, {"lr": 0.1, "weight_decay": 0.5}, {"lr": 0.1, "momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5},
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"weight_decay": 0.1, "maximize": True}],
    "Adam": [{}, {"lr": 0.1}, {"weight_decay": 0.1, "maximize": True}, {"weight_decay": 0.1, "amsgrad": True}, {"betas": (0.0, 0.5)}],
    "AdamW": [{}, {"lr": 0.1}, {"weight_decay": 0.1, "maximize": True}, {"weight_decay": 0.1, "amsgrad": True}],
    "RMSprop": [{}, {"weight_decay": 0.1, "centered": True}, {"weight_decay": 0.1, "centered": True, "momentum": 0.1},
                {"maximize": True, "momentum": 0.9}],
    "Adagrad": [{}, {"lr": 0.1, "weight_decay": 0.1}, {"lr_decay": 0.5, "initial_accumulator_value": 0.25}, {"maximize": True}],
    "Adadelta": [{}, {"rho": 0.95, "weight_decay": 0.9}, {"maximize": True}],
    "Adamax": [{}, {"lr": 0.1, "weight_decay": 0.1}, {"maximize": True}],
    "NAdam": [{}, {"lr": 0.1, "momentum_decay": 0.006}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True}],
    "RAdam": [{}, {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True}],
    "ASGD": [{}, {"lambd": 0.1, "t0": 10}, {"lr": 0.1, "weight_decay": 0.1, "t0": 3}, {"maximize": True}],
    "Rprop": [{}, {"lr": 2e-4}, {"etas": (0.5, 1.5)}, {"step_sizes": (2e-6, 100)}, {"maximize": True}],
}  # fmt: skip
EACH = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
each_case = pytest.mark.parametrize(("name", "number"), EACH)
each_optimizer = pytest.mark.parametrize("name", CASES)


def gradients(steps=20, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(4, 3)).astype(dtype), rng.normal(size=(3,)).astype(dtype)) for _ in range(steps)]


def start(dtype="float64"):
    rng = np.random.default_rng(1)
    return [gl.tensor(rng.normal(size=s).astype(dtype), requires_grad=True) for s in ((4, 3), (3,))]


def give(params, arrays):
    for p, g in zip(params, arrays, strict=True):
        p.grad = None if g is None else gl.tensor(g)


def run(opt, params, steps):
    seen = []
    for arrays in steps:
        give(params, arrays)
        opt.step()
        seen.append([p.detach().numpy().copy() for p in params])
    return seen


def equal(a, b):
    for x, y in zip(a, b, strict=True):
        for u, v in zip(x, y, strict=True):
            np.testing.assert_array_equal(u, v)
