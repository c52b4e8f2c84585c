"""Follows the user's code through a trace, instruction by instruction: what it reads of which object, however it got hold of it.

A function's code tells the names that it reads, but of what, only the running frame knows: of a loop's variable, a result, an object behind
a weak reference. So where the interpreter shows its frames (`operands.py`), each instruction that reads something is looked at before it
runs. The library's own code is not followed, nor is the standard library's, apart from what holds users' values.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import (
    CodeType,
    FrameType,
    FunctionType,
    ModuleType,
)  # fmt: skip
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.call_site import PACKAGE
from gradlab.graph.guards.accesses import CACHED, Taken
from gradlab.graph.guards.attribute_lookup import IMMUTABLE, Lookups, lookup
from gradlab.graph.guards.frame_operands import Operands, function_of, readable
from gradlab.graph.guards.freeze import is_plain
from gradlab.graph.guards.sources import ATTRIBUTES, CELL, Item, globals_of, instructions_of
from gradlab.nn.module import Module
from gradlab.overrides.overridable import plain_of

if TYPE_CHECKING:
    from gradlab.graph.guards.reads import Reads

_LIBRARY = str(Path(os.__file__).parent) + os.sep
_HOLDERS = tuple(  # files of the standard library whose objects hold users' values
    _LIBRARY + name
    for name in (
        "_collections_abc.py", "_weakrefset.py", "collections" + os.sep, "contextlib.py", "copy.py", "dataclasses.py", "enum.py",
        "functools.py", "queue.py", "threading.py", "types.py", "weakref.py",
    )
)  # fmt: skip
_NUMPY = str(Path(np.__file__).parent) + os.sep
_ENTRIES = ("BINARY_SUBSCR", "CONTAINS_OP")
_JUMPS = (name for name in dis.opmap if "JUMP" in name and ("TRUE" in name or "FALSE" in name))
_USES = frozenset(("TO_BOOL", "UNARY_NOT", "GET_ITER", "COMPARE_OP", *_JUMPS))  # what a class answers by itself
_READS = frozenset((
    *ATTRIBUTES, *_ENTRIES, "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "IMPORT_NAME", "CALL", "CALL_KW",
    "CALL_FUNCTION_EX", "MATCH_CLASS", *_USES,
))  # fmt: skip
_ROOMS = tuple(str(Path(PACKAGE, room)) + os.sep for room in ("nn", "optim"))  # whose functions call public ones


def is_followed(code: CodeType, user: bool, by_user: bool) -> bool:
    """Whether a frame of that code is followed. user: it is no library's code; by_user: followed code has called it."""
    if user:
        return not code.co_filename.startswith(_NUMPY)
    return by_user and code.co_filename.startswith(_HOLDERS)


