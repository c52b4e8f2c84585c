"""Other libraries' functions on the numbers of tensors: where nothing is recorded, and where that is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import refresh, wrap
from gradlab.dtype import from_numpy
from gradlab.tensor.creation import as_tensor


class Declined(Exception):
    """Raised by a tensor's own form of a function where it does not know what was asked: the text says what."""


def replaced(value: Any, change: Callable[[Any], Any], kinds: Any = Differentiable) -> Any:
    """Sequences and dicts with `change` made to all that is of one of `kinds` in them."""
    if isinstance(value, kinds):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(replaced(part, change, kinds) for part in value)
    if type(value) is dict:
        return {key: replaced(part, change, kinds) for key, part in value.items()}
    return value


def found_in(value: Any) -> list[Any]:
    """The tensors in arguments."""
    found: list[Any] = []
    replaced(value, found.append)
    return found


def recorded(value: Any) -> bool:
    """Whether a tensor among these requires grad, and operations are recorded."""
    if not current().recording:
        return False
    for x in found_in(value):
        if x._meta is not None:
            refresh(x)
        if x._edge is not None:
            return True
    return False


def as_tensors(value: Any) -> Any:
    """What NumPy has computed, as tensors. Arrays of types that tensors do not have stay NumPy's."""

    def tensor(array: Any) -> Any:
        array = np.asarray(array)
        try:
            dtype = from_numpy(array.dtype).dtype
        except TypeError:
            return array
        return wrap(array.astype(dtype, copy=False))

    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(as_tensors, value))
    return replaced(value, tensor, (np.ndarray, np.generic))


def by_values(name: str, function: Any, args: Any, kwargs: Any, why: str = "", gradient: bool = True) -> Any:
    """Let NumPy compute with the numbers, and give tensors. RuntimeError where the result would have to have a gradient, and TypeError
    where the numbers are not on the CPU: both say the way out."""
    given = (args, kwargs)
    if gradient and recorded(given):
        reason = why or "NumPy would compute it outside of the graph, and gradlab has no operation for it"
        raise RuntimeError(f"numpy.{name}: a tensor here requires grad, and {reason}; use .detach() where no gradient is wanted")
    places = {x.device for x in found_in(given)}
    if elsewhere := [place for place in places if place.type != "cpu"]:
        raise TypeError(f"numpy.{name}: a tensor here is on {elsewhere[0]}, where NumPy does not compute; use .cpu() first")
    args, kwargs = (replaced(part, lambda x: x.detach().numpy()) for part in given)
    return as_tensors(function(*args, **kwargs))


def written(target: Any, found: Any) -> Any:
    """A result in the place that `out=` names: a tensor, or an array, which no graph leads to."""
    if isinstance(target, Differentiable):
        return target.copy_(as_tensor(found))  # type: ignore[attr-defined]
    np.copyto(target, found.numpy() if isinstance(found, Differentiable) else found, casting="same_kind")  # type: ignore[attr-defined]
    return target


def tensor_like(value: Any, other: Any) -> Any:
    """A number, a sequence or an array as a tensor beside another one."""
    if isinstance(value, Differentiable):
        return value
    try:
        return as_tensor(value, device=other.device)
    except TypeError as error:  # texts and None among what is broadcast: NumPy has them as objects
        raise Declined(str(error)) from None
