"""The general call path: any inputs, any backend, any mode. Promote, dispatch, wrap, record."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from gradlab import call_site, dispatch
from gradlab.above import above
from gradlab.autograd import errors, formulas, inplace, recall, saved
from gradlab.autograd.base import LEAF, Differentiable, Meta
from gradlab.autograd.mode import Mode, current
from gradlab.autograd.node import Edge, next_sequence
from gradlab.autograd.recall import UNUSUAL
from gradlab.dispatch import layouts, recalling
from gradlab.dtype import BOOL, COMPLEX, FLOAT32, HALF, INEXACT, as_numpy, get_default_dtype, int8, result_type, uint8
from gradlab.op import Op
from gradlab.spec import spec_of

Tensor: Any = Differentiable  # the concrete class, handed over by `record.adopt`
new = object.__new__
getframe = sys._getframe
_NUMBERS = (int, float, bool, complex)
_OF_NUMBERS = frozenset({"add", "sub", "mul", "div", "floor_divide"})  # take two numbers, as in PyTorch
NARROW = HALF | {BOOL, int8.dtype, uint8.dtype}  # what half types hold exactly


def wrap(array: Any) -> Any:
    """A Tensor around a raw array, without a graph."""
    t = new(Tensor)
    t._array = array
    t._edge = t._meta = None
    return t


def created(array: Any) -> Any:
    """`wrap` for tensors that a user makes: under `inference_mode` they are inference tensors."""
    t = wrap(array)
    if current().inference:
        t._meta = Meta()
        t._meta.inference = True
    return t


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
        if value.dtype.kind not in "biuf" and value.dtype.newbyteorder("=") not in INEXACT:
            raise TypeError(f"{op.name}: an array of {value.dtype} is not one of numbers")
        return wrap(value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("=")))
    if isinstance(value, _NUMBERS):
        if hasattr(value, "expr"):  # an unknown size of a graph (gradlab/graph/ir/dims.py) stays one
            return value
        return float(value) if isinstance(value, float) else complex(value) if isinstance(value, complex) else int(value)
    raise TypeError(f"{op.name}: inputs are tensors or numbers, not {type(value).__name__}; use gradlab.tensor(...) to make a tensor")


def promoted(op: Op, inputs: list[Any]) -> tuple[list[Any], Any]:
    """Inputs cast to their result type (of floating point where the row asks for it), and None.

    Where that is a half type and some input is wider, an integer or a number in a tensor, nothing is rounded before it is computed with:
    all are cast to float32, and the half type comes second, to which the result is to be cast. So it is where the gradient will need the
    result unrounded.
    """
    tensors = [x for x in inputs if isinstance(x, Differentiable)]
    if not tensors:
        if op.name not in _OF_NUMBERS:
            raise TypeError(f"{op.name}: at least one input must be a tensor")
        inputs = tensors = [wrap(np.asarray(x, result_type([], [x]))) for x in inputs]
    dtypes = [(t._array.dtype, len(t._array.shape)) for t in tensors]
    numbers = [x for x in inputs if isinstance(x, _NUMBERS)]
    dtype = dtypes[0][0] if len(dtypes) == 1 and not numbers else result_type(dtypes, numbers)
    if op.promote == "float" and dtype not in INEXACT:
        dtype = as_numpy(get_default_dtype())
    narrow = None
    if dtype in HALF and op.result is None:
        wider = op.number_dtype(dtype) != dtype and any(d != dtype and d not in NARROW for d, _ in dtypes)
        if wider or (op.sharp and current().recording and any(t._edge is not None for t in tensors)):
            narrow, dtype = dtype, FLOAT32
    ready = [x.to(dtype) if isinstance(x, Differentiable) and x._array.dtype != dtype else x for x in inputs]  # type: ignore[attr-defined]
    return ready, narrow


def apply(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run a row on Tensors, numbers and None, and record it. Several outputs come as a named tuple.

    First of all, in a plain mode: on a backend that remembers what a call like this came to, what `compute` does, written out. The host's
    cost of a launch is counted in calls (tests/test_cuda_cost.py).
    """
    mode = current()
    if mode.special or not args:
        if not mode.special and op.result is None and not op.dynamic and getattr(params.get("device"), "type", None) == "cpu":
            return made(op, params)
        if mode.autocast is None or not recalling or not args or not mode.only_autocast():
            return compute(op, args, params, mode, None)
        if op.autocast is not None:
            args = tuple(mode.autocast.cast(op, args))
    backend: Any = None
    try:
        kind: Any = type((args[-1] if type(args[0]) in _NUMBERS else args[0])._array)
        if kind in recalling:
            backend = recalling[kind]
    except AttributeError:
        kind = None
    if backend is None:
        return compute(op, args, params, mode, None) if kind is not ndarray or mode.special else on_host(op, args, params, mode)
    arrays = []
    for x in args:
        array = getattr(x, "_array", x)
        if array is x:
            if x is not None and type(x) not in _NUMBERS:
                return compute(op, args, params, mode, backend)
        elif x._meta is not None:
            refresh(x)
            array = x._array
        arrays.append(array)
    try:
        run, specs, output_specs = backend.known[backend.key(op, arrays, params)]
    except (KeyError, TypeError):  # TypeError: a parameter that cannot be part of a key
        run = None
    # Not within the except, of which an error would be shown as a consequence. What a sharp row comes to depends on whether it is recorded.
    if run is None or (op.sharp and mode.recording and output_specs[0][1] in HALF):
        return compute(op, args, params, mode, backend)
    result = run(arrays, None, params) if op.varying else run(arrays)
    if op.result is None:
        t = new(Tensor)
        t._array = result
        t._edge = t._meta = None
        outs = [t]
    else:
        outs = []
        for array in result:
            t = new(Tensor)
            t._array = array
            t._edge = t._meta = None
            outs.append(t)
    if mode.recording and op.steps:
        pattern, bit = 0, 1
        for x in args:
            if getattr(x, "_edge", None) is not None:
                pattern |= bit
            bit += bit
        if pattern:
            record(op, args, params, outs, specs, output_specs, pattern, mode, getframe(1))
    if op.view:  # one of the library's: its arrays do not say whose memory they share
        inplace.mark_view(outs[0], args[0], op, params, mode)
    return t if op.result is None else tuple.__new__(op.result, outs)


