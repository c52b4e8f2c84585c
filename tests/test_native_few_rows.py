"""Products of few rows, or of one column, in compiled CPU programs: no matrix is packed for them (few_rows.cpp)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native_tasks import Memory

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import products

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
F = gl.nn.functional


@pytest.mark.parametrize("m, n", [(1, 1), (1, 5), (2, 37), (3, 1100), (3, 128), (4, 1), (70, 1)])
@pytest.mark.parametrize("k", [1, 7, 530])
def test_in_any_order(m, n, k):
    """Either factor as it is or transposed, with a bias and without; the same bits for one thread and three."""
    r = np.random.default_rng(m * n + k)
    a, b, bias = (r.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n), (n,)))
    exact = a.astype(np.float64) @ b
    for left, right, added in itertools.product((False, True), repeat=3):
        memory = Memory()
        places = []
        for array, turned in ((a, left), (b, right)):
            place = memory.put(np.ascontiguousarray(array.T if turned else array))
            places.append(place._replace(shape=place.shape[::-1], strides=place.strides[::-1]) if turned else place)
        c = memory.put(np.full((m, n), 7, np.float32))
        tasks = products.products(c, *places, memory.put(bias) if added else None, memory.ctx)
        columns = n == 1 and m > products.FEW
        if (not left or m == 1 or k == 1) and not columns:
            assert [task.kernel for task in tasks] == ["gradlab_few_rows"]
        found = [memory.run(tasks, threads).get(c).copy() for threads in (1, 3)]
        np.testing.assert_allclose(found[0], exact + bias * added, rtol=0, atol=1e-5 * np.sqrt(k))
        np.testing.assert_array_equal(*found)
    assert [task.kernel for task in tasks] == ["gradlab_few_rows"] or left


def test_with_what_follows():
    """A layer of one picture with its activation, backward too, and a layer with one output."""
    gl.manual_seed(0)
    model = gl.nn.Sequential(gl.nn.Linear(50, 70), gl.nn.GELU("tanh"), gl.nn.Linear(70, 1))

    def step(x):
        y = model(x)
        return y, *gl.autograd.grad(y.square().sum(), list(model.parameters()))

    compiled = gl.compile(step)
    for rows in (1, 3, 40):
        x = gl.randn(rows, 50)
        for _ in range(2):
            for got, want in zip(compiled(x), step(x), strict=True):
                np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=2e-5, atol=2e-6)
    ran = [s.kernels for p in compiled.programs for s in p.runner.executable.report]
    assert sum("gradlab_few_rows" in kernels for kernels in ran) >= 5
