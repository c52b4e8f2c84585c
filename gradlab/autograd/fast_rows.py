"""The call paths of the other rows on NumPy arrays: views, one input with parameters, several inputs. No detour through dispatch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numpy import empty, ndarray

from gradlab.autograd import inplace, position
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.general import apply, finish, refresh
from gradlab.autograd.mode import current
from gradlab.autograd.node import Node, next_sequence
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, HALF
from gradlab.op import Op
from gradlab.spec import Spec, spec_of

Tensor: Any = Differentiable  # the concrete class, handed over by `record.adopt`
new = object.__new__
getframe = sys._getframe


def viewing(op: Op, node: type[Node]) -> Callable[..., Any]:
    cpu = op.cpu

    def call(x: Any, **params: Any) -> Any:
        mode = current()
        array = getattr(x, "_array", None)
        if type(array) is not ndarray or mode.special:
            return apply(op, (x,), params)
        if x._meta is not None and not mode.walking:
            refresh(x)
        try:
            out = cpu(array, **params)
        except (ValueError, IndexError):
            op.infer(spec_of(array), **params)  # the same fault in the row's own words
            raise
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        if mode.walking:
            return t
        edge = x._edge
        if edge is not None and mode.recording:
            n = new(node)
            n.edges = (x if edge is LEAF else edge,)
            n.params = params
            n.saved = ()
            n.versions = n.hooks = None
            n.specs = (Spec(array.shape, array.dtype),)
            n.seq = next_sequence()
            n.scope = mode.scope
            frame = getframe(2)
            n.code = frame.f_code
            n.lasti = frame.f_lasti
            t._edge = n
        inplace.mark_view(t, x, op, params, mode)
        return t

    return call


def one_input(op: Op, node: type[Node]) -> Callable[..., Any]:
    """A row of one input and one output with parameters, such as a reduction."""
    cpu, rule, steps, ready = op.cpu, op.rule, op.steps, op.promote is not None
    keeps_x, keeps_y = bool(op.kept_inputs), bool(op.kept_outputs)

    def call(x: Any, **params: Any) -> Any:
        mode = current()
        array = getattr(x, "_array", None)
        if type(array) is not ndarray or mode.special:
            return apply(op, (x,), params)
        dtype = array.dtype
        if dtype is not FLOAT32 and dtype is not FLOAT64 and (ready or dtype in HALF):
            return apply(op, (x,), params)
        if x._meta is not None:
            refresh(x)
        spec = Spec(array.shape, dtype)
        try:
            found = rule(spec, **params)
        except (ValueError, IndexError, TypeError):
            op.infer(spec, **params)  # the same fault, with the operation's name
            raise
        out = empty(found[0], found[1])
        cpu(array, out, **params)
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        edge = x._edge
        if edge is None or not steps or not mode.recording or found[1] not in FLOATING:
            return t
        n = new(node)
        n.edges = (x if edge is LEAF else edge,)
        if keeps_x:
            n.saved = (x, out) if keeps_y else (x,)
        else:
            n.saved = (out,) if keeps_y else ()
        n.versions = n.hooks = None
        n.params = params
        n.specs = (spec,)
        n.output_specs = (found,)
        n.seq = next_sequence()
        n.scope = mode.scope
        n.code, n.lasti = position.user_frame(getframe(2))
        t._edge = n
        return t

    return call


def several_inputs(op: Op) -> Callable[..., Any]:
    """Any other row: on NumPy arrays of ready dtypes without the detour through dispatch."""
    cpu, rule, promotes, single = op.cpu, op.rule, op.promote is not None, op.result is None

    def call(*args: Any, **params: Any) -> Any:
        mode = current()
        if mode.special or not args:
            return apply(op, args, params)
        arrays: list[Any] = []
        specs: list[Any] = []
        common = None
        for x in args:
            if x is None:
                arrays.append(None)
                specs.append(None)
                continue
            array = getattr(x, "_array", None)
            if type(array) is not ndarray:
                return apply(op, args, params)
            dtype = array.dtype
            if dtype is FLOAT32 or dtype is FLOAT64:
                if promotes:
                    if common is None:
                        common = dtype
                    elif common is not dtype:
                        return apply(op, args, params)
            elif promotes or dtype in HALF:
                return apply(op, args, params)
            if x._meta is not None:
                refresh(x)
                array = x._array
            arrays.append(array)
            specs.append(Spec(array.shape, dtype))
        try:
            found = rule(*specs, **params)
        except (ValueError, IndexError, TypeError):
            op.infer(*specs, **params)  # the same fault, with the operation's name
            raise
        if single:
            result = empty(found[0], found[1])
            cpu(*arrays, result, **params)
        else:
            result = tuple([empty(shape, dtype) for shape, dtype in found])
            cpu(*arrays, *result, **params)
        return finish(op, args, params, result, mode, specs)

    return call


