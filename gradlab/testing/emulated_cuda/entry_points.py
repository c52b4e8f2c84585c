"""Shared libraries whose functions are Python's: built at run time, under the names by which CUDA's libraries are found.

A library that is loaded already is what the loader gives to whoever asks for its name, so nothing has to be installed and no path be set.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gradlab.backends.native import toolchain
from gradlab.backends.native.seals import intact, opened

_DISPATCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64))
_PROLOGUE = """
#include <cstdint>
#include <cstring>
typedef int64_t word;
typedef int (*Dispatch)(int, const word*, word*);
static Dispatch dispatch;  // null before Python is there, and when it is gone
extern "C" void gradlab_connect(Dispatch made) { dispatch = made; }
"""
_PYTHON = """
extern "C" void PyErr_SetObject(void*, void*);
extern "C" void Py_IncRef(void*);
extern "C" void Py_DecRef(void*);
extern "C" char _Py_NoneStruct;
static void* object(word found) {
  if (!found) { Py_IncRef(&_Py_NoneStruct); return &_Py_NoneStruct; }
  return (void*)found;
}
static void raise_what(word type, word error) {
  PyErr_SetObject((void*)type, (void*)error);
  Py_DecRef((void*)type);
  Py_DecRef((void*)error);
}
"""

Handler = Callable[..., Any]


class Signature(NamedTuple):
    """Of a function that Cython shares: its arguments' types in C, without Cython's own, and what it returns."""

    returns: str
    arguments: tuple[str, ...]
    hidden: tuple[str, ...]  # Cython's, after the arguments

    @property
    def optional(self) -> bool:
        """Whether the last of the hidden ones leads to arguments that may be left out."""
        return bool(self.hidden) and self.hidden[-1] == "void*"


def signature(text: str) -> Signature | None:
    """Of what a capsule is named, `intptr_t (size_t, int __pyx_skip_dispatch)`. None for one that takes or returns a struct."""
    match = re.fullmatch(r"(.*?) ?\((.*)\)", text)
    if match is None:
        return None
    returns, inner = match[1].strip(), [part.strip() for part in match[2].split(",")]
    arguments: list[str] = []
    hidden: list[str] = []
    for part in inner if inner != ["void"] else ():
        if part == "":
            continue
        if "__pyx_skip_dispatch" in part:
            hidden.append("int")
        elif "__pyx_optional_args" in part:
            hidden.append("void*")
        else:
            found = _plain(part)
            if found is None:
                return None
            arguments.append(found)
    kind = _plain(returns)
    return None if kind is None else Signature(kind, tuple(arguments), tuple(hidden))


def _plain(name: str) -> str | None:
    """A type of C++ for it, if it is a number or a pointer."""
    if name in {"int", "unsigned int", "intptr_t", "uintmax_t", "size_t", "float", "double"}:
        return name
    if name == "cudaMemcpyKind":
        return "int"
    return "void*" if name.endswith("*") else None


class Library:
    """A built and loaded library, and the Python functions behind its entry points. Keep it as long as the library may be called."""

    def __init__(self, name: str, text: str, handlers: Sequence[Handler]) -> None:
        # NVIDIA's libraries have versions of their symbols, of the library's name: what was linked with one asks for them.
        versioned, flags = f"{name} {{ global: *; }};\n", toolchain.flags("")
        target = toolchain.cache_directory() / f"below-{toolchain.digest(text, versioned, *flags)}.so"
        if not intact(target):
            with toolchain.Workshop(target) as workshop:
                source, made = workshop.directory / "entry_points.cpp", workshop.directory / target.name
                source.write_text(text, encoding="utf-8")
                versions = workshop.directory / "versions"
                versions.write_text(versioned, encoding="utf-8")
                linked = f"-Wl,-soname,{name},--version-script={versions}"
                toolchain.run([*flags, "-shared", linked, "-o", made, source], f"the emulated {name}")
                workshop.deliver(made)
        self.loaded = opened(target)
        self.handlers = handlers
        self._callback = _DISPATCH(self._call)
        self.loaded.gradlab_connect(self._callback)

    def _call(self, index: int, arguments: Any, result: Any) -> int:
        """Answer a call of the function of that number. Not 0: `result` holds an exception's type and the exception."""
        raise NotImplementedError  # each kind of library has its own

    def close(self) -> None:
        """From now on every call is answered without Python: 0, or `None`."""
        self.loaded.gradlab_connect(None)

    def address(self, name: str) -> int:
        """Of an entry point."""
        return ctypes.cast(self.loaded[name], ctypes.c_void_p).value or 0


