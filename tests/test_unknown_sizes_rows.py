"""Every row (and its gradient) in a graph where one size of its samples is unknown: the right result or an error, never another result."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.graph import trace
from gradlab.graph.staging.symbol import TraceError

from samples import SAMPLES

# Rows of which some sample refuses, because min(rows, columns) or a ceiling depends on the actual size.
SIZES_COMPARED = {"qr", "svd", "lu", "diagonal", "slice", "max_pool"}


def cases(name):
    """For each sample and each size in it: the function, its tensors, and where that size is."""
    row = ops.ROWS[name]
    for sample in SAMPLES[name]:
        arrays = [np.asarray(x) for x in sample.inputs if isinstance(x, np.ndarray)]
        if not arrays or any(0 in a.shape for a in arrays):
            continue

        def function(*given, sample=sample):
            waiting = iter(given)
            args = [next(waiting) if isinstance(x, np.ndarray) else x for x in sample.inputs]
            result = bind(row)(*args, **sample.params)
            outs = list(result) if isinstance(result, tuple) else [result]
            sources, ends = [t for t in given if t.requires_grad], [t for t in outs if t.requires_grad]
            if sources and ends:
                found = gl.autograd.grad(ends, sources, [t.ones_like() for t in ends], allow_unused=True)
                outs += [g for g in found if g is not None]
            return tuple(outs)

        for size in sorted({n for a in arrays for n in a.shape if n > 1}):
            tensors = [gl.tensor(a) for a in arrays]
            for t in tensors:
                if sample.gradients and t.is_floating_point():
                    t.requires_grad_()
            dynamic = {i: {d: f"s{size}" for d, n in enumerate(a.shape) if n == size} for i, a in enumerate(arrays)}
            yield function, tensors, {i: d for i, d in dynamic.items() if d}


@pytest.mark.parametrize("name", [name for name, row in ops.ROWS.items() if not row.dynamic])
def test_row(name):
    for function, tensors, dynamic in cases(name):
        try:
            gl.manual_seed(0)
            want = function(*tensors)
            program = trace(function, *tensors, dynamic=dynamic)
        except (RuntimeError, ValueError, IndexError, TypeError):  # the sample's parameters, or other inputs, hold the size as a number
            continue
        gl.manual_seed(0)
        try:
            got = program(*tensors)
        except TraceError:
            assert name in SIZES_COMPARED
            continue
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_most_rows_take_unknown_sizes():
    taken = 0
    for name, row in ops.ROWS.items():
        for function, tensors, dynamic in () if row.dynamic else cases(name):
            try:
                trace(function, *tensors, dynamic=dynamic)
                taken += 1
                break
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
    assert taken > 0.75 * len(ops.ROWS), taken
