"""Stand-ins for names of PyTorch's that gradlab has not: they can be imported and asked about, and say why not when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_RAISED = ("Error", "Exception", "Warning")


class StandIn(type):
    """The class of a class that nothing is an instance of. It can be asked about, annotated with and derived from."""

    reason: str

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"gradlab has no {cls.__module__}.{cls.__qualname__}.{name}: {cls.reason}")

    def __getitem__(cls, parameters: Any) -> StandIn:
        """As an annotation: `BroadcastingList2[int]`."""
        return cls

    def __repr__(cls) -> str:
        return f"<stand-in for {cls.__module__}.{cls.__qualname__}>"


def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    """The `__init__` of a stand-in, and of what is derived from one."""
    kind: Any = next(cls for cls in type(self).__mro__ if "reason" in vars(cls))
    raise NotImplementedError(f"gradlab has no {kind.__module__}.{kind.__qualname__}: {kind.reason}")


def stand_in(module: str, name: str, reason: str) -> Any:
    """A class where the name is written as classes are (one that can be caught, if it is an error's), else a function. `is_…()` and
    `has_…()` answer False, `device_count()` 0."""
    if name.endswith(_RAISED) or (module.endswith(".exc") and name[:1].isupper()):
        return type(name, (Warning if name.endswith("Warning") else Exception,), {"__module__": module})
    if name.lstrip("_")[:1].isupper():
        return StandIn(name, (), {"__module__": module, "__init__": refuse, "reason": reason})

    def function(*_: Any, **__: Any) -> Any:
        if name.startswith(("is_", "has_")):
            return False
        if name == "device_count":
            return 0
        raise NotImplementedError(f"gradlab has no {module}.{name}: {reason}")

    return named(function, module, name)


def named(function: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    """A function under the name of PyTorch's that it stands for."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function
