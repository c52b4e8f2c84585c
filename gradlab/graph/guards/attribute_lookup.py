"""Names that were looked up on objects while a trace ran: which class defines them, what hides them, and the functions that ran.

A condition on a class is one on the functions and descriptors that it gives for some names, or that it gives none; on an object, that it
is of that class and its `__dict__` lacks these names; on a function, that its code and its defaults are what they were. Plain values are
told where they lie (`reads.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.call_site import PACKAGE
from gradlab.graph.guards.contents import attributes, defines
from gradlab.graph.guards.freeze import freeze, is_fixed
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.machine_guards import Condition, Found, Lacks, Word, function_words, object_words, version
from gradlab.graph.guards.settings import decimal_context, is_decimal
from gradlab.graph.guards.sources import GONE, is_instance
from gradlab.graph.guards.user_code import is_library_file
from gradlab.graph.staging.symbol import Symbol

IMMUTABLE = 1 << 8  # flag of classes written in C that nobody can change
_SPECIAL = tuple(
    f"__{name}__"
    for name in (
        "getattribute", "getattr", "call", "bool", "len", "iter", "getitem", "contains", "eq", "hash", "add", "radd", "sub", "rsub", "mul",
        "rmul", "truediv", "rtruediv", "matmul", "rmatmul", "neg",
    )
)  # fmt: skip - looked up without being named


DESCRIBING = frozenset(("requires_grad", "is_leaf", "grad", "shape", "size", "ndim", "dim", "numel", "dtype", "device"))  # of a tensor


def lookup(kind: type, name: str) -> Any:
    """What a class gives for a name, as it stands in a class, or GONE."""
    for each in kind.__mro__:
        if name in each.__dict__:
            return each.__dict__[name]
    return GONE


def _gives(kind: type, found: Iterable[tuple[str, Any]]) -> bool:
    tables = [each.__dict__ for each in kind.__mro__]
    return all(next((table[name] for table in tables if name in table), GONE) is value for name, value in found)


def is_told(value: Any) -> bool:
    """Whether what a class gives is told by its identity: nothing, or what makes something else of itself when it is looked up."""
    return value is GONE or defines(type(value), "__get__") or callable(value)


def is_computed(owner: Any, name: str) -> bool:
    """Whether code that is followed, as of a property, makes an attribute at each access: what it reads tells it."""
    kind = type(owner)
    found = lookup(kind, name)
    if found is GONE:
        own = attributes(owner)  # perhaps anything, by a __getattribute__
        get = GONE if type(own) is not dict or name in own or isinstance(owner, ModuleType) else lookup(kind, "__getattr__")
    else:
        get = found.fget if isinstance(found, property) else getattr(type(found), "__get__", None)
    return isinstance(get, FunctionType) and ((file := get.__code__.co_filename).startswith(PACKAGE) or not is_library_file(file))


def giver(made: Any, name: Any, young: Callable[[Any], bool]) -> Any:
    """The class from before the trace that gives an attribute of what the trace made, where it lies there; None if there is none."""
    if type(name) is not str or isinstance(made, Differentiable) or (not isinstance(made, type) and name in (attributes(made) or ())):
        return None
    classes = made.__mro__ if isinstance(made, type) else type(made).__mro__
    found = next((each for each in classes if name in each.__dict__), None)
    return None if found is None or young(found) or is_told(found.__dict__[name]) else found


class Lookups:
    """What was found where. Objects are kept alive."""

    def __init__(self) -> None:
        self._classes: dict[int, tuple[type, dict[str, Any]]] = {}
        self._owners: dict[int, tuple[Any, type]] = {}
        self._lacking: dict[int, tuple[Any, dict[Any, Any], set[str]]] = {}
        self._tensors: dict[tuple[int, bool], tuple[Any, Any, Any]] = {}  # and whether it is their gradient that was looked at
        self._functions: dict[int, tuple[FunctionType, CodeType, Any, Any]] = {}
        self._asked: dict[tuple[int, ...], tuple[Callable[..., Any], tuple[Any, ...], Any]] = {}

    def of_class(self, kind: type, name: str) -> Any:
        """What a class gives for a name."""
        found = lookup(kind, name)
        if kind.__flags__ & IMMUTABLE:
            return found
        self._note(kind, self._known(kind), (name,))
        return found

    def met(self, owner: Any) -> None:
        """An object that is used somehow: what its class does by itself, as of its truth."""
        if is_decimal(owner):
            self.asked(decimal_context)
        if is_instance(owner) and not type(owner).__flags__ & IMMUTABLE:
            self.class_of(owner)
            self._known(type(owner))

    def functions_of(self, kind: type) -> None:
        """A user's class that the library takes functions from: all that it has."""
        for each in kind.__mro__:
            if not each.__module__.startswith("gradlab.") and not each.__flags__ & IMMUTABLE:
                self._note(kind, self._known(kind), list(each.__dict__))

    def _known(self, kind: type) -> dict[str, Any]:
        known = self._classes.get(id(kind))
        if known is None:
            known = self._classes[id(kind)] = kind, {}
            if not kind.__module__.startswith("gradlab."):
                self._note(kind, known[1], _SPECIAL)
        return known[1]

    def _note(self, kind: type, known: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            if name not in known:
                found = lookup(kind, name)
                if is_told(found):
                    known[name] = found

    def class_of(self, owner: Any) -> None:
        """An object whose class decides something."""
        kind = type(owner)
        if not kind.__flags__ & IMMUTABLE:
            self._owners.setdefault(id(owner), (owner, kind))

    def lacks(self, owner: Any, table: dict[Any, Any], name: str) -> None:
        """An object's own table has no such name."""
        self._lacking.setdefault(id(table), (owner, table, set()))[2].add(name)

    def described(self, tensor: Any, name: str) -> None:
        """A tensor is asked what it is, not what it holds. What the trace makes of it is no condition."""
        tracer, of_gradient = current().tracer, name == "grad"
        if type(tensor._array) is not Symbol and not (of_gradient and tracer is not None and tracer.has_gradient(tensor)):
            value = tensor._grad if of_gradient else tensor._edge
            self._tensors.setdefault((id(tensor), of_gradient), (tensor, tensor._array, value))

    def ran(self, function: FunctionType) -> bool:
        """A function that runs; whether it is the first time."""
        if id(function) in self._functions:
            return False
        self._functions[id(function)] = function, function.__code__, function.__defaults__, function.__kwdefaults__
        return True

    def asked(self, function: Callable[..., Any], *given: Any) -> None:
        """A question without side effects, which is asked again before each run."""
        key = (id(function), *map(id, given))
        if key not in self._asked:
            self._asked[key] = function, given, freeze(function(*given))

    def guard(self, guards: Guards, young: Callable[[Any], bool], sized: Callable[[Any], bool]) -> None:
        """Conditions for everything older than the trace. sized: objects whose tables are mostly told by their sizes."""
        words = object_words()
        for kind, found in [_older(kind, found, young) for kind, found in self._classes.values()]:
            if found:
                guards.names["gives"] = _gives
                test = f"gives({guards.name(kind)}, {guards.name(tuple(found.items()))})"
                guards.test(test, f"what the class {kind.__qualname__} defines")
                if version(kind):
                    guards.mostly(test, Word(kind, words["version"]))
        for owner, kind in self._owners.values():
            if not young(owner):
                test = f"type({guards.name(owner)}) is {guards.name(kind)}"
                guards.test(test, f"the class of {_title(owner)}", f"type({guards.name(owner)})", kind)
                if words:
                    guards.mostly(test, Word(owner, words["class"]))
        for owner, table, names in self._lacking.values():
            if not young(owner):
                self._guard_table(guards, owner, table, names, sized(owner))
        for asked, given, answer in self._asked.values():
            if not any(map(young, given)):
                test = f"freeze({guards.name(asked)}({', '.join(map(guards.name, given))})) == {guards.name(answer)}"
                guards.test(test, f"what {asked.__name__} says")
                if given and all(isinstance(each, type) and type(each) is type and version(each) for each in given):
                    guards.mostly(test, *(Word(each, words["version"]) for each in given))
        for (_, of_gradient), (tensor, array, value) in self._tensors.items():
            now = tensor._grad if of_gradient else tensor._edge
            if not young(tensor) and (now is None) is (value is None):  # not what the trace itself had made of it
                name, shape = guards.name(tensor), array.shape
                where = f"{name}._grad" if of_gradient else f"{name}._edge"
                test = f"({where} is None) is {value is None}"
                guards.test(test, f"{'the .grad' if of_gradient else 'whether it requires grad'} of a tensor of shape {shape}")
                if not of_gradient:
                    guards.mostly(test, Found(where, value))
                    test = f"({name}._array.shape, {name}._array.dtype) == {guards.name((shape, array.dtype))}"
                    guards.test(test, f"the shape and dtype of a tensor of shape {shape}")
                    guards.mostly(test, Found(f"{name}._array", array))
        for function, code, defaults, named in self._functions.values():
            if not young(function):
                _guard_function(guards, function, code, defaults, named)

    def _guard_table(self, guards: Guards, owner: Any, table: dict[Any, Any], names: set[str], sized: bool) -> None:
        place, watched = guards.name(table), list[Condition]()
        test = f"{place}.keys().isdisjoint({guards.name(frozenset(names))})"
        if owner is not table and not sized:
            whose = guards.name(owner)
            test = f"({whose}.__dict__ is {place} and {test})"
            watched.append(Found(f"{whose}.__dict__", table))
        guards.test(test, f"{_title(owner)}: what it has of its own in place of {', '.join(sorted(names))}")
        if sized and object_words():
            watched.append(Word(table, object_words()["entries"]))
        else:
            watched += [Lacks(table, name) for name in names]
        guards.mostly(test, *watched)


def _older(kind: type, found: dict[str, Any], young: Callable[[Any], bool]) -> tuple[type, dict[str, Any]]:
    """Of a class that was made in the trace, what classes from before it give."""
    if not young(kind):
        return kind, found
    old = next(each for each in kind.__mro__ if not young(each))
    own = {name for each in kind.__mro__ if young(each) for name in each.__dict__}
    given = {name: lookup(old, name) for name in found if name not in own}
    return old, {} if old.__flags__ & IMMUTABLE else given


def _guard_function(guards: Guards, function: FunctionType, code: CodeType, defaults: Any, named: Any) -> None:
    name, title, words = guards.name(function), function.__qualname__, function_words()
    was = guards.name(code)
    test = f"({name}.__code__ is {was} or {name}.__code__ == {was})"
    guards.test(test, f"the code of {title}")
    if words:
        guards.mostly(test, Word(function, words["__code__"]))
    for key, value in (("__defaults__", defaults), ("__kwdefaults__", named)):
        if value is None or is_fixed(value):  # others are pictured (reads.py)
            test = f"({name}.{key} is {guards.name(value)} or freeze({name}.{key}) == {guards.name(freeze(value))})"
            guards.test(test, f"{title}: {key}")
            if words:
                guards.mostly(test, Word(function, words[key]))


def _title(owner: Any) -> str:
    return str(owner.get("__name__", "a module")) if type(owner) is dict else f"an object of the class {type(owner).__qualname__}"
