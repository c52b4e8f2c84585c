"""Runs entries in each form and says how far they are from the exact values."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from native_eager import kernels

import gradlab as gl
from gradlab.autograd.mode import current, enter
from gradlab.backends.native.thresholds import kernels_for
from gradlab.ops import ROWS

from numerics import complexes, exact
from numerics.complexes import COMPLEX, Complex
from numerics.figures import FORMS
from numerics.inputs import errors, numpy_dtype, wrong
from numerics.larger import BACKWARD, LARGER, Larger, magnitudes
from numerics.references import references
from numerics.scalars import SCALARS, Scalar
from samples import SAMPLES

FLUSHED = 1e-30  # on a GPU float32 numbers below the normal ones are zero, on the way to a result too


@contextlib.contextmanager
def form(name: str) -> Iterator[None]:
    """Let eager rows be computed as the form says."""
    with kernels() if name == "machine" else kernels_for(False):
        yield


def array(t: Any) -> np.ndarray:
    """A tensor's numbers, bfloat16 among them."""
    t = t.detach().cpu()
    if "bfloat16" in str(t.dtype):
        return t.float().numpy().astype(numpy_dtype("bfloat16"))
    return t.numpy()


def tensors(engine: Any, name: str, dtype: str, arrays: list[np.ndarray], slope: bool) -> list[Any]:
    """The arguments in an engine; integers stay."""
    device = "cuda" if name.startswith("gpu") else "cpu"
    made = []
    for v in arrays:
        t = engine.tensor(v)
        made.append(t.to(device) if v.dtype.kind in "iu" else t.to(getattr(engine, dtype)).to(device).requires_grad_(slope))
    return made


def seeds(engine: Any, y: Any) -> Any:
    """Gradients that arrive: multiples of 1/8, which every dtype has."""
    return ((engine.arange(y.numel(), device=y.device) % 13 - 6) / 8).to(y.dtype).reshape(y.shape)


def run(call: Any, slope: bool, engine: Any, name: str, leaves: list[Any], weighted: bool = False) -> list[Any] | None:
    """Result and slopes; None where the engine has no such function, or not for this dtype."""

    def both(*x: Any) -> Any:
        y = call(engine, *x)
        y = y if isinstance(y, tuple) else (y,)
        if not slope:
            return y
        inputs = [v for v in x if v.requires_grad]
        return (*y, *engine.autograd.grad(y[0], inputs, seeds(engine, y[0]) if weighted else engine.ones_like(y[0]), allow_unused=True))

    try:
        if name in ("compiled", "gpu compiled"):
            both = gl.compile(both)
            both(*leaves)  # the first call runs eagerly
        return [None if t is None else array(t) for t in both(*leaves)]
    except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
        if engine is gl:
            print("no", name, repr(error)[:200])
        return None


def judged(got: np.ndarray, want: np.ndarray, edge: np.ndarray, inputs: list[np.ndarray], skip: np.ndarray) -> dict[str, Any]:
    """The largest error and where it is; how many results are of another kind and where the first is."""
    found = errors(got, want)
    other = wrong(got, want, found, edge) & ~skip
    found = np.where(other | skip | np.isnan(found), 0, found)
    worst = int(found.argmax())
    result: dict[str, Any] = {"ulp": round(float(found[worst]), 2), "at": [float(v[worst]) for v in inputs]}
    if other.any():
        first = int(other.argmax())
        result |= {"wrong": int(other.sum()), "where": [float(v[first]) for v in inputs], "is": [float(got[first]), float(want[first])]}
    return result


def scalar(entry: Scalar, engine: Any, name: str, dtype: str) -> dict[str, Any]:
    """Of the result ("y") and of each slope ("d0", "d1")."""
    inputs, want, sides, edge = references(entry, dtype)
    found = run(entry.call, entry.slope, engine, name, tensors(engine, name, dtype, inputs, entry.slope))
    if found is None or found[0].dtype != numpy_dtype(dtype):
        return {}
    skip, edge = np.zeros(len(want), bool), edge & (entry.edges is not None)
    flushed = name.startswith("gpu") and dtype in ("float32", "bfloat16")
    if flushed:
        skip = skip | np.any([(v != 0) & (np.abs(v) < FLUSHED) for v in (*inputs, want)], axis=0)
    result = {"y": judged(found[0], want, edge, inputs, skip)}
    for i, (side, slope) in enumerate(zip(sides, found[1:], strict=True)):
        if slope is not None:
            small = flushed & (np.abs(side) < FLUSHED)
            result[f"d{i}"] = judged(slope, side, np.zeros(len(want), bool), inputs, np.isnan(side) | skip | small)
    return result


