"""no_grad, enable_grad, inference_mode, set_grad_enabled, anomaly detection: nesting, decorators, generators, exceptions, threads."""

import contextvars
import threading

import pytest

import gradlab as gl
from gradlab import autograd


def leaf(values):
    return gl.tensor(values, dtype=gl.float64, requires_grad=True)


def test_no_grad_records_nothing():
    x = leaf([1.0, 2.0])
    with gl.no_grad():
        y = x * 2
        assert not gl.is_grad_enabled() and not y.requires_grad and y.grad_fn is None and y.is_leaf
    assert (x * 2).requires_grad and gl.is_grad_enabled()
    with gl.no_grad():
        made = gl.zeros(2, requires_grad=True)
    assert made.requires_grad


def test_nesting_restores_what_was():
    with gl.no_grad():
        with gl.enable_grad():
            assert gl.is_grad_enabled()
            with gl.no_grad():
                assert not gl.is_grad_enabled()
            assert gl.is_grad_enabled()
        assert not gl.is_grad_enabled()
        with gl.inference_mode():
            assert gl.is_inference_mode_enabled()
            with gl.enable_grad():
                assert gl.is_grad_enabled() and gl.is_inference_mode_enabled()
        assert not gl.is_inference_mode_enabled()
    assert gl.is_grad_enabled()


def test_one_object_nests_in_itself():
    mode = gl.no_grad()
    with mode:
        with mode:
            assert not gl.is_grad_enabled()
        assert not gl.is_grad_enabled()
    assert gl.is_grad_enabled()


def test_decorators_with_and_without_parentheses():
    @gl.no_grad
    def a():
        """doc"""
        return gl.is_grad_enabled()

    @gl.no_grad()
    def b():
        return gl.is_grad_enabled()

    @gl.enable_grad
    def c():
        return gl.is_grad_enabled()

    @gl.set_grad_enabled(False)
    def d():
        return gl.is_grad_enabled()

    @gl.inference_mode
    def e():
        return gl.is_inference_mode_enabled()

    @gl.inference_mode(False)
    def f():
        return gl.is_inference_mode_enabled(), gl.is_grad_enabled()

    assert gl.is_grad_enabled()
    assert (a(), b(), d(), e()) == (False, False, False, True)
    assert (a.__name__, a.__doc__) == ("a", "doc")
    with gl.no_grad():
        assert c()
    with gl.inference_mode():
        assert f() == (False, True)
    assert gl.is_grad_enabled() and not gl.is_inference_mode_enabled()


def test_recursion():
    @gl.enable_grad()
    def inner(depth):
        if depth:
            inner(depth - 1)
        assert gl.is_grad_enabled()

    with gl.no_grad():
        inner(3)
        assert not gl.is_grad_enabled()


def test_exceptions():
    @gl.no_grad()
    def bad():
        raise KeyError("inside")

    for _ in range(2):
        with pytest.raises(KeyError):
            bad()
        assert gl.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), gl.inference_mode():
        1 / 0
    assert gl.is_grad_enabled() and not gl.is_inference_mode_enabled()


def test_generators_run_in_the_mode_and_their_callers_in_their_own():
    states = []

    @gl.no_grad()
    def numbers():
        received = []
        try:
            while True:
                states.append(gl.is_grad_enabled())
                try:
                    received.append((yield len(received)))
                except ValueError:
                    states.append("caught")
        finally:
            states.append(("closed", gl.is_grad_enabled()))

    g = numbers()
    assert next(g) == 0 and gl.is_grad_enabled()
    assert g.send("a") == 1 and gl.is_grad_enabled()
    assert g.throw(ValueError()) == 1 and gl.is_grad_enabled()
    with gl.no_grad():
        assert next(g) == 2
    assert gl.is_grad_enabled()
    g.close()
    assert gl.is_grad_enabled()
    assert states == [False, False, "caught", False, False, ("closed", False)]


def test_generators_return_and_raise():
    @gl.no_grad()
    def once(fail):
        yield gl.is_grad_enabled()
        if fail:
            raise KeyError("late")
        return 5

    def outer(fail):
        result = yield from once(fail)
        yield result

    assert list(outer(False)) == [False, 5]
    with pytest.raises(KeyError, match="late"):
        list(outer(True))
    assert gl.is_grad_enabled()


def test_a_plain_generator_may_end_in_another_context():
    def body():
        with gl.no_grad():
            yield gl.is_grad_enabled()

    g = body()
    assert contextvars.copy_context().run(next, g) is False
    g.close()  # in this context, where no_grad was never entered
    assert gl.is_grad_enabled()


def test_threads_have_modes_of_their_own():
    seen = {}
    inside, go_on = threading.Event(), threading.Event()

    def other():
        seen["start"] = gl.is_grad_enabled()
        with gl.no_grad():
            inside.set()
            go_on.wait(10)
            seen["inside"] = gl.is_grad_enabled()

    with gl.no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
    assert gl.is_grad_enabled()
    go_on.set()
    thread.join()
    assert seen == {"start": True, "inside": False}


def test_backward_in_several_threads():
    leaves = [leaf([float(i), 1.0]) for i in range(8)]

    def work(x):
        for _ in range(50):
            (x * x).sum().backward()

    threads = [threading.Thread(target=work, args=(x,)) for x in leaves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x.grad.tolist() for x in leaves] == [[100.0 * i, 100.0] for i in range(8)]


def test_set_grad_enabled_as_function_and_as_block():
    gl.set_grad_enabled(False)
    try:
        assert not gl.is_grad_enabled()
    finally:
        gl.set_grad_enabled(True)
    assert gl.is_grad_enabled()
    with gl.set_grad_enabled(False):
        assert not gl.is_grad_enabled()
        with gl.set_grad_enabled(True):
            assert gl.is_grad_enabled()
        assert not gl.is_grad_enabled()
    assert gl.is_grad_enabled()


def test_inference_tensors():
    x = leaf([1.0, 2.0])
    with gl.inference_mode():
        y = x * 2
        v = y[0]
        y.add_(1)
        assert not y.requires_grad and y.is_inference() and v.is_inference()
    assert not x.is_inference() and not gl.zeros(2).is_inference()
    with pytest.raises(RuntimeError, match=r"inference.*clone\(\)"):
        y.add_(1)
    with pytest.raises(RuntimeError, match=r"inference.*clone\(\)"):
        y.requires_grad_()
    z = y.clone()
    z.add_(1)
    assert not z.is_inference() and z.requires_grad_().requires_grad
    assert (y * 2).tolist() == [6.0, 10.0]


def test_backward_runs_under_no_grad_but_its_graph_only_on_request():
    x = leaf([2.0])
    y = (x * x * x).sum()
    with gl.no_grad():
        (g,) = autograd.grad(y, x, create_graph=True)
    assert g.requires_grad
    y.backward()
    assert not x.grad.requires_grad


def test_detect_anomaly():
    x = leaf([0.0, 1.0])
    assert x.log().tolist()[0] == float("-inf")
    with autograd.detect_anomaly(), pytest.raises(autograd.NonFiniteError, match=r"log.*finite inputs") as caught:
        x.log()
    assert "x.log()" in str(caught.value)
    root = x.sqrt().sum()
    with autograd.detect_anomaly(), pytest.raises(autograd.NonFiniteError) as caught:
        root.backward()
    assert any("SqrtBackward0" in note and "root = x.sqrt().sum()" in note for note in caught.value.__notes__)
    x.log()
    autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(autograd.NonFiniteError):
            x.log()
    finally:
        autograd.set_detect_anomaly(False)
    x.log()
