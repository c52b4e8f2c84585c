"""Guards of `gl.compile`: whatever a traced function reads may change; the program follows."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

from compiled_steps import Net, batches, training

SCALE = 2.0


def follows(function, *calls):
    """Every call gives what eager gives, twice over."""
    run = gl.compile(function)
    for change, args in calls:
        change()
        for _ in range(3):
            np.testing.assert_allclose(np.array(run(*args).tolist()), np.array(function(*args).tolist()), rtol=1e-5)
    return run


def nothing():
    pass


def test_arguments_shapes_and_dtypes_and_numbers():
    x = gl.tensor([1.0, 2.0])
    run = follows(lambda x, s: x * s + 1, (nothing, (x, 2.0)), (nothing, (x, 2)), (nothing, (x, 3.0)), (nothing, (gl.ones(5), 2.0)),
                  (nothing, (x.double(), 2.0)), (nothing, (x, True)), (nothing, (x, -0.0)), (nothing, (x, 0.0)))  # fmt: skip
    assert len(run.programs) == 8


def test_globals_closures_and_attributes(monkeypatch):
    x = gl.ones(3)
    config = {"k": 1.0}

    class Settings:
        gain = 2.0

    settings = Settings()
    module = __import__(__name__)

    def function(x):
        return x * SCALE * settings.gain + config["k"]

    follows(function, (nothing, (x,)), (lambda: monkeypatch.setattr(module, "SCALE", 5.0), (x,)),
            (lambda: config.update(k=7.0), (x,)), (lambda: setattr(settings, "gain", 3.0), (x,)))  # fmt: skip


def test_helpers_behind_the_function_are_seen():
    box = [1.0]

    def helper(x):
        return x + box[0]

    def function(x):
        return helper(x) * 2

    follows(function, (nothing, (gl.ones(2),)), (lambda: box.append(3), (gl.ones(2),)), (lambda: box.__setitem__(0, 9.0), (gl.ones(2),)))


def test_modules_and_their_modes():
    gl.manual_seed(0)
    model = Net(0.5).eval()
    x = batches()[0][0]
    drop = model.drop
    run = follows(
        lambda x: model(x),
        (nothing, (x,)),
        (lambda: setattr(model, "gain", 3.0), (x,)),
        (lambda: setattr(model.norm, "eps", 0.5), (x,)),
        (lambda: setattr(model, "a", nn.Linear(6, 8)), (x,)),
        (lambda: setattr(model.b, "weight", nn.Parameter(gl.ones(3, 8))), (x,)),
        (lambda: model.b.register_forward_hook(lambda m, i, o: o * 2), (x,)),
        (lambda: setattr(model, "drop", nn.Identity()), (x,)),
    )
    assert len(run.programs) == 7
    model.drop = drop
    model.train()
    gl.manual_seed(2)
    first = run(x).tolist()
    assert first != run(x).tolist()


def test_parameters_that_move_or_freeze():
    model, update, step = training("Adam")
    run = gl.compile(step)
    data = batches()
    for x, y in data[:3]:
        run(x, y)
    model.load_state_dict(Net().state_dict())  # in place: the same program
    run(*data[3])
    assert len(run.programs) == 1
    update.load_state_dict(update.state_dict())  # other tensors
    run(*data[3])
    assert len(run.programs) == 2
    model.a.weight.requires_grad_(False)
    before = model.a.weight.numpy().copy()
    update.zero_grad()
    for x, y in data:
        run(x, y)
    np.testing.assert_array_equal(model.a.weight.numpy(), before)


def test_grad_mode_is_guarded():
    w = gl.ones(3, requires_grad=True)
    run = gl.compile(lambda x: w * x)
    x = gl.ones(3)
    for _ in range(3):
        assert run(x).requires_grad
        with gl.no_grad():
            assert not run(x).requires_grad


def test_one_tensor_twice_and_state_as_an_argument():
    total = gl.zeros(3)

    def add(a, b):
        total.add_(a)
        return total + b

    run = gl.compile(add)
    x, y = gl.ones(3), gl.full((3,), 2.0)
    for n in range(1, 4):
        assert run(x, y).tolist() == [n + 2.0] * 3
    assert run(x, x).tolist() == [5.0] * 3
    assert run(x, x).tolist() == [6.0] * 3
    total.zero_()
    for _ in range(3):  # eager would add `total` to itself
        total.fill_(1.0)
        assert run(total, y).tolist() == [4.0] * 3


def test_arguments_written_in_place_and_returned():
    def write(x, n):
        x.add_(n)
        return x, [x * 2, {"n": n}]

    run = gl.compile(write)
    x = gl.zeros(3)
    for i in range(1, 5):
        found, (double, rest) = run(x, 1)
        assert found is x
        assert (x.tolist(), double.tolist(), rest) == ([i] * 3, [2 * i] * 3, {"n": 1})
    view = gl.zeros(4, 2).t()
    for i in range(1, 4):
        run(view, 1)
        assert view[0].tolist() == [i] * 4


def test_keyword_arguments_and_methods():
    class Model:
        def __init__(self, k):
            self.k = k

        @gl.compile
        def run(self, x, *, shift=0.0):
            return x * self.k + shift

    a, b = Model(2.0), Model(3.0)
    for _ in range(3):
        assert a.run(gl.ones(2), shift=1.0).tolist() == [3.0, 3.0]
        assert b.run(gl.ones(2)).tolist() == [3.0, 3.0]
    a.k = 5.0
    assert a.run(gl.ones(2), shift=1.0).tolist() == [6.0, 6.0]


def test_too_many_programs_warn(capsys):
    run = gl.compile(lambda x, s: x * s, explain=True)
    x = gl.ones(2)
    with pytest.warns(UserWarning, match="8 programs already.*argument 1 was"):
        for s in range(12):
            run(x, float(s))
            run(x, float(s))
    assert "is traced again: argument 1 was" in capsys.readouterr().out


def test_closures_that_share_their_code():
    def scaled(gain):
        def act(x):
            return x * gain

        def change(value):
            nonlocal gain
            gain = value

        return act, change

    pairs = [scaled(1.0), scaled(2.0), scaled(3.0)]
    acts = [act for act, _ in pairs]

    def function(x):
        for act in acts:
            x = act(x)
        return x

    follows(function, (nothing, (gl.ones(2),)), *((lambda c=change: c(7.0), (gl.ones(2),)) for _, change in pairs))


B = gl.tensor(2.0)
READS = {
    "item": lambda x: x * B.item(),
    "float": lambda x: x * float(B),
    "int": lambda x: x * int(B),
    "bool": lambda x: x * 2 if B else x,
    "tolist": lambda x: x * B.tolist(),
    "numpy": lambda x: x * float(B.numpy()),
    "asarray": lambda x: x * float(np.asarray(B)),
    "of a view": lambda x: x * B.reshape(1)[0].item(),
    "detached": lambda x: x * B.detach().item(),
    "print": lambda x: x * len(repr(B)),
    "format": lambda x: x * len(f"{B:.2f}"),
    "in a branch": lambda x: gl.cond(x.sum() > 0, lambda: x * B.item(), lambda: x),
}


@pytest.mark.parametrize("what", READS)
def test_values_of_tensors_from_before_the_trace_are_not_read(what):
    run = gl.compile(READS[what])
    run(gl.ones(2))
    with pytest.raises(gl.graph.TraceError, match="a value was read while tracing"):
        run(gl.ones(2))


def test_values_that_the_trace_makes_may_be_read():
    run = gl.compile(lambda x: x * gl.tensor(3.0).item() + gl.tensor([1, 2]).tolist()[1])
    for _ in range(3):
        assert run(gl.ones(2)).tolist() == [5, 5]