def drawn(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def rounded(v: np.ndarray, dtype: str) -> np.ndarray:
    """As the dtype has them, in float64."""
    v = np.asarray(v)
    return v if v.dtype.kind in "iu" else v.astype(numpy_dtype(dtype)).astype(np.float64)


def larger(entry: Larger, engine: Any, name: str, dtype: str) -> dict[str, Any]:
    """The largest error in eps of the dtype times the entry's scale, against PyTorch in float64 (of float64: no reference, nothing)."""
    if dtype == "float64":
        return {}
    arrays = [rounded(v, dtype) for v in entry.make(drawn(entry.name))]
    exact = tensors(torch, "torch", "float64", arrays, entry.slope)
    want = run(entry.call, entry.slope, torch, "torch", exact, weighted=True)
    got = run(entry.call, entry.slope, engine, name, tensors(engine, name, dtype, arrays, entry.slope), weighted=True)
    if want is None or got is None:
        return {}
    scale = entry.scale(torch, entry.call, [t.detach() for t in exact], torch.tensor(want[0]))
    eps = float(torch.finfo(getattr(torch, dtype)).eps)
    sides = [None] * len(want)
    if entry.scale is magnitudes and entry.slope:
        sides = run(entry.call, True, torch, "torch", tensors(torch, "torch", "float64", [np.abs(v) for v in arrays], True))
    scales = (np.asarray(scale), *sides[1:])
    return {part: {"ulp": ratio(g, w, s, eps, dtype)}
            for part, g, w, s in zip(("y", *(f"d{i}" for i in range(9))), got, want, scales, strict=False)
            if g is not None and w is not None}  # fmt: skip


def ratio(got: np.ndarray, want: np.ndarray, scale: Any, eps: float, dtype: str) -> float:
    """The largest error in units of eps times the scale, or the largest result."""
    scale = np.abs(want).max(initial=0) if scale is None else scale
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - rounded_up(want, dtype)) / (eps * np.maximum(scale, 1e-300))
    same = (got.astype(np.float64) == want) | (np.isnan(want) & np.isnan(got.astype(np.float64)))
    return round(float(np.where(same, 0, apart).max(initial=0)), 2)


def rounded_up(want: np.ndarray, dtype: str) -> np.ndarray:
    """∞ where the dtype ends."""
    top = float(torch.finfo(getattr(torch, dtype)).max)
    with np.errstate(all="ignore"):
        return np.where(np.abs(want) > top * (1 + 2.0**-9), np.inf * np.sign(want), want)


def backward(name: str, engine: Any, how: str, dtype: str) -> dict[str, Any]:
    """A residual over eps of the dtype, in float64 by PyTorch."""
    make, call, residual = BACKWARD[name]
    if dtype not in ("float32", "float64"):
        return {}
    arrays = [rounded(v, dtype) for v in make(drawn(name))]
    got = run(call, False, engine, how, tensors(engine, how, dtype, arrays, False))
    if got is None:
        return {}
    wide = [torch.tensor(v.astype(np.float64)) for v in (*arrays, *got)]
    return {"y": {"ulp": round(float(residual(*wide)) / float(torch.finfo(getattr(torch, dtype)).eps), 2)}}


