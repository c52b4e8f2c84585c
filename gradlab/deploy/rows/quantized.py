"""Layers with weights of few bits: the weights file holds the bits, products are whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.native.lowerings.quantized import GROUP, MOST, geometry
from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step, emits
from gradlab.deploy.rows.products import FLOAT32, constant, written
from gradlab.deploy.types import Unsupported

GATHERED, FEW = 32, 4  # places of an image at a time; where work space is dear


def _number(value: Any) -> str:
    return f"{float(value)!r}f"


def _grid(step: Step, x: Place, out: Emitter) -> str:
    """How inputs are rounded, as an expression."""
    scale, zero = step.inputs[4:6]
    if scale is None:
        return f"gl_grid_over({constant(out.pointer(x))}, {x.size})"
    numbers = [None if known is None else known.item() for known in step.known[4:6]]
    if None not in numbers:
        shown = [_number(np.float32(number)) for number in numbers]
    else:
        shown = [f"*(const float *)({constant(out.pointer(out.dense(v, np.float32)))})" for v in (scale, zero)]
    return f"gl_grid_of({', '.join(shown)}, {step.params['low']}, {step.params['high']})"


def _operands(step: Step, out: Emitter) -> tuple[Place, Place, Place, str]:
    y = step.outputs[0]
    if y.dtype != FLOAT32:
        raise Unsupported(f"results of {y.dtype}: layers of few bits are float32 here")
    if step.known[1] is None:
        raise Unsupported("a weight that is computed in the program")
    if math.prod(step.known[1].shape[1:]) * (2 if step.name == "quantized_linear4" else 1) > MOST:
        raise Unsupported(f"sums of more than {MOST} products")
    out.part("quantized.c")
    bias = None if step.inputs[3] is None else out.dense(step.inputs[3])
    return y, out.dense(step.inputs[0]), out.dense(step.inputs[2]), constant(out.pointer(bias))


@emits("quantized_linear", "quantized_linear4")
def linear(step: Step, out: Emitter) -> None:
    """One product in whole numbers; weights of 4 bits with inputs that are not rounded are multiplied as floats."""
    y, x, scale, bias = _operands(step, out)
    if not y.size:
        return
    four = step.name == "quantized_linear4"
    whole = four and not step.params["rounds"]
    k, n = x.shape[-1], y.shape[-1]
    rows = y.size // n
    space = out.scratch((rows * (-(-k // GROUP) * GROUP),), np.float32 if whole else np.int16)
    factors = out.scratch((rows,), np.float32)
    weight = out.pointer(out.constant(step.known[1], None, "bits"))
    grid = "gl_grid_of(1.0f, 0.0f, 0, 0)" if whole else _grid(step, x, out)
    places = ", ".join(constant(out.pointer(p)) if isinstance(p, Place) else constant(p) for p in (x, weight, scale))
    made = ", ".join(written(out.pointer(p)) for p in (y, space, factors))
    sizes = f"{rows}, {n}, {k}, {str(four).lower()}, {str(whole).lower()}"
    out.line(f"gl_quantized_linear(&team, {sizes}, {grid}, {places}, {bias}, {made})")


@emits("quantized_convolution")
def convolution(step: Step, out: Emitter) -> None:
    """Windows of places in the order of the weights, which are turned when the program is built."""
    y, x, scale, bias = _operands(step, out)
    if not y.size:
        return
    known, groups = step.known[1], step.params["groups"]
    planes = groups == x.shape[1] == y.shape[1]
    sides = list(geometry(step.call))
    image = out.scratch((x.shape[1] * math.prod(s[0] + 2 * s[4] for s in sides),), np.int16)
    gathered = FEW if out.small else GATHERED
    if not planes:
        out.own(gathered * -(-math.prod(known.shape[1:]) // GROUP) * GROUP * 2)
    turned = known if planes else np.moveaxis(known, 1, -1)
    weight = constant(out.pointer(out.constant(turned, None, "bits")))
    lists = ", ".join("{" + ", ".join(str(side[i]) for side in sides) + "}" for i in range(6))
    windows = f"&(const gl_windows){{{x.shape[1]}, {y.shape[1]}, {groups}, {lists}}}"
    places = f"{constant(out.pointer(x))}, {weight}, {constant(out.pointer(scale))}, {bias}"
    made = f"{written(out.pointer(y))}, {written(out.pointer(image))}"
    out.line(f"gl_quantized_convolution(&team, {windows}, {y.shape[0]}, {gathered}, {_grid(step, x, out)}, {places}, {made})")