class CLibrary(Library):
    """Functions of C by their names, each with the number of its arguments, which are 64-bit words, as is what it returns (0 for None).
    Of what it raises `failed` makes a result."""

    def __init__(self, name: str, functions: Mapping[str, tuple[int, Handler]], failed: Callable[[Exception], int]) -> None:
        self._failed = failed
        self._counts = [count for count, _ in functions.values()]
        parts = [_PROLOGUE]
        for index, (function, count) in enumerate(zip(functions, self._counts)):
            words = ", ".join(f"word a{number}" for number in range(count))
            given = ", ".join(f"a{number}" for number in range(count))
            parts.append(
                f'extern "C" word {function}({words}) {{ word a[] = {{{given or 0}}}, result = 0; '
                f"if (dispatch) dispatch({index}, a, &result); return result; }}\n"
            )
        super().__init__(name, "".join(parts), [handler for _, handler in functions.values()])

    def _call(self, index: int, arguments: Any, result: Any) -> int:
        try:
            result[0] = self.handlers[index](*arguments[: self._counts[index]]) or 0
        except Exception as error:
            result[0] = self._failed(error)
        return 0


def by_name(place: Any, prefix: str) -> dict[str, tuple[int, Handler]]:
    """An object's methods whose names begin so, with the number of their arguments."""
    found = {name: getattr(place, name) for name in dir(type(place)) if name.startswith(prefix)}
    return {name: (len(inspect.signature(method).parameters), method) for name, method in found.items()}


class CythonTable(Library):
    """Functions as Cython shares them between modules: they take and return objects, and raise.

    `functions`: by name, the text of the capsule and the Python function. Of arguments that may be left out there is one at most, an int.
    """

    def __init__(self, name: str, functions: Mapping[str, tuple[str, Handler]]) -> None:
        self._signatures: list[Signature] = []
        parts = [_PROLOGUE, _PYTHON]
        for index, (function, (text, _)) in enumerate(functions.items()):
            found = signature(text)
            assert found is not None, text
            self._signatures.append(found)
            types = [*found.arguments, *found.hidden]
            declared = ", ".join(f"{kind} a{number}" for number, kind in enumerate(types))
            kept = [*range(len(found.arguments)), *([len(types) - 1] if found.optional else [])]
            words = ", ".join(f"(word)a{number}" for number in kept)
            error = "0" if found.returns != "int" else "-1"  # by which the caller knows to look for an exception
            value = {
                "void*": "object(result)", "float": "(float)number", "double": "number",
            }.get(found.returns, f"({found.returns})result")  # fmt: skip
            without = "object(0)" if found.returns == "void*" else "0"
            parts.append(
                f'extern "C" {found.returns} gradlab_{function}({declared}) {{ word a[] = {{{words or 0}}}, results[2] = {{0, 0}}; '
                f"if (!dispatch) return {without}; "
                f"if (dispatch({index}, a, results)) {{ raise_what(results[0], results[1]); return ({found.returns}){error}; }} "
                "word result = results[0]; double number; std::memcpy(&number, &result, 8); (void)number; "
                f"return {value}; }}\n"
            )
        super().__init__(name, "".join(parts), [handler for _, handler in functions.values()])

    def _call(self, index: int, arguments: Any, result: Any) -> int:
        try:
            found = self._signatures[index]
            given: list[Any] = []
            for number, kind in enumerate(found.arguments):
                word = arguments[number]
                if kind == "void*":
                    given.append(ctypes.cast(word, ctypes.py_object).value)
                elif kind in {"size_t", "uintmax_t"}:
                    given.append(word & 0xFFFFFFFFFFFFFFFF)
                else:
                    given.append(word)
            place = arguments[len(found.arguments)] if found.optional else 0
            if place:
                filled, value = (ctypes.c_int * 2).from_address(place)
                given += [value] if filled else []
            made = self.handlers[index](*given)
            if found.returns == "void*":
                result[0] = 0 if made is None else _given_away(made)
            elif found.returns in {"float", "double"}:
                ctypes.cast(result, ctypes.POINTER(ctypes.c_double))[0] = made
            else:
                result[0] = int(made)
        except BaseException as error:
            result[0], result[1] = _given_away(type(error)), _given_away(error)
            return 1
        return 0


def _given_away(thing: Any) -> int:
    """An object's address, with a reference for whoever takes it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return id(thing)