def in_the_plane(entry: Complex, engine: Any, name: str, dtype: str) -> dict[str, Any]:
    """A function of complex64 or complex128."""
    if dtype not in ("float32", "float64"):
        return {}
    inputs = complexes.points(entry, dtype)
    want = exact.complex_values(exact.function(entry.exact, entry.count), inputs)
    kind = {"float32": "complex64", "float64": "complex128"}[dtype]
    leaves = [engine.tensor(v).to(getattr(engine, kind)).to("cuda" if name.startswith("gpu") else "cpu") for v in inputs]
    found = run(entry.call, False, engine, name, leaves)
    if found is None:
        return {}
    apart = complexes.distances(found[0], want, dtype)
    apart = np.where(np.isfinite(want), apart, 0)
    worst, wrong_at = int(np.where(np.isfinite(apart), apart, 0).argmax()), np.isinf(apart)
    result: dict[str, Any] = {"ulp": round(float(apart[worst]), 2), "at": [str(v[worst]) for v in inputs]}
    return {"y": result | ({"wrong": int(wrong_at.sum()), "where": [str(v[wrong_at][0]) for v in inputs]} if wrong_at.any() else {})}


def sampled(name: str, how: str, dtype: str) -> dict[str, Any]:
    """A row on its samples: the largest error in eps of the largest result, against the row in float64 on the same numbers."""
    row, worst = ROWS[name], -1.0
    for sample in SAMPLES[name]:
        if dtype not in sample.dtypes or how not in ("numpy", "machine"):
            continue
        inputs = [v.astype(numpy_dtype(dtype)) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v for v in sample.inputs]
        exact = [v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype == numpy_dtype(dtype) else v for v in inputs]
        made, want = row(*inputs, **sample.params), row(*exact, **sample.params)
        for g, w in zip(*(v if isinstance(v, tuple) else (v,) for v in (made, want)), strict=True):
            if g.dtype == numpy_dtype(dtype) and np.isfinite(np.asarray(w, np.float64)).all():
                worst = max(worst, ratio(g, w, None, float(torch.finfo(getattr(torch, dtype)).eps), dtype))
    return {"y": {"ulp": worst}} if worst >= 0 and dtype != "float64" else {}


def measured(name: str, engine: Any, how: str, dtype: str) -> dict[str, Any]:
    """One entry in one form."""
    if name in SCALARS:
        return scalar(SCALARS[name], engine, how, dtype)
    if name.startswith("row "):
        return sampled(name[4:], how, dtype)
    if name in COMPLEX:
        return in_the_plane(COMPLEX[name], engine, how, dtype)
    return larger(LARGER[name], engine, how, dtype) if name in LARGER else backward(name, engine, how, dtype)


def all_of(names: list[str], dtypes: list[str], forms: list[str]) -> dict[str, Any]:
    """{entry: {dtype: {form: {part: what was found}}}}."""
    found: dict[str, Any] = {}
    for how in forms:
        engine = torch if how == "torch" else gl
        with form(how):
            for name in names:
                for dtype in dtypes:
                    if parts := measured(name, engine, how, dtype):
                        found.setdefault(name, {}).setdefault(dtype, {})[how] = parts
    return found


class Rows:
    """Within the block, the names of the rows that run."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.node: Any = None

    def __call__(self, op: Any, inputs: Any, result: Any, params: Any) -> None:
        self.names.add(op.name)

    def __enter__(self) -> Rows:
        self.mode = current()
        enter(self.mode.replace(observer=self))
        return self

    def __exit__(self, *_: object) -> None:
        enter(self.mode)


def rows_of(name: str) -> list[str]:
    """The rows that an entry runs on the CPU, forward and backward."""
    if name.startswith("row "):
        return [name[4:]]
    if name in COMPLEX:
        with Rows() as seen, kernels_for(False):
            run(COMPLEX[name].call, False, gl, "numpy", [gl.tensor([1 + 2j])] * COMPLEX[name].count)
        return sorted(seen.names)
    if name in SCALARS:
        entry = SCALARS[name]
        arrays, call, slope = [np.full(3, 0.5)] * entry.count, entry.call, entry.slope
    else:
        make, call, slope = (LARGER[name].make, LARGER[name].call, LARGER[name].slope) if name in LARGER else (*BACKWARD[name][:2], False)
        arrays = make(drawn(name))
    with Rows() as seen, kernels_for(False):
        run(call, slope, gl, "numpy", tensors(gl, "numpy", "float32", arrays, slope))
    return sorted(seen.names)


__all__ = ["FORMS", "all_of", "measured", "rows_of"]
