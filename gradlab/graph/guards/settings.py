"""Questions to the system, the standard library and this library whose answers are settings: asked again before each run of a program."""

from __future__ import annotations

import decimal
import logging
from _thread import LockType
from abc import ABCMeta
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, ModuleType
from typing import Any

from gradlab.graph.guards.sources import CALLED
from gradlab.tensor.generator import Generator

_DECIMAL = "decimal", "_pydecimal"
_FUNCTIONS = {  # by module and name; they cost little and change nothing
    ("sys", "getrecursionlimit"), ("sys", "getswitchinterval"), ("posix", "getcwd"), ("nt", "getcwd"), ("gc", "get_threshold"),
    ("numpy", "geterr"), ("numpy", "get_printoptions"), ("_locale", "localeconv"), ("locale", "getlocale"),
}  # fmt: skip
_OURS = frozenset((
    "are_deterministic_algorithms_enabled", "get_default_device", "get_float32_matmul_precision", "get_num_threads", "initial_seed",
    "is_autocast_cache_enabled", "is_deterministic_algorithms_warn_only_enabled",
))  # fmt: skip - of this library's, those that no other condition tells
_LEVEL = ("getEffectiveLevel", CALLED)
_METHODS: tuple[tuple[type, str, tuple[tuple[Any, ...], ...]], ...] = (  # of a class, a name, and the places that tell the answer
    (logging.Logger, "getEffectiveLevel", (_LEVEL,)),
    (logging.Logger, "isEnabledFor", (_LEVEL, ("manager", "disable"), ("disabled",))),
    (LockType, "locked", (("locked", CALLED),)),
    (Generator, "initial_seed", (("initial_seed", CALLED),)),
    (type, "__subclasses__", (("__subclasses__", CALLED),)),
)

_CHECKS = (type.__subclasscheck__, ABCMeta.__subclasscheck__)


def is_decimal(value: Any) -> bool:
    """Whether a value is a decimal number, or one of the things that make and change them: results depend on the thread's context."""
    kind = value if isinstance(value, (type, BuiltinFunctionType)) else type(value)
    return kind.__module__ in _DECIMAL or (isinstance(value, ModuleType) and value.__name__ in _DECIMAL)


def decimal_context() -> Any:
    """How decimal numbers are rounded now."""
    now = decimal.getcontext()
    return now.prec, now.rounding, now.Emin, now.Emax, now.clamp, tuple(map(bool, now.traps.values()))


def is_question(function: Any, given: Sequence[Any]) -> bool:
    """Whether a call gives a setting."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    if given or not isinstance(name, str):
        return False
    return (module.split(".")[0], name) in _FUNCTIONS or (name in _OURS and module.startswith("gradlab."))


def question(owner: Any, name: str) -> tuple[tuple[Any, ...], ...]:
    """The paths from an object to what tells the answer of its method of that name; none if that is no question."""
    return next((paths for kind, method, paths in _METHODS if name == method and isinstance(owner, kind)), ())


def belongs(kind: type, classes: Any) -> list[tuple[Callable[..., bool], type, type]]:
    """What `isinstance` of an object of that class asks, where one may be registered, or have other bases: the function, both classes."""
    found = []
    for each in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(each, tuple):
            found += belongs(kind, each)
        elif isinstance(each, type) and type(each).__subclasscheck__ in _CHECKS:
            found.append((issubclass, kind, each))
    return found
