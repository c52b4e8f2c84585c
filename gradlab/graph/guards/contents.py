"""What objects and containers hold, read and written by the built-in types' own methods: what a subclass, a `__getattr__` or a metaclass
has in place of them is the user's code, and is not run for the engine's sake.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from types import WrapperDescriptorType
from typing import Any

MUTABLE = (list, dict, set, deque)
_BUILT_IN = frozenset({OrderedDict, *MUTABLE, tuple, frozenset, int, float, complex, str, bytes})


def attribute(value: Any, name: str) -> Any:
    """An object's attribute as the built-in type that it is made of finds it (of `threading.local` the thread's), or None."""
    found = (each.__dict__.get("__getattribute__") for each in type(value).__mro__)
    try:
        return next(get for get in found if type(get) is WrapperDescriptorType)(value, name)
    except (AttributeError, ReferenceError):  # ReferenceError: a weak proxy of what is gone
        return None


def attributes(value: Any) -> Any:
    """An object's `__dict__`, or None."""
    return attribute(value, "__dict__")


def defines(kind: type, name: str) -> bool:
    """Whether a class, or one that it is made of, has the attribute."""
    return any(name in each.__dict__ for each in kind.__mro__)


def is_dataclass(kind: type) -> bool:
    """Whether a class is a dataclass, or made of one."""
    return any(type(each.__dict__.get("__dataclass_fields__")) is dict for each in kind.__mro__)


def built_in(value: Any) -> Any:
    """The built-in type of which a container, number or text is, or whose subclass it is of."""
    kind = type(value)
    return kind if kind in _BUILT_IN else next((base for base in kind.__mro__ if base in _BUILT_IN), kind)


def length(container: Any) -> int:
    """The number of entries."""
    return int(built_in(container).__len__(container))


def members(container: Any) -> Iterator[Any]:
    """The entries in their order; of a dict its values."""
    kind = built_in(container)
    return iter(kind.values(container)) if issubclass(kind, dict) else kind.__iter__(container)


def items(table: Any) -> Iterable[tuple[Any, Any]]:
    """A dict's keys and values."""
    found: Iterable[tuple[Any, Any]] = built_in(table).items(table)
    return found


def copied(container: Any) -> Any:
    """The entries in a container of the built-in type."""
    kind = built_in(container)
    return kind(items(container) if issubclass(kind, dict) else members(container))


def alike(container: Any, before: Any) -> bool:
    """Whether a container holds the very objects that an earlier copy of it holds."""
    if length(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(k in before and before[k] is v for k, v in items(container))
    if isinstance(container, set):
        return bool(copied(container) == before)
    return all(a is b for a, b in zip(members(container), before, strict=True))


def refill(container: Any, before: Any) -> None:
    """Give a container the contents of an earlier copy of it."""
    kind = built_in(container)
    if kind not in (OrderedDict, *MUTABLE):
        return
    kind.clear(container)
    if issubclass(kind, dict):
        for key, value in before.items():
            kind.__setitem__(container, key, value)
    else:
        (kind.update if kind is set else kind.extend)(container, before)
