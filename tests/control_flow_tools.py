"""What the tests of control flow share: leaves, comparisons, functions together with their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.graph import trace

COMPILERS = ["none", pytest.param("native", marks=pytest.mark.skipif(not compiler.available(), reason="no compiler"))]


def leaf(*shape, seed=0, dtype=gl.float64):
    return gl.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype).requires_grad_()


def same(found, wanted, tolerance=1e-10):
    """Nested tensors are equal."""
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b, tolerance)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for k in wanted:
            same(found[k], wanted[k], tolerance)
    elif wanted is None:
        assert found is None
    else:
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance)


def as_traced(function, *args, tolerance=1e-10):
    """The eager result, which a program of the function gives as well, on these arguments and on others."""
    wanted = function(*args)
    program = trace(function, *args)
    same(program(*args), wanted, tolerance)
    compiled = gl.compile(function)
    for _ in range(3):
        same(compiled(*args), wanted, tolerance)
    assert len(compiled.programs) == 1
    return wanted


def with_gradients(function, *others):
    """A function that also gives the gradients of a weighted sum of its results for its arguments and for `others`."""

    def compute(*args):
        results = gl.graph.staging.tree.flatten(function(*args))[0]
        total = sum((r * (r + 0.3)).sum() for r in results if r.dtype.is_floating_point)
        wanted = [x for x in (*args, *others) if x.requires_grad]
        return results, gl.autograd.grad(total, wanted, materialize_grads=True)

    return compute


def with_second_gradients(function, *others):
    """The same for a function of the gradients."""

    def compute(*args):
        results = gl.graph.staging.tree.flatten(function(*args))[0]
        total = sum((r * (r + 0.3)).sum() for r in results if r.dtype.is_floating_point)
        wanted = [x for x in (*args, *others) if x.requires_grad]
        first = gl.autograd.grad(total, wanted, create_graph=True, materialize_grads=True)
        return first, gl.autograd.grad(sum((g * g).sum() for g in first), wanted, materialize_grads=True)

    return compute
