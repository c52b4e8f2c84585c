"""Optimizers' updates in NumPy: in fewer passes over memory, those of many small parameters at once, gradients in any order.

An update is a dozen NumPy calls. Of small parameters each takes half a microsecond, whatever its size: everything is put one behind the
other, updated as one, and put back. Of large ones each is a pass over memory: BLAS adds a scaled vector to another in one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.openblas import scaled_sum
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value
from gradlab.ops.optim import numbers
from gradlab.spec import count

SMALL = 4096  # elements: a larger parameter takes longer to copy than its own calls do
BLOCK = 1 << 18  # elements of a block of a larger one


def grouped(units: Sequence[Unit]) -> list[list[Unit]]:
    """The units, with small updates of one kind that follow one another in one list. Nothing in a list reads what another of it writes."""
    found: list[list[Unit]] = []
    written: set[int] = set()
    for unit in units:
        call = unit.calls[0]
        kind = _kind(unit)
        if kind is None or not found or _kind(found[-1][-1]) != kind or any(isinstance(x, Value) and x.id in written for x in call.inputs):
            found.append([unit])
            written = set()
        else:
            found[-1].append(unit)
        written.update(v.id for v in call.outputs)
    return found


def _kind(unit: Unit) -> Any:
    """What updates done at once have to agree in; None for what is no small update."""
    call = unit.calls[0]
    if unit.loop or not is_update(call):
        return None
    p, shape = call.inputs[0].spec, call.inputs[0].spec.shape
    if not 0 < len(shape) or not 0 < count(shape) <= SMALL:
        return None
    forms = [None if x is None else "whole" if x.spec.shape == shape else x.spec.shape for x in call.inputs[:-1]]
    if any(f not in (None, "whole", ()) for f in forms):
        return None
    return call.op.name, p.dtype, tuple(forms), call.inputs[-1], repr(call.params)


def is_update(call: Call) -> bool:
    """Whether a call is an optimizer's update of a parameter, element by element."""
    return call.op.name.endswith("_update") and call.op.outputs[0] == "new_p"


class Updates:
    """Several updates as one: called with the arrays of each, inputs and then outputs."""

    def __init__(self, calls: Sequence[Call]) -> None:
        call = calls[0]
        self.cpu, self.params, self.inputs = call.op.cpu, call.params, len(call.inputs)
        sizes = [count(c.inputs[0].spec.shape) for c in calls]
        edges = list(itertools.accumulate(sizes, initial=0))
        shape = call.inputs[0].spec.shape
        operands = [*call.inputs, *call.outputs]
        names = [*call.op.inputs, *(name.removeprefix("new_") for name in call.op.outputs)]
        whole: dict[str, Any] = {}
        self.flat: list[Any] = []  # of each operand all elements; None for one number, and what is left out
        self.numbers: list[int] = []  # operands that are one number
        for i, (x, name) in enumerate(zip(operands, names, strict=True)):
            if isinstance(x, Value) and x.spec.shape == shape and i != self.inputs - 1:
                if name not in whole:  # a result lies where it came from
                    whole[name] = np.empty(edges[-1], x.spec.dtype)
                self.flat.append(whole[name])
            else:
                self.flat.append(None)
                if isinstance(x, Value) and i != self.inputs - 1:
                    self.numbers.append(i)
        pieces = [(slice(a, b), c.inputs[0].spec.shape) for (a, b), c in zip(itertools.pairwise(edges), calls, strict=True)]
        dense = [(i, f) for i, f in enumerate(self.flat) if f is not None]
        self.results = [(i, [f[cut].reshape(s) for cut, s in pieces]) for i, f in dense if i >= self.inputs]
        self.sources = [(i, f) for i, f in dense if i < self.inputs]

    def __call__(self, *updates: Sequence[Any]) -> None:
        first = updates[0]
        if any(len({u[i].item() for u in updates}) > 1 for i in self.numbers if i < self.inputs):  # not all were updated equally often
            for u in updates:
                self.cpu(*u, **self.params)
            return
        for i, flat in self.sources:
            np.concatenate([u[i].reshape(-1) for u in updates], out=flat)
        self.cpu(*(own if f is None else f for own, f in zip(first, self.flat)), **self.params)
        for i, pieces in self.results:
            for u, piece in zip(updates, pieces):
                u[i][...] = piece
        for i in self.numbers:
            if i >= self.inputs:
                for u in updates[1:]:
                    u[i][...] = first[i]


