"""Public functions that come to one row: a call like an earlier one goes to its kernel at once.

What such a function does with its arguments (words, numbers or tuples of them, defaults, checks of shapes) takes longer than a small row
does. It is done twice: the second call of a kind (the same numbers, shapes and dtypes) notes which row it came to, on which of the
tensors. From then on the kernel alone is called, as long as nobody records, traces or watches and the arrays lie row by row.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np
from numpy import empty, ndarray

from gradlab.autograd.base import Differentiable
from gradlab.autograd.general import refresh
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.recall import KEPT_SHAPES, scalar
from gradlab.dispatch import kernels, remembered
from gradlab.dtype import INEXACT
from gradlab.named_errors import can_be_named, named
from gradlab.op import Op

F = TypeVar("F", bound=Callable[..., Any])
Tensor: Any = Differentiable  # the concrete class, handed over by `record.adopt`
new = object.__new__
KEPT_TYPES = 64
PLAIN = frozenset({int, float, bool, str, type(None)})
FEW = 1 << 10  # elements of results that nobody sees, for which the same memory serves each call: Python's lock is held meanwhile
SMALL = 1 << 18  # elements of a tensor, from which on it does not matter how a call gets there


class _Rows:
    """An observer (see `Mode`) that notes the rows, views apart, of a call."""

    node: Any = None

    def __init__(self) -> None:
        self.found: list[tuple[Op, list[Any], Any, dict[str, Any]]] = []

    def __call__(self, op: Op, inputs: list[Any], result: Any, params: dict[str, Any]) -> None:
        if not op.view:
            self.found.append((op, inputs, result, params))


class _Kinds(dict[Any, Any]):
    """Of arguments of certain types: a `_Kernel` by the rest of what a call depends on. tensors: 1 or 2 where so many are followed by
    numbers, words and None; 0 for all others."""

    __slots__ = ("tensors",)
    tensors: int

    def keep(self, key: Any, found: Any) -> None:
        if len(self) >= KEPT_SHAPES:
            self.clear()
        self[key] = found


class _ByTypes(dict[tuple[type, ...], _Kinds]):
    """The kinds of calls of one function, by the types of their arguments; those with names together."""

    def __missing__(self, types: tuple[type, ...]) -> _Kinds:
        if len(self) >= KEPT_TYPES:
            self.clear()
        number = next((i for i, kind in enumerate(types) if not issubclass(kind, Differentiable)), len(types))
        found = self[types] = _Kinds()
        found.tensors = number if number in (1, 2) and all(kind in PLAIN for kind in types[number:]) else 0
        return found


# What a kind of call comes to: the kernel, a function of the inputs and the results; its row, and of how many elements that is asked; which
# of the call's arrays are the inputs, or what else an input is (None where they are just these); the shape and dtype of the result; the
# other results, which nobody sees: None, arrays, or a list of shapes and dtypes where they are too large to be kept.
_Kernel = tuple[Any, Any, int, Any, Any, Any, Any]
# A kind of call that was seen once; one that comes to something else.
MET: _Kernel = (None, None, 1, None, (), None, None)
NEVER: _Kernel = (None, None, 2, None, (), None, None)


@overload
def one_row(function: F) -> F: ...
@overload
def one_row(*, given: str = "", left_out: str = "") -> Callable[[F], F]: ...
def one_row(function: Any = None, *, given: str = "", left_out: str = "") -> Any:
    """A public function of tensors and plain arguments, whose result depends on nothing else and which comes to one row (views apart) in
    its common forms. What it does otherwise stays as it is. given, left_out: parameters without which, or with which, each call warns.
    """
    if function is None:
        return functools.partial(one_row, given=given, left_out=left_out)
    slow: Any = named(function) if can_be_named(function) else function
    known = _ByTypes()
    remembered.append(known)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        mode = current()
        x: Any = args[0] if args else None
        if mode.special or type(getattr(x, "_array", None)) is not ndarray or (x._edge is not None and mode.recording):
            return slow(*args, **kwargs)
        if kwargs:
            return otherwise(known[()], args, kwargs, mode)
        kinds = known[(*map(type, args),)]
        if kinds.tensors != 1:
            return otherwise(kinds, args, kwargs, mode)
        if x._meta is not None:
            refresh(x)
        array = x._array
        found = kinds.get((array.shape, array.dtype, args[1:]))  # not in a `try`: errors of the function would be a consequence
        if found is None:
            kinds.keep((array.shape, array.dtype, args[1:]), MET)
            return slow(*args)
        run, row, size, _, shape, dtype, spare = found
        if row is None:
            return slow(*args) if found is NEVER else learn(kinds, (array.shape, array.dtype, args[1:]), mode, args, kwargs)
        if size < row.pays:
            return slow(*args)
        out = empty(shape, dtype)
        if spare is None:
            done = run(array, out)
        else:
            done = run(array, out, *(spare if type(spare) is tuple else map(empty, *spare)))
        if done != -1:  # it lies otherwise
            return slow(*args)
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        return t

    def otherwise(kinds: _Kinds, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
        """A call of several tensors, with tuples or with names."""
        arrays: Any
        if kinds.tensors == 2:
            x, y = args[:2]
            if x._meta is not None or y._meta is not None:
                refresh(x)
                refresh(y)
            array, other = arrays = x._array, y._array
            if type(array) is not ndarray or type(other) is not ndarray:
                return slow(*args)
            if mode.recording and not x._edge is None is y._edge:
                return slow(*args)
            key: Any = array.shape, array.dtype, other.shape, other.dtype, array is other, args[2:]
        else:
            key, arrays = any_form(args, kwargs, mode)
        try:
            found = kinds.get(key)
        except TypeError:  # what cannot be part of a key
            found = NEVER
        if found is None:
            if key is not None:
                kinds.keep(key, MET)
            return slow(*args, **kwargs)
        run, row, size, order, shape, dtype, spare = found
        if row is None:
            return slow(*args, **kwargs) if found is NEVER else learn(kinds, key, mode, args, kwargs)
        if size < row.pays:
            return slow(*args, **kwargs)
        if order is not None:
            arrays = [arrays[i] if type(i) is int else i for i in order]
        out = empty(shape, dtype)
        if spare is None:
            done = run(*arrays, out)
        else:
            done = run(*arrays, out, *(spare if type(spare) is tuple else map(empty, *spare)))
        if done != -1:  # they lie otherwise, or an index lies outside, of which the function speaks
            return slow(*args, **kwargs)
        t = new(Tensor)
        t._array = out
        t._edge = t._meta = None
        return t

    def any_form(args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> Any:
        """What a call depends on, or None, and its arrays."""
        key: list[Any] = [*kwargs]
        arrays: list[Any] = []
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = type(x)
            if kind in PLAIN:
                key += kind, x
                continue
            if isinstance(x, tuple):
                key += kind, x, *map(type, x)
                continue
            array = getattr(x, "_array", None)
            if type(array) is not ndarray or (x._edge is not None and mode.recording):
                return None, None
            if x._meta is not None:
                refresh(x)
                array = x._array
            if arrays:
                key += array is arrays[0], array is arrays[-1]
            arrays.append(array)
            key += array.shape, array.dtype
        return tuple(key), arrays

    def learn(kinds: _Kinds, key: Any, mode: Mode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kinds.keep(key, NEVER)  # unless it is found out otherwise
        values = *args, *kwargs.values()
        own = [x._array for x in values if isinstance(x, Differentiable)]
        if any(type(x) is float and x == 0 for x in values):  # 0.0 equals -0.0
            return slow(*args, **kwargs)
        if not own or _one_memory(own) or not all(1 <= a.size <= SMALL and a.flags.c_contiguous for a in own) or warns(args, kwargs):
            return slow(*args, **kwargs)
        rows = _Rows()
        token = enter(mode.replace(observer=rows))
        try:
            result = slow(*args, **kwargs)
        finally:
            leave(token)
        if any(result is x for x in values):  # written by the call, as `out` is
            return result
        if len(rows.found) == 1 and (kernel := _found(*rows.found[0], own, result)) is not None:
            kinds.keep(key, kernel)
        return result

    def warns(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        found = inspect.signature(function).bind(*args, **kwargs).arguments
        return any(found.get(name) is None for name in given.split()) or any(found.get(name) is not None for name in left_out.split())

    call.names_itself = True  # type: ignore[attr-defined]
    call.known = known  # type: ignore[attr-defined]
    return call


def _one_memory(arrays: list[Any]) -> bool:
    """Whether it cannot be seen by where a row's inputs lie, or by the key of a call, which arrays they are."""
    for i, a in enumerate(arrays):
        for j, b in enumerate(arrays[:i]):
            if a is b:
                if j not in (0, i - 1):
                    return True
            elif a.shape == b.shape and a.ctypes.data == b.ctypes.data:
                return True
    return False


