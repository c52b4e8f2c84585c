"""The call paths of the other rows on NumPy arrays: views, one input with parameters, several inputs. No detour through dispatch.

Views take theirs on the arrays of every backend that computes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numpy import add, empty, ndarray

from gradlab import call_site
from gradlab.autograd import inplace
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.general import apply, record, refresh, wrap
from gradlab.autograd.mode import current
from gradlab.autograd.node import Node, next_sequence
from gradlab.autograd.recall import KEPT_SHAPES, UNASKED, UNUSUAL, Inferred, infer, machine, scalar
from gradlab.dispatch import product, recalling, remembered
from gradlab.dtype import FLOAT32, FLOAT64, INEXACT
from gradlab.kernel import Library
from gradlab.op import Op
from gradlab.quiet import busy, quietly, run
from gradlab.spec import Spec, spec_of

Tensor: Any = Differentiable  # the concrete class, handed over by `record.adopt`
new = object.__new__
getframe = sys._getframe
Recent = dict[Any, tuple[dict[str, Any], Inferred]]  # by shapes and dtypes, the parameters of the last call with these and what it came to


def keep(recent: Recent, shapes: Any, key: Any, params: dict[str, Any], inferred: Inferred) -> None:
    """Note a call in `recent`, where its parameters can be part of a key: those may be compared."""
    try:
        hash(key)
    except TypeError:
        return
    if len(recent) >= KEPT_SHAPES:
        recent.clear()
    recent[shapes] = params, inferred


def viewing(op: Op, node: type[Node]) -> Callable[..., Any]:
    """A view is made by the array's own methods, on a GPU as well, unless the row says otherwise."""
    cpu, everywhere = op.cpu, not isinstance(op.cuda, Library)

    def call(x: Any, **params: Any) -> Any:
        mode = current()
        array: Any = getattr(x, "_array", None)
        if mode.special or (type(array) is not ndarray and not (everywhere and type(array) in recalling)):
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


def dynamic(op: Op) -> Callable[..., Any]:
    """A row of one input without a gradient whose result's size is known only then."""

    def call(x: Any, **params: Any) -> Any:
        array = getattr(x, "_array", None)
        if type(array) is not ndarray or op.promote is not None or op.result is not None or array.dtype in UNUSUAL or current().special:
            return apply(op, (x,), params)
        if x._meta is not None:
            refresh(x)
            array = x._array
        op.infer(Spec(array.shape, array.dtype), **params)
        return wrap(op.quietly(array, **params))

    return call


def one_input(op: Op, node: type[Node]) -> Callable[..., Any]:
    """A row of one input and one output with parameters, such as a reduction."""
    cpu, steps, ready, lies = op.cpu, op.steps, op.promote is not None, op.lies is not None
    keeps_x, keeps_y = bool(op.kept_inputs), bool(op.kept_outputs)
    known: dict[Any, Inferred] = {}
    recent: Recent = {}
    remembered.extend((known, recent))

    def call(x: Any, **params: Any) -> Any:
        mode = current()
        try:
            array = x._array
        except AttributeError:
            return apply(op, (x,), params)
        if type(array) is not ndarray or mode.special:
            return apply(op, (x,), params)
        dtype = array.dtype
        if dtype is not FLOAT32 and dtype is not FLOAT64 and (ready or dtype in UNUSUAL):
            return apply(op, (x,), params)
        if lies and not array.flags.c_contiguous and any(array.strides):
            return apply(op, (x,), params)
        if x._meta is not None:
            refresh(x)
        try:  # what a shape was last called with, mostly: a comparison takes a third of the time that a key of all parameters does
            last = recent[array.shape, dtype]
            inferred = last[1] if last[0] == params else None
        except Exception:
            inferred = None
        if inferred is None:
            key = (array.shape, dtype, *params.items())
            try:
                inferred = known.get(key)
            except TypeError:
                inferred = None
            if inferred is None:
                inferred = infer(op, known, key, (array,), params)
            keep(recent, (array.shape, dtype), key, params, inferred)
        specs, found, kernel, _ = inferred
        shape, dtype = found[0]
        out, done = empty(shape, dtype), 0
        if array.size >= op.pays:
            if kernel is not None and kernel is not UNASKED:
                done = kernel(array, out)
            if done != -1 and (made := machine(op, inferred, (array,), params, (array,))) is not None:
                out, done = made[0], -1
        if done != -1:
            try:
                run(cpu, array, out, **params)
            except RuntimeError as error:
                if not busy(error):
                    raise
                quietly(cpu, array, out, **params)
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        edge = x._edge
        if edge is None or not steps or not mode.recording or dtype not in INEXACT:
            return t
        n = new(node)
        n.edges = (x if edge is LEAF else edge,)
        if keeps_x:
            n.saved = (x, out) if keeps_y else (x,)
        else:
            n.saved = (out,) if keeps_y else ()
        n.versions = n.hooks = None
        n.params = params
        n.specs = specs
        n.output_specs = found
        n.seq = next_sequence()
        n.scope = mode.scope
        n.code, n.lasti = call_site.user_frame(getframe(1))
        t._edge = n
        return t

    return call


