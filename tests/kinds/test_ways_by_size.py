"""Where a row takes another way from some size on, both ways give the same: each such bound is moved, and its samples are run again.

Samples are small. What is only done for large arrays, in blocks, or once a cache is full, is done for samples where the bound is low.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import gradlab as gl
from gradlab import dispatch, ops
from gradlab.autograd.record import bind
from gradlab.ops import FAMILIES, ROWS

from samples import SAMPLES

# Bounds with the values tried instead, and the families whose rows are run.
BOUNDS = [
    ("attention", {"ops.attention.SCORES": 8}), ("attention", {"ops.attention.ROWS": 2}), ("conv", {"ops.conv_cpu.CHUNK": 64}),
    ("fourier", {"ops.fourier.SCIPY_FROM": 0}), ("gamma special zeta", {"ops.gamma.BLOCK": 2}), ("gather", {"ops.gather.FEW": 0}),
    ("incomplete", {"ops.incomplete.BLOCK": 2}), ("indexing", {"ops.indexing.GROUP": 1}), ("indexing", {"ops.indexing.MANY": 1}),
    ("indexing gather", {"ops.indexing.FEW": 0}), ("indexing gather", {"ops.indexing.CHUNK": 1}), ("optim", {"ops.optim.BLOCK": 64}),
    ("quantized", {"ops.quantized.MOST": 8}), ("quantized", {"ops.quantized.EXACT": 8}), ("random", {"ops.random.FEW": 1}),
    ("random", {"ops.random.CHUNK": 8, "ops.random_cpu.SMALL": 0}),  # what is read ahead is less than a chunk
    ("random", {"ops.random_cpu.PAIRS": 4, "ops.random_cpu.SMALL": 0}), ("random", {"ops.random_cpu.SMALL": 1}),
    ("sparse", {"ops.sparse.BLOCK": 4}), ("sparse", {"ops.sparse.LARGE": 0}), ("special", {"ops.special.BLOCK": 3}),
    ("elementwise activation", {"ops.where.SMALL": 0}), ("elementwise movement", {"backends.cpu.TURNED": 0}),
    ("reduction movement", {"autograd.recall.KEPT_SHAPES": 0, "autograd.recall.KEPT": 0}),
]  # fmt: skip
# Numbers that a result depends on: no sizes.
NUMBERS = {
    *(f"ops.polynomial.{name}" for name in ("HERMITE_H", "HERMITE_HE", "LAGUERRE", "LEGENDRE", "MOST", "BY_ANGLE", "HIGHEST")),
    *(f"ops.{name}" for name in ("gamma.LARGE", "cylinder.TERMS", "incomplete.STEPS", "quantized.GROUP", "zeta.MOST")),
    *(f"ops.{name}" for name in ("random.WORD", "random_cpu.WORD", "random_cpu.ARCS", "random_cpu.SPAN")),
}
ROWS_OF = {f.__name__.rpartition(".")[2]: [n for n, row in ROWS.items() if row in [v for v in vars(f).values() if isinstance(v, type(row))]]
           for f in FAMILIES}  # fmt: skip


def run(name, sample, dtype, turned):
    """A row's results and gradients for a sample."""
    row, inputs = ROWS[name], []
    for x in sample.inputs:
        if isinstance(x, np.ndarray):
            x = x.astype(dtype) if x.dtype == np.float64 else x
            given = gl.from_numpy(x.copy(order="F" if turned else "C"))
            inputs.append(given.requires_grad_() if given.is_floating_point() else given)
        else:
            inputs.append(x)
    found = bind(row)(*inputs, **sample.params)
    parts = found if isinstance(found, tuple) else (found,)
    graph = [p for p in parts if p.requires_grad]
    if graph:
        weights = [gl.arange(p.numel(), dtype=p.dtype).reshape(p.shape).cos() for p in graph]
        gl.autograd.backward(graph, weights)
    grads = [x.grad for x in inputs if isinstance(x, gl.Tensor) and x.requires_grad and x.grad is not None]
    return [p.detach().numpy() for p in (*parts, *grads)]


def samples_of(families):
    return [(name, i, s) for family in families.split() for name in ROWS_OF.get(family, ()) for i, s in enumerate(SAMPLES.get(name, ()))]


@pytest.mark.parametrize(("families", "bounds"), BOUNDS, ids=lambda x: " ".join(x) if isinstance(x, dict) else "")
def test_rows(monkeypatch, families, bounds):
    ran, turning = 0, "backends.cpu.TURNED" in bounds
    for row, number, sample in samples_of(families):
        for dtype, turned in (("float32", False), ("float64", turning)):
            if dtype not in ("float64", *sample.dtypes):
                continue
            made = []
            for changes in ({}, bounds):
                with monkeypatch.context() as changed:
                    for bound, value in changes.items():
                        module, _, name = bound.rpartition(".")
                        changed.setattr(importlib.import_module(f"gradlab.{module}"), name, value)
                    for kept in dispatch.remembered:
                        kept.clear()
                    made.append(run(row, sample, dtype, turned))
            ran += 1
            loose = 2e-6 if dtype == "float32" else 1e-13
            for plain, other in zip(*made, strict=True):
                assert plain.dtype == other.dtype and plain.strides == other.strides
                scale = np.abs(plain[np.isfinite(plain)], dtype=float).max(initial=0) if plain.dtype.kind == "f" else 0
                np.testing.assert_allclose(other, plain, rtol=10 * loose, atol=4 * loose * scale, err_msg=f"{row} {number} {dtype}")
    assert ran


def test_all_bounds_are_moved():
    found = set()
    for info in pkgutil.iter_modules(ops.__path__, "gradlab.ops."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if type(value) is int and value > 6 and name.isupper() and name[0] != "_":
                found.add(f"{info.name.removeprefix('gradlab.')}.{name}")
    assert found - {bound for _, bounds in BOUNDS for bound in bounds} == NUMBERS
