"""When a loss is no longer a number: finding out where that began, in words for the person who has to change something."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import gradlab as gl
from gradlab import Tensor, nn

ADVICE = "try a smaller learning rate"


class Diverged(ArithmeticError):
    """The loss, or the model, is no longer finite; the message says where that began."""


def broken_value(named: Iterable[tuple[str, Tensor]]) -> str:
    """The name of the first tensor with a NaN or an infinity in it, or nothing."""
    return next((name for name, value in named if not bool(gl.isfinite(value).all().item())), "")


def origin(model: nn.Module, forward: Callable[[], object]) -> str:
    """Where the first number that is not finite came from: a weight, or an operation of a second forward pass, of the same batch.

    The pass has to see the same random numbers as the first one to find the same operation; that is the caller's part.
    """
    weight = broken_value(model.named_parameters())
    if weight:
        return f"{weight} held such values already, after the previous update; {ADVICE}"
    entered: list[str] = []  # the modules that have begun and not ended: the last one is where it happens
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda module, inputs, name=name: entered.append(name)))
        hooks.append(module.register_forward_hook(lambda module, inputs, output: entered.__delitem__(-1)))  # None: it changes nothing
    try:
        with gl.autograd.detect_anomaly():
            forward()
    except gl.autograd.NonFiniteError as error:
        # The first line names the operation and the shapes; the place that follows is inside the package.
        place = f"{entered[-1]}, " if entered and entered[-1] else ""
        return f"it began in {place}{str(error).partition(chr(10))[0]}; {ADVICE}"
    finally:
        for hook in hooks:
            hook.remove()
    return "a second pass over the same batch did not show where"
