"""Values that only the whole dtype tells apart: float64 beyond float32's digits, int64 beyond float64's. Orders and extremes know them.

A cast to a narrower dtype on the way makes ties of them, which no sample of usual numbers shows.
"""

import numpy as np
import pytest

import gradlab as gl

ORDER = np.random.default_rng(5).permutation(12)
VALUES = {
    "float64": 1.0 + ORDER.reshape(3, 4) * 1e-13,
    "int64": (1 << 60) + ORDER.reshape(3, 4),
}
BOUNDS = {name: np.sort(x.ravel())[::3] for name, x in VALUES.items()}


def middle(x):
    """The lower of two in the middle, as PyTorch's median."""
    return np.sort(x, 1)[:, (x.shape[1] - 1) // 2]


FUNCTIONS = {
    "sort": (lambda x, b: gl.sort(x, dim=1).values, lambda x, b: np.sort(x, 1)),
    "argsort": (lambda x, b: gl.argsort(x, dim=0), lambda x, b: np.argsort(x, 0)),
    "descending": (lambda x, b: gl.sort(x, dim=0, descending=True).values, lambda x, b: np.sort(x, 0)[::-1]),
    "msort": (lambda x, b: gl.msort(x), lambda x, b: np.sort(x, 0)),
    "topk": (lambda x, b: gl.topk(x, 2, dim=1).values, lambda x, b: np.sort(x, 1)[:, :1:-1]),
    "topk's places": (lambda x, b: gl.topk(x, 2, dim=1).indices, lambda x, b: np.argsort(x, 1)[:, :1:-1]),
    "kthvalue": (lambda x, b: gl.kthvalue(x, 2, dim=0).values, lambda x, b: np.sort(x, 0)[1]),
    "median": (lambda x, b: gl.median(x, dim=1).values, lambda x, b: middle(x)),
    "median's places": (lambda x, b: gl.median(x, dim=1).indices, lambda x, b: np.argsort(x, 1)[:, 1]),
    "unique": (lambda x, b: gl.unique(x), lambda x, b: np.unique(x)),
    "unique's inverse": (
        lambda x, b: gl.unique(x, return_inverse=True)[1], lambda x, b: np.unique(x, return_inverse=True)[1].reshape(x.shape),
    ),
    "unique_consecutive": (lambda x, b: gl.unique_consecutive(x.flatten()), lambda x, b: x.ravel()),
    "mode": (lambda x, b: gl.mode(gl.cat([x, x[:, 2:3]], 1), dim=1).values, lambda x, b: x[:, 2]),
    "max": (lambda x, b: gl.max(x, dim=0).values, lambda x, b: x.max(0)),
    "min's places": (lambda x, b: gl.min(x, dim=0).indices, lambda x, b: x.argmin(0)),
    "argmax": (lambda x, b: gl.argmax(x), lambda x, b: np.argmax(x)),
    "argmin": (lambda x, b: gl.argmin(x, dim=1), lambda x, b: np.argmin(x, 1)),
    "amax": (lambda x, b: gl.amax(x, 1), lambda x, b: x.max(1)),
    "amin": (lambda x, b: gl.amin(x, 0), lambda x, b: x.min(0)),
    "aminmax": (lambda x, b: gl.stack(list(gl.aminmax(x))), lambda x, b: np.array([x.min(), x.max()])),
    "cummax": (lambda x, b: gl.cummax(x, 1).values, lambda x, b: np.maximum.accumulate(x, 1)),
    "cummin": (lambda x, b: gl.cummin(x, 0).values, lambda x, b: np.minimum.accumulate(x, 0)),
    "searchsorted": (lambda x, b: gl.searchsorted(b, x), lambda x, b: np.searchsorted(b, x)),
    "bucketize": (lambda x, b: gl.bucketize(x, b, right=True), lambda x, b: np.searchsorted(b, x, "right")),
    "isin": (lambda x, b: gl.isin(x, b), lambda x, b: np.isin(x, b)),
    "maximum": (lambda x, b: gl.maximum(x[:, :1], x), lambda x, b: np.maximum(x[:, :1], x)),
    "clamp": (lambda x, b: gl.clamp(x, b[1], b[2]), lambda x, b: np.clip(x, b[1], b[2])),
    "lt": (lambda x, b: x < b[2], lambda x, b: x < b[2]),
    "eq": (lambda x, b: x == b[1], lambda x, b: x == b[1]),
    "where": (lambda x, b: gl.where(x > b[1], x, b[1]), lambda x, b: np.where(x > b[1], x, b[1])),
    "gather": (lambda x, b: gl.gather(x, 1, gl.argsort(x, 1)), lambda x, b: np.sort(x, 1)),
    "scatter_reduce": (
        lambda x, b: gl.zeros_like(x[0]).scatter_reduce(0, gl.tensor([0, 1, 2, 3]), x[1], "amax", include_self=False), lambda x, b: x[1],
    ),
    "diff": (lambda x, b: gl.diff(x, dim=1), lambda x, b: np.diff(x, axis=1)),
    "sub": (lambda x, b: x - b[0], lambda x, b: x - b[0]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_told_apart(name, dtype):
    ours, theirs = FUNCTIONS[name]
    x, bounds = VALUES[dtype], BOUNDS[dtype]
    for lies in (gl.tensor(x), gl.tensor(x.T.copy()).t()):
        np.testing.assert_array_equal(ours(lies, gl.tensor(bounds)).numpy(), theirs(x, bounds))