def several_inputs(op: Op) -> Callable[..., Any]:
    """Any other row: on NumPy arrays of ready dtypes."""
    cpu, steps, promotes, result, lies = op.cpu, op.steps, op.promote is not None, op.result, op.lies is not None
    known: dict[Any, Inferred] = {}
    recent: Recent = {}
    remembered.extend((known, recent))

    def call(*args: Any, **params: Any) -> Any:
        mode = current()
        if mode.special or not args:
            return apply(op, args, params)
        arrays: list[Any] = []
        key: list[Any] = []
        common, least = None, op.pays
        large = gaps = False
        pattern, numbers, bit = 0, 0, 1
        for x in args:
            if x is None:
                arrays.append(None)
                key.append(None)
                gaps = True
            else:
                kind = type(x)
                if kind is float or kind is int:
                    if common is None:
                        return apply(op, args, params)
                    try:
                        arrays.append(scalar(x, common))
                    except OverflowError:
                        return apply(op, args, params)
                    key.append(float)
                    numbers |= bit
                    bit += bit
                    continue
                try:
                    array = x._array
                except AttributeError:
                    return apply(op, args, params)
                if type(array) is not ndarray:
                    return apply(op, args, params)
                dtype = array.dtype
                if dtype is FLOAT32 or dtype is FLOAT64:
                    if promotes and dtype is not common:
                        if common is not None:
                            return apply(op, args, params)
                        common = dtype
                elif promotes or dtype in UNUSUAL:
                    return apply(op, args, params)
                if lies and not array.flags.c_contiguous and any(array.strides):  # not what repeats one number
                    return apply(op, args, params)
                if x._meta is not None:
                    refresh(x)
                    array = x._array
                arrays.append(array)
                key += array.shape, dtype
                if array.size >= least:
                    large = True
                if x._edge is not None:
                    pattern |= bit
            bit += bit
        shapes = tuple(key)
        try:
            last = recent[shapes]
            inferred = last[1] if last[0] == params else None
        except Exception:
            inferred = None
        if inferred is None:
            whole = (*shapes, *params.items())
            try:
                inferred = known.get(whole)
            except TypeError:
                inferred = None
            if inferred is None:
                inferred = infer(op, known, whole, arrays, params)
                if numbers:
                    inferred[0] = tuple([None if numbers >> i & 1 else spec for i, spec in enumerate(inferred[0])])
            keep(recent, shapes, whole, params, inferred)
        specs, found, kernel, _ = inferred
        outs = []
        made = []
        for shape, dtype in found:
            t = new(Tensor)
            t._array = out = empty(shape, dtype)
            t._edge = t._meta = None
            made.append(out)
            outs.append(t)
        done = 0
        if large:
            given = [a for a in arrays if a is not None] if gaps else arrays
            if kernel is not None and kernel is not UNASKED:
                done = kernel(*given, *made)
            if done != -1 and (other := machine(op, inferred, arrays, params, given)) is not None:
                done = -1
                for t, out in zip(outs, other):
                    t._array = out
        if done != -1:
            try:
                run(cpu, *arrays, *made, **params) if params else run(cpu, *arrays, *made)
            except RuntimeError as error:
                if not busy(error):
                    raise
                quietly(cpu, *arrays, *made, **params)
        if pattern and steps and mode.recording:
            record(op, args, params, outs, specs, found, pattern, mode, getframe(1))
        return t if result is None else tuple.__new__(result, outs)

    return call


def fully_connected(op: Op) -> Callable[..., Any]:
    """x (n, k), w (m, k) and b (m) or None give x @ w.T + b (n, m): small matrices, without a look at what such a call came to before."""
    otherwise = op.call
    assert otherwise is not None
    known: dict[Any, Any] = {}
    remembered.append(known)

    def call(a: Any, w: Any, b: Any = None) -> Any:
        mode = current()
        try:
            x, y = a._array, w._array
            z = None if b is None else b._array
        except AttributeError:
            return otherwise(a, w, b)
        if type(x) is not ndarray or type(y) is not ndarray or mode.special:
            return otherwise(a, w, b)
        dtype, least = x.dtype, op.pays
        if y.dtype is not dtype or (dtype is not FLOAT32 and dtype is not FLOAT64) or x.size >= least or y.size >= least or x.ndim != 2:
            return otherwise(a, w, b)
        if z is not None and (type(z) is not ndarray or z.dtype is not dtype or z.ndim != 1 or len(z) != len(y)):
            return otherwise(a, w, b)
        for t in (a, w, b):
            if t is not None and t._meta is not None:
                refresh(t)
        try:
            out = run(product, a._array, w._array.T)
            if b is not None:
                run(add, out, b._array, out)
        except (ValueError, RuntimeError):  # sizes that do not fit; another thread is in there
            return otherwise(a, w, b)
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        if mode.recording:
            pattern = (a._edge is not None) + 2 * (w._edge is not None) + (0 if b is None else 4 * (b._edge is not None))
            if pattern:
                key = (x.shape, y.shape, dtype, z is None)
                if (inferred := known.get(key)) is None:
                    if len(known) >= KEPT_SHAPES:
                        known.clear()
                    given = Spec(x.shape, dtype), Spec(y.shape, dtype), None if z is None else Spec(z.shape, dtype)
                    inferred = known[key] = given, (Spec(out.shape, dtype),)
                specs, found = inferred
                record(op, (a, w, b), {}, (t,), specs, found, pattern, mode, getframe(1))
        return t

    return call
