"""gradlab.train.fit: arguments that cannot be meant, and the names that others have."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.metrics import Accuracy
from gradlab.train import Bar
from gradlab.utils.data import DataLoader, TensorDataset


def parts():
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    loader = DataLoader(TensorDataset(gl.randn(20, 6), gl.randint(0, 2, (20,))), 8)
    return {"model": model, "loader": loader, "loss": nn.functional.cross_entropy, "optimizer": gl.optim.SGD(model.parameters(), lr=0.1)}


def fitted(**options):
    return gl.train.fit(**parts(), **options)


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"clip": 0}, ValueError, "clip is .* above 0, not 0"),
    ({"clip": -1.0}, ValueError, "clip is .* above 0, not -1.0"),
    ({"clip": float("nan")}, ValueError, "clip is .* above 0, not nan"),
    ({"accumulate": 1.5}, ValueError, "accumulate=1.5"),
    ({"epochs": 2.5}, ValueError, "epochs=2.5"),
    ({"epochs": None}, ValueError, "epochs=None"),
    ({"amp": True}, ValueError, "amp is gl.bfloat16, gl.float16 or None, not True"),
    ({"amp": gl.float32}, ValueError, "amp is .* not gradlab.float32"),
    ({"scheduler_each": "batch"}, ValueError, "scheduler_each is .* not 'batch'"),
    ({"metrics": Accuracy()}, ValueError, "metrics are measured on validation="),
    ({"metrics": [Accuracy()]}, TypeError, "metrics have names"),
    ({"metrics": {"loss": Accuracy()}, "validation": [1]}, ValueError, 'a metric named "loss"'),
    ({"optimizer": gl.optim.SGD}, TypeError, "optimizer is the class SGD itself"),
    ({"optimizer": 0.1}, TypeError, "optimizer is one of gl.optim, not a float"),
    ({"optimizer": gl.optim.SGD(nn.Linear(6, 2).parameters(), lr=0.1)}, ValueError, "none of the model's parameters"),
    ({"loss": nn.CrossEntropyLoss}, TypeError, "loss is the class CrossEntropyLoss itself"),
    ({"scheduler": gl.optim.lr_scheduler.StepLR}, TypeError, "scheduler is the class StepLR itself"),
    ({"average": 0.99}, TypeError, "average is an AveragedModel .* not a float"),
    ({"model": lambda x: x}, TypeError, "model is an nn.Module, not a function"),
    ({"callbacks": Bar()}, TypeError, "callbacks is a list of them, not a Bar alone"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else None)  # fmt: skip
def test_arguments_that_cannot_be_are_refused_before_anything_is_trained(given, error, message):
    made = {**parts(), "epochs": 2}
    before = [p.detach().clone() for p in made["model"].parameters()]
    with pytest.raises(error, match=message):
        gl.train.fit(**{**made, **given})
    assert all(map(gl.equal, before, made["model"].parameters()))


@pytest.mark.parametrize("name", ["float16", "half", "fp16"])
def test_float16_has_a_scaler_by_any_name(name):
    run, other = fitted(amp=name), fitted(amp=gl.float16)
    assert run.scaler is not None and all(map(gl.equal, run.model.parameters(), other.model.parameters()))


def test_a_collection_is_taken_for_what_it_has():
    given = gl.metrics.MetricCollection(accuracy=Accuracy())
    assert {"validation_accuracy"} <= set(fitted(validation=parts()["loader"], metrics=given).history[0])
