"""Classes that answer for the functions they are given to: PyTorch's `__torch_function__`, for subclasses of Tensor and for what is none.

    class Logged(gl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            print(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

`protocol.py` says who is asked and in which order, `overridable.py` are the functions and methods that ask. They take the places of the
plain ones when the first instance of a subclass is made, or the first class that is no tensor's is noted: until then nothing asks, and
nothing costs anything. What a program has taken by `from torch import name` before that stays plain. A plain tensor's method asks nobody
when only its argument is of a subclass (`x.mul(sub)`; `x * sub` and `gl.mul(x, sub)` do).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

from gradlab.overrides.modes import TorchFunctionMode as TorchFunctionMode
from gradlab.overrides.overridable import activate, methods, places
from gradlab.overrides.protocol import NOT_WRAPPED, ask, asked, without
from gradlab.tensor import Tensor
from gradlab.tensor.subclasses import disabled

__all__ = [
    "TorchFunctionMode", "get_default_nowrap_functions", "get_overridable_functions", "handle_torch_function", "has_torch_function",
    "is_tensor_like", "is_tensor_method_or_property", "note", "resolve_name", "wrap_torch_function",
]  # fmt: skip

DisableTorchFunctionSubclass, DisableTorchFunction = without, partial(without, only_classes=False)
_disabled_torch_function_impl = disabled


def has_torch_function(args: Iterable[Any]) -> bool:
    """Whether some argument is of a class with a `__torch_function__` of its own.

    >>> gl.overrides.has_torch_function([gl.ones(2), 3])
    False
    """
    return bool(asked(tuple(args)))


def has_torch_function_unary(arg: Any) -> bool:
    """`has_torch_function` of one argument."""
    return bool(asked((arg,)))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of arguments one by one."""
    return bool(asked(args))


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """What the classes of the relevant arguments answer for a call of `public_api(*args, **kwargs)`. TypeError if none answers."""
    return ask(public_api, args, kwargs, asked(tuple(relevant_args)))


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for functions of one's own: `dispatcher`, called with the same arguments, gives those whose classes are asked first."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = asked(tuple(dispatcher(*args, **kwargs)))
            return ask(call, args, kwargs, found) if found else function(*args, **kwargs)

        return call

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or its class answers for functions as one.

    >>> gl.overrides.is_tensor_like(gl.ones(2)), gl.overrides.is_tensor_like([1.0])
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """What the default `__torch_function__` gives back as it is: a gradient, the base of a view."""
    return set(NOT_WRAPPED)


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that ask, by the module or class that has them."""
    found: dict[Any, list[Callable[..., Any]]] = {module: list(table.values()) for module, table in places().items()}
    found[Tensor] = [getattr(Tensor, name) for name in methods() if callable(getattr(Tensor, name))]
    return found


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function that a `__torch_function__` is given is one of Tensor's: a method, or a property's `__get__`."""
    return func in {*(getattr(Tensor, name) for name in methods())} or getattr(func, "__name__", "") in ("__get__", "__set__")


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The full name of an overridable function, as PyTorch writes it; None for another one.

    >>> gl.overrides.resolve_name(gl.Tensor.add), gl.overrides.resolve_name(gl.nn.functional.relu)
    ('torch.Tensor.add', 'torch.nn.functional.relu')
    """
    for name, method in methods().items():
        if isinstance(method, property) and f in (method.__get__, method.__set__):
            return f"torch.Tensor.{name}.{f.__name__}"
        if getattr(Tensor, name) is f:
            return f"torch.Tensor.{name}"
    found = [(module, name) for module, table in places().items() for name, function in table.items() if function == f]
    module, name = next((place for place in found if place[1] == f.__name__), found[0] if found else (None, ""))
    return None if module is None else f"torch{module.__name__.removeprefix('gradlab')}.{name}"


def note(kind: type) -> type:
    """Let public functions ask instances of a class that is no tensor's and has a `__torch_function__`; a decorator of the class.

    Methods and operators of tensors ask them without it. After `import gradlab.as_torch` every such class is noted when it is defined.

        @gl.overrides.note
        class Diagonal:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return HANDLED[func](*args, **(kwargs or {})) if func in HANDLED else NotImplemented
    """
    if not issubclass(kind, (Tensor, TorchFunctionMode)):
        activate()
    return kind
