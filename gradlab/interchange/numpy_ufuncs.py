"""NumPy's ufuncs on tensors, by `__array_ufunc__`: the tensors' own operations, graph and all, on any device and in traces.

Of what has no operation here NumPy computes the values, if no tensor requires grad; integers and truth values never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab import array_api
from gradlab.autograd.base import Differentiable
from gradlab.interchange.values import Declined, by_values, recorded, tensor_like, written
from gradlab.tensor import numerics

_NAMED = (
    "arccos arccosh arcsin arcsinh arctan arctanh ceil cos cosh deg2rad exp exp2 expm1 floor isfinite isinf isnan log log10 log1p log2 "
    "logical_not negative positive rad2deg reciprocal sign signbit sin sinh sqrt square tan tanh trunc absolute"
)
_METHODS = {
    **{name: name for name in _NAMED.split()}, "fabs": "abs", "degrees": "rad2deg", "radians": "deg2rad", "invert": "bitwise_not",
    "rint": "round",
}  # fmt: skip
_NAMED_PAIRS = (
    "add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide float_power floor_divide fmax fmin fmod gcd greater greater_equal "
    "heaviside hypot lcm ldexp less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum multiply "
    "nextafter not_equal remainder"
)
_PAIRS = {
    **{name: name for name in _NAMED_PAIRS.split()}, "equal": "eq", "left_shift": "bitwise_left_shift", "power": "pow",
    "right_shift": "bitwise_right_shift", "subtract": "sub",
}  # fmt: skip
_WITHOUT_GRADIENT = {"bitwise_count", "isnat"}


def _cbrt(x: Any) -> Any:
    return x.sign() * x.abs() ** (1 / 3)


def _modf(x: Any) -> Any:
    whole = x.trunc()
    return (x - whole).where(x.isfinite(), x.sign() * 0).where(~x.isnan(), x), whole


def _frexp(x: Any) -> Any:
    if recorded((x,)):
        raise Declined("frexp has no gradient; compute with log2 and exp2")
    return tuple(numerics.frexp(x))


def _conjugate(x: Any) -> Any:
    return x.conj() if hasattr(x, "conj") else x


_OWN: dict[str, Callable[..., Any]] = {
    "cbrt": _cbrt, "modf": _modf, "frexp": _frexp, "conjugate": _conjugate,
    "divmod": lambda x, y: (x.floor_divide(y), x.remainder(y)),
    "matvec": lambda x, y: (x @ y.unsqueeze(-1)).squeeze(-1),
    "vecmat": lambda x, y: (x.unsqueeze(-2) @ y).squeeze(-2),
    "vecdot": lambda x, y: (x * y).sum(-1),
}  # fmt: skip


def _reduced(name: str) -> Callable[..., Any] | None:
    found = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}.get(name)
    if found is not None:
        return getattr(array_api, found)
    if name == "logaddexp":
        return lambda x, axis, keepdims: x.logsumexp(tuple(range(x.ndim)) if axis is None else axis, keepdims)
    return None


def _call(name: str, inputs: Any) -> Any:
    if len(inputs) == 1:
        method = _METHODS.get(name)
        own = _OWN.get(name) if method is None else None
        if method is None and own is None:
            raise Declined("gradlab has no such operation")
        return own(*inputs) if own is not None else getattr(inputs[0], method)()  # type: ignore[arg-type]
    like = next(x for x in inputs if isinstance(x, Differentiable))
    x, y = (tensor_like(x, like) for x in inputs)
    if name in _PAIRS:
        return getattr(x, _PAIRS[name])(y)
    if name not in _OWN:
        raise Declined("gradlab has no such operation")
    return _OWN[name](x, y)


def _reduce(name: str, x: Any, axis: Any = 0, keepdims: bool = False, **options: Any) -> Any:
    own = _reduced(name)
    if own is None or options:
        raise Declined(f"gradlab has no {name}.reduce" + (f" with {', '.join(options)}" if options else ""))
    return own(x, axis=axis, keepdims=keepdims)


def _accumulate(name: str, x: Any, axis: int = 0) -> Any:
    if name in ("add", "multiply"):
        return x.cumsum(axis) if name == "add" else x.cumprod(axis)
    if name in ("maximum", "minimum"):
        return (x.cummax(axis) if name == "maximum" else x.cummin(axis)).values
    if name == "logaddexp":
        return x.logcumsumexp(axis)
    raise Declined(f"gradlab has no {name}.accumulate")


def _outer(name: str, x: Any, y: Any) -> Any:
    like = x if isinstance(x, Differentiable) else y
    x, y = tensor_like(x, like), tensor_like(y, like)
    return _call(name, (x.reshape(*x.shape, *[1] * y.ndim), y))


def _at(ufunc: Any, target: Any, *rest: Any) -> None:
    """Writes into a tensor: on a copy of its values, which it takes over."""
    if recorded((target, rest)):
        raise RuntimeError(f"numpy.{ufunc.__name__}.at: a tensor here requires grad; use index_add or scatter_add, which are recorded")
    values = target.detach().cpu().numpy().copy()
    ufunc.at(values, *(x.detach().cpu().numpy() if isinstance(x, Differentiable) else x for x in rest))  # type: ignore[attr-defined]
    written(target, values)


def run(ufunc: Any, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` answers."""
    name = ufunc.__name__
    if method == "at" and isinstance(inputs[0], Differentiable):
        return _at(ufunc, *inputs)
    out = kwargs.pop("out", ())
    dtype, where = kwargs.pop("dtype", None), kwargs.pop("where", True)
    try:
        if (where is not True and not out) or kwargs.keys() - {"axis", "keepdims"} or (method == "__call__" and kwargs):
            raise Declined(f"gradlab has no form of it with {', '.join([*kwargs, *['where'] * (where is not True)])}")
        if method == "__call__":
            found = _call(name, inputs)
        elif method in ("reduce", "accumulate", "outer"):
            ways: dict[str, Callable[..., Any]] = {"reduce": _reduce, "accumulate": _accumulate, "outer": _outer}
            found = ways[method](name, *inputs, **kwargs)
        else:
            raise Declined(f"gradlab has no {name}.{method}")
        if dtype is not None:
            found = found.to(dtype=dtype)
    except Declined as error:
        options = {**kwargs, **({"dtype": dtype} if dtype is not None else {}), **({"where": where} if where is not True else {})}
        if where is not True and out:
            options["out"] = tuple(np.array(x.detach().numpy() if isinstance(x, Differentiable) else x) for x in out)  # type: ignore[attr-defined]
        called = name if method == "__call__" else f"{name}.{method}"
        found = by_values(called, getattr(ufunc, method), inputs, options, str(error), name not in _WITHOUT_GRADIENT)
        where = True
    if not out:
        return found
    results = found if isinstance(found, tuple) else (found,)
    if where is not True:
        results = tuple(r.where(tensor_like(where, r), tensor_like(o, r)) for r, o in zip(results, out, strict=True))
    placed = tuple(r if o is None else written(o, r) for o, r in zip(out, results, strict=True))
    return placed[0] if len(placed) == 1 else placed
