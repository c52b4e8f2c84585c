"""What a product's or a convolution's epilogue does besides, so that it needs no launch of its own.

- a layer and its activation: linear with ReLU, linear with GELU by tanh (cuBLASLt); any convolution with any of four activations, a
  transposed one with its bias, too (our kernels, `conv_epilogues.py`); where the sums are needed beside the result, the
  convolution writes both
- the product that makes the gradient of an activation's result, and the activation's derivative (DRELU, DGELU)
- a product, and what is added to it (`sums_of_products.py`)
- a batch norm, what is added to it, a ReLU, and their gradients (`norm_epilogues.py`)
- the product that makes a weight's gradient, and the sums of its factor, which are the bias's gradient (BGRADB)

Where the library cannot, the two are launches of their own, as they were. `Compiled.stats()` says what was joined, and why others were not.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab import ops
from gradlab.backends.cuda.gemm.binding import Epilogue
from gradlab.backends.cuda.gemm.rows import AUX_ELEMENTS, with_epilogue
from gradlab.backends.native.place import ARENA, place_of
from gradlab.dtype import FLOAT64, FLOATING
from gradlab.graph.executables.cuda import conv_epilogues, mega, norm_epilogues, recurrent, stages, sums_of_products
from gradlab.graph.executables.cuda.line_rewriting import Rewriting
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.op import Op
from gradlab.ops.linear import flat, linear_rule
from gradlab.spec import Spec, count, product

BITS = 128  # what the leading dimension of ReLU's bits is a multiple of
_UINT8 = np.dtype(np.uint8)

# ---------------------------------------------------------------- rows of no family: only a device's line holds them


def _sums_rule(a: Spec, b: Spec) -> tuple[Spec, Spec]:
    """Rule: the product, and a number for each row of a."""
    return product(a, b), Spec((a.shape[0],), a.dtype)


def _sums_cpu(a: Any, b: Any, y: Any, sums: Any) -> None:
    np.matmul(a, b, y)
    np.sum(a, 1, out=sums)


def _bits_rule(x: Spec, w: Spec, b: Spec | None) -> tuple[Spec, Spec]:
    """Rule: the layer's result, and for each of its rows the bits of x > 0."""
    found = linear_rule(x, w, b)
    return found, Spec((count(found.shape[:-1]), -(-found.shape[-1] // BITS) * BITS // 8), _UINT8)


def _bits_cpu(x: Any, w: Any, b: Any, y: Any, bits: Any) -> None:
    ops.fused.linear_relu_cpu(x, w, b, y)
    packed = np.packbits(flat(y) > 0, axis=1, bitorder="little")
    bits[:, : packed.shape[1]] = packed


def _like_rule(a: Spec, b: Spec, result: Spec, bits: Spec | None = None) -> Spec:
    """Rule: the gradient has the shape of what the activation made or took."""
    return result


def _relu_cpu(a: Any, b: Any, result: Any, bits: Any, y: Any) -> None:
    np.multiply(np.matmul(a, b).reshape(y.shape), result > 0, y)


def _gelu_cpu(a: Any, b: Any, result: Any, bits: Any, y: Any) -> None:
    ops.activation.gelu_tanh_backward_cpu(np.matmul(a, b).reshape(y.shape), result, y)


product_with_sums = Op("matmul_with_sums", _sums_rule, cpu=_sums_cpu, outputs=("y", "sums"))
linear_with_bits = Op("linear_relu_with_bits", _bits_rule, cpu=_bits_cpu, outputs=("y", "bits"))
relu_product = Op("matmul_relu_backward", _like_rule, cpu=_relu_cpu)
gelu_product = Op("matmul_gelu_tanh_backward", _like_rule, cpu=_gelu_cpu)
_PRODUCTS = (product_with_sums, linear_with_bits, relu_product, gelu_product, sums_of_products.plus)
OWN = frozenset(_PRODUCTS) | norm_epilogues.OWN | conv_epilogues.OWN | recurrent.OWN

LAYERS = {"relu": ops.fused.linear_relu, "gelu_tanh": ops.fused.linear_gelu_tanh}
PRODUCTS = {"relu_backward": ("relu", relu_product), "gelu_tanh_backward": ("gelu_tanh", gelu_product)}


def enabled() -> bool:
    """GRADLAB_EPILOGUES=0 switches it off."""
    return os.environ.get("GRADLAB_EPILOGUES", "1") != "0"


# ---------------------------------------------------------------- finding them


def joined(line: Line, calls: Sequence[Call], notes: list[str] | None = None) -> list[Call]:
    """The line's calls, in this order, with their epilogues. notes: gets what was joined, and what was not, and why, for people."""
    rewriting = Rewriting(line, calls)
    found = with_sums(_with_activations(rewriting), rewriting.notes)
    if notes is not None:
        notes += [*rewriting.notes, *line.notes]
    return found


def _small(call: Call) -> bool:
    """Whether a product becomes part of a larger kernel, so that it is to stay as it is."""
    known = stages.STAGES.get(call.op.name)
    cost = known.cost(call, defaultdict(lambda: place_of(ARENA, call.outputs[0].spec))) if known is not None and mega.enabled() else None
    return cost is not None and cost <= mega.LAUNCH


class _Backward(NamedTuple):
    """A derivative's call, its place, the product that makes its gradient, and a view between them."""

    at: int
    call: Call
    product: Call
    view: Call | None


def _with_activations(line: Rewriting) -> list[Call]:
    """Layers and convolutions with the activation behind them, and products with an activation's derivative behind them."""
    for call in list(line.calls):
        if call is not None and call.op is ops.elementwise.add:
            conv_epilogues.with_bias(line, call)
    calls = [c for c in line.calls if c is not None]
    backward: dict[int, _Backward] = {}  # by what the derivative is taken at
    for i, call in enumerate(line.calls):
        if call is None:
            continue
        found = _backward(line, i, call)
        if found is not None and not _small(found.product):
            backward.setdefault(call.inputs[1].id, found)
    for call in calls:
        if call.op.name in ops.fused.ACTIVATIONS and isinstance(call.inputs[0], Value):
            _forward(line, call, backward)
        if call.op is ops.elementwise.relu and line.maker(call.outputs[0]) is call:
            norm_epilogues.with_relu(line, call)
    for call in calls:
        if call.op is ops.norm.batch_norm_backward:
            norm_epilogues.with_relu_backward(line, call)
    for found in backward.values():  # GELU's derivative needs nothing of the forward pass but what GELU was taken of
        op = PRODUCTS[found.call.op.name][1]
        if op is gelu_product and found.call.inputs[1].spec.shape[-1] % AUX_ELEMENTS == 0:
            _put_backward(line, found, op, None)
    sums_of_products.with_sums_to(line, _small)
    return [c for c in line.calls if c is not None]


def _backward(line: Rewriting, at: int, call: Call) -> _Backward | None:
    if call.op.name not in PRODUCTS or not all(isinstance(x, Value) for x in call.inputs):
        return None
    dy, place = call.inputs
    view = line.only(dy)
    maker = view
    if view is not None and view.op is ops.movement.view:
        maker = line.only(view.inputs[0])
    else:
        view = None
    if maker is None or maker.op is not ops.linalg.matmul or not all(isinstance(x, Value) and len(x.spec.shape) == 2 for x in maker.inputs):
        return None
    out = call.outputs[0].spec
    columns = maker.inputs[1].spec.shape[-1:]
    fits = dy.spec == place.spec == out and out.dtype in FLOATING and out.dtype != FLOAT64 and out.shape[-1:] == columns
    return _Backward(at, call, maker, view) if fits and count(out.shape) else None


def _forward(line: Rewriting, call: Call, backward: dict[int, _Backward]) -> None:
    """Join an activation with what makes its input."""
    z, y, name = call.inputs[0], call.outputs[0], call.op.name
    maker = line.maker(z)
    if maker is None or not (maker.inputs[-1] is None or isinstance(maker.inputs[-1], Value)):
        return
    place = line.at[z.id]
    if maker.op in conv_epilogues.ROWS:
        conv_epilogues.with_activation(line, maker, call)
        return
    if maker.op is not ops.linear.linear:
        return
    why = _why_not(line, maker, call)
    if why:
        line.apart("linear", name, why)
        return
    line.joins("linear", name)
    if name == "gelu_tanh":
        line.put(place, Call(LAYERS[name], maker.inputs, {}, (y, z), maker.position), call)
        return
    found = backward.get(y.id)
    if found is None:
        line.put(place, Call(LAYERS[name], maker.inputs, {}, (y,), maker.position), call)
        return
    x, w, b = maker.inputs
    _, bits = _bits_rule(x.spec, w.spec, None if b is None else b.spec)
    kept = line.new(bits)
    line.put(place, Call(linear_with_bits, maker.inputs, {}, (y, kept), maker.position), call)
    _put_backward(line, found, relu_product, kept)


def _why_not(line: Rewriting, maker: Call, call: Call) -> str:
    """Why an activation is not joined with the layer before it; "" where it is."""
    z, name, bias = call.inputs[0], call.op.name, maker.inputs[2]
    if z.spec.dtype == FLOAT64:
        return "cuBLASLt has no epilogues for float64"
    if name not in LAYERS:
        return f"cuBLASLt has no epilogue for {name}"
    if _small(maker):
        return "the product is small enough for a kernel of many operations"
    if not count((*z.spec.shape, maker.inputs[1].spec.shape[1])):
        return "there is nothing to multiply"
    if name == "gelu_tanh":
        fits = bias is not None and bias.spec.shape == (z.spec.shape[-1],) and z.spec.shape[-1] % AUX_ELEMENTS == 0
        return "" if fits else f"cuBLASLt wants a bias and a multiple of {AUX_ELEMENTS} columns"
    return "" if line.uses[z.id] == 1 else "its sums are used elsewhere"


def _put_backward(line: Rewriting, found: _Backward, op: Op, bits: Value | None) -> None:
    a, b = found.product.inputs
    line.joins("matmul", found.call.op.name)
    made = Call(op, (a, b, found.call.inputs[1], bits), {}, found.call.outputs, found.product.position)
    line.put(found.at, made, *(c for c in (found.product, found.view) if c is not None))


def with_sums(calls: Sequence[Call], notes: list[str]) -> list[Call]:
    """The calls with products t(g) @ x and later sums of g over all but its last dimension as one."""
    maker = {v.id: c for c in calls for v in c.outputs}

    def viewed(x: Value) -> int:
        """What a value is a view of with the same last dimension: its sums over all others are the same."""
        made = maker.get(x.id)
        while made is not None and made.op is ops.movement.view and made.inputs[0].spec.shape[-1:] == x.spec.shape[-1:]:
            (x,) = made.inputs
            made = maker.get(x.id)
        return x.id

    sums: dict[int, tuple[int, Call]] = {}  # what is summed -> where, and the call
    for i, call in enumerate(calls):
        (x,) = call.inputs if call.op is ops.reduction.sum_ else (None,)
        if isinstance(x, Value):
            rank = len(x.spec.shape)
            if rank > 1 and tuple(call.params["dim"]) == tuple(range(rank - 1)) and not call.params["keepdim"]:
                sums.setdefault(viewed(x), (i, call))
    found = list(calls)
    for i, call in enumerate(calls):
        if call.op is not ops.linalg.matmul or not all(isinstance(x, Value) and len(x.spec.shape) == 2 for x in call.inputs):
            continue
        turned = maker.get(call.inputs[0].id)
        if turned is None or turned.op is not ops.movement.t:
            continue
        g = turned.inputs[0]
        name = viewed(g)
        at, total = sums.get(name, (-1, call))
        if at > i and total.outputs[0].spec == Spec((g.spec.shape[1],), g.spec.dtype):
            del sums[name]
            notes.append("matmul + sum: one kernel")
            found[i] = Call(product_with_sums, call.inputs, {}, (*call.outputs, *total.outputs), call.position)
            found[at] = None  # type: ignore[call-overload]
    return [c for c in found if c is not None]


# ---------------------------------------------------------------- launching them

Run = Callable[[], Any]


def launch(
    backend: Any, op: Op, inputs: list[Any], outputs: list[Any], missing: set[int], params: dict[str, Any]
) -> tuple[Run, int]:
    """What computes one of `OWN`, and in how many launches. missing: addresses of bits that nobody writes, since the library could not."""
    if op in conv_epilogues.OWN:
        return conv_epilogues.launch(backend.work, inputs, outputs, params), 1
    if op in recurrent.OWN:
        return recurrent.launch(backend.work, op, inputs, outputs, params), 1
    if op in norm_epilogues.OWN:
        return norm_epilogues.launch(backend.work, op, inputs, outputs, params), 1
    if op is sums_of_products.plus:
        return sums_of_products.launch(backend, inputs, outputs[0])
    if op is product_with_sums:
        return _launch_sums(backend, inputs, outputs)
    if op is linear_with_bits:
        return _launch_with_bits(backend, inputs, outputs, missing)
    return _launch_backward(backend, op, inputs, outputs[0], missing)


def _launch_sums(backend: Any, inputs: list[Any], outputs: list[Any]) -> tuple[Run, int]:
    ready = backend.product_with_sums(*inputs, *outputs)
    if ready is not None:
        return ready, 1
    a, b = inputs
    multiply = backend.prepared(ops.linalg.matmul, [a, b], {})
    rest: dict[str, Any] = {"dim": (1,), "keepdim": False}
    add = backend.prepared(ops.reduction.sum_, [a], rest)

    def both() -> None:
        multiply([a, b], outputs[:1])
        add([a], outputs[1:])

    return both, 2


def _launch_with_bits(backend: Any, inputs: list[Any], outputs: list[Any], missing: set[int]) -> tuple[Run, int]:
    (x, w, b), (y, bits) = inputs, outputs
    if len(x.shape) <= 2 or x.flags.c_contiguous:
        rows = x if len(x.shape) == 2 else x.reshape(-1, x.shape[-1])
        kind = Epilogue.RELU_AUX if b is None else Epilogue.RELU_AUX_BIAS
        if b is None or (b.shape == w.shape[:1] and b.flags.c_contiguous):
            out = y.reshape(bits.shape[0], y.shape[-1])
            ready = with_epilogue(backend.work, kind, rows, w.swapaxes(0, 1), out, b, bits, bits.shape[1] * 8)
            if ready is not None:
                return ready, 1
    missing.add(backend.work.pointer(bits))
    plan = backend.prepared(ops.fused.linear_relu, inputs, {})
    return lambda: plan(inputs, [y]), 1


def _launch_backward(backend: Any, op: Op, inputs: list[Any], y: Any, missing: set[int]) -> tuple[Run, int]:
    a, b, place, bits = inputs
    work = backend.work
    rows = y.reshape(a.shape[0], b.shape[1])
    ready = None
    if op is gelu_product:
        if place.flags.c_contiguous:
            ready = with_epilogue(work, Epilogue.DGELU, a, b, rows, None, place, b.shape[1])
    elif work.pointer(bits) not in missing:
        ready = with_epilogue(work, Epilogue.DRELU, a, b, rows, None, bits, bits.shape[1] * 8)
    if ready is not None:
        return ready, 1
    between = work.empty(y.shape, y.dtype)
    row = ops.activation.gelu_tanh_backward if op is gelu_product else ops.elementwise.relu_backward
    multiply, derive = backend.prepared(ops.linalg.matmul, [a, b], {}), backend.prepared(row, [between, place], {})
    inner = between.reshape(rows.shape)

    def both() -> None:
        multiply([a, b], [inner])
        derive([between, place], [y])

    return both, 2
