"""`_foreach_add` and its kin: one operation on each tensor of a list, as PyTorch's optimizers and libraries around them call it.

`FUNCTIONS` has them by name. Those that end with an underscore write the tensors in place and return the list; the others return a tuple.
What stands beside the list is a list of as many tensors or numbers, or one tensor or number for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.base import Differentiable

UNARY = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin
    sinh sqrt tan tanh trunc
"""
PAIRS = "add sub mul div pow clamp_min clamp_max maximum minimum lerp addcmul addcdiv"
# What PyTorch calls the arguments beside the list, of which any may be given by name.
WORDS = ("other", "scalar", "scalars", "exponent", "tensors1", "weight", "weights", "tensor1", "tensor2", "value", "src", "mat2")


def _columns(name: str, tensors: Sequence[Any], given: list[Any]) -> list[Sequence[Any]]:
    """Each argument as one thing for each tensor. RuntimeError for an empty list, and for one of another length."""
    if not tensors:
        raise RuntimeError(f"{name}: the list has at least one tensor")
    found: list[Sequence[Any]] = []
    for value in given:
        listed = isinstance(value, (list, tuple))
        if listed and len(value) != len(tensors):
            raise RuntimeError(f"{name}: lists of the same length, got {len(tensors)} and {len(value)}")
        found.append(value if listed else [value] * len(tensors))
    return found


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments in their order, wherever they stand; what remains in `kwargs` are options."""
    return [*args, *(kwargs.pop(word) for word in WORDS if word in kwargs)]


def _method(name: str, x: Any, values: list[Any], options: dict[str, Any]) -> Any:
    bare = name.removesuffix("_")
    if bare in ("maximum", "minimum"):
        number = not isinstance(values[0], Differentiable)
        limited = getattr(x, "clamp_min" if bare == "maximum" else "clamp_max") if number else getattr(x, bare)
        return x.copy_(limited(*values)) if name.endswith("_") else limited(*values)
    if bare in ("addcmul", "addcdiv") and len(values) == 3:
        values, options = values[:2], {"value": values[2]}
    return getattr(x, name)(*values, **options)


def _make(name: str) -> Callable[..., Any]:
    full = f"_foreach_{name}"

    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = _given(args, kwargs)
        if name == "pow" and not isinstance(self, (list, tuple)):  # a number to the powers in a list
            return tuple(self**x for x in given[0])
        if name.startswith("addc") and len(given) == 3 and isinstance(given[2], Differentiable):
            given[2] = given[2].tolist()  # type: ignore[attr-defined]
        columns = _columns(full, self, given)
        found = [_method(name, x, [column[i] for column in columns], kwargs) for i, x in enumerate(self)]
        return self if name.endswith("_") else tuple(found)

    return _named(foreach, full, f"`{name}` of each tensor.")


def _named(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The norm of that order of each tensor."""
    return tuple(x.norm(ord, dtype=dtype) for x in self)


def _powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The sum of |x| to that power of each tensor."""
    return tuple((x if dtype is None else x.to(dtype=dtype)).abs().pow(ord).sum() for x in self)


def _max(self: Any) -> tuple[Any, ...]:
    """The largest element of each tensor."""
    return tuple(x.max() for x in self)


def _mm(self: Any, mat2: Any) -> tuple[Any, ...]:
    """The product of each pair of matrices."""
    return tuple(a @ b for a, b in zip(self, *_columns("_foreach_mm", self, [mat2]), strict=True))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"_foreach_{name}": _make(name)
    for bare in (*UNARY.split(), *PAIRS.split())
    for name in (bare, f"{bare}_")
} | {f"_foreach_{name}": _make(name) for name in ("clone", "zero_", "copy_")} | {
    f"_foreach{function.__name__}": function for function in (_norm, _powsum, _max, _mm)
}  # fmt: skip
