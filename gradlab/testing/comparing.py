"""`assert_close`, which says where two values differ, and `make_tensor`, random tensors for tests. Names and meanings follow PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, COMPLEX, FLOATING, as_numpy, bfloat16, complex64, complex128, finfo, float16, float32, float64
from gradlab.layout import strided
from gradlab.tensor import Tensor
from gradlab.tensor.creation import as_tensor
from gradlab.tensor.random import rand, randint

# What rounding may do: relative and absolute.
TOLERANCES = {
    float16.dtype: (1e-3, 1e-5), bfloat16.dtype: (1.6e-2, 1e-5), float32.dtype: (1.3e-6, 1e-5), float64.dtype: (1e-7, 1e-7),
    complex64.dtype: (1.3e-6, 1e-5), complex128.dtype: (1e-7, 1e-7),
}  # fmt: skip

Message = str | Callable[[str], str] | None


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
    msg: Message = None,
) -> None:  # fmt: skip
    """Raise AssertionError, saying where and by how much, unless |actual - expected| ≤ atol + rtol · |expected| everywhere.

    Both are tensors, NumPy arrays, numbers, or sequences and mappings of them of one structure. Shapes, dtypes, layouts and devices are
    equal, too. Of meta tensors these are all; of sparse ones what they stand for is compared.
    rtol and atol: both or neither; by default those of the dtype (float32 1.3e-6 and 1e-5, float64 1e-7 both, integers
    0, complex types as their parts), of the less exact one where they differ. equal_nan: NaN equals NaN. msg: a text in place of
    the message, or a function of it.

    >>> import gradlab as gl
    >>> gl.testing.assert_close(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 2.000001]))
    >>> gl.testing.assert_close([gl.ones(2)], [gl.tensor([1.0, 1.5])])
    Traceback (most recent call last):
    ...
    AssertionError: Tensors are not close! (item [0])
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.3333333333333333 at index (1,) (up to 1.3e-06 allowed)
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"assert_close: rtol and atol are given both or neither, not {rtol} and {atol}")
    found = _difference(actual, expected, "", (rtol, atol), equal_nan, (check_device, check_dtype, check_stride, check_layout))
    if found is not None:
        raise AssertionError(msg(found) if callable(msg) else msg if msg is not None else found)


Checks = tuple[bool, bool, bool, bool]
Limits = tuple[float | None, float | None]