def made(op: Op, params: dict[str, Any]) -> Any:
    """What a row without inputs makes on the CPU."""
    spec = op.infer(**params)
    if spec.dtype in HALF and not op.exact:
        return compute(op, (), params, current(), None)
    out = np.empty(spec.shape, spec.dtype)
    try:
        op.quietly(out, **{name: value for name, value in params.items() if name != "device"})
    except TypeError:  # the backend says for which types it is not defined
        return compute(op, (), params, current(), None)
    return wrap(out)


def on_host(op: Op, args: tuple[Any, ...], params: dict[str, Any], mode: Mode) -> Any:
    """`apply` in a plain mode where the first input is an array of NumPy's: what `recall` knows of a call like this one."""
    arrays = []
    pattern, bit = 0, 1
    for x in args:
        array = getattr(x, "_array", x)
        if array is not x:
            if x._meta is not None:
                if isinstance(x, type):  # it has the slots, and no array in them
                    raise TypeError(f"{op.name}: takes tensors here, not the class {x.__name__}")
                refresh(x)
                array = x._array
            if x._edge is not None:
                pattern |= bit
        arrays.append(array)
        bit += bit
    key = recall.key_of(op, arrays, params)
    try:
        inferred = recall.known.get(key)
    except TypeError:  # a parameter that cannot be part of a key
        key = inferred = None
    if inferred is None:
        return compute(op, args, params, mode, None if key is None else recall)
    if not pattern or not op.steps or not mode.recording:
        pattern = 0
    elif inferred[3] is not None:
        for x, dtype in zip(args, inferred[3]):
            if dtype is not None and getattr(x, "_edge", None) is not None:  # the cast is a node of its own
                return compute(op, args, params, mode, None)
    outs = []
    for array in recall.results(op, inferred, arrays, params):
        t = new(Tensor)
        t._array = array
        t._edge = t._meta = None
        outs.append(t)
    if pattern:
        record(op, args, params, outs, inferred[0], inferred[1], pattern, mode, getframe(2))
    return t if op.result is None else tuple.__new__(op.result, outs)


