"""Optimizers whose update of one parameter is one row: how it is run, and the buffers that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.base import version_of
from gradlab.autograd.inplace import note_writes, write
from gradlab.autograd.mode import current, enable_grad, enter, leave
from gradlab.autograd.node import next_sequence
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, FLOATING
from gradlab.layout import strided
from gradlab.op import Op
from gradlab.optim.hyper import hypers, refuse_differentiable
from gradlab.optim.optimizer import Group, Optimizer, counter, follow
from gradlab.optim.together import Known, Queued
from gradlab.tensor import Tensor
from gradlab.tensor.complex import view_as_complex, view_as_real
from gradlab.tensor.where import where


def parts_of(g: Any) -> tuple[Tensor, Tensor]:
    """Of a sparse gradient which parts it has, each once, and their values."""
    g = g.coalesce()
    return g._array.pattern.keys(), g.values()


class RowOptimizer(Optimizer):
    """An optimizer whose update of one parameter is one row: `advance` names the row, the buffers and the hyper-parameters.

    A buffer is made when a row first asks for it, so an option that needs one may be turned on at any step.
    """

    found_inf: Any = None  # while a GradScaler steps on a GPU: a truth value there; where it holds, the step is to change nothing
    sparse = False  # whether gradients may be sparse
    live: tuple[Any, ...] = ()  # the hyper-parameters that rows read, in the order of `h`: names, or (name, index)
    _written: list[Tensor]  # the parameters that the step under way has changed in place
    _now = 0  # its sequence number, as a write
    _queue: dict[Any, Queued]  # updates of the group under way that are done together
    _queued: set[int]  # the parameters there, by id
    _known: Known
    by_parameter = True
    _own = (*Optimizer._own, "found_inf", "_written", "_queue", "_queued", "_known")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made._written, made._queue, made._queued, made._known = [], {}, set(), Known()
        return made

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        """Update one parameter and its state."""
        raise NotImplementedError

    def fresh(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        """A buffer that is not there yet: zeros, and 0 for the count of steps. A subclass says what else begins otherwise; with None the
        row makes it."""
        return counter(p) if name == "step" else p.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; parameters without one are left alone.

        closure: recomputes the loss (and gradients) and returns it; its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        token, self._now = enter(current().quiet()), next_sequence()
        try:
            for group in self.param_groups:
                h = None
                for p in group["params"]:
                    g = p._grad
                    if g is not None:
                        if h is None:
                            if group.get("differentiable"):
                                refuse_differentiable()
                            h = hypers(group, self.live)
                        self.advance(group, p, g, h)
                if self._queue:
                    self._flush()
        finally:
            leave(token)
            self._queue.clear()
            self._queued.clear()
            if self._written:
                note_writes(self._written)
                self._written.clear()
        return loss

    def run(self, row: Op, group: Group, p: Tensor, g: Tensor, names: tuple[str, ...], h: Tensor, **params: Any) -> None:
        """Run an update row and store what it gives: the parameter, and the buffers `names` of its state, in the row's order.

        Eager on the CPU the row writes into its own inputs, and so it does on a GPU, there for all parameters of the group at once.
        Everywhere else it is an ordinary functional call, written back in place.
        """
        array, gradient = p._array, g._array
        if (
            type(array) is np.ndarray
            and type(gradient) is np.ndarray
            and ((dtype := array.dtype) is FLOAT32 or dtype is FLOAT64)
            and gradient.dtype is dtype
            and gradient.shape == array.shape
            and (p._meta is None or p._meta.base is None)
            and not current().special
        ):
            inputs: list[Any] = [array, gradient]
            outputs, now = [array], self._now
            if names:
                state = self.state[p]
                if dtype is FLOAT64:
                    follow(state, names, dtype)
                for name in names:
                    buffer = state.get(name)
                    if buffer is None and (buffer := self._buffer(group, p, name)) is None:
                        inputs.append(None)
                        buffer = state[name] = wrap(np.empty(array.shape, dtype))
                    else:
                        inputs.append(buffer._array)
                    outputs.append(buffer._array)
                    meta = buffer._meta
                    version = version_of(buffer) if meta is None or meta.version is None else meta.version
                    version.written = version.count = now
            self._written.append(p)
            if array.size < row.pays or dispatch.by_kernel(row, [*inputs, h._array], params, outputs) is None:
                row.quietly(*inputs, h._array, *outputs, **params)
            return
        if g.layout is not strided:
            self.run_on_parts(row, group, p, g, names, h, **params)
            return
        if array.dtype in COMPLEX:
            self.run_on_pairs(row, group, p, g, names, h, **params)
            return
        state, buffers, skip = self.state[p] if names else {}, [], self.found_inf
        if names:
            follow(state, names, array.dtype)
        for name in names:
            buffer = state.get(name)
            buffers.append(self._buffer(group, p, name) if buffer is None else buffer)
        if skip is not None and any(b is None for b in buffers) and skip.item():
            return
        if self._enqueued(row, p, g, state, names, buffers, h, params):
            return
        results = bind(row)(p, g, *buffers, h.to(p.device), **params)
        if not names:
            results = (results,)
        if skip is not None:
            results = [new if old is None else where(skip, old, new) for old, new in zip((p, *buffers), results, strict=True)]
        write(row.name, p, results[0])
        for name, buffer, result in zip(names, buffers, results[1:], strict=True):
            if buffer is None:
                state[name] = result
            else:
                write(row.name, buffer, result)

    def run_on_parts(self, row: Op, group: Group, p: Tensor, g: Tensor, names: tuple[str, ...], h: Tensor, **params: Any) -> None:
        """`run` for a sparse gradient: the row is run on the parts of the parameter and its buffers that have one; no other is written."""
        if not self.sparse:
            raise RuntimeError(
                f"{type(self).__name__} does not support sparse gradients; use SparseAdam, SGD or Adagrad, or make gradients dense "
                f"(sparse=False)"
            )
        if group.get("weight_decay"):
            raise RuntimeError("weight_decay is not compatible with sparse gradients: it changes all parts of the parameter")
        if self.found_inf is not None and self.found_inf.item():
            return
        at, values = parts_of(g)
        whole = [p, *[self._buffer(group, p, name) for name in names]]
        flat = [x if not x.shape else x.view((-1, *values.shape[1:])) for x in whole if x is not None]
        parts = [x.index_select(0, at) if x.shape else x for x in flat]
        results = bind(row)(parts[0], values, *parts[1:], h.to(p.device), **params)
        for x, new in zip(flat, results if names else (results,), strict=True):
            if x.shape:
                x.index_copy_(0, at, new)
            else:
                write(row.name, x, new)

    def run_on_pairs(self, row: Op, group: Group, p: Tensor, g: Tensor, names: tuple[str, ...], h: Tensor, **params: Any) -> None:
        """`run` for a complex parameter: real and imaginary parts are updated as two numbers, each by itself; buffers are complex, too."""
        state, pairs, before = self.state[p], view_as_real(p.detach()), []
        for name in names:
            buffer = state.get(name)
            if buffer is None and (made := self.fresh(group, pairs, name)) is not None:
                buffer = state[name] = view_as_complex(made).clone() if made.shape == pairs.shape else made
            before.append(None if buffer is None else view_as_real(buffer) if buffer.is_complex() else buffer)
        results = bind(row)(pairs, view_as_real(g), *before, h.to(p.device), **params)
        old = (pairs, *before)
        for name, buffer, result in zip(("", *names), old, results if names else (results,), strict=True):
            if buffer is not None:
                write(row.name, buffer, result if self.found_inf is None else where(self.found_inf, buffer, result))
            elif self.found_inf is None or not self.found_inf.item():
                state[name] = view_as_complex(result).clone()

    def _buffer(self, group: Group, p: Tensor, name: str) -> Tensor | None:
        """A buffer, made if it was not there."""
        found: Tensor | None = self.state[p].get(name)
        if found is None and (found := self.fresh(group, p, name)) is not None:
            self.state[p][name] = found
        return found

    def _enqueued(
        self, row: Op, p: Tensor, g: Tensor, state: dict[str, Any], names: tuple[str, ...], buffers: list[Tensor | None], h: Tensor,
        params: dict[str, Any],
    ) -> bool:  # fmt: skip
        """Put an update off until the group's end, where the backend can do many at once; False where it cannot."""
        array, gradient = p._array, g._array
        kind = type(array)
        if kind is np.ndarray or type(gradient) is not kind or current().special or (p._meta is not None and p._meta.base is not None):
            return False
        backend: Any = dispatch.backend_of(array)
        if not hasattr(backend, "update_many"):
            return False
        dtype, shape = array.dtype, array.shape
        if gradient.dtype != dtype or gradient.shape != shape or dtype not in FLOATING:
            return False
        inputs = [array, gradient]
        for b in buffers:
            if b is not None:
                b = b._array
                if type(b) is not kind or (b.shape and (b.shape != shape or b.dtype != dtype)):
                    return False
            inputs.append(b)
        inputs.append(h._array)
        if id(p) in self._queued:  # a parameter that is in the group twice
            self._flush()
        self._queued.add(id(p))
        key = (row, backend.place_of(array), *params.values())
        queued = self._queue.get(key)
        if queued is None:
            queued = self._queue[key] = Queued(backend, row, params, [], [])
        queued.waiting.append((p, state, names))
        queued.arguments.append(inputs)
        return True

    def _flush(self) -> None:
        """Do the updates that were put off."""
        queue, self._queue = self._queue, {}
        self._queued.clear()
        for key, (backend, row, params, waiting, arguments) in queue.items():
            known = self._known.setdefault((*key, id(waiting[0][0])), {})  # groups that differ in hyper-parameters alone share a key
            found = backend.update_many(row, arguments, params, known, None if self.found_inf is None else self.found_inf._array)
            for (p, state, names), outputs in zip(waiting, found, strict=True):
                self._written.append(p)
                for name, output in zip(names, outputs[1:], strict=True):
                    if state.get(name) is None:
                        state[name] = wrap(output)
                    else:
                        self._written.append(state[name])
