"""What `fit` and its siblings are given, made plain or refused before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import gradlab as gl
from gradlab import nn
from gradlab.dtype import DType
from gradlab.metrics import Metric, MetricCollection

LOWERED: dict[Any, DType | None] = {
    "float16": gl.float16, "half": gl.float16, "fp16": gl.float16, "bfloat16": gl.bfloat16, "bf16": gl.bfloat16,
    gl.float16: gl.float16, gl.bfloat16: gl.bfloat16, None: None,
}  # fmt: skip


def lowered(amp: Any, name: str = "fit") -> DType | None:
    """The half type that mixed precision is to use; None for none."""
    if not isinstance(amp, (str, DType, type(None))) or amp not in LOWERED:
        raise ValueError(f"{name}: amp is gl.bfloat16, gl.float16 or None, not {amp!r}")
    return LOWERED[amp]


def collected(metrics: Any, validation: Any) -> MetricCollection | None:
    """Metrics by their names. ValueError where they are measured on nothing, or would stand in the loss's place."""
    if not metrics and not isinstance(metrics, Metric):
        return None
    if isinstance(metrics, Metric) and not isinstance(metrics, MetricCollection):
        metrics = {type(metrics).__name__.lower(): metrics}
    found = metrics if isinstance(metrics, MetricCollection) else MetricCollection(metrics)
    if "loss" in found.metrics:
        raise ValueError('fit: a metric named "loss" would stand in the place of the validation loss; give it another name')
    if validation is None:
        raise ValueError("fit: metrics are measured on validation=, batches that are missing")
    return found


def check_parts(model: nn.Module, optimizer: Any, step: Any, others: Mapping[str, Any]) -> None:
    """TypeError or ValueError for parts that would train nothing, or fail after an epoch's work. others: loss, scheduler, average."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"fit: model is an nn.Module, not {kind(model)}")
    for name, value in {"optimizer": optimizer, **others}.items():
        if isinstance(value, type):
            raise TypeError(f"fit: {name} is the class {value.__name__} itself; make one of it")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"fit: optimizer is one of gl.optim, not {kind(optimizer)}")
    if others["average"] is not None and not hasattr(others["average"], "update_parameters"):
        raise TypeError(f"fit: average is an AveragedModel of gl.optim.swa_utils, not {kind(others['average'])}")
    own = {id(p) for p in model.parameters()}
    if step is None and own and not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("fit: the optimizer has none of the model's parameters, so nothing is learned; make it of model.parameters()")


def check_numbers(epochs: Any, accumulate: Any, clip: Any) -> None:
    """ValueError for counts that are none, and for a norm to which nothing, or the wrong way, would be clipped."""
    for name, value, least in (("epochs", epochs, 0), ("accumulate", accumulate, 1)):
        if not isinstance(value, Integral) or int(value) < least:
            raise ValueError(f"fit: {name} is a whole number, at least {least}; got {name}={value!r}")
    if clip is not None and (math.isnan(clip) or clip <= 0):
        raise ValueError(f"fit: clip is the largest norm of all gradients together, above 0, not {clip!r}; None does not clip")


def kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without gradients; afterwards each module is as it was, so that what was frozen stays so."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with gl.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def measured(found: Any) -> tuple[Any, Any]:
    """Outputs and targets of what a step gave, for metrics."""
    if not isinstance(found, tuple) or len(found) != 3:
        raise TypeError(f"evaluate: metrics need a step that returns (loss, outputs, targets), not {kind(found)}")
    return found[1], found[2]
