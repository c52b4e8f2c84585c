"""Launches of more blocks beside each other than a grid's second dimension holds: 65,535 on every GPU.

A product of 70,000 groups, or a sum into rows of three million numbers, is refused there as an invalid argument. The limit is made small
here, for the emulated GPU as well, so that a few blocks are many.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import launch_context
from gradlab.backends.cuda.emulator import launching
from gradlab.kernel import source_folders

# Where else kernels read a second or third place: why there are never too many.
BOUNDED = {
    "conv.cu": "groups, of which the launch rule takes 65,535; shares of a sum, at most 1024",
    "conv_ring.cuh": "the same",
    "conv_tile.cuh": "the same",
    "movement.cu": "a loop over the batch",
    "norm.cu": "shares of the rows, at most as many as a grid is high; the weight's or the bias's gradient",
    "reduce.cuh": "shares of a column",
    "rows.cuh": "shares of a column, at most 256",
    "second_place.cuh": "itself",
}


def numbers(*shape):
    return gl.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def sparse():
    return (numbers(6, 8) * (numbers(6, 8) > 0.3)).to_sparse()


CALLS = {
    "sums into wide rows": (gl.index_add, lambda: (numbers(5, 300), 0, gl.tensor([1, 3, 1, 4]), numbers(4, 300))),
    "many right sides": (
        lambda a, b: gl.linalg.solve_triangular(a, b, upper=True),
        lambda: (numbers(3, 3).triu() + 3 * gl.eye(3), numbers(3, 300)),
    ),
    "a batch of products": (lambda a, b: (a.long() @ b.long()).to(gl.int32), lambda: (10 * numbers(7, 3, 4), 10 * numbers(7, 4, 5))),
    "a sparse matrix times a wide one": (lambda a, b: a @ b, lambda: (sparse(), numbers(8, 1001))),
    "sums of groups": (
        lambda a, b, ends: gl.nn.functional.grouped_mm(a, b, offs=ends),
        lambda: (numbers(16, 33), numbers(33, 20), gl.tensor([3, 9, 9, 20, 33], dtype=gl.int32)),
    ),
}


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_more_blocks_than_a_grid_is_high(cuda, monkeypatch, name, most):
    monkeypatch.setattr(launch_context, "MOST_ROWS", most)
    monkeypatch.setattr(launching, "MOST_GRID", (2**31 - 1, most, 65535))
    function, made = CALLS[name]
    inputs = made()
    want, got = function(*inputs), function(*[x.cuda() if isinstance(x, gl.Tensor) else x for x in inputs])
    np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=2e-5, atol=2e-5)


def of_the_weight(x, weight):
    """A layer norm's gradient of its weight, of rows that no block holds."""
    x, weight = x.detach(), weight.detach().requires_grad_()
    return gl.autograd.grad(gl.nn.functional.layer_norm(x, (x.shape[1],), weight).tanh().sum(), weight)[0]


WALKING = {
    "a turned copy": (lambda x: x.mT.contiguous(), lambda: (numbers(7, 17, 18),)),
    "sums over rows": (of_the_weight, lambda: (numbers(64, 8200), numbers(8200))),
}


@pytest.mark.parametrize("name", WALKING)
def test_kernels_that_walk_are_given_no_third_dimension(cuda, monkeypatch, name):
    """They do not look at it: it would leave shares out, or do all of them twice."""
    monkeypatch.setattr(launch_context, "MOST_ROWS", 2)
    monkeypatch.setattr(launching, "MOST_GRID", (2**31 - 1, 2, 1))
    function, made = WALKING[name]
    inputs = made()
    want, got = function(*inputs), function(*[x.cuda() for x in inputs])
    np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=2e-5, atol=1e-4)


def test_a_grid_is_as_high_as_it_may_be():
    assert launch_context.MOST_ROWS <= launching.MOST_GRID[1] == launching.MOST_GRID[2] == 65535


def test_every_kernel_with_a_second_place_is_known():
    reads = {path.name for path in source_folders("cuda")[0].glob("*.cu*") if re.search(r"blockIdx\.[yz]", path.read_text())}
    assert reads == set(BOUNDED)
