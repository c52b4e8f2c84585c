"""What code takes of objects: attributes, entries and calls, as places that hold values and as names that classes and objects give."""

from __future__ import annotations

import functools
import gc
import importlib
import operator
import os
import sys
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)  # fmt: skip
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.function import Function
from gradlab.graph.guards.attribute_lookup import DESCRIBING, IMMUTABLE, Lookups, is_told
from gradlab.graph.guards.contents import attributes, defines
from gradlab.graph.guards.freeze import PLAIN, is_plain
from gradlab.graph.guards.settings import belongs, is_question, question
from gradlab.graph.guards.sources import CALLED, GONE, Item, step
from gradlab.graph.guards.unrepeatable import OF_PATHS, reads_outside
from gradlab.graph.guards.user_code import is_library_file
from gradlab.nn.module import Module
from gradlab.optim.optimizer import Optimizer
from gradlab.overrides.overridable import plain_of

if TYPE_CHECKING:
    from gradlab.graph.guards.reads import Reads

CACHED = type(functools.lru_cache(len))
_TAKING = {getattr(dict, name) for name in ("get", "__getitem__", "__contains__", "setdefault", "pop")}
_BUILT_IN = (BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType, ClassMethodDescriptorType)
_BY_NAME = (getattr, hasattr, setattr, delattr)
_NAMED = ("__getattribute__", "__getattr__", "__setattr__", "__delattr__")
_WHOLE = ("__reduce_ex__", "__reduce__", "__getstate__", "__dir__")
_GETTERS = (operator.attrgetter, operator.methodcaller, operator.itemgetter)
_CONTAINERS = (list, tuple, set, frozenset, dict)


