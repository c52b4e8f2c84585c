"""Functions made of several rows that round once: on half types such a function is one unit, computed in float32.

Each row by itself computes half types in float32 and rounds its result; a formula of several rows would round after each of them, and
what overflows in between (a square, a sum, a count) would be lost. So the half inputs of a unit are widened in front of its first row, and
its result is cast behind the last. These are ordinary casts: a gradient goes back through float32 in the same way and is rounded at the
inputs, and in a trace they are part of the graph, where they cost nothing beside the loops that they join.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.dtype import FLOAT32, HALF, INEXACT, result_type
from gradlab.named_errors import checked, explain, looked_at
from gradlab.tensor.common_arguments import into

F = TypeVar("F", bound=Callable[..., Any])


@overload
def rounds_once(function: F) -> F: ...
@overload
def rounds_once(*, autocast: str | None = None, first: int = 0) -> Callable[[F], F]: ...
def rounds_once(function: Any = None, *, autocast: str | None = None, first: int = 0) -> Any:
    """A function of tensors as one unit; its result has the type that they promote to. Without half tensors it is called as it is.

    autocast: "float32" where the result stays float32 under autocast, as that of a row so marked. first: the result has the type that the
    first so many tensors promote to. Used with or without parentheses.
    """
    if function is None:
        return functools.partial(rounds_once, autocast=autocast, first=first)

    looked = looked_at(function)
    by_name = {what: types for what, (_, types, _) in looked.items()}
    places = [(place, types) for place, types, _ in looked.values() if place < 1 << 30]
    start = places[0][0] if places else 1 << 30

    @functools.wraps(function)
    def unit(*args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > start:
                for place, types in places:
                    if place >= len(args):
                        break
                    if type(args[place]) not in types:
                        args, kwargs = checked(function.__name__, looked, args, kwargs)
                        break
            for x in args:
                if isinstance(x, Differentiable) and x._array.dtype in HALF:
                    return once(function, *checked(function.__name__, looked, args, kwargs), autocast, first)
            if not kwargs:
                return function(*args)
            for name, x in kwargs.items():
                if name in by_name:
                    if type(x) not in by_name[name]:
                        args, kwargs = checked(function.__name__, looked, args, kwargs)
                elif isinstance(x, Differentiable) and x._array.dtype in HALF:
                    return once(function, *checked(function.__name__, looked, args, kwargs), autocast, first)
            return function(*args, **kwargs)
        except Exception as error:
            explain(error, function.__name__, function, args, kwargs)

    unit.names_itself = True  # type: ignore[attr-defined]
    return unit


def once(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any] | None = None, autocast: str | None = None, first: int = 0
) -> Any:
    """The function's result on widened tensors (also those in lists), float32 in it cast to the type asked for; see `rounds_once`.

    A widened argument that comes back is the argument itself.
    """
    given: dict[int, Any] = {}
    kinds: list[Any] = []
    casting, stays = current().autocast if autocast else None, False

    def widened(value: Any) -> Any:
        nonlocal stays
        if isinstance(value, (list, tuple)):
            return type(value)(map(widened, value)) if type(value) in (list, tuple) else value
        if not isinstance(value, Differentiable) or value._array.dtype not in INEXACT:
            return value
        kinds.append((value._array.dtype, len(value._array.shape)))
        if value._array.dtype not in HALF:
            return value
        wide: Any = value.to(FLOAT32)  # type: ignore[attr-defined]
        given[id(wide)] = wide, value
        stays = stays or (casting is not None and casting.targets[wide.device.type] is not None)
        return wide

    def narrowed(value: Any) -> Any:
        if isinstance(value, Differentiable):
            if id(value) in given:
                return given[id(value)][1]
            return value.to(dtype) if value._array.dtype == FLOAT32 and dtype in HALF else value  # type: ignore[attr-defined]
        if isinstance(value, (list, tuple)):
            parts = map(narrowed, value)
            return type(value)(parts) if type(value) in (list, tuple) else type(value)(*parts)
        return value

    named = dict(kwargs or {})
    out = named.pop("out", None)
    if first and named:  # the first by its place, in whatever order names are given
        named = {name: named[name] for name in inspect.signature(function).parameters if name in named} | named
    placed = [widened(value) for value in args]
    result = function(*placed, **{name: widened(value) for name, value in named.items()})
    if not stays:
        dtype = result_type(kinds[:first] if first else kinds)
        result = narrowed(result)
    return result if out is None else into(function.__name__, out, result)
