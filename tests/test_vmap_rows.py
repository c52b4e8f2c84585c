"""vmap of every row on its samples: what the whole batch gives is what the samples give one by one; the same for gradients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.func import grad, vmap, vmap_levels
from gradlab.ops.batching import RULES, rule_of

from samples import SAMPLES

SIZE = 3
CASES = [(name, i) for name, row in ops.ROWS.items() if row.inputs and not row.dynamic for i in range(len(SAMPLES.get(name, ())))]
each_sample = pytest.mark.parametrize(("name", "number"), CASES, ids=lambda value: str(value))
# Rows whose samples are taken one by one: updates of optimizers, and rows whose results hang on the order of all elements.
LOOPS = {
    "masked_scatter", "masked_gather", "histc", "median_of_all", "spmm", "sddmm", "grouped_mm",
    "sgd_update", "sgd_momentum_update", "adam_update", "amsgrad_update", "rmsprop_update", "rmsprop_centered_update",
    "rmsprop_momentum_update", "rmsprop_centered_momentum_update", "adagrad_update", "adadelta_update", "adamax_update", "nadam_update",
    "radam_update", "asgd_update", "rprop_update", "lion_update",
    *(name for name in ops.ROWS if "_sequence" in name),  # under vmap layers take steps
}  # fmt: skip
KEPT = ("max_pool_backward", "max_pool_gather", "max_unpool", "lu", "spmm", "sddmm", "grouped_mm",
        *(name for name in ops.ROWS if "_sequence" in name))  # rows whose index tensors are not any numbers
RANDOM = {name for name, row in ops.ROWS.items() if "state" in row.inputs}


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def batch(name, inputs):
    """For each array of a sample SIZE of them: different ones where the row takes any numbers."""
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.9, 1, SIZE)
    found = []
    for x in inputs:
        if not isinstance(x, np.ndarray):
            found.append(x)
        elif is_float(x) and name not in ("cholesky", "eigh", "svd"):
            found.append([x * s for s in scales])
        elif x.dtype.kind in "ib" and x.ndim and name not in KEPT:
            found.append([np.roll(x, i, axis=-1) for i in range(SIZE)])
        else:
            found.append([x * s for s in scales] if is_float(x) else [x] * SIZE)
    return found


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def same(got, want, name):
    got, want = got.detach().numpy(), want.detach().numpy()
    assert got.shape == want.shape, name
    assert got.dtype == want.dtype
    if got.dtype.kind == "f":
        scale = np.abs(want[np.isfinite(want)]).max(initial=1)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * scale)
    else:
        np.testing.assert_array_equal(got, want)


def arrangements(tensors):
    """Which inputs are mapped, and where: all in front, all behind, each one alone shared, each one alone mapped."""
    places = [i for i, x in enumerate(tensors) if isinstance(x, list)]
    yield dict.fromkeys(places, 0)
    yield dict.fromkeys(places, -1)
    if len(places) > 1:
        for one in places:
            yield {i: 0 for i in places if i != one}
            yield {one: 0}


def check(function, tensors, name):
    for where in arrangements(tensors):
        given = []
        for i, x in enumerate(tensors):
            if not isinstance(x, list):
                given.append(x)
            else:
                given.append(gl.tensor(np.stack(x, where[i])) if i in where else gl.tensor(x[0]))
        dims = tuple(where.get(i) for i in range(len(tensors)))
        found = as_tuple(vmap(function, in_dims=dims)(*given))
        each = [
            as_tuple(function(*[gl.tensor(x[k] if i in where else x[0]) if isinstance(x, list) else x for i, x in enumerate(tensors)]))
            for k in range(SIZE)
        ]
        for got, *want in zip(found, *each, strict=True):
            same(got, gl.stack(want), f"{name} {dims}")


@each_sample
def test_rows(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    if not any(isinstance(x, np.ndarray) for x in sample.inputs):
        pytest.skip("no tensor input")
    function = lambda *xs: row(*xs, **sample.params)
    tensors = batch(name, sample.inputs)
    if name in RANDOM:
        tensors = [x[0] if i == row.inputs.index("state") else x for i, x in enumerate(tensors)]
        tensors = [gl.tensor(x) if isinstance(x, np.ndarray) else x for x in tensors]
        if not any(isinstance(x, list) for x in tensors):
            pytest.skip("only a random state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if name in LOOPS else "error")
        if name not in LOOPS and name not in RANDOM:
            vmap_levels._warned.discard(name)
        check(function, tensors, name)


def total(result, seed):
    """One number made of a result."""
    found = None
    for i, y in enumerate(as_tuple(result)):
        if y.is_floating_point():
            part = (y * gl.tensor(np.random.default_rng([seed, i]).normal(size=y.shape))).sum()
            found = part if found is None else found + part
    return found


@each_sample
def test_gradients_of_each_sample(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    targets = tuple(i for i, x in enumerate(sample.inputs) if is_float(x))
    if not row.steps or not targets or sample.gradients == 0 or name in RANDOM:
        pytest.skip("no gradient")
    function = lambda *xs: total(row(*xs, **sample.params), 3)
    if function(*[gl.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]) is None:
        pytest.skip("no floating point output")
    tensors = batch(name, sample.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(lambda *xs: grad(function, argnums=targets)(*xs), tensors, name)


@each_sample
def test_gradient_of_the_batch(name, number):
    """The gradient through a vmap, for mapped and for shared inputs, is that of a loop."""
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    targets = tuple(i for i, x in enumerate(sample.inputs) if is_float(x))
    if not row.steps or not targets or sample.gradients == 0 or name in RANDOM:
        pytest.skip("no gradient")
    tensors = batch(name, sample.inputs)
    shared = len(targets) > 1
    fixed = {targets[-1]} if shared else set()
    given = [
        gl.tensor(x[0] if i in fixed else np.stack(x)) if isinstance(x, list) else x for i, x in enumerate(tensors)
    ]
    dims = tuple(0 if isinstance(x, list) and i not in fixed else None for i, x in enumerate(tensors))

    def one(*xs):
        return total(row(*xs, **sample.params), 3)

    def together(*xs):
        return vmap(one, in_dims=dims)(*xs).sum()

    def in_turn(*xs):
        return sum(one(*[x[k] if d == 0 else x for x, d in zip(xs, dims, strict=True)]) for k in range(SIZE))

    if one(*[gl.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]) is None:
        pytest.skip("no floating point output")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = grad(together, argnums=targets)(*given)
    for got, want in zip(found, grad(in_turn, argnums=targets)(*given), strict=True):
        same(got, want, name)


def test_most_rows_have_a_rule():
    rows = {name: row for name, row in ops.ROWS.items() if row.inputs and not row.dynamic and name not in RANDOM}
    loops = {name for name, row in rows.items() if rule_of(row) is None}
    assert loops == LOOPS
    assert len(loops) < 0.15 * len(rows)
    with_steps = {"masked_scatter", "masked_gather", "median_of_all", "spmm", "sddmm", "grouped_mm"}
    assert {name for name in loops if rows[name].steps} == with_steps
    assert set(RULES) <= set(ops.ROWS)
