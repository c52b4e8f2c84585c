"""What NumPy's sums, means, extremes and orders are on tensors; `numpy_forms.py` has the other functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import array_api as xp
from gradlab.autograd.base import Differentiable
from gradlab.dtype import get_default_dtype
from gradlab.interchange.values import Declined, found_in, tensor_like
from gradlab.tensor import numerics, quantiles
from gradlab.tensor.creation import as_tensor

NONE = np._NoValue


def tensors_of(*values: Any) -> tuple[Any, ...]:
    """All as tensors on the device of the first that is one."""
    like = found_in(list(values))[0]
    return tuple(tensor_like(x, like) for x in values)


def floating(x: Any) -> Any:
    return x if x.is_floating_point() or getattr(x.dtype, "is_complex", False) else x.to(dtype=get_default_dtype())


def kept(keepdims: Any) -> bool:
    return keepdims is not NONE and bool(keepdims)


def flat(x: Any, axis: Any) -> tuple[Any, Any]:
    return (x.reshape(-1), 0) if axis is None else (x, axis)


def _summing(name: str, of_floats: bool = False) -> Callable[..., Any]:
    def form(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = NONE) -> Any:
        x = a if dtype is None else a.to(dtype=dtype)
        return getattr(xp, name)(floating(x) if of_floats else x, axis=axis, keepdims=kept(keepdims))

    return form


def _spread(name: str) -> Callable[..., Any]:
    def form(a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: Any = NONE, correction: Any = NONE) -> Any:
        x = floating(a) if dtype is None else a.to(dtype=dtype)
        return getattr(xp, name)(x, axis=axis, correction=ddof if correction is NONE else correction, keepdims=kept(keepdims))

    return form


def _choosing(name: str) -> Callable[..., Any]:
    return lambda a, axis=None, *, keepdims=NONE: getattr(xp, name)(a, axis=axis, keepdims=kept(keepdims))


def _without_nan(name: str, fill: float) -> Callable[..., Any]:
    """Sums without NaNs."""

    def form(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = NONE) -> Any:
        x = a if dtype is None else a.to(dtype=dtype)
        return getattr(xp, name)(x.where(~x.isnan(), fill), axis=axis, keepdims=kept(keepdims))

    return form


def _nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = NONE) -> Any:
    x = floating(a if dtype is None else a.to(dtype=dtype))
    known = ~x.isnan()
    total = xp.sum(x.where(known, 0.0), axis=axis, keepdims=kept(keepdims))
    return total / xp.sum(known, axis=axis, keepdims=kept(keepdims))


def _nanvar(a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: Any = NONE) -> Any:
    x = floating(a if dtype is None else a.to(dtype=dtype))
    known = ~x.isnan()
    apart = (x - _nanmean(x, axis, keepdims=True)).where(known, 0.0)
    count = xp.sum(known, axis=axis, keepdims=kept(keepdims))
    return xp.sum(apart * apart, axis=axis, keepdims=kept(keepdims)) / (count - ddof).to(dtype=x.dtype)


def _nanextreme(name: str, fill: float) -> Callable[..., Any]:
    def form(a: Any, axis: Any = None, *, keepdims: Any = NONE) -> Any:
        if not a.is_floating_point():
            return getattr(xp, name)(a, axis=axis, keepdims=kept(keepdims))
        known = ~a.isnan()
        found = getattr(xp, name)(a.where(known, fill), axis=axis, keepdims=kept(keepdims))
        return found.where(xp.any(known, axis=axis, keepdims=kept(keepdims)), float("nan"))

    return form


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = NONE) -> Any:
    if returned:
        raise Declined("gradlab has no form of it with returned=True")
    x = floating(as_tensor(a))
    if weights is None:
        return xp.mean(x, axis=axis, keepdims=kept(keepdims))
    w = tensor_like(weights, x).to(dtype=x.dtype)
    if w.ndim == 1 and x.ndim > 1:
        w = w.reshape(*(-1 if d == (axis % x.ndim) else 1 for d in range(x.ndim)))
    return xp.sum(x * w, axis=axis, keepdims=kept(keepdims)) / xp.sum(w.expand(x.shape), axis=axis, keepdims=kept(keepdims))


def _quantile(scale: float, nan: bool = False) -> Callable[..., Any]:
    def form(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: Any = NONE) -> Any:
        if method not in ("linear", "lower", "higher", "nearest", "midpoint") or isinstance(axis, tuple):
            raise Declined(f"gradlab has no quantiles by {method!r} along {axis}")
        x = floating(as_tensor(a))
        places = tensor_like(q, x).to(dtype=x.dtype) / scale
        of = quantiles.nanquantile if nan else quantiles.quantile
        return of(x, places, axis, keepdim=kept(keepdims), interpolation=method)

    return form


def _median(a: Any, axis: Any = None, *, keepdims: Any = NONE) -> Any:
    return _quantile(1)(a, 0.5, axis, keepdims=keepdims)


def _nanmedian(a: Any, axis: Any = None, *, keepdims: Any = NONE) -> Any:
    return _quantile(1, True)(a, 0.5, axis, keepdims=keepdims)


def _cumulated(name: str, fill: float | None = None) -> Callable[..., Any]:
    def form(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        x, axis = flat(a if dtype is None else a.to(dtype=dtype), axis)
        return getattr(x if fill is None else x.where(~x.isnan(), fill), name)(axis)

    return form


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    if x is None:
        (y,) = tensors_of(y)
        steps = dx
    else:
        y, x = tensors_of(y, x)
        steps = x.diff(dim=-1 if x.ndim == 1 else axis)
        if x.ndim == 1:
            steps = steps.reshape(*(-1 if d == axis % y.ndim else 1 for d in range(y.ndim)))
    n = y.shape[axis]
    return ((y.narrow(axis, 1, n - 1) + y.narrow(axis, 0, n - 1)) / 2 * steps).sum(axis)


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NONE, append: Any = NONE) -> Any:
    if prepend is not NONE or append is not NONE:
        raise Declined("gradlab has no form of it with prepend and append; use concatenate before")
    return a.diff(n, axis)


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    dims = tuple(range(f.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(isinstance(v, (Differentiable, np.ndarray, list)) for v in varargs):
        raise Declined("gradlab has no form of it with coordinates")
    spacing = [float(v) for v in varargs] * (len(dims) if len(varargs) == 1 else 1) or 1
    found = tuple(numerics.gradient(f, spacing=spacing, dim=list(dims), edge_order=edge_order))
    return found[0] if len(found) == 1 else found


SUMS: dict[str, Callable[..., Any]] = {
    "sum": _summing("sum"), "prod": _summing("prod"), "mean": _summing("mean", True), "var": _spread("var"), "std": _spread("std"),
    "max": _choosing("max"), "min": _choosing("min"), "all": _choosing("all"), "any": _choosing("any"), "argmax": _choosing("argmax"),
    "argmin": _choosing("argmin"), "count_nonzero": _choosing("count_nonzero"), "average": _average, "median": _median,
    "nansum": _without_nan("sum", 0), "nanprod": _without_nan("prod", 1), "nanmean": _nanmean, "nanvar": _nanvar,
    "nanstd": lambda *args, **options: _nanvar(*args, **options).sqrt(), "nanmax": _nanextreme("max", float("-inf")),
    "nanmin": _nanextreme("min", float("inf")), "nanmedian": _nanmedian, "quantile": _quantile(1), "percentile": _quantile(100),
    "nanquantile": _quantile(1, True), "nanpercentile": _quantile(100, True), "cumsum": _cumulated("cumsum"),
    "cumprod": _cumulated("cumprod"), "nancumsum": _cumulated("cumsum", 0), "nancumprod": _cumulated("cumprod", 1),
    "cumulative_sum": xp.cumulative_sum, "cumulative_prod": xp.cumulative_prod, "trapezoid": _trapezoid, "diff": _diff,
    "ediff1d": lambda ary: ary.reshape(-1).diff(), "gradient": _gradient,
}  # fmt: skip