def compute(op: Op, args: tuple[Any, ...], params: dict[str, Any], mode: Mode, remembering: Any) -> Any:
    """`apply` in any mode, on any backend. remembering: the backend that is to remember what the call came to."""
    if layouts:
        for value in args:
            run = layouts.get(type(getattr(value, "_array", None)))
            if run is not None:
                return run(op, args, params)
    inputs = []
    for value in args:
        if isinstance(value, Differentiable):
            if value._meta is not None:
                refresh(value)
        else:
            try:
                value = convert(op, value)
            except TypeError:
                if not hasattr(type(value), "__torch_function__"):
                    raise
                return above("rows on overriding classes")(op, args, params)
        inputs.append(value)
    if mode.autocast is not None and op.autocast is not None:
        inputs = mode.autocast.cast(op, inputs)
    narrow = None
    if op.promote is not None:
        inputs, narrow = promoted(op, inputs)
    if op.complex is None or type(op.complex) is not str:  # not for each row: those that take them are the commonest
        for x in inputs:
            if type(x) is complex or getattr(getattr(x, "_array", None), "dtype", None) in COMPLEX:
                return without_complex(op, inputs, params)
    batched = None if mode.vmap is None else mode.vmap.run(op, inputs, params, mode)
    if batched is not None:
        inputs, result = batched
        return narrowed(finish(op, inputs, params, result, mode), narrow)
    if mode.tracer is not None:
        mode.tracer.note(inputs)
    arrays = [x._array if isinstance(x, Differentiable) else x for x in inputs]
    if mode.tracer is not None:
        backend = mode.tracer  # every operation of a trace is staged, also those on tensors from before it: they are state
    else:
        backend = dispatch.choose(op, arrays) if arrays else dispatch.backend_for(params["device"])
    result = backend.run(op, arrays, params)
    if remembering is not None and narrow is None:
        remembering.remember(op, [getattr(x, "_array", x) for x in args], arrays, params)
    if mode.anomaly:
        _check_finite(op, inputs, params, result)
    if mode.observer is not None:
        mode.observer(op, inputs, result, params)
    return narrowed(finish(op, inputs, params, result, mode), narrow)


def without_complex(op: Op, inputs: list[Any], params: dict[str, Any]) -> Any:
    """What takes a row's place on complex inputs. TypeError where nothing does."""
    if op.complex is not None:
        return op.complex(*inputs, **params)
    found = next((x for x in inputs if isinstance(x, Differentiable) and x._array.dtype in COMPLEX), None)
    if found is None:
        number = next(x for x in inputs if type(x) is complex)
        raise TypeError(f"{op.name}: {number} is not a real number, and {op.name} is not defined for complex ones")
    raise TypeError(
        f"{op.name}: is not defined for complex numbers, got {found._array.dtype}; apply it to x.real and x.imag, to x.abs(), or to "
        f"gl.view_as_real(x), whichever is meant"
    )


def narrowed(result: Any, dtype: Any) -> Any:
    """A float32 result in the half type that `promoted` names."""
    return result if dtype is None or result._array.dtype != FLOAT32 else result.to(dtype)


