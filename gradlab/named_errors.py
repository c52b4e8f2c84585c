"""Errors of public functions name the function and say what it was given, at no cost to a call that is right.

Most wrong arguments are found where they matter: a rule compares shapes, a helper looks at a dimension, Python or NumPy refuses. What is
raised there is caught on its way out by the public function (`named`, or a `try` of its own, which costs nothing in Python), and there
`explain` puts the function's name in front, or, where it was Python or NumPy that refused, says which argument cannot be used.
Flags that a call gives (parameters whose annotation or default is a bool) are looked at first: what is no truth value is refused, by name,
where PyTorch refuses it. Functions with a `try` of their own compare theirs with False and come to `flag` for the rest.
Errors of code of users', which runs inside `vmap` or a hook, go through as they are; so do those whose text says whose they are.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, NoReturn, TypeVar

import numpy as np

from gradlab.call_site import inside
from gradlab.dtype import OutOfRange
from gradlab.spec import DimensionError, NoInteger, ShapeError

F = TypeVar("F", bound=Callable[..., Any])

RAISE = dis.opmap["RAISE_VARARGS"]
PREFIXED_BASES = (TypeError, ValueError, RuntimeError, IndexError)
PREFIXED = frozenset({TypeError, ValueError, RuntimeError, IndexError, NotImplementedError, ShapeError, DimensionError})
_NUMPY, _PYTHON = (os.path.realpath(os.path.dirname(str(module.__file__))) + os.sep for module in (np, os))
# What says already whose it is: "conv2d: …", "Conv2d(): …", "conv2d() takes …".
_OWN = re.compile(r"[A-Za-z_][\w.]*(\(\))?: |[A-Za-z_][\w.]*\(\) ")
_ASKED_BY_PYTHON = frozenset({"__contains__", "__format__", "__dlpack__", "__array__"})
_BETWEEN = ("overridable.py", "protocol.py", "one_row.py")  # they ask others, or what is known of such calls, before they call
_QUOTED = re.compile(r"'(?:[\w.]+\.)?(\w+)'")


class AllocationError(MemoryError, RuntimeError):
    """There is no memory for a result. Both a MemoryError (Python's and NumPy's) and a RuntimeError (PyTorch's)."""


# What an error that Python or NumPy raised becomes; those that are not here stay what they are.
_BECOMES: dict[type, type[Exception]] = {
    AttributeError: TypeError, UnboundLocalError: TypeError, NameError: TypeError, KeyError: ValueError, AssertionError: ValueError,
    LookupError: ValueError, StopIteration: ValueError, OverflowError: OutOfRange, ZeroDivisionError: ValueError,
    FloatingPointError: ValueError, ArithmeticError: ValueError, MemoryError: AllocationError, RecursionError: ValueError,
    BufferError: TypeError, UnicodeDecodeError: ValueError, UnicodeEncodeError: ValueError,
}  # fmt: skip
class _OfPython(dict[str, bool]):
    """File name -> whether it is one of Python's own library or of NumPy."""

    def __missing__(self, file: str) -> bool:
        own = file.startswith(_PYTHON) and "-packages" + os.sep not in file
        found = self[file] = own or file.startswith((_NUMPY, "<frozen ", "<__array_function__"))
        return found


_of_python = _OfPython()


# PyTorch asks these for their truth: 1, None and a list will do.
_ANY_TRUTH = frozenset({
    "inplace", "return_indices", "size_average", "reduce", "get_infos", "include_last_offset", "hard", "recompute_scale_factor",
    "antialias", "add_zero_attn", "need_weights", "use_separate_proj_weight", "average_attn_weights", "create_graph", "retain_graph",
    "ambiguity_check",
})  # fmt: skip
# Of these functions any, whatever the annotation says.
_ANY_OF: dict[str, set[str]] = {
    "triplet_margin_with_distance_loss": {"swap"}, "multi_head_attention_forward": {"training", "is_causal"}, "from_dlpack": {"copy"},
    "gaussian_nll_loss": {"full"}, "stft": {"center"}, "pca_lowrank": {"center"}, "embedding_bag": {"norm_type"},
    "multi_margin_loss": {"p"}, **{name: {"_stacklevel", "dim"} for name in ("softmax", "log_softmax", "softmin")},
}  # fmt: skip
_OR_NONE = frozenset({"requires_grad", "pin_memory"})  # for PyTorch's None, which is False
_HINTS = {
    **dict.fromkeys(("keepdim", "keepdims", "unbiased"), "; several dimensions are a tuple: dim=(0, 1)"),
    **dict.fromkeys(("sorted", "return_inverse", "return_counts"), "; a dimension is given by name: dim=0"),
}


class Kind:
    """A kind of number that a parameter takes. types: those that need no second look. word: what it is called in an error."""

    def __init__(self, word: str, *types: type) -> None:
        self.word, self.types, self.or_none = word, types, (*types, type(None))


FLAG, INTEGER, NUMBER = Kind("True or False", bool), Kind("an integer", int), Kind("a number", float, int)
VALUE = Kind("a number or a tensor", float, int)  # by which whole tensors are multiplied, say
_VALUES: dict[str, set[str]] = {
    "gumbel_softmax": {"tau"}, "local_response_norm": {"alpha", "beta", "k"}, "normalize": {"eps"}, "gaussian_nll_loss": {"eps"},
    "triplet_margin_with_distance_loss": {"margin"}, **{f"lp_pool{rank}d": {"norm_type"} for rank in (1, 2, 3)},
}  # fmt: skip
_OF_ANNOTATION = {"bool": FLAG, "int": INTEGER, "float": NUMBER}
_IN_NO_NUMBER = (str, bytes, bytearray, list, tuple, dict, set, range)
Looked = dict[str, tuple[int, tuple[type, ...], Kind]]


def looked_at(function: Any) -> Looked:
    """What is looked at among a public function's parameters, flags, integers and numbers by their annotations: the place of each (a large
    number where it has none), the types that will do at once, and what it is."""
    if function.__name__.startswith("_"):
        return {}
    function = inspect.unwrap(function)
    code, annotations = function.__code__, function.__annotations__
    backwards = zip(code.co_varnames[: code.co_argcount][::-1], (function.__defaults__ or ())[::-1])
    defaults = {**dict(backwards), **(function.__kwdefaults__ or {})}
    without = _ANY_OF.get(function.__name__, set())
    found: Looked = {}
    for i, what in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        said = annotations.get(what, "")
        if what in without or not isinstance(said, str):
            continue
        kind = _OF_ANNOTATION.get(said.removesuffix(" | None")) or (FLAG if said == "Any" and type(defaults.get(what)) is bool else None)
        if kind is NUMBER and what in _VALUES.get(function.__name__, ()):
            kind = VALUE
        if kind is not None and not (kind is FLAG and what in _ANY_TRUTH):
            or_none = said.endswith("None") or what in _OR_NONE or (kind is not FLAG and defaults.get(what, 0) is None)
            found[what] = i if i < code.co_argcount else 1 << 30, kind.or_none if or_none else kind.types, kind
    return found


def flag(name: str, what: str, value: Any) -> bool:
    """A flag that a function was given, as a bool. TypeError for what is none."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name}: {_is_not(what, FLAG, value)}{_HINTS.get(what, '') if isinstance(value, int) else ''}")


def number(name: str, what: str, value: Any) -> Any:
    """A number that a function was given. TypeError for None, a text or a list."""
    return value if type(value) in NUMBER.types else _taken(name, what, NUMBER, value)


def _is_not(what: str, kind: Kind, value: Any) -> str:
    return f"{what} is {kind.word}, not {type(value).__name__}: {describe(value)}"


def _taken(name: str, what: str, kind: Kind, value: Any) -> Any:
    """An argument as the function is to get it. TypeError for what is nothing of its kind; other objects speak for themselves."""
    if kind is FLAG:
        return flag(name, what, value)
    wrong = value is None or isinstance(value, _IN_NO_NUMBER)
    if kind is INTEGER and (wrong or isinstance(value, (bool, np.bool_, float, complex, np.inexact))):
        raise NoInteger(_is_not(what, kind, value), value)  # named by the outermost function, perhaps by a parameter of its own
    if wrong or (kind is NUMBER and getattr(value, "shape", None)):  # of a tensor or array only one without dimensions
        raise TypeError(f"{name}: {_is_not(what, kind, value)}")
    return value


def checked(name: str, looked: Looked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, flags among them as bools. TypeError for a flag, an integer or a number that is none."""
    for what, (place, types, kind) in looked.items():
        if place < len(args):
            if type(args[place]) not in types:
                args = (*args[:place], _taken(name, what, kind, args[place]), *args[place + 1 :])
        elif what in kwargs and type(kwargs[what]) not in types:
            kwargs = {**kwargs, what: _taken(name, what, kind, kwargs[what])}
    return args, kwargs


def named(function: F, name: str | None = None) -> F:
    """The function, whose errors name it and whose flags, integers and numbers are such. name: instead of its own."""
    looked = looked_at(function)
    by_name = {what: types for what, (_, types, _) in looked.items()}
    places = [(place, types) for place, types, _ in looked.values() if place < 1 << 30]
    (first, first_types), others = places[0] if places else (1 << 30, ()), places[1:]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            explain(error, name or function.__name__, function, args, kwargs)

    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs:
                for what, value in kwargs.items():
                    if what in by_name and type(value) not in by_name[what]:
                        args, kwargs = checked(name or function.__name__, looked, args, kwargs)
                        break
            if len(args) > first:
                if type(args[first]) not in first_types:
                    args, kwargs = checked(name or function.__name__, looked, args, kwargs)
                elif len(args) > first + 1:
                    for place, types in others:
                        if place >= len(args):
                            break
                        if type(args[place]) not in types:
                            args, kwargs = checked(name or function.__name__, looked, args, kwargs)
                            break
            return function(*args, **kwargs)
        except Exception as error:
            explain(error, name or function.__name__, function, args, kwargs)

    made: Any = looking if looked else call
    made.names_itself = True
    return made


def can_be_named(value: Any) -> bool:
    """Not what does so already, by a `try` of its own too; nor what calls the fast path of a row itself, which counts the frames to the
    user's line."""
    if type(value) is not FunctionType or hasattr(value, "names_itself"):
        return False
    names, known = value.__code__.co_names, value.__globals__
    return "explain" not in names and not any(_counts_frames(known.get(name)) for name in names)


def named_functions(name: str, without: str = "", also: str = "") -> None:
    """Let all public functions that a module has defined name themselves: those of its `__all__`, if it has one. also: those that another
    room offers. without: those whose errors all come from a helper that names them."""
    module = vars(sys.modules[name])
    listed, left_out = (*module.get("__all__", ()), *also.split()), without.split()
    made: dict[Any, Any] = {}
    for word, value in list(module.items()):
        own = getattr(value, "__module__", None) == name and can_be_named(value) and word not in left_out
        if own and (value in made or (word in listed if listed else not word.startswith("_"))):  # an alias is the same function
            module[word] = made[value] = made.get(value) or named(value)


def named_methods(kind: type) -> None:
    """Let the methods of a class of tensors that take arguments name themselves, those called by the names of types apart, which take a
    memory format only."""
    for name, value in list(vars(kind).items()):
        if can_be_named(value) and value.__module__.startswith("gradlab.") and (not name.startswith("_") or name in _ASKED_BY_PYTHON):
            code = value.__code__
            takes = code.co_argcount + code.co_kwonlyargcount > 1 or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
            if takes and code.co_varnames[1:2] != ("memory_format",):
                setattr(kind, name, named(value))


def of_its_class(function: F) -> F:
    """As `named`, of a method: its errors name the object's class, and the method where it is not `__init__`."""
    end = "" if function.__name__ in ("__init__", "__call__", "__iter__") else f".{function.__name__}"

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception as error:
            explain(error, type(self).__name__ + end, function, (self, *args), kwargs)

    call.names_itself = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def name_classes(kind: type, methods: str = "__init__") -> None:
    """For `__init_subclass__`: let these methods of a class of the library's say whose they are."""
    if kind.__module__.startswith("gradlab."):
        for name in methods.split():
            value = vars(kind).get(name)
            if type(value) is FunctionType and not hasattr(value, "names_itself"):
                setattr(kind, name, of_its_class(value))


def _counts_frames(value: Any) -> bool:
    return type(value) is FunctionType and value.__qualname__.partition(".")[0] in ("unary", "binary", "viewing", "matrix_product")


def explain(
    error: Exception, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, depth: int = 0
) -> NoReturn:
    """Raise what a public function is to raise for an error that came out of it; called in its `except`. depth: of calls between."""
    try:
        raise _better(error, sys._getframe(2 + depth), name, function, args, kwargs)
    finally:
        del error, args, kwargs  # the error's traceback holds this frame, which is to hold no error


def _better(error: Exception, caller: Any, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Exception:
    while caller is not None and caller.f_code.co_filename.endswith(_BETWEEN):
        caller = caller.f_back
    if caller is not None and inside[caller.f_code.co_filename]:
        return error  # a part of another function, which knows what it was given
    kind = type(error)
    deliberate, text = _raised(error.__traceback__), str(error)
    if deliberate is None:
        return error
    if isinstance(error, NoInteger):
        value = error.value
        what = next((p for p, given in _given(function, args, kwargs) if _holds(given, value)), None)
        refused = TypeError(f"{name}: {text if what is None else _is_not(what, INTEGER, value)}")
        refused.__suppress_context__ = True
        return refused.with_traceback(error.__traceback__)
    if deliberate and (kind in PREFIXED or (isinstance(error, PREFIXED_BASES) and error.args == (text,))):
        if not (_OWN.match(text) and name.startswith("__")) and name.partition(".")[0].strip("_").lower() not in text.lower():
            error.args = (f"{name}: {text}" if text else f"{name}: cannot use what it was given: {_listed(function, args, kwargs)}",)
        return error
    if deliberate:
        return error
    if kind is TypeError and _OWN.match(text) and f"{getattr(function, '__name__', name)}()" in text:
        return error  # of the call itself: a missing argument, an unknown keyword
    made = next((base if base in PREFIXED else _BECOMES[base] for base in kind.__mro__ if base in PREFIXED or base in _BECOMES), None)
    if made is None:
        return error
    new = made(_said(error, name, function, args, kwargs or {}))
    new.__cause__ = error
    new.__suppress_context__ = True
    return new.with_traceback(error.__traceback__)


def _holds(given: Any, value: Any) -> bool:
    return given is value or (isinstance(given, (list, tuple)) and any(part is value for part in given))


def _raised(trace: TracebackType | None) -> bool | None:
    """Whether the error was raised by a `raise` of the library's; False where Python or NumPy raised it, None where code of users' did, or
    passed it on."""
    if trace is None:
        return False
    last, first = trace, True
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not first and not inside[file] and not _of_python[file]:
            return None
        first, last, trace = False, trace, trace.tb_next
    code = last.tb_frame.f_code
    return inside[code.co_filename] and code.co_code[last.tb_lasti] == RAISE


def _given(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """What a function was given, each by its parameter's name."""
    try:
        bound = inspect.signature(function).bind_partial(*args, **(kwargs or {}))
    except (TypeError, ValueError):
        return [*((str(i), value) for i, value in enumerate(args)), *(kwargs or {}).items()]
    found: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind, default = bound.signature.parameters[name].kind, bound.signature.parameters[name].default
        if name == "self" or (value is default and value is None):
            continue
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found += [(f"{name}[{i}]" if len(value) > 1 else name, v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found += value.items()
        else:
            found.append((name, value))
    return found


def describe(value: Any) -> str:
    """A value in a few words: of a tensor its type and shape."""
    array = getattr(value, "_array", None)
    if array is not None and hasattr(array, "shape") and not isinstance(value, type):
        return f"a tensor of {getattr(array, 'dtype', '')} and shape {tuple(array.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, (list, tuple)) and any(hasattr(part, "_array") for part in value):
        inner = ", ".join(describe(part) for part in value[:4]) + (", …" if len(value) > 4 else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    try:
        text = repr(value)
    except Exception:  # of a class of users', whose repr fails
        text = object.__repr__(value)
    return text if len(text) < 80 else f"{text[:76]}…"


def _listed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    return ", ".join(f"{name}={describe(value)}" for name, value in _given(function, args, kwargs))


def _said(error: Exception, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = _given(function, args, kwargs)
    if isinstance(error, AttributeError) and error.obj is not None:
        for parameter, value in given:
            if value is error.obj or (isinstance(value, (list, tuple)) and any(v is error.obj for v in value)):
                wanted = "a tensor" if error.name in _OF_TENSORS or str(error.name).startswith("_") else f"something with {error.name!r}"
                return f"{name}: {parameter} must be {wanted}, not {type(error.obj).__name__}: {describe(value)}"
    text = str(error)
    kinds = set(_QUOTED.findall(text))
    guilty = [(p, v) for p, v in given if type(v).__name__ in kinds and not hasattr(v, "_array")] if kinds else []
    if len(guilty) == 1:
        return f"{name}: {guilty[0][0]}={describe(guilty[0][1])} is not what it takes ({_plain(text)})"
    return f"{name}: cannot use {', '.join(f'{p}={describe(v)}' for p, v in given) or 'no arguments'} ({_plain(text)})"


def _plain(text: str) -> str:
    """An error's first line, shortened."""
    line = text.strip().partition("\n")[0]
    return line if len(line) < 160 else f"{line[:156]}…"


_OF_TENSORS: set[str] = set()


def tensors_have(names: list[str]) -> None:
    """Be told which attributes tensors have, once there are tensors."""
    _OF_TENSORS.update(n for n in names if not n.startswith("__"))
