"""Strided elementwise arrays that are too large for one launch's 32-bit count: they are cut into boxes (here tiny ones)."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import elementwise


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((), 4), ((3,), 4), ((9,), 4), ((3, 5), 7), ((3, 5), 4), ((5, 3, 2), 4), ((5, 3, 2), 11), ((5, 3, 2), 30), ((2, 7), 1)],
)
def test_boxes_are_stretches_that_make_up_the_array(sizes, most):
    numbers = np.arange(int(np.prod(sizes))).reshape(sizes[::-1])  # sizes are innermost first
    seen = []
    for box, place in elementwise.boxes(sizes, most):
        part = numbers[tuple(slice(p, p + n) for p, n in zip(place[::-1], box[::-1], strict=True))]
        assert part.size <= most
        seen.append(part.reshape(-1))
    np.testing.assert_array_equal(np.concatenate(seen), numbers.reshape(-1))


@pytest.mark.parametrize("most", [1, 7, 40, 100])
def test_pieces_give_the_whole(cuda, monkeypatch, most):
    monkeypatch.setattr(elementwise, "MOST", most)
    monkeypatch.setattr(cuda, "_plans", {})
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 7, 3)).astype(np.float32), rng.standard_normal((7, 1)).astype(np.float32)
    x, y = (gl.tensor(v, device="cuda") for v in (a, b))
    np.testing.assert_array_equal((x + y).cpu().numpy(), a + b)
    np.testing.assert_array_equal((x.permute(2, 0, 1) * 2.0).cpu().numpy(), a.transpose(2, 0, 1) * 2)
    np.testing.assert_array_equal(x.flip(1).neg().cpu().numpy(), -a[:, ::-1])
    np.testing.assert_array_equal((x.permute(2, 0, 1) > 0).cpu().numpy(), a.transpose(2, 0, 1) > 0)