def finish(
    op: Op, inputs: Sequence[Any], params: dict[str, Any], result: Any, mode: Mode, specs: Sequence[Any] | None = None
) -> Any:
    """Wrap a row's result in Tensors and record the node. `specs` are those of the inputs, if they are known already."""
    if op.result is None:
        t = new(Tensor)
        t._array = result
        t._edge = t._meta = None
        outs = [t]
    else:
        outs = []
        for array in result:
            t = new(Tensor)
            t._array = array
            t._edge = t._meta = None
            outs.append(t)
    if mode.recording:
        if op.steps:
            pattern, bit = 0, 1
            for x in inputs:
                if isinstance(x, Differentiable) and x._edge is not None:
                    pattern |= bit
                bit += bit
            if pattern:
                known = tuple([spec_of(x._array) if isinstance(x, Differentiable) else None for x in inputs] if specs is None else specs)
                record(op, inputs, params, outs, known, tuple([spec_of(t._array) for t in outs]), pattern, mode, getframe(2))
    elif mode.inference:
        for t in outs:
            t._meta = Meta()
            t._meta.inference = True
    if op.view:
        inplace.mark_view(outs[0], inputs[0], op, params, mode)
    return t if op.result is None else op.result(*outs)


def record(
    op: Op, inputs: Sequence[Any], params: dict[str, Any], outs: Sequence[Any], specs: tuple[Any, ...], output_specs: tuple[Any, ...],
    pattern: int, mode: Mode, frame: Any,
) -> None:  # fmt: skip
    """Make the node of an operation and let the outputs' edges lead there. `pattern` has a bit for each input that is in a graph."""
    node = op.node
    if op.variadic:
        pattern = 1
    try:
        plan = node.plans[pattern]
    except KeyError:
        plan = formulas.plan_of(op, pattern)
    if plan is None:
        return
    edges = []
    for x in inputs:
        edge = getattr(x, "_edge", None)
        edges.append(x if edge is LEAF else edge)
    for i in plan.without:
        edges[i] = None
    if mode.saved_hooks is not None:
        node = formulas.packing(op)
    if (dtype := output_specs[0][1]) in UNUSUAL:
        node = (node.narrow or formulas.narrow(node)) if dtype in HALF else (node.conjugate or formulas.conjugate(node))
    n = new(node)
    n.edges = tuple(edges)
    n.params = params
    n.versions = n.hooks = None
    n.specs = specs
    n.output_specs = output_specs
    n.saved = plan.pick((*inputs, outs[0]._array, None) if op.result is None else (*inputs, *[t._array for t in outs], None))
    if mode.saved_hooks is not None:
        n.saved = saved.pack_all(mode.saved_hooks, n, n.saved, len(op.kept_inputs))
    n.seq = next_sequence()
    n.scope = mode.scope
    n.code, n.lasti = call_site.user_frame(frame)
    if mode.anomaly:
        errors.remember(n, frame)
    if op.result is None:
        if dtype in INEXACT:
            outs[0]._edge = n
        return
    for i, t in enumerate(outs):
        if output_specs[i][1] in INEXACT:
            t._edge = Edge(n, i)


def _wide(array: Any) -> Any:
    return array.astype(FLOAT32) if array.dtype in HALF else array


def _check_finite(op: Op, inputs: list[Any], params: dict[str, Any], result: Any) -> None:
    """Under detect_anomaly: raise at the first operation that makes a NaN or an infinity of finite inputs."""

    def finite(array: Any) -> bool:
        return not isinstance(array, ndarray) or array.dtype not in INEXACT or bool(np.isfinite(_wide(array)).all())

    def without_nan(array: Any) -> bool:
        return not isinstance(array, ndarray) or array.dtype not in INEXACT or not np.isnan(_wide(array)).any()

    results = (result,) if op.result is None else result
    numbers = [x for x in (*inputs, *params.values()) if isinstance(x, float)]
    if not all(map(math.isfinite, numbers)):  # an infinity that was asked for, such as a mask's, is no accident; a NaN is
        finite = without_nan
    if not all(map(finite, results)) and all(finite(x._array) for x in inputs if isinstance(x, Differentiable)):
        place = call_site.locate(*call_site.caller(), current().scope)
        shapes = ", ".join(str(x._array.shape) if isinstance(x, Differentiable) else repr(x) for x in inputs)
        where = f"\n  at: {place}" if place is not None else ""
        raise errors.NonFiniteError(f"{op.name}: made a NaN or infinity of finite inputs (shapes {shapes}){where}")
