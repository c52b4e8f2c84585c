"""Every row, through every check: value, Spec, dtypes, strided and empty inputs, gradients of order 1 and 2."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.dtype import FLOAT32, FLOATING, as_numpy
from gradlab.spec import Spec, spec_of

from samples import SAMPLES
from samples.base import Sample

CASES = [(name, i) for name in ops.ROWS for i in range(len(SAMPLES.get(name, ())))]
each_sample = pytest.mark.parametrize(("name", "number"), CASES, ids=lambda value: str(value))
WIDE = {"layer_norm", "rms_norm", "batch_norm", "layer_norm_residual", "rms_norm_residual", "wide_matmul"}  # keep float32 of half types
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def test_every_row_has_samples():
    assert set(ops.ROWS) == set(SAMPLES)


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def converted(inputs, dtype):
    return [x.astype(as_numpy(dtype)) if is_float(x) else x for x in inputs]


def run(name, inputs, params):
    """The row on raw arrays; always a tuple of arrays."""
    result = ops.ROWS[name](*inputs, **params)
    return result if isinstance(result, tuple) else (result,)


def expected(name, sample: Sample):
    if sample.reference is not None:
        found = sample.reference(*sample.inputs, **sample.params)
    else:
        found = ops.ROWS[name].cpu(*sample.inputs, **sample.params)
    return tuple(np.asarray(f) for f in (found if isinstance(found, tuple) else (found,)))


def close(got, want, tolerance):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    if got.dtype.kind in "fV":
        scale = np.abs(want[np.isfinite(want)]).max(initial=1) if want.dtype.kind == "f" else 1
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance * scale)
    elif got.dtype.kind == "c":
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


@each_sample
def test_value_and_spec(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    outs = run(name, sample.inputs, sample.params)
    for got, want in zip(outs, expected(name, sample), strict=True):
        close(got, want, TOLERANCE["float64"])
    if not row.dynamic:
        arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
        specs = [None if x is None else spec_of(x) if isinstance(x, np.ndarray) else Spec((), arrays[0].dtype) for x in sample.inputs]
        assert row.specs(*specs, **sample.params) == tuple(spec_of(o) for o in outs)


@each_sample
def test_other_dtypes(name, number):
    sample = SAMPLES[name][number]
    if not any(map(is_float, sample.inputs)):
        pytest.skip("no floating point input")
    wide = run(name, sample.inputs, sample.params)
    for dtype in sample.dtypes:
        outs = run(name, converted(sample.inputs, dtype), sample.params)
        exact = converted(converted(sample.inputs, dtype), "float64")
        for got, want, full in zip(outs, run(name, exact, sample.params), wide, strict=True):
            kept = got.dtype == FLOAT32 and name in WIDE
            assert (got.dtype == as_numpy(dtype) or kept) == (full.dtype == np.float64)
            close(got, want, TOLERANCE[dtype])


@each_sample
def test_strided_inputs(name, number):
    sample = SAMPLES[name][number]
    if not sample.strided:
        pytest.skip("the sample has no strided form")

    def strided(x):
        if not isinstance(x, np.ndarray) or not x.ndim:
            return x
        wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2 + 1), x.dtype)
        wide[..., 1::2] = x
        return wide[..., 1::2]

    before = [np.array(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
    for got, want in zip(
        run(name, [strided(x) for x in sample.inputs], sample.params), run(name, sample.inputs, sample.params), strict=True
    ):
        close(got, want, 1e-13)
    for x, old in zip(sample.inputs, before, strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, old, err_msg="an input was overwritten")


def leaves(inputs):
    return [gl.tensor(x, requires_grad=is_float(x)) if isinstance(x, np.ndarray) else x for x in inputs]


def weights(outs, seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=o.shape) if o._array.dtype in FLOATING else None for o in outs]


def objective(name, tensors, params, seed=5):
    """A scalar: the outputs weighted by fixed random numbers."""
    result = ops.ROWS[name](*tensors, **params)
    outs = result if isinstance(result, tuple) else (result,)
    total = None
    for out, w in zip(outs, weights(outs, seed), strict=True):
        if w is not None and out.requires_grad:
            part = (out * gl.tensor(w)).sum()
            total = part if total is None else total + part
    return total


def first_order(name, tensors, params):
    inputs = [t for t in tensors if isinstance(t, gl.Tensor) and t.requires_grad]
    return inputs, gl.autograd.grad(objective(name, tensors, params), inputs, create_graph=True, materialize_grads=True)


def second_objective(name, tensors, params):
    """A scalar made of the first gradients."""
    inputs, gradients = first_order(name, tensors, params)
    rng = np.random.default_rng(9)
    total = None
    for g in gradients:
        part = (g * gl.tensor(rng.normal(size=g.shape))).sum()
        total = part if total is None else total + part
    return inputs, total


def slope(function, inputs, directions, step=1e-6):
    """The central difference of a scalar function along a direction."""

    def moved(sign):
        return [np.asarray(x + sign * step * d) if d is not None else x for x, d in zip(inputs, directions, strict=True)]

    return (function(moved(1)) - function(moved(-1))) / (2 * step)


def dot(gradients, directions):
    return float(sum((g.numpy() * d).sum() for g, d in zip(gradients, [d for d in directions if d is not None], strict=True)))


@each_sample
def test_gradients(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    targets = [is_float(x) for x in sample.inputs]
    if not row.steps or not any(targets) or sample.gradients == 0:
        pytest.skip("no gradient")
    if objective(name, leaves(sample.inputs), sample.params) is None:
        pytest.skip("no floating point output requires grad")
    rng = np.random.default_rng(3)
    directions = [rng.normal(size=x.shape) if t else None for x, t in zip(sample.inputs, targets, strict=True)]

    def value(inputs):
        return float(objective(name, leaves(inputs), sample.params).item())

    _, gradients = first_order(name, leaves(sample.inputs), sample.params)
    want = slope(value, sample.inputs, directions)
    assert dot([g.detach() for g in gradients], directions) == pytest.approx(want, rel=1e-5, abs=1e-7)
    if sample.gradients < 2:
        return

    def second_value(inputs):
        return float(second_objective(name, leaves(inputs), sample.params)[1].item())

    inputs, total = second_objective(name, leaves(sample.inputs), sample.params)
    want = slope(second_value, sample.inputs, directions)
    got = 0.0
    if total.requires_grad:
        got = dot(gl.autograd.grad(total, inputs, materialize_grads=True), directions)
    assert got == pytest.approx(want, rel=1e-4, abs=1e-6)


@each_sample
def test_backward_twice_gives_the_same(name, number):
    """Two runs on the same inputs give the same bits, and the gradient has its input's shape and dtype."""
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    if not row.steps or not any(map(is_float, sample.inputs)):
        pytest.skip("no gradient")
    found = []
    for _ in range(2):
        tensors = leaves(converted(sample.inputs, "float32"))
        total = objective(name, tensors, sample.params)
        if total is None:
            pytest.skip("no floating point output requires grad")
        total.backward()
        found.append([t.grad for t in tensors if isinstance(t, gl.Tensor) and t.requires_grad])
        for t in tensors:
            if isinstance(t, gl.Tensor) and t.grad is not None:
                assert (t.grad.shape, t.grad.dtype) == (t.shape, t.dtype)
    for a, b in zip(*found, strict=True):
        if a is not None:
            np.testing.assert_array_equal(a.numpy(), b.numpy())
