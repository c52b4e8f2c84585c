"""Indices in kernels have as many bits as they need: the product of two sizes may be larger than an int."""

import numpy as np

import gradlab as gl


def test_cells_of_an_adaptive_pooling():
    """Output times input size is over 2^31."""
    x = np.random.default_rng(0).standard_normal((1, 1, 70001)).astype(np.float32)
    on = {device: gl.tensor(x, device=device, requires_grad=True) for device in ("cpu", "cuda")}
    for t in on.values():
        values, indices = gl.nn.functional.adaptive_max_pool1d(t, 40000, return_indices=True)
        starts = np.arange(40000) * 70001 // 40000
        ends = -(-(np.arange(40000) + 1) * 70001 // 40000)
        cells = [starts[k] + np.argmax(x[0, 0, starts[k] : ends[k]]) for k in range(40000)]
        assert np.array_equal(indices.cpu().numpy()[0, 0], cells)
        assert np.array_equal(values.detach().cpu().numpy(), x[..., cells])
        values.sum().backward()
    assert np.array_equal(on["cpu"].grad.numpy(), on["cuda"].grad.cpu().numpy())


def test_the_divisor_of_a_window_with_much_padding():
    """Its three sizes multiply to 8 · 10^9."""
    x = gl.ones(1, 1, 1, 1, 1, device="cuda")
    pooled = gl.nn.functional.avg_pool3d(x, 2000, stride=2000, padding=1000)
    assert np.array_equal(pooled.cpu().numpy(), np.full((1, 1, 1, 1, 1), 1 / 2000**3, np.float32))
