"""What scripts may say: each construct eagerly, traced, and from a file gives what Python gives; docs/jit.md lists them."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.jit.reader import from_bytes
from gradlab.jit.writer import to_bytes

SCALE = 3.0


@pytest.fixture(autouse=True)
def row_by_row(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILE", "0")


def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in flat(part)] if isinstance(value, (tuple, list)) else [value]


def number(x):
    return x.detach().numpy() if isinstance(x, gl.Tensor) else np.asarray(x)


def if_else(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = -x
    return y + 1


def elif_chain(x):
    if x.sum() > 10:
        y = x
    elif x.sum() > 0:
        y = x * 10
    elif x.sum() < -10:
        y = x * 100
    else:
        y = x * 1000
    return y


def if_without_else(x):
    y = x
    if x.max() > 1:
        y = y / x.max()
    return y


def early_returns(x):
    if x.sum() > 5:
        return x
    y = x + 1
    if y.sum() < 0:
        if y.max() < -2:
            return y * 3
        y = y - 1
    return y * 2


def returns_in_both(x):
    if x.sum() > 0:
        return x * 2, {"a": x}
    else:
        return x * 3, {"a": -x}


def while_tensor(x):
    steps = 0
    while x.abs().sum() > 1:
        x = x / 2
        steps += 1
    return x, steps


def while_python(x):
    n = 0
    while n < 3:
        x = x + n
        n = n + 1
    return x


def for_range_int(x):
    for i in range(3):
        x = x * (i + 1)
    return x, i


def for_range_tensor(x):
    n = (x > 0).sum()
    total = x * 0
    for i in range(n):
        total += x * i
    return total


def for_range_two_bounds(x):
    total = x * 0
    for i in range(1, (x > 0).sum() + 1, 2):
        total = total + i
    return total


def for_items(x):
    for scale, shift in zip((1.0, 2.0), [x, x * 2]):
        x = x * scale + shift
    return x


def nested_ifs_in_a_loop(x):
    i = 0
    while i < 4:
        if x[0] > 0:
            if x[1] > 2:
                x = x - 1
            else:
                x = x + 2
        else:
            x = -x
        i += 1
    return x


def loops_in_loops(x):
    total = x.sum() * 0
    i = 0
    while total < 6:
        j = 0
        while j < i:
            total = total + 1
            j = j + 1
        i = i + 1
    return total, i


def conditions(x):
    y = x
    if x[0] > 0 and not x[1] > 3 or (x == 7).all():  # noqa: RUF021 - to be parsed
        y = y * 5
    if 0 < x[0] < 2:
        y = y + 100
    return y


def conditional_expression(x):
    y = x * 2 if x.sum() > 0 else x - 1
    return y if y[0] > 3 else -y


def augmented_and_unpacked(x):
    a, (b, *c) = x * 1, (x + 1, x + 2, x + 3)
    if x.sum() > 0:
        a += b
        b, a = a, b
    else:
        a *= 2
    return a, b, c


def python_decisions(x, flag=None, mode="double"):
    if flag is None and mode == "double":
        x = x * 2
    if x.shape[0] > 1:
        x = x + x.shape[0]
    if len(x.shape) == 1 and x.sum() > 0:
        x = x * SCALE
    return x


def break_and_continue(x):
    for i in range(6):
        if i == 1:
            continue
        if i == 4:
            break
        if x.sum() > 0:
            x = x - i
    return x


def return_from_a_loop(x):
    for i in range(3):
        x = x + 1
        if i == 1:
            return x
    return x * 0


def with_blocks(x):
    with gl.no_grad():
        if x.sum() > 0:
            x = x * 2
    return x


def calls(x):
    y = helper(x) if x.sum() > 0 else nn.functional.relu(x)
    return inner(y)


def helper(x):
    return x * 7


@gl.jit.script
def inner(x):
    if x.sum() > 20:
        x = x / 10
    return x


def comprehensions(x):
    parts = [x * k for k in range(3) if k != 1]
    if x.sum() > 0:
        y = sum(p.sum() for p in parts)
    else:
        y = parts[1].max()
    return y


def numbers_that_agree(x):
    if x.sum() > 0:
        y, k = x, 2
    else:
        y, k = -x, 2
    return y.reshape(k, -1)[:, :1]


def in_place_in_its_own_tensor(x):
    y = x.clone()
    y[0] = 5.0
    if x.sum() > 0:
        z = x * 1
        z[1] = 9.0
    else:
        z = x
    return y, z


def elements_of_outer_variables(x):
    y, z, n = x.clone(), gl.zeros(2, 2), x.clone()
    if x.sum() > 0:
        y[0] = 5.0
        z[0][1] = x[0]
    else:
        z[1, 0] += 2
    while n.sum() > 0:
        n[0] -= 2
    for i in range((x > 0).sum()):
        z[i % 2] = x[0] * i
    return y, z, n


def temporaries(x):
    if x.sum() > 0:
        t = x * 2
        u = "text"
        x = t + len(u)
    return x


def assertions(x):
    assert x.shape[0] == 4
    return x


ACCEPTED = [
    if_else, elif_chain, if_without_else, early_returns, returns_in_both, while_tensor, while_python, for_range_int, for_range_tensor,
    for_range_two_bounds, for_items, nested_ifs_in_a_loop, loops_in_loops, conditions, conditional_expression, augmented_and_unpacked,
    python_decisions, break_and_continue, return_from_a_loop, with_blocks, calls, comprehensions, numbers_that_agree,
    in_place_in_its_own_tensor, elements_of_outer_variables, temporaries, assertions,
]  # fmt: skip
INPUTS = ([1.0, 2.0, -3.0, 4.0], [-1.0, -2.0, 0.5, -9.0], [7.0, 7.0, 7.0, 7.0], [0.5, 0.25, 0.0, -1.0])


@pytest.mark.parametrize("function", ACCEPTED, ids=lambda f: f.__name__)
def test_accepted(function):
    scripted = gl.jit.script(function)
    program = gl.jit.trace(scripted, (gl.tensor(INPUTS[0]),))
    loaded = from_bytes(to_bytes(program._plan, program.tensors()))
    for values in INPUTS:
        want = [number(v) for v in flat(function(gl.tensor(values)))]
        for run in (scripted, program, loaded):
            got = [number(v) for v in flat(run(gl.tensor(values)))]
            for a, b in zip(want, got, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)


def test_gradients_and_compile(monkeypatch):
    monkeypatch.delenv("GRADLAB_COMPILE")
    scripted = gl.jit.script(early_returns)
    compiled = gl.compile(scripted)
    for values in INPUTS:
        results = []
        for run in (early_returns, scripted, compiled, compiled):
            x = gl.tensor(values, requires_grad=True)
            results.append(gl.autograd.grad((run(x) ** 2).sum(), x)[0].numpy())
        for r in results[1:]:
            np.testing.assert_allclose(r, results[0], rtol=1e-5)


def test_an_example_makes_a_program(tmp_path):
    program = gl.jit.script(if_else, (gl.ones(2),))
    assert isinstance(program, gl.jit.ScriptModule)
    gl.jit.script(if_else).save(tmp_path / "p.glp", (gl.ones(2),))
    assert gl.jit.load(tmp_path / "p.glp")(gl.tensor([-1.0, -2.0])).tolist() == [2.0, 3.0]


class Twice(gl.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = gl.nn.Linear(3, 2)

    def forward(self, x, negate: bool = False):
        y = self.inner(x)
        if x.sum() > 0:
            y = 2 * y
        return -y if negate else y


def test_what_was_called_is_saved(tmp_path):
    script = gl.jit.script(Twice())
    with pytest.raises(RuntimeError, match="call the script once"):
        script.save(tmp_path / "p.glp")
    script(gl.ones(4, 3))
    gl.jit.save(script, tmp_path / "p.glp")
    program = gl.jit.load(tmp_path / "p.glp")
    for x in (gl.randn(4, 3), gl.randn(7, 3)):  # the first dimension is unknown
        np.testing.assert_allclose(program(x).detach().numpy(), script(x).detach().numpy(), rtol=1e-5)
    script(gl.ones(4, 3), negate=True)
    script.save(tmp_path / "p.glp")
    x = gl.randn(4, 3)
    assert gl.allclose(gl.jit.load(tmp_path / "p.glp")(x, True), -script(x), atol=1e-6)

    @gl.jit.script
    def spread(x, wide):  # one size decides, another differs from call to call
        return x.sum(0) + gl.ones(x.shape[0] % 2 + 2) if x.shape[0] > 2 else x.sum(0) + wide.sum()

    for width in (3, 5):
        spread(gl.ones(2, 4), gl.ones(width))
    spread.save(tmp_path / "f.glp")
    assert gl.jit.load(tmp_path / "f.glp")(gl.ones(2, 4), gl.ones(9)).tolist() == [11, 11, 11, 11]
    collatz = gl.jit.script(countdown)
    assert collatz(gl.tensor(3)) == 3
    collatz.save(tmp_path / "c.glp")
    assert gl.jit.load(tmp_path / "c.glp")(gl.tensor(5)) == 5


def countdown(n):
    steps = 0
    while n != 0:
        n, steps = n - 1, steps + 1
    return steps


def test_tensors_in_eager_code_decide_as_in_python():
    seen = []

    @gl.jit.script
    def f(x):
        if x.sum() > 0:
            seen.append(1)
        while x.sum() < 3:
            x = x + 1
            seen.append(2)
        return float(x.sum())

    assert f(gl.ones(1)) == 3.0 and seen == [1, 2, 2]


def test_classes_are_given_back():
    class Kind(enum.Enum):
        A = 1

    class Pair(NamedTuple):
        x: gl.Tensor

    for cls in (Kind, Pair, str):
        assert gl.jit.script(cls) is cls
    with pytest.raises(TypeError, match=r"Linear is a class of modules; script an instance"):
        gl.jit.script(gl.nn.Linear)
