"""A machine for pickles that executes nothing of them: the opcodes of the protocols 0 to 5, over values and names from a table.

A name (`GLOBAL`) is looked up by the `resolve` that the machine is given, which raises for what it does not know, and gives a value or a
`Named`: what may be called, or filled, in our own way. Nothing is imported, and no object of a class is made unless `resolve` says how.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from gradlab.utils.serialization.errors import FileFormatError

_LONG = (str, bytes, bytearray)
_MARK: Any = type("_Mark", (), {"__slots__": ()})()


class Named:
    """A name that a pickle may use. call: of a tuple of arguments; new: `cls.__new__` of them; fill: puts a state into what was made."""

    def __init__(
        self, name: str, call: Callable[..., Any] | None = None, new: Callable[..., Any] | None = None,
        fill: Callable[[Any, Any], Any] | None = None, value: Any = None,
    ) -> None:  # fmt: skip
        self.name, self.call, self.new, self.fill, self.value = name, call, new, fill, value


class Machine:
    """One run over a pickle, from `place` on; `place` is then where it ended."""

    def __init__(
        self, content: bytes | memoryview, resolve: Callable[[str, str], Any], persistent: Callable[[Any], Any], place: int = 0
    ) -> None:
        self.content, self.place = memoryview(content), place
        self.resolve, self.persistent = resolve, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.fills: dict[int, Callable[[Any, Any], Any]] = {}  # by the id of what was made: how a state gets into it
        self.keys: dict[int, list[int]] = {}  # by that id: under which keys it is in the memo
        self.made: list[Any] = []  # so that no such id becomes another's
        self.budget = 1_000_000 + 4 * len(content)  # parts of values that calls, hashes and copies may go over

    def run(self) -> Any:
        """The object. FileFormatError for a pickle that is damaged or cut short, or whose calls do not fit."""
        while True:
            code = self._take(1)[0]
            if code == 0x2E:  # STOP
                found = self._pop()
                if self.stack:
                    raise FileFormatError("a pickle ends in the middle of an object")
                return self._kept(found)
            step = _STEPS.get(code)
            if step is None:
                raise FileFormatError(f"a pickle has no instruction {code:#04x}, or one that is not taken")
            step(self)

    # ------------------------------------------------------------ bytes

    def _take(self, count: int) -> memoryview:
        end = self.place + count
        if count < 0 or end > len(self.content):
            raise FileFormatError("a pickle is cut short")
        found = self.content[self.place : end]
        self.place = end
        return found

    def _line(self) -> str:
        rest = bytes(self.content[self.place : self.place + 4096])
        end = rest.find(b"\n")
        if end < 0:
            raise FileFormatError("a pickle is cut short")
        self.place += end + 1
        return rest[:end].decode("utf-8")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    # ------------------------------------------------------------ the stack

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise FileFormatError("a pickle takes a value that is not there")
        return self.stack.pop()

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise FileFormatError("a pickle takes a value that is not there")
        return self.stack[-1]

    def _marked(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise FileFormatError("a pickle takes values that are not there")

    def _put(self, key: int) -> None:
        self.memo[key] = value = self._top()
        if id(value) in self.fills:
            self.keys.setdefault(id(value), []).append(key)

    def _get(self, key: int) -> None:
        if key not in self.memo:
            raise FileFormatError(f"a pickle refers to a value {key} that is not there")
        self.stack.append(self.memo[key])

    def exchange(self, old: Any, new: Any) -> None:
        """Put another object in the place of one that was made."""
        for key in self.keys.pop(id(old), ()):
            if self.memo.get(key) is old:
                self.memo[key] = new

    # ------------------------------------------------------------ objects

    def _charge(self, value: Any) -> None:
        """Count the parts of a value that something goes over. The same part may stand in it many times, and in those again: a few bytes
        of a file could otherwise keep a machine busy for years, or fill its memory."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            self.budget -= 1 + (part.bit_length() // 8 if type(part) is int else len(part) if type(part) in _LONG else 0) // 8
            if isinstance(part, dict):
                waiting.extend(part.keys())
                waiting.extend(part.values())
            elif isinstance(part, (tuple, list, set, frozenset, deque)):
                waiting.extend(part)
            if self.budget < len(waiting):
                raise FileFormatError("a pickle makes far more of its values than a file of its size holds")

    def _kept(self, value: Any) -> Any:
        """What a container holds of a name: the class itself."""
        if isinstance(value, Named):
            if value.value is None:
                raise FileFormatError(f"a pickle keeps {value.name}, which is no value")
            return value.value
        if type(value) is tuple and any(isinstance(part, (Named, tuple)) for part in value):
            self._charge(value)
            return tuple(map(self._kept, value))
        return value

    def _hashed(self, value: Any) -> Any:
        """The same of a key or a member, which is hashed."""
        if type(value) is not str:
            self._charge(value)
        return self._kept(value)

    def _append(self, values: list[Any]) -> None:
        target = self._top()
        if type(target) not in (list, deque):
            raise FileFormatError(f"a pickle appends to a {type(target).__name__}")
        target.extend(map(self._kept, values))

    def _set(self, values: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(values) % 2:
            raise FileFormatError(f"a pickle sets entries of a {type(target).__name__}")
        target.update(zip(map(self._hashed, values[::2]), map(self._kept, values[1::2]), strict=True))

    def _call(self, arguments: Any, way: str) -> None:
        named = self._pop()
        function = getattr(named, way, None) if isinstance(named, Named) else None
        if function is None or type(arguments) is not tuple:
            what = named.name if isinstance(named, Named) else type(named).__name__
            raise FileFormatError(f"a pickle calls {what}, which cannot be called so")
        self._charge(arguments)
        made = function(*arguments)
        if named.fill is not None:
            self.fills[id(made)] = named.fill
            self.made.append(made)
        self.stack.append(made)

    def _build(self) -> None:
        state, target = self._pop(), self._pop()
        fill = self.fills.get(id(target))
        if fill is not None:
            self._charge(state)
            changed = fill(target, state)
            if changed is not None:
                self.exchange(target, changed)
                target = changed
        elif type(target) is OrderedDict and isinstance(state, dict) and state.keys() <= {"_metadata"}:  # of a module's state_dict
            target.__dict__.update(state)
        else:
            raise FileFormatError(f"a pickle fills a {type(target).__name__}")
        self.stack.append(target)

    def _global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise FileFormatError("a pickle's name is no text")
        self.stack.append(self.resolve(module, name))


def _long(raw: memoryview) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _bytes(form: str, make: Callable[[memoryview], Any]) -> Callable[[Machine], None]:
    """An instruction that holds a length, and as many bytes."""
    return lambda m: m.stack.append(make(m._take(m._number(form))))


def _text(raw: memoryview) -> str:
    return str(raw, "utf-8", "surrogatepass")


def _old_text(raw: memoryview) -> str:
    return str(raw, "latin-1")


def _quoted(machine: Machine) -> None:
    line = machine._line()
    if len(line) < 2 or line[0] not in "'\"" or line[-1] != line[0] or "\\" in line:
        raise FileFormatError("a pickle's text is not quoted, or has escapes")
    machine.stack.append(line[1:-1])


def _integer(machine: Machine) -> None:
    line = machine._line().removesuffix("L")
    machine.stack.append({"00": False, "01": True}.get(line, int(line) if len(line) < 1000 else 0))


def _tuple(count: int) -> Callable[[Machine], None]:
    def step(machine: Machine) -> None:
        parts = [machine._pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(parts)))

    return step


