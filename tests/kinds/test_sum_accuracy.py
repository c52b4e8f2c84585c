"""Sums keep their last bits: everything that adds up, in each way of computing it, against float64, far from zero, over many elements."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

EPS = float(np.finfo(np.float32).eps)
MEAN = 1e4
SHAPES = {(70001, 3): (0, 1, (0, 1)), (3, 70001): (0, 1), (40, 300, 7): (0, 1, (0, 2), (1, 2))}
N = 20011
# One number for each of many places, few places for many numbers.
AT = np.random.default_rng(2).integers(0, 3, N)


def slopes(function: Callable[..., Any], *wanted: int) -> Callable[..., Any]:
    """The gradients of a weighted sum of the results by some arguments; the last argument holds the weights."""

    def found(*args: Any) -> Any:
        given = [a.detach().requires_grad_(i in wanted) if a.is_floating_point() else a for i, a in enumerate(args[:-1])]
        return gl.autograd.grad((function(*given) * args[-1]).sum(), [given[i] for i in wanted])

    return found


def at(x: Any) -> Any:
    return gl.tensor(AT, device=x.device)


# What is computed of x [N, 3] (mean 1e4), g [N, 3] (mean 1) and few numbers w [3]; x[:, 0] and g[:, 0] are vectors.
ROWS: dict[str, Callable[..., Any]] = {
    "nansum": lambda x, g, w: gl.nansum(x, 0),
    "nanmean": lambda x, g, w: gl.nanmean(x, 0),
    "var": lambda x, g, w: x.var(0),
    "var of all": lambda x, g, w: x.var(),
    "var of few": lambda x, g, w: x[:64].var(1),
    "std": lambda x, g, w: x.T.std(1),
    "var_mean": lambda x, g, w: gl.var_mean(x, 0),
    "std_mean": lambda x, g, w: gl.std_mean(x.T, 1),
    "norm": lambda x, g, w: gl.linalg.vector_norm(x, dim=0),
    "norm of order 1": lambda x, g, w: gl.linalg.vector_norm(x, 1, dim=0),
    "norm of order 3": lambda x, g, w: gl.linalg.vector_norm(x, 3, dim=0),
    "dot": lambda x, g, w: gl.dot(x[:, 0], g[:, 0]),
    "logsumexp": lambda x, g, w: gl.logsumexp(g, 0),
    "softmax": lambda x, g, w: gl.softmax(g, 0)[:5],
    "log_softmax": lambda x, g, w: gl.log_softmax(g.T, 1)[:, :5],
    "cumsum": lambda x, g, w: x.cumsum(0)[-3:],
    "cumsum of rows": lambda x, g, w: x.T.contiguous().cumsum(1)[:, -3:],
    "logcumsumexp": lambda x, g, w: g.logcumsumexp(0)[-3:],
    "gradient of a bias": lambda x, g, w: slopes(lambda b, v: v + b, 0)(w, g, x),
    "gradient of a linear bias": lambda x, g, w: slopes(F.linear, 2)(g, gl.outer(w, w), w, x),
    "gradient of a convolution's bias": lambda x, g, w: slopes(F.conv1d, 2)(
        g.T[None], gl.outer(w, w)[:, :, None], w, x.T[None]
    ),
    "mse_loss": lambda x, g, w: F.mse_loss(x, g),
    "l1_loss": lambda x, g, w: F.l1_loss(x, g),
    "smooth_l1_loss": lambda x, g, w: F.smooth_l1_loss(x, g, reduction="sum"),
    "cross_entropy": lambda x, g, w: F.cross_entropy(g, at(g)),
    "nll_loss": lambda x, g, w: F.nll_loss(x, at(x)),
    "binary_cross_entropy": lambda x, g, w: F.binary_cross_entropy_with_logits(g, g),
    "batch_norm": lambda x, g, w: statistics(x),
    "batch_norm of images": lambda x, g, w: statistics(x[:20000].T.reshape(3, 4, 5000)),
    "gradients of batch_norm": lambda x, g, w: slopes(lambda v, m, b: F.batch_norm(v, None, None, m, b, True), 1, 2)(g, w, w, g),
    "gradients of layer_norm": lambda x, g, w: slopes(lambda v, m, b: F.layer_norm(v, (3,), m, b), 1, 2)(g, w, w, x)[1],
    "gradients of rms_norm": lambda x, g, w: slopes(lambda v, m: F.rms_norm(v, (3,), m), 1)(g, w, x),
    "scatter_add": lambda x, g, w: w.scatter_add(0, at(x), x[:, 0]),
    "index_add": lambda x, g, w: gl.outer(w, w).index_add(0, at(x), x),
    "index_put": lambda x, g, w: w.index_put((at(x),), x[:, 0], accumulate=True),
    "gradient of an embedding": lambda x, g, w: slopes(lambda m: F.embedding(at(m), m), 0)(gl.outer(w, w), x),
    "gradient of expand": lambda x, g, w: slopes(lambda v: v.expand(N, 3), 0)(w, x),
    "bincount": lambda x, g, w: gl.bincount(at(x), x[:, 0]).to(x.dtype),
    "prod": lambda x, g, w: g[:64].prod(0),
    "cumprod": lambda x, g, w: g[:64].cumprod(0)[-1:],
    "cov": lambda x, g, w: gl.cov(x.T),
    "trapezoid": lambda x, g, w: gl.trapezoid(x, dim=0),
    "adaptive_avg_pool1d": lambda x, g, w: F.adaptive_avg_pool1d(x.T[None], 1),
    "avg_pool1d": lambda x, g, w: F.avg_pool1d(x.T[None], 5000),
}  # fmt: skip
# Products of vectors: how many times the bound.
LOOSER = {"dot": 4, "norm": 4, "cov": 4, "gradient of an embedding": 1 / 4}


def statistics(x: Any) -> Any:
    """Running mean and variance of one batch."""
    size = x.shape[1]
    mean, var = gl.zeros(size, dtype=x.dtype, device=x.device), gl.ones(size, dtype=x.dtype, device=x.device)
    F.batch_norm(x, mean, var, training=True, momentum=1.0)
    return mean, var


def around(mean: float, shape: tuple[int, ...]) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) + mean).astype(np.float32)


def arrays(found: Any) -> Iterator[np.ndarray]:
    for one in found if isinstance(found, (tuple, list)) else (found,):
        yield one.detach().cpu().numpy().astype(np.float64)


def error(found: Any, right: Any) -> float:
    """The largest error, of the largest number of each result."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(arrays(found), arrays(right), strict=True))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("shape", "dim"), [(shape, dim) for shape, dims in SHAPES.items() for dim in dims], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums(name, shape, dim, device):
    x = around(MEAN, shape)
    found = getattr(gl.tensor(x, device=device), name)(dim).cpu().numpy()
    right = getattr(x.astype(np.float64), name)(axis=dim)
    assert np.abs(found / right - 1).max() <= 4 * EPS


