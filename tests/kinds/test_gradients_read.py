"""Compiled functions and the `.grad` of what they use: read, added to, replaced, deleted; of parameters and of arguments; there or not.

A gradient is another tensor after each backward of eager code, so a program may neither keep the one that it was traced with, nor forget
what an argument had before the call.
"""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph.executables.numpy.executable import NumpyExecutable

pytestmark = pytest.mark.filterwarnings("ignore:compile. the function looks at")  # such calls run eagerly, and are to be right


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)


def looks(a):
    return a * 0 + 5 if a.grad is None else a.grad * 2


def adds(a):
    (a * a).sum().backward()


def adds_and_looks(a):
    (a * a).sum().backward()
    return a.grad * 1


def adds_twice(a):
    (a * a).sum().backward()
    (a * 3).sum().backward()
    return a * 2


def starts_anew(a):
    a.grad = None
    (a * a).sum().backward()
    return a.grad * 1


def sets(a):
    a.grad = a.detach() * 7


def scales(a):
    if a.grad is not None:
        a.grad.mul_(3)


def deletes(a):
    a.grad = None


WAYS = [looks, adds, adds_and_looks, adds_twice, starts_anew, sets, scales, deletes]
HAD = [None, [1.0, 2.0, 3.0], [40.0, 50.0, 60.0]]


def leaf(had):
    w = gl.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.grad = None if had is None else gl.tensor(had)
    return w


def seen(result, w):
    return [None if t is None else t.tolist() for t in (result, w.grad)]


@pytest.mark.parametrize("later", range(3))
@pytest.mark.parametrize("first", range(2))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("held", [False, True], ids=["argument", "parameter"])
def test_what_eager_gives(held, way, first, later):
    had = [HAD[first]] * 3 + [HAD[later]] * 2

    def run(compiled):
        w, found = leaf(None), []
        function = (lambda: way(w)) if held else way
        function = gl.compile(function) if compiled else function
        for each in had:
            now = w if held else leaf(None)
            now.grad = None if each is None else gl.tensor(each)
            found.append(seen(function() if held else function(now), now))
        return found

    assert run(True) == run(False)


def test_norms_of_gradients_of_eager_steps():
    """Nothing but the gradients is used: their owners are no input of the program."""
    model = nn.Linear(2, 2)
    norms = lambda: gl.stack([p.grad.norm() for p in model.parameters()])
    compiled = gl.compile(norms)
    for i in range(1, 6):
        model.zero_grad()
        (model(gl.ones(3, 2) * i).sum() * i).backward()
        np.testing.assert_allclose(compiled().tolist(), norms().tolist(), rtol=1e-6)


def follows(function, before, after, *arguments):
    """A compiled function without arguments gives what eager gives, whichever gradient there is."""
    compiled = gl.compile(function)
    for change in (before, before, before, after, after, before):
        change()
        np.testing.assert_allclose(compiled(*arguments).tolist(), function(*arguments).tolist(), rtol=1e-6)


def giving(w, make):
    def give():
        w.grad = make()

    return give


@pytest.mark.parametrize(
    "other", [lambda: gl.arange(9.0).reshape(3, 3) * 5, lambda: gl.arange(9.0).reshape(3, 3).t(), lambda: gl.ones(3, 3) * 4],
    ids=["view", "turned", "whole"],
)  # fmt: skip
@pytest.mark.parametrize("first", [lambda: gl.arange(9.0).reshape(3, 3), lambda: gl.ones(3, 3)], ids=["view", "whole"])
def test_views_as_gradients(first, other):
    w = gl.ones(3, 3, requires_grad=True)
    follows(lambda: w.grad * w.grad.stride()[0] + 1, giving(w, first), giving(w, other))


def test_a_gradient_under_two_names():
    w = gl.ones(3, requires_grad=True)
    kept = gl.tensor([1.0, 2.0, 3.0])
    follows(lambda: w.detach() * 0 + kept, giving(w, lambda: kept), giving(w, lambda: gl.ones(3) * 9))
    follows(lambda: w.grad * 2 + kept, giving(w, lambda: kept), giving(w, lambda: gl.ones(3) * 9))


def test_in_a_branch():
    w = gl.ones(3, requires_grad=True)
    branch = lambda x: gl.cond(x.sum() > 0, lambda: w.grad * 2, lambda: w.grad * 3)
    follows(branch, giving(w, lambda: gl.ones(3)), giving(w, lambda: gl.ones(3) * 9), gl.ones(2))


def test_a_gradient_with_a_graph():
    w, k = gl.ones(3, requires_grad=True), gl.tensor([5.0, 6.0, 7.0], requires_grad=True)
    function = lambda: w.grad * 2
    compiled = gl.compile(function)
    for make in (*[lambda: gl.ones(3)] * 3, *[lambda: k * 2] * 3, lambda: gl.ones(3)):
        w.grad = make()
        assert (compiled().tolist(), compiled().requires_grad) == (function().tolist(), function().requires_grad)


def test_another_shape():
    w = gl.ones(3, requires_grad=True)
    compiled = gl.compile(lambda: w.grad.sum())
    for n in (3, 3, 3, 5, 5):
        w.grad = None
        w.data, w.grad = gl.ones(n), gl.ones(n)
        assert compiled().item() == n


def test_clipping():
    w = gl.ones(3, requires_grad=True)
    compiled = gl.compile(lambda: nn.utils.clip_grad_norm_([w], 1.0))
    for k in (1.0, 2.0, 3.0, 4.0):
        w.grad = gl.tensor([3.0 * k, 4.0 * k, 0.0])
        assert compiled().item() == pytest.approx(5 * k)
        np.testing.assert_allclose(w.grad.tolist(), [0.6, 0.8, 0.0], rtol=1e-5)


def test_an_argument_of_a_users_class():
    class Named(gl.Tensor):
        """A user's class of tensors."""

    compiled = gl.compile(lambda x: x * 2)
    named = gl.ones(2).as_subclass(Named)
    with pytest.warns(UserWarning, match="Named"):
        kinds = [type(compiled(named)) for _ in range(4)]
    assert kinds == [Named] * 4
    assert [type(compiled(gl.ones(2))) for _ in range(4)] == [gl.Tensor] * 4