def _found(op: Op, inputs: list[Any], result: Any, params: dict[str, Any], own: list[Any], returned: Any) -> _Kernel | None:
    """The kernel of a row that a call with the arrays `own` came to, and which returned that."""
    if op.dynamic or op.foreign or op.varying or op.variadic or getattr(returned, "_edge", 0) is not None:
        return None
    order: list[Any] = []
    arrays: list[Any] = []
    for x in inputs:
        if isinstance(x, Differentiable):
            places = [i for i, array in enumerate(own) if _same_elements(array, x._array)]
            places = [i for i in places if own[i].shape == x._array.shape] or places
            if not places or any(own[i] is not own[places[0]] for i in places):
                return None
            order.append(places[0])
            arrays.append(x._array)
        elif x is None:
            arrays.append(None)
        elif type(x) in (int, float) and arrays and arrays[0].dtype in INEXACT:
            arrays.append(scalar(x, arrays[0].dtype))
            order.append(arrays[-1])
        else:
            return None
    results = (result,) if op.result is None else tuple(result)
    size = max((a.size for a in arrays if a is not None), default=0)
    if not _same_elements(results[0], returned._array) or not order or not size:
        return None
    if (run := kernels().of_rows(op, arrays, params)) is None:
        return None
    same = all(type(i) is int for i in order) and order == [*range(len(own))]
    if not same and len(own) == 1:
        return None
    rest = results[1:]
    few = sum(array.size for array in rest) <= FEW
    spare: Any = None if not rest else tuple(map(np.empty_like, rest)) if few else ([a.shape for a in rest], [a.dtype for a in rest])
    return run, op, size, None if same else order, returned._array.shape, returned._array.dtype, spare


def _same_elements(a: Any, b: Any) -> bool:
    """Whether two arrays are the same elements, row by row, perhaps in other shapes."""
    if type(a) is not ndarray or type(b) is not ndarray or a.dtype != b.dtype or a.size != b.size:
        return False
    return bool(a.flags.c_contiguous and b.flags.c_contiguous and a.ctypes.data == b.ctypes.data)
