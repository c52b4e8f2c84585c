"""The call path: how a row is run on Tensors and recorded.

`bind(op)` builds the row's call once. Rows of the commonest shapes (one input, two inputs, a matrix product) get a closure with a fast path:
NumPy arrays of one ready dtype, float32 or float64, and a plain mode. Everything else takes `apply`. What mattered, in µs per operation,
is in `bench/RESULTS.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import dot, empty, ndarray

from gradlab import dispatch
from gradlab.autograd import errors, formulas, inplace, position
from gradlab.autograd.base import LEAF, Differentiable, Meta
from gradlab.autograd.mode import Mode, current
from gradlab.autograd.node import Node, edge_to, next_sequence, node_class
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, HALF, as_numpy, get_default_dtype, result_type
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, broadcast, broadcast_bool, broadcast_shapes, gradient_of, product, same, same_bool, spec_of

Tensor: Any = Differentiable  # the concrete class; the tensor room hands it over once, by `adopt`
new = object.__new__
getframe = sys._getframe
_NUMBERS = (int, float, bool)
_scalars: dict[tuple[Any, float], Any] = {}


def adopt(tensor_class: type[Differentiable]) -> None:
    """Let results be of this class."""
    global Tensor
    Tensor = Node.tensor_class = tensor_class


def bind(op: Op) -> Callable[..., Any]:
    """The row's recorded call; built on first use."""
    if op.call is None:
        op.call = _build(op)
    return op.call


def _build(op: Op) -> Callable[..., Any]:
    node = formulas.with_back(node_class(op), op)
    op.node = node
    ufunc_like = op.promote is not None and not op.params and not op.view and len(op.outputs) == 1
    if ufunc_like and len(op.inputs) == 1 and op.rule in (same, same_bool):
        return _unary(op, node)
    if ufunc_like and len(op.inputs) == 2 and op.rule in (broadcast, broadcast_bool, gradient_of):
        return _binary(op, node)
    if op.rule is product and op.promote is not None:
        return _product(op, node)
    if op.view:
        return _viewing(op, node)
    if op.dynamic:
        return lambda *args, **params: apply(op, args, params)
    return _one(op, node) if len(op.inputs) == 1 and not op.variadic and op.result is None else _general(op)


def wrap(array: Any) -> Any:
    """A Tensor around a raw array, without a graph."""
    t = new(Tensor)
    t._array = array
    t._edge = t._meta = None
    return t


# ---------------------------------------------------------------- fast paths


def _scalar(value: float, dtype: Any) -> Any:
    """A Python number as a 0-d array, kept: NumPy computes three times faster with one than with the number itself."""
    key = (dtype, value)
    found = _scalars.get(key)
    if found is None or value == 0:  # 0.0 and -0.0 share a key
        if len(_scalars) > 1024:
            _scalars.clear()
        found = _scalars[key] = np.array(value, dtype)
    return found


def _unary(op: Op, node: type[Node]) -> Callable[..., Any]:
    cpu, steps = op.cpu, op.steps
    keeps_x, keeps_y = bool(op.kept_inputs), bool(op.kept_outputs)
    result = np.dtype(bool) if op.rule is same_bool else None

    def call(x: Any) -> Any:
        try:
            array = x._array
        except AttributeError:
            return apply(op, (x,), {})
        mode = current()
        if type(array) is not ndarray or mode.special or ((dtype := array.dtype) is not FLOAT32 and dtype is not FLOAT64):
            return apply(op, (x,), {})
        if x._meta is not None:
            refresh(x)
        out = empty(array.shape, result or dtype)
        cpu(array, out)
        t = new(Tensor)
        t._array = out
        t._meta = None
        edge = x._edge
        if edge is None or not steps or not mode.recording:
            t._edge = None
            return t
        n = new(node)
        n.edges = (x if edge is LEAF else edge,)
        if keeps_x:
            n.saved = (x, out) if keeps_y else (x,)
        else:
            n.saved = (out,) if keeps_y else ()
        n.specs = n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(2)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    return call