def _pairs(machine: Machine) -> None:
    values = machine._marked()
    machine.stack.append({})
    machine._set(values)


def _single(machine: Machine) -> None:
    value, key = machine._pop(), machine._pop()
    machine._set([key, value])


def _one(machine: Machine) -> None:
    machine._append([machine._pop()])


def _members(machine: Machine) -> None:
    values, target = machine._marked(), machine._top()
    if type(target) is not set:
        raise FileFormatError(f"a pickle adds members to a {type(target).__name__}")
    target.update(map(machine._hashed, values))


def _from_stack(machine: Machine) -> None:
    name, module = machine._pop(), machine._pop()
    machine._global(module, name)


def _with_keywords(machine: Machine) -> None:
    keywords, arguments = machine._pop(), machine._pop()
    if keywords:
        raise FileFormatError("a pickle makes an object of keywords")
    machine._call(arguments, "new")


def _mark_away(machine: Machine) -> None:
    machine._marked()


_STEPS: dict[int, Callable[[Machine], Any]] = {
    0x80: lambda m: m._take(1),  # PROTO
    0x95: lambda m: m._take(8),  # FRAME
    ord("("): lambda m: m.stack.append(_MARK),
    ord("0"): lambda m: m._pop(),
    ord("1"): _mark_away,
    ord("2"): lambda m: m.stack.append(m._top()),
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("I"): _integer,
    ord("L"): _integer,
    ord("J"): lambda m: m.stack.append(m._number("<i")),
    ord("K"): lambda m: m.stack.append(m._number("<B")),
    ord("M"): lambda m: m.stack.append(m._number("<H")),
    0x8A: _bytes("<B", _long),
    0x8B: _bytes("<i", _long),
    ord("F"): lambda m: m.stack.append(float(m._line())),
    ord("G"): lambda m: m.stack.append(m._number(">d")),
    ord("S"): _quoted,
    ord("T"): _bytes("<i", _old_text),
    ord("U"): _bytes("<B", _old_text),
    ord("V"): lambda m: m.stack.append(m._line()),
    ord("X"): _bytes("<I", _text),
    0x8C: _bytes("<B", _text),
    0x8D: _bytes("<Q", _text),
    ord("B"): _bytes("<I", bytes),
    ord("C"): _bytes("<B", bytes),
    0x8E: _bytes("<Q", bytes),
    0x96: _bytes("<Q", bytearray),
    ord("]"): lambda m: m.stack.append([]),
    ord("l"): lambda m: m.stack.append(m._marked()),
    ord("a"): _one,
    ord("e"): lambda m: m._append(m._marked()),
    ord(")"): lambda m: m.stack.append(()),
    ord("t"): lambda m: m.stack.append(tuple(m._marked())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("}"): lambda m: m.stack.append({}),
    ord("d"): _pairs,
    ord("s"): _single,
    ord("u"): lambda m: m._set(m._marked()),
    0x8F: lambda m: m.stack.append(set()),
    0x90: _members,
    0x91: lambda m: m.stack.append(frozenset(map(m._hashed, m._marked()))),
    ord("c"): lambda m: m._global(m._line(), m._line()),
    0x93: _from_stack,
    ord("R"): lambda m: m._call(m._pop(), "call"),
    0x81: lambda m: m._call(m._pop(), "new"),
    0x92: _with_keywords,
    ord("b"): lambda m: m._build(),
    ord("Q"): lambda m: m.stack.append(m.persistent(m._pop())),
    ord("g"): lambda m: m._get(int(m._line())),
    ord("h"): lambda m: m._get(m._number("<B")),
    ord("j"): lambda m: m._get(m._number("<I")),
    ord("p"): lambda m: m._put(int(m._line())),
    ord("q"): lambda m: m._put(m._number("<B")),
    ord("r"): lambda m: m._put(m._number("<I")),
    0x94: lambda m: m._put(len(m.memo)),
}
