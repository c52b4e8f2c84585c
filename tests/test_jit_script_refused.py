"""What scripts may not say, each with its line and a way out; and errors at run time, which point at the user's line."""

from __future__ import annotations

import traceback

import pytest

import gradlab as gl
from gradlab.jit import ScriptError

ITEMS: list[int] = []


def has_try(x):
    try:
        return x
    except ValueError:
        return -x


def has_yield(x):
    yield x


def has_global(x):
    global ITEMS
    ITEMS = [x]
    return x


def has_nonlocal():
    n = 0

    def f(x):
        nonlocal n
        n = n + 1
        return x

    return f


def has_del(x):
    y = x
    del x
    return y


def has_match(x):
    match x.shape[0]:
        case 1:
            return x
    return -x


def has_import(x):
    import math

    return x * math.pi


def has_class(x):
    class A:
        pass

    return x


def has_walrus(x):
    if (y := x.sum()) > 0:
        x = y
    return x


def has_loop_else(x):
    for _ in range(3):
        x = x + 1
    else:  # noqa: PLW0120 - what is refused
        x = x * 2
    return x


def has_lambda_of_assigned(x):
    y = x
    f = lambda v: v + y
    if x.sum() > 0:
        y = x * 2
    return f(y)


def has_chain(x):
    if 0 < x.sum() < 3:
        x = -x
    return x


async def has_async(x):
    return x


STATIC = {
    has_try: "try cannot be part of a script; .*\n  at: test_jit_script_refused.py:1[0-9]: try:",
    has_global: "global cannot be part",
    has_nonlocal(): "nonlocal cannot be part",
    has_del: "del cannot be part of a script; leave the variable alone.*\n  at: .*: del x",
    has_match: "match cannot be part of a script; write if and elif",
    has_import: "import at the top of the file",
    has_class: "class cannot be part",
    has_walrus: r"\(:=\) cannot be part of a script; assign on a line of its own",
    has_loop_else: "the else of a loop cannot be part",
    has_lambda_of_assigned: "a function inside the script that reads y, which an if or a loop assigns",
    has_chain: "a chain of comparisons around a computed value",
    has_yield: "is a generator or a coroutine",
    has_async: "is a generator or a coroutine",
}


@pytest.mark.parametrize("function", STATIC, ids=lambda f: f.__name__)
def test_refused_when_scripted(function):
    with pytest.raises(ScriptError, match=STATIC[function]):
        gl.jit.script(function)


def breaks(x):
    while True:
        x = x + 1
        if x.sum() > 9:
            break
    return x


def returns_in_loop(x):
    for _ in range(3):
        if x.sum() > 0:
            return x
        x = x + 1
    return x


def breaks_in_tensor_range(x):
    for i in range((x > 0).sum()):
        if i > 1:
            break
    return x


def appends(x):
    found = []
    for _ in range((x > 0).sum()):
        found.append(x)  # noqa: PERF401 - what is refused
    return x


def sets_an_item(x):
    table = {}
    if x.sum() > 0:
        table["a"] = x
    return x


class Box:
    last = None


def sets_an_attribute(x):
    box = Box()
    if x.sum() > 0:
        box.last = x
    return x


def one_branch_only(x):
    if x.sum() > 0:
        y = x
    return y


def another_shape(x):
    if x.sum() > 0:
        y = x.sum()
    else:
        y = x
    return y


def another_dtype_in_a_loop(x):
    n = 0
    while x.sum() < 3:
        n = n + 0.5
        x = x + 1
    return n


def another_shape_in_a_loop(x):
    y = x
    while y.sum() < 30:
        y = gl.cat([y, y])
    return y


def another_object(x):
    if x.sum() > 0:
        name = "a"
    else:
        name = "b"
    return x, name


def none_or_tensor(x):
    y = None
    if x.sum() > 0:
        y = x
    return y


def many_elements(x):
    if x > 0:
        x = -x
    return x


def index_behind_the_loop(x):
    for i in range((x > 0).sum()):  # noqa: B007 - read behind
        x = x + 1
    return x * i


def raising(x):
    if x.sum() > 0:
        raise ValueError("positive")
    return x


def asserts(x):
    assert x.sum() > 0
    return x


