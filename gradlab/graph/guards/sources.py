"""Places that a traced function names: from a global table, a closure's cell or an object by attributes and constant keys."""

from __future__ import annotations

import dis
import functools
import gc
from collections import OrderedDict, defaultdict
from random import Random
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from gradlab.autograd.base import Differentiable
from gradlab.graph.guards.contents import MUTABLE, attributes, is_dataclass
from gradlab.graph.guards.freeze import DATA
from gradlab.nn.module import Module
from gradlab.optim.lr_scheduler import LRScheduler
from gradlab.optim.optimizer import Optimizer

GONE = object()  # what a place holds that holds nothing
CELL = "cell_contents"
CALLED = object()  # a step: what a call without arguments gives, of a weak reference, a context variable or a question (settings.py)
KEYED = (dict, OrderedDict, defaultdict, list, tuple)  # whose entries are reached without running anybody's code


class Item(NamedTuple):
    """A step by key; a step by attribute is its name."""

    key: Any


def step(value: Any, by: Any) -> Any:
    """What one step leads to, or GONE."""
    try:
        if type(by) is Item:
            return value[by.key] if type(value) in KEYED and not (type(value) is defaultdict and by.key not in value) else GONE
        return value() if by is CALLED else getattr(value, by, GONE)
    except Exception:  # an empty cell is a ValueError; a property raises what it likes, and will do so where the code reads it
        return GONE


def resolve(root: Any, path: tuple[Any, ...]) -> Any:
    """What a place holds, or GONE."""
    value = root
    for by in path:
        value = step(value, by)
        if value is GONE:
            break
    return value


def expression(name: str, path: tuple[Any, ...]) -> str:
    """A place as Python writes it, from the name of its root on."""
    return name + "".join(f"[{by.key!r}]" if type(by) is Item else "()" if by is CALLED else f".{by}" for by in path)


def put_back(root: Any, path: tuple[Any, ...], value: Any) -> None:
    """Let a place hold what it held, where it takes that."""
    if not path:
        return
    owner, last = resolve(root, path[:-1]), path[-1]
    try:
        if type(last) is Item:
            if value is GONE:
                owner.pop(last.key, None)
            else:
                owner[last.key] = value
        elif value is not GONE:
            setattr(owner, last, value)
        elif hasattr(owner, last):
            delattr(owner, last)
    except (AttributeError, TypeError, LookupError):  # a property without a setter, a tuple: changed where else it is noted
        return


class Instruction(NamedTuple):
    """What is asked of one of the interpreter's: `dis` says four times as much, and thousands are kept."""

    opname: str
    arg: int | None
    argval: Any
    offset: int


ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "IMPORT_FROM", "LOAD_SUPER_ATTR")
_OF_THE_INTERPRETER = ("PUSH_NULL", "CACHE", "EXTENDED_ARG", "RESUME")  # what only it needs


@functools.lru_cache(1024)
def instructions_of(code: CodeType) -> list[Instruction]:
    """What a function does."""
    found = (i for i in dis.get_instructions(code) if i.opname not in _OF_THE_INTERPRETER)
    return [Instruction(i.opname, i.arg, i.argval, i.offset) for i in found]


@functools.lru_cache(1024)
def globals_of(code: CodeType) -> tuple[tuple[str, str | None], ...]:
    """The globals that a function names, each with the attribute that it takes of it at once: all that is asked of the library's own, whose
    instructions are not kept."""
    every = instructions_of.__wrapped__(code)
    found = (
        (x.argval, following.argval if following is not None and following.opname in ATTRIBUTES else None)
        for x, following in zip(every, [*every[1:], None]) if x.opname == "LOAD_GLOBAL"
    )  # fmt: skip
    return tuple(dict.fromkeys(found))


def steps(instructions: list[Instruction], at: int) -> list[tuple[Any, bool]]:
    """What the code takes of a value that it has just loaded: attributes, entries by constant keys; True behind one that it sets."""
    found: list[tuple[Any, bool]] = []
    while at < len(instructions):
        x = instructions[at]
        if x.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"):
            found.append((x.argval, x.opname in ("STORE_ATTR", "DELETE_ATTR")))
        elif x.opname == "LOAD_CONST" and at + 1 < len(instructions) and instructions[at + 1].opname == "BINARY_SUBSCR":
            if type(x.argval) not in (str, int):
                break
            found.append((Item(x.argval), False))
            at += 1
        elif x.opname != "COPY":  # as in x.n += 1
            break
        if found and found[-1][1]:
            break
        at += 1
    return found


def closures_of(code: CodeType, functions: list[FunctionType] | None, made: bool) -> list[dict[str, Any]]:
    """The cells of each closure of that code that was made before a trace; one made in it (made) needs no guard."""
    if functions is None:
        if made:
            return []
        found = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
        functions = found if len(found) == 1 else []
    return [dict(zip(code.co_freevars, f.__closure__, strict=True)) for f in functions if f.__closure__ is not None]


def is_instance(value: Any) -> bool:
    """Whether a value is an object of a user's class, of which each attribute is looked at on its own."""
    others = (*MUTABLE, tuple, type, ModuleType, FunctionType, MethodType, Random, DATA)
    return attributes(value) is not None and not isinstance(value, others)


def is_opaque(value: Any) -> bool:
    """Such an object, unless it is a record of settings (a dataclass, a namespace): these are told by all that is in them."""
    kind = type(value)
    record = is_dataclass(kind) or any((c.__module__, c.__name__) in _NAMESPACES for c in kind.__mro__)
    return is_instance(value) and not record


_NAMESPACES = {("argparse", "Namespace"), ("types", "SimpleNamespace")}  # by name: importing argparse takes a third of a megabyte


def owns(value: Any) -> bool:
    """Whether an argument is something whose attributes are looked at: an object or a class, but none of the library's machinery."""
    if isinstance(value, type):
        return True
    if attributes(value) is None or isinstance(value, (Differentiable, FunctionType, ModuleType)):
        return False
    return not type(value).__module__.startswith("gradlab.") or isinstance(value, (Module, Optimizer, LRScheduler))
