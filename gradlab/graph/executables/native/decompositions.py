"""Rows that have no kernel of their own, as several that have: a residual's norm is an addition, which joins its neighbours, and a norm.

Each function writes the calls that one call stands for. Calls that are written are expanded themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.op import Op
from gradlab.ops.conv import convolution, convolution_dx
from gradlab.ops.elementwise import add, mul, relu, rsqrt, square, sub
from gradlab.ops.fused import ACTIVATIONS
from gradlab.ops.indexing import embedding, index, index_backward
from gradlab.ops.linear import linear
from gradlab.ops.movement import slice_, view
from gradlab.ops.norm import channels, last_dims, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from gradlab.ops.reduction import mean, sum_
from gradlab.spec import Spec


class Writing:
    """The calls that stand for one."""

    def __init__(self, call: Call, following: int) -> None:
        self.call, self.following, self.calls = call, following, list[Call]()

    def many(self, op: Op, *inputs: Any, out: tuple[Value | None, ...] = (), **params: Any) -> list[Value]:
        """A call of a row; out: the values of its outputs, where they are known."""
        like = next((x.spec for x in inputs if isinstance(x, Value)), Spec((), FLOAT32))
        specs = [Spec((), like.dtype) if isinstance(x, (int, float, complex)) else None if x is None else x.spec for x in inputs]
        found = op.infer(*specs, **params)
        values = []
        for i, spec in enumerate((found,) if isinstance(found, Spec) else tuple(found)):
            known = out[i] if i < len(out) else None
            values.append(known or Value(self.following, spec))
            self.following += known is None
        self.calls.append(Call(op, inputs, params, tuple(values), self.call.position, self.call.again))
        return values

    def __call__(self, op: Op, *inputs: Any, out: Value | None = None, **params: Any) -> Value:
        """A call of a row with one output."""
        return self.many(op, *inputs, out=(out,), **params)[0]

    def shaped(self, x: Value, shape: tuple[int, ...]) -> Value:
        """The same elements in another shape."""
        return x if tuple(x.spec.shape) == tuple(shape) else self(view, x, shape=tuple(shape))


Expand = Callable[[Writing, Call], bool]
EXPAND: dict[str, Expand] = {}


def expands(*names: str) -> Callable[[Expand], Expand]:
    """Register a function for rows of these names. It writes calls, or says False."""

    def register(function: Expand) -> Expand:
        EXPAND.update(dict.fromkeys(names, function))
        return function

    return register


def expanded(line: Line) -> Line:
    """The same line, of rows that have kernels."""
    if not any(c.op.name in EXPAND for c in line.calls):
        return line
    following = 1 + max(*line.last, *(v.id for v in (*line.inputs, *line.fixed, *(v for c in line.calls for v in c.outputs))))
    calls: list[Call] = []
    last = set(line.last)
    waiting = list(line.calls)[::-1]
    while waiting:
        call = waiting.pop()
        expand = EXPAND.get(call.op.name)
        write = Writing(call, following)
        if expand is None or any(math.prod(v.spec.shape) == 0 for v in call.outputs) or not expand(write, call):
            calls.append(call)
            continue
        following = write.following
        waiting += write.calls[::-1]
        # What lies between is of a result's shape, and lies as it does.
        shapes = {v.spec.shape for v in call.outputs if v.id in last}
        last.update(v.id for c in write.calls for v in c.outputs if v.spec.shape in shapes and not c.op.view)
    return line._replace(calls=calls, last=frozenset(last))


# ---------------------------------------------------------------- layers with what follows them


@expands("linear_relu", "linear_gelu_tanh")
def linear_act(write: Writing, call: Call) -> bool:
    """The product, then the activation."""
    if call.op.name == "linear_relu":
        write(relu, write(linear, *call.inputs), out=call.outputs[0])
    else:
        write(ACTIVATIONS["gelu_tanh"], write(linear, *call.inputs, out=call.outputs[1]), out=call.outputs[0])
    return True


@expands("convolution_act", "convolution_act_sums")
def convolution_act(write: Writing, call: Call) -> bool:
    """The convolution, then the activation."""
    geometry = {k: v for k, v in call.params.items() if k != "activation"}
    sums = write(convolution, *call.inputs, out=call.outputs[1] if len(call.outputs) > 1 else None, **geometry)
    write(ACTIVATIONS[call.params["activation"]], sums, out=call.outputs[0])
    return True


@expands("embedding_add")
def embedding_add(write: Writing, call: Call) -> bool:
    """Rows of the table, and of the positions."""
    weight, positions, at = call.inputs
    length = at.spec.shape[-1]
    used = positions if positions.spec.shape[0] == length else write(slice_, positions, index=((0, length, 1),))
    write(add, write(embedding, weight, at, **call.params), used, out=call.outputs[0])
    return True


@expands("embedding", "embedding_backward")
def embedding_rows(write: Writing, call: Call) -> bool:
    """Of other types than float32 as advanced indexing."""
    table, at = call.inputs
    y = call.outputs[0]
    if y.spec.dtype == FLOAT32 or (call.op.name == "embedding_backward" and call.params["padding_idx"] is not None):
        return False
    wide = write.shaped(at, (1, *at.spec.shape))
    if call.op.name == "embedding":
        write(index, table, wide, out=y, dims=(0,), wrap=False)
    else:
        write(index_backward, table, wide, out=y, shape=tuple(y.spec.shape), dims=(0,))
    return True


@expands("layer_norm_residual", "rms_norm_residual")
def norm_residual(write: Writing, call: Call) -> bool:
    """The sum, then its norm."""
    x, residual, *parameters = call.inputs
    y, s, *stats = call.outputs
    op = layer_norm if call.op.name == "layer_norm_residual" else rms_norm
    write.many(op, write(add, x, residual, out=s), *parameters, out=(y, *stats), **call.params)
    return True


@expands("layer_norm_residual_backward", "rms_norm_residual_backward")
def norm_residual_backward(write: Writing, call: Call) -> bool:
    """The norm's gradient, and what arrives at the sum from elsewhere."""
    dy, ds, *others = call.inputs
    op = layer_norm_backward if call.op.name == "layer_norm_residual_backward" else rms_norm_backward
    dx = write.many(op, dy, *others, out=(None, *call.outputs[1:]), **call.params)[0]
    write(add, dx, ds, out=call.outputs[0])
    return True


