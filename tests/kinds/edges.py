"""Calls of the catalogue on the edges of their functions: ties, bounds, zeros of both signs, infinities and NaN, with gradients.

    for name, made in edge_calls(): y, gradients = run(gl, made)       # or run(torch, made)

Written values stand in `edges.npz`; `python -m tests.kinds.edges` writes them anew, from PyTorch.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gradlab as gl

from kinds.calls import CALLS, TORCH, Call, arrays_in, converted, parts
from kinds.catalogue.giving import Fixed, words

FILE = Path(__file__).with_name("edges.npz")
INF, NAN = np.inf, np.nan
LINE = np.array([-INF, -20, -6, -3, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 3, 6, 20, INF, NAN])  # knees and limits of all activations
PAIRS = [v[2:].ravel() for v in (np.meshgrid(*[np.array([0, 0, -INF, -2, -1, -0.0, 0, 0.5, 1, 2, INF, NAN])] * 2))]
VARIANTS = ("line", "pairs", "equal", "zeros", "ties", "nan", "infinite")
# Functions whose gradient on such inputs is anybody's choice, is noise, or is written down elsewhere.
ROOMS_LEFT_OUT = ("fft.", "linalg.", "Tensor.__i")
LEFT_OUT = {*words("""
    svd eigh qr inverse pinverse cholesky cholesky_inverse cholesky_solve lu lu_solve lu_unpack geqrf orgqr ormqr det logdet slogdet
    matrix_exp triangular_solve stft istft matrix_power
    sort argsort topk kthvalue msort unique unique_consecutive mode
""")}  # matrices without a decomposition; which of equal elements is taken
COUNT = 400  # numbers of a result that are written down


def edged(variant: str, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """The float arrays of a call on an edge; None where the variant has none for such arrays."""
    shapes = {a.shape for a in arrays}
    if variant == "line":
        return [LINE] if len(arrays) == 1 and arrays[0].ndim == 2 else None
    if variant == "pairs":
        return list(PAIRS) if len(arrays) == 2 and len(shapes) == 1 and arrays[0].ndim == 2 else None
    found = []
    for i, a in enumerate(arrays):
        if variant in ("equal", "zeros"):
            made = np.full(a.shape, 1.0 if variant == "equal" else 0.0)
        else:
            made = np.asarray((np.arange(a.size) * 7 // 3 + i) % 3 - 1.0).reshape(a.shape)  # -1, 0, 1: most are ties
            if variant != "ties" and a.size:
                made.reshape(-1)[a.size // 2] = NAN if variant == "nan" else INF
        found.append(made)
    return found


class Edge:
    """One call on one edge."""

    def __init__(self, call: Call, variant: str, arrays: list[np.ndarray]) -> None:
        self.call, self.variant, self.arrays = call, variant, arrays
        self.name = f"{call!r} {variant}"
        self.bare = call.name.rpartition(".")[2]

    def run(self, engine: Any, device: str = "cpu") -> list[np.ndarray] | None:
        """Results and gradients of float32 tensors in an engine; None where it refuses them."""
        waiting, leaves = iter(self.arrays), []

        def tensor(array: np.ndarray) -> Any:
            if array.dtype != np.float64 or isinstance(array, Fixed):
                made = engine.tensor(np.asarray(array))
                return (made if array.dtype != np.float64 else made.to(engine.float32)).to(device)
            leaves.append(engine.tensor(next(waiting), dtype=engine.float32).to(device).requires_grad_())
            return leaves[-1]

        def other(value: Any) -> Any:
            return getattr(engine, str(value).rpartition(".")[2]) if isinstance(value, gl.dtype) else value

        arguments, options = converted(self.call.arguments, tensor, other), converted(self.call.options, tensor, other)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = parts(self.call.on(arguments, options, self.call.function if engine is gl else self.call.reference))
                roots = [t for t in found if t.requires_grad]
                given = [weights(t.shape, engine).to(device).to(t.dtype) for t in roots]
                slopes = engine.autograd.grad(roots, leaves, given, allow_unused=True) if roots else ()
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
        return [flat(t) for t in found] + [np.zeros(0) if s is None else flat(s) for s in slopes]


def weights(shape: Any, engine: Any) -> Any:
    """A gradient that arrives: other numbers everywhere."""
    n = int(np.prod(tuple(shape)))
    return engine.tensor((1 + np.arange(n) % 5).astype(np.float32).reshape(tuple(shape)))


def flat(t: Any) -> np.ndarray:
    """A tensor's first numbers."""
    t = t.detach().cpu().clone()  # PyTorch has tensors of zeros without memory
    wide = t.numpy() if t.dtype not in (gl.bfloat16, getattr(TORCH, "bfloat16", None)) else t.float().numpy()
    return np.asarray(wide).reshape(-1)[:COUNT].astype(np.complex64 if wide.dtype.kind == "c" else np.float32)


def edge_calls() -> Iterator[Edge]:
    """Every call that has a gradient and draws nothing at random, on each edge there is for it."""
    for call in CALLS:
        bare = call.name.rpartition(".")[2].rstrip("_")
        if call.marks & {"random", "no_gradient", "plain", "making", "integer"} or bare in LEFT_OUT or call.name.startswith(ROOMS_LEFT_OUT):
            continue
        if (call.name.startswith("Tensor.") and f"gl.{bare}" in FUNCTIONS) or "in_place" in call.marks:
            continue  # the function of that name
        arrays = [a for a in (*arrays_in(call.arguments), *arrays_in(call.options)) if a.dtype == np.float64 and not isinstance(a, Fixed)]
        for variant in VARIANTS:
            if arrays and (made := edged(variant, arrays)) is not None:
                yield Edge(call, variant, made)


FUNCTIONS = {call.name for call in CALLS}


def write() -> None:
    """Writes what PyTorch gives; where it refuses, has no such function or is an exception, what gradlab gives."""
    from kinds.edge_exceptions import EXCEPTIONS

    found: dict[str, np.ndarray] = {}
    for edge in edge_calls():
        own = edge.run(gl)
        theirs = None if edge.bare in EXCEPTIONS or edge.call.reference is None else edge.run(TORCH)
        if own is not None:
            values = own if theirs is None or len(theirs) != len(own) else theirs
            for i, (value, mine) in enumerate(zip(values, own, strict=True)):
                found[f"{edge.name}|{i}"] = np.zeros_like(mine) if mine.size and not value.size else value
    flat_all = np.concatenate(list(found.values())).astype(np.complex64)
    sizes = np.array([v.size for v in found.values()], np.int32)
    real, imag = np.ascontiguousarray(flat_all.real), np.ascontiguousarray(flat_all.imag)
    np.savez_compressed(FILE, names=np.array("\n".join(found)), sizes=sizes, real=real, imag=imag)


def read() -> dict[str, list[np.ndarray]]:
    """The written values by the edge's name."""
    with np.load(FILE) as file:
        names, sizes = str(file["names"]).split("\n"), file["sizes"]
        values = np.empty(file["real"].size, np.complex64)  # ∞ + 1j · 0 would be NaN
        values.real, values.imag = file["real"], file["imag"]
    found: dict[str, list[np.ndarray]] = {}
    for name, part in zip(names, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        found.setdefault(name.rpartition("|")[0], []).append(part)
    return found


if __name__ == "__main__":
    write()