@pytest.mark.parametrize("way", ["eager", "compiled", "cuda"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_add_up(name, way):
    """Within 16 times 2^-23 of the largest number; of products of vectors, which are the library's, within 64 times."""
    given = [around(MEAN, (N, 3)), around(1, (N, 3)), np.array([0.5, 1.5, -1], np.float32)]
    function = ROWS[name]
    right = function(*(gl.tensor(a.astype(np.float64)) for a in given))
    tensors = [gl.tensor(a, device="cuda" if way == "cuda" else "cpu") for a in given]
    if way == "compiled" and name != "bincount":  # whose size depends on values
        function = gl.compile(function)
        function(*tensors)
    assert error(function(*tensors), right) <= 16 * EPS * LOOSER.get(name, 1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("many", [2, 20, 300, 5000])
def test_products_that_begin_with_zero(many, device):
    """However far the products behind it go."""
    x = gl.tensor([0.0] + [1e30] * many, device=device)
    assert x.prod().item() == 0
    assert not x.cumprod(0).any().item()
    assert not gl.stack((x, x), 1).prod(0).any().item()
    assert x[:, None].expand(-1, 3).cumprod(0).cpu().numpy().tolist() == [[0.0] * 3] * (many + 1)


def test_products_that_come_back():
    """On a GPU no product overflows on the way."""
    x = gl.tensor([1e30] * 100 + [2e-30] * 100, device="cuda", dtype=gl.float64)
    assert abs(x.prod().item() / 2.0**100 - 1) < 1e-12
    assert abs(x.cumprod(0)[-1].item() / 2.0**100 - 1) < 1e-12


LAYERS = {  # input, weights, options of the convolution
    "direct": ((2, 8, 12, 12), (32, 8, 3, 3), {}), "winograd": ((2, 64, 16, 16), (64, 64, 3, 3), {"padding": 1}),
    "places of one": ((2, 64, 8, 8), (32, 64, 1, 1), {}), "depthwise": ((2, 32, 12, 12), (32, 1, 3, 3), {"groups": 32}),
    "deep": ((1, 256, 6, 6), (32, 256, 5, 5), {"padding": 2}), "lines": ((2, 8, 30), (16, 8, 3), {}),
    "planes": ((1, 3, 9, 9), (4, 3, 3, 3), {}),
    "linear": ((64, 300), (48, 300), None), "batches": ((3, 5, 30), (8, 30), None),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_large_bias_comes_last(name, compiled):
    """The sum of products keeps its digits: the result is off by the rounding of the addition alone."""
    shape, weights, options = LAYERS[name]
    draws = np.random.default_rng(0)
    x, w, b = draws.standard_normal(shape), draws.standard_normal(weights) * 0.1, np.full(weights[0], 4e4)

    def layer(x, w, b):
        return F.linear(x, w, b) if options is None else getattr(F, f"conv{x.ndim - 2}d")(x, w, b, **options)

    run = gl.compile(layer) if compiled else layer
    for _ in range(3):
        found = run(*(gl.tensor(v, dtype=gl.float32) for v in (x, w, b)))
    wanted = layer(*(gl.tensor(np.float32(v), dtype=gl.float64) for v in (x, w, b)))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=0, atol=np.spacing(np.float32(4e4)) * 0.51)