def _binary(op: Op, node: type[Node]) -> Callable[..., Any]:
    cpu, steps = op.cpu, op.steps
    keep, keeps_y, is_ufunc = formulas.keeper(op), bool(op.kept_outputs), isinstance(cpu, np.ufunc)
    result = np.dtype(bool) if op.rule is broadcast_bool else None

    def call(a: Any, b: Any) -> Any:
        mode = current()
        try:
            x, y = a._array, b._array
        except AttributeError:
            return with_number(a, b, mode)
        if type(x) is not ndarray or type(y) is not ndarray or mode.special:
            return apply(op, (a, b), {})
        dtype = x.dtype
        if y.dtype is not dtype or (dtype is not FLOAT32 and dtype is not FLOAT64):
            return apply(op, (a, b), {})
        if a._meta is not None:
            refresh(a)
        if b._meta is not None:
            refresh(b)
        shape = x.shape
        specs = None
        if y.shape != shape:
            specs = (Spec(shape, dtype), Spec(y.shape, dtype))
            out = broadcast_call(x, y)
        else:
            out = empty(shape, result or dtype)
            cpu(x, y, out)
        t = new(Tensor)
        t._array = out
        t._meta = None
        ea = a._edge
        eb = b._edge
        if (ea is None and eb is None) or not steps or not mode.recording:
            t._edge = None
            return t
        n = new(node)
        n.edges = (a if ea is LEAF else ea, b if eb is LEAF else eb)
        n.saved = keep(a, b, ea, eb) if not keeps_y else (*keep(a, b, ea, eb), out)
        n.specs = specs
        n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(2)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    def broadcast_call(x: Any, y: Any) -> Any:
        if is_ufunc:  # NumPy finds the shape three times faster than Python
            try:
                return cpu(x, y)
            except ValueError:
                pass
        try:
            out = empty(broadcast_shapes(x.shape, y.shape), result or x.dtype)
        except ShapeError as error:
            raise ShapeError(f"{op.name}: {error}") from None
        cpu(x, y, out)
        return out

    def with_number(a: Any, b: Any, mode: Mode) -> Any:
        """One side is a Python number (or something that `apply` sorts out)."""
        left = type(a) is float or type(a) is int
        tensor, value = (b, a) if left else (a, b)
        if mode.special or not (left or type(b) is float or type(b) is int) or not isinstance(tensor, Differentiable):
            return apply(op, (a, b), {})
        x = tensor._array
        if type(x) is not ndarray or ((dtype := x.dtype) is not FLOAT32 and dtype is not FLOAT64):
            return apply(op, (a, b), {})
        if tensor._meta is not None:
            refresh(tensor)
        out = empty(x.shape, result or dtype)
        try:
            number = _scalar(value, dtype)
        except OverflowError:
            return apply(op, (a, b), {})
        if left:
            cpu(number, x, out)
        else:
            cpu(x, number, out)
        t = new(Tensor)
        t._array = out
        t._meta = None
        edge = tensor._edge
        if edge is None or not steps or not mode.recording:
            t._edge = None
            return t
        n = new(node)
        if left:
            n.edges = (None, b if edge is LEAF else edge)
            saved = keep(a, b, None, edge)
        else:
            n.edges = (a if edge is LEAF else edge, None)
            saved = keep(a, b, edge, None)
        n.saved = (*saved, out) if keeps_y else saved
        n.specs = n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(3)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    return call


def _product(op: Op, node: type[Node]) -> Callable[..., Any]:
    keep = formulas.keeper(op)

    def call(a: Any, b: Any) -> Any:
        mode = current()
        try:
            x, y = a._array, b._array
        except AttributeError:
            return apply(op, (a, b), {})
        if type(x) is not ndarray or type(y) is not ndarray or mode.special:
            return apply(op, (a, b), {})
        dtype, sx, sy = x.dtype, x.shape, y.shape
        if y.dtype is not dtype or len(sx) != 2 or len(sy) != 2 or sx[1] != sy[0] or (dtype is not FLOAT32 and dtype is not FLOAT64):
            return apply(op, (a, b), {})
        if a._meta is not None:
            refresh(a)
        if b._meta is not None:
            refresh(b)
        out = empty((sx[0], sy[1]), dtype)
        dot(x, y, out)
        t = new(Tensor)
        t._array = out
        t._meta = None
        ea = a._edge
        eb = b._edge
        if (ea is None and eb is None) or not mode.recording:
            t._edge = None
            return t
        n = new(node)
        n.edges = (a if ea is LEAF else ea, b if eb is LEAF else eb)
        n.saved = keep(a, b, ea, eb)
        n.specs = n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(2)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    return call


def _viewing(op: Op, node: type[Node]) -> Callable[..., Any]:
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


# ---------------------------------------------------------------- the general path


def _one(op: Op, node: type[Node]) -> Callable[..., Any]:
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


def _general(op: Op) -> Callable[..., Any]:
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
        return finish(op, list(args), params, result, mode)

    return call



def refresh(tensor: Differentiable) -> None:
    """Before a tensor is used: if it is a view whose base was written in place since, derive it anew."""
    meta = tensor._meta
    if meta is not None and meta.base is not None and meta.seen != meta.version.written:  # type: ignore[union-attr]
        inplace.derive(tensor)


def convert(op: Op, value: Any) -> Any:
    """An input that is not a Tensor: a number stays a number, an array becomes a Tensor. Raises TypeError for the rest."""
    if value is None or type(value) in _NUMBERS:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, ndarray):
        return wrap(value)
    if isinstance(value, _NUMBERS):
        return float(value) if isinstance(value, float) else int(value)
    raise TypeError(f"{op.name}: inputs are tensors or numbers, not {type(value).__name__}; use gradlab.tensor(...) to make a tensor")