# ---------------------------------------------------------------- large parameters


def update_of(call: Call) -> Callable[..., None]:
    """What runs an update, as the row's own NumPy function would."""
    spec = call.inputs[0].spec
    add = scaled_sum(spec.dtype) if call.op.name in LEAN and count(spec.shape) > SMALL and not call.params.get("maximize") else None
    lean = LEAN[call.op.name](call, add) if add is not None else None

    def update(p: Any, grad: Any, *rest: Any, **params: Any) -> None:
        if not grad.flags.c_contiguous:  # elements that lie far apart would be read so by several calls
            grad = np.ascontiguousarray(grad)
        if lean is not None and all(a is None or a.flags.c_contiguous for a in (p, *rest)):
            lean(p, grad, *rest, **params)
        else:
            call.op.cpu(p, grad, *rest, **params)

    return update


def _blocks(*arrays: Any) -> list[tuple[Any, ...]]:
    """The blocks of arrays of one shape."""
    flat = [a.reshape(-1) for a in arrays]
    return [tuple([a[first : first + BLOCK] for a in flat]) for first in range(0, flat[0].size, BLOCK)]


def _moved(old: Any, new: Any) -> None:
    """Results are made of what lies in their place."""
    if old.__array_interface__["data"] != new.__array_interface__["data"]:
        np.copyto(new, old)


def _sgd(call: Call, add: Any) -> Callable[..., None]:
    def run(p: Any, grad: Any, h: Any, new_p: Any, **_: Any) -> None:
        lr, weight_decay = numbers(h)[:2]
        _moved(p, new_p)
        add(-lr, grad, 1 - lr * weight_decay, new_p)

    return run


def _momentum(call: Call, add: Any) -> Callable[..., None]:
    nesterov = call.params["nesterov"]

    def run(p: Any, grad: Any, buffer: Any, h: Any, new_p: Any, new_buffer: Any, **params: Any) -> None:
        if buffer is None:
            call.op.cpu(p, grad, buffer, h, new_p, new_buffer, **params)
            return
        lr, weight_decay, momentum, dampening = numbers(h)
        _moved(p, new_p)
        _moved(buffer, new_buffer)
        for g, own, kept in _blocks(grad, new_p, new_buffer):
            add(1 - dampening, g, momentum, kept)
            if weight_decay:
                add((1 - dampening) * weight_decay, own, 1, kept)
            if nesterov:  # lr · (g + weight_decay · p + momentum · buffer)
                add(-lr, g, 1 - lr * weight_decay, own)
                add(-lr * momentum, kept, 1, own)
            else:
                add(-lr, kept, 1, own)

    return run


def _adam(call: Call, add: Any) -> Callable[..., None]:
    decoupled, dtype = call.params["decoupled"], call.inputs[0].spec.dtype
    size = min(BLOCK, count(call.inputs[0].spec.shape))

    def run(
        p: Any, grad: Any, mean: Any, square: Any, step: Any, h: Any, new_p: Any, new_mean: Any, new_square: Any, new_step: Any, **_: Any
    ) -> None:
        lr, beta1, beta2, eps, weight_decay = numbers(h)
        steps = float(step) + 1
        root = (1 - beta2**steps) ** 0.5
        far, least = lr * root / (1 - beta1**steps), np.array(eps * root, dtype)
        inside = weight_decay if not decoupled else 0
        shrink = 1 - lr * weight_decay if decoupled else 1
        for old, new in ((p, new_p), (mean, new_mean), (square, new_square)):
            _moved(old, new)
        room: Any = np.empty(size, dtype)
        for g, own, m, v in _blocks(grad, new_p, new_mean, new_square):
            t = room[: g.size]
            if inside:
                g = np.add(g, own * dtype.type(inside))
            add(1 - beta1, g, beta1, m)
            np.multiply(g, g, t)
            add(1 - beta2, t, beta2, v)
            np.sqrt(v, t)
            np.add(t, least, t)
            np.divide(m, t, t)
            add(-far, t, shrink, own)
        new_step[...] = steps

    return run


LEAN = {"sgd_update": _sgd, "sgd_momentum_update": _momentum, "adam_update": _adam}
