"""Kernels of grids and of volumes, in eager code: they are used, and have the numbers of NumPy or of the steps that traces have instead."""

import itertools

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.nn.functional.grid import composed
from gradlab.op import NEVER

pytestmark = needs_compiler
RANDOM = np.random.default_rng(0)
GRIDS = [*itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True))]


def with_slopes(compute, *arrays):
    """Its result and the gradients, as arrays."""
    leaves = [gl.from_numpy(a.copy()).requires_grad_() for a in arrays]
    y = compute(*leaves)
    y.backward(gl.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype))
    return [y.detach().numpy(), *[None if x.grad is None else x.grad.numpy() for x in leaves]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("sizes", "points"), [((5, 70), (9, 11, 2)), ((3, 4, 5), (2, 3, 4, 3))], ids=["images", "volumes"])
def test_grids(sizes, points, dtype):
    x, grid = (a.astype(dtype) for a in (RANDOM.standard_normal((2, 3, *sizes)), RANDOM.uniform(-2.2, 2.2, (2, *points))))
    for mode, padding, aligned in GRIDS:
        if mode == "bicubic" and len(sizes) == 3:
            continue
        with kernels():
            found = with_slopes(lambda a, g, how=(mode, padding, aligned): F.grid_sample(a, g, *how), x, grid)
            assert {"grid_sample", "grid_sample_backward"} <= used()
        steps = with_slopes(lambda a, g, how=(mode, padding, aligned): composed(a, g, *how), x, grid)
        np.testing.assert_array_equal(found[0], steps[0])
        for got, want in zip(found[1:], steps[1:], strict=True):
            np.testing.assert_allclose(got, np.zeros_like(got) if want is None else want, rtol=1e-4, atol=1e-4)


def test_poolings_of_volumes():
    x = RANDOM.standard_normal((2, 3, 6, 5, 7)).astype("f")
    x[0, 0, 2], x[1, 1, 3, 2, 2] = -np.inf, np.nan
    calls = {
        "max": lambda a: F.max_pool3d(a, 3, 2, 1), "dilated": lambda a: F.max_pool3d(a, 2, 1, dilation=2),
        "ceil": lambda a: F.max_pool3d(a, 2, ceil_mode=True), "adaptive": lambda a: F.adaptive_max_pool3d(a, (2, 3, 4)),
        "plane": lambda a: F.adaptive_max_pool2d(a[0], 3), "line": lambda a: F.adaptive_max_pool1d(a[0, 0], 2),
        "mean": lambda a: F.avg_pool3d(a, 3, 2, 1), "inside": lambda a: F.avg_pool3d(a, 3, 2, 1, count_include_pad=False),
        "divided": lambda a: F.avg_pool3d(a, 2, ceil_mode=True, divisor_override=3),
    }  # fmt: skip
    for compute in calls.values():
        with kernels():
            found = with_slopes(compute, x)
            assert used() & {"max_pool", "adaptive_max_pool", "avg_pool"}
        with kernels(NEVER):
            want = with_slopes(compute, x)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