class Following:
    """Told of frames by a profile function (`called`, `turn_back`); tells `reads` of places, and `lookups` of what was found where."""

    def __init__(self, reads: Reads, function: Callable[..., Any]) -> None:
        self._function = function
        self.reads, self.lookups = reads, Lookups()
        self.taken = Taken(reads, self.lookups)
        self.readable = readable()
        self._watch: Callable[..., Any] = self._watched  # one object, which frames are given
        self._instructions: dict[CodeType, dict[int, tuple[int, Any]]] = {}
        self._names: dict[tuple[type, CodeType], list[str]] = {}
        self._done: set[Any] = set()
        self._kept: list[Any] = []
        self._turns: list[FrameType] = []  # frames at which following began or stopped
        self.on = False  # whether the code that runs is followed
        self.until: FrameType | None = None  # the frame with which that changes
        self._before: Any = None

    def start(self) -> None:
        """Begin with the function that is traced."""
        self._before = sys.gettrace()
        self.taken.call(self._function, ())

    def stop(self) -> None:
        """Leave the interpreter as it was."""
        if self.readable:
            sys.settrace(self._before)
        self.on, self.until = False, None
        self._turns.clear()

    def tells(self, module: Module) -> bool:
        """Whether all code that reads a module's attributes is followed: none of it is the library's, but for what every module has."""
        kinds = type(module).__mro__
        return self.readable and all(k in Module.__mro__ or not k.__module__.startswith("gradlab.") for k in kinds)

    # ------------------------------------------------------------ frames

    def called(self, frame: FrameType, user: bool) -> None:
        """A Python function begins, or goes on, that is the user's or is called while following is on."""
        if not self.readable:
            return
        followed = is_followed(frame.f_code, user, self.on)
        if followed is not self.on:
            self._turns.append(frame)
            self._turn(followed)
        if followed:  # Python 3.13 hears this only after `settrace`
            frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self._watch, True, False
            self.entered(frame)

    def turn_back(self) -> None:
        """The function of the frame `until` ends, or yields."""
        self._turns.pop()
        self._turn(not self.on)

    def _turn(self, on: bool) -> None:
        self.on = on
        self.until = self._turns[-1] if self._turns else None
        sys.settrace(_ignore if on else None)

    def entered(self, frame: FrameType) -> None:
        """The function that a frame runs, and the class that gives it."""
        code = frame.f_code
        given = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        key = code, id(given)
        if key in self._done:
            return
        self._done.add(key)
        self._kept.append(given)
        function = function_of(frame)
        if function is not None and self.lookups.ran(function):
            self.taken.defaults(function)
        if given is None or is_plain(given):
            return
        kind = given if isinstance(given, type) else type(given)
        for name in self._names_of(kind, code):
            self.lookups.of_class(kind, name)
            if kind is not given and not isinstance(given, Differentiable):
                self.lookups.class_of(given)
                self.taken.lacks(given, name)

    def _names_of(self, kind: type, code: CodeType) -> list[str]:
        """The names under which a class gives that code."""
        found = self._names.get((kind, code))
        if found is None:
            classes = () if kind.__flags__ & IMMUTABLE or issubclass(kind, Differentiable) else kind.__mro__
            values = [(name, value) for each in classes for name, value in list(each.__dict__.items())]
            found = self._names[kind, code] = [name for name, value in values if getattr(_plain(value), "__code__", None) is code]
        return found

    def method(self, frame: FrameType, owner: Any) -> None:
        """A method of the library's, of an object that may be the user's."""
        code = frame.f_code
        key = code, id(owner)
        if key not in self._done:
            self._done.add(key)
            kind, name = type(owner), code.co_name
            self._library(frame)
            if getattr(_plain(lookup(kind, name)), "__code__", None) is code:
                self.lookups.of_class(kind, name)
                self.lookups.class_of(owner)
                self.taken.lacks(owner, name)
                function = function_of(frame) if code not in self._done else None
                self._done.add(code)
                if function is not None:
                    self.lookups.ran(function)

    def _library(self, frame: FrameType) -> None:
        """Functions that a layer or an optimizer of the library names: they may be replaced."""
        code, known = frame.f_code, frame.f_globals
        if code in self._instructions or not code.co_filename.startswith(_ROOMS):
            return
        self._instructions[code] = {}
        for name, taken in globals_of(code):
            if name in known:
                table = known
                if isinstance(known[name], ModuleType) and taken is not None:
                    table, name = known[name].__dict__, taken
                if isinstance(plain_of(table.get(name)), FunctionType):
                    self.reads.note(table, (Item(name),), f"{table.get('__name__')}.{name}", False)

    # ------------------------------------------------------------ instructions

    def _watched(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and self.on:
            code = frame.f_code
            reading = self._instructions.get(code)
            if reading is None:
                every = instructions_of(code)
                found = [(at, x) for at, x in enumerate(every) if x.opname in _READS and not (at and _is_plain(every[at - 1], x))]
                reading = self._instructions[code] = {x.offset: (at, x) for at, x in found}
            instruction = reading.get(frame.f_lasti)
            if instruction is not None:
                self._read(frame, *instruction)
        return self._watch

    def _read(self, frame: FrameType, at: int, x: Any) -> None:
        name, kind = x.argval, x.opname
        if kind in _USES:
            self.lookups.met(Operands(frame)[0])
            if kind == "COMPARE_OP":
                self.lookups.met(Operands(frame)[1])
        elif kind in ATTRIBUTES:
            operands = Operands(frame)
            if kind == "LOAD_SUPER_ATTR":
                self.taken.inherited(operands[1], operands[0], name)
            else:
                self.taken.attribute(operands[0], name, frame.f_code, at)
        elif kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._global(frame, name, at)
        elif kind in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            if name in frame.f_code.co_freevars:
                cell = Operands(frame).cell(x.arg)
                if cell is not None:
                    self.reads.follow(cell, CELL, name, frame.f_code, at)
        elif kind in _ENTRIES:
            operands = Operands(frame)
            owner, key = operands[0], operands[1]
            self.taken.entry(*((key, owner) if kind == "BINARY_SUBSCR" else (owner, key)))
        elif kind == "MATCH_CLASS":
            operands = Operands(frame)
            self.taken.belongs(operands[2], operands[1])
            for each in (*getattr(operands[1], "__match_args__", ())[: x.arg], *operands[0]):
                self.taken.attribute(operands[2], each)
        elif kind == "IMPORT_NAME":
            if Operands(frame)[1] == 0:
                self.taken.module(name)
        elif kind in ("CALL", "CALL_KW"):
            operands, above = Operands(frame), int(kind == "CALL_KW")  # the names of keyword arguments
            first, second = operands[above + x.arg + 1], operands[above + x.arg]
            named = len(operands[0]) if above else _named(frame.f_code, at)
            given = [operands[above + i] for i in range(x.arg - 1, named - 1, -1)]
            if first is None or second is None:
                self.taken.call(second if first is None else first, given)
            else:
                self.taken.call(first, [second, *given])
        else:  # CALL_FUNCTION_EX
            operands = Operands(frame)
            named = x.arg & 1
            given = operands[named]
            function = operands[named + 1]
            self.taken.call(operands[named + 2] if function is None else function, list(given) if isinstance(given, (list, tuple)) else [])

    def _global(self, frame: FrameType, name: str, at: int) -> None:
        table = frame.f_globals
        if name in table:
            self.reads.follow(table, Item(name), name, frame.f_code, at)
        elif frame.f_locals is table or name not in frame.f_locals:
            self.lookups.lacks(table, table, name)
            if name in frame.f_builtins:
                self.reads.note(frame.f_builtins, (Item(name),), f"the built-in {name}", False)
            else:
                self.lookups.lacks(frame.f_builtins, frame.f_builtins, name)


def _is_plain(ahead: Any, x: Any) -> bool:
    """Whether the truth that an instruction asks for is a comparison's, or it compares with a constant: of loops, which run often."""
    return x.opname in _USES and ahead.opname in ("COMPARE_OP", "IS_OP", "CONTAINS_OP", "LOAD_CONST", "TO_BOOL", "UNARY_NOT")


def _named(code: CodeType, at: int) -> int:
    """How many of a call's arguments are given by name, where an instruction ahead of it says so."""
    ahead = instructions_of(code)[max(at - 2, 0) : at]
    return next((len(code.co_consts[x.arg or 0]) for x in ahead if x.opname == "KW_NAMES"), 0)


def _ignore(_frame: FrameType, _event: str, _value: Any) -> None:
    """The interpreter's trace function: frames that are followed have one of their own."""


def _plain(value: Any) -> Any:
    """The function in a property, a static method or the like."""
    while (name := next((name for kind, name in _WRAPPERS if isinstance(value, kind)), None)) is not None:
        value = getattr(value, name)
    return value


_WRAPPERS: tuple[tuple[type, str], ...] = (
    (staticmethod, "__func__"), (classmethod, "__func__"), (property, "fget"), (functools.cached_property, "func"),
    (functools.partialmethod, "func"), (CACHED, "__wrapped__"),
)  # fmt: skip
