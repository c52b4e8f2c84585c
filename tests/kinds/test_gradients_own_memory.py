"""Gradients that are given out share memory with nothing else: each way to ask for one, behind each operation that passes it through."""

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import engine

F = gl.nn.functional
PATHS = {  # from x, and another leaf of its shape, to a result whose gradient arrives as it is, or in parts or other shapes
    "plus a number": lambda x, w: x + 1, "sum of two": lambda x, w: x + w, "difference": lambda x, w: x - w,
    "view": lambda x, w: x.view(-1),
    "transposed": lambda x, w: x.t(), "expanded": lambda x, w: x.expand(2, 2, 3), "clone": lambda x, w: x.clone(),
    "joined": lambda x, w: gl.cat([x, w]), "stacked": lambda x, w: gl.stack([x, w], 1), "one joined": lambda x, w: gl.cat([x]),
    "unbound": lambda x, w: gl.stack(x.unbind(1)), "row": lambda x, w: x[1], "rows": lambda x, w: x[:1], "strided": lambda x, w: x[:, ::2],
    "squeezed": lambda x, w: x[None].squeeze(0), "where": lambda x, w: gl.where(x > 5, w, x), "in place": lambda x, w: (x * 1).add_(w),
    "twice": lambda x, w: x + x, "cast": lambda x, w: x.to(gl.float64),
    "padded": lambda x, w: F.pad(x, (0, 0)), "summed": lambda x, w: x.sum(0, keepdim=True), "written": lambda x, w: gl.zeros(2, 3).copy_(x),
    "permuted": lambda x, w: x.permute(1, 0).permute(1, 0), "as another": lambda x, w: x.as_strided((2, 3), (3, 1)),
    "diagonal": lambda x, w: x.diagonal(),
}  # fmt: skip


def leaves():
    return gl.arange(6.0).reshape(2, 3).requires_grad_(), gl.ones(2, 3).requires_grad_()


def weights(y):
    return (gl.arange(y.numel()) + 1.0).reshape(y.shape)


def values(gradients):
    return {name: g.numpy().copy() for name, g in gradients.items() if g is not None}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("path", PATHS)
def test_each_gradient_is_its_owners(path, times):
    x, w = leaves()
    middle = x * 1
    y = PATHS[path](middle, w)
    middle.retain_grad()
    y.retain_grad()
    given = weights(y)
    y.backward(given, retain_graph=True)
    first = values({"x": x.grad, "w": w.grad, "middle": middle.grad, "y": y.grad})
    if times > 1:
        y.backward(given * 2, retain_graph=True)  # adds to what is there
    found = {"x": x.grad, "w": w.grad, "middle": middle.grad, "y": y.grad, "given": given}
    before = values(found)
    for name, value in first.items():
        assert np.array_equal(before[name], value * (1 if times == 1 else 3))
    assert np.array_equal(before["given"], weights(y).numpy())
    for name, g in found.items():
        if g is not None:
            g.fill_(-7)
            before[name] = g.numpy().copy()
            now = values(found)
            assert all(np.array_equal(now[n], before[n]) for n in now), name


@pytest.mark.parametrize("path", PATHS)
def test_gradients_of_chosen_inputs_are_theirs(path):
    x, w = leaves()
    middle = x * 1
    y = PATHS[path](middle, w)
    given = weights(y)
    asked = gl.autograd.grad(y, (middle, x), given, retain_graph=True)
    want = [a.numpy().copy() for a in asked]
    for times in (1, 2):
        y.backward(given, retain_graph=True, inputs=[middle, x])
        for t, a in zip((middle, x), want, strict=True):
            assert np.array_equal(t.grad.numpy(), times * a)
        middle.grad.add_(1)
        assert np.array_equal(x.grad.numpy(), times * want[1]) and np.array_equal(given.numpy(), weights(y).numpy())
        middle.grad.sub_(1)
    assert w.grad is None and np.array_equal(given.numpy(), weights(y).numpy())
    for one, other in itertools.permutations((middle, x)):
        kept = other.grad.numpy().copy()
        one.grad.fill_(-3)
        assert np.array_equal(other.grad.numpy(), kept) and np.array_equal(given.numpy(), weights(y).numpy())


