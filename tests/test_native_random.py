"""Kernels of random rows in eager code: a seed's numbers are NumPy's, whatever the size, the place and the threads."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab.op import NEVER

pytestmark = needs_compiler
DRAWS = {
    "random_uniform": lambda n: [gl.rand(n), gl.rand(n, dtype=gl.float64), gl.zeros(n).uniform_(-2, 3)],
    "random_normal": lambda n: [gl.randn(n), gl.zeros(n).normal_(3.0, 0.02), gl.randn(n)],
    "random_integers": lambda n: [
        gl.randint(0, 10, (n,)), gl.randint(-5, 2**62, (n,)), gl.randint(-(2**63), 2**63 - 1, (n,)), gl.zeros(n).random_(),
        gl.zeros(n, dtype=gl.float64).random_(3, 17), gl.zeros(n, dtype=gl.int64).random_(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("row", DRAWS)
def test_the_numbers_of_a_seed(row, threads):
    before = gl.get_num_threads()
    gl.set_num_threads(threads)
    try:
        found = []
        for least in (1, NEVER):
            with kernels(least):
                gl.manual_seed(5)
                found.append([y.numpy() for n in (40_001, 70_000) for y in (*DRAWS[row](n), gl.rand(3))])
                assert (row in used()) == (least == 1)
        for a, b in zip(*found, strict=True):
            assert (a != b).sum() <= (a.size // 10_000 if row == "random_normal" else 0)  # a last bit, where logarithms are other ones
            np.testing.assert_allclose(a, b, rtol=1e-6)
    finally:
        gl.set_num_threads(before)
