"""The orders in which PyTorch's first versions took arguments, factors before tensors: `x.add_(alpha, y)`, `addmm(beta, x, alpha, a, b)`.

A function that had one takes `*old`, which is empty in a call of today; where it is not, what is here says what was meant, with a
UserWarning.
"""

from __future__ import annotations

from typing import Any

from gradlab.advice import warn
from gradlab.autograd.base import Differentiable


def _deprecated(name: str, today: str) -> None:
    warn(UserWarning, f"This overload of {name} is deprecated, factors stand last today: {today}")


def _refused(name: str, arguments: tuple[Any, ...], today: str) -> TypeError:
    kinds = ", ".join(type(x).__name__ for x in arguments)
    return TypeError(f"{name}: takes {today}, not {len(arguments)} arguments ({kinds})")


def with_factor(name: str, factor: Any, old: tuple[Any, ...]) -> tuple[Any, Any]:
    """What add(input, alpha, other) means: other and alpha. Of two numbers the second is alpha, as in PyTorch."""
    today = f"{name}(other, alpha=...)"
    if len(old) == 1 and not isinstance(factor, Differentiable):
        _deprecated(name, today)
        return (old[0], factor) if isinstance(old[0], Differentiable) else (factor, old[0])
    raise _refused(name, (factor, *old), today)


def with_value(name: str, value: Any, tensor1: Any, old: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """What addcmul(input, value, tensor1, tensor2) means: tensor1, tensor2 and value."""
    today = f"{name}(tensor1, tensor2, value=...)"
    if len(old) != 1 or isinstance(value, Differentiable):
        raise _refused(name, (value, tensor1, *old), today)
    _deprecated(name, today)
    return tensor1, old[0], value


def with_factors(name: str, *arguments: Any) -> tuple[tuple[Any, Any, Any], float, float]:
    """What addmm(beta, input, alpha, mat1, mat2) and its kin mean: the three tensors, beta and alpha. The latter may be left out, and as a
    method's arguments they are input, beta, alpha, mat1, mat2."""
    today = f"{name}(input, a, b, beta=..., alpha=...)"
    tensors = tuple(x for x in arguments if isinstance(x, Differentiable))
    factors = [x for x in arguments if not isinstance(x, Differentiable)]
    last = isinstance(arguments[-1], Differentiable) and isinstance(arguments[-2], Differentiable)
    if len(tensors) != 3 or not 1 <= len(factors) <= 2 or not last:
        raise _refused(name, arguments, today)
    _deprecated(name, today)
    return tensors, factors[0], factors[1] if len(factors) == 2 else 1
