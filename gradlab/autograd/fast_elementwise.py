"""The call paths of elementwise rows and of the matrix product: closures, built once for each row.

Fast are NumPy arrays of one ready dtype, float32 or float64, in a plain mode. Everything else takes `general.apply`. The code repeats
itself on purpose: a helper call costs 60 ns, of 1,200 for the whole operation (`bench/cost.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import empty, ndarray

from gradlab.autograd import formulas
from gradlab.autograd.base import LEAF, Differentiable, foreign
from gradlab.autograd.general import apply, refresh, wrap
from gradlab.autograd.mode import Mode, current
from gradlab.autograd.node import Node, next_sequence
from gradlab.autograd.recall import BOTH, LEFT, ONE, OTHER, RIGHT, Broadcasts, Loops, rounds_once, scalar
from gradlab.dispatch import by_kernel, product
from gradlab.dtype import BOOL, EXACT, FLOAT32, FLOAT64
from gradlab.op import NEVER, Op
from gradlab.quiet import quietly, run
from gradlab.spec import ShapeError, Spec, broadcast_bool, broadcast_shapes, same_bool
from gradlab.strides import beside, dense_order, inverse_order

Tensor: Any = Differentiable  # the concrete class, handed over by `record.adopt`
new = object.__new__
getframe = sys._getframe
dot = ndarray.dot
FEW = 1 << 10  # elements of two matrices whose product BLAS makes by one thread anyway


def laid(out: Any, *operands: Any) -> Any:
    """What a ufunc made, as an array that lies as the operands say: of 0-d arrays it gives a scalar; its own choice of order is another
    where operands lie differently."""
    if type(out) is not ndarray:
        return np.array(out)
    if out.flags.c_contiguous and operands[-1].flags.c_contiguous and not any(operands[0].strides):  # beside what repeats one number
        return out
    given = tuple([(a.shape, a.strides) for a in operands if a.shape])
    strides = beside(given, out.shape, out.dtype.itemsize)
    if strides == out.strides:
        return out
    order = dense_order(out.shape, strides, out.dtype.itemsize)
    return np.array(out, order="C") if order is None else out.transpose(order).copy().transpose(inverse_order(order))


def whole(op: Op) -> Callable[..., Any]:
    """The call path of integers and truth values, of one or two inputs of one dtype; no graph leads to them."""
    cpu, pays = op.cpu, op.promote == "same" and isinstance(op.cpu, np.ufunc)
    result = BOOL if op.rule in (same_bool, broadcast_bool) else None

    def call(*given: Any) -> Any:
        mode = current()
        if not pays or mode.special:
            return apply(op, given, {})
        arrays = []
        common = None
        for t in given:
            if type(t) is int and common is not None and common is not BOOL:
                arrays.append(scalar(t, common))
                continue
            try:
                array = t._array
            except AttributeError:
                return apply(op, given, {})
            if type(array) is not ndarray or not array.flags.c_contiguous or array.size >= op.pays:
                return apply(op, given, {})
            if array.dtype is not common:
                if common is not None or array.dtype not in EXACT:
                    return apply(op, given, {})
                common = array.dtype
            if t._meta is not None:
                refresh(t)
                array = t._array
            arrays.append(array)
        try:
            out = run(cpu, *arrays)
        except Exception:  # the general path says what is wrong
            return apply(op, given, {})
        if type(out) is not ndarray:
            out = np.array(out)
        if out.dtype is not (result or common):
            return apply(op, given, {})
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        return t

    return call


def unary(op: Op, node: type[Node], depth: int = 2) -> Callable[..., Any]:
    cpu, steps = op.cpu, op.steps
    keeps_x, keeps_y, is_ufunc = bool(op.kept_inputs), bool(op.kept_outputs), isinstance(cpu, np.ufunc)
    result = np.dtype(bool) if op.rule is same_bool else None
    loops, exact = Loops(op), whole(op)

    def call(x: Any) -> Any:
        try:
            array = x._array
        except AttributeError:
            return apply(op, (x,), {})
        mode = current()
        if type(array) is not ndarray or mode.special:
            return apply(op, (x,), {})
        if (dtype := array.dtype) is not FLOAT32 and dtype is not FLOAT64:
            return exact(x)
        if x._meta is not None:
            refresh(x)
        try:
            out = None
            if array.size >= op.pays:
                if (loop := loops[ONE[dtype is FLOAT64]]) is not None:
                    out = empty(array.shape, result or dtype)
                if loop is None or loop(array, out) != -1:
                    out = by_kernel(op, (array,), {})
            if out is not None:
                pass
            elif is_ufunc:
                out = run(cpu, array)
                if type(out) is not ndarray or not array.flags.c_contiguous:
                    out = laid(out, array)
            elif array.flags.c_contiguous:
                out = empty(array.shape, result or dtype)
                run(cpu, array, out)
            else:
                return apply(op, (x,), {})
        except RuntimeError:  # another thread is in there
            return apply(op, (x,), {})
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
        frame = getframe(depth)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    return call


def binary(op: Op, node: type[Node], depth: int = 2, reflected: str = "") -> Callable[..., Any]:
    cpu, steps = op.cpu, op.steps
    keep, keeps_y, is_ufunc = formulas.keeper(op), bool(op.kept_outputs), isinstance(cpu, np.ufunc)
    keeps_none, crossed = formulas.keeps(op)
    asks_y = formulas.output_asked(op)
    result = np.dtype(bool) if op.rule is broadcast_bool else None
    loops, spread, exact, any_size = Loops(op), Broadcasts(op), whole(op), rounds_once(op)

    def call(a: Any, b: Any) -> Any:
        mode = current()
        if type(b) is float or type(b) is int or type(a) is float or type(a) is int:  # looked at first: an error takes a microsecond
            return with_number(a, b, mode)
        try:
            x, y = a._array, b._array
        except AttributeError:
            return NotImplemented if reflected and foreign(b, reflected) else with_number(a, b, mode)
        if type(x) is not ndarray or type(y) is not ndarray or mode.special:
            return apply(op, (a, b), {})
        dtype = x.dtype
        if y.dtype is not dtype or (dtype is not FLOAT32 and dtype is not FLOAT64):
            return exact(a, b)
        if a._meta is not None:
            refresh(a)
        if b._meta is not None:
            refresh(b)
        try:
            one, other = x.size, y.size  # few elements of different sizes are asked about as well
            if (one >= op.pays or (one != other and (other >= op.pays or other != 1 != one))) and (out := large(x, y, dtype)) is not None:
                pass
            elif is_ufunc:
                out = run(cpu, x, y)
                if type(out) is not ndarray or not x.flags.c_contiguous:  # otherwise NumPy's order is ours
                    out = laid(out, x, y)
            else:
                shape = x.shape
                if y.shape != shape:
                    shape = joint_shape(x, y)
                if not ((x.flags.c_contiguous or not any(x.strides)) and (y.flags.c_contiguous or not any(y.strides))):
                    return apply(op, (a, b), {})  # what repeats one number, as a sum's gradient, lies as the other one does
                out = empty(shape, result or dtype)
                run(cpu, x, y, out)
        except ValueError:
            raise misfit(x, y) from None
        except RuntimeError:
            return apply(op, (a, b), {})
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
        if keeps_none:
            n.saved = ()
        elif crossed:
            n.saved = (None if ea is None else b, None if eb is None else a)
        else:
            n.saved = (*keep(a, b, ea, eb), out if asks_y(ea, eb) else None) if keeps_y else keep(a, b, ea, eb)
        n.specs = None if x.shape == y.shape else (Spec(x.shape, dtype), Spec(y.shape, dtype))
        n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(depth)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    def large(x: Any, y: Any, dtype: Any) -> Any:
        shape, other = x.shape, y.shape
        if shape != other:
            if x.size < op.pays > y.size and (not any_size or op.pays == NEVER):
                return None
            kept = spread[shape, other, dtype]
            if kept[0] is not None:
                out = empty(kept[1], result or dtype)
                if (done := kept[0](x, y, out)) == -1:
                    return out
                if done == OTHER and (found := spread.otherwise(kept, x, y, out)) is not None:
                    return found
            if x.size < op.pays > y.size:
                return None
            return by_kernel(op, (x, y), {})
        if (loop := loops[BOTH[dtype is FLOAT64]]) is not None:
            out = empty(shape, result or dtype)
            if loop(x, y, out) == -1:
                return out
        return by_kernel(op, (x, y), {})

    def joint_shape(x: Any, y: Any) -> tuple[int, ...]:
        try:
            return broadcast_shapes(x.shape, y.shape)
        except ShapeError as error:
            raise ShapeError(f"{op.name}: {error}") from None

    def misfit(x: Any, y: Any) -> Exception:
        """NumPy's complaint in the row's words."""
        joint_shape(x, y)
        return ValueError(f"{op.name}: NumPy cannot compute shapes {x.shape} and {y.shape}")

    def with_number(a: Any, b: Any, mode: Mode) -> Any:
        """One side is a Python number (or something that `apply` sorts out)."""
        left = type(a) is float or type(a) is int
        tensor, value = (b, a) if left else (a, b)
        if mode.special or not (left or type(b) is float or type(b) is int) or not isinstance(tensor, Differentiable):
            return apply(op, (a, b), {})
        x = tensor._array
        if type(x) is not ndarray:
            return apply(op, (a, b), {})
        if (dtype := x.dtype) is not FLOAT32 and dtype is not FLOAT64:
            return exact(a, b)
        if tensor._meta is not None:
            refresh(tensor)
        try:
            number = scalar(value, dtype)
        except OverflowError:
            return apply(op, (a, b), {})
        first, second = (number, x) if left else (x, number)
        try:
            out = None
            if x.size >= op.pays:
                if (loop := loops[(LEFT if left else RIGHT)[dtype is FLOAT64]]) is not None:
                    out = empty(x.shape, result or dtype)
                if loop is None or loop(first, second, out) != -1:
                    out = by_kernel(op, (first, second), {})
            if out is not None:
                pass
            elif is_ufunc:
                out = run(cpu, first, second)
                if type(out) is not ndarray or not x.flags.c_contiguous:
                    out = laid(out, x)
            elif x.flags.c_contiguous:
                out = empty(x.shape, result or dtype)
                run(cpu, first, second, out)
            else:
                return apply(op, (a, b), {})
        except RuntimeError:
            return apply(op, (a, b), {})
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
        n.saved = (*saved, out if asks_y(*n.edges) else None) if keeps_y else saved
        n.specs = n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(depth + 1)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    return call


def matrix_product(op: Op, node: type[Node], batched: Callable[..., Any], depth: int = 2, reflected: str = "") -> Callable[..., Any]:
    """Of two matrices, or as many of each; `batched` is the call for others. Each input's gradient asks for the other input."""
    cpu = op.cpu

    def call(a: Any, b: Any) -> Any:
        mode = current()
        try:
            x, y = a._array, b._array
        except AttributeError:
            return NotImplemented if reflected and foreign(b, reflected) else batched(a, b)
        if type(x) is not ndarray or type(y) is not ndarray or mode.special:
            return apply(op, (a, b), {}) if len(getattr(x, "shape", ())) == len(getattr(y, "shape", ())) == 2 else batched(a, b)
        dtype = x.dtype
        if y.dtype is not dtype or (dtype is not FLOAT32 and dtype is not FLOAT64) or x.ndim != 2 or y.ndim != 2:
            return several(a, b, x, y, mode)
        if a._meta is not None:
            refresh(a)
        if b._meta is not None:
            refresh(b)
        try:
            large = x.size >= op.pays <= y.size and x.shape[1] == y.shape[0]
            out = (by_kernel(op, (x, y), {}) if large else None)
            if out is None:
                # The method: numpy.dot goes through NumPy's Python dispatcher, 1 µs more.
                out = run(dot, x, y) if x.size + y.size < FEW else run(product, x, y)
        except (ValueError, RuntimeError):  # sizes that do not fit; another thread is in there
            return batched(a, b)
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
        n.saved = (None if ea is None else b, None if eb is None else a)
        n.specs = n.versions = n.hooks = None
        n.seq = next_sequence()
        n.scope = mode.scope
        frame = getframe(depth)
        n.code = frame.f_code
        n.lasti = frame.f_lasti
        t._edge = n
        return t

    def several(a: Any, b: Any, x: Any, y: Any, mode: Mode) -> Any:
        """As many matrices of each."""
        ready = y.dtype is x.dtype and (x.dtype is FLOAT32 or x.dtype is FLOAT64) and x.size < op.pays
        fits = ready and x.ndim == y.ndim > 2 and x.shape[:-2] == y.shape[:-2] and x.shape[-1] == y.shape[-2]
        if not fits or (mode.recording and (a._edge is not None or b._edge is not None)):
            return batched(a, b)
        refresh(a)
        refresh(b)
        return wrap(quietly(cpu, a._array, b._array))

    return call
