"""What a program file says in JSON: plain values, dtypes, sizes with unknown parts, and how arguments nest. Both directions, data only.

Numbers, strings, bools and None are themselves; everything else is an object of one key, such as {"dtype": "float32"}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.device import Device
from gradlab.dtype import as_numpy, from_numpy, named
from gradlab.graph.ir.dims import OPERATIONS, Dim, Ratio, evaluate
from gradlab.graph.staging.tree import has_keys
from gradlab.op import result_class
from gradlab.spec import Spec

KEY, FORMAT = "gradlab.program", 1
# Of rows whose meaning changed since they were first written to files: what this gradlab computes. Others have version 1.
ROW_VERSIONS: dict[str, int] = {}

MAX_DEPTH = 32  # of nesting: values, structures, sub-graphs, expressions
MAX_PARTS = 4096  # entries of one tuple, structure or expression
MAX_NUMBER = 1 << 63
MAX_POWER = 16
TAKES = "a program takes and gives tensors, numbers, strings and None, nested in tuples, lists and dicts"


class LoadError(ValueError):
    """A program file that cannot be read: damaged, cut short, made by hand, or of a newer gradlab. The message says what is wrong."""


def row_version(name: str) -> int:
    """Which meaning of a row this gradlab computes."""
    return ROW_VERSIONS.get(name, 1)


# ---------------------------------------------------------------- writing


def encoded(value: Any) -> Any:
    """A parameter's value as JSON. TypeError for what a file cannot hold."""
    if isinstance(value, (Dim, Ratio)):
        return {"ratio" if isinstance(value, Ratio) else "size": _listed(value.expr)}
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [encoded(value.real), encoded(value.imag)]}
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, np.generic):
        return encoded(value.item())
    if isinstance(value, np.dtype):
        return {"dtype": from_numpy(value).name}
    if isinstance(value, Device):
        return {"device": value.type}
    if isinstance(value, slice):
        return {"slice": [encoded(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, tuple):
        return {"tuple": [encoded(v) for v in value]}
    if isinstance(value, list):
        return [encoded(v) for v in value]
    raise TypeError(f"a {type(value).__name__} cannot be written to a program file")


def shape_text(shape: Sequence[Any]) -> list[Any]:
    """A shape as JSON: sizes, and expressions of unknown ones."""
    return [encoded(size) if isinstance(size, Dim) else int(size) for size in shape]


def structure_text(structure: Any) -> Any:
    """How tensors nest (`graph.tree.flatten`) as JSON. TypeError where something else than tensors and plain values is among them."""
    if structure == "tensor":
        return "tensor"
    kind = structure[0]
    if kind == "value":
        value = structure[1]
        if value is None or type(value) in (bool, int, float, str):
            return {"value": encoded(value)}
        raise TypeError(f"a {type(value).__name__} among arguments and results; {TAKES}")
    if has_keys(kind):
        if not issubclass(kind, dict):
            raise TypeError(f"a {kind.__name__} with tensors among arguments and results; {TAKES}")
        for key in structure[1]:
            if type(key) not in (str, int):
                raise TypeError(f"a key {key!r} of a dict among arguments and results; keys are strings or integers")
        return {"dict": [list(structure[1]), [structure_text(s) for s in structure[2]]]}
    parts = [structure_text(s) for s in structure[1]]
    if hasattr(kind, "_fields"):
        return {"named": [kind.__name__, list(kind._fields), parts]}
    return {"list" if issubclass(kind, list) else "tuple": parts}


def _listed(expression: Any) -> Any:
    return [_listed(e) for e in expression] if isinstance(expression, (tuple, list)) else expression


def nested(structure: Any, tensors: Iterator[Any]) -> Any:
    """The tensors put together as the JSON of a structure says."""
    if structure == "tensor":
        return next(tensors)
    ((kind, content),) = structure.items()
    if kind == "value":
        return decoded(content)
    if kind == "dict":
        return {k: nested(s, tensors) for k, s in zip(content[0], content[1], strict=True)}
    if kind == "named":
        return result_class(content[0], tuple(content[1]))(*[nested(s, tensors) for s in content[2]])
    parts = [nested(s, tensors) for s in content]
    return parts if kind == "list" else tuple(parts)


# ---------------------------------------------------------------- reading: nothing in here trusts what it gets


def decoded(text: Any, hints: Mapping[str, int] | None = None, depth: int = 0) -> Any:
    """The value of its JSON. hints: what comparisons see of unknown sizes, by name. LoadError for anything else."""
    if depth > MAX_DEPTH:
        raise LoadError("values nest too deeply")
    if text is None or type(text) in (bool, str):
        return text
    if type(text) is int:
        return _number(text)
    if type(text) is float:
        return text
    if type(text) is list:
        return [decoded(v, hints, depth + 1) for v in _parts(text)]
    kind, content = pair(text)
    if kind == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if kind == "complex" and type(content) is list and len(content) == 2:
        parts = [decoded(v, None, depth + 1) for v in content]
        if all(type(part) is float for part in parts):
            return complex(*parts)
    if kind == "dtype":
        return dtype_of(content)
    if kind == "device" and content in ("cpu", "cuda"):
        return Device(content)
    if kind == "tuple" and type(content) is list:
        return tuple(decoded(v, hints, depth + 1) for v in _parts(content))
    if kind == "slice" and type(content) is list and len(content) == 3:
        return slice(*(decoded(v, hints, depth + 1) for v in content))
    if kind in ("size", "ratio") and hints is not None:
        return sized(content, hints, kind == "ratio")
    raise LoadError(f"a value {short(text)} has no meaning")


def sized(text: Any, hints: Mapping[str, int], ratio: bool = False) -> Any:
    """The unknown size of an expression, or the number it turns out to be."""
    expression = _expression(text, hints, [0], 0)
    try:
        value = evaluate(expression, hints)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise LoadError(f"the size {short(text)} cannot be computed: {error}") from None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or abs(value) >= MAX_NUMBER:
        raise LoadError(f"the size {short(text)} is no number that a size can be")
    if not isinstance(expression, (str, tuple)):
        return value
    if ratio:
        return Ratio(float(value), expression)
    if not isinstance(value, int):
        raise LoadError(f"the size {short(text)} is not a whole number")
    return Dim(value, expression)


def _expression(text: Any, hints: Mapping[str, int], seen: list[int], depth: int) -> Any:
    seen[0] += 1
    if seen[0] > 256 or depth > MAX_DEPTH:
        raise LoadError("the expression of a size is too long")
    if type(text) is str:
        if text not in hints:
            raise LoadError(f"a size named {short(text)} is not among the program's unknown sizes")
        return text
    if type(text) is int:
        return _number(text)
    if type(text) is float and math.isfinite(text):
        return text
    if type(text) is not list or len(text) < 2 or type(text[0]) is not str or text[0] not in OPERATIONS:
        raise LoadError(f"the expression {short(text)} of a size has no meaning")
    name, *parts = text
    operands = {"neg": 1, "floor": 1, "ceil": 1, "trunc": 1, "add": len(parts), "mul": len(parts)}.get(name, 2)
    if len(parts) != operands:
        raise LoadError(f"the expression {short(text)} of a size has {len(parts)} operands")
    found = tuple(_expression(p, hints, seen, depth + 1) for p in parts)
    power = name == "pow" and (not isinstance(found[1], (int, float)) or abs(found[1]) > MAX_POWER or "'pow'" in repr(found[0]))
    if power:
        raise LoadError(f"the expression {short(text)} of a size has a power that is too large")
    return (name, *found)


def structure_of(text: Any, depth: int = 0) -> tuple[Any, int]:
    """The JSON of a structure, found to be one, and how many tensors it has."""
    if text == "tensor":
        return text, 1
    if depth > MAX_DEPTH:
        raise LoadError("arguments or results nest too deeply")
    kind, content = pair(text)
    if kind == "value":
        value = decoded(content)
        if value is not None and type(value) not in (bool, int, float, str):
            raise LoadError(f"a structure holds the value {short(content)}")
        return text, 0
    parts: Any = content
    if kind == "dict" and type(content) is list and len(content) == 2:
        keys, parts = content
        if type(keys) is not list or any(type(k) not in (str, int) for k in keys) or len(set(keys)) != len(keys):
            raise LoadError("a dict in a structure has keys that no program has")
        if type(parts) is not list or len(keys) != len(parts):
            raise LoadError("a dict in a structure has not as many keys as values")
    elif kind == "named" and type(content) is list and len(content) == 3:
        name, fields, parts = content
        names = [name, *fields] if type(fields) is list else []
        good = names and all(type(n) is str and n.isidentifier() and not n.startswith("_") for n in names[1:]) and type(name) is str
        if not good or not name.isidentifier() or type(parts) is not list or len(parts) != len(fields) or len(set(fields)) != len(fields):
            raise LoadError("a named tuple in a structure is not well formed")
    elif kind not in ("tuple", "list") or type(content) is not list:
        raise LoadError(f"the structure {short(text)} has no meaning")
    return text, sum(structure_of(p, depth + 1)[1] for p in _parts(parts))


def spec_of_text(dtype: Any, shape: Any, hints: Mapping[str, int]) -> Spec:
    """The Spec of a value as a file writes it."""
    if type(shape) is not list or len(shape) > 64:
        raise LoadError(f"{short(shape)} is no shape")
    sizes = []
    for size in shape:
        number = size if type(size) is int else decoded(size, hints)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= int.__int__(number) < 1 << 48:
            raise LoadError(f"{short(size)} is no size of a dimension")
        sizes.append(number)
    return Spec(tuple(sizes), dtype_of(dtype))


def dtype_of(name: Any) -> np.dtype[Any]:
    """The dtype of that name."""
    try:
        return as_numpy(named(name))
    except (TypeError, ValueError, KeyError, AttributeError):
        raise LoadError(f"there is no dtype {short(name)}") from None


def pair(text: Any) -> tuple[str, Any]:
    """The one key and its content."""
    if type(text) is not dict or len(text) != 1:
        raise LoadError(f"an entry {short(text)} has no meaning")
    ((kind, content),) = text.items()
    return kind, content


def _parts(parts: list[Any]) -> list[Any]:
    if len(parts) > MAX_PARTS:
        raise LoadError(f"a value has {len(parts)} parts; there are at most {MAX_PARTS}")
    return parts


def _number(value: int) -> int:
    if not -MAX_NUMBER <= value < 2 * MAX_NUMBER:
        raise LoadError("a whole number has more than 64 bits")
    return value


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Differentiable)
