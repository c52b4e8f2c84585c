"""What an operation takes, read from the signature of its reference: positional parameters are tensors, keyword-only ones static values."""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

REQUIRED: Any = inspect.Parameter.empty
_KINDS = (float, int, bool, str, tuple)
_TAKEN = {"device", "g", "T", "index"}  # what formulas, expressions and rows mean otherwise


class Param(NamedTuple):
    """A static parameter. kind: float, int, bool, str, tuple, or None for whatever is hashable."""

    kind: type | None
    default: Any


class Signature(NamedTuple):
    """inputs: the tensors' names; optional: those that may be None; writes: the reference takes the outputs after them and writes there."""

    inputs: tuple[str, ...]
    optional: frozenset[str]
    params: dict[str, Param]
    writes: bool

    def __str__(self) -> str:
        inputs = [f"{name}=None" if name in self.optional else name for name in self.inputs]
        params = [name if p.default is REQUIRED else f"{name}={p.default!r}" for name, p in self.params.items()]
        return f"({', '.join([*inputs, *(['*', *params] if params else [])])})"


def read(name: str, reference: Callable[..., Any], outputs: Sequence[str] | None) -> Signature:
    """The signature of an operation. TypeError or ValueError for one that cannot be an operation's."""
    if not callable(reference):
        raise TypeError(f"custom_op {name}: the reference is a function of NumPy arrays, not {type(reference).__name__}")
    try:
        if isinstance(reference, np.ufunc):
            raise TypeError
        found = inspect.signature(reference, eval_str=True)
    except NameError:
        found = inspect.signature(reference)
    except (TypeError, ValueError):
        raise TypeError(f"custom_op {name}: {reference!r} does not say which tensors it takes; wrap it: lambda x: …(x)") from None
    inputs, optional, params = [], set(), {}
    for p in found.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"custom_op {name}: the reference takes {p}; name each tensor (positional) and each parameter (keyword-only)")
        _check_name(name, p.name)
        if p.kind is p.KEYWORD_ONLY:
            params[p.name] = Param(_kind(name, p), p.default)
            continue
        inputs.append(p.name)
        if p.default is None:
            optional.add(p.name)
        elif p.default is not REQUIRED:
            raise TypeError(
                f"custom_op {name}: {p.name}={p.default!r} is positional, so it is a tensor, which may default to None only; "
                f"a static parameter is keyword-only: put a * before it"
            )
    writes = bool(outputs) and len(inputs) > len(outputs or ()) and tuple(inputs[-len(outputs or ()) :]) == tuple(outputs or ())
    if writes:
        del inputs[-len(outputs or ()) :]
    if not inputs:
        raise TypeError(f"custom_op {name}: an operation has at least one input; the reference takes no positional parameter")
    return Signature(tuple(inputs), frozenset(optional), params, writes)


def _check_name(name: str, parameter: str) -> None:
    if parameter in _TAKEN or parameter.startswith(("g_", "k_", "_")) or parameter.endswith(("_spec", "_", "_pack")):
        raise ValueError(f"custom_op {name}: a parameter cannot be called {parameter!r}; that name has a meaning in formulas or kernels")


def _kind(name: str, p: inspect.Parameter) -> type | None:
    if p.annotation is not REQUIRED:
        return p.annotation if p.annotation in _KINDS else None
    if p.default is REQUIRED:
        raise TypeError(f"custom_op {name}: say what the parameter {p.name!r} is, by a default or an annotation such as {p.name}: float")
    return next((kind for kind in _KINDS if type(p.default) is kind), None)


def value_of(name: str, parameter: str, kind: type | None, value: Any) -> Any:
    """A parameter's value as the row gets it: of its kind, and hashable. TypeError otherwise."""
    if kind is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        value = tuple(value)
    if (kind is None or type(value) is kind) and isinstance(value, Hashable):
        return value
    wanted = "something hashable" if kind is None else f"a {kind.__name__}"
    raise TypeError(f"{name}: {parameter} is {wanted}, not {type(value).__name__}")


def bound(name: str, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The inputs in order, and all parameters. TypeError for a call that does not fit."""
    names = signature.inputs
    if len(args) > len(names):
        hint = f"; {', '.join(signature.params)} by name" if signature.params else ""
        raise TypeError(f"{name}{signature}: {len(args)} positional arguments for {len(names)} inputs{hint}")
    inputs = list(args)
    left = dict(kwargs)
    for position, one in enumerate(names):
        if position < len(args):
            if one in left:
                raise TypeError(f"{name}{signature}: {one} is given twice")
        elif one in left:
            inputs.append(left.pop(one))
        elif one in signature.optional:
            inputs.append(None)
        else:
            raise TypeError(f"{name}{signature}: the input {one!r} is missing")
    for one, value in zip(names, inputs):
        if value is None and one not in signature.optional:
            raise TypeError(f"{name}{signature}: the input {one!r} cannot be None")
    params = {}
    for one, (kind, default) in signature.params.items():
        value = left.pop(one, default)
        if value is REQUIRED:
            raise TypeError(f"{name}{signature}: the parameter {one!r} is missing")
        params[one] = value if value is default else value_of(name, one, kind, value)
    if left:
        (wrong, *_) = left
        near = difflib.get_close_matches(wrong, [*names, *signature.params], 1)
        raise TypeError(f"{name}{signature}: there is no parameter {wrong!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return inputs, params
