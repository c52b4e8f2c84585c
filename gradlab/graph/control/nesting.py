"""What control-flow functions take and give: nested tensors, compared by structure and Specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.errors import GraphError
from gradlab.autograd.record import refresh
from gradlab.graph.staging.tree import flatten, has_keys
from gradlab.spec import Spec, spec_of


def tensors_of(value: Any, what: str) -> tuple[list[Any], Any]:
    """The tensors of a nested value, and its structure. TypeError where it holds something else than tensors and None."""
    found, structure = flatten(value)
    odd = _odd(structure)
    if odd is not None:
        raise TypeError(f"{what} holds a {type(odd).__name__} ({odd!r}); use tensors (nested in tuples, lists and dicts) or None")
    for t in found:
        if isinstance(t, Differentiable) and t._meta is not None:
            refresh(t)
    return found, structure


def _odd(structure: Any) -> Any:
    if structure == "tensor":
        return None
    if structure[0] == "value":
        return structure[1]
    return next((o for o in map(_odd, structure[-1]) if o is not None), None)


class Unwritten:
    """Tensors that a body is run on once more where gradients are to be differentiated: as they are now, or GraphError."""

    def __init__(self, what: str, tensors: Sequence[Any]) -> None:
        self.what, self.arrays = what, [(t, t._array) for t in tensors]

    def check(self) -> None:
        for t, array in self.arrays:
            if t._meta is not None:
                refresh(t)
            if t._array is not array:
                raise GraphError(
                    f"{self.what}: a tensor of shape {tuple(array.shape)}, on which gradients of gradients run its body once more, was "
                    f"modified by an in-place operation since; use the out-of-place form there, or clone() the tensor before"
                )


def specs_of(tensors: Sequence[Any]) -> list[Spec]:
    """The tensors' Specs."""
    return [Spec(tuple(t._array.shape), spec_of(t._array).dtype) for t in tensors]


def text(spec: Spec) -> str:
    """float32[3, 4]"""
    return f"{spec.dtype.name}{list(spec.shape)}"


def compare(name: str, first: str, a: tuple[Sequence[Spec], Any], second: str, b: tuple[Sequence[Spec], Any], way_out: str) -> None:
    """TypeError or ValueError where two results do not nest alike or are of other shapes or dtypes; it names both."""
    if a[1] != b[1]:
        raise TypeError(f"{name}: {first} nests as {shown(a[1])}, {second} as {shown(b[1])}; {way_out}")
    for i, (x, y) in enumerate(zip(a[0], b[0], strict=True)):
        if x != y:
            raise ValueError(f"{name}: tensor {i} is {text(x)} in {first}, but {text(y)} in {second}; {way_out}")


def shown(structure: Any) -> str:
    """A structure for people: (tensor, {a: tensor})."""
    if structure == "tensor":
        return "tensor"
    if structure[0] == "value":
        return repr(structure[1])
    if has_keys(structure[0]):
        return "{" + ", ".join(f"{k!r}: {shown(s)}" for k, s in zip(structure[1], structure[2], strict=True)) + "}"
    inside = ", ".join(map(shown, structure[1]))
    return f"[{inside}]" if structure[0] is list else f"({inside}{',' * (len(structure[1]) == 1)})"
