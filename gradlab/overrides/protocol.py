"""Who answers for a call: the arguments' classes that have a `__torch_function__`, in PyTorch's order, and the modes that are on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gradlab.tensor import Tensor
from gradlab.tensor.subclasses import disabled, of_class

Answer = Callable[..., Any]
off: ContextVar[bool] = ContextVar("gradlab_overrides_off", default=False)
modes: ContextVar[tuple[Any, ...]] = ContextVar("gradlab_overriding_modes", default=())
NOT_WRAPPED = (vars(Tensor)["grad"].__get__, vars(Tensor)["_base"].__get__)
_known: dict[type, bool] = {Tensor: False}


def answers(kind: type) -> bool:
    """Whether instances of a class are asked: it has a `__torch_function__`, is not Tensor itself, and has not switched it off.

    PyTorch's own tensors are data here: what they would answer is a call of our function, without end.
    """
    found = _known.get(kind)
    if found is None:
        method = getattr(kind, "__torch_function__", None)
        of_pytorch = any(base is not Tensor and (base.__module__, base.__name__) == ("torch", "Tensor") for base in kind.__mro__)
        found = _known[kind] = method is not None and method is not disabled and not of_pytorch
    return found


def asked(args: Any) -> list[Any]:
    """The arguments, and what is in lists and tuples of them, whose classes answer: one of each class, a subclass's before its base's."""
    if off.get():
        return []
    found: list[Any] = []
    for argument in args:
        for x in argument if type(argument) in (list, tuple) else (argument,):
            kind = type(x)
            if answers(kind) and not any(type(other) is kind for other in found):
                place = next((i for i, other in enumerate(found) if issubclass(kind, type(other))), len(found))
                found.insert(place, x)
    return found


def ask(func: Answer, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[Any]) -> Any:
    """What the innermost mode, or the first class that does, answers for a call. TypeError if none does."""
    types = tuple(type(x) for x in found)
    stack = modes.get()
    if stack:
        token = modes.set(stack[:-1])
        try:
            result = stack[-1].__torch_function__(func, types, args, kwargs)
        finally:
            modes.reset(token)
        if result is not NotImplemented:
            return result
    for x in found:
        result = x.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name, kinds = getattr(func, "__name__", func), ", ".join(kind.__name__ for kind in types)
    raise TypeError(f"{name}: no class among its arguments' answers for it, of those that have a __torch_function__: {kinds}")


@contextmanager
def without(only_classes: bool = True) -> Iterator[None]:
    """No class is asked, and, unless only_classes, no mode either."""
    token, stack = off.set(True), modes.get()
    try:
        if not only_classes:
            modes.set(())
        yield
    finally:
        off.reset(token)
        modes.set(stack)


def default(cls: type, func: Answer, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Tensor's own answer: what the plain function gives, its tensors as ones of the subclass."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with without():
        result = getattr(func, "plain", func)(*args, **kwargs)
    given = {id(x) for argument in (*args, *kwargs.values()) for x in (argument if type(argument) in (list, tuple) else (argument,))}
    return result if func in NOT_WRAPPED else _converted(result, cls, given)


def _converted(result: Any, cls: type, given: set[int]) -> Any:
    if isinstance(result, Tensor):
        if isinstance(result, cls):
            return result
        return result.as_subclass(cls) if id(result) in given else of_class(result, cls)
    if isinstance(result, (tuple, list)) and not hasattr(result, "numel"):
        parts = [_converted(x, cls, given) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
