"""Samples of sampling at the points of a grid, beside a loop over points, dimensions and pixels that follows the definitions."""

import numpy as np

from samples.base import normal, sample, uniform
from samples.vision import cubic_weight, linear_weight


def inside(at, n, padding, aligned):
    """A coordinate brought into the image, and the slope of that."""
    slope = 1.0
    if padding == "reflection":
        low, high = (0.0, n - 1.0) if aligned else (-0.5, n - 0.5)
        if high == low:
            return 0.0, 0.0
        while not low <= at <= high:
            at, slope = (2 * low - at if at < low else 2 * high - at), -slope
    if padding != "zeros" and not 0 <= at <= n - 1:
        at, slope = min(max(at, 0), n - 1), 0.0
    return at, slope


def slope_of(distance, mode):
    """The derivative of a tap's weight by its distance."""
    d = abs(distance)
    if mode == "bilinear":
        found = -1.0 if d < 1 else 0.0
    else:
        found = 3.75 * d**2 - 4.5 * d if d <= 1 else -2.25 * d**2 + 7.5 * d - 6 if d < 2 else 0.0
    return found * np.sign(distance)


def shares(point, n, mode, padding, aligned):
    """What each of n pixels has in a point between -1 and 1, and the derivatives of that."""
    found, slopes = np.zeros(n), np.zeros(n)
    at, slope = (point + 1) * (n - 1) / 2 if aligned else (point + 1) * n / 2 - 0.5, (n - 1 if aligned else n) / 2
    if mode != "bicubic":
        at, bent = inside(at, n, padding, aligned)
        slope *= bent
    for tap in [round(at)] if mode == "nearest" else range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
        weight = 1 if mode == "nearest" else linear_weight(at - tap) if mode == "bilinear" else cubic_weight(at - tap, -0.75)
        pixel = int(inside(tap, n, padding, aligned)[0] if mode == "bicubic" else tap)
        if 0 <= pixel < n:
            found[pixel] += weight
            slopes[pixel] += 0 if mode == "nearest" else slope * slope_of(at - tap, mode)
    return found, slopes


def weights(x, grid, point, how, moved=-1):
    """What each pixel of an image has in one point; or the derivative of that by one coordinate."""
    found = np.ones(())
    for d, n in enumerate(x.shape[2:]):
        k = grid.shape[-1] - 1 - d
        found = np.multiply.outer(found, shares(grid[point][k], n, **how)[int(moved == k)])
    return found


def points(grid):
    return np.ndindex(grid.shape[:-1])


def grid_sample(x, grid, **how):
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *at in points(grid):
        y[(n, slice(None), *at)] = (x[n] * weights(x, grid, (n, *at), how)).sum(tuple(range(1, x.ndim - 1)))
    return y


def grid_sample_backward(g, x, grid, **how):
    dx, dgrid = np.zeros(x.shape), np.zeros(grid.shape)
    for n, *at in points(grid):
        above = g[(n, slice(None), *at)].reshape(-1, *(1,) * (x.ndim - 2))
        dx[n] += above * weights(x, grid, (n, *at), how)
        for k in range(grid.shape[-1]):
            dgrid[(n, *at, k)] = (above * x[n] * weights(x, grid, (n, *at), how, k)).sum()
    return dx, dgrid


def between(*shape, seed=0):
    """Points that no seam of these images is near."""
    return np.round(uniform(-1.4, 1.4, *shape, seed=seed) * 8) / 8 + 0.03


KINDS = [(mode, padding, aligned) for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection")
         for aligned in (False, True)]  # fmt: skip
SHAPES = {2: ((2, 3, 4, 5), (2, 3, 2, 2)), 3: ((1, 2, 3, 4, 2), (1, 2, 2, 1, 3))}
FORMS = [(2, how) for how in KINDS] + [(3, how) for how in KINDS if how[0] != "bicubic" and how[1] != "border"]


def given(rank, how):
    image, grid = SHAPES[rank]
    return (normal(*image), between(*grid)), dict(zip(("mode", "padding", "aligned"), how, strict=True))


SAMPLES = {"grid_sample": [], "grid_sample_backward": []}
for rank, how in FORMS:
    inputs, params = given(rank, how)
    SAMPLES["grid_sample"].append(sample(*inputs, reference=grid_sample, **params))
    g = normal(*inputs[0].shape[:2], *inputs[1].shape[1:-1], seed=1)
    SAMPLES["grid_sample_backward"].append(sample(g, *inputs, reference=grid_sample_backward, gradients=0, **params))
for image, grid in (((2, 0, 3, 3), (2, 1, 2, 2)), ((1, 2, 3, 3), (1, 0, 2, 2))):
    params = {"mode": "bilinear", "padding": "zeros", "aligned": False}
    SAMPLES["grid_sample"].append(sample(normal(*image), between(*grid), reference=grid_sample, **params))
