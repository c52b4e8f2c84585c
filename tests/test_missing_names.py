"""Names that PyTorch has and gradlab has not say what to use instead; the rest of PyTorch's everyday names are there."""

from __future__ import annotations

import importlib
import math

import pytest

import gradlab as gl
from gradlab.tensor.missing_names import MODULES, TENSOR
from gradlab.tensor.spellings import SpellingMethods


@pytest.mark.parametrize("name", TENSOR)
def test_tensor_says_what_to_use(name):
    assert not hasattr(gl.Tensor, name), "it exists by now: take it out of the table"
    with pytest.raises(AttributeError, match=rf"^gradlab has no Tensor\.{name}: \w"):
        getattr(gl.ones(2), name)


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in MODULES.items() for n in names])
def test_module_says_what_to_use(module, name):
    with pytest.raises(AttributeError, match=rf"^module '{module}' has no attribute '{name}': \w"):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("complex32", "half precision"), ("gelu", r"gl\.nn\.functional\.gelu"), ("addcmul_", r"x\.addcmul_"),
        ("slogdet_", None), ("sofmax", "did you mean softmax"), ("values_copy", "_copy"), ("__wrapped__", None), ("zzzz", None),
    ],
)  # fmt: skip
def test_advice(name, advice):
    with pytest.raises(AttributeError) as caught:
        getattr(gl, name)
    assert str(caught.value).startswith(f"module 'gradlab' has no attribute '{name}'")
    if advice is not None:
        assert caught.match(advice)


def test_the_place_of_parallel_modules_can_be_imported():
    assert importlib.import_module("gradlab.nn.parallel") is gl.nn.parallel
    with pytest.raises(AttributeError, match="one device"):
        gl.nn.parallel.replicate


def test_other_modules_know_what_looks_alike():
    with pytest.raises(AttributeError, match=r"did you mean .*Linear"):
        gl.nn.Linaer
    with pytest.raises(AttributeError, match="did you mean AdamW"):
        gl.optim.AdmaW
    with pytest.raises(AttributeError, match=r"did you mean .*cross_entropy"):
        gl.nn.functional.cross_entropi


def test_a_tensor_stays_as_quick_as_it_was():
    """With a `__getattr__` on its class every attribute would be looked up the slow way."""
    assert not hasattr(gl.Tensor, "__getattr__")
    assert "__getattribute__" not in {n for c in gl.Tensor.__mro__[:-1] for n in vars(c)}


def test_own_attributes_may_have_such_names():
    x = gl.ones(2)
    x.name = "weights"
    assert x.name == "weights"
    assert "chalf" not in dir(x)
    assert not hasattr(x, "dequantize")


def test_twins():
    x = gl.tensor([[1.0, 2.0]], requires_grad=True)
    assert gl.clone(x) is not x
    assert not gl.detach(x).requires_grad
    assert x.real is x
    assert x.conj() is gl.conj(x) is gl.real(x) is x
    assert x.H.shape == x.mH.shape == gl.adjoint(x).shape == (2, 1)
    with pytest.raises(RuntimeError, match="mH"):
        gl.ones(2).H
    assert (x.is_cpu, x.is_cuda, x.is_sparse, x.get_device(), x.ndimension()) == (True, False, False, -1, 2)
    assert gl.isreal(x).tolist() == [[True, True]]
    assert not x.is_complex()
    assert [gl.is_signed(gl.zeros(1, dtype=d)) for d in (gl.float32, gl.bfloat16, gl.int8, gl.uint8, gl.bool)] == [True] * 3 + [False] * 2
    assert x.is_same_size(gl.ones(1, 2))
    assert SpellingMethods in gl.Tensor.__mro__


def test_constants_and_short_dtypes():
    assert (gl.pi, gl.e, gl.inf, gl.newaxis) == (math.pi, math.e, math.inf, None)
    assert math.isnan(gl.nan)
    assert (gl.float, gl.int, gl.long) == (gl.float32, gl.int32, gl.int64)
    assert gl.ones(3)[:, gl.newaxis].shape == (3, 1)