class Taken:
    """Tells `reads` of places, and `lookups` of what was found where."""

    def __init__(self, reads: Reads, lookups: Lookups) -> None:
        self.reads, self.lookups = reads, lookups
        self._done: set[Any] = set()
        self._kept: list[Any] = []

    def lacks(self, owner: Any, name: str) -> None:
        """An object has no such thing of its own, if it has not."""
        table = attributes(owner)
        if type(table) is dict and name not in table and not (name.startswith("__") and name.endswith("__")):
            self.lookups.lacks(owner, table, name)

    def defaults(self, function: FunctionType) -> None:
        """A function runs: its defaults may be anything."""
        title = function.__qualname__
        if function.__defaults__ is not None:
            self.reads.note(function, ("__defaults__",), f"{title}'s defaults")
        for name in function.__kwdefaults__ or ():
            self.reads.note(function, ("__kwdefaults__", Item(name)), f"{title}'s default {name}")

    def attribute(self, owner: Any, name: str, code: CodeType | None = None, at: int = 0) -> None:
        """An object's attribute that is looked up, by the instruction at a place in some code or by a function."""
        kind = type(owner)
        if kind is super:
            self.inherited(owner.__thisclass__, owner.__self__, name)
            return
        tensor = issubclass(kind, Differentiable)
        if tensor and name in DESCRIBING:
            self.lookups.described(owner, name)
        key = kind if tensor else id(owner), name, code, at
        if key in self._done or kind in _CONTAINERS or (is_plain(owner) and (kind in PLAIN or kind.__flags__ & IMMUTABLE)):
            return
        if tensor and name in (attributes(owner) or ()):
            self.reads.follow(owner, name, f"a tensor's {name}", code, at)
            return
        self._done.add(key)
        if tensor:
            self.lookups.of_class(kind, name)
            return
        self._kept.append(owner)
        if isinstance(owner, ModuleType):
            table = owner.__dict__
            if name in table:
                self.reads.follow(table, Item(name), f"{owner.__name__}.{name}", code, at)
            else:
                self.lookups.lacks(table, table, name)
        elif isinstance(owner, type):
            self._of_class(owner, name, code, at)
        else:
            self._of_object(owner, name, code, at)

    def _of_class(self, owner: type, name: str, code: CodeType | None, at: int) -> None:
        kind, found = type(owner), self.lookups.of_class(owner, name)
        for path in question(owner, name):
            self.reads.note(owner, path, f"{owner.__qualname__}'s {path[0]}")
        if kind is not type:
            self.lookups.of_class(kind, name)
        elif name in ("__name__", "__qualname__", "__module__", "__doc__"):
            self.reads.note(owner, (name,), f"{owner.__qualname__}'s {name}")
        if issubclass(owner, Function) and name == "apply":
            self.lookups.functions_of(owner)
        if found is not GONE and not defines(type(found), "__get__"):
            self.reads.follow(owner, name, f"{owner.__qualname__}.{name}", code, at)

    def _of_object(self, owner: Any, name: str, code: CodeType | None, at: int) -> None:
        kind, label = type(owner), f"{type(owner).__name__}.{name}"
        if isinstance(owner, ContextVar):
            if name == "get":
                self.reads.note(owner, ("get", CALLED), f"the variable {owner.name}")
            return
        if owner is os.environ:
            self.reads.note(os, ("environ",), "os.environ", True)
            return
        if isinstance(owner, PurePath) and name in OF_PATHS:
            self.reads.why = self.reads.why or reads_outside(getattr(owner, name), ())
        found = self.lookups.of_class(kind, name)
        self.lookups.class_of(owner)
        for path in question(owner, name):
            self.reads.note(owner, path, f"{kind.__name__}.{path[0]}")
        if name == "__class__":
            return
        if found is not GONE and defines(type(found), "__set__"):
            if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)):
                if step(owner, name) is GONE:
                    self.reads.note(owner, (name,), label)
                self.reads.follow(owner, name, label, code, at)
            elif isinstance(found, property):
                self.call(found.fget, [owner])
            return
        table = attributes(owner)
        own = type(table) is dict and name in table
        if isinstance(owner, (Module, Optimizer)):
            self.reads.meet(owner, name)
        if not own:
            self.lacks(owner, name)
        if (own and isinstance(owner, Module)) or (name in ("param_groups", "state") and isinstance(owner, Optimizer)):
            return  # guarded with the module, or the optimizer
        if own or (found is not GONE and not is_told(found)):
            self.reads.follow(owner, name, label, code, at)

    def inherited(self, after: Any, owner: Any, name: str) -> None:
        """What `super()` finds, behind a class in the order of an object's classes."""
        own = owner if isinstance(owner, type) else type(owner)
        kinds = own.__mro__
        if not own.__flags__ & IMMUTABLE:
            self.reads.note(own, ("__mro__",), f"{own.__qualname__}'s bases")
        for kind in kinds[kinds.index(after) + 1 :] if after in kinds else ():
            self.lookups.of_class(kind, name)
            if name in kind.__dict__:
                if not defines(type(kind.__dict__[name]), "__get__"):
                    self.reads.note(kind, (name,), f"{kind.__qualname__}.{name}")
                break

    def entry(self, owner: Any, key: Any) -> None:
        """An entry of a dict that is looked up. Where all of the dict is noted, that tells it.

        A dict of plain values that is not known otherwise may have been made in the trace, which does not show.
        """
        if owner is os.environ:
            self.reads.note(os, ("environ",), "os.environ", True)
        elif isinstance(key, ContextVar):
            self.reads.note(key, ("get", CALLED), f"the variable {key.name}")
        elif type(owner) is dict and type(key) in (str, int) and gc.is_tracked(owner) and not self.reads.holds(owner):
            if key in owner:
                self.reads.follow(owner, Item(key), repr(key), None, 0)
            else:
                self.lookups.lacks(owner, owner, key)

    def module(self, name: Any) -> None:
        """A module that is imported by its whole name."""
        if isinstance(name, str) and name in sys.modules:
            self.reads.note(sys.modules, (Item(name),), f"the module {name}", False)
        elif isinstance(name, str):
            self.lookups.lacks(sys.modules, sys.modules, name)

    def belongs(self, owner: Any, classes: Any) -> None:
        """An object is asked whether it is of a class, or of one of some."""
        kind = type(owner)
        if not issubclass(kind, Differentiable):
            self.lookups.class_of(owner)
            self._belongs(kind, classes)

    def _belongs(self, kind: type, classes: Any) -> None:
        for each in classes if isinstance(classes, tuple) else (classes,):
            if type(each) is not type and isinstance(each, type):
                for name in ("__instancecheck__", "__subclasscheck__", "__subclasshook__"):
                    self.lookups.of_class(each if name == "__subclasshook__" else type(each), name)
        for function, *given in belongs(kind, classes):
            if not all(each.__flags__ & IMMUTABLE for each in given):
                self.lookups.asked(function, *given)

    # ------------------------------------------------------------ calls

    def call(self, function: Any, given: Sequence[Any]) -> None:
        """Something that is called with positional arguments."""
        function = plain_of(function)
        if isinstance(function, (FunctionType, BuiltinFunctionType)):
            self.reads.why = self.reads.why or reads_outside(function, given)
            if is_question(function, given):
                self.lookups.asked(function)
            elif function in (__import__, importlib.import_module) and given:
                self.module(given[0])
            if isinstance(function, FunctionType) and is_library_file(function.__code__.co_filename):
                for each in given:  # it may look into functions, as for their signature
                    if isinstance(each, FunctionType) and self.lookups.ran(each):
                        self.defaults(each)
        if isinstance(function, functools.partial):
            for name in ("func", "args", "keywords"):
                self.reads.note(function, (name,), f"a partial's {name}")
            self.call(function.func, [*function.args, *given])
        elif isinstance(function, MethodType):
            self.call(function.__func__, [function.__self__, *given])
        elif isinstance(function, FunctionType):
            if function is os.getenv:
                self.reads.note(os, ("environ",), "os.environ", True)
        elif isinstance(function, CACHED):
            self._unwrapped(function, given)
        elif isinstance(function, weakref.ReferenceType):
            self.reads.note(function, (CALLED,), "what a weak reference leads to", False)
        elif isinstance(function, _GETTERS):
            for each in given[:1]:
                self._got(function, each)
        elif function is operator.call:
            self.call(given[0], given[1:])
        elif isinstance(function, (type, *_BUILT_IN)):
            self._builtin(function, given)
        elif not isinstance(function, Module):
            self.lookups.of_class(type(function), "__call__")
            self.lookups.class_of(function)

    def _builtin(self, function: Any, given: Sequence[Any]) -> None:
        owner = getattr(function, "__self__", None)
        if not isinstance(function, type) and owner is not None and not isinstance(owner, ModuleType):
            self.attribute(owner, function.__name__)
            if type(owner) is dict and getattr(dict, function.__name__, None) in _TAKING and given:
                self.entry(owner, given[0])
        if isinstance(function, MethodDescriptorType) and function in _TAKING and len(given) > 1:
            self.entry(given[0], given[1])
        named = function in _BY_NAME or getattr(function, "__name__", "") in _NAMED
        if named and len(given) > 1 and isinstance(given[1], str):
            self.attribute(given[0], given[1])
        elif function in (vars, dir) and given:
            self.attribute(given[0], "__dict__")
            if function is dir and not is_plain(given[0]):
                self.lookups.asked(dir, given[0])
        elif function is type and len(given) == 1 and not isinstance(given[0], Differentiable):
            self.lookups.class_of(given[0])
        elif function is isinstance and len(given) > 1:
            self.belongs(*given[:2])
        elif function is issubclass and len(given) > 1 and isinstance(given[0], type):
            self._belongs(*given[:2])
        elif isinstance(function, type) and not function.__flags__ & IMMUTABLE:
            for name in ("__new__", "__init__"):
                self.lookups.of_class(function, name)
            self.lookups.of_class(type(function), "__call__")
        elif getattr(function, "__name__", "") in _WHOLE:
            owner = getattr(function, "__self__", None)
            whole = given[0] if given and isinstance(owner, (type, ModuleType, type(None))) else owner
            slots = [name for each in type(whole).__mro__ for name, at in each.__dict__.items() if isinstance(at, MemberDescriptorType)]
            for name in ("__dict__", *slots):
                self.attribute(whole, name)
        for value in given:
            if isinstance(value, _GETTERS):
                for other in given:
                    for each in other if isinstance(other, _CONTAINERS) else (other,):
                        self._got(value, each)
            elif isinstance(value, (functools.partial, CACHED)):
                self.call(value, ())

    def _got(self, getter: Any, value: Any) -> None:
        if isinstance(getter, operator.attrgetter):
            for path in getter.__reduce__()[1]:
                owner = value
                for name in path.split("."):
                    self.attribute(owner, name)
                    owner = getattr(owner, name, None)
        elif isinstance(getter, operator.methodcaller) and isinstance(getter.__reduce__()[1][0], str):
            self.attribute(value, getter.__reduce__()[1][0])

    def _unwrapped(self, function: Any, given: Sequence[Any]) -> None:
        """A function whose results are kept, so that it may not run at all: what it would read, as far as its code and its names say."""
        inner = function.__wrapped__
        while isinstance(inner, CACHED):
            inner = inner.__wrapped__
        waiting = [inner]
        while waiting:
            inner = waiting.pop()
            if isinstance(inner, FunctionType) and self.lookups.ran(inner):
                self.defaults(inner)
                waiting += self.reads.read_function(inner, given)
                given = ()