def promoted(op: Op, inputs: list[Any]) -> list[Any]:
    """Inputs cast to their result type (of floating point where the row asks for it)."""
    tensors = [x for x in inputs if isinstance(x, Differentiable)]
    if not tensors:
        raise TypeError(f"{op.name}: at least one input must be a tensor")
    dtypes = [(t._array.dtype, len(t._array.shape)) for t in tensors]
    numbers = [x for x in inputs if type(x) in _NUMBERS]
    dtype = dtypes[0][0] if len(dtypes) == 1 and not numbers else result_type(dtypes, numbers)
    if op.promote == "float" and dtype not in FLOATING:
        dtype = as_numpy(get_default_dtype())
    return [x.to(dtype) if isinstance(x, Differentiable) and x._array.dtype != dtype else x for x in inputs]


def apply(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run a row on Tensors, numbers and None, and record it. Several outputs come as a named tuple."""
    mode = current()
    inputs = []
    for value in args:
        if isinstance(value, Differentiable):
            if value._meta is not None:
                refresh(value)
        else:
            value = convert(op, value)
        inputs.append(value)
    if mode.autocast is not None and op.autocast is not None:
        inputs = mode.autocast.cast(op, inputs)
    if op.promote is not None:
        inputs = promoted(op, inputs)
    arrays = [x._array if isinstance(x, Differentiable) else x for x in inputs]
    if mode.tracer is not None:
        backend = mode.tracer  # every operation of a trace is staged, also those on tensors from before it: they are state
    else:
        backend = dispatch.choose(op, arrays) if arrays else dispatch.backend_for(params["device"])
    result = backend.run(op, arrays, params)
    if mode.anomaly:
        _check_finite(op, inputs, result)
    return finish(op, inputs, params, result, mode)


def finish(op: Op, inputs: list[Any], params: dict[str, Any], result: Any, mode: Mode) -> Any:
    """Wrap a row's result in Tensors and record the node."""
    arrays = (result,) if op.result is None else result
    edges = _edges(op, inputs) if op.steps and mode.recording else None
    outs = []
    for array in arrays:
        t = new(Tensor)
        t._array = array
        t._edge = t._meta = None
        if mode.inference:
            t._meta = Meta()
            t._meta.inference = True
        outs.append(t)
    if edges is not None:
        _record(op, inputs, params, outs, edges, mode)
    if op.view:
        inplace.mark_view(outs[0], inputs[0], op, params, mode)
    return outs[0] if op.result is None else op.result(*outs)


def _edges(op: Op, inputs: list[Any]) -> tuple[Any, ...] | None:
    targets = op.node.targets
    edges = tuple(edge_to(x) if isinstance(x, Differentiable) and i in targets else None for i, x in enumerate(inputs))
    for e in edges:
        if e is not None:
            return edges
    return None


def _record(op: Op, inputs: list[Any], params: dict[str, Any], outs: list[Any], edges: tuple[Any, ...], mode: Mode) -> None:
    floating = [t._array.dtype in FLOATING for t in outs]
    if True not in floating:
        return
    n = new(op.node)
    n.edges = edges
    n.params = params
    n.versions = n.hooks = None
    n.specs = tuple(spec_of(x._array) if isinstance(x, Differentiable) else None for x in inputs)
    n.output_specs = tuple(spec_of(t._array) for t in outs)
    for x in inputs:
        if isinstance(x, Differentiable) and x._meta is not None and x._meta.inference:
            raise RuntimeError(f"{op.name}: an inference tensor cannot take part in recording; clone() it outside inference_mode first")
    n.saved = formulas.kept(op, inputs, [t._array for t in outs], edges)
    n.seq = next_sequence()
    n.scope = mode.scope
    n.code, n.lasti = position.user_frame(getframe(3))
    for i, t in enumerate(outs):
        if floating[i]:
            t._edge = n if op.result is None else formulas.Edge(n, i)


def _check_finite(op: Op, inputs: list[Any], result: Any) -> None:
    """Under detect_anomaly: raise at the first operation that makes a NaN or an infinity of finite inputs."""

    def finite(array: Any) -> bool:
        return not isinstance(array, ndarray) or array.dtype not in FLOATING or bool(np.isfinite(array.astype(FLOAT64)).all())

    results = (result,) if op.result is None else result
    if not all(map(finite, results)) and all(finite(x._array) for x in inputs if isinstance(x, Differentiable)):
        place = position.locate(*position.caller(), current().scope)
        shapes = ", ".join(str(x._array.shape) if isinstance(x, Differentiable) else repr(x) for x in inputs)
        where = f"\n  at: {place}" if place is not None else ""
        raise errors.NonFiniteError(f"{op.name}: made a NaN or infinity of finite inputs (shapes {shapes}){where}")