def unset_before_loop(x):
    while x.sum() < 3:
        x = x + 1
        y = x
    return y


TRACED = {
    breaks: "an if with break, continue or return depends on the value of a tensor .*where.done, old, new.\n  at: .*: if x.sum.. > 9:",
    returns_in_loop: "an if with break, continue or return depends on the value of a tensor",
    breaks_in_tensor_range: "a loop over a range of tensors has break",
    appends: "a list is changed inside of the loop of line .*collect results in a tensor.*\n  at: .*: found.append.x.",
    sets_an_item: 'a dict is changed inside of the if of line .*\n  at: .*: table\\["a"\\] = x',
    sets_an_attribute: "a Box is changed inside of the if of line",
    one_branch_only: "y gets a value only where the condition holds, and is used behind the if; give it one .*\n  at: .*if x.sum",
    another_shape: r"y is float32\[\] where the condition holds, and float32\[2\] where it does not; both branches give one shape",
    another_dtype_in_a_loop: r"n is int64\[\] \(from 0\) before the loop, and float32\[\] after a turn; .*\n  at: .*: while x.sum\(\) < 3:",
    another_shape_in_a_loop: r"y is float32\[2\] before the loop, and float32\[4\] after a turn",
    another_object: "name is 'a' where the condition holds, and 'b' where it does not",
    none_or_tensor: r"y is float32\[2\] where the condition holds, and None where it does not",
    many_elements: r"a condition is one truth value, not a tensor bool\[2\]; use all\(\), any\(\), or where\(\)",
    index_behind_the_loop: "may have no turn, so that i has no value behind it",
    raising: "raise is inside of",
    asserts: "assert depends on the value of a tensor",
    unset_before_loop: "y has no value before the loop, which may have no turn; assign it before",
}


@pytest.mark.parametrize("function", TRACED, ids=lambda f: f.__name__)
def test_refused_when_traced(function):
    with pytest.raises(ScriptError, match=TRACED[function]) as caught:
        gl.jit.trace(gl.jit.script(function), (gl.tensor([1.0, 1.0]),))
    assert str(caught.value).startswith(f"{function.__name__}: ") and "test_jit_script_refused.py:" in str(caught.value)


def fails(x):
    y = x
    if x.sum() > 0:
        for _ in range(2):
            y = y @ gl.ones(7)
    return y


@pytest.mark.parametrize("traced", [False, True])
def test_errors_point_at_the_users_line(traced):
    scripted = gl.jit.script(fails)
    with pytest.raises(ValueError, match="matmul") as caught:
        gl.jit.trace(scripted, (gl.ones(2),)) if traced else scripted(gl.ones(2))
    own = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__]
    assert own[-1].line == "y = y @ gl.ones(7)"
    assert any(f.line == "if x.sum() > 0:" for f in own)


def test_lines_in_the_graph():
    program = gl.jit.trace(gl.jit.script(another_dtype), (gl.ones(2),))
    assert "# test_jit_script_refused.py" in str(program.graph) and ": if x.sum() > 0:" in str(program.graph)


def another_dtype(x):
    if x.sum() > 0:
        x = x * 2
    return x


def test_a_variable_without_a_value():
    def f(x, flag):
        if flag:
            y = x
        return y

    with pytest.raises(UnboundLocalError, match=r"cannot access local variable 'y'.*\n  at: .*: return y"):
        gl.jit.script(f)(gl.ones(1), False)
    assert gl.jit.script(f)(gl.ones(1), True).tolist() == [1.0]


def test_what_is_no_function():
    with pytest.raises(ScriptError, match="a lambda has no statements"):
        gl.jit.script(lambda x: x)
    with pytest.raises(TypeError, match="expected a function or a module, not builtin"):
        gl.jit.script(print)
    space: dict[str, object] = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(ScriptError, match="the source of f is not to be found"):
        gl.jit.script(space["f"])
    with pytest.raises(ScriptError, match="so many returns"):
        gl.jit.script(many_returns)


def many_returns(x):
    if x[0] > 1:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    if x[0] > 2:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    if x[0] > 3:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    if x[0] > 4:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    if x[0] > 5:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    if x[0] > 6:
        if x[1] > 1:
            x = x + 1
        elif x[2] > 2:
            x = x + 2
        else:
            return x
    return x
