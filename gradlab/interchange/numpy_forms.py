"""What NumPy's functions are on tensors: their arguments, and gradlab's functions. What a form does not take, NumPy is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as folded
from typing import Any

from gradlab import array_api as xp, linalg as _linalg
from gradlab.interchange.numpy_sums import NONE, SUMS, flat, floating, kept, tensors_of
from gradlab.interchange.values import Declined, found_in, tensor_like
from gradlab.tensor import assembly, einsum as sums, layout, repetition, sort, statistics

# ------------------------------------------------------------ shapes


def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    if order not in ("C", "A") or copy is False:
        raise Declined(f"gradlab reshapes row by row, not with order={order!r}")
    return a.clone().reshape(shape) if copy else a.reshape(shape)


def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(a, -1, order)


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.permute(tuple(range(a.ndim - 1, -1, -1)) if axes is None else tuple(axes))


def _squeeze(a: Any, axis: Any = None) -> Any:
    return a.squeeze() if axis is None else xp.squeeze(a, axis)


def _row(x: Any) -> Any:
    return x.reshape(1) if x.ndim == 0 else x


def _concatenated(before: Callable[[Any], Any], axis: Any) -> Callable[..., Any]:
    def form(tup: Any, *, dtype: Any = None) -> Any:
        parts = [before(x) for x in tensors_of(*tup)]
        place = axis(parts) if callable(axis) else axis
        found = xp.concat(parts, axis=place)
        return found if dtype is None else found.to(dtype=dtype)

    return form


def _concatenate(arrays: Any, /, axis: Any = 0, *, dtype: Any = None) -> Any:
    found = xp.concat(tensors_of(*arrays), axis=axis)
    return found if dtype is None else found.to(dtype=dtype)


def _stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    found = xp.stack(tensors_of(*arrays), axis=axis)
    return found if dtype is None else found.to(dtype=dtype)


def _column(x: Any) -> Any:
    return x.reshape(-1, 1) if x.ndim < 2 else x


def _deep(x: Any) -> Any:
    return x.reshape(1, -1, 1) if x.ndim < 2 else x.unsqueeze(-1) if x.ndim == 2 else x


def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    return xp.unstack(x, axis=axis)


# ------------------------------------------------------------ elements


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    a, *bounds = tensors_of(a, *(b for b in (low, high) if b is not None))
    ends = iter(bounds)
    a = a if low is None else a.maximum(next(ends))
    return a if high is None else a.minimum(next(ends))


def _where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None or y is None:
        return tuple(condition.nonzero(as_tuple=True))
    like = found_in([condition, x, y])[0]
    either = (v if isinstance(v, (int, float)) else tensor_like(v, like) for v in (x, y))
    return xp.where(tensor_like(condition, like).to(dtype="bool"), *either)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    found = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        found = _where(condition, choice, found)
    return found


def _round(a: Any, decimals: int = 0) -> Any:
    return a.round(decimals=decimals)


def _sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    x, axis = flat(a, axis)
    return x.sort(dim=axis, stable=True).values


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if not copy:
        raise Declined("gradlab has no form of it with copy=False")
    return x.nan_to_num(nan, posinf, neginf)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        raise Declined("gradlab has no form of it with period")
    x, known, values = tensors_of(x, xp, fp)
    at = sort.searchsorted(known.detach(), x.detach(), right=True).clamp(1, known.shape[0] - 1)
    x0, x1, y0, y1 = known[at - 1], known[at], values[at - 1], values[at]
    found = y0 + (x - x0) * ((y1 - y0) / (x1 - x0))
    found = found.where(x >= known[0], values[0] if left is None else left)
    return found.where(x <= known[-1], values[-1] if right is None else right)


def _ptp(a: Any, axis: Any = None, *, keepdims: Any = NONE) -> Any:
    return xp.max(a, axis=axis, keepdims=kept(keepdims)) - xp.min(a, axis=axis, keepdims=kept(keepdims))


# ------------------------------------------------------------ products


def _dot(a: Any, b: Any) -> Any:
    a, b = tensors_of(a, b)
    if not (a.ndim and b.ndim):
        return a * b
    return xp.tensordot(a, b, axes=([a.ndim - 1], [max(b.ndim - 2, 0)]))


def _inner(a: Any, b: Any, /) -> Any:
    a, b = tensors_of(a, b)
    return xp.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1])) if a.ndim and b.ndim else a * b


def _outer(a: Any, b: Any) -> Any:
    a, b = tensors_of(a, b)
    return xp.linalg.outer(a.reshape(-1), b.reshape(-1))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = tensors_of(a, b)
    if not isinstance(axes, int):
        axes = tuple([x] if isinstance(x, int) else list(x) for x in axes)
    return xp.tensordot(a, b, axes=axes)


def _einsum(*operands: Any, optimize: Any = False) -> Any:
    if not isinstance(operands[0], str):
        raise Declined("gradlab's einsum takes the letters as a text")
    return sums.einsum(operands[0], *tensors_of(*operands[1:]))


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    a, b = tensors_of(a, b)
    if a.shape[axisa if axis is None else axis] != 3 or (axis is None and {axisa, axisb, axisc} != {-1}):
        raise Declined("gradlab's cross products are of vectors of three elements along one axis")
    return xp.linalg.cross(a, b, axis=-1 if axis is None else axis)


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = tensors_of(a, v)
    if a.shape[0] < v.shape[0]:
        a, v = v, a
    n, m = a.shape[0], v.shape[0]
    padded = xp.concat([a.new_zeros(m - 1), a, a.new_zeros(m - 1)])
    whole = padded.unfold(0, m, 1) @ v.flip(0)
    ends = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    return whole.narrow(0, *ends)


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = tensors_of(a, v)
    if a.shape[0] < v.shape[0]:
        return _convolve(v.conj(), a.flip(0), mode).flip(0)
    return _convolve(a, v.flip(0).conj(), mode)


def _polyval(p: Any, x: Any) -> Any:
    p, x = tensors_of(p, x)
    return folded(lambda y, c: y * x + c, p.unbind(0), xp.zeros_like(x))


def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    if y is not None:
        raise Declined("gradlab has no form of it with y")
    x = m if rowvar or m.ndim < 2 else m.mT
    return statistics.cov(x, correction=(0 if bias else 1) if ddof is None else ddof)


def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    if y is not None:
        raise Declined("gradlab has no form of it with y")
    return statistics.corrcoef(x if rowvar or x.ndim < 2 else x.mT)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return xp.sum(layout.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return _linalg.norm(floating(x), ord, axis, keepdims)


def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = tensors_of(a, b)
    return _linalg.tensorsolve(a, b, dims=axes)


def _like(name: str) -> Callable[..., Any]:
    def form(a: Any, *args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        if options.keys() - {"order", "subok"}:
            raise Declined(f"gradlab has no form of it with {', '.join(options)}")
        return getattr(xp, name)(a, *args, dtype=dtype, device=device)

    return form


FORMS: dict[str, Callable[..., Any]] = {
    **SUMS, "ptp": _ptp,
    "reshape": _reshape, "ravel": _ravel, "transpose": _transpose, "matrix_transpose": xp.matrix_transpose,
    "swapaxes": lambda a, axis1, axis2: a.transpose(axis1, axis2), "squeeze": _squeeze,
    "moveaxis": lambda a, source, destination: a.moveaxis(source, destination),
    "expand_dims": lambda a, axis: xp.expand_dims(a, axis=axis),
    "broadcast_to": lambda array, shape: array.expand((shape,) if isinstance(shape, int) else shape),
    "broadcast_arrays": lambda *args: tuple(repetition.broadcast_tensors(*tensors_of(*args))),
    "concatenate": _concatenate, "stack": _stack, "vstack": _concatenated(lambda x: x.reshape(1, -1) if x.ndim < 2 else x, 0),
    "hstack": _concatenated(_row, lambda parts: 0 if parts[0].ndim == 1 else 1), "dstack": _concatenated(_deep, 2),
    "column_stack": _concatenated(_column, 1), "unstack": _unstack, "clip": _clip, "where": _where, "select": _select, "round": _round,
    "around": _round, "fix": lambda x: x.trunc(), "sort": _sort, "nan_to_num": _nan_to_num, "interp": _interp,
    "copy": lambda a, order="K", subok=False: a.clone(),
    "astype": lambda x, dtype, /, *, copy=True, device=None: xp.astype(x, dtype, copy=copy),
    "sinc": lambda x: x.sinc(), "i0": lambda x: x.i0(), "real_if_close": lambda a, tol=100: a,
    "dot": _dot, "vdot": lambda a, b, /: _dot(*(x.reshape(-1) for x in tensors_of(a, b))), "inner": _inner, "outer": _outer,
    "tensordot": _tensordot, "einsum": _einsum, "kron": lambda a, b: assembly.kron(*tensors_of(a, b)), "cross": _cross,
    "convolve": _convolve, "correlate": _correlate, "polyval": _polyval, "cov": _cov, "corrcoef": _corrcoef, "trace": _trace,
    "vander": lambda x, N=None, increasing=False: _linalg.vander(x, N) if increasing else _linalg.vander(x, N).flip(1),
    "meshgrid": lambda *xi, indexing="xy": tuple(assembly.meshgrid(*tensors_of(*xi), indexing=indexing)),
    "zeros_like": _like("zeros_like"), "ones_like": _like("ones_like"), "empty_like": _like("empty_like"), "full_like": _like("full_like"),
    **dict.fromkeys(("asarray", "asanyarray"), lambda a, dtype=None: a if dtype is None else a.to(dtype=dtype)),
    "array": lambda object, dtype=None: object.clone() if dtype is None else object.to(dtype=dtype, copy=True),
}  # fmt: skip

_ROOM = xp.linalg
LINALG: dict[str, Callable[..., Any]] = {
    **{name: getattr(_ROOM, name) for name in (
        "cholesky", "det", "eigh", "inv", "matrix_norm", "matrix_transpose", "qr", "slogdet", "svdvals", "trace", "vector_norm")},
    "eigvalsh": lambda a, UPLO="L": _linalg.eigvalsh(a, UPLO), "solve": lambda a, b: _ROOM.solve(*tensors_of(a, b)),
    "svd": lambda a, full_matrices=True: _ROOM.svd(a, full_matrices=full_matrices), "norm": _norm, "matmul": lambda x1, x2, /: x1 @ x2,
    "pinv": lambda a, *, rtol=None: _ROOM.pinv(a, rtol=rtol), "matrix_power": lambda a, n: _ROOM.matrix_power(a, n),
    "multi_dot": lambda arrays: _linalg.multi_dot(tensors_of(*arrays)), "cross": lambda x1, x2, /, *, axis=-1: _cross(x1, x2, axis=axis),
    "outer": lambda x1, x2, /: _outer(x1, x2), "tensordot": lambda x1, x2, /, *, axes=2: _tensordot(x1, x2, axes),
    "vecdot": lambda x1, x2, /, *, axis=-1: _ROOM.vecdot(*tensors_of(x1, x2), axis=axis),
    "tensorinv": lambda a, ind=2: _linalg.tensorinv(a, ind),
    "tensorsolve": _tensorsolve,
    "cond": lambda x, p=None: _linalg.cond(x, p),
}  # fmt: skip
