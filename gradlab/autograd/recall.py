"""What calls on NumPy arrays came to: the next one like it asks neither for promotion nor for the row's rule.

A rule costs 1 to 5 µs, promotion and dispatch 5 to 10, a look-up 0.4, and programs repeat their shapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import empty, ndarray

from gradlab.dispatch import by_kernel, kernels, remembered
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, HALF, get_default_dtype, immediate
from gradlab.kernel import Elementwise, is_dear
from gradlab.op import Op
from gradlab.quiet import quietly
from gradlab.spec import ShapeError, Spec, broadcast_shapes

KEPT_SHAPES = 256  # for each row
KEPT = 4096  # calls of the general path
OTHER = -3  # what a kernel says of arrays that lie otherwise than it takes
ONE, BOTH, LEFT, RIGHT = (  # which inputs are numbers, by float32 and float64
    tuple([(single, double) for double in (False, True)]) for single in ((False,), (False, False), (True, False), (False, True))
)

# The inputs' and the outputs' Specs; what runs the row on arrays that lie row by row (`kernels().of_rows`), None, or UNASKED; and, of the
# general path, what becomes of the inputs: None, or for each its dtype where it is cast or a number.
Inferred = list[Any]
UNASKED: Any = object()
_ARCS = re.compile(r"\ba(cos|sin|tan)\w*\(")  # for which NumPy has approximations of its own where the processor has AVX-512
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


class Loops(dict[Any, Any]):
    """What runs an elementwise row on arrays of any size that lie row by row, by which inputs are numbers and by dtype; or None. A call
    gives -1 where it has done so."""

    def __init__(self, op: Op) -> None:
        self.op = op
        remembered.append(self)

    def __missing__(self, key: tuple[tuple[bool, ...], bool]) -> Any:
        single, double = key
        found = self[key] = kernels().of_any_size(self.op, FLOAT64 if double else FLOAT32, single)
        return found


class Broadcasts(dict[Any, Any]):
    """What runs a row on two arrays whose shapes differ and that lie row by row, by shapes and dtype: a function of both and the result,
    which gives -1 where it has done so, OTHER where they lie otherwise; or None. Then the result's shape; the same function for the strides
    that were met last; and those for which there is none."""

    def __init__(self, op: Op) -> None:
        self.op = op
        remembered.append(self)

    def __missing__(self, key: Any) -> Any:
        first, second, dtype = key
        try:
            shape = broadcast_shapes(first, second)
        except ShapeError as error:
            raise ShapeError(f"{self.op.name}: {error}") from None
        if len(self) >= KEPT_SHAPES:
            self.clear()
        found = self[key] = [kernels().of_rows(self.op, (ndarray(first, dtype), ndarray(second, dtype)), {}), shape, None, None]
        return found

    def otherwise(self, kept: Any, x: Any, y: Any, out: Any) -> Any:
        """The result of arrays that lie otherwise than the last ones, written to `out`, or None. What did it is asked first next time."""
        run = kept[2]
        if run is None or run(x, y, out) != -1:
            strides = x.strides, y.strides
            if strides == kept[3]:
                return None
            run = kernels().of_strides(self.op, (x, y))
            if run is None or run(x, y, out) != -1:
                kept[3] = strides
                return None
        kept[0], kept[2] = run, kept[0]
        return out


def rounds_once(op: Op) -> bool:
    """Whether a kernel has the bits of NumPy's function, so that arrays of any size may go to one."""
    return (
        isinstance(op.cpu, np.ufunc) and isinstance(op.cuda, Elementwise)
        and not is_dear(op.cuda.expression) and _ARCS.search(op.cuda.expression) is None
    )  # fmt: skip
