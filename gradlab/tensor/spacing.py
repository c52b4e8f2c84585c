"""Making tensors of evenly spaced numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.dtype import COMPLEX, INEXACT, as_numpy, by_float32, complex_of, get_default_dtype
from gradlab.named_errors import named_functions
from gradlab.quiet import quietly
from gradlab.spec import whole
from gradlab.tensor.common_arguments import made, plain
from gradlab.tensor.creation import empty, placed, without_memory

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["linspace", "logspace"]


def _spaced(name: str, start: Any, end: Any, steps: Any, dtype: np.dtype[Any], base: float | None = None) -> Any:
    """`steps` numbers from start to end, or `base` to their powers, in `dtype`; for an integer dtype the ends are cut to integers."""
    start, end = (x.item() if isinstance(x, Differentiable) else x for x in (start, end))  # type: ignore[attr-defined]
    n = whole(steps)
    if n < 0:
        raise RuntimeError(f"{name}: steps is not negative, got {n}")
    if dtype not in INEXACT:
        start, end = int(start), int(end)
    kind: Any = complex if dtype in COMPLEX else float
    return quietly(_numbers, kind(start), kind(end), n, dtype, base)


def _chosen(start: Any, end: Any, dtype: Any) -> np.dtype[Any]:
    """The dtype asked for; else the default one, complex if an end is."""
    if dtype is not None:
        return as_numpy(dtype)
    numbers = (x.item() if isinstance(x, Differentiable) else x for x in (start, end))  # type: ignore[attr-defined]
    default = as_numpy(get_default_dtype())
    return complex_of(default) if any(isinstance(x, complex) for x in numbers) else default


def _numbers(start: Any, end: Any, n: int, dtype: np.dtype[Any], base: float | None) -> Any:
    """They are computed in float64, and counted from the nearer end."""
    step = (end - start) / max(n - 1, 1)
    places = np.arange(n)
    found = np.where(places < max(n // 2, 1), start + step * places, end - step * (n - 1 - places))
    return by_float32(found if base is None else np.power(base, found), dtype).astype(dtype)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None, **options: Any
) -> Tensor:  # fmt: skip
    """`steps` evenly spaced numbers from `start` to `end`, both included.

    >>> gl.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    if options:
        plain("linspace", options)
    if out is not None:
        return made("linspace", out, dtype, device, lambda dtype, device: linspace(start, end, steps, dtype=dtype, device=device))
    chosen = _chosen(start, end, dtype)
    if without_memory(device):
        return empty(steps, dtype=dtype, device="meta", requires_grad=requires_grad)
    return placed(_spaced("linspace", start, end, steps, chosen), device, requires_grad)


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """`base` to the power of `steps` evenly spaced numbers from `start` to `end`, both included.

    >>> gl.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    if options:
        plain("logspace", options)
    if out is not None:
        return made("logspace", out, dtype, device, lambda dtype, device: logspace(start, end, steps, base, dtype=dtype, device=device))
    chosen = _chosen(start, end, dtype)
    if without_memory(device):
        return empty(steps, dtype=dtype, device="meta", requires_grad=requires_grad)
    return placed(_spaced("logspace", start, end, steps, chosen, float(base)), device, requires_grad)


named_functions(__name__)