HELD = {
    "itself": lambda g: g, "detached": lambda g: g.detach(), "array": lambda g: g.numpy(), "part": lambda g: g[0],
    "turned": lambda g: g.t(), "part of the array": lambda g: g.numpy()[:, 1],
}  # fmt: skip


@pytest.mark.parametrize("held", HELD)
def test_a_gradient_that_its_user_holds_is_not_written(held):
    """What a hook has seen of it stays as it was while more is added."""
    for path in PATHS.values():
        x, w = leaves()
        seen = []
        x.register_hook(lambda g, seen=seen: seen.append(HELD[held](g)))
        y = path(x, w)
        y.backward(weights(y), retain_graph=True)
        kept = np.array(seen[0], copy=True)
        y.backward(weights(y), retain_graph=True)
        x.grad.add_(1)
        assert np.array_equal(np.asarray(seen[0]), kept)


# ---------------------------------------------------------------- which value a retained gradient belongs to


def graph():
    x = gl.ones(2, 3).requires_grad_()
    return x, x * 1


def test_a_retained_gradient_is_that_of_the_newest_value():
    x, base = graph()
    row = base[0]
    row.retain_grad()
    base.mul_(2)  # the view is taken anew
    (row * 3).sum().backward()
    assert row.grad.tolist() == [3, 3, 3] and x.grad.tolist() == [[6, 6, 6], [0, 0, 0]]

    x, base = graph()
    row = base[0]
    base.retain_grad()
    row.mul_(2)  # the base follows from what its view became
    (base * 3).sum().backward()
    assert base.grad.tolist() == [[3, 3, 3]] * 2 and x.grad.tolist() == [[6, 6, 6], [3, 3, 3]]

    x, base = graph()
    base.retain_grad()
    base.mul_(2)
    (base * 3).sum().backward()
    assert base.grad.tolist() == [[3, 3, 3]] * 2 and x.grad.tolist() == [[6, 6, 6]] * 2

    x, base = graph()
    base.retain_grad()
    base.t_()
    (base * gl.arange(6.0).reshape(3, 2)).sum().backward()
    assert base.grad.tolist() == [[0, 1], [2, 3], [4, 5]] and x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_result_that_is_turned_without_recording_stays_in_its_graph():
    x, base = graph()
    with gl.no_grad():
        base.t_()
    (base * gl.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_an_accumulator_called_by_hand_copies():
    x, _ = graph()
    accumulate, given = (x * 1).grad_fn.next_functions[0][0], gl.ones(2, 3)
    accumulate(given)
    x.grad.mul_(5)
    assert given.tolist() == [[1, 1, 1]] * 2
    accumulate(given)
    assert x.grad.tolist() == [[6, 6, 6]] * 2 and given.tolist() == [[1, 1, 1]] * 2


def test_views_made_without_recording_are_refused_as_such():
    for leaf in (True, False):
        x = gl.ones(2, 3).requires_grad_()
        base = x if leaf else x * 1
        with gl.no_grad():
            row = base[0]
            further = row[:2]
        for view in (row, further):
            with pytest.raises(RuntimeError, match="a view that was made under no_grad"):
                view.mul_(2)
            with gl.no_grad():
                view.mul_(1)


def test_a_gradient_ends_at_chosen_inputs():
    """As `grad` of a compiled function's own gradient asks for it: what lies behind an input gets nothing through it."""
    x = gl.tensor([2.0, 3.0], requires_grad=True)
    a = x * 2
    b = a * 3
    y = a * b
    one = [gl.ones(2)]
    through = [g.tolist() for g in engine.grad([y], [a, b, x], one, True, False)]
    ending = engine.grad([y], [a, b], one, True, False, stops=frozenset((a.grad_fn, b.grad_fn)))
    assert [g.tolist() for g in ending] == [[12, 18], [4, 6]] and through == [[24, 36], [4, 6], [48, 72]]
    (behind,) = engine.grad([y], [x], one, True, False, stops=frozenset((b.grad_fn,)))
    assert behind.tolist() == [24, 36]
