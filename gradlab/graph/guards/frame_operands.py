"""What an instruction that is about to run works on, and which function a frame runs: read from the interpreter's own frame.

Python shows a frame's variables, but neither its function nor its stack. Where they lie in memory is not looked up in a table of versions
but found by a function that is watched once; an interpreter that does not show them so is not read (`readable`).
"""

from __future__ import annotations

import ctypes
import dis
import functools
import itertools
import sys
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

_WORD = ctypes.sizeof(ctypes.c_size_t)
_INNER = 3  # a frame object's words: its count of references, its type, the frame before it, the interpreter's frame
_WORDS = 20  # of an interpreter's frame that are looked at
_LOW = 0xFFFFFFFF
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ENDS = frozenset((
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE",
    "INTERPRETER_EXIT",
))  # fmt: skip - behind which the next instruction does not come


class _Layout(NamedTuple):
    """Words of an interpreter's frame."""

    function: int
    size: int  # the lower half: how many variables and operands there are; -1 where that is not kept, as in Python 3.12 and 3.13
    variables: int  # the first of them


def _words(address: int, count: int) -> Any:
    return (ctypes.c_size_t * count).from_address(address)


def _inner(frame: FrameType) -> int:
    return int(ctypes.c_size_t.from_address(id(frame) + _INNER * _WORD).value)


def _object(address: int) -> Any:
    return ctypes.cast(address, ctypes.py_object).value


def _probed(mark: Any, other: Any) -> Any:
    both = mark, other  # variables
    return both, [mark.real, (other, mark.real)]  # operands at two depths


@functools.cache
def _layout() -> _Layout | None:
    """Found by watching a function; None where its variables and operands are not where a frame of this kind has them."""
    if sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    mark, other = 1e300 + 1, object()
    reads = [i.offset for i in dis.get_instructions(_probed) if i.opname == "LOAD_ATTR" and i.argval == "real"]
    found: list[_Layout | None] = []

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = watch, True, False
        if event == "opcode" and frame.f_lasti in reads:
            found.append(_located(list(_words(_inner(frame), _WORDS)), mark, other, frame))
        return watch

    before, own = sys.gettrace(), sys._getframe()
    own.f_trace_opcodes = True  # Python 3.12 tells of instructions only if a frame has asked for them before `settrace`
    sys.settrace(lambda frame, event, _: watch(frame, event, _) if frame.f_code is _probed.__code__ else None)
    try:
        _probed(mark, other)
    finally:
        sys.settrace(before)
        own.f_trace_opcodes = False
    return found[0] if len(found) == 2 and found[0] == found[1] else None


def _located(words: list[int], mark: Any, other: Any, frame: FrameType) -> _Layout | None:
    marks = [i for i, word in enumerate(words) if word == id(mark)]
    if len(marks) < 2 or id(_probed) not in words or words[marks[0] + 1] != id(other):
        return None
    variables, top = marks[0], marks[-1]
    sizes = [i for i in range(variables) if words[i] & _LOW == top - variables + 1]
    if not sizes and _sizes(frame.f_code).get(frame.f_lasti) != top - variables + 1:
        return None
    return _Layout(words.index(id(_probed)), sizes[-1] if sizes else -1, variables)


@functools.lru_cache(1024)
def _sizes(code: CodeType) -> dict[int, int]:
    """How many variables and operands there are before each instruction: what those ahead of it, on any way, have left."""
    instructions = list(dis.get_instructions(code))
    after = {x.offset: y.offset for x, y in itertools.pairwise(instructions)}
    at = {x.offset: x for x in instructions}
    start = len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
    handlers = [(e.start, e.end, e.target, start + e.depth + e.lasti + 1) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    sizes: dict[int, int] = {}
    waiting = [(instructions[0].offset, start), *((target, size) for _, _, target, size in handlers)]
    while waiting:
        offset, size = waiting.pop()
        while offset not in sizes:
            x = at[offset]
            sizes[offset] = size
            if x.opcode in _JUMPS:
                waiting.append((x.argval, size + dis.stack_effect(x.opcode, x.arg, jump=True)))
            if x.opname in _ENDS or offset not in after:
                break
            size += dis.stack_effect(x.opcode, x.arg if x.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
            offset = after[offset]
    return sizes


def readable() -> bool:
    """Whether this interpreter shows its frames."""
    return _layout() is not None


def function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs."""
    layout = _layout()
    if layout is None:
        return None
    found = _object(_words(_inner(frame), layout.function + 1)[layout.function])
    return found if isinstance(found, FunctionType) and found.__code__ is frame.f_code else None


class Operands:
    """Of a frame whose next instruction is watched: `Operands(frame)[0]` is the object on top of the stack, [1] the one below."""

    __slots__ = ("_first", "_inner", "_size")

    def __init__(self, frame: FrameType) -> None:
        layout = _layout()
        assert layout is not None
        self._inner = _inner(frame)
        if layout.size < 0:
            self._size = _sizes(frame.f_code).get(frame.f_lasti, 0)
        else:
            self._size = int(ctypes.c_int32.from_address(self._inner + layout.size * _WORD).value)
        self._first = self._inner + layout.variables * _WORD

    def __getitem__(self, depth: int) -> Any:
        """An operand; None also for the mark of none."""
        return self._at(self._size - 1 - depth)

    def cell(self, index: int) -> CellType | None:
        """The cell among the variables, by its number there."""
        found = self._at(index)
        return found if isinstance(found, CellType) else None

    def _at(self, index: int) -> Any:
        if not 0 <= index < self._size:
            return None
        address = int(ctypes.c_size_t.from_address(self._first + index * _WORD).value)
        return _object(address) if address else None
