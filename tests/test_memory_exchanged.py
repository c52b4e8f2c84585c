"""A tensor that got other memory (`.data = ...`, `set_`) and the views that were taken of it before: those stay what they were."""

import numpy as np
import pytest

import gradlab as gl

WAYS = {
    "data": lambda x: setattr(x, "data", gl.full((4,), 9.0)),
    "set_": lambda x: gl.no_grad()(lambda: x.set_(gl.full((4,), 9.0)))(),
}
BASES = {
    "plain": lambda s: gl.arange(4.0),
    "computed": lambda s: gl.arange(4.0) * s,
    "leaf": lambda s: gl.arange(4.0).requires_grad_(),
    "turned": lambda s: (gl.arange(4.0).reshape(4) * s).unsqueeze_(0).squeeze_(0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", BASES)
def test_views_of_before(base, way):
    """Values, and the gradients of what is written to the views and to the tensor since."""
    s = gl.tensor(1.0, requires_grad=True)
    x = BASES[base](s)
    table, tail = x.view(2, 2), x[1:]
    if base == "leaf":
        with gl.no_grad():
            WAYS[way](x)
            table.mul_(10)
    else:
        WAYS[way](x)
        table.mul_(s * 10)
    assert table.tolist() == [[0, 10], [20, 30]] and tail.tolist() == [10, 20, 30] and x.tolist() == [9] * 4
    (tail * gl.tensor([1.0, 2.0, 3.0])).sum().backward()
    own = gl.arange(4.0).numpy()[1:] * [1, 2, 3]
    if base == "leaf":
        assert x.grad.tolist() == [0, 1, 2, 3]
    else:
        assert s.grad == own.sum() * 10 * (1 if base == "plain" else 2)


def test_more_than_once():
    """Each time's views have their own memory, and are no longer known when nobody has them."""
    s = gl.tensor(1.0, requires_grad=True)
    x = gl.arange(4.0) * s
    first = x[:2]
    for i in range(3):
        x.data = gl.full((4,), 9.0 + i)
        part = x[:2]
        part.mul_(s * 2)
        first.add_(s)
        assert (x.tolist(), part.tolist(), first.tolist()) == ([18 + 2 * i] * 2 + [9 + i] * 2, [18 + 2 * i] * 2, [1 + i, 2 + i])
    p = gl.ones(4, requires_grad=True)
    for _ in range(20):
        p.view(2, 2)
        p.data = p.data * 2
    assert len(p._meta.before) < 5
    assert np.array_equal(p.detach().numpy(), [2.0**20] * 4)