# ---------------------------------------------------------------- norms


@expands("rms_norm")
def rms(write: Writing, call: Call) -> bool:
    """x·rstd·weight, in float64."""
    x, weight = call.inputs
    if x.spec.dtype == FLOAT32:
        return False
    y, rstd = call.outputs
    at = last_dims(x.spec.shape, call.params["k"])
    average = write(mean, write(square, x), dim=at.dims, keepdim=True)
    write(rsqrt, write(add, average, call.params["eps"]), out=rstd)
    _scaled(write, write(mul, x, rstd, out=None if weight is not None else y), weight, None, y)
    return True


@expands("rms_norm_backward")
def rms_backward(write: Writing, call: Call) -> bool:
    """rstd·(u - normal·mean(u·normal)) with u = dy·weight; Σ dy·normal"""
    dy, x, weight, rstd = call.inputs
    dx, dweight = call.outputs
    at = last_dims(x.spec.shape, call.params["k"])
    normal = write(mul, x, rstd)
    _over_rows(write, write(mul, dy, normal), at, dweight)
    u = dy if weight is None else write(mul, dy, weight)
    along = write(mean, write(mul, u, normal), dim=at.dims, keepdim=True)
    write(mul, write(sub, u, write(mul, normal, along)), rstd, out=dx)
    return True


def _over_rows(write: Writing, x: Value, at: Any, out: Value) -> None:
    """The sum over all dimensions that are not normalised."""
    if at.others:
        write(sum_, x, dim=at.others, keepdim=False, out=out)
    else:
        write(view, x, shape=tuple(out.spec.shape), out=out)


def _scaled(write: Writing, x: Value, weight: Value | None, bias: Value | None, out: Value) -> None:
    """x·weight + bias"""
    if weight is not None:
        x = write(mul, x, weight, out=out if bias is None else None)
    if bias is not None:
        write(add, x, bias, out=out)


@expands("convolution_transpose")
def transposed(write: Writing, call: Call) -> bool:
    """The product of each element with its window, and the bias."""
    x, w, b = call.inputs
    (y,) = call.outputs
    found = write(convolution_dx, x, w, out=y if b is None else None, **call.params)
    if b is not None:
        write(add, found, write.shaped(b, (*b.spec.shape, *(1,) * (len(y.spec.shape) - 2))), out=y)
    return True


@expands("layer_norm", "batch_norm")
def norm(write: Writing, call: Call) -> bool:
    """In float64; the kernels are for float32."""
    x, weight, bias = call.inputs
    y, *stats = call.outputs
    if x.spec.dtype != FLOAT64:
        return False
    of_channels = call.op.name == "batch_norm"
    at = channels(x.spec.shape) if of_channels else last_dims(x.spec.shape, call.params["k"])
    middle = write(mean, x, dim=at.dims, keepdim=not of_channels, out=stats[0])
    centred = write(sub, x, write.shaped(middle, at.stats))
    variance = write(mean, write(square, centred), dim=at.dims, keepdim=not of_channels, out=stats[2] if of_channels else None)
    rstd = write(rsqrt, write(add, variance, call.params["eps"]), out=stats[1])
    own = [None if p is None else write.shaped(p, at.parameters) if of_channels else p for p in (weight, bias)]
    none = weight is None and bias is None
    _scaled(write, write(mul, centred, write.shaped(rstd, at.stats), out=y if none else None), own[0], own[1], y)
    return True


@expands("layer_norm_backward", "batch_norm_backward")
def norm_backward(write: Writing, call: Call) -> bool:
    """rstd·(u - mean(u) - normal·mean(u·normal)); Σ dy·normal; Σ dy. In float64."""
    dy, x, weight, middle, rstd = call.inputs
    dx, dweight, dbias = call.outputs
    if x.spec.dtype != FLOAT64:
        return False
    of_channels = call.op.name == "batch_norm_backward"
    at = channels(x.spec.shape) if of_channels else last_dims(x.spec.shape, call.params["k"])
    middle, rstd = write.shaped(middle, at.stats), write.shaped(rstd, at.stats)
    normal = write(mul, write(sub, x, middle), rstd)
    _over_rows(write, write(mul, dy, normal), at, dweight)
    _over_rows(write, dy, at, dbias)
    u = dy if weight is None else write(mul, dy, write.shaped(weight, at.parameters) if of_channels else weight)
    along = write(mean, write(mul, u, normal), dim=at.dims, keepdim=True)
    rest = write(sub, write(sub, u, write(mean, u, dim=at.dims, keepdim=True)), write(mul, normal, along))
    write(mul, rest, rstd, out=dx)
    return True


# ---------------------------------------------------------------- losses


@expands("mse")
def mse(write: Writing, call: Call) -> bool:
    """In float64."""
    a, b = call.inputs
    if a.spec.dtype != FLOAT64:
        return False
    reduction = mean if call.params["mean"] else sum_
    write(reduction, write(square, write(sub, a, b)), dim=tuple(range(len(a.spec.shape))), keepdim=False, out=call.outputs[0])
    return True
