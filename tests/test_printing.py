"""Tensors as text: explicit layouts; `-m torch` compares many with PyTorch's, letter by letter."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gradlab as gl
from gradlab.dtype import ALL


@pytest.fixture(autouse=True)
def default_options():
    with gl.printoptions(profile="default"):
        yield


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (gl.tensor([1.0, 2.0, 3.0]), "tensor([1., 2., 3.])"),
        (gl.tensor([1, 20, 300]), "tensor([  1,  20, 300])"),
        (gl.tensor([0.5, -1.25]), "tensor([ 0.5000, -1.2500])"),
        (gl.tensor([True, False]), "tensor([ True, False])"),
        (gl.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
        (gl.tensor([1e10, 1.0]), "tensor([1.0000e+10, 1.0000e+00])"),
        (gl.tensor([float("nan"), 1.0, float("-inf")]), "tensor([nan, 1., -inf])"),
        (gl.tensor([0.0, 0.0]), "tensor([0., 0.])"),
        (gl.tensor(3.5), "tensor(3.5000)"),
        (gl.tensor(3), "tensor(3)"),
        (gl.tensor(True), "tensor(True)"),
        (gl.tensor([]), "tensor([])"),
        (gl.zeros(2, 0), "tensor([], size=(2, 0))"),
        (gl.zeros(0, dtype=gl.int64), "tensor([], dtype=gradlab.int64)"),
        (gl.tensor([1.0], dtype=gl.float64), "tensor([1.], dtype=gradlab.float64)"),
        (gl.tensor([1.5], dtype=gl.bfloat16), "tensor([1.5000], dtype=gradlab.bfloat16)"),
        (gl.tensor([1], dtype=gl.uint8), "tensor([1], dtype=gradlab.uint8)"),
        (gl.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
        (gl.tensor([1.0], requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
        (gl.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
        (gl.ones(1, 2, 1, 1), "tensor([[[[1.]],\n\n         [[1.]]]])"),
        (gl.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    ],
    ids=str,
)
def test_layout(tensor, text):
    assert repr(tensor) == str(tensor) == text
    if tensor.ndim:
        assert f"{tensor}" == text


def test_edges_of_many_dimensions():
    assert repr(gl.arange(10_000).reshape(100, 100)) == (
        "tensor([[   0,    1,    2,  ...,   97,   98,   99],\n"
        "        [ 100,  101,  102,  ...,  197,  198,  199],\n"
        "        [ 200,  201,  202,  ...,  297,  298,  299],\n"
        "        ...,\n"
        "        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n"
        "        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n"
        "        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])"
    )


def test_options():
    x = gl.tensor([1.23456789, 100.0])
    with gl.printoptions(precision=2):
        assert repr(x) == "tensor([  1.23, 100.00])"
    with gl.printoptions(sci_mode=True, precision=1):
        assert repr(x) == "tensor([1.2e+00, 1.0e+02])"
    with gl.printoptions(sci_mode=False):
        assert repr(gl.tensor([1e-5, 1.0])) == "tensor([0.0000, 1.0000])"
    with gl.printoptions(threshold=4, edgeitems=1):
        assert repr(gl.arange(9)) == "tensor([0,  ..., 8])"
    with gl.printoptions(linewidth=20):
        assert repr(gl.arange(6)) == "tensor([0, 1, 2, 3,\n        4, 5])"
    with gl.printoptions(profile="short"):
        assert repr(x) == "tensor([  1.23, 100.00])"
    with gl.printoptions(profile="full"):
        assert "..." not in repr(gl.arange(2000))
    assert repr(x) == "tensor([  1.2346, 100.0000])"


@pytest.mark.parametrize(
    "options", [{"profile": "loud"}, {"precision": -1}, {"edgeitems": 0}, {"linewidth": 0}, {"threshold": float("nan")}]
)
def test_wrong_options(options):
    with pytest.raises(ValueError):
        gl.set_printoptions(**options)


def test_wrong_type():
    with pytest.raises(TypeError):
        gl.set_printoptions(precision=2.5)


def test_traced_tensor_shows_what_it_has():
    class Symbol:
        shape, dtype = (2, 3), np.dtype("float32")

    x = gl.zeros(1)
    x._array = Symbol()
    assert repr(x) == "tensor(<traced>, shape=(2, 3), dtype=gradlab.float32)"


def test_large_tensors_are_not_copied_whole():
    huge = gl.zeros(1).expand(100_000, 100_000, 100)
    assert repr(huge).startswith("tensor([[[0., 0., 0.,  ..., 0., 0., 0.],\n")


def arrays():
    rng = np.random.default_rng(0)
    yield from (
        rng.normal(size=s)
        for s in ((), (1,), (5,), (3, 4), (2, 3, 4), (2, 1, 2, 3), (30, 40), (7, 200), (1200,), (11, 11, 11), (0,), (2, 0, 3))
    )
    yield from (rng.normal(size=20) * 10.0**e for e in (-8, -5, -3, 2, 4, 6, 9, 20))
    yield from (rng.integers(-9, 9, 30) * 10.0**e for e in (0, 2, 5, 9))
    yield np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5])
    yield np.array([np.nan, np.inf])
    yield np.array([1.0, np.inf, 12345.0])
    yield np.array([1e-3, 1.0, 999.0])
    yield np.array([1.0, 1000.5])
    yield np.zeros((2, 3))


def unwrapped(tensor):
    """The text with what follows the elements on one line: "gradlab" is longer than "torch", so lines break elsewhere."""
    return re.sub(r",\s+(dtype|size|grad_fn|requires_grad)=", r", \1=", repr(tensor).replace("torch.", "gradlab."))


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [{}, {"profile": "short"}, {"sci_mode": True}, {"sci_mode": False}, {"linewidth": 40, "precision": 6, "threshold": 10}],
    ids=str,
)
def test_as_in_torch(options):
    torch = pytest.importorskip("torch")
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**options)
    try:
        with gl.printoptions(**options):
            for array in arrays():
                for dtype in ALL:
                    if not dtype.is_floating_point and not np.isfinite(array).all():
                        continue
                    values = np.clip(array, 0, 200) if not dtype.is_floating_point else array
                    theirs = torch.tensor(values).to(getattr(torch, dtype.name))
                    ours = (
                        gl.tensor(values).to(dtype)
                        if dtype.name not in ("bfloat16", "float16")
                        else gl.tensor(theirs.double().numpy()).to(dtype)
                    )
                    assert unwrapped(ours) == unwrapped(theirs)
                    if dtype.is_floating_point:
                        assert unwrapped(ours.requires_grad_()) == unwrapped(theirs.requires_grad_())
                        assert unwrapped(ours * 2) == unwrapped(theirs * 2)
    finally:
        torch.set_printoptions(profile="default")
