"""Functions of several rows on half types compute in float32 and round once, and so do their gradients."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

HALF = gl.float16


def halves(*values):
    return gl.tensor(values, dtype=HALF)


def test_variance_of_what_overflows_when_squared():
    assert gl.tensor([40.0, -40.0] * 32, dtype=HALF).var().item() == 1625
    ones = gl.tensor([-1.0, 1.0] * 40_000, dtype=HALF)  # more elements than float16 can count
    assert ones.var().item() == ones.std().item() == 1


@pytest.mark.parametrize("vector", [(300.0, 400.0), (3e-5, 4e-5), (30_000.0, 40_000.0)])
def test_vectors_of_any_length(vector):
    x = halves(vector).requires_grad_()
    y = F.normalize(x)
    np.testing.assert_allclose(y.detach().float().numpy(), [[0.6, 0.8]], rtol=5e-3)
    y[0, 0].backward()
    wide = x.detach().float().requires_grad_()
    F.normalize(wide)[0, 0].backward()
    np.testing.assert_array_equal(x.grad.numpy(), wide.grad.half().numpy())
    assert F.cosine_similarity(x, x).item() == 1


def test_distances_whose_squares_overflow():
    a, b = halves((300.0, 400.0)), halves((0.0, 0.0))
    assert F.pairwise_distance(a, b).item() == gl.dist(a, b).item() == gl.cdist(a, b).item() == 500


def test_a_clipped_gradient_keeps_its_direction():
    p = gl.nn.Parameter(gl.ones(2, dtype=HALF))
    p.grad = halves(600.0, 800.0)
    assert gl.nn.utils.clip_grad_norm_([p], 10.0).item() == 1000
    np.testing.assert_allclose(p.grad.float().numpy(), [6, 8], rtol=1e-2)


def test_a_maximum_reached_more_often_than_half_can_count():
    x = gl.zeros(70_000, dtype=HALF, requires_grad=True)
    x.amax().backward(gl.tensor(1000.0, dtype=HALF))
    assert (x.grad == gl.tensor(1000 / 70_000).half()).all()


def test_many_small_gradients_beside_a_large_one():
    x = halves(1.0).requires_grad_()
    (gl.stack([x * k for k in (2048.0, *[0.5] * 8)])).sum().backward()
    assert x.grad.item() == 2052


def test_a_group_norm_in_half_with_weights_in_float32():
    x = gl.randn(2, 4, 3).half()
    assert F.group_norm(x, 2, gl.ones(4), gl.zeros(4)).dtype == HALF
