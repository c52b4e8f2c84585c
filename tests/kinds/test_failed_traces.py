"""A trace that ends in an error leaves schedulers, optimizers, scalers and objects of the user's as they were before it."""

import warnings
from collections import Counter, deque

import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.graph import TraceError
from gradlab.optim import lr_scheduler

FIRST = {
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 4),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda i: 0.9**i),
    "LinearLR": lr_scheduler.LinearLR,
    "ConstantLR": lr_scheduler.ConstantLR,
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 2, 3, 4]),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.9),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=50),
    "PolynomialLR": lr_scheduler.PolynomialLR,
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SWALR": lambda o: optim.swa_utils.SWALR(o, 0.05),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, 0.5),
}


class Record:
    """What a user's object keeps. `step` changes it through its methods alone."""

    def __init__(self):
        self.count, self.lines, self.names, self.kinds, self.last = 0, [1], {"a": 1}, {1}, deque([1], 3)
        self.inner = Counter()

    def step(self):
        self.count += 1
        self.lines.append(self.count)
        self.names["b"] = self.count
        self.kinds.add(self.count)
        self.last.append(self.count)
        self.inner["steps"] += 1

    def state_dict(self):
        return {k: v.copy() if hasattr(v, "copy") else v for k, v in self.__dict__.items()}


def test_all_schedulers_are_here():
    there = {n for n, v in vars(lr_scheduler).items() if isinstance(v, type) and hasattr(v, "step")}
    assert there - {"LRScheduler", "_LRScheduler"} == FIRST.keys() - {"SWALR"}


@pytest.mark.parametrize("with_optimizer", [False, True], ids=["alone", "with its optimizer"])
@pytest.mark.parametrize("failure", ["of the user's", "a value is read", "another shape", "a change"])
def test_what_a_failed_trace_leaves(failure, with_optimizer):
    weight = nn.Parameter(gl.ones(2))

    def stepped(kind):
        optimizer = optim.SGD([weight], lr=0.1, momentum=0.9)
        thing = Record() if kind == "Record" else FIRST[kind](optimizer)
        tracing, grown = [False], gl.zeros(1)

        @gl.compile
        def step(x):
            if with_optimizer:
                optimizer.zero_grad()
                (weight * x).sum().backward()
                optimizer.step()
            thing.step(*[1.0] * (kind == "ReduceLROnPlateau"))
            if tracing[0]:
                if failure == "of the user's":
                    raise KeyError("stop")
                if failure == "a value is read":
                    (x + 1).sum().item()
                if failure == "another shape":
                    grown.data = gl.ones(2)
                    tracing[0] = False

        return step, thing, optimizer, tracing

    for kind in [*FIRST, "Record"]:
        step, thing, optimizer, tracing = stepped(kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # schedulers before optimizers; calls that run eagerly
            for _ in range(3):
                thing.step(*[1.0] * (kind == "ReduceLROnPlateau"))
            step(gl.ones(2))
            before, groups = thing.state_dict(), [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
            tracing[0] = True
            if failure == "another shape":  # it is one, and runs eagerly: once
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(gl.graph.calls.compiled.Compiled, "_eagerly", lambda *_: None)
                    step(gl.ones(2))
            else:
                with pytest.raises((KeyError, TraceError)):
                    step(gl.ones(2))
        assert thing.state_dict() == before, (kind, failure)
        assert [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] == groups, (kind, failure)
