"""Rows that work on rows of a matrix, as stages of a mega-kernel: softmax, cross entropy, layer norm. A warp has a row."""

from __future__ import annotations

import math

from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.place import Place
from gradlab.dtype import INT64
from gradlab.graph.executables.cuda.stages import DEAR_TURN, STAGE, STAGES, THREADS, TURN, Writer, floating, packed, size_of, stage, turns
from gradlab.graph.ir.graph import Call, Value
from gradlab.spec import count

WARPS = THREADS // 32


def _row_cost(rows: int, length: int, passes: int) -> float:
    return STAGE + DEAR_TURN * math.ceil(rows / WARPS) * math.ceil(length / 32) * passes


def _softmax_cost(call: Call, places: dict[int, Place]) -> float | None:
    shape = call.outputs[0].spec.shape
    if not shape or call.params["dim"] % len(shape) != len(shape) - 1 or not size_of(call):
        return None
    if not floating(call) or not packed(call, places):
        return None
    return _row_cost(count(shape[:-1]), shape[-1], 3)


@stage("softmax", "masked_softmax", "log_softmax", "softmax_backward", "log_softmax_backward", cost=_softmax_cost)
def softmax(call: Call, writer: Writer) -> list[str]:
    """Along the last dimension, and backwards."""
    y = writer.at(call.outputs[0])
    shape, name = y.place.shape, call.op.name
    sizes, logarithm = f"{count(shape[:-1])}, {shape[-1]}", "true" if "log" in name else "false"
    given = ", ".join(writer.pointer(x) for x in call.inputs)
    if name.endswith("backward"):
        return [f"softmax_backward({given}, {y.text}, {sizes}, {logarithm});"]
    return [f"softmax({given}, {y.text}, {sizes}, {logarithm}, {'true' if 'masked' in name else 'false'});"]


def _cross_entropy_cost(call: Call, places: dict[int, Place]) -> float | None:
    back = call.op.name.endswith("backward")
    x, target = call.inputs[1 if back else 0], call.inputs[-1]
    if not isinstance(x, Value) or len(x.spec.shape) != 2 or target.spec.dtype != INT64 or not floating(call) or not count(x.spec.shape):
        return None
    if not packed(call, places, 0) or (not back and not places[x.id].contiguous) or not isinstance(call.inputs[0], Value):
        return None
    rows, classes = x.spec.shape
    if back:
        return STAGE + TURN * (turns(rows * classes) + math.ceil(rows / 32))
    return _row_cost(rows, classes, 3)


@stage("cross_entropy", "cross_entropy_backward", cost=_cross_entropy_cost)
def cross_entropy(call: Call, writer: Writer) -> list[str]:
    """Of logits of [rows, classes]; a class that is not there is reported."""
    ignore, how = call.params["ignore_index"], call.params["reduction"]
    mean, each = ("true" if how == word else "false" for word in ("mean", "none"))
    if call.op.name == "cross_entropy":
        x, target = map(writer.at, call.inputs)
        y, p = map(writer.at, call.outputs)
        rows, classes = x.place.shape
        return [
            f"cross_entropy({x.text}, {target.text}, {y.text}, {p.text}, {rows}, {classes}, {ignore}LL, {each}, {mean}, fault, "
            f"{writer.site(call)});"
        ]
    dy, p, target = map(writer.at, call.inputs)
    rows, classes = p.place.shape
    step = dy.strides[0] if how == "none" else 0
    return [
        f"cross_entropy_backward({dy.text}, {step}, {p.text}, {target.text}, {writer.at(call.outputs[0]).text}, {rows}, {classes}, "
        f"{ignore}LL, {mean});"
    ]


def _norm_sizes(call: Call) -> tuple[int, int]:
    shape = call.outputs[0].spec.shape
    length = count(shape[len(shape) - call.params["k"] :])
    return count(shape) // max(length, 1), length


def _norm_cost(call: Call, places: dict[int, Place]) -> float | None:
    rows, length = _norm_sizes(call)
    if not rows or not length or not floating(call) or not packed(call, places):
        return None
    back = call.op.name.endswith("backward")
    return _row_cost(rows, length, 3) + (TURN / 2 * turns(length) * rows if back else 0)


@stage("layer_norm", "layer_norm_backward", cost=_norm_cost)
def layer_norm(call: Call, writer: Writer) -> list[str]:
    """Over the last k dimensions, and backwards."""
    given = ", ".join(writer.pointer(x) for x in (*call.inputs, *call.outputs))
    rows, length = _norm_sizes(call)
    kind = STORAGE[call.outputs[0].spec.dtype.name]
    eps = "" if call.op.name.endswith("backward") else f", {float(call.params['eps'])!r}"
    return [f"{call.op.name}<{kind}>({given}, {rows}, {length}{eps});"]


__all__ = ["STAGES"]