def _difference(a: Any, b: Any, place: str, limits: Limits, equal_nan: bool, checks: Checks) -> str | None:
    where = f" (item {place})" if place else ""
    single = (Tensor, np.ndarray, np.generic, int, float, complex)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            return f"The keys of the mappings do not match{where}: {sorted(map(repr, set(a) ^ set(b)))} are in one alone"
        parts = [(f"{place}[{k!r}]", a[k], b[k]) for k in a]
    elif isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str) and not isinstance(b, str):
        if len(a) != len(b):
            return f"The lengths of the sequences do not match{where}: {len(a)} != {len(b)}"
        parts = [(f"{place}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif a is None and b is None:
        return None
    elif isinstance(a, single) and isinstance(b, single):
        return _unlike(a, b, where, limits, equal_nan, checks)
    else:
        raise TypeError(f"assert_close: cannot compare {type(a).__name__} with {type(b).__name__}{where}")
    return next((found for p, x, y in parts if (found := _difference(x, y, p, limits, equal_nan, checks)) is not None), None)


def _unlike(a: Any, b: Any, where: str, limits: Limits, equal_nan: bool, checks: Checks) -> str | None:
    """How two tensors, arrays or numbers differ."""
    numbers = not any(isinstance(x, (Tensor, np.ndarray)) for x in (a, b))
    if isinstance(a, bool) is not isinstance(b, bool) and numbers:
        raise TypeError(f"assert_close: cannot compare {type(a).__name__} with {type(b).__name__}{where}")
    x, y = (v if isinstance(v, Tensor) else as_tensor(v, dtype=float64 if isinstance(v, float) else None) for v in (a, b))
    device, dtype, stride, layout = checks
    if tuple(x.shape) != tuple(y.shape):
        return f"The values for attribute 'shape' do not match{where}: {x.shape} != {y.shape}"
    if device and x.device != y.device:
        return f"The values for attribute 'device' do not match{where}: {x.device} != {y.device}"
    if dtype and numbers and x._array.dtype.kind != y._array.dtype.kind:
        return f"The types do not match{where}: {type(a).__name__} != {type(b).__name__}"
    if dtype and not numbers and x.dtype != y.dtype:
        return f"The values for attribute 'dtype' do not match{where}: {x.dtype} != {y.dtype}"
    if layout and x.layout is not y.layout:
        return f"The values for attribute 'layout' do not match{where}: {x.layout} != {y.layout}"
    if x.is_meta or y.is_meta:
        return None
    x, y = (t if t.layout is strided else t.to_dense() for t in (x, y))
    if stride and x.stride() != y.stride():
        return f"The values for attribute 'stride()' do not match{where}: {x.stride()} != {y.stride()}"
    standard = [TOLERANCES.get(t._array.dtype, (0.0, 0.0)) for t in (x, y)]
    rtol, atol = limits if limits[0] is not None else (max(r for r, _ in standard), max(a for _, a in standard))
    assert rtol is not None
    assert atol is not None
    left, right = (np.asarray(t.detach().cpu().numpy()) for t in (x, y))
    if left.dtype.kind == "b" or (left.dtype.kind in "iu" and right.dtype.kind in "iu" and rtol == atol == 0):
        wrong, gap = left != right, np.abs(left.astype(object) - right.astype(object)).astype(np.float64)
        right = right.astype(np.float64)
    else:
        wide = np.result_type(np.float64, *(v.dtype for v in (left, right) if v.dtype.kind == "c"))
        left, right = left.astype(wide), right.astype(wide)
        with np.errstate(all="ignore"):
            gap = np.where(left == right, 0.0, np.abs(left - right))
            wrong = ~(gap <= atol + rtol * np.abs(right)) | (np.isinf(gap) & (left != right))
        both = np.isnan(left) & np.isnan(right)
        if equal_nan:
            wrong, gap = wrong & ~both, np.where(both, 0.0, gap)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        share = np.where(gap == 0, 0.0, gap / np.abs(right))
    kind = "Scalars" if numbers else "Tensors"
    lines = [f"{kind} are not {'equal' if rtol == atol == 0 else 'close'}!{where}", ""]
    if numbers or wrong.ndim == 0:
        lines += [f"Expected {right.item()} but got {left.item()}."]
        lines += [f"{n} difference: {float(v)} (up to {t} allowed)" for n, v, t in (("Absolute", gap, atol), ("Relative", share, rtol))]
        return "\n".join(lines)
    lines += [f"Mismatched elements: {int(wrong.sum())} / {wrong.size} ({100 * wrong.mean():.1f}%)"]
    for name, values, limit in (("absolute", gap, atol), ("relative", share, rtol)):
        values = np.where(np.isnan(values), math.inf, values)
        at = tuple(int(i) for i in np.unravel_index(int(values.argmax()), values.shape))
        lines += [f"Greatest {name} difference: {float(values[at])} at index {at} (up to {limit} allowed)"]
    return "\n".join(lines)


def make_tensor(
    *shape: Any, dtype: Any, device: Any = None, low: float | None = None, high: float | None = None, requires_grad: bool = False,
    noncontiguous: bool = False, exclude_zero: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of random numbers from `low` to below `high`: by default -9 to 9, of integers -9 to 10, of uint8 0 to 10, of bool 0 to 2.

    noncontiguous: with gaps in memory. exclude_zero: no element is 0. ValueError for a range that is empty.

    >>> import gradlab as gl
    >>> x = gl.testing.make_tensor(2, 3, dtype=gl.float32, low=0, high=1)
    >>> x.shape, bool((x >= 0).all())
    ((2, 3), True)
    """
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
    kind = as_numpy(dtype)
    floating, complex = kind in FLOATING, kind in COMPLEX
    bottom = (0 if kind == BOOL or kind.kind == "u" else -9) if low is None else low
    top = (2 if kind == BOOL else 9 if floating or complex else 10) if high is None else high
    if not bottom < top:
        raise ValueError(f"make_tensor: low {bottom} is not below high {top}")
    drawn = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if complex:
        found = ((rand(*drawn, dtype=complex128, device=device) * (top - bottom)) + (bottom + bottom * 1j)).to(dtype)
    elif floating:
        found = (rand(*drawn, dtype=float64, device=device) * (top - bottom) + bottom).to(dtype)
    else:
        found = randint(math.ceil(bottom), math.ceil(top), drawn, device=device).to(dtype)
    if exclude_zero:
        least = finfo(dtype).tiny if floating or complex else 1
        found = found.masked_fill(found == 0, least)
    if noncontiguous and size:
        found = found[..., ::2]
    return found.detach().requires_grad_() if requires_grad else found
