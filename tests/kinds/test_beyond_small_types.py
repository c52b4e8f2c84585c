"""Beyond what the smaller of two ways holds: windows of more than 256 places, integers further apart than 32 bits."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F


@pytest.mark.parametrize("kernel", [(16, 16), (16, 17), (20, 19), (300, 1), (1, 257)])
def test_windows_of_many_places(kernel):
    """The largest element stands at each place of the window in turn, the last above all; of equal ones the first counts."""
    h, w = kernel
    count = h * w
    for place in sorted({0, 1, 254, 255, 256, 257, count // 2, count - 2, count - 1} & set(range(count))):
        x = np.zeros((1, 2, h + 1, w + 1))
        i, j = divmod(place, w)
        x[0, 0, i, j], x[0, 1] = 5.0, 1.0  # all are equal in the second
        values, indices = F.max_pool2d(gl.tensor(x), kernel, 1, return_indices=True)
        assert values[0, 0, 0, 0].item() == 5.0
        assert indices[0, 0, 0, 0].item() == i * (w + 1) + j
        assert indices[0, 1].flatten().tolist() == [0, 1, w + 1, w + 2]
        given = gl.tensor(x, requires_grad=True)
        F.max_pool2d(given, kernel, 1)[..., 0, 0].sum().backward()
        want = np.zeros_like(x)
        want[0, 0, i, j] = want[0, 1, 0, 0] = 1
        np.testing.assert_array_equal(given.grad.numpy(), want)


@pytest.mark.parametrize("span", [10, 1 << 31, 1 << 32, 1 << 33, 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("low", [-(1 << 63), -7, 0])
def test_integers_far_apart(span, low):
    rng = np.random.default_rng(1)
    high = min(low + span, (1 << 63) - 1)
    x = rng.integers(low, high, 300, endpoint=True).reshape(3, 100)
    x[:, ::9], x[:, 4::9], x[:, 5::9] = low, high, (low + high) // 2  # ties, and both ends
    for descending in (False, True):
        order = np.argsort(x, 1, kind="stable") if not descending else 99 - np.flip(np.argsort(np.flip(x, 1), 1, kind="stable"), 1)
        values, places = gl.sort(gl.tensor(x), 1, descending, stable=True)
        np.testing.assert_array_equal(places.numpy(), order)
        ordered = np.take_along_axis(x, order, 1)
        np.testing.assert_array_equal(values.numpy(), ordered)
        np.testing.assert_array_equal(gl.topk(gl.tensor(x), 7, 1, largest=descending).values.numpy(), ordered[:, :7])
    np.testing.assert_array_equal(gl.kthvalue(gl.tensor(x), 40, 1).values.numpy(), np.sort(x, 1)[:, 39])
    np.testing.assert_array_equal(gl.median(gl.tensor(x), 1).values.numpy(), np.sort(x, 1)[:, 49])
    np.testing.assert_array_equal(gl.unique(gl.tensor(x)).numpy(), np.unique(x))
