"""What calls on NumPy arrays came to: the next one like it asks neither for promotion nor for the row's rule.

A rule costs 1 to 5 µs, promotion and dispatch 5 to 10, a look-up 0.4, and programs repeat their shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import empty, ndarray

from gradlab.dispatch import by_kernel, kernels, remembered
from gradlab.dtype import COMPLEX, HALF, get_default_dtype, immediate
from gradlab.op import Op
from gradlab.quiet import quietly
from gradlab.spec import Spec

KEPT_SHAPES = 256  # for each row
KEPT = 4096  # calls of the general path

# The inputs' and the outputs' Specs; what runs the row on arrays that lie row by row (`kernels().of_rows`), None, or UNASKED; and, of the
# general path, what becomes of the inputs: None, or for each its dtype where it is cast or a number.
Inferred = list[Any]
UNASKED: Any = object()
UNUSUAL = HALF | COMPLEX  # their nodes have a class of their own
known: dict[Any, Inferred] = {}  # of the general path
remembered.append(known)
_scalars: dict[Any, Any] = {}


def infer(op: Op, known: dict[Any, Inferred], key: Any, arrays: Any, params: dict[str, Any], kept: int = KEPT_SHAPES) -> Inferred:
    """The Specs of a call, kept in `known`."""
    specs = tuple([None if a is None else Spec(a.shape, a.dtype) for a in arrays])
    found = op.infer(*specs, **params)
    inferred = [specs, (found,) if op.result is None else tuple(found), UNASKED, None]
    if len(known) >= kept:
        known.clear()
    try:
        known[key] = inferred
    except TypeError:  # a parameter that cannot be part of a key
        pass
    return inferred


def machine(op: Op, inferred: Inferred, arrays: Any, params: dict[str, Any], given: Any) -> Any:
    """What a kernel makes of a row, a list of its results, or None. given: the arrays that there are."""
    call = inferred[2]
    if call is UNASKED:
        call = inferred[2] = kernels().of_rows(op, arrays, params)
    if call is not None:
        outs = [empty(shape, dtype) for shape, dtype in inferred[1]]
        done = call(*given, *outs)
        if done == -1:
            return outs
        if done >= 0:
            quietly(op.cpu, *arrays, *outs, **params)  # an index lies outside: the row's own function says which
            return outs
    for array in given:
        if not array.flags.c_contiguous:
            made = by_kernel(op, arrays, params)
            return made if made is None or op.result is not None else (made,)
    return None


def key_of(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """What a call depends on; None where nothing is kept of its kind. A number counts by its type."""
    key: list[Any] = [op, get_default_dtype()]
    for array in arrays:
        kind = type(array)
        if kind is ndarray:
            if not array.flags.c_contiguous:
                if op.lies is not None:
                    return None
                key.append(array.strides)
            key += array.shape, array.dtype
        elif kind is float or kind is int or array is None or kind is bool:
            key.append(kind)
        else:
            return None
    return (*key, *params.items()) if params else tuple(key)


def remember(op: Op, given: Sequence[Any], arrays: Sequence[Any], params: dict[str, Any]) -> None:
    """Keep what a call with the inputs `given` came to, which were `arrays` after promotion."""
    if op.view or op.dynamic or op.foreign or op.varying or not arrays or (key := key_of(op, given, params)) is None:
        return
    first = next((a for a in arrays if type(a) is ndarray), None)
    if first is None:
        return
    ready: list[Any] = []
    become: list[Any] = []
    for before, after in zip(given, arrays, strict=True):
        if type(after) is ndarray:
            if type(before) is not ndarray or before.shape != after.shape or after.dtype in UNUSUAL or before.dtype in UNUSUAL:
                return
            become.append(None if before.dtype == after.dtype else after.dtype)
        elif after is None:
            become.append(None)
        else:
            become.append(op.number_dtype(first.dtype))
            after = scalar(before, become[-1])
        ready.append(after)
    try:
        inferred = infer(op, known, key, ready, params, KEPT)
    except TypeError:
        return
    if any(dtype is not None for dtype in become):
        inferred[3] = become
    inferred[0] = tuple([spec if type(a) is ndarray else None for spec, a in zip(inferred[0], given)])


def scalar(value: Any, dtype: Any) -> Any:
    """A number as a 0-d array that nobody writes to, kept: NumPy computes three times faster with one than with the number itself."""
    key = (dtype, value) if value else (dtype, str(value))  # 0.0 equals -0.0
    found = _scalars.get(key)
    if found is None:
        if len(_scalars) > 1024:
            _scalars.clear()
        found = np.asarray(immediate(value, dtype))
        found.flags.writeable = False
        _scalars[key] = found
    return found


def results(op: Op, inferred: Inferred, arrays: list[Any], params: dict[str, Any]) -> Any:
    """The results of a call that is known, a list."""
    if inferred[3] is not None:
        for i, dtype in enumerate(inferred[3]):
            if dtype is not None:
                array = arrays[i]
                arrays[i] = quietly(array.astype, dtype) if type(array) is ndarray else scalar(array, dtype)
    least = op.pays
    for array in arrays:
        if array is not None and array.size >= least:
            made = machine(op, inferred, arrays, params, [a for a in arrays if a is not None])
            if made is not None:
                return made
            break
    outs = [empty(shape, dtype) for shape, dtype in inferred[1]]
    quietly(op.cpu, *arrays, *outs, **params)
    return outs
