"""The names that a file may use: plain Python and NumPy objects, whose making runs no code of a file's, and classes that the user allows.

`ALLOWED` holds no tensors: those depend on the file, and `torch_reading.py` adds them.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import re
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from gradlab.dtype import ALL
from gradlab.spec import count
from gradlab.utils.serialization.errors import FileFormatError, shown
from gradlab.utils.serialization.unpickling import Named

_DTYPE = re.compile(r"[<>|=]?([biufc?]\d{0,2}|[SUV]\d{0,9}|[mM]8(\[\d*[a-zA-Zμ]{1,2}\])?)")


# ---------------------------------------------------------------- NumPy


def _dtype(code: Any, align: Any = False, copy: Any = True) -> Any:
    if code is ml_dtypes.bfloat16:
        return np.dtype(ml_dtypes.bfloat16)
    if not isinstance(code, str) or _DTYPE.fullmatch(code) is None:
        raise FileFormatError(f"there is no dtype {shown(code)} of numbers or text")
    return np.dtype(code)


def _ordered(dtype: Any, state: Any) -> Any:
    """The dtype with the byte order of its state."""
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
    return dtype.newbyteorder(order) if order in ("<", ">") else dtype


def _empty_array(kind: Any, shape: Any, code: Any) -> Any:
    return np.ndarray((0,), np.int8)


def _filled(array: Any, state: Any) -> Any:
    """The array of a state (version, shape, dtype, in Fortran's order, bytes)."""
    _, shape, dtype, fortran, raw = state
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(raw, (bytes, bytearray)):
        raise FileFormatError("an array holds no plain numbers")
    if type(shape) is not tuple or not all(type(s) is int and s >= 0 for s in shape) or count(shape) * dtype.itemsize != len(raw):
        raise FileFormatError("an array's bytes do not fit its shape")
    return np.frombuffer(bytearray(raw), dtype).reshape(shape, order="F" if fortran else "C")


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> Any:
    return _filled(None, (1, shape, dtype, order == "F", raw))


def _scalar(dtype: Any, raw: Any) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(raw, (bytes, str)) or len(raw) != dtype.itemsize:
        raise FileFormatError("a number's bytes do not fit its dtype")
    return np.frombuffer(raw if isinstance(raw, bytes) else raw.encode("latin1"), dtype)[0]


# ---------------------------------------------------------------- Python


def _encoded(text: Any, code: Any = "latin1") -> bytes:
    if not isinstance(text, str) or code not in ("latin1", "latin-1"):
        raise FileFormatError(f"bytes are written as latin1, not {shown(code)}")
    return text.encode("latin1")


def _bytearray(content: Any = b"", code: Any = "latin-1") -> bytearray:
    if not isinstance(content, (str, bytes)):
        raise FileFormatError("a bytearray is made of bytes")
    return bytearray(_encoded(content, code) if isinstance(content, str) else content)


def _defaultdict(factory: Any = None, *entries: Any) -> Any:
    kind = factory.value if isinstance(factory, Named) else factory
    if factory is not None and kind not in _FACTORIES:
        raise FileFormatError("a defaultdict's factory is one of Python's own types")
    return collections.defaultdict(kind, *entries)


def _of_copyreg(kind: Any, base: Any, state: Any) -> Any:
    if not isinstance(kind, Named) or kind.new is None:
        raise FileFormatError("copyreg makes objects of classes only")
    return kind.new()


def _attributes(made: Any, state: Any) -> None:
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise FileFormatError(f"a {type(made).__name__}'s state is a dict of attributes")
    vars(made).update(state)


def _plain(kind: Callable[..., Any]) -> Callable[..., Any]:
    """A type whose arguments are numbers, text and containers of them: nothing that could be called."""

    def make(*arguments: Any) -> Any:
        if any(isinstance(argument, (Named, range)) for argument in arguments):
            raise FileFormatError(f"a {getattr(kind, '__name__', kind)} is made of values")
        return kind(*arguments)

    return make


def _text(value: Any = "") -> str:
    if type(value) not in (str, int, float, bool):
        raise FileFormatError("a text is made of a text or a number")  # with an encoding, a codec's module would be imported
    return str(value)


_FACTORIES = (list, dict, set, tuple, int, float, str, bool, collections.OrderedDict)
_kind: Any
ALLOWED: dict[str, Any] = {}


def _allow(names: str, *made: Any, **options: Any) -> None:
    for name in names.split():
        ALLOWED[name] = Named(name, *made, **options)


for _kind in (list, dict, tuple, int, float, str, bool, set, frozenset, complex, slice, range):
    for _module in ("builtins", "__builtin__"):
        _allow(f"{_module}.{_kind.__name__}", _text if _kind is str else _plain(_kind), value=_kind)
_allow("__builtin__.xrange", _plain(range), value=range)
_allow("builtins.bytearray __builtin__.bytearray", _bytearray)
_allow("builtins.bytes __builtin__.bytes", lambda: b"")
_allow("builtins.object __builtin__.object", value=object)
_allow("_codecs.encode", _encoded)
_allow("collections.OrderedDict", _plain(collections.OrderedDict), value=collections.OrderedDict)
_allow("collections.Counter", _plain(collections.Counter))
_allow("collections.deque", _plain(collections.deque))
_allow("collections.defaultdict", _defaultdict)
for _kind in (datetime.date, datetime.time, datetime.datetime, datetime.timedelta):
    _allow(f"datetime.{_kind.__name__}", _plain(_kind))
for _name in ("PurePosixPath", "PureWindowsPath"):
    _allow(f"pathlib.{_name} pathlib._local.{_name}", _plain(getattr(pathlib, _name)))
_allow("pathlib.PosixPath pathlib.WindowsPath pathlib._local.PosixPath pathlib._local.WindowsPath", _plain(pathlib.Path))
for _kind in (argparse.Namespace, types.SimpleNamespace):
    _allow(f"{_kind.__module__}.{_kind.__name__}", _kind, _kind, _attributes)
_allow("copyreg._reconstructor copy_reg._reconstructor", _of_copyreg, fill=lambda made, state: _state(made, state))
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _allow(f"{_module}._reconstruct", _empty_array, fill=_filled)
    _allow(f"{_module}.scalar", _scalar)
_allow("numpy.core.numeric._frombuffer numpy._core.numeric._frombuffer", _from_buffer)
_allow("numpy.ndarray", value=np.ndarray)
_allow("numpy.dtype", _dtype, fill=_ordered)
ALLOWED["ml_dtypes.bfloat16"] = ml_dtypes.bfloat16
ALLOWED.update({f"torch.{dtype.name}": dtype for dtype in ALL})


# ---------------------------------------------------------------- what the user allows

_safe: dict[str, Any] = {}


def _named(given: Any) -> tuple[str, Any]:
    value, name = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not callable(value):
        raise TypeError(f"add_safe_globals: classes and functions, or pairs of one and its full name, not {given!r}")
    return name or f"{value.__module__}.{value.__qualname__}", value


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Allow `load` to make objects of these classes, and call these functions, where a file names them: their code then runs.

    A pair of one and a full name allows it under that name.
    """
    _safe.update(map(_named, safe_globals))


def clear_safe_globals() -> None:
    """Allow none of them any more."""
    _safe.clear()


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` has allowed."""
    return list(_safe.values())


@contextmanager
def safe_globals(safe_globals: Iterable[Any]) -> Iterator[None]:
    """Within the block `load` may also use these classes and functions."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


def permitted(full_name: str) -> Any:
    """What a name means, of the table or of what the user allows; None for any other."""
    found = ALLOWED.get(full_name)
    if found is None and full_name in _safe:
        kind = _safe[full_name]
        new = (lambda *given: kind.__new__(kind, *_values(given))) if isinstance(kind, type) else None
        return Named(full_name, lambda *given: kind(*_values(given)), new, _state, kind)
    return found


def _values(arguments: tuple[Any, ...]) -> list[Any]:
    return [argument.value if isinstance(argument, Named) else argument for argument in arguments]


def _state(made: Any, state: Any) -> None:
    """As pickle does it, for a class that the user allows."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    vars(made).update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(made, name, value)
