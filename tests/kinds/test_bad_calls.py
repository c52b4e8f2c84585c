"""Calls with one wrong argument end in an answer or in an error that names the function, whatever is called: see `kinds/bad/`.

The calls run in a process of their own, with a limit on memory and one on the time of each.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradlab as gl

from kinds.bad.__main__ import parent
from kinds.bad.subjects import FAMILIES

ALL = ",".join(FAMILIES)


def tried(families, every, of):
    """What came of one call in `of`: how many there were, and the faults."""
    total, faults = parent(families, "", every, of)
    return sum(total.values()), "\n".join(" | ".join(fault) for fault in faults[:40])


def test_some_calls():
    number, faults = tried(ALL, 11, 997)
    assert not faults, faults
    assert number > 600


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_call(family):
    number, faults = tried(family, 0, 1)
    assert not faults, faults
    assert number > 1000


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: gl.split((), 2), TypeError, r"split: tensor must be a tensor, not tuple: \(\)"),
        (lambda x: x.split(2, ()), TypeError, r"split: dim is an integer, not tuple: \(\)"),
        (lambda x: gl.std("a", 1), TypeError, "std: input must be a tensor, not str: 'a'"),
        (lambda x: gl.zeros(1 << 62, 4), ValueError, "zeros: .*too big"),
        (lambda x: gl.nn.Linear("a", 2), TypeError, "Linear: .*'a'"),
        (lambda x: gl.nn.Linear(4, 2)((1,)), TypeError, "^linear: "),
        (lambda x: gl.nn.Conv2d(1, 1, 3, padding=[None])(x.expand(1, 1, 3, 4)), TypeError, "onv2d: "),
        (lambda x: gl.optim.SGD([x], lr="a"), TypeError, "SGD: "),
        (lambda x: gl.distributions.Normal(0.0, 1.0).log_prob("a"), ValueError, r"Normal\.log_prob: "),
        (lambda x: gl.tensor_split(x, 1 << 63), RuntimeError, "tensor_split: .* parts"),
        (lambda x: gl.zeros(0).chunk(10**30), RuntimeError, "chunk: .* parts"),
        (lambda x: gl.nn.Conv1d(3, 2, 4, padding="same", dilation=1 << 31)(x), RuntimeError, "padding and dilation are at most"),
        (lambda x: gl.fmod(x, gl.Tensor), TypeError, "fmod: takes tensors here, not the class"),
        (lambda x: gl.polygamma(1 << 40, x), NotImplementedError, "polygamma: n is at most 170"),
        (lambda x: gl.pca_lowrank(x, niter=1 << 62), RuntimeError, "niter: .* passes"),
    ],
)
def test_what_is_said(call, kind, text):
    with pytest.raises(kind, match=text):
        call(gl.ones(3, 4))


def test_errors_of_users_code_pass_as_they_are():
    """Code of users' that runs inside a function: its AttributeError is its own."""

    def wrong(x):
        return x.there_is_none

    x = gl.ones(2, requires_grad=True, dtype=gl.float64)
    for call in (lambda: gl.vmap(wrong)(x), lambda: gl.func.grad(wrong)(x), lambda: gl.autograd.gradcheck(wrong, x)):
        with pytest.raises(AttributeError, match="there_is_none"):
            call()


def test_an_error_is_named_once_and_by_the_function_that_was_called():
    with pytest.raises(TypeError) as found:
        gl.hstack([gl.ones(2), "a"])
    assert str(found.value).startswith("hstack: ")

    class Net(gl.nn.Module):
        def forward(self, x):
            return gl.gather(x, 7, gl.zeros(1, 1, dtype=gl.int64))

    with pytest.raises(IndexError, match=r"^gather: dimension out of range"):
        Net()(gl.ones(2, 2))


def test_an_error_holds_no_cycle():
    """With the collector off an error that was dropped frees what it was about."""
    program = """
import gc, weakref, gradlab as gl
gc.disable()
class Big(list): pass
for call in (gl.split, gl.std, gl.reshape, gl.nn.Linear(2, 2), gl.add):
    big = Big()
    seen = weakref.ref(big)
    try:
        call(big, 1)
    except Exception:
        pass
    del big
    assert seen() is None, call
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(gl.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
