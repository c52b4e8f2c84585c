"""Sizes beyond one block, tile or vector: machine code and the GPU's kernels against NumPy, over one list of sizes."""

from __future__ import annotations

import numpy as np
import pytest
from native_eager import kernels, needs_compiler

import gradlab as gl

F = gl.nn.functional
SIZES = (31, 33, 100, 257, 900, 3000, 70001)


def places(n, count):
    return np.random.default_rng(n).integers(0, n, count)


def padded(x, n):
    return x.reshape(1, 1, 1, -1) if n < 2000 else x.reshape(1, 1, 1, -1)[..., :2999]


# What is asked of a tensor of shape (n,), and of one of (n, 3)
LINES = {
    "sum": lambda x, n: x.sum(), "mean": lambda x, n: x.mean(), "amax": lambda x, n: x.amax(), "prod": lambda x, n: (1 + x / n).prod(),
    "var": lambda x, n: x.var(), "norm": lambda x, n: x.norm(), "logsumexp": lambda x, n: x.logsumexp(0),
    "cumsum": lambda x, n: x.cumsum(0) / n, "cumprod": lambda x, n: (1 + x / n).cumprod(0), "logcumsumexp": lambda x, n: x.logcumsumexp(0),
    "cummax": lambda x, n: x.cummax(0).values, "flip": lambda x, n: x.flip(0) * x, "roll": lambda x, n: x.roll(7) * x,
    "softmax": lambda x, n: x.softmax(0), "log_softmax": lambda x, n: x.log_softmax(0), "layer_norm": lambda x, n: F.layer_norm(x, (n,)),
    "rms_norm": lambda x, n: F.rms_norm(x, (n,)), "index_select": lambda x, n: x[gl.tensor(places(n, n + 5), device=x.device)],
    "index_add": lambda x, n: x.new_zeros(7).index_add(0, gl.tensor(places(n, n) % 7, device=x.device), x),
    "scatter_add": lambda x, n: x.new_zeros(n).scatter_add(0, gl.tensor(places(n, n), device=x.device), x),
    "where": lambda x, n: gl.where(x > 0, x, x * 0.1), "cat": lambda x, n: gl.cat([x, x[3:] * 2, x[:1]]),
    "max_pool": lambda x, n: F.max_pool2d(padded(x, n), (1, 3), (1, 2), (0, 1)),
    "avg_pool": lambda x, n: F.avg_pool2d(padded(x, n), (1, 5), (1, 3), (0, 2)),
    "conv1d": lambda x, n: F.conv1d(x.reshape(1, 1, -1), x.new_tensor([[[0.5, -1, 2]]]), padding=2, stride=2),
    "unfold": lambda x, n: x.unfold(0, 5, 3) * 1.5, "pad": lambda x, n: F.pad(x, (0, 2)) * 2, "dot": lambda x, n: x @ x.flip(0) / n,
}
ROWS = {
    "sum of columns": lambda x, n: x.sum(0), "sum of rows": lambda x, n: x.sum(1), "amax of columns": lambda x, n: x.amax(0),
    "softmax of columns": lambda x, n: x.softmax(0), "softmax of rows": lambda x, n: x.softmax(1),
    "layer_norm of rows": lambda x, n: F.layer_norm(x, (3,), x[0].detach() + 2, x[1].detach()),
    "batch_norm": lambda x, n: F.batch_norm(x, None, None, training=True), "cumsum of columns": lambda x, n: x.cumsum(0) / n,
    "cross_entropy": lambda x, n: F.cross_entropy(x, gl.tensor(places(n, n) % 3, device=x.device)),
    "product": lambda x, n: x.t() @ x / n, "outer product": lambda x, n: x[:257] @ x[:31].t(),
    "transposed": lambda x, n: x.t().contiguous() * 2,
    "gather": lambda x, n: x.gather(1, gl.tensor(places(n, (n, 4)) % 3, device=x.device)),
    "embedding": lambda x, n: F.embedding(gl.tensor(places(n, 517), device=x.device), x),
}  # fmt: skip
DEPTH = 513  # of products


def found(function, array, n, device):
    """The result and the gradient of one call, with weights that tell all places apart."""
    x = gl.tensor(array, device=device, requires_grad=True)
    y = function(x, n)
    weights = np.cos(np.arange(y.numel(), dtype=np.float64)).astype(array.dtype).reshape(y.shape)
    y.backward(gl.tensor(weights, device=device))
    return [t.detach().cpu().double().numpy() for t in (y, x.grad)]


def compare(way, sizes):
    device = "cuda" if way == "cuda" else "cpu"
    for table, tail in ((LINES, ()), (ROWS, (3,))):
        for name, function in table.items():
            for n in sizes:
                array = np.random.default_rng(n).normal(size=(n, *tail)).astype(np.float32)
                want = found(function, array.astype(np.float64), n, "cpu")
                if way == "native":
                    with kernels():
                        got = found(function, array, n, device)
                else:
                    got = found(function, array, n, device)
                for g, w in zip(got, want, strict=True):
                    scale = max(np.abs(w).max(initial=0), 1e-3)
                    np.testing.assert_allclose(g, w, rtol=2e-4, atol=5e-5 * scale, err_msg=f"{name} of {n}, {way}")
    for rows, columns in ((33, 31), (100, 257)):
        a, b = (np.random.default_rng(s).normal(size=shape).astype(np.float32) for s, shape in ((1, (rows, DEPTH)), (2, (DEPTH, columns))))
        with kernels() if way == "native" else gl.enable_grad():
            product = (gl.tensor(a, device=device) @ gl.tensor(b, device=device)).cpu().numpy()
        np.testing.assert_allclose(product, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("size", SIZES)
def test_native(size):
    compare("native", (size,))


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("size", SIZES)
def test_cuda(cuda, size):
    compare("cuda", (size,))
